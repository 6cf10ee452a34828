"""The answers of the studio: a file for each view or some, functions of a session and settings that `query` checks and
names; here what is open, which views look at it, and what an exported page holds of each.

They return dataclasses, of which page_types.py makes types of the page. None knows of the server, and none repeats a
formula: these are in analysis.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class View:
    """A view of the page: its heading, what it answers, and whether it looks at one run of a comparison."""

    title: str
    question: str
    by_run: bool = False


_WHOLE = ("compare", "rotary", "biases", "ask")
VIEWS: Mapping[str, View] = {
    name: View(title, question, name not in _WHOLE)
    for name, title, question in (
        (
            "compare",
            "Compare",
            "Which positional encoding holds beyond the trained length, or how do checkpoints differ?",
        ),
        ("pipeline", "Pipeline", "How does a text become vectors and attention scores, by its tokens and positions?"),
        ("overview", "Overview", "What are the tokens of this file, and how does the model encode positions?"),
        ("tokens", "Token card", "What is a token, what is the norm of its vector, and which tokens are near it?"),
        ("map", "Token map", "How are all tokens arranged, and how much of that does a map in two dimensions keep?"),
        (
            "diagnostics",
            "Diagnostics",
            "Which tokens look under-trained, which are unreachable, and which rows are faulty?",
        ),
        ("positions", "Positions", "What is the vector or bias of each position, which are similar, and on what path?"),
        ("rotary", "Rotary lab", "How many rotations does each pair make, and what does a scaling change?"),
        ("biases", "Biases", "What do positions add to the attention scores, and how far does each head attend?"),
        ("replay", "Training replay", "How does training change the token table and the loss, step by step?"),
        ("attention", "Attention by distance", "How much attention does each head of a trained model pay by distance?"),
        ("ask", "Ask", "What do trained models answer, what does each head attend to, and do positions matter?"),
    )
}
"""By their names in the address."""


@dataclass(frozen=True)
class About:
    """What is open.

    Args:
        path: of the file or folder; "" where nothing was opened, and in an exported page.
        guessed: whether the token table was chosen by its size, for no name is known.
        begin: the settings that some views begin with, by the names of the views.
        own: whether the file itself describes positions, by a configuration or a table.
        runs, run: of a comparison, such as "rotary-0", and the one that views begin with; on an exported page those of
            which it holds something.
        other: the path of a second checkpoint, which the first is compared with.
    """

    kind: Kind
    name: str
    path: str
    format: str
    model: str | None
    tables: Mapping[Which, TableHeader]
    guessed: bool
    positions: Sequence[int] | None
    begin: Mapping[str, Mapping[str, str | int | float | bool]]
    views: Mapping[str, View]
    own: bool
    runs: Sequence[str]
    run_titles: Sequence[str]
    run: str
    other: str | None
    tokenizer: bool
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
        tokenizer=session.tokenizer is not None,
        examples=tokens.examples(session),
        analogy=tokens.usual_analogy(session),
    )


def views(session: Session) -> dict[str, View]:
    """Return the views that have something to show of what is open, in their order."""
    results, table, own = session.kind == "results", bool(session.tables), has_own(session)
    doors = used_doors(session)
    shown = {
        "compare": results,
        "pipeline": True,
        "overview": table or session.kind == "checkpoint",
        "tokens": table,
        "map": table and _tables(session)["input"].rows >= MINIMUM_ROWS["pca"],
        "diagnostics": table,
        "positions": own or bool(session.runs) or session.kind == "fresh",
        "rotary": "query_key" in doors and not results,
        "biases": "score" in doors,
        "replay": results,
        "attention": results,
        "ask": ask.cannot_ask(session) is None,
    }
    names = [name for name, some in shown.items() if some]
    names += [] if session.other is None or results else ["compare"]
    return {name: VIEWS[name] for name in names}


def _tables(session: Session) -> dict[Which, TableHeader]:
    checkpoint = session.checkpoint
    names: dict[Which, str | None] = {"input": checkpoint.token_table, "output": checkpoint.output_projection}
    entries = {
        which: checkpoint.entry(name) for which, name in names.items() if which in session.tables and name is not None
    }
    return {
        which: TableHeader(entry.name, entry.shape[0], entry.shape[1], entry.dtype) for which, entry in entries.items()
    }


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
    "replay": replay.exported,
    "attention": replay.exported_attention,
    "ask": ask.exported,
}
"""What an exported page holds of each view, by the view's id."""
