"""The experiments of the evidence, and the one loop that runs, keeps and resumes them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from whatwhere.claims.registry import measure_claims
from whatwhere.comparison.environment import machine, versions
from whatwhere.comparison.folder import write_json
from whatwhere.comparison.read import read_json
from whatwhere.comparison.results import ComparisonRecord
from whatwhere.errors import ResultsError, SettingError
from whatwhere.evidence.base_bound import base_bound
from whatwhere.evidence.bench import Bench, Experiment, Scope
from whatwhere.evidence.context_extension import context_extension
from whatwhere.evidence.length import length, randomized
from whatwhere.evidence.record import FORMAT, VERSION, Evidence, Result, Statement
from whatwhere.evidence.robustness import robustness
from whatwhere.evidence.silent_fault_costs import silent_fault_costs
from whatwhere.evidence.table_contents import table_contents
from whatwhere.evidence.text import text
from whatwhere.evidence.under_trained import under_trained
from whatwhere.records import from_json


def claims(bench: Bench) -> list[Result]:
    """Measure the exact claims of the five tutorials."""
    bench.claims.extend(measure_claims())
    statement = Statement(
        "E0.1",
        "Every claim that no training decides has the verdict that the errata give it",
        "this project",
        "whether the measurement confirms the verdict, for each claim",
        "1",
        lambda confirmed: confirmed == 1,
        "count",
    )
    return [bench.judge(statement, [float(finding.confirmed) for finding in bench.claims])]


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
    Experiment("E7", "Flip-flop", "Do content-dependent positions keep a state?", None, (), "25 minutes for one sign"),
    Experiment("E9", "Addition", "Do digit positions add longer numbers?", None, (), "needs a GPU: few seeds succeed"),
    Experiment("E15", "Larger models", "Does any order hold at 100 million parameters?", None, (), "needs a GPU"),
)
"""In the order of the table; those with a reason in `deferred` are not measured."""


def run_evidence(
    out: str | Path,
    scope: Scope,
    only: Sequence[str] = (),
    *,
    workers: int | None = None,
    progress: bool = True,
    on_experiment: Callable[[Experiment, Evidence | None], None] = lambda experiment, evidence: None,
) -> list[Evidence]:
    """Run experiments, each kept as soon as it is finished; call it again to resume.

    Args:
        out: the folder; one JSON file for each experiment, and the results of its comparisons.
        scope: quick or full.
        only: ids of experiments; none is all of the scope.
        workers: processes; None is one for each core.
        progress: show the progress of trainings on standard error.
        on_experiment: called with each experiment before it runs, and with its evidence after it.

    Returns:
        The evidence, in the order of EXPERIMENTS.

    Raises:
        SettingError: If an id is unknown, or its experiment is not measured.
        ResultsError: If the folder cannot be written or holds something else, or a run failed.
    """
    folder = Path(out)
    chosen = select(scope, only)
    finished = []
    for experiment in chosen:
        on_experiment(experiment, None)
        evidence = _kept(folder, experiment, scope) or _run(folder, experiment, scope, workers, progress)
        on_experiment(experiment, evidence)
        finished.append(evidence)
    return finished


def select(scope: Scope, only: Sequence[str] = ()) -> list[Experiment]:
    """Return the experiments of a scope, or those that are named.

    Args:
        scope: quick or full.
        only: ids; none is all of the scope.

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
    """An experiment in the list of all.

    Args:
        id, title, question: of the experiment.
        scope: in which it runs, or why it is not measured.
    """

    id: str
    title: str
    question: str
    scope: str


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

    Args:
        folder: that `whatwhere evidence` wrote.

    Returns:
        In the order of EXPERIMENTS; experiments without a file are left out.

    Raises:
        ResultsError: If a file is damaged, or of another format or version.
    """
    files = [Path(folder) / f"{each.id}.json" for each in EXPERIMENTS]
    return [_read(file) for file in files if file.is_file()]


def _kept(folder: Path, experiment: Experiment, scope: Scope) -> Evidence | None:
    path = folder / f"{experiment.id}.json"
    if not path.is_file():
        return None
    evidence = _read(path)
    if evidence.scope != scope and scope in experiment.scopes and len(experiment.scopes) > 1:
        raise ResultsError(
            f"{path} is of the {evidence.scope} scope, but {scope} was requested.\n"
            "Choose another folder with --out, or request that scope."
        )
    return evidence if evidence.versions == versions() else None


def _run(folder: Path, experiment: Experiment, scope: Scope, workers: int | None, progress: bool) -> Evidence:
    assert experiment.measure is not None  # `select` refuses others
    began = perf_counter()
    command = f"whatwhere evidence --{scope} --only {experiment.id}"
    try:
        (folder / experiment.id).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ResultsError(f"{folder} cannot be written: {problem.strerror}.\nChoose another with --out.") from None
    bench = Bench(folder / experiment.id, scope, command, workers, progress)
    results = experiment.measure(bench)
    evidence = Evidence(
        format=FORMAT,
        version=VERSION,
        id=experiment.id,
        title=experiment.title,
        scope=scope,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=perf_counter() - began,
        command=command,
        versions=versions(),
        machine=machine(),
        results=tuple(results),
        comparisons={name: _light(comparison.record) for name, comparison in bench.comparisons.items()},
        claims=tuple(bench.claims),
        faults=tuple(bench.faults),
    )
    write_json(folder / f"{experiment.id}.json", evidence)
    return evidence


def _light(record: ComparisonRecord) -> ComparisonRecord:
    """Return the raw runs without the pictures of their schemes, and with their last loss alone."""
    runs = tuple(replace(run, losses=run.losses[-1:]) for run in record.runs)
    return replace(record, runs=runs, schemes={})


def _read(path: Path) -> Evidence:
    content = read_json(path)
    if content.get("format") != FORMAT or content.get("version") != VERSION:
        raise ResultsError(
            f"{path} is no evidence of this version ({FORMAT}, version {VERSION}).\n"
            "Move it away, or choose another folder with --out."
        )
    return from_json(Evidence, content, str(path))
