"""The folder that a comparison writes, each run as soon as it is finished; and logs of runs for other programs."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from whatwhere.atomic import atomic_file, is_unfinished, write_atomic
from whatwhere.comparison.model import build_wheres, own_builds
from whatwhere.comparison.own_model import OwnModel, model_name, own_types
from whatwhere.comparison.read import RESULTS, Comparison, read_json, read_results
from whatwhere.comparison.results import ComparisonRecord, LossesSoFar, RunResult, SchemeView, StartRecord, versions
from whatwhere.comparison.run import Job, Run
from whatwhere.comparison.saved_model import Start
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Task, identity_of
from whatwhere.errors import MissingExtra, ResultsError, SettingError
from whatwhere.models.checkpoint.folder import RESULTS_SCHEMA
from whatwhere.models.checkpoint.safetensors import computed, write_safetensors
from whatwhere.records import Schema, from_json, to_json
from whatwhere.where.catalogue import code_lines, source_of

CHANNELS = "whatwhere-runs"  # begin of the name of the hidden folder in which runs in progress report
TOKENS = "tokens"  # the folder of the text that runs read, in one file named by its checksum
_REQUEST = Schema("whatwhere-comparison", 5, "Choose another folder.")
_RUN = Schema("whatwhere-run", 2, "Delete this run to train it again, or choose another folder.")


@dataclass(frozen=True)
class _Request:
    """The content of comparison.json: what two calls must share to write into one folder."""

    versions: Mapping[str, str]
    settings: Settings
    device: str
    task_identity: str
    model: str | None = None


@dataclass(frozen=True)
class FinishedRun:
    """The content of a file in runs/: a digest of how the scheme is built, scores and costs, and the scheme's view."""

    scheme_identity: str
    result: RunResult
    view: SchemeView


class Folder:
    """The folder that a comparison writes; opening it raises ResultsError unless it is new, or of the same one."""

    def __init__(self, path: str | Path, task: Task, settings: Settings, jobs: Sequence[Job]) -> None:
        self.path = Path(path)
        settings = replace(settings, trained=tuple(task.trained))
        device = settings.resolved_device
        own = next((model_name(job.model) for job in jobs if job.model is not None), None)
        self._request = _Request(versions(), settings, device, identity_of(task, settings.lengths), own)
        self._jobs = {job.name: job for job in jobs}
        self._identities = {name: _identity(job) for name, job in self._jobs.items()}
        try:
            self._open()
        except OSError as problem:
            raise ResultsError(
                f"{self.path} cannot be written: {problem.strerror}.\nChoose another folder."
            ) from problem

    def finished(self, scheme: str, seed: int, start: Start | None = None) -> FinishedRun | None:
        """Return a finished run; None where there is none yet, or its model is gone."""
        path = self._run_path(scheme, seed)
        if not path.is_file():
            return None
        try:
            run = from_json(FinishedRun, read_json(path, _RUN), str(path))
        except ResultsError as problem:
            raise _no_run(path, problem) from None
        if (run.result.scheme, run.result.seed) != (scheme, seed) or not run.result.file:
            raise _no_run(path)
        if run.scheme_identity != self._identities[scheme]:
            raise ResultsError(
                f"the scheme {scheme!r}, or the model, has changed since {path} was written.\n"
                "Choose another folder, name the scheme differently, or delete this run to train it again."
            )
        before, now = run.result.start, None if start is None else start.record
        if (before and before.sha256) != (now and now.sha256):
            raise ResultsError(
                f"{path} started from another model: {_start_text(before)}, here {_start_text(now)}.\n"
                "Choose another folder."
            )
        # The model is part of the run: without it the run is done again.
        return run if (self.path / run.result.file).is_file() else None

    def require_chosen_before(self, against: str) -> None:
        """Raise where results of this folder were computed without `against`, or with another scheme."""
        with suppress(ResultsError):  # there are none yet, or they are damaged
            request = read_results(self.path).record.request
            if request is not None and request.against != against:
                raise SettingError(
                    f"{self.path} has results already, which were not begun with against={against!r}: a scheme that is "
                    "chosen after the runs makes p-values too small.\nLeave it out, and pass it to whatwhere tables, "
                    "which states that it was chosen afterwards; or choose another folder."
                )

    def keep(self, run: Run) -> FinishedRun:
        """Write a finished run, its model and its trace."""
        scheme, seed = run.result.scheme, run.result.seed
        name = f"{run_name(scheme, seed)}.safetensors"
        result = replace(run.result, file=f"models/{name}", trace=f"traces/{name}")
        settings = self._jobs[scheme].settings
        metadata = {
            "scheme": scheme,
            "seed": str(seed),
            "task": settings.task,
            "settings": json.dumps(to_json(settings, None)),
        }
        _write_tensors(self.path / result.trace, run.trace, {"format": "whatwhere-trace"} | metadata)
        _write_tensors(self.path / result.file, run.tensors, {"format": "whatwhere-model"} | metadata)
        finished = FinishedRun(self._identities[scheme], result, run.view)
        write_json(self._run_path(scheme, seed), finished, _RUN)
        return finished

    def write_results(self, record: ComparisonRecord) -> Comparison:
        """Write results.json, whole or not at all."""
        write_json(self.path / RESULTS, record, RESULTS_SCHEMA)
        return Comparison(self.path, record)

    def _open(self) -> None:
        path = self.path / "comparison.json"
        if self.path.exists() and not self.path.is_dir():
            raise ResultsError(f"{self.path} is a file; results need a folder.\nChoose another name: out='results'.")
        if not path.is_file():
            # Where the process was killed while it wrote that file, a part of it is left.
            strange = self.path.is_dir() and not all(is_unfinished(entry) for entry in self.path.iterdir())
            if strange and not path.is_file():  # another process of this comparison may just have written it
                raise ResultsError(
                    f"{self.path} is not empty and holds no comparison, so nothing is written into it.\n"
                    "Choose a new or an empty folder."
                )
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(path, self._request, _REQUEST)
        before = read_json(path, _REQUEST)
        now = _REQUEST.unwrap(json.loads(json.dumps(_REQUEST.wrap(self._request))), str(path))
        if (difference := _first_difference(before, now)) is not None:
            name, old, new = difference
            raise ResultsError(
                f"{self.path} holds another comparison: there {name} is {old!r}, here {new!r}.\n"
                "Choose another folder, or run the command that made it again to resume it."
            )
        for part in ("runs", "models", "traces"):
            if (self.path / part).is_symlink():
                raise ResultsError(f"{self.path / part} is a link, which nothing is written through.\nRemove it.")
            (self.path / part).mkdir(exist_ok=True)

    def _run_path(self, scheme: str, seed: int) -> Path:
        return self.path / "runs" / f"{run_name(scheme, seed)}.json"


def losses_so_far(folder: Path) -> list[LossesSoFar]:
    """Return the losses of all runs of a comparison in order while it trains; else of those that are finished."""
    found: dict[tuple[str, int], LossesSoFar] = {}
    for path in [*sorted(folder.glob(f".{CHANNELS}*/*.json")), *sorted(folder.glob("runs/*.json"))]:
        with suppress(OSError, ValueError):  # a run that has just ended
            if path.parent.name == "runs":
                result = from_json(FinishedRun, read_json(path, _RUN), str(path)).result
                curves = result.losses, True, result.held_out
                runs = [LossesSoFar(result.scheme, result.seed, result.steps, *curves)]
            else:  # the first names all runs
                written = json.loads(path.read_text(encoding="utf-8"))
                runs = [from_json(LossesSoFar, each, str(path)) for each in written]
            found |= {(x.scheme, x.seed): x for x in runs if x.losses or x.finished or (x.scheme, x.seed) not in found}
    return [*found.values()]


def write_json(path: Path, record: object, schema: Schema | None = None) -> None:
    """Write a record as JSON, whole or not at all; every number is kept to the last bit."""
    try:
        content = to_json(record, None) if schema is None else schema.wrap(record)
        write_atomic(path, json.dumps(content, indent=1, allow_nan=False) + "\n", follow=False)
    except OSError as problem:
        raise ResultsError(f"{path} cannot be written: {problem.strerror}.\nMake room, then run it again.") from problem


def _start_text(start: StartRecord | None) -> str:
    return "the beginning" if start is None else f"{start.scheme!r}, seed {start.seed}, of {start.folder}"


def _no_run(path: Path, problem: ResultsError | None = None) -> ResultsError:
    reason = "" if problem is None else f" ({str(problem).splitlines()[0].rstrip('.')})"
    return ResultsError(f"{path} is not a run of a comparison{reason}.\nMove it away, or choose another folder.")


def _write_tensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write tensors, whole or not at all; equal ones make equal files, byte for byte."""
    arrays = {name: np.ascontiguousarray(array) for name, array in sorted(tensors.items())}
    parts = [computed(n, str(a.dtype), a.shape, partial(torch.from_numpy, a)) for n, a in arrays.items()]
    try:
        with atomic_file(path, follow=False) as unfinished:
            # The safetensors library writes metadata in another order each time, and files that others cannot read.
            write_safetensors(unfinished, parts, metadata, schema=RESULTS_SCHEMA)
    except OSError as problem:
        raise ResultsError(f"{path} cannot be written: {problem}.\nMake room, then run it again.") from problem


def file_name(scheme: str) -> str:
    """Return the name of a file for a scheme, the same on every disk, and different for every scheme."""
    plain = re.sub(r"[^A-Za-z0-9_.@=,-]", "_", scheme)
    # Two names must not share a file, also where a disk does not distinguish a from A: a digest distinguishes them.
    return plain if plain == scheme.lower() else f"{plain}-{hashlib.sha256(scheme.encode()).hexdigest()[:6]}"


def run_name(scheme: str, seed: int) -> str:
    """Return the name of the files of a run, without suffix."""
    return f"{file_name(scheme)}-{seed}"


def _identity(job: Job) -> str:
    """Return a digest that changes when a scheme or model is built differently, or its own source code changes."""
    settings = job.settings
    wheres = build_wheres(job.scheme, settings.dim, settings.heads, 2, settings.layers)
    parts, own = [repr(wheres)], [*own_builds(job.scheme).values(), *(each for w in wheres for each in own_types(w))]
    if job.model is not None:
        model = OwnModel(job.task.vocab_size, wheres, settings, job.model)
        parts.append(repr(model))
        own += [job.model, *own_types(model)]
    if own:
        parts += code_lines(source_of(*own))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _first_difference(before: object, now: object, name: str = "") -> tuple[str, object, object] | None:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**now, **before}:
            inner = _first_difference(before.get(key), now.get(key), key)
            if inner is not None:
                return inner
        return None
    return None if before == now else (name, before, now)


# Losses and scores of runs as scalars by step, for TensorBoard, Weights & Biases, or a function of your own

RunLog = Callable[[RunResult], None]  # what `compare(on_run=...)` calls with each run that it has trained


def scalars(run: RunResult) -> Iterator[tuple[str, int, float]]:
    """Yield name, step and value of the losses of a run, then of its scores, at the last step."""
    for step, loss in run.losses:
        yield "loss", step, loss
    for step, loss in run.held_out:
        yield "held-out loss", step, loss
    scores: dict[str, float | None] = {"score/in length": run.in_length}
    for length, groups in sorted(run.scores.items()):
        scores |= {f"score/{length}" + ("" if name == "all" else f"/{name}"): each for name, each in groups.items()}
    scores |= {f"shift/{by}": shift.score for by, shift in sorted(run.shift.items())}
    yield from ((name, run.steps, score) for name, score in scores.items() if score is not None)


def open_log(target: str) -> RunLog:
    """Return a function that writes the scalars of a run to TensorBoard or to Weights & Biases.

    Args:
        target: "tensorboard:FOLDER" or "wandb:PROJECT".

    Returns:
        To be called with each run, as `compare(on_run=open_log("tensorboard:logs"))` does. Each run has a folder of its
        own in that of TensorBoard: another comparison needs another folder.

    Raises:
        SettingError: If the target is neither.
        MissingExtra: If its package is not installed.

    Examples:
        >>> open_log("logs")
        Traceback (most recent call last):
        whatwhere.errors.SettingError: log got 'logs', but needs tensorboard:FOLDER or wandb:PROJECT.
    """
    kind, _, name = target.partition(":")
    if kind not in ("tensorboard", "wandb") or not name:
        raise SettingError(f"log got {target!r}, but needs tensorboard:FOLDER or wandb:PROJECT.")
    write = _tensorboard(Path(name)) if kind == "tensorboard" else _wandb(name)

    def log(run: RunResult) -> None:
        try:
            write(run)
        except Exception as problem:  # of a disk, a network or an account: other people's programs raise anything
            raise ResultsError(
                f"the run of {run.scheme!r} with seed {run.seed} is kept, but {target} did not take its scalars: "
                f"{problem}.\nRun the same command again to resume, with another log or without."
            ) from problem

    return log


def _tensorboard(folder: Path) -> RunLog:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtra("TensorBoard's package is not installed: pip install tensorboard.") from None

    def write(run: RunResult) -> None:
        with SummaryWriter(str(folder / f"{file_name(run.scheme)}-{run.seed}")) as writer:
            for name, step, value in scalars(run):
                writer.add_scalar(name, value, step)

    return write


def _wandb(project: str) -> RunLog:
    try:
        import wandb
    except ImportError:
        raise MissingExtra("the package of Weights & Biases is not installed: pip install wandb.") from None

    def write(run: RunResult) -> None:
        config = {"scheme": run.scheme, "seed": run.seed, "parameters": run.parameters.total}
        with wandb.init(project=project, name=f"{run.scheme}, seed {run.seed}", config=config) as logged:
            by_step: dict[int, dict[str, float]] = {}
            for name, step, value in scalars(run):
                by_step.setdefault(step, {})[name] = value
            for step, values in sorted(by_step.items()):
                logged.log(values, step=step)

    return write
