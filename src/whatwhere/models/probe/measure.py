"""Measure the attention of each layer: map of queries and keys, scale, bias, span and sink."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import torch

from whatwhere.errors import CheckpointError
from whatwhere.models.probe.findings import NONE, NOT_MEASURED, ROTARY, SCALED, FeatureMap, Layer
from whatwhere.models.probe.forward import SHORT, Subject
from whatwhere.models.probe.projections import Projections, watched_projections
from whatwhere.models.probe.score import bias_of, scale_of, span_of
from whatwhere.models.probe.solve import BY_HEAD, merged, solve
from whatwhere.models.probe.watch import Call

BY_SLOT = "the factor follows the slot in the sequence, not position ids"
NEAR, FAR = (0, 1, 2, 4, 8, 16), (0, 1, 4, 16, 64, 256, 1024, 4096, 20_000)
"""Positions of short sequences, and of those that reach far."""
BELOW_TABLE = (0, 1, 2, 4, 8, 16, 32)
"""Positions where a learned table ends before the far ones."""
WARM = 4
"""Tokens before the first one that is measured: a short convolution over tokens then sees the same content."""
TOKENS, LEAST_CONTENTS, LONGEST = 24, 16, 4100
"""Tokens of a sequence at the model's own positions, sequences at least, and tokens at most to see a window end."""


@dataclass(frozen=True)
class _Run:
    """A call of attention at some positions, and which of query and key follow position ids in its layer."""

    call: Call
    positions: tuple[int, ...]
    follows: tuple[str, ...] = ("query", "key")

    def solve(self, side: str) -> FeatureMap:
        """Return the map of its queries, or of its keys."""
        return solve(getattr(self.call, side).cpu().numpy(), self.positions)


def layers_of(subject: Subject, notes: list[str]) -> tuple[tuple[Layer, ...], bool]:
    """Return what is measured of each attention over one sequence, and whether the model follows position ids.

    Args:
        notes: gets a line for all that could not be measured.
    """
    first, _ = subject.calls(*SHORT)
    contents = max(LEAST_CONTENTS, *(ceil(1.5 * call.query.shape[3] / _independent(call)) for call in first))
    contents += contents in (TOKENS, TOKENS + 1)  # so that no axis is taken for another one
    with watched_projections(subject.model, subject.modules, contents) as projections:
        natural, replaced = subject.calls(contents, TOKENS)
    if any(call.query_sinks for call in natural):
        notes.append("sinks: each query has one of its own, which its token determines, and which is not measured")
    runs = _at_positions(subject, contents, notes)
    spans = _long_enough(subject, natural)
    layers = []
    for index, call in enumerate(natural):
        if call.module not in replaced:
            reason = "its module is not given hidden states (batch, tokens, features) that could be made equal"
            query = key = FeatureMap(NOT_MEASURED, reason=reason)
        else:
            query, key = (_map(runs[index], call, side, any(runs)) for side in ("query", "key"))
        layers.append(_layer(call, spans[index], query, key, projections))
    return tuple(layers), any(runs)


def _independent(call: Call) -> int:
    """Return how many heads have keys of their own: repeated ones add nothing to a fit."""
    keys = call.key[:, :, 0]
    return len({tuple(head[:, :4].flatten().tolist()) for head in keys.transpose(0, 1)})


def _layer(call: Call, span: Call, query: FeatureMap, key: FeatureMap, projections: Projections) -> Layer:
    seen = projections.of(call.module)
    magnitude = seen.magnitude if seen is not None else None
    factor = 1.0
    if seen is not None:
        query, factor_query = seen.compared(call.query[:, :, 0], query)
        key, factor_key = seen.compared(call.key[:, :, 0], key)
        of_rotation = magnitude if query.kind == ROTARY and magnitude else 1.0
        found = [each / of_rotation for each in (factor_query, factor_key) if each is not None]
        factor = prod(found)
        factor = 1.0 if query.reason == BY_HEAD else factor
    scale = scale_of(call)
    return Layer(
        call.module,
        call.query.shape[1],
        call.key.shape[1],
        call.query.shape[3],
        query,
        key,
        magnitude,
        None if scale is None else scale * factor,
        bias_of(call),
        span_of(span),
        call.sinks is not None,
        call.softcap,
    )


def _at_positions(subject: Subject, contents: int, notes: list[str]) -> list[list[_Run]]:
    """Return for each layer its queries and keys at NEAR and at far positions, where it follows position ids."""
    none: list[list[_Run]] = [[] for _ in subject.modules]
    if not subject.accepts_positions:
        notes.append("far positions: the model takes no position ids")
        return none
    try:
        equal = _calls_at(subject, contents, (3,) * len(NEAR))
        near = _calls_at(subject, contents, NEAR)
    except Exception as problem:
        notes.append(f"far positions: with position ids the model fails ({type(problem).__name__})")
        return none
    if not subject.names_positions and not any(map(_changes, near)):
        notes.append("far positions: the model names no position ids, and nothing changes with them")
        return none
    follows = [tuple(side for side in ("query", "key") if not _changes(call, side)) for call in equal]
    if not all(len(sides) == 2 for sides in follows):
        notes.append(
            "far positions: " + ("some layers do" if any(follows) else "the model does") + " not follow position ids"
        )
    found = [[_Run(call, NEAR, sides)] if sides else [] for call, sides in zip(near, follows, strict=True)]
    for positions in (FAR, BELOW_TABLE) if any(follows) else ():
        try:
            far = _calls_at(subject, contents, positions)
        except Exception as problem:
            notes.append(f"positions up to {positions[-1]:,}: the model fails ({type(problem).__name__})")
        else:
            return [
                [*runs, replace(runs[0], call=call, positions=positions)] if runs else []
                for runs, call in zip(found, far, strict=True)
            ]
    return found


def _calls_at(subject: Subject, contents: int, positions: tuple[int, ...]) -> list[Call]:
    """Return calls at position ids, without the first tokens, which a convolution over tokens sees otherwise."""
    calls, _ = subject.calls(contents, WARM + len(positions), (*positions[:1] * WARM, *positions))
    if any(call.query.shape[2] != WARM + len(positions) for call in calls):
        raise CheckpointError("the model changes the number of tokens.")
    return [replace(call, query=call.query[:, :, WARM:], key=call.key[:, :, WARM:]) for call in calls]


def _changes(call: Call, *sides: str) -> bool:
    """Return whether queries or keys, or one of them alone, differ between tokens of the same content."""
    named = [getattr(call, side) for side in sides or ("query", "key")]
    return any(bool((each - each[:, :, :1]).abs().max() > 1e-5 * each.abs().max()) for each in named)


def _map(runs: Sequence[_Run], natural: Call, side: str, others_follow: bool) -> FeatureMap:
    """Return the map at position ids, from short and far ones, or at the model's own positions without them.

    A factor that follows the slot in the sequence instead of the position ids shows at the model's own positions alone.
    """
    own = _Run(natural, tuple(range(natural.query.shape[2]))).solve(side)
    runs = [run for run in runs if side in run.follows]
    if not runs:
        return replace(own, reason=BY_SLOT) if own.kind == SCALED and others_follow else own
    near, *others = [run.solve(side) for run in runs]
    found = merged(near, others[0]) if others else near
    return replace(own, reason=BY_SLOT) if found.kind == NONE and own.kind == SCALED else found


def _long_enough(subject: Subject, natural: list[Call]) -> list[Call]:
    """Return calls on a sequence that is longer than each window that was passed by name."""
    longest = max((call.window or 0 for call in natural), default=0)
    if 2 * longest + 2 <= TOKENS or longest == 0:
        return natural
    try:
        return subject.calls(1, min(longest + 3, LONGEST))[0]
    except (CheckpointError, RuntimeError, IndexError, torch.OutOfMemoryError):
        return natural
