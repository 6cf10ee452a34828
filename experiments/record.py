"""The records of the evidence: what was stated, what was measured, the verdict, and the command that repeats it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Literal

import numpy as np

from experiments.tutorials.all_claims import Finding
from experiments.tutorials.claim import meets
from experiments.tutorials.trained import THRESHOLD, Judgment
from whatwhere.comparison.results import ComparisonRecord, Machine, Spread, spread
from whatwhere.comparison.statistics import LEVEL, holm, seeds_needed, sign_flip_test
from whatwhere.records import Schema

Verdict = Literal["holds", "fails", "depends", "not reproduced", "not measured"]
"""Of a statement: `fails` where a tutorial says it, `not reproduced` where a paper measured it at another scale."""

Unit = Literal["share", "nats", "number", "count"]

SCHEMA = Schema("whatwhere evidence", 2, "Move it away, or choose another folder with --out.", unchecked={1})


@dataclass(frozen=True)
class Stated:
    """What a statement and its result have.

    Args:
        id: stable, such as "E1.2".
        says: the statement, in a sentence.
        source: who stated it: a paper, a tutorial, or "this project".
        quantity: what is measured in each run.
        line: the condition, such as "above 0.15".
    """

    id: str
    says: str
    source: str
    quantity: str
    line: str


@dataclass(frozen=True)
class Statement(Stated):
    """A statement, which holds in a run whose number meets the condition; `unit` is how it is shown."""

    unit: Unit = "share"

    def holds(self, value: float) -> bool:
        """Return whether a number meets the condition."""
        return meets(self.line, value)


@dataclass(frozen=True)
class Result(Stated):
    """A statement beside what was measured.

    Args:
        unit: of the statement.
        measured: median and range over the runs; None where nothing was measured.
        holding: in how many runs the condition is met.
        runs: how many runs were judged; pairs of runs of one seed, where two schemes are compared.
        p: of a difference between two schemes, of the sign-flip test corrected by Holm's method over the experiment;
            else None.
        verdict: of a condition `depends` where it is met in some of the runs; a difference `holds` where p is at most
            0.05 and the mean has the stated sign.
        reason: why nothing was measured, or "".
        command: which repeats the measurement.
    """

    unit: Unit
    measured: Spread | None
    holding: int
    runs: int
    p: float | None
    verdict: Verdict
    reason: str
    command: str


@dataclass(frozen=True)
class FaultRow:
    """A silent fault, what it costs, and what detects it.

    Args:
        fault: in a few words.
        scheme: that has it, or of the models that are used with it.
        kind: in the scheme, or in the positions that a right scheme gets.
        right: accuracy without the fault, by length, over the models; empty where nothing was trained.
        faulty: likewise, with the fault.
        logit_change: the largest difference of a logit, over the models; None where nothing was trained.
        laws: which fail for a faulty scheme.
        decoding: whether the law of decoding passes, so that a test of cached decoding finds nothing; None for
            positions.
    """

    fault: str
    scheme: str
    kind: Literal["scheme", "positions"]
    right: Mapping[str, Spread]
    faulty: Mapping[str, Spread]
    logit_change: Spread | None
    laws: tuple[str, ...]
    decoding: bool | None


@dataclass(frozen=True)
class Evidence:
    """What one experiment measured: the content of its file."""

    format: str
    version: int
    id: str
    title: str
    scope: str
    created: str  # in UTC
    seconds: float  # of the command that finished it; runs of an earlier one are not counted (see `took`)
    command: str  # which repeats it
    versions: Mapping[str, str]  # of the packages that numbers depend on
    machine: Machine
    results: tuple[Result, ...]  # one for each statement
    comparisons: Mapping[str, ComparisonRecord]  # the raw runs, by a name within the experiment
    claims: tuple[Finding, ...] = ()  # that no training decides; of E0
    verdicts: tuple[Judgment, ...] = ()  # on the claims of the tutorials that its runs decide
    faults: tuple[FaultRow, ...] = ()  # of E13

    @property
    def took(self) -> float:
        """Return the seconds of the whole experiment, at least: its last command may have found some runs finished."""
        runs = (run.seconds for record in self.comparisons.values() for run in record.runs)
        return max(self.seconds, sum(runs) / self.machine.cores)


def gain(id: str, says: str, source: str, quantity: str, unit: Unit = "share") -> Statement:
    """Return a statement that one scheme is better than another: the difference of their scores is above 0."""
    return Statement(id, says, source, quantity, "above 0", unit)


def learning(id: str, says: str, source: str, *, expected: bool = True) -> Statement:
    """Return a statement that runs learn their task in length, or do not."""
    line = f"{'at least' if expected else 'below'} {100 * THRESHOLD:.0f} %"
    return Statement(id, says, source, "accuracy in length", line)


def judge(statement: Statement, values: Sequence[float | None], command: str, lacking: str = "") -> Result:
    """Judge a statement by the numbers of the runs, None where one has none: in how many of them its condition is met.

    Examples:
        >>> statement = gain("E2.1", "...", "Ruoss et al., 2023", "difference")
        >>> judge(statement, [0.1, 0.2, -0.1], "python -m experiments run --only E2").verdict
        'depends'
    """
    known = [value for value in values if value is not None]
    holding = sum(statement.holds(value) for value in known)
    verdict: Verdict = "not measured"
    if known:
        verdict = "holds" if holding == len(known) else "depends" if holding else "fails"
    return _result(statement, known, verdict, None, "" if known else lacking or "no run has such a number", command)


def judge_differences(
    pairs: Sequence[tuple[Statement, Sequence[float | None]]], command: str, lacking: str
) -> list[Result]:
    """Judge statements on pairs of schemes, each by the differences of the runs of one seed, as one family of tests.

    Each statement holds of positive differences; a difference is None where a run of the pair has no number.

    Returns:
        One for each statement. A difference of the opposite sign, or one that the seeds do not show, is "not
        reproduced"; fewer seeds than the family needs are "not measured".
    """
    known = [[value for value in values if value is not None] for _, values in pairs]
    needed = seeds_needed(len(pairs))
    tested = [n for n, values in enumerate(known) if len(values) >= needed]
    p_values = [float(sign_flip_test(np.array([known[n]]))[0]) for n in tested]
    corrected = dict(zip(tested, holm(np.array(p_values)).tolist(), strict=True))
    results = []
    for n, (statement, _) in enumerate(pairs):
        values, p = known[n], corrected.get(n)
        if p is None:
            reason = f"{len(values)} pairs of runs; {needed} are needed" if values else lacking
            results.append(_result(statement, values, "not measured", None, reason, command))
            continue
        shown = p <= LEVEL
        holds = shown and fmean(values) > 0
        reason = (
            "" if holds else "the difference has the opposite sign" if shown else "the seeds do not separate the two"
        )
        results.append(_result(statement, values, "holds" if holds else "not reproduced", p, reason, command))
    return results


def _result(
    statement: Statement, known: Sequence[float], verdict: Verdict, p: float | None, reason: str, command: str
) -> Result:
    return Result(
        **{each.name: getattr(statement, each.name) for each in fields(Stated)},
        unit=statement.unit,
        measured=spread(known),
        holding=sum(statement.holds(value) for value in known),
        runs=len(known),
        p=p,
        verdict=verdict,
        reason=reason,
        command=command,
    )
