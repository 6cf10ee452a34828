"""Losses and scores of runs as scalars by step, for TensorBoard, Weights & Biases, or a function of your own."""

from collections.abc import Callable, Iterator
from pathlib import Path

from whatwhere.comparison.folder import file_name
from whatwhere.comparison.results import RunResult
from whatwhere.errors import MissingExtra, ResultsError, SettingError

RunLog = Callable[[RunResult], None]
"""What `compare(on_run=...)` calls with each run that it has trained."""


def scalars(run: RunResult) -> Iterator[tuple[str, int, float]]:
    """Yield name, step and value of the losses of a run, then of its scores, at the last step."""
    for step, loss in run.losses:
        yield "loss", step, loss
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
