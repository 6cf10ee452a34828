"""Train one model of a comparison's kind on a mesh of processes, with checkpoints; its results are read as any other's.

A training that is interrupted or killed goes on from its last checkpoint with the same command, also on another number
of processes. One process alone has the losses of `compare` with the same seed and settings, to the bit on one thread.
"""

import re
import shlex
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint as recomputed

from whatwhere.checks import require_choice, require_whole
from whatwhere.comparison.executors import choose_gpu
from whatwhere.comparison.experiment import command_line, describe, on_device, planned, record_of, with_text_in_file
from whatwhere.comparison.folder import FinishedRun, Folder
from whatwhere.comparison.model import SchemeLike, Transformer, table_rows
from whatwhere.comparison.plan import rehearse, with_seeds, written_scheme
from whatwhere.comparison.progress import Display, display
from whatwhere.comparison.read import RESULTS, Comparison, read_results
from whatwhere.comparison.results import ParameterCount, Scores
from whatwhere.comparison.run import Job, kept, measured
from whatwhere.comparison.saved_model import saved_tensors
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.sharded_model import KeysOfOthers, SharedWork, require_mesh_fits, shard_model
from whatwhere.comparison.tasks import Task
from whatwhere.comparison.train import Precision, Training, deterministic, new_model
from whatwhere.comparison.training_checkpoint import (
    complete_checkpoints,
    load_checkpoint,
    remove_old_checkpoints,
    save_checkpoint,
    wait_for_all,
    whole_tensors,
)
from whatwhere.errors import ResultsError
from whatwhere.initialization import own_rows
from whatwhere.parallel.mesh import Mesh, MeshSizes, fill_mesh, is_first, joined, make_mesh, world_size
from whatwhere.position.slices import SHARD_ORDERS, ShardOrder

_CHECKPOINTS = 10
_LOST = re.compile(r"gloo|NCCL|[Cc]onnection (was )?(closed|reset)|[Bb]roken pipe|[Tt]imed? ?out")


@dataclass(frozen=True)
class HowToTrain:
    """How a model is trained, beside its settings.

    Args:
        mesh: of the processes; a resumed training may have another one.
        order: which tokens each process of context has: `contiguous`, `zigzag` or `striped`.
        keys: how these attend to the keys of others: `gathered`, so that each has all of them, or on a `ring`.
        precision: of what is computed: `float32`, `bfloat16`, or `auto` for bfloat16 on CUDA; weights are float32.
        recompute: compute the blocks again in the backward pass, instead of storing what they computed.
        compiled: compile each block.
        every: steps between checkpoints; None is a tenth of all.

    Raises:
        SettingError: If an option is unknown.
        ShapeError: If a number is not a whole one of at least 1.
    """

    mesh: MeshSizes = field(default_factory=MeshSizes)
    order: ShardOrder = "contiguous"
    keys: KeysOfOthers = "gathered"
    precision: Precision = "auto"
    recompute: bool = False
    compiled: bool = False
    every: int | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        require_choice("train", "order", self.order, SHARD_ORDERS)
        require_choice("train", "keys", self.keys, ("gathered", "ring"))
        require_choice("train", "precision", self.precision, ("auto", "float32", "bfloat16"))
        require_whole("train", every=1 if self.every is None else self.every)


@dataclass(frozen=True)
class TrainedModel:
    """What a training was, and what came of it.

    Args:
        scheme, seed, task: of the run.
        how: mesh and options; of a run that was finished before, those of this call.
        processes: that trained.
        steps: of the training.
        resumed_at: step of the checkpoint that this call went on from; 0 from the beginning.
        parameters: of the whole model.
        bytes_of_processes: weights, gradients and moments that each process held; empty where it was finished before.
        losses: (step, loss), about fifty of them.
        scores: by length, then by group.
        measure: of the scores, such as "accuracy".
        seconds_per_step: of the training alone.
        folder: of the results.
        file: the trained model, relative to the folder.
    """

    scheme: str
    seed: int
    task: str
    how: HowToTrain
    processes: int
    steps: int
    resumed_at: int
    parameters: ParameterCount
    bytes_of_processes: tuple[int, ...]
    losses: tuple[tuple[int, float], ...]
    scores: dict[int, Scores]
    measure: str
    seconds_per_step: float
    folder: str
    file: str


def train_one(
    scheme: SchemeLike,
    task: str | Task = "text",
    lengths: Sequence[int] | None = None,
    seed: int = 0,
    out: str | Path = "whatwhere-model",
    *,
    files: Sequence[str | Path] = (),
    tokenizer: str | Path | None = None,
    data: int | None = None,
    shard: int = 1,
    tensor: int = 1,
    context: int = 1,
    order: ShardOrder = "contiguous",
    keys: KeysOfOthers = "gathered",
    precision: Precision = "auto",
    recompute: bool = False,
    compiled: bool = False,
    every: int | None = None,
    progress: bool = True,
    **settings: Any,
) -> TrainedModel | None:
    """Train one model on all processes that torchrun has started, or in this one; measure it; write a results folder.

    Call it again to resume what was interrupted, on any mesh.

    Args:
        scheme: a name of the catalogue or a mixture, or your own `(name, build)`, as `compare` takes them.
        task, lengths, files, tokenizer, settings: as `compare` takes them.
        seed: of tokens, layers and batches.
        out: the results folder, which all processes share.
        data, shard, tensor, context: sizes of the mesh; None of data is what the others leave.
        order, keys, precision, recompute, compiled, every: as in HowToTrain.
        progress: show the progress on standard error.

    Returns:
        What came of it in the first process; None in the others.

    Raises:
        SettingError: If a scheme, task or setting does not exist, does not fit the others or cannot be split.
        ShapeError: If sizes do not fit.
        PositionError: If a scheme has too few positions.
        TextError: If a file is missing, empty or too short.
        ResultsError: If the folder holds something else or cannot be written, a checkpoint is damaged, or a process
            was lost.
        KeyboardInterrupt: If it was interrupted, or ended by SIGTERM: after a checkpoint.

    Examples:
        >>> import tempfile
        >>> small = {"steps": 2, "batch": 4, "dim": 16, "heads": 2}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     trained = train_one("alibi", "recall", [9], out=folder, progress=False, **small)
        >>> trained.steps, len(trained.losses), trained.resumed_at
        (2, 2, 0)
    """
    mesh = fill_mesh(data, shard, tensor, context, world_size())
    how = HowToTrain(mesh, order, keys, precision, recompute, compiled, every)
    first = is_first()
    subject, chosen, plans, paths = planned(
        [scheme], task, lengths, "quick", None, files, tokenizer, None, settings, progress and first
    )
    job = replace(with_seeds(plans, [seed], None)[0], settings=on_device(plans[0].settings))
    rehearse(job)
    require_mesh_fits(job, mesh, order, keys)
    choose_gpu(job)
    with deterministic(job.settings.deterministic):
        with joined(job.settings.resolved_device), _lost_processes():
            identity = f"{job.name}, seed {seed}, precision {precision}"
            folder = Folder(out, subject, chosen, plans, identity)
            wait_for_all()
            finished, report = folder.finished(job.name, seed), partial(_reported, job=job, how=how)
            if finished is not None and (not first or (folder.path / RESULTS).is_file()):
                return report(read_results(folder.path), resumed_at=0, sizes=()) if first else None
            record = partial(_write_results, folder, job, how, (task, subject, chosen, paths, tokenizer))
            if finished is not None:  # a process was killed between its run and the results
                return report(record(finished, finished.result.seconds), resumed_at=0, sizes=())
            claims = folder.claims()
            with claims.renewed():
                job = with_text_in_file([job], folder, claims, progress and first)[0]
            began = perf_counter()
            training, resumed_at, sizes = _trained(job, how, folder.path, first, progress)
            whole = _whole_model(training, job, first)
        if whole is None:
            return None
        run = kept(job, whole, measured(job, whole, training.losses, training.seconds, began))
    return report(record(folder.keep(run), perf_counter() - began), resumed_at=resumed_at, sizes=sizes)


def _write_results(
    folder: Folder,
    job: Job,
    how: HowToTrain,
    request: tuple[str | Task, Task, Settings, Sequence[Path], str | Path | None],
    finished: FinishedRun,
    seconds: float,
) -> Comparison:
    task, subject, chosen, paths, tokenizer = request
    record = record_of([finished], describe(subject, chosen), chosen, [job.seed])
    command = _command(job, task, how, chosen, paths, folder.path, tokenizer)
    threads = 1 if job.settings.deterministic else torch.get_num_threads()
    return folder.write_results(replace(record, command=command, seconds=seconds, threads_per_run=threads))


def _trained(
    job: Job, how: HowToTrain, folder: Path, first: bool, progress: bool
) -> tuple[Training, int, tuple[int, ...]]:
    """Train to the end, from the last checkpoint on; return also its step, and the bytes that each process holds."""
    settings = job.settings
    model = new_model(job.scheme, job.seed, job.task.vocab_size, table_rows(settings, job.task), settings)
    model = model.to(settings.resolved_device)
    mesh = make_mesh(how.mesh, settings.resolved_device) if how.mesh.processes > 1 else None
    if mesh is not None:
        model = shard_model(model, mesh, how.order, how.keys)
    for block in model.blocks:
        if how.recompute:
            block.forward = partial(recomputed, block.forward, use_reentrant=False)
        if how.compiled:
            block.compile()
    work = None if mesh is None else SharedWork(mesh, how.order)
    training = Training(model, job.seed, job.task, settings, work, how.precision)
    if first:
        remove_old_checkpoints(folder)
    found = complete_checkpoints(folder)
    if found:
        load_checkpoint(training, found[-1])
    resumed_at = training.done
    every = how.every or max(1, settings.steps // _CHECKPOINTS)
    with display([job], progress and first) as shown, _stop_requested() as stop:
        _note(shown, training, f"resumed from {found[-1]}" if found else "")
        while training.done < settings.steps:
            training.step()
            shown.in_progress(training.done)
            stopped = _of_any(stop.is_set())
            if training.done == settings.steps or training.done % every == 0 or stopped:
                training.require_finite_weights()  # a checkpoint that is kept can be resumed
                save_checkpoint(training, folder, first)
                _note(shown, training, "checkpoint written")
            if stopped and training.done < settings.steps:
                raise KeyboardInterrupt
    training.require_finite_weights()
    return training, resumed_at, _gathered_bytes(training, mesh)


def _note(shown: Display, training: Training, what: str) -> None:
    if what:
        loss = f", loss {training.losses[-1][1]:.3f}" if training.losses else ""
        left = training.settings.steps - training.done
        seconds = training.seconds / max(1, training.done) * left
        shown.note(f"step {training.done} of {training.settings.steps}{loss}: {what}; {seconds:.0f} s of steps left")


@contextmanager
def _stop_requested() -> Iterator[threading.Event]:
    """Yield an event that SIGINT or SIGTERM sets, in a `with` block; the second of these signals ends at once."""
    stop, before = threading.Event(), {}

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _of_any(flag: bool) -> bool:
    """Return whether a flag is set in any process: all of them stop after the same step."""
    if not torch.distributed.is_initialized():
        return flag
    flags = torch.tensor([int(flag)])
    torch.distributed.all_reduce(flags)
    return bool(flags.any())


@contextmanager
def _lost_processes() -> Iterator[None]:
    """Report that the connection to another process was lost, which happens when that one ends.

    Raises:
        ResultsError: If PyTorch's error is one of a connection.
    """
    try:
        yield
    except RuntimeError as problem:
        if not torch.distributed.is_initialized() or not _LOST.search(str(problem)):
            raise
        raise ResultsError(
            f"another process of the training was lost: {str(problem).strip().splitlines()[0]}.\n"
            "Run the same command again to resume from the last checkpoint; torchrun does so itself with "
            "--max-restarts 3."
        ) from problem


def _gathered_bytes(training: Training, mesh: Mesh | None) -> tuple[int, ...]:
    """Return how many bytes of weights, gradients and moments each process has."""
    own = 0
    for parameter in training.model.parameters():
        held = [parameter, parameter.grad, *training.optimizer.state.get(parameter, {}).values()]
        own += sum(own_rows(each).numel() * each.element_size() for each in held if isinstance(each, Tensor))
    if mesh is None:
        return (own,)
    sizes = torch.zeros(mesh.sizes.processes, dtype=torch.int64)
    sizes[torch.distributed.get_rank()] = own
    torch.distributed.all_reduce(sizes)
    return tuple(sizes.tolist())


@torch.no_grad()
def _whole_model(training: Training, job: Job, first: bool) -> Transformer | None:
    """Return the trained model as a whole in the first process; all take part."""
    model = training.model
    assert isinstance(model, Transformer)
    if not torch.distributed.is_initialized():
        return model
    settings = job.settings
    whole = new_model(job.scheme, job.seed, job.task.vocab_size, table_rows(settings, job.task), settings)
    own = saved_tensors(whole)
    for name, tensor in whole_tensors(model):
        if first and name in own:
            own[name].copy_(tensor)
    return whole.to(settings.resolved_device) if first else None


def _command(
    job: Job,
    task: str | Task,
    how: HowToTrain,
    settings: Settings,
    files: Sequence[Path],
    out: Path,
    tokenizer: str | Path | None,
) -> str | None:
    """Return the command that repeats a training on the same mesh; None where it cannot name what is the caller's."""
    compared = command_line(task, [written_scheme(job)], [job.seed], settings, out, files, tokenizer=tokenizer)
    if compared is None:
        return None
    words = shlex.split(compared)
    words[1] = "train"
    at = words.index("--seeds")
    words[at : at + 2] = ["--seed", str(job.seed)]
    for axis in fields(how.mesh):
        if (size := getattr(how.mesh, axis.name)) > 1:
            words += [f"--{axis.name}", str(size)]
    default = HowToTrain()
    words += [word for name in ("order", "keys", "precision") if (value := getattr(how, name)) != getattr(default, name)
              for word in (f"--{name}", value)]  # fmt: skip
    words += ["--recompute"] * how.recompute + ["--compile"] * how.compiled
    words += [] if how.every is None else ["--every", str(how.every)]
    if how.mesh.processes > 1:
        words = ["torchrun", "--nproc-per-node", str(how.mesh.processes), "-m", *words]
    return shlex.join(words)


def _reported(results: Comparison, job: Job, how: HowToTrain, resumed_at: int, sizes: tuple[int, ...]) -> TrainedModel:
    run = results.runs[0]
    return TrainedModel(
        scheme=run.scheme,
        seed=run.seed,
        task=job.task.name,
        how=how,
        processes=how.mesh.processes,
        steps=run.steps,
        resumed_at=resumed_at,
        parameters=run.parameters,
        bytes_of_processes=sizes,
        losses=run.losses,
        scores=dict(run.scores),
        measure=job.task.measure,
        seconds_per_step=run.seconds_per_step,
        folder=str(results.folder),
        file=run.file,
    )
