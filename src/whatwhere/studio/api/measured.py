"""What a comparison has measured, as its results.json says it: for the page, and as tables to read."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from whatwhere.comparison.reading import Results, Spread, spread
from whatwhere.comparison.telling import positions, record, wording
from whatwhere.comparison.telling.answer import answer_seen, question
from whatwhere.comparison.telling.baselines import GUESSES, near, read_baselines
from whatwhere.comparison.telling.scores import groups_seen, scores_seen, shift_seen
from whatwhere.comparison.telling.story import number_lines, story, table_seen
from whatwhere.page.markup import visible
from whatwhere.studio.api.sheets import Sheet

_VERDICT = ("claim", "claimed", "measured", "verdict", "why")


def told(found: Results) -> dict[str, Any]:
    """Give all that the view shows."""
    task, schemes = found.task, found.schemes
    places = [*found.trained, *found.beyond]
    groups = {"all": "all"} | {str(group): wording.named(str(group)) for group in task["groups"]}
    seeds = sorted({int(run["seed"]) for run in found.runs})
    curves = positions.by_distance(found)
    return {
        "task": {"name": wording.named(str(task["name"])), "unit": wording.unit_of(found), "trained": task["trained"]}
        | {"measure": wording.named(str(task["measure"])), "scored": wording.measure(found)}
        | {"percent": found.percent, "higher": found.higher, "groups": list(groups.values())}
        | {"shift_length": task.get("shift_length")},
        "schemes": [wording.named(scheme) for scheme in schemes],
        "seeds": seeds,
        "lengths": np.array(places, np.int32),
        "trained": len(found.trained),
        "in_length": _spreads([[found.score(scheme, None)] for scheme in schemes])[:, 0],
        "scores": {
            name: _spreads([[found.score(s, n, group) for n in places] for s in schemes])
            for group, name in groups.items()
        },
        "each": _each(found, places, seeds),
        "baselines": _baselines(found, places),
        "shifts": np.array(found.shifts, np.int32),
        "shift": {
            name: _spreads([[found.shift(s, n, name) for n in found.shifts] for s in schemes])
            for name in ("score", "largest_logit_change")
        },
        "costs": [_cost(found, scheme) for scheme in schemes],
        "story": story(found),
        "lines": [{"scheme": wording.named(name), "along": along, "r": r} for name, along, r in number_lines(found)],
        "fingerprints": positions.fingerprints(found),
        "curves": curves,
        "verdicts": [{n: visible(str(row[n])) for n in _VERDICT} for row in found.data["verdicts"]],
        "seen": {
            "answer": answer_seen(found),
            "question": question(found),
            "scores": scores_seen(found),
            "groups": groups_seen(found),
            "shift": shift_seen(found),
            "table": table_seen(found),
            "doors": positions.doors_seen(found),
            "distance": positions.distance_seen(curves),
            "verdicts": record.verdicts_seen(found),
            "record": record.record_seen(found),
        },
        "made": {
            "command": visible(str(found.data.get("command") or "")),
            "settings": [[visible(cell) for cell in row] for row in record.made(found)],
            "head": list(record.RUNS),
            "runs": record.runs(found),
        },
    }


def sheets(found: Results) -> Iterator[Sheet]:
    """Write all of it as tables, each below the sentence that says what is seen."""
    unit, measure = wording.unit_of(found), wording.measure(found)
    yield _summary(found)
    places = [*found.trained, *found.beyond]
    columns = ("scheme", *map(str, places))
    guesses = read_baselines(found, list(places))
    rows = [_score_row(found, scheme, [found.score(scheme, n) for n in places]) for scheme in found.schemes]
    rows += [
        (name, *("" if v is None else wording.score_cell(found, (v, v, v)) for v in line))
        for name, line in guesses.items()
    ]
    known = [f"{name}: {GUESSES[name]}" for name in guesses if name in GUESSES]
    said = [scores_seen(found), *([f"What can be scored without any position. {'; '.join(known)}."] if known else [])]
    yield Sheet(f"By {unit}: {measure}", columns, rows, said)
    for n, group in enumerate(map(str, found.task["groups"])):
        rows = [_score_row(found, s, [found.score(s, place, group) for place in places]) for s in found.schemes]
        yield Sheet(f"{group} alone, by {unit}: {measure}", columns, rows, [groups_seen(found)] if n == 0 else [])
    yield from _moved(found, measure)
    if (numbers := story(found)) is not None:
        yield Sheet(numbers["caption"], numbers["head"], numbers["rows"], [table_seen(found)])
    if lines := number_lines(found):
        rows = [(name, *(wording.plain(v, 2) for v in along), wording.plain(r, 2)) for name, along, r in lines]
        yield Sheet("The digits on a line: what training wrote into them", ("scheme", *"0123456789", "|r|"), rows)
    yield from _by_distance(found)
    claims = [tuple(str(row[name]) for name in _VERDICT) for row in found.data["verdicts"]]
    head = ("the tutorial says", "its number", "measured here", "verdict", "why")
    yield Sheet("What tutorials claim, beside what was measured", head, claims, [record.verdicts_seen(found)])
    yield Sheet("The runs", record.RUNS, record.runs(found), [record.record_seen(found)])
    command = f"The same command, versions and threads give the same numbers: {found.data.get('command') or ''}"
    yield Sheet("Settings, machine, versions", ("what", "value"), record.made(found), [command])


def _score_row(found: Results, scheme: str, line: Sequence[Spread | None]) -> tuple[str, ...]:
    return wording.named(scheme), *(wording.score_cell(found, each) for each in line)


def _summary(found: Results) -> Sheet:
    head = ["scheme", "in length", *(f"at {n}" for n in found.beyond)]
    head += [*(["moved by 1", "unmoved"] if 1 in found.shifts else [])]
    rows = []
    for scheme in found.schemes:
        row = list(_score_row(found, scheme, [found.score(scheme, n) for n in (None, *found.beyond)]))
        if 1 in found.shifts:
            row += [wording.score_cell(found, found.shift(scheme, shift, "score")) for shift in (1, 0)]
        cost, seconds = _cost(found, scheme), spread(found.data["summary"][scheme]["seconds_per_step"])
        row += [f"{cost['parameters']:,}", f"{cost['positions']:,}", wording.spread_cell(seconds, 1000.0, 1)]
        rows.append(row)
    head += ["parameters", "for position", "ms per step"]
    caption = f"Scores: {wording.measure(found)}; \u201cat\u201d counts {wording.unit_of(found)}"
    return Sheet(caption, head, rows, [question(found)])


def _moved(found: Results, measure: str) -> Iterator[Sheet]:
    if not found.shifts:
        return
    columns = ("scheme", *map(str, found.shifts))
    for name, caption, cell in (
        ("score", f"By how far every position is moved: {measure}", lambda each: wording.score_cell(found, each)),
        ("largest_logit_change", "Largest change of any logit; rounding gives about 0.00001", wording.small_cell),
    ):
        rows = [
            (wording.named(s), *(cell(found.shift(s, shift, name)) for shift in found.shifts)) for s in found.schemes
        ]
        yield Sheet(caption, columns, rows, [shift_seen(found)] if name == "score" else [])


def _by_distance(found: Results) -> Iterator[Sheet]:
    curves = positions.by_distance(found)
    said = [positions.doors_seen(found), positions.distance_seen(curves)]
    for n, each in enumerate(curves):
        cells = zip(each["distances"], *each["values"], strict=True)
        rows = [
            (f"{distance:g}", *("" if math.isnan(v) else wording.plain(v) for v in row)) for distance, *row in cells
        ]
        caption = f"{each['scheme']}: {each['label']}, by distance in tokens"
        yield Sheet(caption, ("distance", *each["names"]), rows, said if n == 0 else [])


def _spreads(rows: Sequence[Sequence[Spread | None]]) -> np.ndarray:
    """Give median, least and greatest of each scheme and place; NaN where a scheme has no row."""
    none = (math.nan,) * 3
    return np.array([[none if spread is None else spread for spread in row] for row in rows], np.float64).reshape(
        len(rows), -1, 3
    )


def _each(found: Results, places: Sequence[int], seeds: Sequence[int]) -> np.ndarray:
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


def _baselines(found: Results, places: Sequence[int]) -> list[dict[str, Any]]:
    """Give what can be scored without any position; what would press the curves together is not drawn."""
    lines = read_baselines(found, list(places))
    drawn = near(lines, [[found.score(scheme, n) for n in places] for scheme in found.schemes], found.percent)
    return [
        {
            "name": wording.named(name),
            "said": GUESSES.get(name, ""),
            "drawn": name in drawn,
            "values": np.array([math.nan if value is None else value for value in line]),
        }
        for name, line in lines.items()
    ]


def _cost(found: Results, scheme: str) -> dict[str, Any]:
    summary = found.data["summary"][scheme]
    seconds = spread(summary["seconds_per_step"])
    return {
        "parameters": int(summary["parameters"]["total"]),
        "positions": int(summary["parameters"]["positions"]),
        "milliseconds": None if seconds is None else 1000 * seconds[0],
    }
