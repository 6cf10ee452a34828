"""The sections of an inspection on positions: the position embedding, rotary, and biases by distance."""

from collections.abc import Sequence

import numpy as np

from whatwhere.analysis.added_positions import PositionTable
from whatwhere.analysis.biases import BiasCurves, BiasReport
from whatwhere.analysis.pca import Spectrum
from whatwhere.analysis.rotary import Agreement, RotaryLayers, RotaryReport, TemperatureLayers
from whatwhere.records import Missing
from whatwhere.report.section import Paragraph, Part, Table
from whatwhere.report.text import capital, count, decimals, number, percent, ranges

_DISTANCES = tuple(2**n for n in range(10))
_DECADES = {factor * 10**power for factor in (1, 8) for power in range(9)}
_OUTLIERS = 20


def positions(findings: PositionTable) -> list[Part]:
    """Return the sections on the position embedding."""
    kind = "Learned" if findings.learned else "Fixed"
    text = [
        f"{kind}: {findings.positions:,} positions × {findings.dim:,}; median norm {number(findings.median_norm)}.",
        _trained(findings),
        _shift(findings),
        describe_spectrum(findings.spectrum),
        _outliers(findings),
    ]
    near = [(n, float(findings.by_distance[n])) for n in _DISTANCES if n < len(findings.by_distance)]
    table = Table(
        "Mean cosine of two positions, by their distance",
        ("distance", "mean cosine"),
        [[str(distance), decimals(cosine)] for distance, cosine in near],
        (0, 1),
        bars=[max(cosine, 0.0) for _, cosine in near],
    )
    return [*(Paragraph(each) for each in text if each), table]


def rotary(findings: RotaryReport) -> list[Part]:
    """Return the sections on rotations."""
    parts: list[Part] = []
    for n, group in enumerate(findings.groups):
        layers = layers_text(group.layers, findings.layers)
        text = [
            f"{layers}: {group.scheme}, theta {group.theta:,.10g}, {_pairs(group)} of {group.head_dim} features, "
            f"{group.scaling or 'no scaling'}.",
            *_lengths(group),
            *([_agreement("with and without the scaling", group.effect)] if group.scaling else []),
            *(
                _agreement("as in these layers and as in the first group", other)
                for other in findings.between
                if other.second == n
            ),
        ]
        parts += [*map(Paragraph, text), _pair_table(layers, group)]
    if findings.without:
        parts.append(Paragraph(f"{layers_text(findings.without, findings.layers)}: no rotation."))
    parts += [Paragraph(_temperature(one, findings.layers)) for one in findings.temperatures]
    for one in findings.windows:
        kind = "chunks" if one.chunked else "a sliding window"
        where = layers_text(one.layers, findings.layers)
        parts.append(Paragraph(f"{where}: attention within {kind} of {count(one.size, 'token')}."))
    if findings.sinks:
        where = layers_text(findings.sinks, findings.layers)
        kind = "a logit in the denominator of the softmax, without a value"
        parts.append(Paragraph(f"{where}: each head has a learned sink, {kind}."))
    return parts


def biases(findings: BiasReport) -> list[Part]:
    """Return the sections on biases by distance."""
    parts: list[Part] = [Paragraph(_ranges(findings))]
    for group in findings.groups:
        part = f"{group.part}, " if group.part else ""
        title = f"{group.scheme}, {part}{layers_text(group.layers).lower()}"
        if isinstance(group.curves, Missing):
            parts.append(Paragraph(f"{title}: {group.curves.missing}."))
        else:
            parts.append(_heads(title, group.curves))
    return parts


def describe_spectrum(findings: Spectrum) -> str:
    """Return a sentence on how many axes hold the variance, and how alike rows are."""
    ninety = (
        ""
        if findings.axes_for_90 is None
        else f"{findings.axes_for_90:,} of {findings.dim:,} principal axes hold 90\u00a0% of the variance; "
    )
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


def _trained(findings: PositionTable) -> str:
    if findings.trained < findings.examined:
        return (
            f"From position {findings.trained:,} on, rows are not similar to their neighbors, while the rows before "
            "are: training seems to have stopped there."
        )
    return "No position was found from which on rows are less similar to their neighbors." if findings.learned else ""


def _shift(findings: PositionTable) -> str:
    if findings.shift is None:
        return "There are too few positions to fit a linear map from each position to the next."
    explained = percent(max(findings.shift, 0.0))
    return f"One linear map from each position to the next explains {explained} of the variance of held-out positions."


def _outliers(findings: PositionTable) -> str:
    listed = [
        f"{n} ({number(float(findings.norms[n]))}; {decimals(float(findings.neighbor_cosine[n]), 2)})"
        for n in findings.outliers[:_OUTLIERS].tolist()
    ]
    more = f" and {len(findings.outliers) - _OUTLIERS:,} more" if len(findings.outliers) > _OUTLIERS else ""
    return (
        "Positions unlike the others by norm, distance from the mean row, or cosine to both neighbors"
        f"{' (norm; larger cosine)' if listed else ''}: {', '.join(listed) or 'none'}{more}."
    )


def _pairs(group: RotaryLayers) -> str:
    return count(len(group.wavelengths), "pair")


def _lengths(group: RotaryLayers) -> list[str]:
    """Return how the pairs of a rotation compare with the trained and the claimed length."""
    trained, claimed, pairs = group.trained, group.claimed, len(group.wavelengths)
    lines = [
        f"Trained length {trained:,}, claimed {claimed:,}: {group.lengths}.",
        f"{int(group.partial.sum())} of {pairs} pairs do not complete a rotation in {trained:,} positions.",
    ]
    if claimed != trained or group.scaling:
        scaled = int((group.rotations_claimed < 1).sum())
        unscaled = int((claimed < group.unscaled).sum())
        lines.append(
            f"In {claimed:,} positions {unscaled} would not without the scaling, and {scaled} do not with it."
            if group.scaling
            else f"In {claimed:,} positions {scaled} do not."
        )
        beyond = int(group.unseen.sum())
        pairs_reach = f"{count(beyond, 'pair')} then {'reaches' if beyond == 1 else 'reach'}"
        lines.append(
            f"{pairs_reach if beyond else 'No pair then reaches'} angles that do not occur in {trained:,} positions."
        )
    if group.constant.any():
        lines.append(f"{count(int(group.constant.sum()), 'pair')} of frequency 0: not rotated at all.")
    if group.magnitude != 1:
        lines.append(f"Queries and keys are multiplied by {number(group.magnitude, 4)}.")
    return lines


def _temperature(findings: TemperatureLayers, layers: int) -> str:
    """Return the curve, and its factors at 0 and at the positions where a decade begins and its eightfold."""
    where = layers_text(findings.layers, layers)
    if findings.factors is None:
        return f"{where}: queries are multiplied by a learned function of their position, {findings.curve}."
    each = list(zip(findings.positions, findings.factors.tolist(), strict=True))
    chosen = {0, each[-1][0]} | _DECADES
    listed = ", ".join(f"{decimals(factor)} at {position:,}" for position, factor in each if position in chosen)
    return f"{where}: queries are multiplied by a function of their position, {findings.curve}: {listed}."


def _agreement(how: str, agreement: Agreement) -> str:
    """Return the cosine at a few distances: those that begin a decade, their eightfold, and the last."""
    chosen = _DECADES | {agreement.distances[-1]}
    each = zip(agreement.distances, agreement.cosine.tolist(), strict=True)
    listed = ", ".join(f"{decimals(cosine)} at {distance:,}" for distance, cosine in each if distance in chosen)
    return f"Cosine of a vector rotated {how}, by distance: {listed}."


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
    known = [
        distance
        for group in findings.groups
        if not isinstance(group.curves, Missing)
        for distance in group.curves.past.distance.tolist()
    ]
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
    columns = ["head", "effective range", "half", "greatest at"]
    past = curves.past
    each = zip(past.distance.tolist(), past.half.tolist(), past.peak.tolist(), strict=True)
    rows = [
        [str(head), _range(far, curves), _range(half, curves), f"{peak:,}"]
        for head, (far, half, peak) in enumerate(each)
    ]
    if curves.future is not None:
        columns.append("range ahead")
        for row, far in zip(rows, curves.future.distance.tolist(), strict=True):
            row.append(_range(far, curves))
    if curves.slopes is not None:
        columns.append("slope")
        for row, slope in zip(rows, curves.slopes.tolist(), strict=True):
            row.append(number(slope, 4))
    return Table(f"{title}: effective range by head", columns, rows, range(len(columns)), shorten="evenly")


def _range(distance: int, curves: BiasCurves) -> str:
    if distance >= 0:
        return f"{distance:,}"
    return "unlimited" if curves.endless else f"over {curves.examined - 1:,}"
