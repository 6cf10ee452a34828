"""Measure attention, map of queries and keys, scale, bias, span and sink, of each layer, and the input of the first."""

from dataclasses import replace
from inspect import signature
from math import ceil, prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn

from whatwhere.errors import CheckpointError
from whatwhere.models.parameter_count import are_sinusoids
from whatwhere.models.probe.findings import (
    NONE,
    NOT_MEASURED,
    ROTARY,
    SCALED,
    Bias,
    FeatureMap,
    InputChange,
    Layer,
    Layout,
    Span,
)
from whatwhere.models.probe.record import FIRST_TOKEN, MASKED, SHORT, Call, Run, Subject
from whatwhere.models.probe.solve import BY_HEAD, layout_of, merged, solve

NEAR, FAR = (0, 1, 2, 4, 8, 16), (0, 1, 4, 16, 64, 256, 1024, 4096, 20_000)
"""Positions of short sequences, and of those that reach far."""
BELOW_TABLE = (0, 1, 2, 4, 8, 16, 32)  # positions where a learned table ends before the far ones
_BY_SLOT = "the factor follows the slot in the sequence, not position ids"
_WARM = 4  # tokens before the first one that is measured: a short convolution over tokens then sees the same content
_TOKENS, _LEAST_CONTENTS, _LONGEST = 24, 16, 4100
"""Tokens of a sequence at the model's own positions, sequences at least, and tokens at most to see a window end."""
_ALIKE, _SAME = 0.75, 0.9999
"""Correlation over contents above which features are taken for one another (a norm may lie between), and for equal."""
_EQUAL = 1e-5  # largest difference of hidden states, relative to the largest value, that is none

ZERO = 1e-6  # contents whose scores differ by less, relatively or absolutely, do not differ: float32
LINEAR = 1e-4
"""Largest deviation of scores from scale * query . key + bias, relative to the largest, and of a bias from its form."""
LISTED = (-21, -13, -8, -5, -3, -2, -1, 0, 1, 2, 3, 5, 8, 13, 21)  # distances at which values of a bias are listed

Maps = dict[str, list[FeatureMap]]
"""Of the queries and of the keys of one layer, where they follow position ids: at near positions, and at far ones."""


def natural_run(subject: Subject) -> Run:
    """Return a run at the model's own positions, of so many sequences that they determine the maps of all layers."""
    needed = [
        1.5 * call.query.shape[3] / len({tuple(head[:, 0, :4].flatten().tolist()) for head in call.key.transpose(0, 1)})
        for call in subject.run(*SHORT).calls  # heads that are repeated add nothing to a fit
    ]
    contents = max(_LEAST_CONTENTS, *map(ceil, needed))
    contents += contents in (_TOKENS, _TOKENS + 1)  # so that no axis is taken for another one
    try:
        return subject.run(contents, _TOKENS)
    except CheckpointError:
        raise
    except (ValueError, IndexError, RuntimeError) as problem:  # as of learned positions that end before
        text = " ".join(str(problem).split())[:200]
        raise CheckpointError(f"the model does not run on {_TOKENS} tokens, which a probe needs: {text}.") from problem


def layers_of(subject: Subject, run: Run, notes: list[str]) -> tuple[tuple[Layer, ...], bool]:
    """Return what is measured of each attention over one sequence, and whether the model follows position ids."""
    # `run` is at the model's own positions; `notes` gets a line for all that could not be measured.
    if any(call.query_sinks for call in run.calls):
        notes.append("sinks: each query has one of its own, which its token determines, and which is not measured")
    found = _at_positions(subject, run.contents, notes)
    layers = []
    for call, longer, maps in zip(run.calls, _long_enough(subject, run.calls), found, strict=True):
        if call.module not in run.replaced:
            reason = "its module is not given hidden states (batch, tokens, features) that could be made equal"
            query = key = FeatureMap(NOT_MEASURED, reason=reason)
        else:
            query, key = (_map(maps.get(side, []), call, side, any(found)) for side in ("query", "key"))
        layers.append(_layer(call, longer, query, key))
    return tuple(layers), any(found)


def _layer(call: Call, longer: Call, query: FeatureMap, key: FeatureMap) -> Layer:
    (query, of_query), (key, of_key) = _projected(call, "query", query), _projected(call, "key", key)
    of_rotation = call.magnitude if query.kind == ROTARY and call.magnitude else 1.0
    factor = prod(each / of_rotation for each in (of_query, of_key) if each is not None)
    scale = scale_of(call)
    return Layer(
        call.module,
        call.query.shape[1],
        call.key.shape[1],
        call.query.shape[3],
        query,
        key,
        call.magnitude,
        None if scale is None else scale if query.reason == BY_HEAD else scale * factor,
        bias_of(call),
        span_of(longer),
        call.sinks,
        call.softcap,
    )


def _solved(call: Call, side: str, positions: tuple[int, ...]) -> FeatureMap:
    """Return the map of the queries, or of the keys, of a call."""
    return solve(getattr(call, side).cpu().numpy(), positions)


def _at_positions(subject: Subject, contents: int, notes: list[str]) -> list[Maps]:
    """Return the maps of each layer at NEAR and at far positions, of what follows position ids."""
    none: list[Maps] = [{} for _ in subject.modules]
    if not (subject.names_positions or "kwargs" in signature(subject.model.forward).parameters):
        notes.append("far positions: the model takes no position ids")
        return none
    try:
        equal = _calls_at(subject, contents, (3,) * len(NEAR))
        near = _calls_at(subject, contents, NEAR)
    except Exception as problem:
        notes.append(f"far positions: with position ids the model fails ({type(problem).__name__})")
        return none
    if not subject.names_positions and not any(_changes(call, side) for call in near for side in ("query", "key")):
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
    calls = subject.run(contents, _WARM + len(positions), (*positions[:1] * _WARM, *positions)).calls
    if any(call.query.shape[2] != _WARM + len(positions) for call in calls):
        raise CheckpointError("the model changes the number of tokens.")
    return [replace(call, query=call.query[:, :, _WARM:], key=call.key[:, :, _WARM:]) for call in calls]


def _changes(call: Call, side: str) -> bool:
    """Return whether queries or keys differ between tokens of the same content."""
    vectors: Tensor = getattr(call, side)
    return bool((vectors - vectors[:, :, :1]).abs().max() > _EQUAL * vectors.abs().max())


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
    if 2 * longest + 2 <= _TOKENS:
        return natural
    try:
        return subject.run(1, min(longest + 3, _LONGEST)).calls
    except (CheckpointError, RuntimeError, IndexError, torch.OutOfMemoryError):
        return natural


def _projected(call: Call, side: str, found: FeatureMap) -> tuple[FeatureMap, float | None]:
    """Return the map with its layout in the order of projections, and the factor from there to the scores, or None."""
    vectors: Tensor = getattr(call, side)[:, :, 0]
    candidates = [each for each in call.projected if len(each) == len(vectors)]
    if not candidates or len(vectors) < 8:
        return found, None
    # A later bias, as in DeBERTa, is the same for all contents: deviations from the mean are compared.
    features, head = (each - each.mean(dim=0) for each in (torch.cat(candidates, dim=1), vectors[:, 0]))
    cosine = torch.nan_to_num((features / features.norm(dim=0)).mT @ (head / head.norm(dim=0)))
    best, source = cosine.abs().max(dim=0)
    factor = None
    if bool((best > _SAME).all()):
        ratios = (features[:, source] * head).sum(dim=0) / (features[:, source] ** 2).sum(dim=0)
        middle = float(ratios.median())
        factor = middle if float((ratios - middle).abs().max()) < 1e-4 * abs(middle) else None
    return replace(found, projected_layout=_projected_layout(found, best, source)), factor


def _projected_layout(found: FeatureMap, best: Tensor, source: Tensor) -> Layout | None:
    """Return the layout of the pairs in the order of the projection's features, or None if that is not known."""
    start, count = found.start, (found.rotary_dim or 0) // 2
    if start is None or found.layout not in ("half", "interleaved"):
        return None
    if float(best[start : start + 2 * count].min()) < _ALIKE:
        return None
    step, other = (1, count) if found.layout == "half" else (2, 1)
    pairs = [sorted(source[[one, one + other]].tolist()) for one in range(start, start + step * count, step)]
    layout, _ = layout_of(sorted((one, two) for one, two in pairs))
    return None if layout == "other" else layout


# What is added to scores, the softmax scale, and which keys are seen, of one recorded call


def scale_of(call: Call) -> float | None:
    """Return the softmax scale: as passed, 1 / sqrt(features) by default, or fitted to the scores."""
    if call.scores is None:
        return call.query.shape[3] ** -0.5 if call.scale is None else call.scale
    scale, _, residual = _fit(call, call.scores)
    return scale if residual < LINEAR else None


def bias_of(call: Call) -> Bias:
    """Return what is added to the scores by position, of the same content at the positions 0, 1, 2, ..."""
    tokens = call.query.shape[2]
    if call.scores is not None:
        _, values, residual = _fit(call, call.scores)
        if not np.isfinite(residual):
            return Bias(NOT_MEASURED, reason="the contents that reach it do not differ between sequences")
        if residual > LINEAR:
            reason = f"scores are not a multiple of query times key plus a bias (residual {residual:.1e})"
            return Bias("by content", residual, reason=reason)
    else:
        values = torch.zeros(1, tokens, tokens, dtype=torch.float64)
        for part in (call.mask, call.bias):
            if isinstance(part, Tensor) and part.dtype != torch.bool:
                if part.dim() != 4 or part.shape[-1] < tokens:
                    return Bias(NOT_MEASURED, reason=f"a bias of shape {tuple(part.shape)} was passed")
                part = part[..., :tokens].double().cpu()
                if float((part - part[:1]).abs().clamp(max=-MASKED).max()) > ZERO:
                    return Bias("by content", reason="the bias differs between contents")
                values = values + part[0]
    return _form(values.cpu().numpy(), _seen_by(call))


def _seen_by(call: Call) -> np.ndarray:
    """Return which keys each query sees."""
    tokens = call.query.shape[2]
    seen = torch.ones(1, tokens, tokens, dtype=torch.bool)
    if call.scores is not None:
        seen = call.scores[0] > MASKED
    elif isinstance(call.mask, Tensor):
        mask = call.mask[0][..., :tokens].expand(*call.mask.shape[1:-2], tokens, tokens)
        seen = (mask if mask.dtype == torch.bool else mask > MASKED).reshape(-1, tokens, tokens)
    elif call.causal:
        seen = seen.tril()
    return seen.any(dim=0).cpu().numpy()


def span_of(call: Call) -> Span:
    """Return which keys are seen: whether later ones, and how far."""
    tokens = call.query.shape[2]
    seen = _seen_by(call)
    if not seen.any(axis=1).all():
        return Span(None, tokens=tokens, named=call.window)
    causal = not np.triu(seen, 1).any()
    rows = np.arange(tokens)
    first, last = seen.argmax(axis=1), tokens - 1 - seen[:, ::-1].argmax(axis=1)
    before = int((rows - first).max()) if first[-1] > 0 else None
    size = int(np.diff(np.unique(first)).min()) if before is not None else 0
    chunk = size if size > 1 and np.array_equal(first, rows // size * size) else None
    after = 0 if causal else int((last - rows).max()) if chunk is not None or last[0] < tokens - 1 else None
    return Span(causal, before, after, chunk, tokens, call.window)


def _fit(call: Call, scores: Tensor) -> tuple[float, Tensor, float]:
    """Return the scale and bias with which scores = scale * query . key + bias, and the largest deviation."""
    products = call.query @ call.key.mT
    seen = (scores > MASKED).all(dim=0)
    product, score = ((each - each.mean(dim=0))[:, seen] for each in (products, scores))
    if not seen.any() or float(product.abs().max()) < ZERO * float(products.abs().max()):
        return 0.0, torch.zeros_like(scores[0]), float("inf")
    scale = float((product * score).sum() / (product * product).sum().clamp(min=1e-30))
    deviation = float((score - scale * product).abs().max() / score.abs().max().clamp(min=1e-30))
    return scale, (scores - scale * products).mean(dim=0).masked_fill(~seen, 0.0), deviation


def _form(values: Float64[np.ndarray, "heads tokens tokens"], seen: np.ndarray) -> Bias:
    """Return the form of a bias: by distance alone, and linear in it, or not."""
    # A constant for each query changes no softmax: of ALiBi as slope times the key's position, the rest is by distance.
    tokens = np.arange(len(seen))
    values = np.where(seen, values - values[:, tokens, tokens, None], 0.0)
    size = float(np.abs(values).max())
    if size < 1e-5:
        return Bias(NONE, size)
    distance = np.subtract.outer(tokens, tokens)
    groups = {int(each): values[:, seen & (distance == each)] for each in np.unique(distance[seen])}
    worst = max(float(np.ptp(group, axis=1).max()) for group in groups.values())
    if worst > LINEAR * max(size, 1.0):
        return Bias("by positions", worst, reason="it depends on both positions, not on their distance alone")
    means = {each: group.mean(axis=1) for each, group in groups.items()}
    listed = tuple(each for each in LISTED if each in means)
    found = Bias("by distance", worst, (), listed, tuple(float(means[each][0]) for each in listed))
    farthest = max(means)
    if farthest == 0:
        return found
    slopes = -means[farthest] / farthest
    line = max(float(np.abs(means[each] + slopes * each).max()) for each in means if each > 0)
    if line >= LINEAR * max(1.0, float(np.abs(means[farthest]).max())):
        return found
    return Bias("linear", max(worst, line), tuple(map(float, slopes)), listed, found.values)


# The input of the first attention


def input_of(subject: Subject, run: Run) -> tuple[InputChange, float | None]:
    """Return how hidden states depend on position before the first attention, and the factor of token vectors."""
    stack = _first_block(subject.model, subject.modules[-1])
    if stack is None:
        return InputChange(NOT_MEASURED, reason="no list of layers is around the attention modules"), None
    states = run.first.get(stack)
    if states is None:
        return InputChange(NOT_MEASURED, reason=f"{stack} is not given hidden states (batch, tokens, features)"), None
    return _input_change(states, run), _embedding_scale(subject.model, states[:, 0])


def _first_block(model: nn.Module, module: str) -> str | None:
    """Return the name of the first layer of the list of layers that an attention module is in."""
    parts = module.split(".")
    for end in range(1, len(parts)):
        if isinstance(model.get_submodule(".".join(parts[:end])), nn.ModuleList):
            return ".".join([*parts[:end], "0"])
    return None


def _input_change(states: Tensor, run: Run) -> InputChange:
    """Return the form of the difference between positions."""
    size = float(states.abs().max())
    difference = states - states[:, :1]
    largest = float(difference.abs().max())
    if largest < _EQUAL * size:
        return InputChange(NONE, largest / size)
    common = difference.mean(dim=0)
    spread = float((difference - common).abs().max()) / size
    for name, table, rows in run.lookups:
        if bool((rows[:, 1:] - rows[:, :-1] == 1).all()) and bool((rows == rows[:1]).all()):  # by position alone
            offset = int(rows[0, 0])
            kind = "sinusoidal" if _waves(table[offset : offset + run.tokens]) else "learned"
            return InputChange(kind, spread, name, len(table), offset)
    if spread > 10 * _EQUAL:
        return InputChange("other", spread, reason="hidden states change by position, but not by the same sum for all")
    return InputChange("sinusoidal" if _waves(common.diff(dim=0)) else "table", spread)


def _waves(rows: Tensor) -> bool:
    return are_sinusoids(rows.double().cpu().numpy())


def _embedding_scale(model: Any, first: Tensor) -> float | None:
    """Return the factor of token vectors in the hidden states at position 0, or None if they are not a multiple."""
    try:
        weight = getattr(model.get_input_embeddings(), "weight", None)
    except (AttributeError, NotImplementedError):
        return None
    if weight is None or weight.dim() != 2 or weight.shape[1] != first.shape[1]:
        return None
    ids = FIRST_TOKEN + torch.arange(len(first), device=weight.device) % (len(weight) - FIRST_TOKEN)
    token = weight[ids].detach().double()
    token, state = token - token.mean(dim=0), first - first.mean(dim=0)
    scale = float((token * state).sum() / (token * token).sum().clamp(min=1e-30))
    return scale if float((state - scale * token).abs().max()) < 1e-4 * float(state.abs().max()) else None
