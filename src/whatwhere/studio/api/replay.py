"""Runs of a comparison from the inside: the token table step by step, and how far each head looks in the end.

The runs are those of a results folder, or one that is trained here, for as long as it takes to watch.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from whatwhere.analysis.projection import principal_components
from whatwhere.errors import SettingError
from whatwhere.page.markup import visible
from whatwhere.studio.api.settings import known, one_of, text, whole
from whatwhere.studio.api.sheets import Left, Sheet
from whatwhere.studio.jobs import Report
from whatwhere.studio.sources import Source

MOST_STEPS = 800
STEPS = (100, 200, 400, 800)
_LENGTHS = (8, 12, 16, 24, 32)
_TABLES = ("steps", "tables")
_ATTENTION, _EVEN = "attention@", "even@"
MOST_LEFT = 2_000_000
"""Bytes of tables on a frozen page: of a run each, the schemes that hold best first."""
_READ = 256
"""Tokens in a table for readers without JavaScript."""

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
                "scheme": visible(str(run["scheme"])),
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
    trace = source.results.trace(run)
    if set(_TABLES) - trace.keys():
        trace |= _ends(source, run)
    return _frames(run, trace, [str(word) for word in source.results.task["tokens"]])


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


def left(source: Source) -> Left | None:
    """Leave the first run of each scheme on a frozen page, as far as there is room, from the end of the best on."""
    runs_left, room = [], MOST_LEFT
    for name in _first_names(source):
        told = frames(source, {"run": name})
        size = told["frames"]["tables"].nbytes if told["frames"] else 0
        if size <= room:
            room -= size
            runs_left.append(told)
    if not runs_left:
        return None
    best, names = runs_left[0], [told["run"] for told in runs_left]
    asked = [("replay.runs", {}), *(("replay.frames", {"run": name}) for name in names)]
    return Left("Training replay", asked, list(_read(best)), {"run": best["run"]})


def attention_left(source: Source) -> Left | None:
    """Leave the heads of the first run of each scheme on a frozen page."""
    if not (names := _first_names(source)):
        return None
    best, sheets = attention(source, {"run": names[0]}), []
    for each in best["lengths"]:
        layers, heads, _ = each["layers"].shape
        columns = [f"layer {n // heads}, head {n % heads}" for n in range(layers * heads)]
        weights = each["layers"].reshape(layers * heads, -1).T
        rows = [
            (str(back), *("" if np.isnan(v) else f"{v:.4f}" for v in weights[n]))
            for n, back in enumerate(each["distances"].tolist())
            if abs(back) & (abs(back) - 1) == 0  # powers of two
        ]
        caption = f"{best['run']}: mean weight by tokens back, at {each['length']} {best['unit']}"
        sheets.append(Sheet(caption, ("tokens back", *columns), rows))
    asked = [("replay.runs", {}), *(("replay.attention", {"run": name}) for name in names)]
    said = [f"There is no attention to show: {best['missing']}"] if best["missing"] else []
    return Left("Attention by distance", asked, sheets, {"run": names[0]}, said)


def _first_names(source: Source) -> list[str]:
    """Name the run of the first seed of each scheme, the scheme that holds best first; none without a comparison."""
    if source.kind != "results":
        return []
    from whatwhere.comparison.telling.story import first_runs

    return [_name(run) for run in first_runs(source.results)]


def _read(told: Mapping[str, Any]) -> Iterator[Sheet]:
    """Write where the tokens of a run lay at the beginning and at the end, and its loss."""
    found = told["frames"]
    if found is not None:
        shown = [(n, found["planes"][name]["places"]) for name in ("table", "change") for n in (0, -1)]
        head = ("token", "E0, x", "E0, y", "E, x", "E, y", "E − E0, x", "E − E0, y", "length of E0", "length of E")
        shown = [shown[0], shown[1], shown[3]]  # nothing is written at step 0
        ends = found["lengths"][[0, -1]].T
        rows = [
            (word, *(f"{v:.3g}" for v in (*(v for n, places in shown for v in places[n, token]), *ends[token])))
            for token, word in enumerate(told["words"][:_READ])
        ]
        planes = ((name, float(np.sum(found["planes"][name]["share"]))) for name in ("table", "change"))
        shares = " and ".join(
            f"{100 * share:.0f} % of how {'the rows' if name == 'table' else 'the changes'} differ"
            for name, share in planes
        )
        yield Sheet(f"{told['run']}: its tokens on planes", head, rows, [f"The planes hold {shares} at the end."])
    rows = [(f"{step:.0f}", f"{loss:.4g}") for step, loss in zip(told["loss_steps"], told["losses"], strict=True)]
    yield Sheet(f"{told['run']}: cross-entropy of the batch", ("step", "loss"), rows)


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


def _ends(source: Source, run: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Give the table before and after training, which every run keeps, where it has no trace of the steps between."""
    from whatwhere.comparison.reading import AFTER, BEFORE

    tables = source.results.tables(run)
    if {BEFORE, AFTER} - tables.keys():
        return {}
    return {"steps": np.array([0, int(run.get("steps") or 1)]), "tables": np.stack([tables[BEFORE], tables[AFTER]])}


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
        why = "the tables of this run are not in its folder, or hold numbers that are not finite."
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
