"""What the page can ask: one file a view, plain functions of a source and settings.

A function takes (source, settings), settings as JSON has them, and gives a dict of numbers, strings and NumPy arrays.
None knows of the server, and none writes a formula anew: these are in analysis.
"""

from collections.abc import Callable, Mapping
from typing import Any

from whatwhere.studio.api import (
    about,
    biases,
    compare,
    distance,
    health,
    overview,
    pipeline,
    positions,
    replay,
    rotary,
    token_map,
    tokens,
    variance,
)
from whatwhere.studio.api.static_tables import Left
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Source

Ask = Callable[[Source, Mapping[str, Any]], Any]
Work = Callable[[Source, Mapping[str, Any], Report], Any]
"""Answers are dataclasses, or dicts."""

QUESTIONS: Mapping[str, Ask] = {
    "about": about.about,
    "schemes.list": positions.schemes,
    "pipeline.read": pipeline.read,
    "pipeline.walk": pipeline.walk,
    "positions.shown": positions.positions,
    "against.shares": variance.shares,
    "tokens.find": tokens.find,
    "tokens.card": tokens.card,
    "tokens.neighbors": tokens.neighbors,
    "tokens.analogy": tokens.analogy,
    "maps.places": token_map.places,
    "maps.labels": token_map.labels,
    "maps.frequencies": token_map.frequencies,
    "maps.near": token_map.near,
    "maps.neighbors": token_map.neighbors,
    "rotary.lab": rotary.lab,
    "distance.curves": distance.curves,
    "biases.shown": biases.shown,
    "compare.results": compare.results,
    "replay.runs": replay.runs,
    "replay.frames": replay.frames,
    "replay.attention": replay.attention,
}
"""By the name that the page calls them by: the file, and the function."""

WORKS: Mapping[str, Work] = {
    "maps.draw": token_map.draw,
    "health.examine": health.examine,
    "overview.inspected": overview.inspected,
    "compare.difference": compare.difference,
    "replay.train": replay.train,
}
"""What takes longer than a reader waits, by name: it is told how to report, and runs as a job."""

FROZEN: Mapping[str, Callable[[Source], Left | None]] = {
    "pipeline": pipeline.left,
    "overview": overview.left,
    "tokens": tokens.left,
    "map": token_map.left,
    "health": health.left,
    "positions": positions.left,
    "against": variance.left,
    "rotary": rotary.left,
    "distance": distance.left,
    "biases": biases.left,
    "compare": compare.left,
    "replay": replay.left,
    "attention": replay.attention_left,
}
"""What a view leaves on a page that is frozen into one file, by the name that the page has for it."""
