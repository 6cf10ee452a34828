"""What a comparison measured, as the page takes it: arrays of scores, sentences, and tables of the report."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int32

from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import ALL, Spread
from whatwhere.comparison.statistics import PairedDifferences, paired_differences
from whatwhere.escape import visible
from whatwhere.records import Missing
from whatwhere.report import comparison as report
from whatwhere.report import comparison_conclusions as conclusions
from whatwhere.report import comparison_sentences as sentences
from whatwhere.report import trained_table
from whatwhere.report.figures import looks
from whatwhere.report.section import Section, Table
from whatwhere.report.text import capital

Spreads = Float[np.ndarray, "_ _ 3"]
"""Median, least and greatest by scheme and length or shift; NaN where a scheme has no row."""


@dataclass(frozen=True)
class TaskView:
    """The task of a comparison.

    Args:
        name: of the task.
        unit: what lengths count.
        trained: lengths of training.
        trained_text: the same as text.
        measure: "accuracy", or a loss.
        scored: the measure with its unit and its better side.
        percent: whether scores are shares, to be shown in percent.
        groups: "all", then the groups of targets that are scored by themselves.
        shift_length: length of the shift test.
    """

    name: str
    unit: str
    trained: Sequence[int]
    trained_text: str
    measure: str
    scored: str
    percent: bool
    groups: Sequence[str]
    shift_length: int


@dataclass(frozen=True, eq=False)
class Baseline:
    """Scores of a predictor that ignores positions.

    Args:
        name: of the predictor.
        description: what it predicts, or "".
        in_chart: whether a chart has room for it.
        values: its scores by length.
    """

    name: str
    description: str
    in_chart: bool
    values: Float[np.ndarray, " lengths"]


@dataclass(frozen=True)
class Cost:
    """What a scheme costs.

    Args:
        parameters: of the whole model.
        positions: parameters of the scheme.
        milliseconds: of a training step.
    """

    parameters: int
    positions: int
    milliseconds: float


@dataclass(frozen=True, eq=False)
class NumberLineView:
    """The ten digits along the first principal axis of what training added to their embeddings.

    Args:
        scheme: of the run.
        along: coordinates of the digits.
        r: correlation of digit and coordinate, without its sign.
    """

    scheme: str
    along: Float[np.ndarray, " digits"]
    r: float


@dataclass(frozen=True, eq=False)
class FingerprintView:
    """What a trained scheme assigns to positions.

    Args:
        scheme: its name.
        rows, columns: what one row and one column of the values is.
        description: what the values are, a sentence.
        values: the numbers.
    """

    scheme: str
    rows: str
    columns: str
    description: str
    values: Float[np.ndarray, "rows columns"]


@dataclass(frozen=True, eq=False)
class CurvesView:
    """Curves of a trained scheme by distance.

    Args:
        scheme: its name.
        label: what the values are.
        names: of the curves.
        distances: in tokens.
        values: one row for each curve.
    """

    scheme: str
    label: str
    names: Sequence[str]
    distances: Float[np.ndarray, " distances"]
    values: Float[np.ndarray, "curves distances"]


@dataclass(frozen=True)
class Sentences:
    """One sentence or two for each part of the view.

    Args:
        answer: which scheme has the best median, and which differences the seeds show.
        scope: what was not tested.
        differences: how differences were tested, or "".
        question: what was compared.
        scores, groups, shift, table, doors, distance: what the figures and tables show.
        record: what the runs started from, how long they took, and where.
        repeat: how to repeat them.
    """

    answer: str
    scope: str
    differences: str
    question: str
    scores: str
    groups: str
    shift: str
    table: str
    doors: str
    distance: str
    record: str
    repeat: str


@dataclass(frozen=True)
class Reproduction:
    """What is needed to repeat the comparison.

    Args:
        command: None where no command line can express it.
        settings: settings, machine and versions.
        runs: one row for each run.
    """

    command: str | None
    settings: Table
    runs: Table


@dataclass(frozen=True, eq=False)
class Measurements:
    """All that the view of a comparison shows.

    Args:
        task: of the comparison.
        schemes: names, made visible.
        looks: of the schemes in figures.
        seeds: of the runs.
        lengths: that were tested; the first `trained` of them were trained.
        trained: how many of the lengths were trained.
        in_length: median, least and greatest for each scheme.
        scores: by group of targets: median, least and greatest, by scheme and length.
        each: the score of every run, by scheme, seed and length.
        baselines: scores of predictors that ignore positions.
        layouts: the scores by layout, in groups, where layers differ or have windows.
        shifts: by how far every position is shifted.
        shift: scores where every position is shifted, by scheme and shift.
        differences: between the schemes in pairs, at the longest length; None where there are none.
        costs: one for each scheme.
        token_table: its numbers at shares of the steps.
        number_lines: the ten digits, by scheme.
        fingerprints: of the schemes that have one.
        curves: over distance, of the schemes that have some.
        sentences: what the figures show.
        reproduction: what it takes to repeat it.
    """

    task: TaskView
    schemes: Sequence[str]
    looks: Sequence[int]
    seeds: Sequence[int]
    lengths: Int32[np.ndarray, " lengths"]
    trained: int
    in_length: Float[np.ndarray, "schemes 3"]
    scores: Mapping[str, Spreads]
    each: Float[np.ndarray, "schemes seeds lengths"]
    baselines: Sequence[Baseline]
    layouts: Sequence[Section]
    shifts: Int32[np.ndarray, " shifts"]
    shift: Spreads
    differences: Table | None
    costs: Sequence[Cost]
    token_table: Table | None
    number_lines: Sequence[NumberLineView]
    fingerprints: Sequence[FingerprintView]
    curves: Sequence[CurvesView]
    sentences: Sentences
    reproduction: Reproduction


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


def _shift(results: Comparison) -> Spreads:
    rows = [[results.summary[scheme].shift.get(shift) for shift in results.shifts] for scheme in results.schemes]
    return _spreads([[None if each is None else each.score for each in row] for row in rows])


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
