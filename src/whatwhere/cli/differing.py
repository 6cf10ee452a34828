"""diff: what differs between two checkpoints."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whatwhere.cli.app import AsJson, app, told
from whatwhere.cli.asking import Model, Pickles, Which
from whatwhere.terminal import new_console, new_table, progress, visible

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 60
"""Of a configuration's value on the screen; --json has it whole."""


@app.command()
@told
def diff(
    first: Model,
    second: Annotated[Path, typer.Argument(help="Another, of any format.")],
    k: Annotated[int, typer.Option("-k", help="Neighbors that are compared.", min=1)] = 10,
    sample: Annotated[int, typer.Option(help="Tokens whose neighbors are compared.", min=1)] = 512,
    rows: Annotated[int, typer.Option(help="Rows of each list.", min=0)] = 10,
    table: Which = "input",
    seed: Annotated[int, typer.Option(help="Of the sample.", min=0)] = 0,
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Compare the input layers of two checkpoints, token by token: rows, neighborhoods, positions, configurations.

    Rows of other types show what a cast or a quantisation did. Two configurations alone are compared too.

    Example: whatwhere diff path/to/model path/to/model.gguf
    """
    from whatwhere.inspection.difference import difference

    with progress() as tell:
        found = difference(
            first, second, table=table, k=k, asked=sample, most=rows, seed=seed, allow_pickle=allow_pickle, tell=tell
        )
    if as_json:
        print(json.dumps(found))
        return
    console = new_console()
    for mark, side in (("A", "first"), ("B", "second")):
        console.print(f"{mark}  {visible(found[side]['path'])} ({found[side]['format']})", soft_wrap=True)
    _print_tokens(console, found["tokens"], rows)
    _print_positions(console, found["positions"])
    _print_configuration(console, found["configuration"])


def _print_tokens(console: "Console", found: Mapping[str, Any], rows: int) -> None:
    console.print("\nTokens")
    if "missing" in found:
        _say(console, "missing", found["missing"])
        return
    one, other = found["tables"]
    for mark, side in (("A", one), ("B", other)):
        _say(console, mark, f"{side['name']}, {side['rows']:,} x {side['dim']:,}, {side['dtype']}")
        if side["left_out"]:
            _say(console, "", f"left out, for they hold NaN or infinity: {_some(side['left_out'], rows)}")
    _say(console, "shared", f"{found['shared']:,}, matched by {found['aligned_by']}")
    for name in ("removed", "new"):
        if found[name]:
            _say(console, name, f"{len(found[name]):,}: {_some(found[name], rows)}")
    if one["dtype"] != other["dtype"] and "missing" not in found["rows"]:
        _say(console, "types", f"{one['dtype']} and {other['dtype']}: the rows below show what that costs")
    _print_rows(console, "rows", found["rows"])
    _print_neighbors(console, found["neighbors"], rows)
    turned = found["turned"]
    if "missing" not in turned:
        _say(console, "turned", f"the best rotation, of {turned['fitted']:,} rows: median cosine of the other rows "
             f"{turned['held_out_cosine']:.4f}")  # fmt: skip
        _print_moved(console, "moved most, once turned", turned["most_moved"])
    if "missing" not in found["rows"]:
        _print_moved(console, "moved most", found["rows"]["most_moved"])


def _print_neighbors(console: "Console", found: Mapping[str, Any], rows: int) -> None:
    if "missing" in found:
        _say(console, "neighbors", found["missing"])
        return
    _say(console, "neighbors", f"{100 * found['kept']:.1f} % of the {found['k']} nearest are the same, "
         f"of {found['asked']:,} tokens; chance would keep {100 * found['chance']:.2g} %")  # fmt: skip
    if found["least_kept"] and rows:
        kept = (f"{visible(row['token'])} {100 * row['kept']:.0f} %" for row in found["least_kept"][:rows])
        _say(console, "least", ", ".join(kept))


def _print_positions(console: "Console", found: Mapping[str, Any]) -> None:
    console.print("\nPositions")
    if "missing" in found:
        _say(console, "missing", found["missing"])
        return
    for mark, side, offset in zip("AB", found["tables"], found["offsets"], strict=True):
        before = f", {offset} rows before position 0" if offset else ""
        _say(console, mark, f"{side['name']}, {side['rows']:,} x {side['dim']:,}, {side['dtype']}{before}")
    _say(console, "shared", f"{found['shared']:,}; in A alone {found['removed']:,}, in B alone {found['new']:,}")
    _print_rows(console, "rows", found["rows"])
    if "missing" not in found["rows"]:
        _print_moved(console, "moved most", found["rows"]["most_moved"])


def _print_rows(console: "Console", name: str, found: Mapping[str, Any]) -> None:
    if "missing" in found:
        _say(console, name, found["missing"])
        return
    cosine = ", ".join(f"{how} {found['cosine'][how]:.6g}" for how in ("median", "mean", "least"))
    error = "-" if found["relative_error"] is None else f"{found['relative_error']:.3g}"
    _say(console, name, f"cosine {cosine}; relative error {error}; {found['equal']:,} equal")


def _print_moved(console: "Console", title: str, moved: Sequence[Mapping[str, Any]]) -> None:
    if not moved:
        return
    table = new_table(title)
    for name in ("id in A", "id in B", "distance", "cosine", "length B / A"):
        table.add_column(name, justify="right")
    for row in moved:
        ratio = row["length_ratio"]
        cells = (*map(str, row["ids"]), f"{row['distance']:.4f}", f"{row['cosine']:.4f}")
        table.add_row(visible(row["token"]), *cells, "-" if ratio is None else f"{ratio:.4f}")
    console.print()
    console.print(table)


def _print_configuration(console: "Console", found: Mapping[str, Any]) -> None:
    console.print("\nConfiguration")
    if "missing" in found:
        _say(console, "missing", found["missing"])
        return
    if "not_understood" in found:
        _say(console, "", f"compared by its keys alone: {found['not_understood']}")
    if not any(found[part] for part in ("facts", "keys", "query_key", "score")):
        _say(console, "same", "no difference that bears on tokens and positions")
    listed = [*found["facts"], *(row for row in found["keys"])]
    if listed:
        table = new_table("what", "A", "B")
        for row in listed:
            table.add_row(visible(row["name"]), *(visible(row[side])[:_WIDE] for side in ("first", "second")))
        console.print(table)
    for part, name in (("query_key", "queries and keys"), ("score", "scores")):
        for row in found[part]:
            console.print(f"\n{name}, {_layers(row['layers'])}")
            _say(console, "A", visible(row["first"]))
            _say(console, "B", visible(row["second"]))
            if row.get("rotary"):
                _print_rotary(console, row["rotary"])


def _print_rotary(console: "Console", found: Mapping[str, Any]) -> None:
    if found["interleaved"][0] != found["interleaved"][1]:
        _say(console, "pairs", "which features make one differs: the weights must be stored accordingly")
    if found["magnitudes"][0] != found["magnitudes"][1]:
        _say(console, "magnitude", f"{found['magnitudes'][0]:.6g} and {found['magnitudes'][1]:.6g}")
    _say(console, "frequencies", f"{found['differing']} of {found['pairs']} differ, at a length of {found['length']:,}")
    if found["differing"]:
        table = new_table("distance", *(f"{n:,}" for n in found["distances"]))
        table.add_row("cosine", *(f"{value:.3f}" for value in found["cosine"]))
        console.print(table)


def _layers(numbers: Sequence[int]) -> str:
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"layers {numbers[0]} to {numbers[-1]}"
    return f"layer{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _some(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(visible, names[:most])) + more


def _say(console: "Console", name: str, what: str) -> None:
    console.print(f"  {name:<12}{what}", soft_wrap=True)
