"""The sections of an inspection on positions: the position embedding, rotary, and biases by distance."""

from collections.abc import Iterator, Sequence

import numpy as np

from whatwhere.analysis.added_positions import PositionTable
from whatwhere.analysis.biases import BiasCurves, BiasReport
from whatwhere.analysis.pca import Spectrum
from whatwhere.analysis.rotary import Agreement, RotaryLayers, RotaryReport, TemperatureLayers
from whatwhere.records import Missing
from whatwhere.report.section import Part, Table
from whatwhere.report.text import capital, count, decimals, number, percent, ranges

_DISTANCES = tuple(2**n for n in range(10))
_DECADES = {factor * 10**power for factor in (1, 8) for power in range(9)}
_OUTLIERS = 20


def positions(findings: PositionTable) -> Iterator[Part]:
    """Return the sections on the position embedding."""
    kind = "Learned" if findings.learned else "Fixed"
    yield f"{kind}: {findings.positions:,} positions × {findings.dim:,}; median norm {number(findings.median_norm)}."
    if findings.trained < findings.examined:
        yield (
            f"From position {findings.trained:,} on, rows are not similar to their neighbors, while the rows before "
            "are: training seems to have stopped there."
        )
    elif findings.learned:
        yield "No position was found from which on rows are less similar to their neighbors."
    if findings.shift is None:
        yield "There are too few positions to fit a linear map from each position to the next."
    else:
        explained = percent(max(findings.shift, 0.0))
        yield (
            f"One linear map from each position to the next explains {explained} of the variance of held-out positions."
        )
    yield describe_spectrum(findings.spectrum)
    unlike = [
        f"{n} ({number(float(findings.norms[n]))}; {decimals(float(findings.neighbor_cosine[n]), 2)})"
        for n in findings.outliers[:_OUTLIERS].tolist()
    ]
    more = f" and {len(findings.outliers) - _OUTLIERS:,} more" if len(findings.outliers) > _OUTLIERS else ""
    yield (
        "Positions unlike the others by norm, distance from the mean row, or cosine to both neighbors"
        f"{' (norm; larger cosine)' if unlike else ''}: {', '.join(unlike) or 'none'}{more}."
    )
    near = {n: float(findings.by_distance[n]) for n in _DISTANCES if n < len(findings.by_distance)}
    rows = [[str(distance), decimals(cosine)] for distance, cosine in near.items()]
    bars = [max(cosine, 0.0) for cosine in near.values()]
    yield Table("Mean cosine of two positions, by their distance", ("distance", "mean cosine"), rows, (0, 1), bars=bars)


def rotary(findings: RotaryReport) -> Iterator[Part]:
    """Return the sections on rotations."""
    total = findings.layers
    for n, group in enumerate(findings.groups):
        layers = layers_text(group.layers, total)
        yield (
            f"{layers}: {group.scheme}, theta {group.theta:,.10g}, {count(len(group.wavelengths), 'pair')} of "
            f"{group.head_dim} features, {group.scaling or 'no scaling'}."
        )
        yield from _lengths(group)
        if group.scaling:
            yield _agreement("with and without the scaling", group.effect)
        for other in findings.between:
            if other.second == n:
                yield _agreement("as in these layers and as in the first group", other)
        yield _pair_table(layers, group)
    if findings.without:
        yield f"{layers_text(findings.without, total)}: no rotation."
    for one in findings.temperatures:
        yield _temperature(one, total)
    for window in findings.windows:
        kind = "chunks" if window.chunked else "a sliding window"
        sides = "" if window.causal or window.chunked else " to each side, that of the query among them"
        yield f"{layers_text(window.layers, total)}: attention within {kind} of {count(window.size, 'token')}{sides}."
    if findings.sinks:
        kind = "a logit in the denominator of the softmax, without a value"
        yield f"{layers_text(findings.sinks, total)}: each head has a learned sink, {kind}."


def biases(findings: BiasReport) -> Iterator[Part]:
    """Return the sections on biases by distance."""
    yield _ranges(findings)
    for group in findings.groups:
        part = f"{group.part}, " if group.part else ""
        title = f"{group.scheme}, {part}{layers_text(group.layers).lower()}"
        curves = group.curves
        yield f"{title}: {curves.missing}." if isinstance(curves, Missing) else _heads(title, curves)


def describe_spectrum(findings: Spectrum) -> str:
    """Return a sentence on how many axes hold the variance, and how alike rows are."""
    axes = findings.axes_for_90
    ninety = "" if axes is None else f"{axes:,} of {findings.dim:,} principal axes hold 90\u00a0% of the variance; "
    sampled = f", from a sample of {findings.rows:,} rows" if findings.sampled else ""
    return capital(
        f"{ninety}the participation ratio is {number(findings.participation_ratio)}; two rows have a mean cosine of "
        f"{decimals(findings.mean_cosine)}, and the norm of the mean row is {decimals(findings.mean_row_norm, 2)} of "
        f"the mean norm{sampled}."
    )


def layers_text(layers: Sequence[int], total: int | None = None) -> str:
    """Format the numbers of some layers as a name: "All 2 layers", or "Layers 0-2, 4 of 8"."""
    if total is not None and len(layers) == total:
        return f"All {total} layers"
    named = f"Layer{'s' if len(layers) > 1 else ''} {ranges(layers)}"
    return named if total is None else f"{named} of {total}"


def _lengths(group: RotaryLayers) -> Iterator[str]:
    """Return how the pairs of a rotation compare with the trained and the claimed length."""
    trained, claimed = group.trained, group.claimed
    partial, pairs = int(group.partial.sum()), len(group.wavelengths)
    yield f"Trained length {trained:,}, claimed {claimed:,}: {group.lengths}."
    yield f"{partial} of {pairs} pairs do not complete a rotation in {trained:,} positions."
    if claimed != trained or group.scaling:
        scaled, beyond = int((group.rotations_claimed < 1).sum()), int(group.unseen.sum())
        unscaled = (
            f" {int((claimed < group.unscaled).sum())} would not without the scaling, and" if group.scaling else ""
        )
        yield f"In {claimed:,} positions{unscaled} {scaled} do not{' with it' if group.scaling else ''}."
        pairs_reach = f"{count(beyond, 'pair')} then {'reaches' if beyond == 1 else 'reach'}"
        pairs_reach = pairs_reach if beyond else "No pair then reaches"
        yield f"{pairs_reach} angles that do not occur in {trained:,} positions."
    if group.constant.any():
        yield f"{count(int(group.constant.sum()), 'pair')} of frequency 0: not rotated at all."
    if group.magnitude != 1:
        yield f"Queries and keys are multiplied by {number(group.magnitude, 4)}."


def _temperature(findings: TemperatureLayers, layers: int) -> str:
    where = layers_text(findings.layers, layers)
    if findings.factors is None:
        return f"{where}: queries are multiplied by a learned function of their position, {findings.curve}."
    values = _by_decades(findings.positions, findings.factors.tolist())
    return f"{where}: queries are multiplied by a function of their position, {findings.curve}: {values}."


def _agreement(how: str, agreement: Agreement) -> str:
    values = _by_decades(agreement.distances, agreement.cosine.tolist())
    return f"Cosine of a vector rotated {how}, by distance: {values}."


def _by_decades(places: Sequence[int], values: Sequence[float]) -> str:
    """Return the values at 0, where a decade begins, at its eightfold, and at the last place."""
    chosen = {0, places[-1]} | _DECADES
    pairs = zip(places, values, strict=True)
    return ", ".join(f"{decimals(value)} at {place:,}" for place, value in pairs if place in chosen)


def _pair_table(layers: str, group: RotaryLayers) -> Table:
    columns = {"wavelength": group.wavelengths}
    if group.scaling:
        columns |= {"wavelength unscaled": group.unscaled, "slowdown": group.slowdown}
    columns[f"rotations in {group.trained:,}"] = group.rotations_trained
    if group.claimed != group.trained:
        columns[f"rotations in {group.claimed:,}"] = group.rotations_claimed
    values = [column.tolist() for column in columns.values()]
    rows = [
        [str(pair), *(number(value, absent="never") if np.isfinite(value) else "never" for value in row)]
        for pair, row in enumerate(zip(*values, strict=True))
    ]
    names = ("pair", *columns)
    return Table(f"{layers}: pairs, the highest frequency first", names, rows, range(len(names)), shorten="evenly")


def _ranges(findings: BiasReport) -> str:
    curves = [group.curves for group in findings.groups if not isinstance(group.curves, Missing)]
    known = [distance for each in curves for distance in each.past.distance.tolist()]
    if not known:
        return "The bias is not known from a checkpoint alone."
    ends = [distance for distance in known if distance >= 0]
    meaning = (
        "Effective range: the distance from which on every weight is below 1\u00a0% of the head's greatest, where the "
        "bias alone counts; half: below 50\u00a0%."
    )
    if not ends:
        return f"In no head does the weight fall below 1\u00a0% of its greatest, at the distances examined. {meaning}"
    return (
        f"{len(ends)} of {count(len(known), 'head')} have an effective range, of {min(ends):,} to {max(ends):,} "
        f"tokens. {meaning}"
    )


def _heads(title: str, curves: BiasCurves) -> Table:
    def ranges(distances: np.ndarray) -> list[str]:
        beyond = "unlimited" if curves.endless else f"over {curves.examined - 1:,}"
        return [f"{distance:,}" if distance >= 0 else beyond for distance in distances.tolist()]

    past = curves.past
    columns = {
        "head": [str(head) for head in range(len(past.distance))],
        "effective range": ranges(past.distance),
        "half": ranges(past.half),
        "greatest at": [f"{peak:,}" for peak in past.peak.tolist()],
    }
    if curves.future is not None:
        columns["range ahead"] = ranges(curves.future.distance)
    if curves.slopes is not None:
        columns["slope"] = [number(slope, 4) for slope in curves.slopes.tolist()]
    rows = [*zip(*columns.values(), strict=True)]
    return Table(f"{title}: effective range by head", [*columns], rows, range(len(columns)), shorten="evenly")
