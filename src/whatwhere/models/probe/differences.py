"""Compare what a probe measured with what the registry reads from the same configuration."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.models.checkpoint.tokenizer_files import quiet
from whatwhere.models.configuration.description import Description, Plan
from whatwhere.models.configuration.keys import Json
from whatwhere.models.probe import probe
from whatwhere.models.probe.findings import NONE, NOT_MEASURED, SCALED, FeatureMap, Layer, Probe, ProbedRotation, Span
from whatwhere.models.probe.measure import BELOW_TABLE, FAR, NEAR
from whatwhere.models.probe.solve import merged, solve
from whatwhere.models.probe.tiny import model_to_probe
from whatwhere.position.positions import Positions
from whatwhere.records import Missing
from whatwhere.where.binding import Where

if TYPE_CHECKING:
    from whatwhere.where.window import Window

RELATIVE = 3e-6  # largest relative difference of frequencies, scales and slopes: both sides are float32 at some step

_Stated = Iterator[tuple[str, str, str]]  # what is stated, as measured, and as read


@dataclass(frozen=True)
class Difference:
    """One statement on which a probe and the registry differ."""

    layer: int | None  # None of the whole model
    what: str  # that is stated, such as "query frequencies"
    measured: str  # by the probe
    read: str  # from the configuration


def differences(found: Probe, description: Description) -> list[Difference]:
    """Return where a probe of a model and the description of its configuration differ, of what both state."""
    layers = _layers_of_part(found, description)
    listed = [Difference(None, *each) for each in _whole(found, description)]
    if not layers:
        missing = Difference(None, "layers", "no attention", f"{description.layers} layers")
        return listed + [missing] * bool(description.heads)
    if not description.heads:
        return [Difference(None, "layers", f"{len(layers)} with attention", "no attention")]
    for number, layer in layers:
        listed += [Difference(number, *each) for each in _of_layer(number, layer, description)]
    return listed


def differences_of_parts(found: Probe, read: Callable[[str | None], Description]) -> list[Difference]:
    """Return the differences of a model, of both parts where it has two; `read` describes one, None the decoder."""
    description = read(None)
    listed = differences(found, description)
    if description.part is not None:
        with suppress(SettingError):  # of Whisper the decoder alone is described
            encoder = read("encoder")
            if _layers_of_part(found, encoder):  # that of BigBird-Pegasus makes its attention anew in each pass
                listed = [*differences(found, encoder), *listed]
    return listed


def rotations(config: Json) -> tuple[ProbedRotation, ...] | Missing:
    """Return how a tiny random model of a configuration rotates, each different rotation once; or why it is not known.

    Frequencies are those of the configuration, whose head_dim the tiny model has.
    """
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        try:
            model, _ = model_to_probe(folder)
            with quiet():
                found = probe(model)
        except WhatWhereError as problem:
            return Missing(" ".join(str(problem).replace(folder, "config.json").split()).removesuffix("."))
    layers = [(each.query.frequencies, each.query.far_frequencies, (each.magnitude or 1.0,)) for each in found.layers]
    rounded = [tuple(tuple(float(f"{one:.5g}") for one in part) for part in each) for each in layers if each[0]]
    return tuple(ProbedRotation(near, far, magnitude) for near, far, (magnitude,) in dict.fromkeys(rounded))


def _layers_of_part(found: Probe, description: Description) -> list[tuple[int, Layer]]:
    """Return the layers of the part that is described, with their numbers."""
    layers = [layer for layer in found.layers if description.part is None or description.part in layer.module]
    numbers = [int(match[1]) if (match := re.search(r"\.(\d+)\.", f".{layer.module}.")) else 0 for layer in layers]
    if len(set(numbers)) != len(numbers):  # one module serves several layers
        numbers = list(range(len(layers)))
    return list(zip(numbers, layers, strict=True))


def _whole(found: Probe, description: Description) -> _Stated:
    if description.part in (None, "decoder") and found.input.kind not in (NOT_MEASURED, "other", "table"):
        scheme = NONE if description.input is None else description.input.scheme
        if scheme != found.input.kind:
            yield "input", found.input.kind, scheme
        elif found.input.offset is not None and description.position_offset != found.input.offset:
            yield "offset", str(found.input.offset), str(description.position_offset)
    if found.embedding_scale is not None:
        read: Any = description.embedding_scale
        read = 1.0 if read is None else description.dim**0.5 if isinstance(read, str) else float(read)
        if abs(found.embedding_scale - read) > 4e-3 * read:  # a factor rounded to bfloat16 is among them
            yield "embedding scale", f"{found.embedding_scale:.6g}", f"{read:.6g}"


def _of_layer(number: int, layer: Layer, description: Description) -> _Stated:
    if number >= description.layers:
        yield "layers", layer.module, f"{description.layers} layers"
        return
    heads = description.heads[number]
    measured, read = [layer.num_heads, layer.head_dim], [heads.num_heads, heads.head_dim]
    if layer.key_heads != layer.num_heads:  # else the keys may have been repeated before
        measured, read = [*measured, layer.key_heads], [*read, heads.key_heads]
    if measured != read:
        yield "heads", ", ".join(map(str, measured)), ", ".join(map(str, read))
    yield from _query_key(number, layer, description)
    yield from _score(layer, description.score[number])
    scale = description.scales[number]
    if layer.scale is not None and abs(layer.scale - scale) > 1e-5 * scale:
        yield "scale", f"{layer.scale:.7g}", f"{scale:.7g}"
    yield from _span(layer.span, description.windows[number] if description.windows else None, description.causal)
    sinks = bool(description.sinks) and description.sinks[number]
    if layer.sinks != sinks:
        yield "sinks", str(layer.sinks), str(sinks)


def _expected_maps(scheme: Any, positions: Sequence[int]) -> list[FeatureMap]:
    """Return the maps of queries and keys of a scheme at increasing positions, solved as those of a probe are."""
    if scheme is None:
        return [FeatureMap(NONE)] * 2
    size = scheme.head_dim
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(2 * size, 1, 1, size, generator=generator).expand(-1, -1, len(positions), -1).contiguous()
    slots = torch.tensor(positions)[None]
    here = Where(query_key=scheme).at(Positions(slots.expand(getattr(scheme, "axes", 1), 1, -1), slots))
    with torch.no_grad():
        return [solve(each.double().numpy(), positions) for each in here.query_key(base, base)]


def _query_key(number: int, layer: Layer, description: Description) -> _Stated:
    plan = description.query_key[number]
    built: Any = None if plan is None else plan.build()
    curve = description.temperatures[number] if description.temperatures else None
    learned = curve is not None and not curve.is_curve  # by factors that are weights
    scheme = built if learned else description.where(number).query_key
    for index, name in enumerate(("query", "key")):
        measured: FeatureMap = getattr(layer, name)
        if measured.kind == NOT_MEASURED:
            continue
        if learned and name == "query":
            measured = replace(measured, kind=NONE if measured.kind == SCALED else measured.kind, scales=())
        read = _expected_maps(scheme, measured.positions)[index]
        if measured.positions in (FAR, BELOW_TABLE):
            read = merged(_expected_maps(scheme, NEAR)[index], read)
        if plan is not None and plan.scheme == "rotary-learned":  # by frequencies that are weights
            read = replace(read, frequencies=measured.frequencies, far_frequencies=measured.far_frequencies)
        for what, one, other in _maps(measured, read):
            yield f"{name} {what}", one, other
    if layer.magnitude is not None and built is not None:
        magnitude = float(getattr(built, "magnitude", 1.0))
        if abs(magnitude - layer.magnitude) > RELATIVE * magnitude:
            yield "magnitude", f"{layer.magnitude:.7g}", f"{magnitude:.7g}"


def _maps(measured: FeatureMap, read: FeatureMap) -> _Stated:
    if measured.kind != read.kind:
        yield "map", measured.kind + (f": {measured.reason}" if measured.reason else ""), read.kind
        return
    layout = measured.projected_layout or measured.layout
    if layout != read.layout and measured.rotary_dim != 2:
        yield "layout", str(layout), str(read.layout)
    yield from _numbers("frequencies", measured.frequencies, read.frequencies, 1e-8)
    yield from _numbers("far frequencies", measured.far_frequencies, read.far_frequencies, 1e-9)
    yield from _numbers("factors by position", measured.scales, read.scales, 5e-4)


def _numbers(what: str, one: Sequence[float], other: Sequence[float], absolute: float) -> _Stated:
    if len(one) != len(other) or not np.allclose(one, other, rtol=RELATIVE, atol=absolute):
        measured, read = (", ".join(f"{value:.6g}" for value in values) or "none" for values in (one, other))
        yield what, measured, read


_BIASES = {
    None: "none", "alibi": "linear", "t5": "by distance", "deberta": "by content", "inkling": "by content",
    "transformer-xl": "by content",
}  # fmt: skip
"""Scheme -> its kind of bias, as a probe measures it."""


def _score(layer: Layer, plan: Plan | None) -> _Stated:
    scheme, kind = None if plan is None else plan.scheme, layer.bias.kind
    if kind != NOT_MEASURED and kind != _BIASES.get(scheme, kind):
        yield "bias", kind, str(scheme)
    elif kind != NOT_MEASURED and plan is not None and scheme == "alibi":
        built: Any = plan.build()
        yield from _numbers("slopes", layer.bias.slopes, built.slopes.tolist(), 1e-5)


def _span(span: Span, window: "Window | None", causal: bool) -> _Stated:
    if span.causal is None:
        return
    if span.causal != causal:
        names = {True: "causal", False: "in both directions"}
        yield "mask", names[span.causal], names[causal]
    seen = span.chunk if span.chunk is not None else None if span.before is None else span.before + 1
    size = None if window is None else window.size
    if seen != size and (size is None or size < span.tokens):
        yield "window", str(seen), str(size)
    elif window is not None and window.chunked != (span.chunk is not None) and window.size < span.tokens:
        yield "chunks", str(span.chunk is not None), str(window.chunked)
