"""Biases by distance: the curve of each head, and its effective range (attention span)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float64, Int64

from whatwhere.analysis.rotary import layers_of
from whatwhere.analysis.subject import NoData, Subject, reason_of
from whatwhere.errors import CheckpointError, SettingError, ShapeError
from whatwhere.models.configuration.read import from_huggingface
from whatwhere.models.load_where import bias_tables, fill_bias
from whatwhere.records import Missing

if TYPE_CHECKING:
    from whatwhere.models.configuration.description import Description, Plan
    from whatwhere.where.score_bias import DistanceBias


@dataclass(frozen=True, eq=False)
class EffectiveRange:
    """The effective range of each head, for scores that consist of the bias alone."""

    distance: Int64[np.ndarray, " heads"]  # from which on all weights are below `share` of the largest; -1 if none is
    half: Int64[np.ndarray, " heads"]  # the same for a share of one half
    peak: Int64[np.ndarray, " heads"]  # of the largest weight
    mean: Float64[np.ndarray, " heads"]  # the mean distance of a key, weighted


def effective_range(bias: Float[np.ndarray, "heads distances"], share: float = 0.01) -> EffectiveRange:
    """Return the distance from which on the attention weight of a key is negligible, for each head.

        weight(h, d) = exp(bias(h, d))        range(h) = min {d : weight(h, e) < share * max weight(h)  for all e >= d}

    For ALiBi this is the first distance above ln(1 / share) / slope. T5's curves rise and fall; for them it is the last
    fall. A large dot product of query and key can outweigh the bias, so a key beyond this range can still matter.

    Args:
        bias: added to the score at distances 0, 1, 2, ....
        share: of the largest weight, above 0 and below 1.

    Raises:
        ShapeError: If the bias is not (heads, distances).
        SettingError: If share is out of range, or a head has no finite maximum.

    Examples:
        >>> slopes = np.array([[0.5], [0.25]])
        >>> effective_range(-slopes * np.arange(100)).distance
        array([10, 19])
    """
    if bias.ndim != 2 or 0 in bias.shape:
        raise ShapeError(f"a bias by distance has shape (heads, distances), but this one {bias.shape}.")
    if not 0 < share < 1:
        raise SettingError(f"effective_range got share={share}, but needs a number between 0 and 1.")
    logs = bias.astype(np.float64)
    if np.isnan(logs).any() or (logs == np.inf).any() or (logs.max(axis=1) == -np.inf).any():
        raise SettingError("a head's bias is not finite, so it has no largest weight.")
    relative = logs - logs.max(axis=1, keepdims=True)
    weights = np.exp(relative)
    return EffectiveRange(
        _last_fall(relative, share), _last_fall(relative, 0.5), logs.argmax(axis=1).astype(np.int64),
        (weights * np.arange(logs.shape[1])).sum(axis=1) / weights.sum(axis=1),
    )  # fmt: skip


def _last_fall(relative: np.ndarray, share: float) -> Int64[np.ndarray, " heads"]:
    significant = relative >= np.log(share)  # (heads, distances)
    count = significant.shape[1]
    first = count - significant[:, ::-1].argmax(axis=1)  # after the last one; the largest weight is always significant
    return np.where(first < count, first, -1).astype(np.int64)


_FEWEST, _MOST = 4096, 32_768
_POINTS = 48
BY_DISTANCE = ("alibi", "t5")  # names of the schemes whose bias is a function of the distance alone


@dataclass(frozen=True, eq=False)
class BiasCurves:
    """The biases of the heads by distance."""

    heads: int
    examined: int  # distances examined, from 0 on
    endless: bool  # whether all distances beyond a last one have the same bias
    past: EffectiveRange  # of earlier keys, by the bias alone
    future: EffectiveRange | None  # of later keys; None where the bias is causal
    distances: Int64[np.ndarray, " distances"]
    curves: Float[np.ndarray, "heads distances"]  # the bias for earlier keys, at the stored distances
    slopes: Float[np.ndarray, " heads"] | None  # of ALiBi; None for other schemes


@dataclass(frozen=True, eq=False)
class BiasLayers:
    """The bias that some layers share."""

    scheme: str
    part: str | None  # "decoder" or "encoder" of a model with both
    layers: Sequence[int]
    tensor: str | None  # name of its learned table; None for a fixed one
    curves: BiasCurves | Missing  # of its heads, or why they are not known


@dataclass(frozen=True, eq=False)
class BiasReport:
    """The biases of a model, by groups of layers that share one."""

    groups: Sequence[BiasLayers]


def biases(subject: Subject) -> BiasReport:
    """Return the biases of each part of a model, by groups of layers; of a run of a comparison, of its first layer."""
    if subject.checkpoint.format == "run":
        return BiasReport([_of_run(subject)])
    parts = [subject.description]
    if parts[0].part == "decoder" and subject.checkpoint.config is not None:
        with suppress(SettingError):  # it has no encoder
            parts.append(from_huggingface(subject.checkpoint.config, part="encoder"))
    groups = [
        group
        for description in parts
        for plan, layers in layers_of(description.score)
        for group in _examined(subject, description, plan, layers)
    ]
    if not groups:
        if not any(description.heads for description in parts):
            raise NoData("no layer of this model has attention")
        raise NoData("no layer of this model adds a bias to its attention scores")
    return BiasReport(groups)


def _of_run(subject: Subject) -> BiasLayers:
    from whatwhere.where.score_bias import DistanceBias

    loaded, length = subject.run
    scheme: Any = loaded.where.score
    if scheme is None:
        raise NoData(f"the first layer of this run, {loaded.title}, adds no bias to its attention scores")
    why = "this bias depends on queries and keys" if scheme.by_content else "; ".join(loaded.notes)
    if not why and not isinstance(scheme, DistanceBias):
        why = "this bias may depend on more than the distance: whatwhere studio RESULTS shows its matrix"
    # A table of one's own may end where its positions do.
    examined = max(length, _FEWEST) if type(scheme).__module__.startswith("whatwhere.") else length
    curves = Missing(why) if why else _curves(scheme, examined)
    return BiasLayers(type(scheme).__name__, None, [0], None, curves)


def _examined(subject: Subject, description: "Description", plan: "Plan", layers: list[int]) -> list[BiasLayers]:
    name, part = plan.class_name, description.part
    if plan.scheme not in BY_DISTANCE:
        reason = Missing("this bias depends on queries and keys, which a checkpoint does not hold")
        return [BiasLayers(name, part, layers, None, reason)]
    subject.progress(f"examining {name}")
    scheme: Any = plan.build()
    most = max(description.max_length or 0, _FEWEST)
    if not hasattr(scheme, "weight"):
        return [BiasLayers(name, part, layers, None, _curves(scheme, most))]
    tables = bias_tables(subject.checkpoint, part, 1 if plan.shared else len(layers))
    if not tables:
        return [BiasLayers(name, part, layers, None, Missing("its learned table is not in the file"))]
    groups = []
    for n, table in enumerate(tables):
        try:
            fill_bias(scheme, subject.checkpoint, table)
        except CheckpointError as problem:
            raise NoData(reason_of(problem)) from None
        own = [layers[n]] if len(tables) > 1 else layers
        groups.append(BiasLayers(name, part, own, table, _curves(scheme, most)))
    return groups


def _curves(scheme: Any, examined: int) -> BiasCurves:
    from whatwhere.where.score.alibi import ALiBi
    from whatwhere.where.score.t5 import T5

    examined = min(examined, _MOST)
    bias = _biases(scheme, examined)
    future = _biases(scheme, -examined) if getattr(scheme, "bidirectional", False) else None
    if not all(np.isfinite(each).all() for each in (bias, future) if each is not None):
        raise NoData("the bias holds numbers that are not finite")
    past, endless = effective_range(bias), isinstance(scheme, T5)
    # Where no head has weight left, and where T5's last bucket has begun, there is nothing more to draw.
    far = past.distance
    last = min(2 * scheme.max_distance if endless else int(np.where(far > 0, far, examined).max()), examined - 1)
    drawn = np.concatenate([np.arange(9), np.geomspace(8, max(last, 8), _POINTS).round()]).astype(np.int64)
    distances = np.unique(np.minimum(drawn, examined - 1))
    slopes = scheme.slopes if isinstance(scheme, ALiBi) else None
    return BiasCurves(
        heads=len(bias), examined=examined, endless=endless, past=past,
        future=None if future is None else effective_range(future), distances=distances, curves=bias[:, distances],
        slopes=None if slopes is None else slopes.double().numpy(),
    )  # fmt: skip


def _biases(scheme: "DistanceBias", distances: int) -> Float[np.ndarray, "heads distances"]:
    """Return the bias of each head at distance 0, 1, 2, ...; of later keys where the number is negative."""
    import torch

    heads, each = torch.arange(scheme.num_heads)[:, None], torch.arange(0, distances, 1 if distances > 0 else -1)
    with torch.no_grad():
        values = scheme.curve(each.device)(heads, each)  # of one row, where it reads no head
    return np.asarray(values.double().expand(len(heads), len(each)).numpy())
