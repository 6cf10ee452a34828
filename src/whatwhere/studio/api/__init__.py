"""The answers of the studio: a file for each view or some, functions of a session and settings that `query` checks and
names; here what is open, which views look at it, and what an exported page holds of each.

They return dataclasses, of which page_types.py makes types of the page. None knows of the server, and none repeats a
formula: these are in analysis.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whatwhere.analysis.token_map import MINIMUM_ROWS
from whatwhere.studio.api import ask, biases, findings, pipeline, positions, replay, rotary, token_map, tokens
from whatwhere.studio.api.settings import JOBS, QUERIES, ExportedView, Which, query
from whatwhere.studio.schemes import first_names, has_own, titles, used_doors
from whatwhere.studio.session import Kind, Session

__all__ = ["EXPORTS", "JOBS", "QUERIES", "VIEWS", "View", "about", "views"]


@dataclass(frozen=True)
class TableHeader:
    """A token table as the header of its file describes it."""

    name: str
    rows: int
    dim: int
    dtype: str


Group = Literal["Models", "Tokens", "Positions", "Training"]


@dataclass(frozen=True)
class View:
    """A view of the page: the group of its tab, its heading, what it answers, and whether it looks at one run."""

    group: Group
    title: str
    question: str
    by_run: bool = True


VIEWS: Mapping[str, View] = {
    "compare": View("Models", "Compare", "Which scheme holds beyond the trained length? How do models differ?", False),
    "ask": View("Models", "Ask", "What do trained models answer and attend to, and do positions matter?", False),
    "overview": View("Models", "Overview", "What is wrong here, what are the tokens, and how are positions encoded?"),
    "pipeline": View("Models", "Pipeline", "How does a text become vectors and attention scores?"),
    "tokens": View("Tokens", "Token card", "What is a token, what is its norm, and which tokens are near?"),
    "map": View("Tokens", "Token map", "How are all tokens arranged, and how much of that does a plane keep?"),
    "diagnostics": View("Tokens", "Diagnostics", "Which tokens look under-trained or unreachable, which rows faulty?"),
    "positions": View("Positions", "Positions", "What is the vector or bias of each position, and which are similar?"),
    "rotary": View("Positions", "Rotary lab", "How far is each pair rotated, and what does a scaling change?", False),
    "biases": View("Positions", "Biases", "What do positions add to scores, and how far does each head attend?", False),
    "training": View("Training", "Training", "How fast does each run of this comparison learn?", False),
    "replay": View("Training", "Training replay", "How does training change the token table and the loss, by step?"),
    "attention": View("Training", "Attention by distance", "How much does each head attend at each distance?"),
}
"""By their names in the address, in the order of their tabs; the page opens on the first that has something to show."""


@dataclass(frozen=True)
class About:
    """What is open."""

    kind: Kind
    name: str
    path: str  # of the file or folder; "" where nothing was opened, and in an exported page
    format: str
    model: str | None
    tables: Mapping[Which, TableHeader]
    guessed: bool  # whether the token table was chosen by its size, for no name is known
    positions: Sequence[int] | None
    begin: Mapping[str, Mapping[str, str | int | float | bool]]  # settings that views begin with, by the view's name
    views: Mapping[str, View]
    own: bool  # whether the file itself describes positions, by a configuration or a table
    runs: Sequence[str]  # of a comparison, such as "rotary-0"; on an exported page those of which it holds something
    run_titles: Sequence[str]
    run: str  # which views begin with
    other: str | None  # the path of a second checkpoint, which the first is compared with
    examples: Sequence[str]
    analogy: Sequence[str]
    exported: bool = False


@query("about")
def about(session: Session) -> About:
    """Describe what is open by the headers of its files alone."""
    checkpoint = session.checkpoint
    positions_name = checkpoint.position_table
    model = (checkpoint.config or {}).get("model_type")
    return About(
        kind=session.kind,
        name=session.name,
        path="" if session.kind == "fresh" else str(checkpoint.path),
        format=checkpoint.format,
        model=model if isinstance(model, str) else None,
        tables=_tables(session),
        guessed=checkpoint.names.guessed,
        positions=None if positions_name is None or session.runs else checkpoint.entry(positions_name).shape,
        begin={
            "pipeline": pipeline.begin(session),
            "positions": positions.begin(session),
            "map": token_map.begin(session),
            "ask": ask.begin(session),
        },
        views=views(session),
        own=has_own(session),
        runs=session.runs,
        run_titles=titles(session),
        run=session.run,
        other=None if session.other is None else str(session.other.path),
        examples=tokens.examples(session),
        analogy=tokens.usual_analogy(session),
    )


def views(session: Session) -> dict[str, View]:
    """Return the views that have something to show of what is open, in their order."""
    results, table = session.kind == "results", bool(session.tables)
    doors = used_doors(session)
    shown = {
        "compare": results or session.other is not None,
        "ask": ask.cannot_ask(session) is None,
        "overview": table or session.kind == "checkpoint",
        "pipeline": session.kind != "training",
        "tokens": table,
        "map": table and _tables(session)["input"].rows >= MINIMUM_ROWS["pca"],
        "diagnostics": table,
        "positions": has_own(session) or bool(session.runs) or session.kind == "fresh",
        "rotary": "query_key" in doors,
        "biases": "score" in doors,
        "training": session.kind == "training",
        "replay": results,
        "attention": results,
    }
    # A table of random numbers has nothing to report: it begins with what can be tried on it.
    first = ["pipeline"] if session.kind == "fresh" else []
    return {name: VIEWS[name] for name in [*first, *VIEWS] if shown[name]}


def _tables(session: Session) -> dict[Which, TableHeader]:
    named = {"input": session.checkpoint.token_table, "output": session.checkpoint.output_projection}
    entries = {which: session.checkpoint.entry(named[which]) for which in session.tables}
    return {n: TableHeader(each.name, each.shape[0], each.shape[1], each.dtype) for n, each in entries.items()}


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


EXPORTS: Mapping[str, Export] = {
    "pipeline": pipeline.exported,
    "overview": _by_run(findings.exported_overview),
    "tokens": _by_run(tokens.exported),
    "map": _by_run(token_map.exported),
    "diagnostics": _by_run(findings.exported_diagnostics),
    "positions": positions.exported,
    "rotary": rotary.exported,
    "biases": biases.exported,
    "compare": findings.exported_comparison,
    "training": replay.exported_training,
    "replay": replay.exported,
    "attention": replay.exported_attention,
    "ask": ask.exported,
}
"""What an exported page holds of each view, by the view's id."""
