"""Tell what became of the token table: in numbers, beside what the tutorial says of it, and of the ten digits."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.projection import principal_components
from whatwhere.comparison.reading import AFTER, BEFORE, Results, Spread, optional
from whatwhere.comparison.telling.answer import best_scheme
from whatwhere.comparison.telling.wording import plain, spread_cell, spread_of
from whatwhere.page.wording import count

# What the tutorial of this task says about its table of 20 x 64, at 0, 10 and 50 epochs of 50.
_CLAIMS: dict[str, tuple[str, str]] = {
    "mean": ("mean", "about 0 throughout"),
    "std": ("standard deviation", "0.15, then 0.5, then 0.8"),
    "range": ("least and greatest value", "±0.3, then ±1.5, then ±2.5"),
    "sum range": ("the same after adding position", "±1.3 at first, ±3 after training"),
    "Max-Min": ("cosine of Max and Min", "they become similar"),
    "First-Last": ("cosine of First and Last", "not named; operators cluster"),
    "within digits": ("mean cosine within the digits", "digits cluster"),
    "within operators": ("mean cosine within the operators", "operators cluster"),
    "within syntax": ("mean cosine within ( ) and comma", "syntax tokens cluster"),
    "number line": ("digits on a line, |r|", "not mentioned"),
}
_DIGITS = "0123456789"


def table_seen(results: Results) -> str:
    """Say in a sentence what training did to the table; of tasks without a story, for one run of the best scheme."""
    start, end = story_spread(results, 0, "std"), story_spread(results, -1, "std")
    if start is None or end is None:
        return _table_seen(results)
    said = f"Training moved the table's standard deviation from {plain(start[0])} to {plain(end[0])}"
    opposite, line = story_spread(results, -1, "Max-Min"), story_spread(results, -1, "number line")
    if opposite:
        way = "alike" if opposite[0] > 0.3 else "opposites" if opposite[0] < -0.2 else "neither alike nor opposite"
        said += f"; Max and Min ended {way} (cosine {plain(opposite[0], 2)})"
    if line:
        kind = "lie along a line" if line[0] > 0.8 else "do not lie along a line"
        said += f"; what training wrote into the digits makes them {kind} in order (|r| {plain(line[0], 2)})"
    return f"{said}; medians over {count(len(results.runs), 'run')}."


def _table_seen(results: Results) -> str:
    best = best_scheme(results)
    for run in sorted(results.runs, key=lambda run: (run["scheme"] != best, run["seed"])):
        tables = results.tables(run)
        if not {BEFORE, AFTER} <= tables.keys():
            continue
        before, after = tables[BEFORE], tables[AFTER]
        moved = np.linalg.norm(after - before) / (np.linalg.norm(before) or 1.0)
        return (
            f"Training moved the table's standard deviation from {plain(before.std())} to {plain(after.std())}; "
            f"what training wrote is {100 * moved:.0f} % as large as the table that it started from."
        )
    return "No trained table was found."


def story(results: Results) -> dict[str, Any] | None:
    """Give the story in numbers as cells, by share of the steps, each row with what the tutorial says."""
    stories = [run["story"] for run in results.runs if run.get("story")]
    if not stories:
        return None
    at = [int(percent) for percent in stories[0]["at"]]
    rows = [
        [words, *(_story_cell(results, place, name) for place in range(len(at))), claim]
        for name, (words, claim) in _CLAIMS.items()
    ]
    caption = (
        f"The token table after a share of the steps: median over {count(len(stories), 'run')} of all schemes, with "
        "least and greatest. The tutorial's numbers are for 0, 10 and 50 epochs of 50, which is 0, 20 and 100 %."
    )
    return {
        "caption": caption,
        "head": ["what", *(f"at {percent} %" for percent in at), "the tutorial says"],
        "rows": rows,
    }


def _story_cell(results: Results, place: int, name: str) -> str:
    if name not in {"range", "sum range"}:
        found = story_spread(results, place, name)
        return spread_cell(found, digits=2 if "-" in name or " " in name else 3) if found else "\u2013"
    prefix = "sum " if name == "sum range" else ""
    least, greatest = story_spread(results, place, f"{prefix}min"), story_spread(results, place, f"{prefix}max")
    if least is None or greatest is None:
        return "\u2013"
    return f"{plain(least[0], 2)} to {plain(greatest[0], 2)}"


def story_spread(results: Results, place: int, name: str) -> Spread | None:
    """Read one number of the story from every run, at one of its snapshots."""
    return spread_of(_value(run["story"]["snapshots"][place], name) for run in results.runs if run.get("story"))


def _value(snapshot: Mapping[str, Any], name: str) -> float | None:
    if name == "number line":
        return optional(snapshot["number_line"])
    if name.startswith("sum "):
        return optional((snapshot["with_position"] or {}).get(name.removeprefix("sum ")))
    place = "table" if name in {"mean", "std", "min", "max"} else "cosine"
    return optional(snapshot[place].get(name))


def number_lines(results: Results) -> list[tuple[str, Float[np.ndarray, " digits"], float]]:
    """Lay, for the first seed of each scheme, what training wrote into the digits along its first principal axis.

    Gives scheme, places and |r| between digit and place; no scheme whose tables are not there.
    """
    return list(_number_lines(results))


def _number_lines(results: Results) -> Iterator[tuple[str, Float[np.ndarray, " digits"], float]]:
    names = [str(name) for name in results.task["tokens"]]
    digits = [names.index(digit) for digit in _DIGITS if digit in names]
    if len(digits) < len(_DIGITS) or not any(run.get("story") for run in results.runs):
        return
    runs = {run["scheme"]: run for run in first_runs(results)}
    for run in (runs[scheme] for scheme in results.schemes if scheme in runs):
        tables = results.tables(run)
        if not {BEFORE, AFTER} <= tables.keys() or max(digits) >= len(tables[AFTER]):
            continue
        places = principal_components((tables[AFTER] - tables[BEFORE])[digits], 1).coordinates[:, 0]
        # The sign of a principal axis is free: let the greater digits stand to the right.
        r = float(np.corrcoef(places, np.arange(len(digits)))[0, 1]) if np.ptp(places) else 0.0
        yield str(run["scheme"]), -places if r < 0 else places, abs(r)


def first_runs(results: Results) -> list[dict[str, Any]]:
    """Give the run of the first seed of each scheme, the scheme that holds best first."""
    best = best_scheme(results)
    found: dict[str, dict[str, Any]] = {}
    for run in sorted(results.runs, key=lambda run: run["seed"]):
        found.setdefault(run["scheme"], run)
    return [found[scheme] for scheme in sorted(results.schemes, key=lambda name: name != best) if scheme in found]
