"""Measure what is added to scores, the softmax scale, and which keys are seen, from one recorded call."""

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from whatwhere.models.probe.findings import NONE, NOT_MEASURED, Bias, Span
from whatwhere.models.probe.record import MASKED, Call

ZERO = 1e-6
"""Contents whose scores differ by less, relatively or absolutely, do not differ: float32."""
LINEAR = 1e-4
"""Largest deviation of scores from scale * query . key + bias, relative to the largest, and of a bias from its form."""
LISTED = (-21, -13, -8, -5, -3, -2, -1, 0, 1, 2, 3, 5, 8, 13, 21)
"""Distances at which values of a bias are listed."""


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
    """Return the form of a bias: by distance alone, and linear in it, or not.

    A constant for each query changes no softmax: of ALiBi as slope times the key's position, the rest is by distance.
    """
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
