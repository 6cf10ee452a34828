"""What a comparison measured, as the page takes it: arrays of scores, sentences, and tables of the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int32

from whatwhere.report.section import Section, Table

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


@dataclass(frozen=True, eq=False)
class ShiftTest:
    """Scores and logits where every position is shifted.

    Args:
        score: of shifted inputs.
        largest_logit_change: the greatest |shifted logit - unshifted logit|.
    """

    score: Spreads
    largest_logit_change: Spreads


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
        shift: the shift test, by scheme and shift.
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
    shift: ShiftTest
    differences: Table | None
    costs: Sequence[Cost]
    token_table: Table | None
    number_lines: Sequence[NumberLineView]
    fingerprints: Sequence[FingerprintView]
    curves: Sequence[CurvesView]
    sentences: Sentences
    reproduction: Reproduction
