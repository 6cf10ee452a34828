"""About: what is open, for the header of the page and for the choice of views."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whatwhere.analysis.token_map import MINIMUM_ROWS
from whatwhere.studio.api import ask, pipeline, positions, token_map, tokens
from whatwhere.studio.api.settings import Which, query
from whatwhere.studio.schemes import has_own, titles, used_doors
from whatwhere.studio.session import Kind, Session


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
        views: those that have something to show, by name, in their order; the first is opened.
        own: whether the file itself describes positions, by a configuration or a table.
        runs: of a comparison, such as "rotary-0"; on an exported page those of which it holds something.
        run: the one that views begin with; "" where there are none.
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


@query
def about(session: Session) -> About:
    """Return what is open, by the headers of its files alone."""
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
