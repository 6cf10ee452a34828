"""neighbors, analogy and similarity: compare the rows of a token table."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from whatwhere.cli.app import AsJson, app, exit_on_error
from whatwhere.errors import SettingError, TextError
from whatwhere.escape import visible
from whatwhere.report.terminal import new_console, new_table, progress

if TYPE_CHECKING:
    from rich.console import Console

    from whatwhere.analysis.nearest_neighbors import Metric, Nearest, Search
    from whatwhere.analysis.word_benchmarks import Rule
    from whatwhere.models.checkpoint import Checkpoint
    from whatwhere.models.checkpoint.lookup import Table

Model = Annotated[Path, typer.Argument(help="File or folder of a model, in any format.")]
Token = typer.Argument(help="Token by its text, or by its id as in '#123'.")
Count = Annotated[int, typer.Option("-k", help="Number of results.", min=1)]
Centered = Annotated[bool, typer.Option("--centered", help="Subtract the mean embedding first.")]
Which = Annotated[str, typer.Option(help="Table: input, output (lm_head), or the name of a tensor.")]
Pickles = Annotated[
    bool, typer.Option("--allow-pickle", help="Read pickles too, which can run code: only if you trust the author.")
]


@app.command()
@exit_on_error
def neighbors(
    path: Model,
    tokens: Annotated[list[str], Token],
    k: Count = 10,
    metric: Annotated[str, typer.Option(help="Metric: cosine, dot or euclidean.")] = "cosine",
    centered: Centered = False,
    table: Which = "input",
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Print the nearest neighbors of tokens: exact, in all dimensions.

    Example: whatwhere neighbors path/to/model king paris -k 5
    """
    from whatwhere.analysis.nearest_neighbors import Search

    with progress() as show:
        checkpoint, matrix = _read(path, table, allow_pickle)
        rows = _rows(checkpoint, matrix, tokens)
        show("searching")
        search = Search(matrix.weight, cast("Metric", metric), centered)
        near = search.nearest(matrix.weight[rows], k, [[row] for row in rows])
    listed = [_neighbors_of(near, n, matrix) for n in range(len(rows))]
    if as_json:
        facts = _facts(path, matrix) | {"metric": metric, "centered": centered}
        given = zip(_named(matrix, rows), listed, strict=True)
        print(json.dumps(facts | {"tokens": [token | {"neighbors": answers} for token, answers in given]}))
        return
    console = new_console()
    for n, (token, answers) in enumerate(zip(_named(matrix, rows), listed, strict=True)):
        console.print(f"{'' if n == 0 else chr(10)}{visible(token['token'])} (#{token['id']})", soft_wrap=True)
        _print_columns(console, [metric], [answers])
    _print_excluded(console, matrix)


@app.command()
@exit_on_error
def analogy(
    path: Model,
    a: Annotated[str, Token],
    b: Annotated[str, Token],
    c: Annotated[str, Token],
    k: Count = 10,
    rule: Annotated[str, typer.Option(help="Scoring: add (3CosAdd) or multiply (3CosMul).")] = "add",
    centered: Centered = False,
    table: Which = "input",
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Complete "A is to B as C is to ...": with the three words excluded from the answers, and with all rows.

    Example: whatwhere analogy path/to/model man woman king
    """
    from whatwhere.analysis.word_benchmarks import analogy as complete

    with progress() as show:
        checkpoint, matrix = _read(path, table, allow_pickle)
        if len(matrix.weight) < 4:
            raise SettingError(
                f"an analogy needs an answer beside its three words, but {path} has {len(matrix.weight)} rows.\n"
                "Choose a larger table."
            )
        rows = _rows(checkpoint, matrix, (a, b, c))
        show("searching")
        one, other, third = rows
        answer = complete(matrix.weight, one, other, third, k, rule=cast("Rule", rule), centered=centered)
    without, within = (_neighbors_of(near, 0, matrix) for near in (answer.without_inputs, answer.with_inputs))
    if as_json:
        facts = _facts(path, matrix) | {"rule": rule, "centered": centered}
        answers = {"without_inputs": without, "with_inputs": within}
        print(json.dumps(facts | {"question": _named(matrix, rows)} | answers))
        return
    console = new_console()
    names = [visible(token["token"]) for token in _named(matrix, rows)]
    console.print(f"{names[0]} is to {names[1]} as {names[2]} is to", soft_wrap=True)
    _print_columns(console, ["without the three words", "all rows"], [without, within])
    _print_excluded(console, matrix)


@app.command()
@exit_on_error
def similarity(
    path: Model,
    tokens: Annotated[list[str] | None, typer.Argument(help="Two tokens, as text or as '#123'.")] = None,
    benchmark: Annotated[
        Path | None, typer.Option(help="File of analogies (questions-words) or rated pairs (WordSim-353, SimLex-999).")
    ] = None,
    rule: Annotated[str, typer.Option(help="Scoring of analogies: add (3CosAdd) or multiply (3CosMul).")] = "add",
    centered: Centered = False,
    table: Which = "input",
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Print the cosine similarity of two tokens, or score the table on a file of analogies or rated pairs.

    Example: whatwhere similarity path/to/model --benchmark questions-words.txt
    """
    from whatwhere.analysis.nearest_neighbors import Search

    if (benchmark is None) == (not tokens) or (tokens and len(tokens) != 2):
        raise SettingError(
            "similarity takes two tokens, or a file.\nRun whatwhere similarity path/to/model king queen, or "
            "whatwhere similarity path/to/model --benchmark questions-words.txt"
        )
    with progress() as show:
        checkpoint, matrix = _read(path, table, allow_pickle)
        show("comparing")
        search = Search(matrix.weight, "cosine", centered)
        facts = _facts(path, matrix) | {"centered": centered}
        if benchmark is not None:
            facts |= {"benchmark": str(benchmark)} | _scored(search, matrix, benchmark, rule)
        else:
            rows = _rows(checkpoint, matrix, tokens or ())
            facts |= {"tokens": _named(matrix, rows), "cosine": _cosine(search, *rows)}
    if as_json:
        print(json.dumps(facts))
        return
    console = new_console()
    if benchmark is None:
        one, other = (visible(token["token"]) for token in facts["tokens"])
        console.print(f"cosine of {one} and {other}: {facts['cosine']:.4f}", soft_wrap=True)
    else:
        _print_score(console, facts)
    _print_excluded(console, matrix)


def _read(path: Path, which: str, allow_pickle: bool) -> "tuple[Checkpoint, Table]":
    from whatwhere.models.checkpoint import Checkpoint
    from whatwhere.models.checkpoint.lookup import read_table

    checkpoint = Checkpoint.open(path, allow_pickle=allow_pickle)
    return checkpoint, read_table(checkpoint, which)


def _rows(checkpoint: "Checkpoint", matrix: "Table", tokens: Sequence[str]) -> list[int]:
    from whatwhere.models.checkpoint.lookup import find_token

    return [matrix.row(find_token(checkpoint, text, matrix.rows)) for text in tokens]


def _facts(path: Path, matrix: "Table") -> dict[str, Any]:
    from whatwhere.models.checkpoint.lookup import word_of

    left_out = [{"token": word_of(matrix.words, n), "id": n} for n in matrix.broken.tolist()]
    shape = {"rows": matrix.rows, "dim": matrix.weight.shape[1], "dtype": matrix.dtype}
    return {"path": str(path), "table": matrix.name} | shape | {"left_out": left_out}


def _named(matrix: "Table", rows: Sequence[int]) -> list[dict[str, Any]]:
    return [{"token": matrix.word(row), "id": int(matrix.ids[row])} for row in rows]


def _neighbors_of(near: "Nearest", query: int, matrix: "Table") -> list[dict[str, Any]]:
    named = _named(matrix, near.ids[query].tolist())
    return [token | {"score": score} for token, score in zip(named, near.scores[query].tolist(), strict=True)]


def _cosine(search: "Search", a: int, b: int) -> float:
    from whatwhere.analysis.table_difference import movement

    one, other = (search.table[[row]] - search.mean for row in (a, b))
    return float(movement(one, other).cosine[0])


def _scored(search: "Search", matrix: "Table", file: Path, rule: str) -> dict[str, Any]:
    from whatwhere.analysis.word_benchmarks import is_analogies, score_analogies, score_similarity

    if not matrix.words:
        raise TextError(
            "a benchmark needs words, but this table comes without tokens as strings.\n"
            "Put the tokenizer's files beside the weights."
        )
    try:
        if not is_analogies(file):
            pairs = score_similarity(search, matrix.plain_words(), file)
            return {"kind": "pairs", "asked": pairs.pairs} | {
                name: getattr(pairs, name) for name in ("scored", "spearman", "pearson")
            }
        score = score_analogies(search, matrix.plain_words(), file, cast("Rule", rule))
    except OSError as problem:
        raise TextError(f"{file} cannot be read: {problem.strerror}.\nPass a text file.") from None
    parts = [
        {
            "name": part.name,
            "asked": part.questions,
            "scored": part.scored,
            "right": part.correct,
            "accuracy": part.accuracy,
        }
        for part in (*score.sections, score.total)
    ]
    return {"kind": "analogies", "rule": rule, "sections": parts[:-1], "total": parts[-1]}


def _print_columns(console: "Console", heads: Sequence[str], lists: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Print lists of neighbors side by side."""
    table = new_table()
    for head in heads:
        table.add_column(head)
        table.add_column("id", justify="right")
        table.add_column("score", justify="right")
    for n in range(max(map(len, lists))):
        cells: list[str] = []
        for answers in lists:
            one = answers[n] if n < len(answers) else None
            cells += ["", "", ""] if one is None else [visible(one["token"]), str(one["id"]), f"{one['score']:.4f}"]
        table.add_row(*cells)
    console.print(table)


def _print_score(console: "Console", facts: dict[str, Any]) -> None:
    if facts["kind"] == "pairs":
        numbers = ["-" if facts[name] is None else f"{facts[name]:.4f}" for name in ("spearman", "pearson")]
        console.print(f"{facts['scored']:,} of {facts['asked']:,} pairs are in the vocabulary.")
        console.print(f"Correlation of cosine and rating: Spearman {numbers[0]}, Pearson {numbers[1]}.")
        return
    table = new_table("section")
    for head in ("questions", "not in vocabulary", "scored", "correct", "accuracy"):
        table.add_column(head, justify="right")
    for part in (*facts["sections"], facts["total"]):
        missing = part["asked"] - part["scored"]
        share = "-" if part["accuracy"] is None else f"{100 * part['accuracy']:.1f} %"
        numbers = [f"{n:,}" for n in (part["asked"], missing, part["scored"], part["right"])]
        table.add_row(visible(part["name"]), *numbers, share)
    console.print(table)


def _print_excluded(console: "Console", matrix: "Table") -> None:
    if not len(matrix.broken):
        return
    from whatwhere.models.checkpoint.lookup import word_of

    some = ", ".join(visible(word_of(matrix.words, n)) for n in matrix.broken[:5].tolist())
    more = f" and {len(matrix.broken) - 5:,} more" if len(matrix.broken) > 5 else ""
    console.print(f"\nExcluded, because they contain NaN or infinity: {some}{more}.", soft_wrap=True)
