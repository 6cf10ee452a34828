"""What the page can ask: one file a view, plain functions of a source and settings.

A function takes (source, settings), settings as JSON has them, and gives a dict of numbers, strings and NumPy arrays.
None knows of the server, and none writes a formula anew: these are in analysis.
"""

from collections.abc import Callable, Mapping
from typing import Any

from whatwhere.studio.api import (
    about,
    against,
    biases,
    compare,
    distance,
    health,
    maps,
    overview,
    pipeline,
    positions,
    replay,
    rotary,
    schemes,
    tokens,
)
from whatwhere.studio.api.sheets import Left
from whatwhere.studio.jobs import Report
from whatwhere.studio.sources import Source

Ask = Callable[[Source, Mapping[str, Any]], dict[str, Any]]
Work = Callable[[Source, Mapping[str, Any], Report], dict[str, Any]]

QUESTIONS: Mapping[str, Ask] = {
    "about": about.about,
    "schemes.list": schemes.schemes,
    "pipeline.read": pipeline.read,
    "pipeline.walk": pipeline.walk,
    "positions.shown": positions.positions,
    "against.shares": against.shares,
    "tokens.find": tokens.find,
    "tokens.card": tokens.card,
    "tokens.neighbors": tokens.neighbors,
    "tokens.analogy": tokens.analogy,
    "maps.places": maps.places,
    "maps.labels": maps.labels,
    "maps.frequencies": maps.frequencies,
    "maps.near": maps.near,
    "maps.neighbors": maps.neighbors,
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
    "maps.draw": maps.draw,
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
    "map": maps.left,
    "health": health.left,
    "positions": positions.left,
    "against": against.left,
    "rotary": rotary.left,
    "distance": distance.left,
    "biases": biases.left,
    "compare": compare.left,
    "replay": replay.left,
    "attention": replay.attention_left,
}
"""What a view leaves on a page that is frozen into one file, by the name that the page has for it."""
