"""The figures of a comparison: scores by length and by shift, and what each trained scheme assigns to positions."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from whatwhere.comparison.read import Comparison, Scored
from whatwhere.comparison.results import ALL, Spread, spread
from whatwhere.comparison.statistics import Interval, PairedDifferences, paired_differences
from whatwhere.records import Missing
from whatwhere.report.comparison_sentences import distance_curves, gain_unit, learned, measure_text, name_text, unit_of
from whatwhere.report.figures import looks
from whatwhere.report.section import Chart, Series, Table
from whatwhere.report.text import capital, decimals

_STORED = "Computed from the trained scheme of the first seed, and stored in results.json."
_AXES: Mapping[str, tuple[str, str, str]] = {
    "rows by dimension": ("feature", "position", "A vector for each position, added to the token's."),
    "cos of the angle of each pair": ("pair of features", "position", "The cosine of an angle for each pair."),
    "bias by distance, one column a head": ("head", "distance", "A number for each, added to the attention score."),
}
"""By the label of a fingerprint: names of its columns and rows, and what its values are."""


def figures(results: Scored, schemes: Sequence[str] | None = None) -> Iterator[Chart]:
    """Yield the figures: medians over the seeds, with a band from the least to the greatest.

    A legend says which schemes did not learn the task.
    """
    drawn = list(schemes or results.schemes)
    look = looks(drawn)
    lengths, factor = [*results.trained, *results.beyond], 100.0 if results.percent else 1.0
    measured, trained = name_text(results.task.measure), max(results.task.trained)

    def chart(
        name: str, title: str, x_label: str, x: Sequence[int], scores: Callable[[str, int], Spread | None]
    ) -> Chart:
        series = [_series(results, scheme, [scores(scheme, at) for at in x], look[scheme], factor) for scheme in drawn]
        ends = (0.0, 100.0) if results.percent else None
        return Chart("lines", title, x_label, measure_text(results), [*map(float, x)], series, name=name, y_range=ends)

    for number, group in enumerate((ALL, *results.task.groups)):
        whole = group == ALL
        title = f"{capital(measured)} by length{'' if whole else f', {name_text(group)} alone'}"
        plain = re.sub(r"[^A-Za-z0-9]+", "-", group)[:30].strip("-") or "group"  # of a name that holds anything
        name = "scores" if whole else f"scores-{number}-{plain}"
        of_group = partial(results.score, group=group)
        x_label = unit_of(results) if whole else f"{unit_of(results)} ({name_text(group)} alone)"
        figure = chart(name, title, x_label, lengths, of_group)
        baselines = _baselines(results, lengths) if whole else ()
        yield replace(figure, series=[*figure.series, *baselines], marks=[(float(trained), f"trained up to {trained}")])
    if isinstance(results, Comparison) and results.shifts:
        tests = {scheme: {by: each.score for by, each in results.summary[scheme].shift.items()} for scheme in drawn}
        labels = "The same inputs, every position shifted", "positions shifted by"
        yield chart("shift", *labels, results.shifts, lambda scheme, shift: tests[scheme].get(shift))


def differences_figure(results: Scored, against: str, schemes: Sequence[str] | None = None) -> Chart | None:
    """Return by how much each scheme is better than one, by length: means over the seeds with their 95 % intervals.

    None where SciPy is not installed, or no other scheme has a score in every seed.
    """
    against, factor = results.find_scheme(against, compared=True), 100.0 if results.percent else 1.0
    drawn = [scheme for scheme in schemes or results.compared.values() if scheme != against]
    look, lengths = looks(schemes or results.schemes), [*results.trained, *results.beyond]
    tested = [paired_differences(results, length, against) for length in lengths]

    def gain(each: PairedDifferences | Missing, scheme: str) -> tuple[float, ...]:
        """Return by how much a scheme is better, and the ends of the interval; NaN where there is none."""
        pairs = () if isinstance(each, Missing) else each.pairs
        pair = next((pair for pair in pairs if scheme in (pair.first, pair.second)), None)
        if pair is None:
            return (math.nan,) * 3
        sign, ends = factor if pair.first == scheme else -factor, pair.interval or Interval(math.nan, math.nan)
        return sign * pair.mean, *sorted((sign * ends.low, sign * ends.high))

    series = []
    for scheme in drawn:
        means, low, high = zip(*(gain(each, scheme) for each in tested), strict=True)
        if not all(map(math.isnan, means)):
            ends = ((), ()) if all(map(math.isnan, low)) else (low, high)
            series.append(Series(name_text(scheme), means, look[scheme], *ends))
    if not series:
        return None
    return Chart(
        "lines",
        f"Paired differences from {name_text(against)}",
        unit_of(results),
        f"gain over {name_text(against)}, {gain_unit(results)}",
        [*map(float, lengths)],
        [*series, Series(name_text(against), [0.0] * len(lengths), reference=True)],
        note="Means over the seeds, with 95 % intervals of each pair alone, from five seeds on.",
        marks=[(float(max(results.task.trained)), f"trained up to {max(results.task.trained)}")],
        name="differences",
    )


def held_out_figure(results: Comparison) -> Iterator[Chart]:
    """Yield the held-out loss of each scheme through the training, where it was measured: medians over the seeds."""
    curves: dict[str, list[dict[float, float]]] = {}
    same = len({run.steps for run in results.runs}) == 1
    for run in results.runs:
        at = {float(step if same else round(100 * step / max(1, run.steps))): loss for step, loss in run.held_out}
        curves.setdefault(run.scheme, []).append(at)
    x, look = sorted({step for each in curves.values() for at in each for step in at}), looks(results.schemes)
    if not x:
        return
    series = [
        _series(results, scheme, [spread(at.get(step) for at in each) for step in x], look[scheme], 1.0)
        for scheme, each in curves.items()
    ]
    labels = "Held-out loss through the training", "step" if same else "steps done, %", "held-out loss, nats"
    note = "Of sequences of the trained lengths that neither training nor any test has; medians over the seeds."
    yield Chart("lines", *labels, x, series, note=note, name="held-out")


def fingerprints(results: Comparison) -> Iterator[Chart]:
    """Yield a picture of what each trained scheme assigns to positions: a row for each of them, or each distance."""
    for scheme in results.schemes:
        view = results.record.schemes.get(scheme)
        if view is None or view.fingerprint is None or not view.fingerprint.values:
            continue
        label, values = view.fingerprint.label, view.fingerprint.values
        columns, rows, text = _AXES.get(label, ("column", "row", f"{capital(name_text(label))}."))
        series = [Series(str(n), _filled(row, max(map(len, values)))) for n, row in enumerate(values)]
        title = f"Fingerprint of {name_text(scheme)}"
        yield Chart("picture", title, columns, rows, (), series, note=text, method=_STORED)


def by_distance(results: Comparison) -> Iterator[Chart]:
    """Yield the curves over distance of the schemes that have the same measure, as one figure."""
    found, look = distance_curves(results), looks(results.schemes)
    for label in dict.fromkeys(curves.label for curves in found.values()):
        schemes = {scheme: curves for scheme, curves in found.items() if curves.label == label}
        distances = max((curves.distances for curves in schemes.values()), key=len)
        series = []
        for scheme, curves in schemes.items():
            for name, values in curves.curves.items():
                alone = name_text(scheme) if len(curves.curves) == 1 else f"{name_text(scheme)}, {name_text(name)}"
                series.append(Series(alone, _filled(values, len(distances)), look[scheme]))
        title = f"{capital(name_text(label))}{f', {series[0].name}' if len(series) == 1 else ''}"
        cells = zip(distances, *(each.values for each in series), strict=True)
        rows = [[str(n), *("" if math.isnan(v) else decimals(v) for v in row)] for n, *row in cells]
        names = ["distance", *(each.name for each in series)]
        table = Table(f"{title}, by distance in tokens", names, rows, range(len(names)), shorten="evenly")
        measure = re.sub(" (of|added to) .*", "", name_text(label))
        x = [*map(float, distances)]
        yield Chart("lines", title, "distance, tokens", measure, x, series, table, method=_STORED)


def _filled(values: Sequence[float | None], length: int) -> list[float]:
    """Return numbers, cut or filled up with NaN to a length."""
    return [math.nan if n >= len(values) or (value := values[n]) is None else value for n in range(length)]


def _series(results: Scored, scheme: str, spreads: Sequence[Spread | None], look: int, factor: float) -> Series:
    median, low, high = (
        [math.nan if each is None else factor * getattr(each, part) for each in spreads]
        for part in ("median", "min", "max")
    )
    several = len(results.seeds) > 1
    missed = isinstance(results, Comparison) and not learned(results, scheme)
    name = f"{name_text(scheme)} (task not learned)" if missed else name_text(scheme)
    return Series(name, median, look, low if several else (), high if several else ())


def _baselines(results: Scored, lengths: Sequence[int]) -> Iterator[Series]:
    """Yield the baselines that a chart has room for: of a loss, those near the schemes' scores."""
    scores = [results.score(scheme, length) for scheme in results.schemes for length in lengths]
    ends = [end for score in scores if score is not None for end in (score.min, score.median, score.max)]
    known, factor = [end for end in ends if math.isfinite(end)], 100.0 if results.percent else 1.0
    low, high = (min(known), max(known)) if known and not results.percent else (-math.inf, math.inf)
    room = high - low
    for name, line in results.task.baselines.items():
        values = [line.get(length, math.nan) for length in lengths]
        given = [value for value in values if not math.isnan(value)]
        if given and all(low - room <= value <= high + room for value in given):
            yield Series(name_text(name), [factor * value for value in values], reference=True)
