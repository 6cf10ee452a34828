"""Train schemes side by side, in and beyond the trained length, and report what held."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from whatwhere.comparison import measure, results
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.results import Folder as _Folder
from whatwhere.comparison.results import Report as Report
from whatwhere.comparison.run import Job as _Job
from whatwhere.comparison.run import Run as _Run
from whatwhere.comparison.runner import run_all as _run_all
from whatwhere.comparison.settings import SchemeLike, Settings, make_settings, name_of
from whatwhere.comparison.stands import exam_generator, in_exam, warn_of_plain_exam, with_longest
from whatwhere.comparison.tasks import Task, make_task
from whatwhere.comparison.train import build as build_model
from whatwhere.comparison.train import route as choose_route
from whatwhere.comparison.verdicts import verdicts
from whatwhere.errors import MissingExtra, SettingError

DEMO_SCHEMES = ("none", "sinusoidal", "learned", "rotary", "alibi")


def compare(
    schemes: Iterable[SchemeLike],
    task: str | Task = "expressions",
    lengths: Sequence[int] | None = None,
    seeds: int | Sequence[int] = 3,
    out: str | Path = "whatwhere-results",
    *,
    files: Sequence[str | Path] = (),
    recipe: str = "quick",
    executor: Executor | None = None,
    workers: int | None = None,
    progress: bool = True,
    **settings: Any,
) -> Report:
    """Train the same Transformer under each scheme and seed; score it in and beyond the trained length.

    Args:
        schemes: names of the catalogue; mixtures, by door "rotary+alibi" or by layer "rotary/none"; or your own
            `(name, build)` with `build(dim, num_heads, max_length)` -> a Where, or a list of one for each layer.
        task: `expressions`, `recall`, `text`, or a Task of your own.
        lengths: lengths to test, in the task's unit; None is the task's own choice.
        seeds: how many, or which. Three show gross differences; take five or more before you believe an order.
        out: the results folder. Where it holds finished runs of this comparison, only what is missing is done.
        files: for `text`, the files to read; none is the Python documentation.
        recipe: `quick`, or `author` for the first tutorial's own program (expressions; two minutes a run).
        executor: any concurrent.futures.Executor; None is a pool of one process a core, one thread each.
        workers: processes of that pool; 1 runs in this process, as do schemes that cannot be sent to another one.
        progress: show how far it is, on standard error.
        settings: further settings, see `comparison.settings.Settings`: steps, batch, dim, layers, heads, trained, ....

    The same seeds and versions give the same numbers on the same machine, as long as products of float32 take the same
    way: MKL, or oneDNN where a trial shows that it is faster and still float32; `"products"` in results.json says
    which. Interrupted, it keeps what is finished, and the same call goes on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as out:
    ...     report = compare(["none", "alibi"], lengths=[8], seeds=1, out=out, steps=2, workers=1, progress=False)
    >>> sorted(report.summary)
    ['alibi', 'none']
    """
    began = perf_counter()
    chosen = [schemes] if isinstance(schemes, str) else list(schemes)
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    _require_distinct(chosen, numbers)
    name = task if isinstance(task, str) else task.name
    told = make_settings(name, lengths, recipe, **settings)
    paths = [Path(file) for file in files]
    work = make_task(task, told.direction, told.trained, paths) if isinstance(task, str) else _own(task, told, paths)
    told = with_longest(told, work)
    warn_of_plain_exam(told)
    _rehearse(chosen, work, told)
    folder = _Folder(out, work, told, chosen, choose_route(work, told))
    found = {(name_of(s), seed): folder.finished(name_of(s), seed) for s in chosen for seed in numbers}
    missing = [
        _Job(s, seed, work, told, route=folder.route)
        for seed in numbers
        for s in chosen
        if found[name_of(s), seed] is None
    ]

    def keep(run: _Run) -> None:
        found[run.record["scheme"], run.record["seed"]] = folder.keep(run)

    _run_all(missing, keep, executor=executor, workers=workers, show=progress)
    done = [kept for kept in found.values() if kept is not None]
    command = results.command(name, chosen, numbers, told, folder.path, paths)
    content = _results(done, work, told, numbers, folder.route) | {
        "seconds": perf_counter() - began,
        "command": command,
    }
    folder.write_results(content)
    _write_page(folder.path)
    return Report(folder.path, content)


def demo(out: str | Path = "whatwhere-demo", *, workers: int | None = None, progress: bool = True) -> Report:
    """Compare the tutorials' five ways of saying where on the first tutorial's task: three seeds, about 2 minutes.

    Trained on expressions of 1 to 6 arguments, tested at 8, 12, 16, 24 and 32.
    """
    return compare(DEMO_SCHEMES, out=out, workers=workers, progress=progress)


def _require_distinct(schemes: Sequence[SchemeLike], seeds: Sequence[int]) -> None:
    names = [name_of(scheme) for scheme in schemes]
    if not names:
        raise SettingError('compare got no scheme; give some, as in compare(["none", "rotary", "alibi"]).')
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise SettingError(f"compare got two schemes with the name {double!r}; results are kept by name.")
    if not seeds or len(set(seeds)) < len(seeds) or any(isinstance(s, bool) or not 0 <= s < 2**32 for s in seeds):
        raise SettingError(f"compare got seeds={seeds}, but needs at least one, each 0..2**32-1 and given once.")


def _own(task: Task, told: Settings, files: Sequence[Path]) -> Task:
    if told.trained is not None or files:
        raise SettingError("a task that is handed in brings its own lengths and texts: leave trained and files out.")
    direction = getattr(task, "direction", told.direction)
    if direction != told.direction:
        raise SettingError(
            f"the task was made for direction={direction!r}, but the model has {told.direction!r}: "
            f"pass direction={direction!r}."
        )
    return task


def _rehearse(schemes: Sequence[SchemeLike], task: Task, settings: Settings) -> None:
    """Find out before any training what would fail after it."""
    longest = task.exam(max(task.trained), 1)
    for scheme in schemes:
        model = build_model(scheme, 0, task, settings)
        if settings.direction == "encoder":
            _require_later_keys(scheme, model)
        with torch.no_grad():
            ids = longest.ids.to(settings.place)
            model(ids, longest.at, in_exam(settings, ids, exam_generator(ids.shape[1])))
    for length in {*task.tested_in_length, *settings.lengths, task.shift_length}:
        task.exam(length, 1)


def _require_later_keys(scheme: SchemeLike, model: Transformer) -> None:
    for where in model.layer_wheres:
        if any(part is not None and part.causal_only for part in (where.query_key, where.score)):
            raise SettingError(
                f"the scheme {name_of(scheme)!r} says nothing of later keys, which an encoder looks at.\n"
                "Leave it out, or compare decoders: direction='decoder'."
            )


def _results(
    done: Sequence[dict[str, Any]], task: Task, settings: Settings, seeds: Sequence[int], route: str
) -> dict[str, Any]:
    runs = [kept["record"] for kept in done]
    names = list(dict.fromkeys(run["scheme"] for run in runs))
    told = settings.as_dict() | {
        "trained": list(task.trained),
        "schemes": names,
        "seeds": list(seeds),
        "threads_per_run": 1,
        "products": route,
        "device": settings.place,
    }
    about = _describe(task, settings)
    return {
        "format": results.FORMAT,
        "version": results.VERSION,
        "created": results.now(),
        "versions": results.versions(),
        "machine": results.machine(),
        "settings": told,
        "task": about,
        "runs": runs,
        "summary": {name: measure.summarize([run for run in runs if run["scheme"] == name]) for name in names},
        "schemes": {name: next(k["drawing"] for k in done if k["record"]["scheme"] == name) for name in names},
        "verdicts": verdicts(runs, about, told),
    }


def _describe(task: Task, settings: Settings) -> dict[str, Any]:
    tested = sorted({*task.tested_in_length, *settings.lengths})
    baselines: dict[str, dict[str, float]] = {}
    for length in tested:
        for name, value in task.baselines(length, measure.exam_of(task, length, settings)).items():
            baselines.setdefault(name, {})[str(length)] = value
    return {
        "name": task.name,
        "unit": task.unit,
        "trained": list(task.trained),
        "tested_in_length": list(task.tested_in_length),
        "lengths": list(settings.lengths),
        "shift_length": task.shift_length,
        "groups": list(task.groups),
        "measure": task.measure,
        "better": "higher" if task.measure == "accuracy" else "lower",
        "baselines": baselines,
        "tokens": list(task.tokens),
        "identity": task.identity,
    }


def _write_page(folder: Path) -> None:
    from whatwhere.comparison.report import write_report

    try:
        write_report(folder)
    except MissingExtra:
        (folder / "report.html").unlink(missing_ok=True)  # an older page would tell of other results
