"""What can be scored without knowing any position: read, chosen for a chart, and explained."""

import math
from collections.abc import Collection, Sequence

from whatwhere.comparison.reading import Results, Spread, optional

Baselines = dict[str, list[float | None]]

GUESSES = {
    "chance": "a blind guess",
    "always 9 or 0": "9 for every Max, 0 for every Min",
    "order-free ceiling": "the most that is possible for a reader who sees all tokens, but not their order",
    "all bytes alike": "every byte held equally likely",
    "frequency of bytes": "every byte by its share of the training text",
}


def read_baselines(results: Results, places: Sequence[int | None]) -> Baselines:
    """Read the baselines at these places; None is a place that has none."""
    found = {str(name): values for name, values in results.task["baselines"].items()}
    lines = {name: [optional(values.get(str(place))) for place in places] for name, values in found.items()}
    return {name: line for name, line in lines.items() if any(value is not None for value in line)}


def near(baselines: Baselines, series: Sequence[Sequence[Spread | None]], percent: bool) -> Baselines:
    """Keep the baselines that do not press the scores together: all of a fixed scale, else those near a score."""
    found = [v for line in series for s in line if s is not None for v in s if math.isfinite(v)]
    if percent or not found:
        return baselines
    low, high, span = min(found), max(found), max(found) - min(found)
    close = {name for name, line in baselines.items() if all(low - span <= v <= high + span for v in _there(line))}
    return {name: line for name, line in baselines.items() if name in close}


def told(baselines: Baselines, drawn: Collection[str]) -> list[str]:
    """Explain the baselines that a chart shows, from the top, and name those that it does not."""
    names = sorted(baselines, key=lambda name: -_there(baselines[name])[-1])
    words = {name: f"{name} ({GUESSES[name]})" if name in GUESSES else name for name in names}
    parts = []
    shown = [words[name] for name in names if name in drawn]
    if shown:
        top = ", from the top" if len(shown) > 1 else ""
        parts.append(f" Dotted: what can be scored without knowing any position{top}: {'; '.join(shown)}.")
    far = [f"{words[name]}: {_there(baselines[name])[-1]:.3f}" for name in names if name not in drawn]
    if far:
        parts.append(f" Too far away to be drawn: {'; '.join(far)}.")
    return parts


def _there(line: Sequence[float | None]) -> list[float]:
    return [value for value in line if value is not None]
