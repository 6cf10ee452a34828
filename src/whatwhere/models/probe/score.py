"""Measure what is added to scores, the softmax scale, and which keys are seen, from one recorded call."""

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from whatwhere.models.probe.findings import NONE, NOT_MEASURED, Bias, Span
from whatwhere.models.probe.watch import MASKED, Call

ZERO = 1e-6
"""A bias below this, relative to the scores or absolutely, counts as none: float32."""
LINEAR = 1e-4
"""Largest deviation of scores from scale * query . key + bias, relative to the largest."""
LISTED = (0, 1, 2, 3, 5, 8, 13, 21)
"""Distances at which values of a bias are listed."""


def scale_of(call: Call) -> float | None:
    """Return the softmax scale: as passed, 1 / sqrt(features) by default, or fitted to the scores."""
    if call.scores is None:
        return call.query.shape[3] ** -0.5 if call.scale is None else call.scale
    scale, _, residual = _fit(call)
    return scale if residual < LINEAR else None


def bias_of(call: Call) -> Bias:
    """Return what is added to the scores by position, of the same content at the positions 0, 1, 2, ..."""
    tokens = call.query.shape[2]
    if call.scores is not None:
        _, values, residual = _fit(call)
        if residual > LINEAR:
            if not np.isfinite(residual):
                return Bias(NOT_MEASURED, reason="the contents that reach it do not differ between sequences")
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
    return _form(values.cpu().numpy(), _seen_by(call).numpy())


def _seen_by(call: Call) -> Tensor:
    """Return which keys each query sees."""
    tokens = call.query.shape[2]
    everything = torch.ones(tokens, tokens, dtype=torch.bool)
    if call.scores is not None:
        return (call.scores[0] > MASKED).any(dim=0).cpu()
    if isinstance(call.mask, Tensor):
        mask = call.mask[0].cpu()[..., :tokens].expand(*call.mask.shape[1:-2], tokens, tokens)
        mask = mask.reshape(-1, tokens, tokens)
        return (mask if mask.dtype == torch.bool else mask > MASKED).any(dim=0)
    return everything.tril() if call.causal else everything


def span_of(call: Call) -> Span:
    """Return which keys are seen: whether later ones, and how far."""
    tokens = call.query.shape[2]
    seen = _seen_by(call).numpy()
    if not seen.any(axis=1).all():
        return Span(None, tokens=tokens, named=call.window)
    causal = not np.triu(seen, 1).any()
    rows = np.arange(tokens)
    first, last = seen.argmax(axis=1), tokens - 1 - seen[:, ::-1].argmax(axis=1)
    before, after = int((rows - first).max()), int((last - rows).max())
    after_or_none = 0 if causal else after if last[0] < tokens - 1 else None
    if first[-1] == 0:
        return Span(causal, None, after_or_none, None, tokens, call.window)
    begins = np.unique(first)
    chunk = int(np.diff(begins).min()) if len(begins) > 1 else 0
    if chunk > 1 and np.array_equal(first, rows // chunk * chunk):
        return Span(causal, before, 0 if causal else after, chunk, tokens, call.window)
    return Span(causal, before, after_or_none, None, tokens, call.window)


def _fit(call: Call) -> tuple[float, Tensor, float]:
    """Return the scale and bias with which scores = scale * query . key + bias, and the largest deviation."""
    assert call.scores is not None
    products = call.query @ call.key.mT
    seen = (call.scores > MASKED).all(dim=0)
    centered = [each - each.mean(dim=0, keepdim=True) for each in (products, call.scores)]
    product, score = (each[:, seen] for each in centered)
    if not seen.any() or float(product.abs().max()) < 1e-6 * float(products.abs().max()):
        return 0.0, torch.zeros_like(call.scores[0]), float("inf")
    scale = float((product * score).sum() / (product * product).sum().clamp(min=1e-30))
    deviation = float((score - scale * product).abs().max() / score.abs().max().clamp(min=1e-30))
    return scale, (call.scores - scale * products).mean(dim=0).masked_fill(~seen, 0.0), deviation


def _form(values: Float64[np.ndarray, "heads tokens tokens"], seen: np.ndarray) -> Bias:
    """Return the form of a bias: by distance alone, and linear in it, or not."""
    size = float(np.abs(np.where(seen, values, 0.0)).max())
    if size < 1e-5:
        return Bias(NONE, size)
    tokens = seen.shape[0]
    distance = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    means, worst = {}, 0.0
    for each in np.unique(distance[seen]):
        at = values[:, seen & (distance == each)]
        means[int(each)] = at.mean(axis=1)
        worst = max(worst, float(np.ptp(at, axis=1).max()))
    if worst > 1e-4 * max(size, 1.0):
        per_key = float(np.ptp(np.where(seen, values - values[:, -1:, :], 0.0), axis=1).max())
        # ALiBi as slope times the key's position, which softmax does not tell apart.
        if per_key <= 1e-4 * max(size, 1.0):
            return _relative(values, per_key)
        return Bias("by positions", worst, reason="it depends on both positions, not on their distance alone")
    listed = tuple(each for each in (*(-step for step in reversed(LISTED[1:])), *LISTED) if each in means)
    return _by_distance(means, worst, listed)


def _relative(values: Float64[np.ndarray, "heads tokens tokens"], residual: float) -> Bias:
    """Return a bias by the key alone as one of distance: a constant for each query changes no softmax."""
    tokens = values.shape[1]
    by_key = values[:, -1, :]
    means = {distance: by_key[:, tokens - 1 - distance] - by_key[:, -1] for distance in range(tokens)}
    steps = np.diff(np.stack([means[distance] for distance in range(tokens)]), axis=0)
    if np.ptp(steps, axis=0).max() > 1e-4:
        return Bias("by positions", residual, reason="it depends on the key's position, not linearly")
    return _by_distance(means, residual, tuple(each for each in LISTED if each in means))


def _by_distance(means: dict[int, np.ndarray], residual: float, listed: tuple[int, ...]) -> Bias:
    """Return a bias by distance, with a slope for each head where all values lie on lines through zero."""
    values = tuple(float(means[each][0]) for each in listed)
    past = sorted(each for each in means if each > 0)
    if not past:
        return Bias("by distance", residual, (), listed, values)
    slopes = -means[past[-1]] / past[-1]
    line = max(float(np.abs(means[each] - means.get(0, 0.0) + slopes * each).max()) for each in past)
    if line < 1e-4 * max(1.0, float(np.abs(means[past[-1]]).max())):
        return Bias("linear", max(residual, line), tuple(map(float, slopes)), listed, values)
    return Bias("by distance", residual, (), listed, values)
