"""The answers of the studio: one file a view, functions of a session and settings, which `query` checks.

They return dataclasses, of which page_types.py makes types of the page. None knows of the server, and none repeats a
formula: these are in analysis.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from whatwhere.studio.api import (
    about,
    ask,
    biases,
    comparison,
    inspection,
    pipeline,
    positions,
    replay,
    rotary,
    token_map,
    tokens,
)
from whatwhere.studio.api.settings import ExportedView
from whatwhere.studio.jobs import Report
from whatwhere.studio.schemes import first_names
from whatwhere.studio.session import Session

Query = Callable[[Session, Mapping[str, Any]], Any]
JobFunction = Callable[[Session, Mapping[str, Any], Report], Any]
Export = Callable[[Session], ExportedView | None]


def _by_run(exported: Export) -> Export:
    """Return an export that of a comparison holds the answers on the first run of each scheme."""

    def view(session: Session) -> ExportedView | None:
        if not session.runs:
            return exported(session)
        views = {name: each for name in first_names(session) if (each := exported(session.of_run(name))) is not None}
        queries = [(query, {**given, "run": name}) for name, each in views.items() for query, given in each.queries]
        return replace(next(iter(views.values())), queries=queries) if views else None

    return view


def _queries() -> Mapping[str, Query]:  # in a circle of imports, mypy knows decorated functions in functions alone
    return {
        "about": about.about,
        "schemes.list": positions.schemes,
        "pipeline.read": pipeline.read,
        "pipeline.walk": pipeline.walk,
        "positions.shown": positions.positions,
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
        "biases.shown": biases.shown,
        "compare.results": comparison.results,
        "replay.frames": replay.frames,
        "replay.attention": replay.attention,
        "ask.answers": ask.answers,
    }


def _jobs() -> Mapping[str, JobFunction]:
    return {
        "maps.draw": token_map.draw,
        "diagnostics.examine": inspection.examine,
        "overview.inspected": inspection.inspected,
        "compare.difference": comparison.difference,
    }


QUERIES = _queries()
"""What is answered at once, by the name that the page uses: the view, and the function."""

JOBS = _jobs()
"""What takes seconds or minutes, by name: it runs as a job, and reports its progress."""

EXPORTS: Mapping[str, Export] = {
    "pipeline": pipeline.exported,
    "overview": _by_run(inspection.exported_overview),
    "tokens": _by_run(tokens.exported),
    "map": _by_run(token_map.exported),
    "diagnostics": _by_run(inspection.exported_diagnostics),
    "positions": positions.exported,
    "rotary": rotary.exported,
    "biases": biases.exported,
    "compare": comparison.exported,
    "replay": replay.exported,
    "attention": replay.exported_attention,
    "ask": ask.exported,
}
"""What an exported page holds of each view, by the view's id."""
