"""The position embedding, and the variance of the first layer's input that tokens and positions explain."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.input_variance import VarianceSplit, variance_split
from whatwhere.analysis.position_table import TrainedPositions, trained_positions
from whatwhere.analysis.subject import Absent, Subject
from whatwhere.analysis.token_table import TableSpectrum, table_spectrum
from whatwhere.models.configuration.plan import CurvePlan
from whatwhere.models.model_text import token_factor

_NORMS = (
    "embeddings.LayerNorm.weight", "embeddings.layer_norm.weight", "token_embd_norm.weight",
    "decoder.layernorm_embedding.weight", "layernorm_embedding.weight", "h.0.ln_1.weight", "blk.0.attn_norm.weight",
    "layers.0.self_attn_layer_norm.weight", "blocks.0.norm_attention.weight",
)  # fmt: skip
"""Suffixes of the name of the gain of the first normalization that the sum of token and position passes."""
_MAX_POSITIONS = 4096
_MAX_DISTANCES = 1024
_SAMPLE = 512
"""Tokens and positions at most that the variance is split over: what `variance_split` samples."""


@dataclass(frozen=True, eq=False)
class PositionTable(TrainedPositions):
    """The vectors that are added for positions. Inherits what was computed: norms, outliers, spectrum and so on.

    Args:
        learned: whether they are a table of the file; else a fixed scheme's.
        tensor: name of the table.
        positions: how many there are.
        offset: the row that position 0 reads; None where that is not known.
        examined: positions that the computations cover, from 0 on.
        dim: features of a vector.
        median_norm: of the vectors.
    """

    spectrum: TableSpectrum
    learned: bool
    tensor: str | None
    positions: int
    offset: int | None
    examined: int
    dim: int
    median_norm: float


@dataclass(frozen=True)
class InputVariance(VarianceSplit):
    """Shares of the variance of the first layer's input, and how they were computed.

    Args:
        norm: name of the gain of the first normalization; None where a plain one was used, for none was found.
        scale: factor of the token embeddings.
        scale_known: whether the configuration gives it; else it is taken as 1.
        tokens, positions: how many were sampled.
    """

    norm: str | None
    scale: float
    scale_known: bool
    tokens: int
    positions: int


def positions(subject: Subject) -> PositionTable:
    """Compute the similarities, norms and spectrum of the position embedding."""
    try:
        table = subject.positions
    except Absent as problem:
        raise Absent(_instead(subject, str(problem))) from None
    finite = np.isfinite(table).all(axis=1).sum()
    if finite < len(table) or len(table) < 2:
        raise Absent(f"the position table has {len(table)} rows, {len(table) - finite} of them not finite")
    subject.progress("examining positions")
    trained = trained_positions(table[:_MAX_POSITIONS])
    name = subject.checkpoint.position_table
    spectrum = table_spectrum(trained.spectrum, table[:_MAX_POSITIONS])
    return PositionTable(
        **vars(trained) | {"spectrum": spectrum, "by_distance": trained.by_distance[:_MAX_DISTANCES]},
        learned=name is not None,
        tensor=name,
        positions=len(table),
        offset=subject.checkpoint.position_offset,
        examined=min(len(table), _MAX_POSITIONS),
        dim=table.shape[1],
        median_norm=float(np.median(trained.norms)),
    )


def variance(subject: Subject) -> InputVariance:
    """Return the shares of the variance of the first layer's input that tokens and positions explain."""
    try:
        added = subject.positions
    except Absent as problem:
        alone = "; so the first layer's input is the token embedding alone" if _adds_none(subject) else ""
        raise Absent(_instead(subject, str(problem)) + alone) from None
    table = subject.table
    if added.shape[1] != table.shape[1]:
        raise Absent(f"tokens have {table.shape[1]} features and positions {added.shape[1]}: a projection is between")
    if not np.isfinite(added).any() or not len(subject.usable):
        raise Absent("no row holds finite numbers")
    subject.progress("splitting the variance of tokens and positions")
    gain, shift, norm = first_norm(subject, table.shape[1])
    types = subject.checkpoint.segment_table
    first_type = None if types is None else subject.checkpoint.array(types, rows=[0])[0]
    factor = token_factor(subject.checkpoint)
    split = variance_split(
        table,
        added,
        scale=factor or 1.0,
        gain=gain,
        shift=shift,
        added=first_type,
        seed=subject.seed,
    )
    return InputVariance(
        **vars(split),
        norm=norm,
        scale=factor or 1.0,
        scale_known=factor is not None,
        tokens=min(_SAMPLE, len(table)),
        positions=min(_SAMPLE, len(added)),
    )


def first_norm(
    subject: Subject, dim: int
) -> tuple[Float[np.ndarray, " dim"] | None, Float[np.ndarray, " dim"] | None, str | None]:
    """Return gain, shift and name of the first normalization that the sum of token and position passes; None without.

    Args:
        subject: what is inspected.
        dim: features of a token embedding.
    """
    for end in _NORMS:
        gain = subject.optional([end])
        if gain is not None and gain.shape == (dim,):
            shift = subject.optional([end.removesuffix("weight") + "bias"])
            return gain, shift if shift is not None and shift.shape == (dim,) else None, end
    return None, None, None


def _adds_none(subject: Subject) -> bool:
    """Return whether the configuration, or the scheme of a run, shows that no position embedding is added."""
    try:
        if subject.checkpoint.format == "run":
            return subject.run[0].where.input is None
        return subject.description.input is None
    except Absent:
        return False


def _instead(subject: Subject, reason: str) -> str:
    """Return why there is no position embedding, and what encodes positions instead."""
    if not _adds_none(subject):
        return reason
    if subject.checkpoint.format == "run":
        where = subject.run[0].where
        names = {type(scheme).__name__ for scheme in (where.query_key, where.score, where.window) if scheme is not None}
    else:
        description = subject.description
        names = {plan.class_name for plan in (*description.query_key, *description.score) if plan is not None}
        names |= {type(window).__name__ for window in description.windows if window is not None}
        curves = [curve for curve in description.temperatures if curve is not None]
        names |= {"QueryTemperature" if isinstance(curve, CurvePlan) else curve.class_name for curve in curves}
    if not names:
        return "this model has no positional encoding: every position is treated alike"
    *others, last = sorted(names)
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"{reason}: positions enter its attention, by {listed}"
