"""Where an experiment runs: its folder, how many seeds its scope has, and the comparisons that it trained."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from experiments.record import FaultRow, Result, Statement, Unit, gain, judge, judge_differences
from experiments.tutorials.all_claims import Finding
from experiments.tutorials.trained import has_learned
from whatwhere.comparison.experiment import compare
from whatwhere.comparison.model import SchemeLike
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import ALL, RunResult
from whatwhere.comparison.variants import read_name, write_name
from whatwhere.models.checkpoint import Checkpoint

Scope = Literal["quick", "full"]
"""`quick` is everything that two cores do in five minutes; `full` takes about five hours."""

Pair = tuple[Statement, Sequence[float | None]]
"""A statement that one scheme is better than another, and the differences of their scores, seed by seed."""


@dataclass
class Bench:
    """The folder and the scope of one experiment.

    Args:
        folder: of the experiment; what is finished in it is not done again.
        scope: quick or full.
        command: which repeats the experiment.
        workers: processes; None is one for each core.
        progress: show the progress of trainings on standard error.
        checkpoint: of a real model, whose rows decide some claims; None leaves these unmeasured.
        comparisons: what `compare` returned, by name.
        claims: that the experiment measured.
        faults: likewise.
        executor: where trainings take place, as `whatwhere.compare` takes it.
    """

    folder: Path
    scope: Scope
    command: str
    workers: int | None = None
    progress: bool = True
    checkpoint: Checkpoint | None = None
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    claims: list[Finding] = field(default_factory=list)
    faults: list[FaultRow] = field(default_factory=list)
    executor: Executor | None = None

    @property
    def quick(self) -> bool:
        """Whether the scope is the quick one."""
        return self.scope == "quick"

    def compare(self, name: str, schemes: Sequence[SchemeLike], seeds: int, **settings: Any) -> Comparison:
        """Train and measure schemes, or read what an earlier call finished.

        Raises:
            SettingError: If a setting does not fit.
            ResultsError: If a run failed; what is finished is kept.
        """
        out = self.folder / name
        where: dict[str, Any] = {"executor": self.executor, "workers": self.workers, "progress": self.progress}
        results = compare(schemes, seeds=seeds, out=out, **where, **settings)
        self.comparisons[name] = results
        return results

    def judge(self, statement: Statement, values: Sequence[float | None], lacking: str = "") -> Result:
        """Judge a statement by numbers, under this experiment's command; arguments as for `record.judge`."""
        return judge(statement, values, self.command, lacking)

    def judge_differences(self, pairs: Sequence[Pair], lacking: str = "no pair of runs has scores") -> list[Result]:
        """Judge differences of schemes; arguments as for `record.judge_differences`."""
        return judge_differences(pairs, self.command, lacking)


def by_run(
    results: Comparison, schemes: Sequence[str], read: Callable[[RunResult], float | None], *, learned: bool = True
) -> list[float | None]:
    """Read a number from each run of some schemes."""
    names = [canonical(scheme) for scheme in schemes]
    runs = [run for run in results.runs if run.scheme in names]
    return [read(run) if not learned or has_learned(results, run) else None for run in runs]


def paired(
    results: Comparison,
    first: str,
    second: str,
    read: Callable[[RunResult], float | None],
    *,
    learned: bool = True,
) -> list[float | None]:
    """Return by how much the first scheme is better than the second, seed by seed: such runs share tokens and data."""
    sign = 1.0 if results.task.higher_is_better else -1.0
    runs = {(run.scheme, run.seed): run for run in results.runs if not learned or has_learned(results, run)}
    names = canonical(first), canonical(second)

    def difference(seed: int) -> float | None:
        values = [read(runs[name, seed]) if (name, seed) in runs else None for name in names]
        return None if values[0] is None or values[1] is None else sign * (values[0] - values[1])

    return [difference(seed) for seed in results.record.seeds]


def better(
    results: Comparison,
    id: str,
    says: str,
    source: str,
    quantity: str,
    schemes: tuple[str, str],
    length: int,
    *,
    learned: bool = True,
) -> Pair:
    """Return the statement that the first of two schemes is better than the second at a length."""
    unit: Unit = "share" if results.task.higher_is_better else "nats"
    differences = paired(results, *schemes, score(length), learned=learned)
    return gain(id, says, source, quantity, unit), differences


def canonical(scheme: str) -> str:
    """Return the name that a scheme with settings has in results.

    Examples:
        >>> canonical("rotary@tied=true,init=2e-2")
        'rotary@init=0.02,tied'
    """
    return write_name(*read_name(scheme))


def score(length: int, group: str = ALL) -> Callable[[RunResult], float | None]:
    """Return a reader of a run's score at a length."""
    return lambda run: run.scores.get(length, {}).get(group)


def shifted(shift: int) -> Callable[[RunResult], float | None]:
    """Return a reader of a run's score when all positions are shifted."""
    return lambda run: run.shift[shift].score if shift in run.shift else None


def largest_logit_change(run: RunResult) -> float | None:
    """Return the largest change of a logit under the longest shift."""
    return run.shift[max(run.shift)].largest_logit_change if run.shift else None


Measure = Callable[[Bench], Sequence[Result]]
"""An experiment: trains and measures on a bench, and returns one result for each statement."""


@dataclass(frozen=True)
class Experiment:
    """One experiment of the evidence."""

    id: str  # stable, such as "E1"
    title: str
    question: str
    measure: Measure | None
    scopes: Sequence[Scope] = ("quick", "full")  # in which it runs
    deferred: str = ""  # why it is not measured, as where it needs a larger machine
