"""Runs that start from the kept models of another comparison: with another scheme, RoPE scaling or length."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch
from torch import nn

from whatwhere.comparison.read import AFTER, RESULTS, Comparison, read_results
from whatwhere.comparison.results import StartRecord
from whatwhere.comparison.saved_model import read_tensors, saved_tensors
from whatwhere.comparison.settings import Settings
from whatwhere.errors import ResultsError, SettingError

_SIZES = "blocks.0.feed.0.weight"
_FIXED = ("onehot", "ids")  # tables whose rows are what their name says


@dataclass(frozen=True)
class Start:
    """The kept model that a run starts from.

    Args:
        file: its tensors.
        folder: of its results, as it was passed.
        scheme, seed: of its run.
        sha256: of the file.
    """

    file: Path
    folder: str
    scheme: str
    seed: int
    sha256: str


def open_start(start: str | Path) -> tuple[Comparison, str | None]:
    """Read the results that runs start from."""
    text = str(start)
    folder, colon, scheme = text.rpartition(":")
    if (Path(text) / RESULTS).is_file() or not colon:
        return read_results(text), None
    results = read_results(folder)
    return results, results.find_scheme(scheme)


def find_start(results: Comparison, scheme: str | None, names: tuple[str, ...], seed: int) -> Start:
    """Return the kept model that a run starts from: that of the same seed."""
    known = results.schemes
    if scheme is None:
        scheme = next((name for name in names if name in known), known[0] if len(known) == 1 else None)
    if scheme is None:
        raise SettingError(
            f"{results.folder} has no scheme {names[0]!r} to start from. Name the one to start from: "
            f"{results.folder}:{known[0]}. It has: {', '.join(map(repr, known))}."
        )
    run = next((run for run in results.runs if (run.scheme, run.seed) == (scheme, seed)), None)
    if run is None:
        seeds = sorted(run.seed for run in results.runs if run.scheme == scheme)
        raise SettingError(
            f"{results.folder} has no seed {seed} of {scheme!r} to start from. It has {', '.join(map(str, seeds))}."
        )
    file = results.file(run.file) if run.file else None
    if file is None:
        raise ResultsError(f"{results.folder} holds no trained model of {scheme!r}, seed {seed}: run it again.")
    return Start(file.resolve(), str(results.folder), scheme, seed, sha256(file.read_bytes()).hexdigest())


def require_same_tokens(results: Comparison, tokens: tuple[str, ...]) -> None:
    """Raise SettingError unless a task has the vocabulary of the results that runs start from."""
    if results.task.tokens != tokens:
        raise SettingError(
            f"the models of {results.folder} know other tokens (task {results.task.name!r}) than this task. "
            "Start from models of the same task."
        )


@torch.no_grad()
def load_start(model: nn.Module, start: Start, settings: Settings) -> StartRecord:
    """Copy the tensors of a kept model into another: those of equal names and shapes."""
    if sha256(start.file.read_bytes()).hexdigest() != start.sha256:
        raise ResultsError(f"{start.file} has changed since the comparison began. Run the same command again.")
    kept = {name: tensor for name, tensor in read_tensors(start.file).items() if "@" not in name}
    own = saved_tensors(model)
    sizes = [None if tensor is None else tuple(tensor.shape) for tensor in (kept.get(_SIZES), own.get(_SIZES))]
    if sizes[0] != sizes[1]:
        raise SettingError(
            f"{start.file} was trained with other sizes: {_SIZES} has {sizes[0]}, this model {sizes[1]} (feedforward, "
            "dim).\nPass the dim and feedforward of the results that runs start from."
        )
    fixed = {AFTER} if settings.table in _FIXED else set()
    fitting = [name for name in own if name in kept and name not in fixed and own[name].shape == kept[name].shape]
    if not fitting:
        raise SettingError(
            f"no tensor of {start.file} fits the model: it was trained with other sizes. Pass its dim, layers, heads "
            "and feedforward."
        )
    for name in fitting:
        own[name].copy_(kept[name])
    return StartRecord(
        folder=start.folder,
        scheme=start.scheme,
        seed=start.seed,
        sha256=start.sha256,
        loaded=tuple(fitting),
        fresh=tuple(name for name in own if name not in fitting),
        unused=tuple(sorted(kept.keys() - set(fitting))),
    )
