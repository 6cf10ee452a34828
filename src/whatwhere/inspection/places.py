"""Where tokens stand: the table of positions, and what it weighs against the tokens."""

from typing import Any

import numpy as np

from whatwhere.analysis.shares import shares
from whatwhere.analysis.trained_positions import trained_positions
from whatwhere.inspection.subject import Absent, Subject, plain
from whatwhere.inspection.tokens import as_numbers

_NORMS = (
    "embeddings.LayerNorm.weight", "embeddings.layer_norm.weight", "token_embd_norm.weight",
    "decoder.layernorm_embedding.weight", "layernorm_embedding.weight", "h.0.ln_1.weight", "blk.0.attn_norm.weight",
    "layers.0.self_attn_layer_norm.weight",
)  # fmt: skip
"""Ends of names of the first norm that the sum of token and position goes through, with its gain."""
_MOST = 4096
_DISTANCES = 1024


def positions(subject: Subject) -> dict[str, Any]:
    """Examine the table of positions."""
    try:
        table = subject.positions
    except Absent as problem:
        raise Absent(_instead(subject, str(problem))) from None
    rows = np.flatnonzero(np.isfinite(table).all(axis=1))
    if len(rows) < len(table) or len(table) < 2:
        broken = len(table) - len(rows)
        raise Absent(
            f"the table of positions has {len(table)} rows, {broken} of which hold numbers that are not finite"
        )
    subject.tell("examining positions")
    found = trained_positions(table[:_MOST])
    name = subject.checkpoint.position_table
    return plain({
        "learned": name is not None,
        "tensor": name,
        "positions": len(table),
        "offset": subject.checkpoint.position_offset,
        "looked_at": min(len(table), _MOST),
        "dim": table.shape[1],
        "median_norm": np.median(found.norms),
        "norms": found.norms,
        "outliers": [{"position": int(n), "norm": found.norms[n]} for n in found.outliers],
        "spectrum": as_numbers(found.spectrum, table[:_MOST]),
        "by_distance": found.by_distance[:_DISTANCES],
        "shift": found.shift,
        "trained": found.trained,
    })  # fmt: skip


def against(subject: Subject) -> dict[str, Any]:
    """Split the variance of what the first layer sees into the token's, the position's, and both's."""
    try:
        places = subject.positions
    except Absent as problem:
        raise Absent(f"{_instead(subject, str(problem))}; the first layer sees nothing but what") from None
    table = subject.table
    if places.shape[1] != table.shape[1]:
        raise Absent(f"tokens have {table.shape[1]} features and positions {places.shape[1]}: a projection is between")
    if not np.isfinite(places).any() or not len(subject.sound):
        raise Absent("no row holds finite numbers")
    subject.tell("splitting what from where")
    gain, shift, norm = first_norm(subject, table.shape[1])
    kinds = subject.checkpoint.segment_table
    added = None if kinds is None else subject.checkpoint.array(kinds, rows=[0])[0]
    scale, scaled = token_scale(subject, table.shape[1])
    found = shares(table, places, scale=scale, gain=gain, shift=shift, added=added, seed=subject.seed)
    return plain({
        "token": found.token,
        "position": found.position,
        "interaction": found.interaction,
        "angle": found.angle,
        "norm": norm,
        "scale": scale,
        "scale_known": scaled,
        "tokens": min(512, len(table)),
        "positions": min(512, len(places)),
    })  # fmt: skip


def first_norm(subject: Subject, dim: int) -> tuple[np.ndarray | None, np.ndarray | None, str | None]:
    """Give gain, shift and name of the first norm that the sum of token and position goes through; None without."""
    for end in _NORMS:
        gain = subject.optional([end])
        if gain is not None and gain.shape == (dim,):
            shift = subject.optional([end.removesuffix("weight") + "bias"])
            return gain, shift if shift is not None and shift.shape == (dim,) else None, end
    return None, None, None


def token_scale(subject: Subject, dim: int) -> tuple[float, bool]:
    """Give what token vectors are multiplied by, and whether the configuration says so."""
    try:
        scale = subject.description.embedding_scale
    except Absent:
        return 1.0, False
    if scale is None:
        return 1.0, True
    return (dim**0.5, True) if isinstance(scale, str) else (float(scale), True)


def _instead(subject: Subject, why: str) -> str:
    """Say what tells positions where no table does."""
    try:
        found = subject.description
    except Absent:
        return why
    names = {plan.scheme.__name__ for plan in (*found.query_key, *found.score) if plan is not None}
    if not names:
        return f"{why}, nor anything else that tells where a token stands"
    return f"{why}: it tells where a token stands in the attention, by {' and '.join(sorted(names))}"
