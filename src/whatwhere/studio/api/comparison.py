"""Compare: what a comparison measured, as arrays of scores, sentences and tables; or two checkpoints, side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from jaxtyping import Float, Int32

from whatwhere.analysis.checkpoint_difference import difference as compute_difference
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import ALL, Spread
from whatwhere.comparison.statistics import paired_differences
from whatwhere.errors import SettingError
from whatwhere.escape import visible
from whatwhere.records import Missing
from whatwhere.report import comparison as report
from whatwhere.report import comparison_conclusions as conclusions
from whatwhere.report import comparison_sentences as sentences
from whatwhere.report import difference as texts
from whatwhere.report.comparison import NumberLine, number_lines, trained_sentence, trained_table
from whatwhere.report.comparison_sentences import name_text
from whatwhere.report.figures import looks
from whatwhere.report.section import Section, Table
from whatwhere.report.text import capital
from whatwhere.studio.api.settings import ExportedView, Findings, Which, in_steps, query
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Session

Spreads = Float[np.ndarray, "_ _ 3"]
"""Median, least and greatest by scheme and length or shift; NaN where a scheme has no row."""


@dataclass(frozen=True)
class ComparedTask:
    """The task of a comparison.

    Args:
        trained: lengths of training; `trained_text` is the same as text.
        measure: "accuracy", or a loss; `scored` is it with its unit and its better side.
        groups: "all", then the groups of targets that are scored by themselves.
    """

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
    """Scores of a predictor that ignores positions, by length; `in_chart` is whether a chart has room for it."""

    name: str
    description: str
    in_chart: bool
    values: Float[np.ndarray, " lengths"]


@dataclass(frozen=True, eq=False)
class FingerprintView:
    """What a trained scheme assigns to positions, and what one row and one column of the values is."""

    scheme: str
    rows: str
    columns: str
    description: str
    values: Float[np.ndarray, "rows columns"]


@dataclass(frozen=True, eq=False)
class CurvesView:
    """Curves of a trained scheme by distance in tokens: what their values are, their names, one row for each."""

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
        scores, groups, shift, table, doors: what the figures and tables show.
        record: what the runs started from, how long they took, and where.
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
    record: str
    repeat: str


@dataclass(frozen=True, eq=False)
class Measurements:
    """All that the view of a comparison shows.

    Args:
        lengths: that were tested; the first `trained` of them were trained.
        summary: the scores in and beyond the trained length, and what each scheme costs.
        by_group: the scores of each group of targets by itself.
        layouts: the scores by layout, in groups, where layers differ or have windows.
        shifts: by how far every position is shifted; `shift` are the scores.
        differences: between the schemes in pairs, at the longest length; None where there are none.
        command: that repeats it; None where no command line can express it.
    """

    task: ComparedTask
    schemes: Sequence[str]
    looks: Sequence[int]
    seeds: Sequence[int]
    lengths: Int32[np.ndarray, " lengths"]
    trained: int
    summary: Sequence[Table]
    by_group: Sequence[Table]
    scores: Mapping[str, Spreads]
    each: Float[np.ndarray, "schemes seeds lengths"]
    baselines: Sequence[Baseline]
    layouts: Sequence[Section]
    shifts: Int32[np.ndarray, " shifts"]
    shift: Spreads
    differences: Table | None
    token_table: Table | None
    number_lines: Sequence[NumberLine]
    fingerprints: Sequence[FingerprintView]
    curves: Sequence[CurvesView]
    sentences: Sentences
    command: str | None
    settings: Table
    runs: Table


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


@query
def results(session: Session) -> Measurements:
    """Return what a comparison measured: scores, shift test, verdicts, and what is needed to repeat it."""
    comparison = session.results
    return session.once("measurements", lambda: _measurements(comparison))


def exported(session: Session) -> ExportedView:
    """Return what an exported page needs of this view: the report of a comparison."""
    return ExportedView([("compare.results", {})], sections=report.sections(session.results))


@query
def difference(
    session: Session, progress: Report, *, table: Which = "input", k: Annotated[int, 1, 100] = 10
) -> Findings:
    """Return the difference between the two open checkpoints, A and B. It is a job, for large tables take a minute."""
    other = session.other
    if other is None:
        raise SettingError("one file is open, but two are compared.\nOpen both: whatwhere studio A B.")
    paths, step = (session.checkpoint.path, other.path), in_steps(progress, 6)
    pickles = "pickle" in (session.checkpoint.format, other.format)  # the command allowed it when it opened them

    def compared() -> Findings:
        found = compute_difference(*paths, table=table, k=k, rows=20, allow_pickle=pickles, progress=step)
        return Findings(capital(texts.headline(found)), texts.sections(found))

    return session.once(("difference", table, k), compared, most=8)


def _measurements(results: Comparison) -> Measurements:
    schemes, lengths = results.schemes, [*results.trained, *results.beyond]
    groups = {ALL: ALL} | {group: name_text(group) for group in results.task.groups}
    summaries = [results.summary[scheme] for scheme in schemes]
    found = paired_differences(results, conclusions.last_length(results))
    shifted = [[summary.shift.get(shift) for shift in results.shifts] for summary in summaries]
    recorded = any(run.token_table for run in results.runs)
    layouts = list(report.by_layout(results))
    near = report.baselines_near(results, lengths)
    by_seed = [[results.by_seed(s, n) for n in lengths] for s in schemes]
    return Measurements(
        task=ComparedTask(
            unit=sentences.unit_of(results),
            trained=results.task.trained,
            trained_text=sentences.lengths_text(results.task.trained),
            measure=name_text(results.task.measure),
            scored=sentences.measure_text(results),
            percent=results.percent,
            groups=list(groups.values()),
            shift_length=results.task.shift_length,
        ),
        schemes=[name_text(scheme) for scheme in schemes],
        looks=[*looks(schemes).values()],
        seeds=results.seeds,
        lengths=np.array(lengths, np.int32),
        trained=len(results.trained),
        summary=[report.summary(results), report.costs(results)],
        by_group=report.by_group(results),
        scores={
            text: _spreads([[results.score(s, n, group) for n in lengths] for s in schemes])
            for group, text in groups.items()
        },
        each=np.array(
            [[[_number(scores.get(seed)) for scores in row] for seed in results.seeds] for row in by_seed], np.float64
        ),
        baselines=[
            Baseline(
                name=name_text(name),
                description=report.BASELINES.get(name, ""),
                in_chart=name in near,
                values=np.array([scores.get(length, math.nan) for length in lengths]),
            )
            for name, scores in results.task.baselines.items()
            if any(length in scores for length in lengths)
        ],
        layouts=[Section("layouts", "Layouts by layer", layouts)] if layouts else [],
        shifts=np.array(results.shifts, np.int32),
        shift=_spreads([[None if each is None else each.score for each in row] for row in shifted]),
        differences=None if isinstance(found, Missing) or not found.pairs else conclusions.table(results, found),
        token_table=trained_table(results),
        number_lines=[replace(line, scheme=name_text(line.scheme)) for line in number_lines(results)],
        fingerprints=_fingerprints(results),
        curves=[
            CurvesView(
                scheme=name_text(scheme),
                label=name_text(measured.label),
                names=[name_text(name) for name in measured.curves],
                distances=np.array(measured.distances, np.float64),
                values=_rectangle(list(measured.curves.values()), len(measured.distances)),
            )
            for scheme, measured in sentences.distance_curves(results).items()
        ],
        sentences=Sentences(
            answer=conclusions.headline(results, found),
            scope=conclusions.scope_sentence(results),
            differences=conclusions.method_sentence(results, found),
            question=sentences.question(results),
            scores=sentences.scores_sentence(results),
            groups=sentences.groups_sentence(results),
            shift=sentences.shift_sentence(results),
            table=trained_sentence(results) if recorded else sentences.change_sentence(results),
            doors=sentences.doors_sentence(results),
            record=f"{sentences.start_sentence(results)} {sentences.record_sentence(results)}".lstrip(),
            repeat=sentences.repeat_sentence(results),
        ),
        command=None if results.record.command is None else visible(results.record.command),
        settings=report.settings(results),
        runs=report.runs(results),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _spreads(rows: Sequence[Sequence[Spread | None]]) -> Spreads:
    absent = (math.nan,) * 3
    ends = [[absent if each is None else (each.median, each.min, each.max) for each in row] for row in rows]
    return np.array(ends, np.float64).reshape(len(rows), -1, 3)


def _fingerprints(results: Comparison) -> list[FingerprintView]:
    views = []
    for scheme in results.schemes:
        view = results.record.schemes.get(scheme)
        if view is None or view.fingerprint is None or not view.fingerprint.values:
            continue
        label = view.fingerprint.label
        columns, rows, text = _AXES.get(label, ("column", "row", name_text(label)))
        values = _rectangle(view.fingerprint.values).astype(np.float32)
        views.append(FingerprintView(name_text(scheme), rows, columns, f"{capital(text)}.", values))
    return views


def _rectangle(rows: Sequence[Sequence[float | None]], width: int | None = None) -> Float[np.ndarray, "rows columns"]:
    """Return rows as an array, cut or filled up with NaN to one width; None becomes NaN."""
    width = max(map(len, rows)) if width is None else width
    values = np.full((len(rows), width), np.nan)
    for row, numbers in zip(values, rows, strict=True):
        row[: len(numbers)] = np.array(numbers[:width], np.float64)
    return values
