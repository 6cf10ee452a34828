"""Measure the attention of each layer: map of queries and keys, scale, bias, span and sink."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import ceil, prod
from typing import Any

import torch
from torch import Tensor, nn

from whatwhere.errors import CheckpointError
from whatwhere.models.probe.findings import NONE, NOT_MEASURED, ROTARY, SCALED, FeatureMap, Layer, Layout
from whatwhere.models.probe.forward import SHORT, Subject
from whatwhere.models.probe.score import bias_of, scale_of, span_of
from whatwhere.models.probe.solve import BY_HEAD, layout_of, merged, solve
from whatwhere.models.probe.watch import Call

NEAR, FAR = (0, 1, 2, 4, 8, 16), (0, 1, 4, 16, 64, 256, 1024, 4096, 20_000)
"""Positions of short sequences, and of those that reach far."""
BELOW_TABLE = (0, 1, 2, 4, 8, 16, 32)
"""Positions where a learned table ends before the far ones."""
_BY_SLOT = "the factor follows the slot in the sequence, not position ids"
_WARM = 4
"""Tokens before the first one that is measured: a short convolution over tokens then sees the same content."""
_TOKENS, _LEAST_CONTENTS, _LONGEST = 24, 16, 4100
"""Tokens of a sequence at the model's own positions, sequences at least, and tokens at most to see a window end."""
_ALIKE, _SAME = 0.75, 0.9999
"""Correlation over contents above which features are taken for one another (a norm may lie between), and for equal."""


def layers_of(subject: Subject, notes: list[str]) -> tuple[tuple[Layer, ...], bool]:
    """Return what is measured of each attention over one sequence, and whether the model follows position ids.

    Args:
        notes: gets a line for all that could not be measured.
    """
    first, _ = subject.calls(*SHORT)
    contents = max(_LEAST_CONTENTS, *(ceil(1.5 * call.query.shape[3] / _independent(call)) for call in first))
    contents += contents in (_TOKENS, _TOKENS + 1)  # so that no axis is taken for another one
    with _watched_projections(subject, contents) as projected:
        natural, replaced = subject.calls(contents, _TOKENS)
    if any(call.query_sinks for call in natural):
        notes.append("sinks: each query has one of its own, which its token determines, and which is not measured")
    maps = _at_positions(subject, contents, notes)
    layers = []
    for call, span, found in zip(natural, _long_enough(subject, natural), maps, strict=True):
        if call.module not in replaced:
            reason = "its module is not given hidden states (batch, tokens, features) that could be made equal"
            query = key = FeatureMap(NOT_MEASURED, reason=reason)
        else:
            query, key = (_map(found.get(side, []), call, side, any(maps)) for side in ("query", "key"))
        layers.append(_layer(call, span, query, key, projected.get(call.module)))
    return tuple(layers), any(maps)


def _independent(call: Call) -> int:
    """Return how many heads have keys of their own: repeated ones add nothing to a fit."""
    keys = call.key[:, :, 0]
    return len({tuple(head[:, :4].flatten().tolist()) for head in keys.transpose(0, 1)})


def _layer(call: Call, span: Call, query: FeatureMap, key: FeatureMap, seen: "_Projected | None") -> Layer:
    magnitude, factor, scale = None, 1.0, scale_of(call)
    if seen is not None:
        magnitude = seen.magnitude
        query, factor_query = seen.compared(call.query[:, :, 0], query)
        key, factor_key = seen.compared(call.key[:, :, 0], key)
        of_rotation = magnitude if query.kind == ROTARY and magnitude else 1.0
        factor = prod(each / of_rotation for each in (factor_query, factor_key) if each is not None)
        factor = 1.0 if query.reason == BY_HEAD else factor
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


def _solved(call: Call, side: str, positions: tuple[int, ...]) -> FeatureMap:
    """Return the map of the queries, or of the keys, of a call."""
    return solve(getattr(call, side).cpu().numpy(), positions)


def _at_positions(subject: Subject, contents: int, notes: list[str]) -> list[dict[str, list[FeatureMap]]]:
    """Return the maps of each layer's queries and keys at NEAR and at far positions, where they follow position ids."""
    none: list[dict[str, list[FeatureMap]]] = [{} for _ in subject.modules]
    if not subject.accepts_positions:
        notes.append("far positions: the model takes no position ids")
        return none
    try:
        equal = _calls_at(subject, contents, (3,) * len(NEAR))
        near = _calls_at(subject, contents, NEAR)
    except Exception as problem:
        notes.append(f"far positions: with position ids the model fails ({type(problem).__name__})")
        return none
    if not subject.names_positions and not any(_changes(call, "query", "key") for call in near):
        notes.append("far positions: the model names no position ids, and nothing changes with them")
        return none
    found = [
        {side: [_solved(call, side, NEAR)] for side in ("query", "key") if not _changes(other, side)}
        for call, other in zip(near, equal, strict=True)
    ]
    if not all(len(maps) == 2 for maps in found):
        some = "some layers do" if any(found) else "the model does"
        notes.append(f"far positions: {some} not follow position ids")
    for positions in (FAR, BELOW_TABLE) if any(found) else ():
        try:
            far = _calls_at(subject, contents, positions)
        except Exception as problem:
            notes.append(f"positions up to {positions[-1]:,}: the model fails ({type(problem).__name__})")
            continue
        for maps, call in zip(found, far, strict=True):
            for side, solved in maps.items():
                solved.append(_solved(call, side, positions))
        break
    return found


def _calls_at(subject: Subject, contents: int, positions: tuple[int, ...]) -> list[Call]:
    """Return calls at position ids, without the first tokens, which a convolution over tokens sees otherwise."""
    calls, _ = subject.calls(contents, _WARM + len(positions), (*positions[:1] * _WARM, *positions))
    if any(call.query.shape[2] != _WARM + len(positions) for call in calls):
        raise CheckpointError("the model changes the number of tokens.")
    return [replace(call, query=call.query[:, :, _WARM:], key=call.key[:, :, _WARM:]) for call in calls]


def _changes(call: Call, *sides: str) -> bool:
    """Return whether queries or keys differ between tokens of the same content."""
    named = [getattr(call, side) for side in sides]
    return any(bool((each - each[:, :, :1]).abs().max() > 1e-5 * each.abs().max()) for each in named)


def _map(found: list[FeatureMap], natural: Call, side: str, others_follow: bool) -> FeatureMap:
    """Return the map at position ids, from near and far ones, or at the model's own positions without them.

    A factor that follows the slot in the sequence instead of the position ids shows at the model's own positions alone.
    """
    own = _solved(natural, side, tuple(range(natural.query.shape[2])))
    if not found:
        return replace(own, reason=_BY_SLOT) if own.kind == SCALED and others_follow else own
    at_ids = merged(*found) if len(found) > 1 else found[0]
    return replace(own, reason=_BY_SLOT) if at_ids.kind == NONE and own.kind == SCALED else at_ids


def _long_enough(subject: Subject, natural: list[Call]) -> list[Call]:
    """Return calls on a sequence that is longer than each window that was passed by name."""
    longest = max((call.window or 0 for call in natural), default=0)
    if 2 * longest + 2 <= _TOKENS or longest == 0:
        return natural
    try:
        return subject.calls(1, min(longest + 3, _LONGEST))[0]
    except (CheckpointError, RuntimeError, IndexError, torch.OutOfMemoryError):
        return natural


# Projections: the order of features in them, and the factor from there to the scores


@dataclass
class _Projected:
    """What one attention module was given and projected in its first call."""

    outputs: list[Tensor] = field(default_factory=list)  # of each linear layer, at position 0: (contents, features)
    magnitude: float | None = None  # of the cosine at position 0

    def compared(self, vectors: Tensor, found: FeatureMap) -> tuple[FeatureMap, float | None]:
        """Return the map with its layout in the projection's order, and the factor between both, or None.

        Args:
            vectors: queries or keys at position 0: (contents, heads, features).
        """
        candidates = [each for each in self.outputs if each.shape[0] == vectors.shape[0]]
        if not candidates or vectors.shape[0] < 8:
            return found, None
        # A later bias, as in DeBERTa, is the same for all contents: deviations from the mean are compared.
        features, head = (each - each.mean(dim=0) for each in (torch.cat(candidates, dim=1), vectors[:, 0]))
        cosine = torch.nan_to_num((features / features.norm(dim=0)).mT @ (head / head.norm(dim=0)))
        best, source = cosine.abs().max(dim=0)
        factor = None
        if bool((best > _SAME).all()):
            ratios = (features[:, source] * head).sum(dim=0) / (features[:, source] ** 2).sum(dim=0)
            middle = float(ratios.median())
            if float((ratios - middle).abs().max()) < 1e-4 * abs(middle):
                factor = middle
        return replace(found, projected_layout=_projected_layout(found, best, source)), factor


def _projected_layout(found: FeatureMap, best: Tensor, source: Tensor) -> Layout | None:
    """Return the layout of the pairs in the order of the projection's features, or None if that is not known."""
    start, count = found.start, (found.rotary_dim or 0) // 2
    if start is None or found.layout not in ("half", "interleaved"):
        return None
    if float(best[start : start + 2 * count].min()) < _ALIKE:
        return None
    step, other = (1, count) if found.layout == "half" else (2, 1)
    firsts = [start + step * index for index in range(count)]
    pairs = [(int(source[one]), int(source[one + other])) for one in firsts]
    layout, _ = layout_of(sorted((min(pair), max(pair)) for pair in pairs))
    return None if layout == "other" else layout


@contextmanager
def _watched_projections(subject: Subject, contents: int) -> Iterator[Mapping[str, _Projected]]:
    """Keep what attention modules are given and project in their first call within a block, by their names."""
    kept: dict[str, _Projected] = {}
    done: set[str] = set()

    def enter(name: str, options: Mapping[str, Any]) -> None:
        given = options.get("position_embeddings")
        if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], Tensor):
            given = given[0]
        if isinstance(given, Tensor) and name not in done and given.dim() >= 3:
            cosine = given.abs() if given.is_complex() else given
            kept.setdefault(name, _Projected()).magnitude = float(cosine[..., 0, :].double().max())

    def leave(name: str, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() == 3 and name not in done:
            first = output[:, 0] if output.shape[0] == contents else output[0]  # tokens may be the first axis
            kept.setdefault(name, _Projected()).outputs.append(first.detach().double())

    with ExitStack() as hooks:
        for name in filter(None, dict.fromkeys(subject.modules)):
            module = subject.model.get_submodule(name)
            hooks.enter_context(
                module.register_forward_pre_hook(lambda _, __, given, name=name: enter(name, given), with_kwargs=True)
            )
            hooks.enter_context(module.register_forward_hook(lambda *_, name=name: done.add(name)))
            for part in filter(_is_projection, module.modules()):
                hooks.enter_context(part.register_forward_hook(lambda _, __, output, name=name: leave(name, output)))
        yield kept


def _is_projection(module: nn.Module) -> bool:
    """Return whether a module has a matrix as weight: a linear layer, or GPT-2's Conv1D."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() == 2
