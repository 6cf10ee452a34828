"""Train schemes side by side, test them in and beyond the trained length, and return what was measured as data."""

import math
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from filelock import FileLock

from whatwhere.comparison import measure
from whatwhere.comparison.folder import TOKENS, FinishedRun, Folder, RunLog
from whatwhere.comparison.model import (
    SchemeLike,
    name_of,
    own_builds,
    warn_of_plain_tests,
    with_builds,
    with_max_length,
)
from whatwhere.comparison.own_model import BuildModel
from whatwhere.comparison.plan import make_plans, make_task, module_option, rehearse, seed_numbers, with_seeds
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import (
    ComparisonRecord,
    Request,
    RunResult,
    TaskDescription,
    cores,
    machine,
    summarize,
    versions,
)
from whatwhere.comparison.run import Job, Run
from whatwhere.comparison.runner import bytes_read, require_executor, run_all
from whatwhere.comparison.settings import Settings, make_settings
from whatwhere.comparison.statistics import seeds_sentence
from whatwhere.comparison.tasks import Task, Text, is_task
from whatwhere.comparison.train import build, one_thread, train
from whatwhere.comparison.variants import choose_settings, scheme_of, values_of
from whatwhere.errors import SettingError
from whatwhere.models.checkpoint.folder import RESULTS_SCHEMA
from whatwhere.where.catalogue import canonical_name, source_of

_MEASURED_STEPS = 4
DEMO_SCHEMES = ("none", "sinusoidal", "learned", "rotary", "alibi")


def compare(
    schemes: Iterable[SchemeLike],
    task: str | Task = "expressions",
    lengths: Sequence[int] | None = None,
    seeds: int | Sequence[int] = 3,
    out: str | Path = "whatwhere-results",
    *,
    files: Sequence[str | Path] = (),
    tokenizer: str | Path | None = None,
    recipe: str = "quick",
    vary: Mapping[str, Sequence[Any]] | None = None,
    start: str | Path | None = None,
    against: str | None = None,
    model: BuildModel | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: bool = True,
    on_run: RunLog | None = None,
    **settings: Any,
) -> Comparison:
    """Train the same Transformer under each scheme and seed; score it in and beyond the trained length.

    Equal seeds, settings and versions give equal numbers on the same machine. What is finished is kept when a call is
    interrupted; call it again to resume. Several processes that make the same call share its runs, on one machine or
    on several that share the folder, and each returns all results.

    Args:
        schemes: names of the catalogue; mixtures, by door "rotary+alibi" or by layer "rotary/none"; or your own
            `(name, build)` with `build(dim, num_heads, max_length)` -> a Where, or a list of one for each layer. A name
            can have options of its entry and settings of its own: "rotary@theta=500000", "rotary@randomized,dim=16".
            Yours have a place in mixtures too: "mine*2/none" beside ("mine", build), or ("mine/none", {"mine": build}).
        task: `expressions`, `recall`, `text`, or a Task of your own.
        lengths: lengths to test, in the task's unit; None is the task's own choice.
        seeds: how many, or which. It takes six to show that two schemes differ, nine for five schemes in pairs.
        out: the results folder. Where it holds finished runs of this comparison, only the missing ones are done.
        files: for `text`, the files to read, of any size; without any it is the Python documentation. A copy of the
            text is kept in the results folder, from which runs read windows.
        tokenizer: for `text`, a tokenizer.json or the folder of a model with one: tokens of the text are predicted,
            and lengths count them; None predicts bytes. A text is tokenized once, into ~/.cache/whatwhere, or
            $XDG_CACHE_HOME.
        recipe: `quick`, or `author` for 50 epochs as in the first tutorial (expressions; two minutes a run).
        vary: values of settings that are crossed with the schemes and with each other, as in {"dim": [16, 64, 256]};
            what defines the test (task, lengths, trained, test_sequences) cannot vary. Of several schemes the setting
            of the least held-out loss is compared, each of its own; of a single scheme, its settings are.
        start: a results folder whose trained models the runs start from, each seed from the same seed's, as in
            "results:rotary" for those of one scheme. Tensors of equal names and shapes are copied; the others begin
            anew and are named in the record. steps=0 measures without further training.
        against: a scheme of these with which all others are compared, instead of all pairs: chosen before any run, it
            needs fewer seeds.
        model: a function or class of your own, `build(vocab_size, wheres, settings)` -> a module that is called as
            `model(ids, positions)` and returns the logits of every token. It binds `wheres`, one for each layer, to the
            positions. None is whatwhere's small Transformer.
        executor: any concurrent.futures.Executor, such as a ThreadPoolExecutor, or Dask's `client.get_executor()`; None
            makes `workers` processes. The results are the same on all of them, where processors are of one kind.
        workers: processes, of one thread each; None is one for each core. 1 runs in this process, as do schemes that
            cannot be sent to another one.
        progress: show the progress on standard error.
        on_run: called in this process with each run that was trained, once it is kept: for TensorBoard or Weights &
            Biases `comparison.open_log("tensorboard:logs")`.
        settings: further fields of `comparison.settings.Settings`: steps, batch, dim, layers, heads, trained, ....

    Returns:
        What was measured, as `read_results(out)` reads it again.

    Raises:
        SettingError: If a scheme, task, seed or setting does not exist or does not fit the others, or a model of your
            own sees later tokens, ignores positions, has parameters that no gradient reaches, or the like.
        ShapeError: If sizes do not fit.
        PositionError: If a scheme has too few positions for the trained lengths.
        TextError: If a file is missing, empty or too short.
        ResultsError: If the folder holds something else or cannot be written, or a run failed.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as out:
        ...     results = compare(["none", "alibi"], lengths=[8], seeds=1, out=out, steps=2, workers=1, progress=False)
        >>> results.schemes, results.summary["none"].parameters.positions
        (['none', 'alibi'], 0)
    """
    began = perf_counter()
    require_executor(executor, workers)
    numbers = seed_numbers(seeds)
    subject, chosen, plans, paths = planned(
        schemes, task, lengths, recipe, vary, files, tokenizer, model, settings, progress
    )
    crossed = values_of(vary)
    named = {scheme_of(name_of(plan.scheme), plan.varied, vary): plan.name for plan in plans}
    requested = list(named)
    # The settings of a single scheme are compared, and those that are not chosen by other sequences.
    if len(requested) in (1, len(plans)) or not measure.validation_sets(subject, chosen):
        requested = [plan.name for plan in plans]
    against = None if against is None else _chosen_before(against, requested, named if len(named) == len(plans) else {})
    for one in {plan.settings: plan for plan in plans}:
        warn_of_plain_tests(one)
    owns = [rehearse(plan) for plan in plans]
    jobs = with_seeds(plans, numbers, start)
    description = describe(subject, chosen)
    folder = Folder(out, subject, chosen, plans)
    finished = {(job.name, job.seed): folder.finished(job.name, job.seed, job.start) for job in jobs}
    if against is not None and any(finished.values()):
        folder.require_chosen_before(against)
    missing = _with_text_in_file([job for job in jobs if finished[job.name, job.seed] is None], folder, progress)
    if progress and missing and (sentence := seeds_sentence(len(requested), len(numbers), against)):
        sys.stderr.write(f"whatwhere: {sentence}\n")
        if len(plans) > len(requested):
            sys.stderr.write("whatwhere: each scheme is compared in its setting of the least held-out loss.\n")

    def keep(run: Run) -> None:
        kept = finished[run.result.scheme, run.result.seed] = folder.keep(run)
        if on_run is not None:
            on_run(kept.result)

    def read(job: Job) -> RunResult | None:
        kept = finished[job.name, job.seed] = folder.finished(job.name, job.seed, job.start)
        return None if kept is None else kept.result

    # The device that was chosen here, which a worker may not choose otherwise.
    missing = [
        replace(job, settings=replace(job.settings, device=job.settings.resolved_device), versions=versions())
        for job in missing
    ]
    run_all(missing, folder.path, keep, read, executor=executor, workers=workers, show=progress)
    record = record_of([run for run in finished.values() if run is not None], description, chosen, numbers)
    sources = {name: source_of(build) for plan in plans for name, build in own_builds(plan.scheme).items()}
    record = replace(record, sources=sources, choices=choose_settings(record.runs, crossed))
    modules = _modules(plans, [each for each in (task, model) if not isinstance(each, str | None)])
    texts = tuple(map(str, paths)), None if tokenizer is None else str(tokenizer)
    request = Request(*texts, None if start is None else str(start), modules, against, crossed)
    own = [word for module in modules or () for word in ("--module", module)]
    command = None if modules is None else shlex.join(["whatwhere", "compare", "--repeat", str(folder.path), *own])
    seconds = perf_counter() - began
    return folder.write_results(replace(record, command=command, request=request, seconds=seconds, model=owns[0]))


def demo(out: str | Path = "whatwhere-demo", *, workers: int | None = None, progress: bool = True) -> Comparison:
    """Compare the tutorials' five positional encodings on the first tutorial's task: three seeds, 2 to 3 minutes.

    Trained on expressions of 1 to 6 arguments, tested at 8, 12, 16, 24 and 32.

    Args:
        out: the results folder.
        workers: processes; None is one for each core.
        progress: show the progress on standard error.

    Raises:
        ResultsError: If the folder holds something else or cannot be written, or a run failed.
    """
    if progress:
        sys.stderr.write(
            "whatwhere: small Transformers learn expressions such as Max(1,6,2), with each of "
            f"{len(DEMO_SCHEMES)} positional encodings and three seeds: 2 to 3 minutes on two cores.\n"
        )
    return compare(DEMO_SCHEMES, out=out, workers=workers, progress=progress)


def _modules(plans: Sequence[Job], others: Sequence[object]) -> tuple[str, ...] | None:
    """Return how the command line names the schemes, task and model of the caller's own, or None where it cannot."""
    own = dict(item for plan in plans for item in own_builds(plan.scheme).items())
    modules = [*(module_option(build, name) for name, build in own.items()), *map(module_option, others)]
    return tuple(filter(None, modules)) if None not in modules else None


def _chosen_before(against: str, names: Sequence[str], settled: Mapping[str, str]) -> str:
    """Return the name of the scheme that others are compared with; raise SettingError where it is not one of them."""
    if (name := settled.get(canonical_name(against), canonical_name(against))) not in names:
        raise SettingError(f"against={against!r} is not a scheme of this comparison. Pass one of: {', '.join(names)}.")
    return name


@dataclass(frozen=True)
class Estimate:
    """How long a comparison takes."""

    runs: int  # one for each scheme and seed
    seconds: float  # of all, divided among the processes
    workers: int  # processes


def estimate(
    schemes: Iterable[SchemeLike],
    task: str | Task = "expressions",
    lengths: Sequence[int] | None = None,
    seeds: int | Sequence[int] = 3,
    *,
    files: Sequence[str | Path] = (),
    tokenizer: str | Path | None = None,
    recipe: str = "quick",
    vary: Mapping[str, Sequence[Any]] | None = None,
    model: BuildModel | None = None,
    workers: int | None = None,
    **settings: Any,
) -> Estimate:
    """Estimate how long a comparison takes on this machine, from a few steps and one test of each scheme.

    Args:
        schemes, task, lengths, seeds, files, tokenizer, recipe, vary, model, workers, settings: as for `compare`.

    Raises:
        SettingError: If a scheme, task or setting does not exist or does not fit the others.
        ShapeError: If sizes do not fit.

    Examples:
        >>> estimate(["none", "alibi"], seeds=3, steps=10).runs
        6
    """
    _, _, plans, _ = planned(schemes, task, lengths, recipe, vary, files, tokenizer, model, settings)
    total = 0.0
    with one_thread():
        for plan in plans:
            model = build(plan.scheme, 0, plan.task, plan.settings, plan.model)
            for steps in (2, _MEASURED_STEPS):  # the first two make what later ones reuse
                trained = train(model, 0, plan.task, replace(plan.settings, steps=steps))
            began = perf_counter()
            measure.scores(model, plan.task, max(plan.task.trained), plan.settings)
            tests = len({*plan.task.tested_in_length, *plan.settings.lengths}) + len(measure.SHIFTS)
            tested = (perf_counter() - began) * tests
            total += trained.seconds / _MEASURED_STEPS * plan.settings.steps + tested
    count = seeds if isinstance(seeds, int) else len(seeds)
    processes = max(1, min(workers or cores(), count * len(plans)))
    return Estimate(count * len(plans), total * count / processes, processes)


def planned(
    schemes: Iterable[SchemeLike],
    task: str | Task,
    lengths: Sequence[int] | None,
    recipe: str,
    vary: Mapping[str, Sequence[Any]] | None,
    files: Sequence[str | Path],
    tokenizer: str | Path | None,
    model: BuildModel | None,
    settings: Mapping[str, Any],
    show: bool = False,
) -> tuple[Task, Settings, list[Job], list[Path]]:
    """Return the task, the settings, a run of each variant, and the files; arguments as for `compare`."""
    requested = with_builds([schemes] if isinstance(schemes, str) else schemes)
    chosen = make_settings(task if isinstance(task, str) else getattr(task, "name", ""), lengths, recipe, **settings)
    paths, own = [Path(file) for file in files], None if tokenizer is None else Path(tokenizer)
    if isinstance(task, str):
        subject = make_task(task, chosen.direction, chosen.trained, paths, own, show)
    elif not is_task(task):
        raise SettingError(f"task got {task!r}, but needs a name, or an object with what comparison.tasks.Task lists.")
    elif chosen.trained is not None or files or tokenizer is not None:
        raise SettingError("a task of your own has its own lengths and texts: leave trained, files and tokenizer out.")
    elif (made_for := getattr(task, "direction", chosen.direction)) != chosen.direction:
        raise SettingError(
            f"the task was made for direction={made_for!r}, but the model has {chosen.direction!r}: pass "
            f"direction={made_for!r}."
        )
    else:
        subject = task
    plans = make_plans(requested, vary, subject, chosen, model)
    return subject, with_max_length(chosen, subject), plans, paths


def _with_text_in_file(jobs: Sequence[Job], folder: Folder, show: bool) -> list[Job]:
    """Return runs that hold the path and checksum of a text instead of the text; show the time it takes if `show`."""
    task = jobs[0].task if jobs else None
    if not isinstance(task, Text):
        return list(jobs)
    tokens = folder.path / TOKENS
    with FileLock(f"{tokens}.lock"), bytes_read(f"copying the text to {tokens}", task.size, show) as on_read:
        for left in tokens.glob(".*.part"):
            left.unlink()  # of a process that was killed
        kept = task.in_file(tokens, on_read)
    return [replace(job, task=kept) for job in jobs]


def describe(task: Task, settings: Settings) -> TaskDescription:
    """Describe a task, with the scores of predictors that ignore positions; raise SettingError if one is not finite."""
    baselines: dict[str, dict[int, float]] = {}
    sizes: dict[int, float] = {}
    lengths = sorted({*task.tested_in_length, *settings.lengths})
    for length, tested in (tests := {n: measure.evaluation_set(task, n, settings) for n in lengths}).items():
        if isinstance(task, Text) and (size := task.bytes_per_token(length, len(tested.ids))) is not None:
            sizes[length] = size
        for name, value in task.baselines(length, tested).items():
            if not math.isfinite(value):
                raise SettingError(
                    f"the task {task.name!r} has the baseline {name!r} = {value} at {length} {task.unit}, but needs a "
                    "finite number: leave it out at such lengths."
                )
            baselines.setdefault(name, {})[length] = value
    return TaskDescription(
        name=task.name,
        unit=task.unit,
        measure=task.measure,
        higher_is_better=task.measure == "accuracy",
        trained=tuple(task.trained),
        tested_in_length=tuple(task.tested_in_length),
        lengths=settings.lengths,
        shift_length=task.shift_length,
        groups=tuple(task.groups),
        baselines=baselines,
        tokens=tuple(task.tokens),
        identity=task.identity,
        tokenized=task.tokenized if isinstance(task, Text) else None,
        bytes_per_token=sizes,
        sequences={length: len(tested.ids) for length, tested in tests.items()},
    )


def record_of(
    finished: Sequence[FinishedRun], task: TaskDescription, settings: Settings, seeds: Sequence[int]
) -> ComparisonRecord:
    """Return the record of finished runs, without command and time."""
    runs = [run.result for run in finished]
    names = list(dict.fromkeys(run.scheme for run in runs))
    first: Mapping[str, FinishedRun] = {run.result.scheme: run for run in reversed(finished)}
    return ComparisonRecord(
        format=RESULTS_SCHEMA.format,
        version=RESULTS_SCHEMA.version,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=0.0,
        command=None,
        versions=versions(),
        machine=machine(),
        device=settings.resolved_device,
        threads_per_run=1,
        settings=replace(settings, trained=tuple(task.trained)),
        seeds=tuple(seeds),
        task=task,
        runs=tuple(runs),
        summary={name: summarize([run for run in runs if run.scheme == name]) for name in names},
        schemes={name: first[name].view for name in names},
    )
