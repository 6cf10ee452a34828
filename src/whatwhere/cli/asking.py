"""neighbors, analogy and similarity: what the rows of a token table say of each other."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from whatwhere.cli.app import AsJson, app, told
from whatwhere.errors import SettingError, TextError
from whatwhere.terminal import new_console, new_table, progress, visible

if TYPE_CHECKING:
    from rich.console import Console

    from whatwhere.analysis.analogies import Rule
    from whatwhere.analysis.neighbors import Metric, Nearest, Search
    from whatwhere.interop.checkpoint import Checkpoint
    from whatwhere.interop.checkpoint.asked import Table

Model = Annotated[Path, typer.Argument(help="A model's file or folder, of any format.")]
Token = typer.Argument(help="A token by its text, or by its id as in '#123'.")
Count = Annotated[int, typer.Option("-k", help="How many.", min=1)]
Centered = Annotated[bool, typer.Option("--centered", help="Take the mean row away first.")]
Which = Annotated[str, typer.Option(help="input, readout, or the name of a tensor.")]
Pickles = Annotated[bool, typer.Option("--allow-pickle", help="Read pickles too: only where you trust the author.")]


@app.command()
@told
def neighbors(
    path: Model,
    tokens: Annotated[list[str], Token],
    k: Count = 10,
    metric: Annotated[str, typer.Option(help="cosine, dot or euclidean.")] = "cosine",
    centered: Centered = False,
    table: Which = "input",
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Print the tokens whose rows are nearest to those of some tokens: exact, in the full space.

    Example: whatwhere neighbors path/to/model king paris -k 5
    """
    from whatwhere.analysis.neighbors import Search

    with progress() as tell:
        checkpoint, found = _read(path, table, allow_pickle)
        rows = _rows(checkpoint, found, tokens)
        tell("searching")
        search = Search(found.weight, cast("Metric", metric), centered)
        near = search.nearest(found.weight[rows], k, [[row] for row in rows])
    listed = [_listed(near, n, found) for n in range(len(rows))]
    if as_json:
        facts = _facts(path, found) | {"metric": metric, "centered": centered}
        asked = zip(_named(found, rows), listed, strict=True)
        print(json.dumps(facts | {"tokens": [token | {"neighbors": answers} for token, answers in asked]}))
        return
    console = new_console()
    for n, (token, answers) in enumerate(zip(_named(found, rows), listed, strict=True)):
        console.print(f"{'' if n == 0 else chr(10)}{visible(token['token'])} (#{token['id']})", soft_wrap=True)
        _print_columns(console, [metric], [answers])
    _tell_left_out(console, found)


@app.command()
@told
def analogy(
    path: Model,
    a: Annotated[str, Token],
    b: Annotated[str, Token],
    c: Annotated[str, Token],
    k: Count = 10,
    rule: Annotated[str, typer.Option(help="add (3CosAdd) or multiply (3CosMul).")] = "add",
    centered: Centered = False,
    table: Which = "input",
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Complete "A is to B as C is to ...": without the three words as answers, and with them, side by side.

    Example: whatwhere analogy path/to/model man woman king
    """
    from whatwhere.analysis.analogies import analogy as complete

    with progress() as tell:
        checkpoint, found = _read(path, table, allow_pickle)
        if len(found.weight) < 4:
            raise SettingError(
                f"an analogy needs an answer beside its three words, but {path} has {len(found.weight)}."
            )
        rows = _rows(checkpoint, found, (a, b, c))
        tell("searching")
        one, other, third = rows
        answer = complete(found.weight, one, other, third, k, rule=cast("Rule", rule), centered=centered)
    without, within = (_listed(near, 0, found) for near in (answer.without_inputs, answer.with_inputs))
    if as_json:
        facts = _facts(path, found) | {"rule": rule, "centered": centered}
        answers = {"without_inputs": without, "with_inputs": within}
        print(json.dumps(facts | {"question": _named(found, rows)} | answers))
        return
    console = new_console()
    said = [visible(token["token"]) for token in _named(found, rows)]
    console.print(f"{said[0]} is to {said[1]} as {said[2]} is to", soft_wrap=True)
    _print_columns(console, ["without the three words", "of all rows"], [without, within])
    _tell_left_out(console, found)


@app.command()
@told
def similarity(
    path: Model,
    tokens: Annotated[list[str] | None, typer.Argument(help="Two tokens, as texts or as '#123'.")] = None,
    benchmark: Annotated[
        Path | None, typer.Option(help="A file of analogies (questions-words) or judged pairs (wordsim353, SimLex).")
    ] = None,
    rule: Annotated[str, typer.Option(help="For analogies: add (3CosAdd) or multiply (3CosMul).")] = "add",
    centered: Centered = False,
    table: Which = "input",
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Print the cosine of two tokens, or score the table by a file of analogies or judged pairs.

    Example: whatwhere similarity path/to/model --benchmark questions-words.txt
    """
    from whatwhere.analysis.neighbors import Search

    if (benchmark is None) == (not tokens) or (tokens and len(tokens) != 2):
        raise SettingError(
            "similarity takes two tokens, or a file: whatwhere similarity path/to/model king queen, or "
            "whatwhere similarity path/to/model --benchmark questions-words.txt"
        )
    with progress() as tell:
        checkpoint, found = _read(path, table, allow_pickle)
        tell("comparing")
        search = Search(found.weight, "cosine", centered)
        facts = _facts(path, found) | {"centered": centered}
        if benchmark is not None:
            facts |= {"benchmark": str(benchmark)} | _scored(search, found, benchmark, rule)
        else:
            rows = _rows(checkpoint, found, tokens or ())
            facts |= {"tokens": _named(found, rows), "cosine": _cosine(search, *rows)}
    if as_json:
        print(json.dumps(facts))
        return
    console = new_console()
    if benchmark is None:
        one, other = (visible(token["token"]) for token in facts["tokens"])
        console.print(f"cosine of {one} and {other}: {facts['cosine']:.4f}", soft_wrap=True)
    else:
        _print_score(console, facts)
    _tell_left_out(console, found)


def _read(path: Path, which: str, allow_pickle: bool) -> "tuple[Checkpoint, Table]":
    from whatwhere.interop.checkpoint import Checkpoint
    from whatwhere.interop.checkpoint.asked import read_table

    checkpoint = Checkpoint.open(path, allow_pickle=allow_pickle)
    return checkpoint, read_table(checkpoint, which)


def _rows(checkpoint: "Checkpoint", found: "Table", tokens: Sequence[str]) -> list[int]:
    from whatwhere.interop.checkpoint.asked import find_token

    return [found.row(find_token(checkpoint, text, found.rows)) for text in tokens]


def _facts(path: Path, found: "Table") -> dict[str, Any]:
    from whatwhere.interop.checkpoint.asked import word_of

    left_out = [{"token": word_of(found.words, n), "id": n} for n in found.broken.tolist()]
    shape = {"rows": found.rows, "dim": found.weight.shape[1], "dtype": found.dtype}
    return {"path": str(path), "table": found.name} | shape | {"left_out": left_out}


def _named(found: "Table", rows: Sequence[int]) -> list[dict[str, Any]]:
    return [{"token": found.word(row), "id": int(found.ids[row])} for row in rows]


def _listed(near: "Nearest", query: int, found: "Table") -> list[dict[str, Any]]:
    named = _named(found, near.ids[query].tolist())
    return [token | {"score": score} for token, score in zip(named, near.scores[query].tolist(), strict=True)]


def _cosine(search: "Search", a: int, b: int) -> float:
    from whatwhere.analysis.difference import movement

    one, other = (search.table[[row]] - search.mean for row in (a, b))
    return float(movement(one, other).cosine[0])


def _scored(search: "Search", found: "Table", file: Path, rule: str) -> dict[str, Any]:
    from whatwhere.analysis.wordtests import is_analogies, score_analogies, score_similarity

    if not found.words:
        raise TextError("a benchmark asks for words, but nothing beside this table says which row is whose.")
    try:
        if not is_analogies(file):
            pairs = score_similarity(search, found.plain_words(), file)
            return {"kind": "pairs", "asked": pairs.pairs} | {
                name: getattr(pairs, name) for name in ("scored", "spearman", "pearson")
            }
        score = score_analogies(search, found.plain_words(), file, cast("Rule", rule))
    except OSError as problem:
        raise TextError(f"{file} cannot be read: {problem.strerror}.\nPass a text file.") from None
    parts = [
        {name: getattr(part, name) for name in ("name", "asked", "scored", "right", "accuracy")}
        for part in (*score.parts, score.total)
    ]
    return {"kind": "analogies", "rule": rule, "sections": parts[:-1], "total": parts[-1]}


def _print_columns(console: "Console", heads: Sequence[str], lists: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Print lists of answers side by side."""
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
        console.print(f"{facts['scored']:,} of {facts['asked']:,} pairs are of tokens in the vocabulary.")
        console.print(f"Correlation of cosine and judgment: Spearman {numbers[0]}, Pearson {numbers[1]}.")
        return
    table = new_table("section")
    for head in ("asked", "not in vocabulary", "scored", "right", "accuracy"):
        table.add_column(head, justify="right")
    for part in (*facts["sections"], facts["total"]):
        missing = part["asked"] - part["scored"]
        share = "-" if part["accuracy"] is None else f"{100 * part['accuracy']:.1f} %"
        numbers = [f"{n:,}" for n in (part["asked"], missing, part["scored"], part["right"])]
        table.add_row(visible(part["name"]), *numbers, share)
    console.print(table)


def _tell_left_out(console: "Console", found: "Table") -> None:
    if not len(found.broken):
        return
    from whatwhere.interop.checkpoint.asked import word_of

    some = ", ".join(visible(word_of(found.words, n)) for n in found.broken[:5].tolist())
    more = f" and {len(found.broken) - 5:,} more" if len(found.broken) > 5 else ""
    console.print(f"\nLeft out, for they hold NaN or infinity: {some}{more}.", soft_wrap=True)
