"""One run: one scheme, one seed, trained and measured. It is what an executor is handed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.analysis.similarity import by_distance, fingerprint
from whatwhere.comparison import measure, trace, train
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.settings import SchemeLike, Settings, name_of
from whatwhere.comparison.tasks import Task
from whatwhere.errors import PositionError
from whatwhere.kernels.matmul import Route, routed
from whatwhere.where.binding import Where

STOP = "stop"
_TELL_EVERY = 0.3  # seconds


class Stopped(Exception):
    """The comparison was interrupted; this run ends without a result."""


@dataclass(frozen=True, eq=False)
class Job:
    """Say what to run.

    Args:
        channel: a file that takes the number of steps done; a file `stop` beside it ends the run. None where the
            executor shares no disk.
        route: how float32 products are computed, the same for all runs of a comparison.
    """

    scheme: SchemeLike
    seed: int
    task: Task
    settings: Settings
    channel: Path | None = None
    route: Route = "default"


@dataclass(frozen=True, eq=False)
class Run:
    """Hold what a run found.

    Args:
        record: as `results.json` has it.
        tensors: the trained input layer, and the token table before and after a fifth of the training.
        drawing: fingerprint and similarity by distance of the trained scheme.
        trace: the token table through the training, and attention by distance after it.
    """

    record: dict[str, Any]
    tensors: dict[str, np.ndarray]
    drawing: dict[str, Any]
    trace: dict[str, np.ndarray]


def run(job: Job, told: Callable[[int], None] | None = None) -> Run:
    """Train and measure, on one thread.

    Args:
        told: called after each step with the number of steps done; it may raise to stop. None tells the job's channel.
    """
    with train.one_thread(), routed(job.route) as taken:
        return _run(job, taken, told or _teller(job.channel))


def _run(job: Job, route: Route, told: Callable[[int], None]) -> Run:
    began = time.perf_counter()
    task, settings = job.task, job.settings
    model = train.build(job.scheme, job.seed, task, settings)
    tables: list[Any] = []

    def look(model: Transformer) -> object:
        tables.append(model.input.tokens.weight.detach().float().cpu().clone())
        return measure.table_story(model, task, settings, tables[0] if len(tables) > 1 else None)

    recorder = trace.Recorder(model.input.tokens.weight, settings.steps)

    def tick(step: int) -> None:
        recorder.see(step, model.input.tokens.weight)
        told(step)

    trained = train.train(model, job.seed, task, settings, look, tick)
    lengths = sorted({*task.tested_in_length, *settings.lengths})
    by_length = {str(length): measure.scores(model, task, length, settings) for length in lengths}
    looks = [{"percent": percent, **found} for percent, found in trained.looks.items() if isinstance(found, dict)]
    record = {
        "scheme": name_of(job.scheme),
        "seed": job.seed,
        "parameters": _count(model),
        "steps": settings.steps,
        "products": route,
        "seconds": time.perf_counter() - began,
        "seconds_per_step": trained.seconds / settings.steps,
        "losses": [list(pair) for pair in trained.losses],
        "scores": by_length,
        "in_length": measure.in_length(by_length, task),
        "shift": measure.shift_test(model, task, settings),
        "story": {"at": list(trained.looks), "snapshots": looks} if looks else None,
    }
    traced = recorder.tensors() | trace.attention(model, task, settings)
    drawing = draw(model.layer_wheres[0], task, settings)
    return Run(record, _tensors(model, tables, list(trained.looks)), drawing, traced)


def draw(where: Where, task: Task, settings: Settings) -> dict[str, Any]:
    """Give what the report shows of a scheme: its doors, what a position looks like, how it sees distance."""
    where = where.cpu()
    rows = task.token_count(max(*task.trained, *settings.lengths, 1))
    try:
        seen, curves = fingerprint(where, rows), by_distance(where, rows)
    except PositionError:  # a table of positions ends where training did
        rows = task.token_count(max(task.trained))
        seen, curves = fingerprint(where, rows), by_distance(where, rows)
    return {
        "door": [door for door in ("input", "query_key", "score") if getattr(where, door) is not None],
        "fingerprint": None if seen is None else {"label": seen.label, "values": seen.values.tolist()},
        "by_distance": None
        if curves is None
        else {
            "label": curves.label,
            "distances": list(range(rows)),
            "curves": {name: curve.tolist() for name, curve in curves.curves.items()},
        },
    }


def _teller(channel: Path | None) -> Callable[[int], None]:
    told = 0.0

    def tick(step: int) -> None:
        nonlocal told
        now = time.monotonic()
        if channel is None or now - told < _TELL_EVERY:
            return
        told = now
        if (channel.parent / STOP).exists():
            raise Stopped
        unfinished = channel.with_suffix(".part")
        try:
            unfinished.write_text(str(step))
            unfinished.replace(channel)
        except OSError:
            return  # a display that lags is no reason to lose a run

    return tick


def _count(model: Transformer) -> dict[str, int]:
    positions = sum(p.numel() for p in model.wheres.parameters())
    return {
        "total": sum(p.numel() for p in model.parameters()),
        "tokens": model.input.tokens.weight.numel(),
        "positions": positions,
    }


def _tensors(model: Transformer, tables: list[Any], percents: list[int]) -> dict[str, np.ndarray]:
    tensors = {name: value.detach().float().cpu().numpy() for name, value in model.input.state_dict().items()}
    snapshots = zip(tables, percents, strict=True)
    return tensors | {f"tokens.weight@{percent}": table.numpy() for table, percent in snapshots if percent < 100}
