"""Two comparisons: schemes that were trained side by side, as results.json has them, and two checkpoints."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from whatwhere.errors import ResultsError, SettingError
from whatwhere.studio.api.settings import known, one_of, whole
from whatwhere.studio.jobs import Report
from whatwhere.studio.sources import Source

if TYPE_CHECKING:
    from whatwhere.comparison.page.reading import Results, Spread

_TABLES = ("input", "readout")
_STEPS = 6
_MOST_NAMED = 200


def results(source: Source, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a comparison found, as its results.json says it: scores, shift test, verdicts, and how it was made."""
    known(settings)
    found = source.results
    try:
        return _told(found)
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # a part too deep to be checked before
        raise ResultsError(
            f"{found.folder / 'results.json'} holds a part that cannot be read: {type(error).__name__}: {error}.\n"
            "The file was changed, or made by something else. Run the comparison again, into a new folder."
        ) from error


def difference(source: Source, settings: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Compare the two checkpoints that are open. It is a job, for large tables take a minute.

    Args:
        settings: table ("input", "readout"); k (10), neighbors that are compared; most (20), rows that are named.
    """
    known(settings, "table", "k", "most")
    table, k = one_of(settings, "table", _TABLES), whole(settings, "k", 10, 1, 100)
    most = whole(settings, "most", 20, 0, _MOST_NAMED)
    other = source.other
    if other is None:
        raise SettingError("one file is open, but two are compared.\nOpen both: whatwhere studio A B.")
    from whatwhere.inspection.difference import difference as differ

    steps = iter(range(_STEPS))

    def tell(said: str) -> None:
        report(next(steps, _STEPS - 1) / _STEPS, said)

    # The second time it is only read, whoever asks.
    paths = source.checkpoint.path, other.path
    pickles = "pickle" in (source.checkpoint.format, other.format)  # opened already, by leave of the command
    found: dict[str, Any] = source.once(
        ("difference", table, k, most),
        lambda: differ(*paths, table=table, k=k, most=most, allow_pickle=pickles, tell=tell),
    )
    for name in ("removed", "new"):  # their number stands beside; a list of 100,000 helps nobody
        if isinstance(listed := found["tokens"].get(name), list):
            found = found | {"tokens": found["tokens"] | {name: listed[:_MOST_NAMED], f"{name}_count": len(listed)}}
    return found


def _told(found: "Results") -> dict[str, Any]:
    from whatwhere.comparison.page.answer import answer_seen
    from whatwhere.comparison.page.scores import scores_seen
    from whatwhere.comparison.page.shift import shift_seen
    from whatwhere.page.markup import text_of

    task, schemes = found.task, found.schemes
    places = [*found.trained, *found.beyond]
    groups = ["all", *map(str, task["groups"])]
    seeds = sorted({int(run["seed"]) for run in found.runs})
    return {
        "task": {name: task[name] for name in ("name", "unit", "trained", "measure")}
        | {
            "percent": found.percent,
            "higher": found.higher,
            "groups": groups,
            "shift_length": task.get("shift_length"),
        },
        "schemes": schemes,
        "seeds": seeds,
        "lengths": np.array(places, np.int32),
        "trained": len(found.trained),
        "in_length": _spreads([[found.score(scheme, None)] for scheme in schemes])[:, 0],
        "scores": {g: _spreads([[found.score(s, n, g) for n in places] for s in schemes]) for g in groups},
        "each": _each(found, places, seeds),
        "baselines": _baselines(found, places),
        "shifts": np.array(found.shifts, np.int32),
        "shift": {
            name: _spreads([[found.shift(s, n, name) for n in found.shifts] for s in schemes])
            for name in ("score", "largest_logit_change")
        },
        "costs": [_cost(found, scheme) for scheme in schemes],
        "verdicts": [
            {n: str(row[n]) for n in ("claim", "claimed", "measured", "verdict", "why")}
            for row in found.data["verdicts"]
        ],
        "seen": {
            "answer": text_of(answer_seen(found)),
            "scores": text_of(scores_seen(found)),
            "shift": text_of(shift_seen(found)) if found.shifts else "This run has no shift test.",
        },
        "made": _made(found),
    }


def _spreads(rows: "Sequence[Sequence[Spread | None]]") -> np.ndarray:
    """Give median, least and greatest of each scheme and place; NaN where a scheme has no row."""
    none = (math.nan,) * 3
    return np.array([[none if spread is None else spread for spread in row] for row in rows], np.float64).reshape(
        len(rows), -1, 3
    )


def _each(found: "Results", places: Sequence[int], seeds: Sequence[int]) -> np.ndarray:
    """Give the score of every run, by scheme, seed and length."""
    scores = np.full((len(found.schemes), len(seeds), len(places)), np.nan)
    for run in found.runs:
        if run["scheme"] not in found.schemes:
            continue
        row = scores[found.schemes.index(run["scheme"]), seeds.index(int(run["seed"]))]
        for n, place in enumerate(places):
            value = run["scores"].get(str(place), {}).get("all")
            row[n] = math.nan if value is None else float(value)
    return scores


def _baselines(found: "Results", places: Sequence[int]) -> list[dict[str, Any]]:
    """Give what can be scored without any position; what would press the curves together is not drawn."""
    from whatwhere.comparison.page.baselines import GUESSES, near, read_baselines

    lines = read_baselines(found, list(places))
    drawn = near(lines, [[found.score(scheme, n) for n in places] for scheme in found.schemes], found.percent)
    return [
        {
            "name": name,
            "said": GUESSES.get(name, ""),
            "drawn": name in drawn,
            "values": np.array([math.nan if value is None else value for value in line]),
        }
        for name, line in lines.items()
    ]


def _cost(found: "Results", scheme: str) -> dict[str, Any]:
    from whatwhere.comparison.page.reading import spread

    summary = found.data["summary"][scheme]
    seconds = spread(summary["seconds_per_step"])
    return {
        "parameters": int(summary["parameters"]["total"]),
        "positions": int(summary["parameters"]["positions"]),
        "milliseconds": None if seconds is None else 1000 * seconds[0],
    }


def _made(found: "Results") -> dict[str, Any]:
    data = found.data
    values = {
        **{f"version of {name}": value for name, value in data["versions"].items()},
        **data["machine"],
        "written": data.get("created"),
        "seconds": data.get("seconds"),
        **dict(sorted(data["settings"].items())),
    }
    said = [[str(name), value if isinstance(value, str) else json.dumps(value)] for name, value in values.items()]
    return {"command": str(data.get("command") or ""), "runs": len(found.runs), "settings": said}
