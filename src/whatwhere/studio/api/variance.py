"""The variance split: which shares of the variance of the first layer's input token and position explain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from whatwhere.analysis.input_variance import VarianceSplit as Split
from whatwhere.analysis.input_variance import variance_split
from whatwhere.analysis.position_embedding import first_norm
from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.report.section import Section, Table
from whatwhere.studio.api.pipeline import TOKENS
from whatwhere.studio.api.runs import of_first_runs
from whatwhere.studio.api.settings import MOST_FEATURES, ExportedView, flag, known, number, one_of, scheme, text, whole
from whatwhere.studio.schemes import (
    DEFAULT_DIM,
    MODEL,
    DoorScheme,
    ShownScheme,
    default_scheme,
    factor_of,
    runs,
    token_tensor,
)
from whatwhere.studio.session import Session

MOST_ROWS = 4096
SAMPLED, FEW = 512, 96
"""Tokens of a random table; tokens and positions behind each point of a curve, which then is right to a percent."""
WINDOWS = (0, 8, 32, 128, 512, 2048)
Rows = Float[np.ndarray, "_ _"]
"""Rows of a table of float vectors; two arguments of this type may differ in both sizes."""
SCALES = tuple(float(2**n) for n in range(-7, 8))
_SETTINGS = ("tokens", "scheme", "run", "dim", "heads", "rows", "scale", "normalize", "seed")


def begin(session: Session) -> dict[str, Any]:
    """Return the settings that the view begins with."""
    loaded = session.kind != "fresh" and bool(session.tables)
    lengths = [run.max_length for run in session.results.runs] if session.kind == "results" else []
    added = [run for run in runs(session) if run.startswith(("learned", "sinusoidal"))]
    return {
        "tokens": "loaded" if loaded else "words",
        "scheme": added[0] if added else default_scheme(session, "sinusoidal", for_odd="learned"),
        "rows": min(max(lengths, default=0) or 512, MOST_ROWS),  # those of the runs, where they say it
        "scale": 1,
        "normalize": True,
        "dim": 0 if loaded else 64,
        "heads": 0,
        "seed": 0,
    }


@dataclass(frozen=True)
class MedianNorms:
    """The median norms of token vectors, as they are added, and of position vectors."""

    token: float
    position: float


@dataclass(frozen=True)
class VarianceShares:
    """Shares of the variance of the first layer's input.

    Args:
        norm: the first norm of the model, in words; None where there is none.
        added: whether the row of the first segment is added.
        factor: by which the model multiplies token vectors.
        scale: by which they are multiplied besides.
        tokens, rows: how many tokens and positions were combined.
        python: code that computes the same.
        token, position, interaction: the shares, which sum to 1.
        mean_abs_cosine: of the angle between token and position vectors.
        windows: ranges of positions, each as its first position and the one after its last.
        by_window: the three shares within each.
        scales: further factors of the token vectors.
        by_scale: the three shares with each.
        norms: the median norms.
    """

    norm: str | None
    added: bool
    factor: float
    scale: float
    tokens: int
    rows: int
    python: str
    token: float
    position: float
    interaction: float
    mean_abs_cosine: float
    windows: Int[np.ndarray, "windows 2"]
    by_window: Float[np.ndarray, "windows 3"]
    scales: Float[np.ndarray, " scales"]
    by_scale: Float[np.ndarray, "scales 3"]
    norms: MedianNorms


@dataclass(frozen=True)
class VarianceSplit:
    """What the variance split was computed from, and its result.

    Args:
        title: of the encoding.
        doors: at which it enters.
        notes: on it.
        tensor: the token table; None for random vectors.
        dim: of the vectors.
        missing: why there is nothing to split; None where there is.
        shares: the result; None where there is nothing to split.
    """

    title: str
    doors: Sequence[DoorScheme]
    notes: Sequence[str]
    tensor: str | None
    dim: int
    missing: str | None
    shares: VarianceShares | None


def exported(session: Session) -> ExportedView | None:
    """Return the first split, for an exported page."""
    first = begin(session)
    try:
        split = shares(session, first).shares
    except WhatWhereError:
        return None
    sections = []
    if split is not None:
        windows = [f"positions {a} to {b - 1}" for a, b in split.windows]
        parts = [[split.token, split.position, split.interaction], *split.by_window.tolist()]
        named = zip(["all positions", *windows], parts, strict=True)
        cells = [(window, *(f"{100 * share:.1f} %" for share in row)) for window, row in named]
        table = Table("Share of the variance", ("positions", "token", "position", "both"), cells, (1, 2, 3))
        sections.append(Section("shares", "Variance explained", [table]))
    queries = [("schemes.list", {}), *(("variance.shares", each) for each in of_first_runs(session, first))]
    return ExportedView("Variance split", queries, sections=sections)


def shares(session: Session, settings: Mapping[str, Any]) -> VarianceSplit:
    """Split the variance of the first layer's input into the share of the token, of the position, and of both.

    Args:
        session: what is open.
        settings: tokens ("loaded", or "words" for random vectors); scheme ("model", a run, or a name of the
            catalogue); run, whose token table goes with a scheme of the catalogue; rows (512), the number of positions
            at most; scale, a factor of the token vectors besides the model's own (1); normalize, to mean 0 and variance
            1 by vector (true); dim; heads; seed.
    """
    known(settings, *_SETTINGS)
    loaded = one_of(settings, "tokens", TOKENS) == "loaded"
    name, seed = text(settings, "scheme"), whole(settings, "seed", 0, 0, 1 << 31)
    wanted = whole(settings, "rows", 512, 2, MOST_ROWS)
    times, normalize = number(settings, "scale", 1.0, 1e-6, 1e6), flag(settings, "normalize", True)
    tensor = token_tensor(session, name, text(settings, "run", "")) if loaded else None
    width = None if tensor is None else session.checkpoint.entry(tensor).shape[1]
    here = scheme(session, settings, wanted, width or whole(settings, "dim", 0, 0, MOST_FEATURES) or DEFAULT_DIM)
    head = (here.title, here.doors(), list(here.notes), tensor, here.dim)
    if here.where.input is None:
        return VarianceSplit(*head, _without(here.doors()), None)
    tokens = _tokens(session, tensor, here.dim, seed)
    positions = _position_vectors(here, min(wanted, here.max_length or wanted))
    _require_sum(tokens, positions)
    own = _first_layer(session, here.dim, normalize) if name == MODEL and loaded else _FirstLayer()
    factor = factor_of(session) if loaded else 1.0
    split = _Splitter(tokens, positions, factor * times, own, normalize, seed)
    return VarianceSplit(*head, None, split.shares(factor, times, _in_python(here, tensor, split)))


def _in_python(shown: ShownScheme, tensor: str | None, split: "_Splitter") -> str:
    """Return lines that compute the split in public names; PATH is the path of what is open."""
    tokens = f"torch.randn({SAMPLED}, {shown.dim}, generator=torch.Generator().manual_seed({split.seed})).numpy()"
    if tensor is not None:
        tokens = f"np.float32(ww.read(PATH).array({tensor!r}))"
    own = split.first_layer.tensors
    arrays = [f"{name} = ww.read(PATH).array({source}){'[0]' * (name == 'added')}" for name, source in own.items()]
    settings = f"scale={split.scale!r}, normalize={split.normalize}, seed={split.seed}"
    return "\n".join(
        [
            f"import numpy as np\n{shown.python}",
            f"tokens = {tokens}",
            f"positions = where.input(ww.positions({len(split.positions)}))[0].detach().numpy()",
            *arrays,
            f"split = ww.analysis.variance_split(tokens, positions, {settings}{''.join(f', {n}={n}' for n in own)})",
            "split.token, split.position, split.interaction",
        ]
    )


def _require_sum(tokens: Rows, positions: Rows) -> None:
    if tokens.shape[1] != positions.shape[1]:
        raise SettingError(
            f"tokens have {tokens.shape[1]} features and positions {positions.shape[1]}: a projection is between them, "
            "and they are never added as they are.\nChoose another scheme."
        )
    if not np.isfinite(positions).all(axis=1).any() or not np.isfinite(tokens).all(axis=1).any():
        raise SettingError("no row has finite numbers only, so there is nothing to split.\nChoose another table.")


@dataclass(frozen=True)
class _FirstLayer:
    """What the model does to the sum of token and position.

    Args:
        gain, shift: of the first norm.
        norm: in words.
        added: the row of the first segment.
        tensors: by these names, what reads them from the file.
    """

    gain: Float[np.ndarray, " dim"] | None = None
    shift: Float[np.ndarray, " dim"] | None = None
    norm: str | None = None
    added: Float[np.ndarray, " dim"] | None = None
    tensors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Splitter:
    """The split of one sum, as a whole and in parts."""

    tokens: Rows
    positions: Rows
    scale: float
    first_layer: _FirstLayer
    normalize: bool
    seed: int

    def shares(self, factor: float, times: float, python: str) -> VarianceShares:
        """Return the shares among all positions, in windows, and with other scales of the tokens."""
        count = len(self.positions)
        whole_split = self._split(self.tokens, self.positions, self.scale)
        few, spread = _some(self.tokens, self.seed), _some(self.positions, self.seed)
        windows = _windows(count)
        by_window = [self._parts(few, _some(self.positions[a:b], self.seed), self.scale) for a, b in windows]
        return VarianceShares(
            norm=self.first_layer.norm,
            added=self.first_layer.added is not None,
            factor=factor,
            scale=times,
            tokens=min(SAMPLED, len(self.tokens)),
            rows=count,
            python=python,
            token=whole_split.token,
            position=whole_split.position,
            interaction=whole_split.interaction,
            mean_abs_cosine=whole_split.mean_abs_cosine,
            windows=np.array(windows),
            by_window=np.array(by_window),
            scales=np.array(SCALES),
            by_scale=np.array([self._parts(few, spread, self.scale * more) for more in SCALES]),
            norms=MedianNorms(self.scale * _median_norm(self.tokens), _median_norm(self.positions)),
        )

    def _split(self, tokens: Rows, positions: Rows, scale: float) -> Split:
        own = self.first_layer
        return variance_split(
            tokens,
            positions,
            scale=scale,
            normalize=self.normalize,
            gain=own.gain,
            shift=own.shift,
            added=own.added,
            seed=self.seed,
        )

    def _parts(self, tokens: Rows, positions: Rows, scale: float) -> list[float]:
        split = self._split(tokens, positions, scale)
        return [split.token, split.position, split.interaction]


def _windows(count: int) -> list[tuple[int, int]]:
    edges = [edge for edge in WINDOWS if edge < count]
    windows = [(first, min(last, count)) for first, last in zip(edges, [*edges[1:], count], strict=True)]
    windows = [(first, last) for first, last in windows if last - first > 1]
    return [*windows, (1, count)] if count > 2 else windows


def _tokens(session: Session, tensor: str | None, dim: int, seed: int) -> Rows:
    if tensor is None:
        from whatwhere.analysis.walkthrough import random_embedding

        return np.asarray(random_embedding(SAMPLED, dim, seed).weight.detach().numpy())
    if session.tables and not session.runs and tensor == session.checkpoint.token_table:
        return session.table().weight
    return session.once(("array", tensor), lambda: np.asarray(session.checkpoint.array(tensor), np.float32))


def _position_vectors(here: Any, rows: int) -> Rows:
    from whatwhere.position.positions import positions

    return np.asarray(here.where.input(positions(rows))[0].detach().float().numpy())


def _first_layer(session: Session, dim: int, normalize: bool) -> _FirstLayer:
    gain, shift, norm = first_norm(session.subject, dim)[:3] if normalize else (None, None, None)
    segments = session.checkpoint.segment_table
    fits = segments is not None and session.checkpoint.entry(segments).shape[1:] == (dim,)
    added = session.checkpoint.array(str(segments), rows=[0])[0] if fits else None
    tensors = {}
    if norm is not None:
        tensors["gain"] = repr(session.subject.tensor_name([norm]))
    if norm is not None and shift is not None:
        tensors["shift"] = repr(session.subject.tensor_name([norm.removesuffix("weight") + "bias"]))
    if fits:
        tensors["added"] = f"{segments!r}, rows=[0]"
    return _FirstLayer(gain, shift, norm, added, tensors)


def _without(doors: Sequence[DoorScheme]) -> str:
    names = " and ".join(door.name for door in doors)
    other = f"position enters in the attention, by {names}" if names else "no position enters anywhere"
    return f"no position is added to the token vectors, so the token explains all of the variance; {other}."


def _some(rows: Rows, seed: int) -> Rows:
    finite = np.flatnonzero(np.isfinite(rows).all(axis=1))
    if len(finite) > FEW:
        finite = np.sort(np.random.default_rng(seed).choice(finite, FEW, replace=False))
    return rows[finite]


def _median_norm(rows: Rows) -> float:
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    return float(np.median(norms[np.isfinite(norms)]))
