"""One run: one scheme, one seed, trained and measured. It is the unit of work of an executor."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from whatwhere.analysis.position_similarity import by_distance, fingerprint
from whatwhere.atomic import write_atomic
from whatwhere.comparison import measure, train
from whatwhere.comparison.model import ComparedModel, SchemeLike, Transformer, name_of, table_rows
from whatwhere.comparison.own_model import BuildModel
from whatwhere.comparison.read import AFTER
from whatwhere.comparison.results import (
    DistanceCurves,
    Fingerprint,
    LossesSoFar,
    ParameterCount,
    RunResult,
    SchemeView,
    TableSnapshot,
    versions,
)
from whatwhere.comparison.saved_model import Start, load_start, saved_tensors
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Task, Text
from whatwhere.errors import PositionError, SettingError
from whatwhere.records import to_json
from whatwhere.where.binding import Where
from whatwhere.where.catalogue import Scalar

STOP = "stop"
_REPORT_EVERY = 0.3  # seconds
HELD_OUT = 10  # how many times a run measures its held-out loss, beside the one before training

OnStep = Callable[[int, float | None], None]  # called with the steps done and the last held-out loss


class Stopped(Exception):
    """The comparison was interrupted; this run ends without a result."""


@dataclass(frozen=True, eq=False)
class Job:
    """What to run: all that a process on any machine needs."""

    scheme: SchemeLike
    seed: int
    task: Task
    settings: Settings
    label: str = ""  # name of the results; "" is that of the scheme
    varied: Mapping[str, Scalar] = field(default_factory=dict)  # what differs from the settings of the comparison
    start: Start | None = None
    model: BuildModel | None = None
    # A file that receives the steps done and the held-out loss. A file `stop` beside it ends the run, and so does the
    # removal of the folder.
    channel: Path | None = None
    versions: Mapping[str, str] | None = None  # of packages, where the comparison began; None allows any

    @property
    def name(self) -> str:
        """The name of its results."""
        return self.label or name_of(self.scheme)


@dataclass(frozen=True, eq=False)
class Run:
    """The outcome of a run: its result, the trained model with earlier token tables, its scheme, and its trace."""

    result: RunResult
    tensors: Mapping[str, np.ndarray]
    view: SchemeView
    trace: Mapping[str, np.ndarray]


def run(job: Job, on_step: OnStep | None = None) -> Run:
    """Train and measure, on one thread."""
    with train.one_thread(), train.deterministic(job.settings.deterministic):
        return _run(job, on_step or _channel_writer(job.channel))


def _run(job: Job, on_step: OnStep) -> Run:
    task, settings = job.task, job.settings
    _require_versions(job.versions)
    if isinstance(task, Text):
        task.check()  # before the clock starts
    began = time.perf_counter()
    model = train.build(job.scheme, job.seed, task, settings, job.model)
    started = None if job.start is None else load_start(model, job.start, settings)
    steps, tables, recorded = settings.steps, dict[int, Tensor](), dict[int, np.ndarray]()
    snapshots: list[TableSnapshot] = []
    losses: list[tuple[int, float]] = []
    to_record = measure.recorded_steps(model.token_table, steps)
    validation, held_out = measure.validation_sets(task, settings), list[tuple[int, float]]()
    to_validate = {round(steps * n / HELD_OUT) for n in range(HELD_OUT + 1)} if validation else ()

    def watch(step: int) -> None:
        """Keep and describe the token table: before training, after a fifth of the steps, after all."""
        percents = [0] if step == 0 else [20] if step == round(steps / 5) else []
        percents += [100] if step == steps else []
        if percents and step:
            train.require_finite_weights(model, step, settings)
        if (table := model.token_table) is not None:
            if step in to_record:
                recorded[step] = table.detach().float().cpu().numpy().copy()
            for percent in percents:
                initial = tables.get(0)
                tables[percent] = table.detach().float().cpu().clone()
                snapshot = measure.table_snapshot(model, task, settings, percent, initial)
                snapshots.extend([] if snapshot is None else [snapshot])
        if step in to_validate:
            held_out.append((step, measure.held_out_loss(model, validation, settings)))
        if step:
            on_step(step, held_out[-1][1] if held_out else None)
            if job.channel is not None and losses[-1:] and losses[-1][0] == step:
                write_losses(job.channel, LossesSoFar(job.name, job.seed, steps, tuple(losses), False, tuple(held_out)))

    trained = train.train(model, job.seed, task, settings, watch, losses)
    lengths = sorted({*task.tested_in_length, *settings.lengths})
    scores = {length: measure.scores(model, task, length, settings) for length in lengths}
    result = RunResult(
        scheme=job.name,
        seed=job.seed,
        parameters=_parameters(model),
        steps=steps,
        losses=trained.losses,
        held_out=tuple(held_out),
        scores=scores,
        in_length=measure.in_length(scores, task),
        shift=measure.shift_test(model, task, settings),
        token_table=tuple(snapshots),
        max_length=table_rows(settings, task),
        base=name_of(job.scheme),
        varied=job.varied,
        start=started,
        own=not isinstance(job.scheme, str),
        seconds=time.perf_counter() - began,
        seconds_per_step=trained.seconds / max(1, steps),
    )
    trace = {}
    if recorded:
        trace = {measure.STEPS: np.array(list(recorded), np.int64), measure.TABLES: np.stack(list(recorded.values()))}
    if isinstance(model, Transformer):  # of other models nobody knows where attention is
        trace |= measure.attention(model, task, settings)
    return Run(result, _tensors(model, tables), view_of(model.layer_wheres[0], task, settings), trace)


def _require_versions(expected: Mapping[str, str] | None) -> None:
    """Raise SettingError where a worker would compute other numbers than the one that collects them says."""
    for name, version in (expected or {}).items():
        if (here := versions().get(name)) != version:
            raise SettingError(
                f"this worker has {name} {here}, but the comparison began with {version}: numbers could differ.\n"
                "Install the same versions where workers run."
            )


def view_of(where: Where, task: Task, settings: Settings) -> SchemeView:
    """Describe a scheme: its doors, what it assigns to a position, and what it makes of a distance."""
    where = where.cpu()
    rows = task.token_count(max(*task.trained, *settings.lengths, 1))
    try:
        values, curves = fingerprint(where, rows), by_distance(where, rows)
    except PositionError:  # a learned table ends with the trained length
        rows = task.token_count(max(task.trained))
        values, curves = fingerprint(where, rows), by_distance(where, rows)
    return SchemeView(
        doors=tuple(door for door in ("input", "query_key", "score") if getattr(where, door) is not None),
        fingerprint=None if values is None else Fingerprint(values.label, tuple(map(_row, values.values))),
        by_distance=None
        if curves is None
        else DistanceCurves(
            curves.label, tuple(range(rows)), {name: _row(curve) for name, curve in curves.curves.items()}
        ),
    )


def _row(values: Tensor) -> tuple[float | None, ...]:
    # A bias of minus infinity, as of a window, has no form in JSON.
    return tuple(value if np.isfinite(value) else None for value in values.tolist())


def _channel_writer(channel: Path | None) -> OnStep:
    """Return a function that writes the steps done, and ends the run where nobody waits for it any more."""
    written, seen = 0.0, False

    def write(step: int, loss: float | None = None) -> None:
        nonlocal written, seen
        now = time.monotonic()
        if channel is None or now - written < _REPORT_EVERY:
            return
        written = now
        # Whoever would read the result removes the folder when they end.
        if (channel.parent / STOP).exists() or (seen and not channel.parent.exists()):
            raise Stopped
        seen = seen or channel.parent.exists()
        try:
            write_atomic(channel, str(step) if loss is None else f"{step} {loss}", sync=False, follow=False)
        except OSError:
            return  # a display that lags is no reason to lose a run

    return write


def write_losses(channel: Path, *runs: LossesSoFar) -> None:
    """Write losses of runs beside the steps, for who looks at the folder while it trains."""
    with suppress(OSError):
        write_atomic(channel.with_suffix(".json"), json.dumps(to_json(runs, None)), sync=False, follow=False)


def _parameters(model: ComparedModel) -> ParameterCount:
    tokens = _learned(model.input.tokens) if isinstance(model, Transformer) else None
    if tokens is None and (table := model.token_table) is not None:
        tokens = table.numel() if table.requires_grad else 0
    return ParameterCount(
        total=_learned(model),
        tokens=tokens,
        positions=_learned(model.wheres),
    )


def _learned(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def _tensors(model: ComparedModel, tables: Mapping[int, Tensor]) -> dict[str, np.ndarray]:
    tensors = {name: value.detach().cpu().numpy() for name, value in saved_tensors(model).items()}
    if (table := model.token_table) is not None:
        tensors[AFTER] = table.detach().cpu().numpy()  # of a table of low rank, the product
    return tensors | {f"{AFTER}@{n}": table.numpy() for n, table in tables.items() if n < 100}
