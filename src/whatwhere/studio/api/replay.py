"""Runs of a comparison from the inside: the token table step by step, and how far each head looks in the end.

The runs are those of a results folder, or one that is trained here, for as long as it takes to watch.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from whatwhere.analysis.projection import principal_components
from whatwhere.errors import SettingError
from whatwhere.studio.api.settings import known, one_of, text, whole
from whatwhere.studio.jobs import Report
from whatwhere.studio.sources import Source

MOST_STEPS = 800
STEPS = (100, 200, 400, 800)
_LENGTHS = (8, 12, 16, 24, 32)
_TABLES = ("steps", "tables")
_ATTENTION, _EVEN = "attention@", "even@"

Trace = Mapping[str, np.ndarray]


def runs(source: Source, settings: Mapping[str, Any]) -> dict[str, Any]:
    """List what can be watched: runs of the folder with what each has kept, and schemes that can be trained here."""
    known(settings)
    from whatwhere.where.catalogue import catalogue

    found = [] if source.kind != "results" else source.results.runs
    return {
        "runs": [
            {
                "name": _name(run),
                "scheme": str(run["scheme"]),
                "seed": int(run["seed"]),
                "traced": isinstance(run.get("trace"), str),
            }
            for run in found
        ],
        "schemes": list(catalogue),
        "steps": list(STEPS),
    }


def frames(source: Source, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give the token table of a run at each step that was kept, on planes and a line that are the same for all steps.

    A plane is that of two principal components at the end, so that what moves on it is the tokens, not the axes: of the
    table E, and of what training wrote into it, E - E0. The line is the first such axis of the ten digits' E - E0.

    Args:
        settings: run, as `runs` names it.
    """
    known(settings, "run")
    run = _find(source, text(settings, "run"))
    return _frames(run, source.results.trace(run), [str(word) for word in source.results.task["tokens"]])


def attention(source: Source, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give the mean weight of each head by distance, as measured at the end of a run.

    Args:
        settings: run, as `runs` names it.
    """
    known(settings, "run")
    run = _find(source, text(settings, "run"))
    results = source.results
    both_ways = results.data["settings"].get("direction") == "encoder"
    return _attention(run, results.trace(run), str(results.task["unit"]), both_ways)


def train(source: Source, settings: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Train a small model on the expressions of the first tutorial, in memory, and give both of the above.

    Args:
        settings: scheme, of the catalogue; steps (200); seed (0).
    """
    known(settings, "scheme", "steps", "seed")
    from whatwhere.where.catalogue import catalogue

    scheme = one_of(settings, "scheme", tuple(catalogue), "rotary")
    steps, seed = whole(settings, "steps", 200, 1, MOST_STEPS), whole(settings, "seed", 0, 0, 9)
    return source.once(("trained", scheme, steps, seed), lambda: _trained(scheme, steps, seed, report))


def _trained(scheme: str, steps: int, seed: int, report: Report) -> dict[str, Any]:
    from whatwhere.comparison.run import Job, run
    from whatwhere.comparison.settings import make_settings
    from whatwhere.comparison.tasks import Expressions

    task = Expressions()
    told = make_settings("expressions", _LENGTHS, steps=steps, exam=200, device="cpu")
    report(0.0, "building the model")

    def step(done: int) -> None:
        report(0.9 * done / steps, f"step {done} of {steps}" if done < steps else "measuring")

    found = run(Job(scheme, seed, task, told), step)
    record = found.record
    scores = {length: each["all"] for length, each in record["scores"].items()}
    return {
        "frames": _frames(record, found.trace, list(task.tokens)),
        "attention": _attention(record, found.trace, task.unit),
        "lengths": np.array([int(length) for length in scores], np.int32),
        "scores": np.array([np.nan if value is None else value for value in scores.values()], np.float64),
    }


def _find(source: Source, name: str) -> dict[str, Any]:
    for run in source.results.runs:
        if _name(run) == name:
            return run
    known_names = ", ".join(map(_name, source.results.runs[:4]))
    raise SettingError(f"this comparison has no run {name[:80]!r}; it has {known_names}, ....")


def _name(run: Mapping[str, Any]) -> str:
    """Name a run as its tensors begin, "rotary-0"; one that was trained here has no file."""
    file = run.get("file")
    return PurePosixPath(file).stem if isinstance(file, str) else f"{run['scheme']}-{run['seed']}"


def _frames(run: Mapping[str, Any], trace: Trace, tokens: list[str]) -> dict[str, Any]:
    losses = np.array([pair for pair in run.get("losses") or [] if pair[1] is not None], np.float64).reshape(-1, 2)
    told: dict[str, Any] = {"run": _name(run), "steps_of_run": int(run.get("steps") or 0), "words": tokens}
    told |= {"loss_steps": losses[:, 0], "losses": losses[:, 1], "frames": None}
    if set(_TABLES) - trace.keys() or trace["tables"].ndim != 3 or len(trace["steps"]) != len(trace["tables"]):
        why = "of this run no tables were kept: it was made by an older whatwhere, or its table is too large for it."
        return told | {"missing": why}
    tables = trace["tables"].astype(np.float64)
    if not np.isfinite(tables).all():
        return told | {"missing": "the tables of this run hold numbers that are not finite: the training diverged."}
    told["words"] = [tokens[n] if n < len(tokens) else f"#{n}" for n in range(tables.shape[1])]
    digits = [tokens.index(digit) for digit in "0123456789" if digit in tokens] if run.get("story") else []
    return told | {
        "frames": {
            "steps": trace["steps"].astype(np.int64),
            "tables": tables.astype(np.float32),
            "planes": {"table": _plane(tables), "change": _plane(tables - tables[0])},
            "lengths": np.linalg.norm(tables, axis=2).astype(np.float32),
            "line": _line(tables[:, digits]) if len(digits) == 10 else None,
        }
    }


def _plane(tables: np.ndarray) -> dict[str, Any]:
    plane = principal_components(tables[-1], 2)
    places = (tables - tables[-1].mean(axis=0)) @ plane.axes.T
    return {"places": places.astype(np.float32), "share": plane.share}


def _line(digits: np.ndarray) -> dict[str, Any]:
    """Lay what training wrote into the digits along its first axis at the end, and give |r| of each step's own axis."""
    from whatwhere.comparison.measure import number_line

    moves = digits - digits[0]
    axis = principal_components(moves[-1], 1).axes[0]
    along = (moves - moves.mean(axis=1, keepdims=True)) @ axis
    # The sign of an axis is free: let the greater digits stand to the right.
    if np.corrcoef(along[-1], np.arange(10))[0, 1] < 0:
        along = -along
    straight = [number_line(move) for move in moves]
    return {"along": along, "r": np.array([np.nan if r is None else r for r in straight])}


def _attention(run: Mapping[str, Any], trace: Trace, unit: str, both_ways: bool = False) -> dict[str, Any]:
    names = sorted(
        (name for name in trace if name.startswith(_ATTENTION)), key=lambda name: int(name.partition("@")[2])
    )
    lengths = []
    for name in names:
        curves, length = trace[name], int(name.partition("@")[2])
        even = trace.get(f"{_EVEN}{length}")
        count = curves.shape[2]
        first = (1 - count) // 2 if both_ways else 0
        lengths.append(
            {
                "length": length,
                "distances": np.arange(first, first + count),
                "layers": curves.astype(np.float32),
                "even": None if even is None else even.astype(np.float32),
            }
        )
    why = None if lengths else "of this run no attention was kept: it was made by an older whatwhere."
    return {"run": _name(run), "unit": unit, "lengths": lengths, "missing": why}
