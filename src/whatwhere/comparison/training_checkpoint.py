"""Checkpoints of a training: of any mesh of processes, read on any other one, as safetensors; nothing is unpickled.

    checkpoints/step-00000040/state.json        steps done, losses, and the files with their sizes
    checkpoints/step-00000040/*.safetensors     parts of weights, moments and random states, one file a process

A folder has its name once it is complete. PyTorch's distributed checkpoints write and read the tensors.
"""

import logging
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from whatwhere.comparison.folder import write_json
from whatwhere.comparison.model import Block, Transformer
from whatwhere.comparison.read import read_json
from whatwhere.comparison.sharded_model import ShardedBlock, by_head, by_kind
from whatwhere.comparison.train import Training
from whatwhere.errors import ResultsError
from whatwhere.records import Schema, from_json

CHECKPOINTS = "checkpoints"
_STATE, _KEPT = "state.json", 2
_ANEW = "Remove that folder to resume from the one before, or to begin anew."
_SCHEMA = Schema("whatwhere-training", 2, _ANEW)
_OF_READERS = (
    CheckpointException, SafetensorError, OSError, ValueError, RuntimeError, AssertionError, LookupError, TypeError,
    AttributeError,
)  # fmt: skip
"""What the readers of PyTorch and safetensors raise for damaged files."""


@dataclass(frozen=True)
class TrainingState:
    """The content of state.json.

    Args:
        step: steps done.
        losses: (step, loss) so far.
        seconds: of the steps.
        files: SHA-256 by name.
    """

    step: int
    losses: tuple[tuple[int, float], ...]
    seconds: float
    files: Mapping[str, str]


def save_checkpoint(training: Training, folder: Path, first: bool) -> None:
    """Write a checkpoint, whole or not at all, and remove all but the last two; all processes take part.

    Args:
        training: between two steps.
        folder: of the results, which all processes share.
        first: whether this is the first process.

    Raises:
        ResultsError: If it cannot be written.
    """
    path = folder / CHECKPOINTS / f"step-{training.done:08}"
    partial = path.with_name(f".{path.name}.part")
    try:
        if first:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        wait_for_all()
        with _quiet():
            writer = HuggingFaceStorageWriter(str(partial), save_distributed=True)
            save(_stored(training), storage_writer=writer)
        wait_for_all()
        files = _checksums(partial)
        if first:
            _complete(training, partial, path, files)
        wait_for_all()
    except (OSError, CheckpointException) as problem:
        if first:
            shutil.rmtree(partial, ignore_errors=True)
        failures = problem.failures.values() if isinstance(problem, CheckpointException) else [(problem,)]
        reason = str(next(iter(failures))[0]).splitlines()[0]
        raise ResultsError(
            f"{path} cannot be written: {reason}.\nMake room, then run the same command again."
        ) from problem


def _complete(training: Training, partial: Path, path: Path, files: Mapping[str, str]) -> None:
    state = TrainingState(training.done, tuple(training.losses), training.seconds, files)
    write_json(partial / _STATE, state, _SCHEMA)
    shutil.rmtree(path, ignore_errors=True)
    partial.rename(path)
    remove_old_checkpoints(path.parent.parent)


def remove_old_checkpoints(folder: Path) -> None:
    """Remove all but the last two checkpoints, and what a process left that was killed while it wrote or removed one.

    Args:
        folder: of the results.
    """
    kept = complete_checkpoints(folder)[-_KEPT:]
    for path in (folder / CHECKPOINTS).glob("*step-*"):
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _checksums(path: Path) -> dict[str, str]:
    """Return SHA-256 of each file of tensors, of which each process reads its share."""
    files = sorted(path.glob("*.safetensors"))
    spread = torch.distributed.is_initialized()
    rank, count = (torch.distributed.get_rank(), torch.distributed.get_world_size()) if spread else (0, 1)
    own = {}
    for file in files[rank::count]:
        try:
            with file.open("rb") as content:
                own[file.name] = file_digest(content, "sha256").hexdigest()
        except OSError as problem:  # which all processes must know
            own[file.name] = str(problem)
    shares: list[dict[str, str]] = [own] * count
    if spread:
        torch.distributed.all_gather_object(shares, own)
    return {name: digest for share in shares for name, digest in share.items()}


def complete_checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints of a folder, the last one last.

    Args:
        folder: of the results.
    """
    return sorted(path for path in (folder / CHECKPOINTS).glob("step-*") if (path / _STATE).is_file())


def load_checkpoint(training: Training, path: Path) -> None:
    """Continue where a checkpoint was written, on any number of processes; all of them take part.

    Args:
        training: that has done no step.
        path: of the checkpoint.

    Raises:
        ResultsError: If it is damaged, or of another model.
    """
    state = from_json(TrainingState, read_json(path / _STATE, _SCHEMA), str(path / _STATE))
    if _checksums(path) != dict(state.files):
        raise _damaged(path, "its files are not those that were written")
    try:
        reader = HuggingFaceStorageReader(str(path))
        _load(training, reader, path)
    except _OF_READERS as problem:
        raise _damaged(path, str(problem).splitlines()[0] if str(problem) else type(problem).__name__) from problem
    training.done, training.losses, training.seconds = state.step, list(state.losses), state.seconds


def _load(training: Training, reader: HuggingFaceStorageReader, path: Path) -> None:
    held = reader.read_metadata().state_dict_metadata
    for name, weight in _named(training):
        if f"moments.{name}" in held:
            state = {key: torch.zeros_like(weight, requires_grad=False) for key in ("exp_avg", "exp_avg_sq")}
            training.optimizer.state[weight] = {"step": torch.zeros(()), **state}
    stored = _stored(training)
    if stored.keys() != held.keys():
        raise _damaged(path, f"it has other tensors than the model: {min(stored.keys() ^ held.keys())}")
    for name, tensor in stored.items():
        parts = getattr(held[name], "chunks", [])
        if tuple(getattr(held[name], "size", ())) != tuple(tensor.shape):
            raise _damaged(path, f"{name} has another shape than in the model")
        if sum(part.sizes.numel() for part in parts) != tensor.numel():  # parts that lack would stay as they are
            raise _damaged(path, f"{name} is not complete")
    with _quiet():
        load(stored, storage_reader=reader)
    _restore(training, stored)


def _named(training: Training) -> list[tuple[str, Tensor]]:
    return [(name, weight) for name, weight in training.model.named_parameters() if weight.requires_grad]


def _stored(training: Training) -> dict[str, Tensor]:
    """Return what a checkpoint holds; rows of queries, keys and values are in the order of heads in each.

    Moments are one tensor of both, so that a parameter that no gradient has reached has none.
    """
    stored: dict[str, Tensor] = {}
    for name, weight in _named(training):
        heads = _heads_of_whole(training, name)
        order = (lambda x, n=heads: x) if heads is None else (lambda x, n=heads: by_head(x, n))
        stored[f"weights.{name}"] = order(weight.detach())
        if weight in training.optimizer.state:
            state = training.optimizer.state[weight]
            stored[f"moments.{name}"] = order(state["exp_avg"])
            stored[f"squares.{name}"] = order(state["exp_avg_sq"])
            stored[f"steps.{name}"] = state["step"].detach().clone().view(1)
    stored["random.batches"] = training.generator.get_state()
    stored["random.positions"] = training.position_generator.get_state()
    return stored


@torch.no_grad()
def _restore(training: Training, stored: Mapping[str, Tensor]) -> None:
    """Copy what was loaded to where it was not loaded in place."""
    for name, weight in _named(training):
        heads = _heads_of_whole(training, name)
        state = training.optimizer.state.get(weight, {})
        if heads is not None:
            weight.copy_(by_kind(stored[f"weights.{name}"], heads))
        if state:
            state["step"] = stored[f"steps.{name}"].view(()).clone()
            if heads is not None:
                state["exp_avg"].copy_(by_kind(stored[f"moments.{name}"], heads))
                state["exp_avg_sq"].copy_(by_kind(stored[f"squares.{name}"], heads))
    training.generator.set_state(stored["random.batches"])
    training.position_generator.set_state(stored["random.positions"])


def _heads_of_whole(training: Training, name: str) -> int | None:
    """Return the heads of the block whose queries, keys and values a parameter projects to, by kind; else None."""
    if not name.endswith(".qkv.weight"):
        return None
    block = training.model.get_submodule(name.removesuffix(".qkv.weight"))
    return block.heads if isinstance(block, Block) and not isinstance(block, ShardedBlock) else None


def whole_tensors(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a model by name, each whole, in the order of one process; all processes take part.

    Args:
        model: sharded or not.
    """
    for name, tensor in model.state_dict(keep_vars=True).items():
        whole = tensor.detach()
        with _quiet():
            whole = whole.full_tensor() if hasattr(whole, "full_tensor") else whole
        if name.endswith(".qkv.weight"):
            block = model.get_submodule(name.removesuffix(".qkv.weight"))
            if isinstance(block, ShardedBlock):
                whole = by_kind(whole, block.heads * block.mesh.sizes.tensor)
        yield name, whole


def wait_for_all() -> None:
    """Wait until all processes are here; one alone goes on."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out messages of PyTorch: that one process has no process group, that gathering takes two calls."""
    logger = logging.getLogger("torch.distributed.tensor._redistribute")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.")
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.")
        try:
            yield
        finally:
            logger.setLevel(level)


def _damaged(path: Path, why: str) -> ResultsError:
    return ResultsError(f"the checkpoint {path} cannot be read: {why}.\n{_ANEW}")
