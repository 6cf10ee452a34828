"""The trained model of a run: what is saved of it, building it again from the results, and runs that start from it."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from whatwhere.comparison.model import ComparedModel, SchemeLike
from whatwhere.comparison.own_model import BuildModel
from whatwhere.comparison.read import AFTER, RESULTS, Comparison, read_results
from whatwhere.comparison.results import RunResult, StartRecord
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.train import new_model
from whatwhere.errors import ResultsError, SettingError
from whatwhere.models.checkpoint.folder import RESULTS_SCHEMA
from whatwhere.models.checkpoint.safetensors import require_checksum
from whatwhere.where.catalogue import Builds, require_builds

_MAX_POSITIONS = 1 << 20


def saved_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model's state by name; one that has several names, under the first."""
    names: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        names.setdefault(id(tensor), name)
    return {name: state[name] for name in names.values()}


def load_model(
    results: Comparison | str | Path, run: RunResult, build: Builds = None, model: BuildModel | None = None
) -> ComparedModel:
    """Build the trained model of a run again, in evaluation mode on the CPU.

    Args:
        results: a comparison, or its folder.
        run: one of its runs.
        build: the function that built the run's scheme, where it was the caller's own; of a mixture, each by its name.
        model: what built the model, where it was the caller's own: as was passed to `compare(model=...)`.

    Returns:
        The model, with the trained parameters: it answers as the run did.

    Raises:
        ResultsError: If the file is absent or damaged, or does not fit the recorded settings.
        SettingError: If the run is none; if the scheme or the model was built by the caller's own function, which is
            not passed, or has changed; or if `model` is passed, but the comparison trained our Transformer.

    Examples:
        >>> import tempfile
        >>> from whatwhere.comparison import compare
        >>> with tempfile.TemporaryDirectory() as out:
        ...     results = compare(["none"], lengths=[8], seeds=1, out=out, steps=2, workers=1, progress=False)
        ...     model = load_model(results, results.runs[0])
        >>> model(torch.tensor([[12, 17, 8, 18]]), at=-1).shape
        torch.Size([1, 20])
    """
    comparison = results if isinstance(results, Comparison) else read_results(results)
    if not isinstance(run, RunResult):
        raise SettingError(f"load_model got run={run!r}, but needs one of the runs, such as results.runs[0].")
    path = comparison.file(run.file) if run.file else None
    if path is None:
        raise ResultsError(
            f"{comparison.folder} holds no trained model of {run.scheme!r}, seed {run.seed}.\n"
            "Run the same command again: runs without their model are done again."
        )
    tensors = read_tensors(path)
    settings = comparison.settings(run)
    _require_model(comparison, model)
    tokens = len(comparison.task.tokens)
    if model is None and AFTER in tensors:
        tokens = len(torch.atleast_1d(tensors[AFTER]))
    _require_sizes(path, tensors, settings, run, tokens, model)
    built = new_model(_scheme(comparison, run, build), run.seed, tokens, run.max_length, settings, model)
    _fill(built, tensors, path)
    return built.eval()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file."""
    from safetensors import SafetensorError

    try:
        require_checksum(path, RESULTS_SCHEMA)
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as problem:
        raise ResultsError(
            f"{path} cannot be read as safetensors: {problem}.\nDelete it and run the same command again: the run is "
            "done again."
        ) from problem


def _scheme(comparison: Comparison, run: RunResult, build: Builds) -> SchemeLike:
    if not run.base:
        raise ResultsError(
            f"results.json does not name the scheme that the run {run.scheme!r}, seed {run.seed}, was built with: it "
            "was written by an earlier whatwhere, whose models cannot be built again, or it was changed.\n"
            "Its scores can still be shown. To ask its models, run the comparison again, into a new folder."
        )
    if run.own:
        return run.base, require_builds(run.base, build, comparison.record.sources, comparison.folder)
    if callable(build):
        raise SettingError(f"the scheme {run.scheme!r} is whatwhere's: leave build out.")
    return run.base


def _require_model(comparison: Comparison, model: BuildModel | None) -> None:
    """Raise unless a model of the caller's own is passed where, and only where, the comparison trained one."""
    own = comparison.record.model
    if own is not None and model is None:
        raise SettingError(
            f"the models of {comparison.folder} were built by {own.name!r}, a function or class of your own, which "
            f"results do not hold: pass it, as in load_model(results, run, model={own.name}); on the command line "
            f"--module FILE.py:{own.name}."
        )
    if own is None and model is not None:
        raise SettingError(f"the models of {comparison.folder} are whatwhere's Transformer: leave model out.")


def _require_sizes(
    path: Path, tensors: dict[str, Tensor], settings: Settings, run: RunResult, tokens: int, model: BuildModel | None
) -> None:
    """Raise where sizes exceed what the file can hold, before something of that size is built."""
    dim, layers, heads, feedforward = settings.dim, settings.layers, settings.heads, settings.feedforward
    numbers = sum(map(torch.numel, tensors.values()))
    needed = max(dim, layers, heads) if model is not None else dim * layers * max(dim, feedforward) + tokens
    if needed > numbers:
        raise _misfit(path, f"it has {numbers} numbers, too few for dim {dim}, {layers} layers and {heads} heads")
    if not 0 < run.max_length <= _MAX_POSITIONS:
        raise _misfit(path, f"the run names {run.max_length} positions")


def _fill(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    own = saved_tensors(model)
    computed = set() if AFTER in own else {AFTER}  # the product of the factors of a table
    saved = {name: tensor for name, tensor in tensors.items() if "@" not in name and name not in computed}
    different = sorted(own.keys() ^ saved.keys())
    different += sorted(name for name in own.keys() & saved.keys() if own[name].shape != saved[name].shape)
    if different:
        raise _misfit(path, f"{different[0]} is not the same in the file and in the model")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(saved[name])


def _misfit(path: Path, what: str) -> ResultsError:
    return ResultsError(
        f"{path} does not fit the settings of its comparison: {what}.\n"
        "The folder was changed, or the scheme was. Run the comparison again, into a new folder."
    )


_SIZES = "blocks.0.feed.0.weight"
_FIXED = ("onehot", "ids")  # tables whose rows are what their name says


class Start(NamedTuple):
    """The file of the kept model that a run starts from, and its record, whose tensors are named when it is loaded."""

    file: Path
    record: StartRecord


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
    record = StartRecord(str(results.folder), scheme, seed, sha256(file.read_bytes()).hexdigest(), (), (), ())
    return Start(file.resolve(), record)


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
    if sha256(start.file.read_bytes()).hexdigest() != start.record.sha256:
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
    return replace(
        start.record,
        loaded=tuple(fitting),
        fresh=tuple(name for name in own if name not in fitting),
        unused=tuple(sorted(kept.keys() - set(fitting))),
    )
