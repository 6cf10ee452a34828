"""The answers of the studio: one file a view, plain functions of a session and settings.

A function takes (session, settings), with settings as JSON has them, and returns a dataclass, of which page_types.py
makes a type of the page. None knows of the server, and none repeats a formula: these are in analysis.
"""

from collections.abc import Callable, Mapping
from typing import Any

from whatwhere.studio.api import (
    about,
    ask,
    biases,
    compare,
    diagnostics,
    distance,
    overview,
    pipeline,
    positions,
    replay,
    rotary,
    runs,
    token_map,
    tokens,
    variance,
)
from whatwhere.studio.api.settings import ExportedView
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Session

Query = Callable[[Session, Mapping[str, Any]], Any]
JobFunction = Callable[[Session, Mapping[str, Any], Report], Any]

QUERIES: Mapping[str, Query] = {
    "about": about.about,
    "schemes.list": positions.schemes,
    "pipeline.read": pipeline.read,
    "pipeline.walk": pipeline.walk,
    "positions.shown": positions.positions,
    "variance.shares": variance.shares,
    "tokens.find": tokens.find,
    "tokens.card": tokens.card,
    "tokens.neighbors": tokens.neighbors,
    "tokens.analogy": tokens.analogy,
    "maps.points": token_map.points,
    "maps.labels": token_map.labels,
    "maps.frequencies": token_map.frequencies,
    "maps.near": token_map.near,
    "maps.neighbors": token_map.neighbors,
    "rotary.lab": rotary.lab,
    "distance.curves": distance.curves,
    "biases.shown": biases.shown,
    "compare.results": compare.results,
    "replay.runs": runs.runs,
    "replay.frames": replay.frames,
    "replay.attention": replay.attention,
    "ask.answers": ask.answers,
    "ask.attention": ask.attention,
}
"""What is answered at once, by the name that the page uses: the view, and the function."""

JOBS: Mapping[str, JobFunction] = {
    "maps.draw": token_map.draw,
    "diagnostics.examine": diagnostics.examine,
    "overview.inspected": overview.inspected,
    "compare.difference": compare.difference,
    "replay.train": replay.train,
}
"""What takes seconds or minutes, by name: it runs as a job, and reports its progress."""

EXPORTS: Mapping[str, Callable[[Session], ExportedView | None]] = {
    "pipeline": pipeline.exported,
    "overview": overview.exported,
    "tokens": tokens.exported,
    "map": token_map.exported,
    "diagnostics": diagnostics.exported,
    "positions": positions.exported,
    "variance": variance.exported,
    "rotary": rotary.exported,
    "distance": distance.exported,
    "biases": biases.exported,
    "compare": compare.exported,
    "replay": replay.exported,
    "attention": replay.exported_attention,
    "ask": ask.exported,
}
"""What an exported page holds of each view, by the view's id."""
