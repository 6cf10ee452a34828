"""Measurements of a comparison, put into the arrays, sentences and tables that its view shows."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import ALL, Spread
from whatwhere.comparison.statistics import PairedDifferences, paired_differences
from whatwhere.escape import visible
from whatwhere.records import Missing
from whatwhere.report import comparison as report
from whatwhere.report import comparison_conclusions as conclusions
from whatwhere.report import comparison_sentences as sentences
from whatwhere.report import trained_table
from whatwhere.report.scheme_looks import looks
from whatwhere.report.section import Table
from whatwhere.report.text import capital
from whatwhere.studio.api.measurement_views import (
    Baseline,
    Cost,
    CurvesView,
    FingerprintView,
    Measurements,
    NumberLineView,
    Reproduction,
    Sentences,
    ShiftTest,
    Spreads,
    TaskView,
)

_AXES = {
    "rows by dimension": ("feature", "position", "a vector for each position, added to the token's"),
    "cos of the angle of each pair": (
        "pair of features",
        "position",
        "an angle for each pair of features, shown as its cosine",
    ),
    "bias by distance, one column a head": (
        "head",
        "distance",
        "a number for each distance and head, added to the attention score",
    ),
}
"""By the label of a fingerprint: names of its columns and rows, and what its values are."""


def measurements(results: Comparison) -> Measurements:
    """Return all that the view of a comparison shows.

    Args:
        results: of a comparison.

    Raises:
        ResultsError: If a file of the folder is damaged.
    """
    schemes, lengths = results.schemes, [*results.trained, *results.beyond]
    seeds = sorted({run.seed for run in results.runs})
    groups = {ALL: ALL} | {group: sentences.name_text(group) for group in results.task.groups}
    differences = paired_differences(results, conclusions.last_length(results))
    return Measurements(
        task=_task(results, list(groups.values())),
        schemes=[sentences.name_text(scheme) for scheme in schemes],
        looks=[*looks(schemes).values()],
        seeds=seeds,
        lengths=np.array(lengths, np.int32),
        trained=len(results.trained),
        in_length=_spreads([[results.score(scheme, None)] for scheme in schemes])[:, 0],
        scores={
            text: _spreads([[results.score(s, n, group) for n in lengths] for s in schemes])
            for group, text in groups.items()
        },
        each=_each(results, lengths, seeds),
        baselines=_baselines(results, lengths),
        layouts=report.by_layout(results),
        shifts=np.array(results.shifts, np.int32),
        shift=_shift(results),
        differences=_differences(results, differences),
        costs=[_cost(results, scheme) for scheme in schemes],
        token_table=trained_table.trained_table(results),
        number_lines=[
            NumberLineView(sentences.name_text(n.scheme), n.coordinates, n.r)
            for n in trained_table.number_lines(results)
        ],
        fingerprints=_fingerprints(results),
        curves=_curves(results),
        sentences=_sentences(results, differences),
        reproduction=_reproduction(results),
    )


def _task(results: Comparison, groups: Sequence[str]) -> TaskView:
    task = results.task
    return TaskView(
        name=sentences.name_text(task.name),
        unit=sentences.unit_of(results),
        trained=task.trained,
        trained_text=sentences.lengths_text(task.trained),
        measure=sentences.name_text(task.measure),
        scored=sentences.measure_text(results),
        percent=results.percent,
        groups=groups,
        shift_length=task.shift_length,
    )


def _sentences(results: Comparison, differences: PairedDifferences | Missing) -> Sentences:
    recorded = any(run.token_table for run in results.runs)
    return Sentences(
        answer=conclusions.headline(results, differences),
        scope=conclusions.scope_sentence(results),
        differences=conclusions.method_sentence(results, differences),
        question=sentences.question(results),
        scores=sentences.scores_sentence(results),
        groups=sentences.groups_sentence(results),
        shift=sentences.shift_sentence(results),
        table=trained_table.sentence(results) if recorded else sentences.change_sentence(results),
        doors=sentences.doors_sentence(results),
        distance=sentences.distance_sentence(results),
        record=f"{sentences.start_sentence(results)} {sentences.record_sentence(results)}".lstrip(),
        repeat=sentences.repeat_sentence(results),
    )


def _differences(results: Comparison, differences: PairedDifferences | Missing) -> Table | None:
    if isinstance(differences, Missing) or not differences.pairs:
        return None
    return conclusions.table(results, differences)


def _reproduction(results: Comparison) -> Reproduction:
    return Reproduction(
        command=None if results.record.command is None else visible(results.record.command),
        settings=report.settings(results),
        runs=report.runs(results),
    )


def _spreads(rows: Sequence[Sequence[Spread | None]]) -> Spreads:
    """Return median, least and greatest; NaN where a scheme has no row."""
    absent = (math.nan,) * 3
    ends = [[absent if each is None else (each.median, each.min, each.max) for each in row] for row in rows]
    return np.array(ends, np.float64).reshape(len(rows), -1, 3)


def _shift(results: Comparison) -> ShiftTest:
    rows = [[results.summary[scheme].shift.get(shift) for shift in results.shifts] for scheme in results.schemes]
    return ShiftTest(
        score=_spreads([[None if each is None else each.score for each in row] for row in rows]),
        largest_logit_change=_spreads(
            [[None if each is None else each.largest_logit_change for each in row] for row in rows]
        ),
    )


def _each(results: Comparison, lengths: Sequence[int], seeds: Sequence[int]) -> Float[np.ndarray, "schemes seeds n"]:
    scores = np.full((len(results.schemes), len(seeds), len(lengths)), np.nan)
    for run in results.runs:
        if run.scheme in results.schemes:
            row = scores[results.schemes.index(run.scheme), seeds.index(run.seed)]
            values = (run.scores.get(length, {}).get(ALL) for length in lengths)
            row[:] = [math.nan if value is None else value for value in values]
    return scores


def _baselines(results: Comparison, lengths: Sequence[int]) -> list[Baseline]:
    near = report.baselines_near(results, lengths)
    return [
        Baseline(
            name=sentences.name_text(name),
            description=report.BASELINES.get(name, ""),
            in_chart=name in near,
            values=np.array([scores.get(length, math.nan) for length in lengths]),
        )
        for name, scores in results.task.baselines.items()
        if any(length in scores for length in lengths)
    ]


def _cost(results: Comparison, scheme: str) -> Cost:
    runs = results.summary[scheme]
    return Cost(runs.parameters.total, runs.parameters.positions, 1000 * runs.seconds_per_step.median)


def _fingerprints(results: Comparison) -> list[FingerprintView]:
    views = []
    for scheme in results.schemes:
        view = results.record.schemes.get(scheme)
        if view is None or view.fingerprint is None or not view.fingerprint.values:
            continue
        label = view.fingerprint.label
        columns, rows, text = _AXES.get(label, ("column", "row", sentences.name_text(label)))
        values = _rectangle(view.fingerprint.values).astype(np.float32)
        views.append(FingerprintView(sentences.name_text(scheme), rows, columns, f"{capital(text)}.", values))
    return views


def _curves(results: Comparison) -> list[CurvesView]:
    return [
        CurvesView(
            scheme=sentences.name_text(scheme),
            label=sentences.name_text(measured.label),
            names=[sentences.name_text(name) for name in measured.curves],
            distances=np.array(measured.distances, np.float64),
            values=_rectangle(list(measured.curves.values()), len(measured.distances)),
        )
        for scheme, measured in sentences.distance_curves(results).items()
    ]


def _rectangle(rows: Sequence[Sequence[float | None]], width: int | None = None) -> Float[np.ndarray, "rows columns"]:
    """Return rows as an array, cut or filled up with NaN to one width; None becomes NaN."""
    width = max(map(len, rows)) if width is None else width
    values = np.full((len(rows), width), np.nan)
    for row, numbers in zip(values, rows, strict=True):
        row[: len(numbers)] = np.array(numbers[:width], np.float64)
    return values
