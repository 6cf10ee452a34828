"""Write the story of the token table in numbers, beside what the tutorial says of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from whatwhere.analysis.projection import principal_components
from whatwhere.comparison.page.figures import number_line
from whatwhere.comparison.page.reading import AFTER, BEFORE, Results, Spread, optional
from whatwhere.comparison.page.wording import spread_cell, spread_of
from whatwhere.page.markup import Markup, element, folded, join, paragraph, table
from whatwhere.page.wording import code, count, plain

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


def number_lines(results: Results) -> list[Markup]:
    """Draw, for each scheme, the digits along the first principal axis of what training wrote into them."""
    names = [str(name) for name in results.task["tokens"]]
    digits = [names.index(digit) for digit in "0123456789" if digit in names]
    if len(digits) < 10 or not any(run.get("story") for run in results.runs):
        return []
    figures, rows = [], []
    for index, scheme in enumerate(results.schemes):
        runs = sorted((run for run in results.runs if run["scheme"] == scheme), key=lambda run: run["seed"])
        tables = results.tables(runs[0]) if runs else {}
        if not {BEFORE, AFTER} <= tables.keys() or max(digits) >= len(tables[AFTER]):
            continue
        places = principal_components((tables[AFTER] - tables[BEFORE])[digits], 1).coordinates[:, 0]
        # The sign of a principal axis is free: let the greater digits stand to the right.
        r = float(np.corrcoef(places, np.arange(10))[0, 1]) if np.ptp(places) else 0.0
        places = -places if r < 0 else places
        drawn = number_line(
            f"digits-{index}", places, list("0123456789"), texts=(f"Digits on a line, {scheme}", f"|r| {abs(r):.2f}")
        )
        caption = element("figcaption", element("b", code(scheme)), element("span", f"|r| {abs(r):.2f}"))
        figures.append(element("figure", caption, drawn))
        rows.append([code(scheme), *(plain(float(place), 2) for place in places), plain(abs(r), 2)])
    if not figures:
        return []
    told = "Coordinate of each digit along its first principal axis, first seed."
    return [
        element("h3", "The digits on a line"),
        paragraph(
            "Nobody tells the model that 3 lies between 2 and 4. Here the change E \u2212 E0 of the ten digit rows is "
            "laid along its first principal axis, for the first seed of each scheme; |r| is 1 where the digits stand "
            "in order and evenly."
        ),
        element("div", *figures, class_="lines"),
        folded("The numbers of these figures", table(told, ["scheme", *"0123456789", "|r|"], rows)),
    ]


def story(results: Results) -> list[Markup]:
    """Write the story in numbers, beside what the tutorial says."""
    stories = [run["story"] for run in results.runs if run.get("story")]
    if not stories:
        return []
    at = [int(percent) for percent in stories[0]["at"]]
    rows = []
    for name, (words, claim) in _CLAIMS.items():
        cells = [_story_cell(results, place, name) for place in range(len(at))]
        rows.append([words, *cells, element("span", claim)])
    head = ["what", *(f"at {percent} %" for percent in at), "the tutorial says"]
    runs = count(len(stories), "run")
    caption = (
        f"The token table after a share of the steps: median over {runs} of all schemes, with least and greatest. "
        "The tutorial's numbers are for 0, 10 and 50 epochs of 50, which is 0, 20 and 100 %."
    )
    return [element("h3", "The story in numbers"), table(caption, head, rows, "told")]


def _story_cell(results: Results, place: int, name: str) -> Markup:
    if name not in {"range", "sum range"}:
        found = story_spread(results, place, name)
        return spread_cell(found, digits=2 if "-" in name or " " in name else 3) if found else element("span", "\u2013")
    prefix = "sum " if name == "sum range" else ""
    least, greatest = story_spread(results, place, f"{prefix}min"), story_spread(results, place, f"{prefix}max")
    if least is None or greatest is None:
        return element("span", "\u2013")
    return join(f"{plain(least[0], 2)} to {plain(greatest[0], 2)}")


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
