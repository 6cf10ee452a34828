"""encode and schemes: the vectors of a text, and the catalogue of positional encodings."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whatwhere.cli.app import (
    LEARN,
    AsJson,
    Run,
    app,
    complete_scheme,
    print_json,
    to_path,
    whole_numbers,
)
from whatwhere.errors import SettingError, ShapeError, TextError
from whatwhere.escape import shown_token, visible
from whatwhere.report.terminal import new_console, new_table

if TYPE_CHECKING:
    from rich.console import Console
    from tokenizers import Tokenizer
    from torch import Tensor

    from whatwhere.analysis.walkthrough import Walkthrough

MOST_ROWS = 1000
"""Rows of a table in the terminal; a table of 30,000 takes half a minute to lay out."""


@app.command(rich_help_panel=LEARN)
def encode(
    text: Annotated[str | None, typer.Argument(help="Text to encode.")] = None,
    file: Annotated[Path | None, typer.Option(parser=to_path, help="UTF-8 file to encode instead.")] = None,
    ids: Annotated[str | None, typer.Option(help="Token ids instead of a text, as in 105,6587,12.")] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="A tokenizer.json or its folder; words (each new word gets the next id); or expressions, those of the "
            "first tutorial. Default: expressions where the whole text is one, else words."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--from", parser=to_path, help="Take tokenizer, trained rows and positions of a model or results folder."
        ),
    ] = None,
    run: Run = None,
    scheme: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_scheme,
            help="Positional encoding, of `whatwhere schemes`, or a mixture. Default: sinusoidal, or the model's.",
        ),
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Features of a vector. Default: 8, or the model's.", min=1)] = None,
    heads: Annotated[
        int | None, typer.Option(help="Attention heads, for schemes of queries, keys or scores. Default: 2.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the token table and of learned positions.", min=0)] = 0,
    save: Annotated[Path | None, typer.Option(parser=to_path, help="Write ids and vectors as safetensors.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print how a text becomes vectors: tokens, ids, token embeddings, positional encodings and their sum.

    Rows are random samples, unless --from names a model or a results folder.

    An expression of the first tutorial: whatwhere encode "Max(1,6,2)" --dim 64

    With trained rows: whatwhere encode "Max(1,6,2)" --from whatwhere-demo --run rotary-0

    Example: whatwhere encode "The cat sat on the mat." --scheme rotary --dim 8
    """
    from whatwhere.what import text as texts

    if text is not None and file is not None:
        raise TextError("encode got a text and a file, but encodes one of them: pass only one.")
    content = texts.read_text(file) if file is not None else text
    if content is None and ids is None:
        raise TextError('encode needs a text, a file or ids: whatwhere encode "The cat sat on the mat."')
    numbers = None if ids is None else whole_numbers("--ids", ids)
    if model is not None:
        own = (("--tokenizer", tokenizer), ("--dim", dim), ("--heads", heads))
        if given := [name for name, value in own if value is not None]:
            raise SettingError(f"encode got --from and {given[0]}, but with --from that is the model's own.\nOmit one.")
        from whatwhere.analysis.walkthrough import walk_model

        walkthrough = walk_model(model, content, ids=numbers, run=run, scheme=scheme, seed=seed)
    else:
        if run is not None:
            raise SettingError("--run names a run of a results folder.\nPass it too: --from whatwhere-demo.")
        walkthrough = _walk(content, numbers, tokenizer, scheme or "sinusoidal", dim, heads, seed)
    if save is not None:
        walkthrough.save(save)
    if as_json:
        print_json(walkthrough)
    else:
        _print_walk(walkthrough, seed)
        if save is not None:
            print(f"\nSaved: {visible(save)}")


def _walk(
    content: str | None,
    ids: list[int] | None,
    tokenizer: str | None,
    scheme: str,
    dim: int | None,
    heads: int | None,
    seed: int,
) -> "Walkthrough":
    """Walk with random rows, and the tokenizer that was named."""
    from whatwhere.analysis.walkthrough import walk

    chosen = None if tokenizer is None else _tokenizer(tokenizer, content)
    sizes = {name: value for name, value in (("dim", dim), ("num_heads", heads)) if value is not None}
    try:
        return walk(content, ids=ids, tokenizer=chosen, scheme=scheme, seed=seed, **sizes)
    except ShapeError as problem:
        size, number = dim or 8, heads or 2
        if size % number or size // number % 2 == 0 or "head_dim" not in str(problem):
            raise
        least = max(size // (2 * number), 1) * 2 * number
        raise ShapeError(
            f"--dim {size} in {number} heads is {size // number} features for each head, but a head of {scheme} needs "
            f"an even number: it rotates pairs of features.\nPass --dim {least} or {least + 2 * number}, or --heads 1 "
            "with an even --dim."
        ) from None


@app.command(rich_help_panel=LEARN)
def schemes(as_json: AsJson = False) -> None:
    """Print the catalogue of positional encodings: name, door, formula and properties of each.

    Example: whatwhere schemes --json
    """
    from whatwhere.where.catalogue import catalogue, describe

    rows = [describe(row) for row in catalogue.values()]
    if as_json:
        print_json(rows)
        return
    header = ("scheme", "door", "formula", "learned", "relative", "up to", "used by")
    table = new_table(*header)
    for row in rows:
        facts = ("yes" if row.learned else "no", row.shift_invariance, row.length)
        table.add_row(row.name, row.door or "none", row.formula, *facts, ", ".join(row.used_by))
    new_console().print(table)


def _print_walk(walkthrough: "Walkthrough", seed: int) -> None:
    from whatwhere.where.catalogue import catalogue

    console = new_console()
    tokens = walkthrough.tokens or [""] * len(walkthrough.ids)
    tokens = [shown_token(*pair) for pair in zip(tokens, walkthrough.texts or tokens, strict=True)]
    adds = walkthrough.position_rows is not None
    for line in _sources(walkthrough, seed):
        console.print(visible(line), soft_wrap=True)
    row = "E[id]" if walkthrough.factor == 1 else f"{walkthrough.factor:.6g} E[id]"
    title = f"tokens, ids, and the row of each: {row}" if adds else f"tokens, ids, and their vectors: x_i = {row}"
    _print_rows(console, title, [*zip(range(len(tokens)), tokens, walkthrough.ids, strict=True)], walkthrough.rows)
    numbered = [(n,) for n in range(len(tokens))]
    if walkthrough.position_rows is not None:
        _print_rows(
            console, f"position: {walkthrough.scheme}, the vector added at each", numbered, walkthrough.position_rows
        )
        _print_rows(console, f"sum: x_i = {row.replace('id', 'id_i')} + position_i", numbered, walkthrough.vectors)
    if walkthrough.angles is not None:
        title = "queries and keys at this position are rotated by these angles (radians), one column for each frequency"
        _print_rows(console, title, numbered, walkthrough.angles)
    if walkthrough.bias is not None:
        title = "the score of a key at this distance gets this bias, one column for each head"
        _print_rows(console, title, numbered, walkthrough.bias)
    if not adds:
        console.print("\nNo position is added to the vectors.", end="")
        parts = [part.strip() for part in walkthrough.scheme.split("+")]
        if all(part in catalogue and catalogue[part].door is None for part in parts):
            console.print(" Without a positional encoding, only the causal mask depends on the order of the tokens.")
        elif walkthrough.angles is None and walkthrough.bias is None:
            console.print(" The scheme acts in the attention, by queries and keys, which a text alone does not have.")
        else:
            console.print()


def _print_rows(console: "Console", title: str, first: Sequence[tuple[Any, ...]], values: "Tensor") -> None:
    console.print(f"\n{title}", soft_wrap=True)
    table = new_table()
    table.show_header = False
    shown = 8 if values.shape[-1] > 9 else values.shape[-1]
    for cells, row in zip(first[:MOST_ROWS], values[:MOST_ROWS].tolist(), strict=True):
        rest = [f"and {len(row) - shown} more"] if shown < len(row) else []
        table.add_row(*map(visible, cells), *(f"{value + 0.0:8.4f}" for value in row[:shown]), *rest)
    console.print(table)
    if len(values) > MOST_ROWS:
        console.print(f" and {len(values) - MOST_ROWS:,} more rows: --json and --save contain them all.")


def _sources(walkthrough: "Walkthrough", seed: int) -> list[str]:
    """Return lines that say where ids and rows come from, and what is missing."""
    from whatwhere.what.expressions import RECOGNIZED

    other = "; --tokenizer words numbers its words instead" if walkthrough.tokenizer == RECOGNIZED else ""
    rows = f"{walkthrough.table}, as trained"
    if walkthrough.table is None:
        rows = f"random samples of N(0, 1), seed {seed}, which nothing has trained; --from takes those of a model"
    notes = [f"note: {note}" for note in walkthrough.notes]
    return [f"tokenizer: {walkthrough.tokenizer}{other}", f"rows: {rows}", *notes]


def _tokenizer(chosen: str, content: str | None) -> "Tokenizer":
    from whatwhere.models.checkpoint.tokenizer_files import tokenizer_in
    from whatwhere.what import text as texts
    from whatwhere.what.expressions import expression_tokenizer

    if chosen == "expressions":
        return expression_tokenizer()
    if chosen == "words":
        if content is None:
            raise TextError("--tokenizer words numbers the words of a text, but got ids.\nOmit it.")
        return texts.words(content)
    file = to_path(chosen)
    if not file.exists():
        raise TextError(
            f"--tokenizer got {chosen!r}, but there is no such file.\n"
            "Pass words, expressions, or the path of a tokenizer.json or of its folder."
        )
    if not file.is_dir():
        return texts.load(file)
    tokenizer = tokenizer_in(file)
    if isinstance(tokenizer, str):
        raise TextError(f"--tokenizer got {chosen!r}, but {tokenizer}.\nPass the path of a tokenizer.json.")
    return tokenizer
