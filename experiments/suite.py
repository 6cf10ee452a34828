"""The experiments of the evidence, and the one loop that runs, keeps and resumes them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import final

from experiments.base_bound import base_bound
from experiments.bench import Bench, Experiment, Scope
from experiments.expressions import author, length, randomized, robustness, table_contents
from experiments.record import SCHEMA, Evidence, Result, Statement
from experiments.silent_faults import silent_fault_costs
from experiments.text import context_extension, layouts, text, under_trained
from experiments.tutorials.all_claims import CLAIMS, claim, measure_claims, verdicts
from experiments.tutorials.trained import Judgment, TrainedClaim
from whatwhere.comparison.folder import write_json
from whatwhere.comparison.read import RESULTS, Comparison, read_json
from whatwhere.comparison.results import ComparisonRecord, machine, versions
from whatwhere.errors import ResultsError, SettingError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.records import from_json

MODEL = "--model path/to/all-MiniLM-L6-v2"
"""What gives E0 the rows of a trained model."""


def claims(bench: Bench) -> list[Result]:
    """Measure the exact claims of the five tutorials and, where a checkpoint is passed, those on trained rows."""
    bench.claims.extend(measure_claims(checkpoint=bench.checkpoint))
    results, measured = [], "whether the measurement confirms the verdict, for each claim"
    for id, kind, decided, source in (
        ("E0.1", "exact", "no training decides", "this project"),
        ("E0.2", "model", "the rows of a trained model decide", "this project, on all-MiniLM-L6-v2"),
    ):
        says = f"Every claim that {decided} has the verdict that the errata give it"
        confirmed = [float(finding.confirmed) for finding in bench.claims if claim(finding.id).kind == kind]
        statement = Statement(id, says, source, measured, "1", "count")
        results.append(bench.judge(statement, confirmed, f"no model was passed: {MODEL}"))
    return results


EXPERIMENTS = (
    Experiment("E0", "Claims of the tutorials", "Which claims of five tutorials hold?", claims),
    Experiment("E1", "Length and shift", "Which schemes hold beyond the trained length, and when shifted?", length),
    Experiment("E2", "Randomized positions", "Do positions sampled in training help beyond it?", randomized, ("full",)),
    Experiment("E3", "Text, train short and test long", "Which schemes keep their loss?", text, ("full",)),
    Experiment("E4", "What the table must hold", "Must token vectors be trained, or dense?", table_contents, ("full",)),
    Experiment("E5", "Base bound and frequency maps", "How does theta bound the context length?", base_bound),
    Experiment("E8", "Context extension", "Which RoPE scaling extends a trained model?", context_extension, ("full",)),
    Experiment("E10", "Under-trained tokens", "Do diagnostics find tokens without training?", under_trained, ("full",)),
    Experiment("E13", "Silent faults", "What do mistakes cost that raise no error?", silent_fault_costs),
    Experiment("E14", "Robustness", "Does the order survive other settings?", robustness, ("full",)),
    Experiment(
        "E16", "50 epochs, as in the first tutorial", "Which numbers do as many epochs give?", author, ("full",)
    ),
    Experiment("E17", "Layouts by layer", "Do windows, and layers without positions, help?", layouts, ("full",)),
    Experiment("E7", "Flip-flop", "Do content-dependent positions keep a state?", None, (), "25 minutes for one sign"),
    Experiment("E9", "Addition", "Do digit positions add longer numbers?", None, (), "needs a GPU: few seeds succeed"),
    Experiment("E15", "Larger models", "Does any order hold at 100 million parameters?", None, (), "needs a GPU"),
)
"""In the order of the table; those with a reason in `deferred` are not measured."""

_SECONDS: Mapping[Scope, Mapping[str, int]] = {
    "quick": {"E0": 10, "E1": 206, "E5": 4, "E13": 6},
    "full": {
        "E0": 4, "E1": 809, "E2": 376, "E3": 4185, "E4": 1171, "E5": 4, "E8": 703, "E10": 229, "E13": 108,
        "E14": 2005, "E16": 965, "E17": 6734,
    },
}  # fmt: skip
"""What experiments take on two cores: `full` by the committed evidence, E1 of `quick` by runs of its schemes there."""
_PRIOR = 60.0
"""Seconds of the committed evidence that count as measured here, at its speed: a first experiment of seconds tells
little of the speed of this machine."""


def run_evidence(
    out: str | Path,
    scope: Scope,
    only: Sequence[str] = (),
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool = True,
    checkpoint: Checkpoint | None = None,
    on_experiment: Callable[[Experiment, Evidence | None], None] = lambda experiment, evidence: None,
) -> list[Evidence]:
    """Run experiments, each kept as soon as it is finished; call it again to resume.

    Returns:
        The evidence, in the order of EXPERIMENTS.

    Raises:
        SettingError: If an id is unknown, or its experiment is not measured.
        ResultsError: If the folder cannot be written or holds something else, or a run failed.
    """
    folder = Path(out)
    if (folder / RESULTS).exists():
        raise ResultsError(
            f"{folder} holds the results of a comparison, but evidence needs a folder of its own.\n"
            "Choose another with --out."
        )
    chosen = select(scope, only)
    finished = []
    for experiment in chosen:
        on_experiment(experiment, None)
        command = f"python -m experiments run --{scope} --only {experiment.id}"
        if checkpoint is not None and experiment.measure is claims:
            command += f" {MODEL}"
        bench = Bench(folder / experiment.id, scope, command, workers, progress, checkpoint, executor=executor)
        evidence = _kept(folder, experiment, bench) or _run(folder, experiment, bench)
        on_experiment(experiment, evidence)
        finished.append(evidence)
    return finished


def select(scope: Scope, only: Sequence[str] = ()) -> list[Experiment]:
    """Return the experiments of a scope, or those that are named.

    Raises:
        SettingError: If an id is unknown, or its experiment is not measured.

    Examples:
        >>> [each.id for each in select("quick")]
        ['E0', 'E1', 'E5', 'E13']
    """
    by_id = {each.id.lower(): each for each in EXPERIMENTS}
    for name in only:
        experiment = by_id.get(name.lower())
        if experiment is None:
            measured = ", ".join(each.id for each in EXPERIMENTS if each.measure is not None)
            raise SettingError(f"there is no experiment {name!r}; there are {measured}.")
        if experiment.measure is None:
            raise SettingError(f"{experiment.id} ({experiment.title}) is not measured: {experiment.deferred}.")
    wanted = {name.lower() for name in only}
    return [each for each in EXPERIMENTS if (each.id.lower() in wanted if wanted else scope in each.scopes)]


@dataclass(frozen=True)
class Listed:
    """An experiment in the list of all."""

    id: str
    title: str
    question: str
    scope: str  # in which it runs, or why it is not measured


def listing() -> list[Listed]:
    """Return all experiments, also those that are not measured.

    Examples:
        >>> listing()[0].title
        'Claims of the tutorials'
    """
    return [
        Listed(each.id, each.title, each.question, " and ".join(each.scopes) or f"not measured: {each.deferred}")
        for each in EXPERIMENTS
    ]


def read_evidence(folder: str | Path) -> list[Evidence]:
    """Read the evidence of a folder.

    Returns:
        In the order of EXPERIMENTS; experiments without a file are left out.

    Raises:
        ResultsError: If a file is damaged, or of another format or version.
    """
    files = [Path(folder) / f"{each.id}.json" for each in EXPERIMENTS]
    return [_read(file) for file in files if file.is_file()]


@final
class TimeLeft:
    """The time that the rest of some experiments takes.

    Args:
        experiments: all of them, in their order.
        scope: quick or full; an experiment that is not in it has its other one.
    """

    def __init__(self, experiments: Sequence[Experiment], scope: Scope) -> None:
        other: Scope = "quick" if scope == "full" else "full"
        expected = {each.id: _SECONDS[scope].get(each.id, _SECONDS[other].get(each.id)) for each in experiments}
        self._waiting = {id: seconds for id, seconds in expected.items() if seconds is not None}
        self._expected = self._measured = _PRIOR
        self._current, self._begin = 0, perf_counter()

    def begin(self, experiment: Experiment) -> None:
        """Note that an experiment begins now."""
        self._current, self._begin = self._waiting.pop(experiment.id, 0), perf_counter()

    def finish(self, evidence: Evidence) -> None:
        """Note that the experiment that began last is finished, here or by an earlier command."""
        self._expected += self._current
        self._measured += evidence.took if self._current else 0
        self._current = 0

    def seconds(self) -> float:
        """Return the seconds that are left."""
        factor = self._measured / self._expected
        current = max(factor * self._current - (perf_counter() - self._begin), 0.0)
        return current + factor * sum(self._waiting.values())


def _kept(folder: Path, experiment: Experiment, bench: Bench) -> Evidence | None:
    path = folder / f"{experiment.id}.json"
    if not path.is_file():
        return None
    evidence = _read(path)
    if evidence.scope != bench.scope and bench.scope in experiment.scopes and len(experiment.scopes) > 1:
        raise ResultsError(
            f"{path} is of the {evidence.scope} scope, but {bench.scope} was requested.\n"
            "Choose another folder with --out, or request that scope."
        )
    if MODEL in bench.command and MODEL not in evidence.command:
        return None
    return evidence if evidence.versions == versions() else None


def _run(folder: Path, experiment: Experiment, bench: Bench) -> Evidence:
    assert experiment.measure is not None  # `select` refuses others
    began = perf_counter()
    try:
        bench.folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ResultsError(f"{folder} cannot be written: {problem.strerror}.\nChoose another with --out.") from None
    results = experiment.measure(bench)
    evidence = Evidence(
        format=SCHEMA.format,
        version=SCHEMA.version,
        id=experiment.id,
        title=experiment.title,
        scope=bench.scope,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=perf_counter() - began,
        command=bench.command,
        versions=versions(),
        machine=machine(),
        results=tuple(results),
        comparisons={name: _light(comparison.record) for name, comparison in bench.comparisons.items()},
        claims=tuple(bench.claims),
        verdicts=tuple(decided(bench.comparisons.values())),
        faults=tuple(bench.faults),
    )
    write_json(folder / f"{experiment.id}.json", evidence, SCHEMA)
    return evidence


def decided(comparisons: Iterable[Comparison]) -> list[Judgment]:
    """Return the verdicts that comparisons give the claims of the tutorials, without those that no run decides."""
    judged: dict[str, Judgment] = {}
    for results in comparisons:
        for each in verdicts(results):
            if each.verdict != "not measured":
                judged.setdefault(each.id, each)
    return list(judged.values())


def first_verdicts(measured: Iterable[Evidence]) -> dict[str, Judgment]:
    """Return the verdict of each claim that runs decide, of the first experiment that does, by the claim's id."""
    first: dict[str, Judgment] = {}
    for evidence in measured:
        for each in evidence.verdicts:
            first.setdefault(each.id, each)
    return first


def undecided(measured: Iterable[Evidence]) -> dict[str, Judgment]:
    """Return what the runs of a claim's experiment measured, for each claim that they do not decide, by its id."""
    by_id = {each.id: each for each in measured}
    return {
        each.id: judgment
        for each in CLAIMS
        if isinstance(each, TrainedClaim) and each.verdict == "not measured" and each.experiment in by_id
        for record in by_id[each.experiment].comparisons.values()
        if (judgment := each.judge(Comparison(Path(), record))).runs
    }


def _light(record: ComparisonRecord) -> ComparisonRecord:
    """Return the raw runs without the pictures of their schemes."""
    return replace(record, schemes={})


def _read(path: Path) -> Evidence:
    return from_json(Evidence, read_json(path, SCHEMA), str(path))
