"""What a probe measured of a model, as sections: layers that are alike in one row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, isclose, log10

from whatwhere.models.probe.differences import Difference
from whatwhere.models.probe.findings import (
    NONE,
    NOT_MEASURED,
    ROTARY,
    SCALED,
    Bias,
    FeatureMap,
    InputChange,
    Layer,
    Probe,
    Span,
)
from whatwhere.report.section import Headline, Part, Section, Table
from whatwhere.report.text import count, listed, number

_METHODS = {"interface": "transformers' attention interface", "functions": "PyTorch's functions"}


@dataclass(frozen=True)
class ProbeRecord(Headline):
    """What `whatwhere probe --json` prints."""

    probe: Probe  # the findings
    differences: Sequence[Difference] | None  # from what the configuration describes; None if that cannot be read
    unread: str | None  # why it cannot be read


def headline(found: Probe) -> str:
    """Return the main facts in one sentence, without its full stop."""
    kinds = list(dict.fromkeys(_map(layer.query) for layer in found.layers))
    return f"{found.model_type}: {count(len(found.layers), 'attention')} over one sequence; queries {listed(kinds)}"


def sections(record: ProbeRecord) -> list[Section]:
    """Return the layers in a table, then input, notes, and what the registry reads otherwise."""
    return [Section("probe", "Attention by layer", [*_parts(record)])]


def _parts(record: ProbeRecord) -> Iterator[Part]:
    found = record.probe
    yield _layers(found.layers)
    yield _input(found.input)
    if found.embedding_scale is not None:
        yield f"Token vectors enter multiplied by {number(found.embedding_scale, 6)}."
    if found.crossing:
        yield f"{count(found.crossing, 'attention')} over another sequence: not measured."
    for note in found.notes:
        yield f"Not measured: {note}."
    yield _registry(record)
    versions = f"{found.model}, transformers {found.transformers}, torch {found.torch}"
    yield f"Measured by {_METHODS[found.method]}; {versions}."


def short(layer: Layer) -> str:
    """Return what was measured of a layer in a few words, without numbers that depend on its size alone."""
    words = [_map(layer.query)]
    if _map(layer.key) != words[0]:
        words.append(f"keys {_map(layer.key)}")
    if layer.bias.kind != NONE:
        words.append(f"bias {layer.bias.kind}")
    if layer.span.chunk is not None:
        words.append("chunks")
    elif layer.span.before is not None:
        words.append("window")
    if layer.sinks:
        words.append("sink")
    if layer.span.causal is False:
        words.append("both directions")
    return ", ".join(words)


def _layers(layers: Sequence[Layer]) -> Table:
    groups: list[list[Layer]] = []
    for layer in layers:
        group = next((each for each in groups if _alike(each[0], layer)), None)
        if group is None:
            groups.append(group := [])
        group.append(layer)
    rows = []
    for group in groups:
        others = f" and {count(len(group) - 1, 'other')}" if len(group) > 1 else ""
        rows.append((f"{group[0].module}{others}", *_cells(max(group, key=_residual))))
    columns = ("layers", "queries", "keys", "frequencies", "residual", "scale", "sees", "bias", "sink")
    return Table("", columns, rows, shorten="never")


def _residual(layer: Layer) -> float:
    return max(layer.query.residual, layer.key.residual)


def _alike(one: Layer, other: Layer) -> bool:
    """Return whether two layers have the same cells, and frequencies that differ as measurements of one do."""
    cells, others = (_cells(each) for each in (one, other))
    if (cells[:2], cells[4:]) != (others[:2], others[4:]):
        return False
    tolerance = 10 * max(_residual(one), _residual(other), 1e-7)
    ours, theirs = ((*each.query.frequencies, *each.query.far_frequencies) for each in (one, other))
    return len(ours) == len(theirs) and all(
        isclose(a, b, rel_tol=tolerance, abs_tol=1e-30) for a, b in zip(ours, theirs, strict=True)
    )


def _cells(layer: Layer) -> tuple[str, ...]:
    magnitude = "" if layer.magnitude in (None, 1.0) else f", times {number(layer.magnitude, 6)}"
    residual = _residual(layer)
    return (
        _map(layer.query) + magnitude,
        "as queries" if _map(layer.query) == _map(layer.key) else _map(layer.key) + magnitude,
        _frequencies(layer.query),
        f"below 1e{max(-6, floor(log10(max(residual, 1e-9))) + 1)}",
        "not measured" if layer.scale is None else number(layer.scale, 5),
        _span(layer.span),
        _bias(layer.bias),
        "learned" if layer.sinks else "none",
    )


def _map(found: FeatureMap) -> str:
    if found.kind == NONE:
        return "no positions"
    if found.kind == SCALED:
        because = f" ({found.reason})" if found.reason else ""
        return f"times {number(found.scales[-1], 5)} at {found.positions[-1]:,}{because}"
    if found.kind != ROTARY:
        return f"{found.kind}: {found.reason}" if found.reason else found.kind
    layout = found.projected_layout or found.layout
    scaled = f", times {number(found.scales[-1], 5)} at {found.positions[-1]:,}" if found.scales else ""
    return f"rotary, {layout}, {found.rotary_dim} features from {found.start}{scaled}"


def _frequencies(found: FeatureMap) -> str:
    if found.kind != ROTARY:
        return ""
    near = f"{number(found.frequencies[0], 6)} to {number(found.frequencies[-1], 6)}"
    if not found.far_frequencies:
        return near
    return f"{near}; in long sequences {number(found.far_frequencies[0], 6)} to {number(found.far_frequencies[-1], 6)}"


def _span(span: Span) -> str:
    if span.causal is None:
        return "not measured"
    direction = "earlier keys" if span.causal else "all keys"
    if span.chunk is not None:
        return f"{direction} in its chunk of {span.chunk}"
    if span.before is None and span.after in (None, 0):
        return f"{direction} of {span.tokens}" if not span.named else f"{direction}; window {span.named} not reached"
    after = "" if span.causal else f", {span.after} later"
    return f"the nearest {span.before} earlier{after}, and itself"


def _bias(bias: Bias) -> str:
    if bias.kind == "linear":
        return f"slopes {number(bias.slopes[0], 4)} to {number(bias.slopes[-1], 4)}"
    return f"{bias.kind}: {bias.reason}" if bias.kind == NOT_MEASURED else bias.kind


def _input(change: InputChange) -> str:
    match change.kind:
        case "none":
            return "Hidden states before the first layer do not depend on position."
        case "learned" | "sinusoidal":
            known = change.module is not None
            table = f" ({change.module}, {change.rows:,} rows, position 0 in row {change.offset})" if known else ""
            return f"Hidden states before the first layer depend on position: {change.kind}{table}."
        case "table":
            return "The same vector by position is added to the hidden states before the first layer."
    return f"Hidden states before the first layer: {change.kind}: {change.reason}."


def _registry(record: ProbeRecord) -> str:
    if record.differences is None:
        return f"The configuration alone is not read: {' '.join(str(record.unread).split())}"
    if not record.differences:
        return "The configuration alone is read alike."
    some = [
        f"{'' if each.layer is None else f'layer {each.layer}, '}{each.what}: measured {each.measured}, "
        f"read {each.read}"
        for each in record.differences[:5]
    ]
    statements = count(len(record.differences), "statement")
    return f"The configuration alone is read otherwise in {statements}: {'; '.join(some)}."
