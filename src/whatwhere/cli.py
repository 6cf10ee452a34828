"""The command line: parse, call, print. What takes long to import is imported where it is used."""

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TextIO, TypeVar

import typer

from whatwhere import __version__
from whatwhere.errors import SettingError, TextError, WhatWhereError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from tokenizers import Tokenizer
    from torch import Tensor

    from whatwhere.analysis.walkthrough import Walkthrough
    from whatwhere.comparison import Report

app = typer.Typer(
    name="whatwhere",
    help="The input layer of a Transformer: what a token is, and where it stands.\n\n"
    'Example: whatwhere encode "The cat sat on the mat."',
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

P = ParamSpec("P")
R = TypeVar("R")
MOST_ROWS = 1000
"""Rows of a table in the terminal; a table of 30,000 takes half a minute to lay out."""
OPTIONS = ("schemes", "task", "lengths", "seeds", "out", "files", "recipe", "executor", "workers", "progress")
"""What compare takes beside its settings."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Workers = Annotated[int | None, typer.Option(help="Processes; the default is one for each core.", min=1)]


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller, as `>&-` does
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123
        elif isinstance(stream, TextIOWrapper):
            # A sign that the terminal's encoding lacks is shown as its code, rather than ending the program.
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="whatwhere")  # also as python -m whatwhere
    except OSError as problem:
        _leave(sys.stdout)  # where the disk is full, Python would complain again while it ends
        _say(f"the system refused: {problem}.")
        sys.exit(1)


def _say(message: str) -> None:
    print("whatwhere: " + "\n".join(map(_visible, message.split("\n"))), file=sys.stderr)


def _leave(stream: TextIO) -> None:
    """Send what is still to be written nowhere."""
    with suppress(OSError):  # not every stream is a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _told(command: Callable[P, R]) -> Callable[P, R]:
    """Turn our errors into a message and an exit status."""

    @functools.wraps(command)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            found = command(*args, **kwargs)
            sys.stdout.flush()
        except WhatWhereError as problem:
            _say(str(problem))
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            _say("interrupted. What is finished is kept; the same command goes on.")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            _leave(sys.stdout)  # the reader has gone, as `| head` does
            raise typer.Exit(141) from None
        except (MemoryError, RuntimeError) as problem:
            # PyTorch's allocators raise RuntimeError.
            if isinstance(problem, RuntimeError) and not re.search("allocate|out of memory", str(problem)):
                raise
            _say(f"too little memory: {problem}.\nChoose smaller sizes, shorter lengths, or a shorter text.")
            raise typer.Exit(1) from None
        return found

    return told


def _print_version(asked: bool) -> bool:
    if asked:
        typer.echo(__version__)  # unlike print, it writes at once, and errors are caught where they occur
        raise typer.Exit
    return asked


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command()
@_told
def demo(
    out: Annotated[Path, typer.Option(help="The results folder.")] = Path("whatwhere-demo"),
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Train the tutorials' Transformer under five ways of saying where, and report which holds beyond its length.

    About two minutes on two cores. Interrupted, the same command goes on.

    Example: whatwhere demo --out my-demo
    """
    from whatwhere.comparison import demo as run_demo

    _print_report(run_demo(out, workers=workers, progress=True), as_json)


@app.command()
@_told
def compare(
    schemes: Annotated[
        list[str] | None,
        typer.Argument(help='Names of `whatwhere schemes`, mixtures "rotary+alibi" or by layer "rotary/none"; all.'),
    ] = None,
    task: Annotated[str, typer.Option(help="expressions, recall or text.")] = "expressions",
    file: Annotated[list[Path] | None, typer.Option(help="For the task text: a file to read; may be repeated.")] = None,
    lengths: Annotated[str | None, typer.Option(help="Lengths to test, as in 8,16,32.")] = None,
    seeds: Annotated[str, typer.Option(help='How many, or which: 5, or "0,7,8"; "7," is one.')] = "3",
    recipe: Annotated[str, typer.Option(help="quick, or author: the first tutorial's 50 epochs.")] = "quick",
    steps: Annotated[int | None, typer.Option(help="Optimizer steps of a run.")] = None,
    dim: Annotated[int | None, typer.Option(help="Features of a token vector.")] = None,
    layers: Annotated[int | None, typer.Option(help="Blocks.")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting, as in --set direction=encoder.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The results folder.")] = Path("whatwhere-results"),
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Train schemes side by side, in and beyond the trained length, and report what held.

    Example: whatwhere compare none rotary alibi --task text --file notes.txt --lengths 128,256 --seeds 5
    """
    from whatwhere.comparison import compare as run_compare
    from whatwhere.where.catalogue import catalogue

    given = _settings(setting or [], {"steps": steps, "dim": dim, "layers": layers, "heads": heads})
    report = run_compare(
        schemes or list(catalogue),
        task,
        None if lengths is None else _whole_numbers("--lengths", lengths),
        _seeds(seeds),
        out,
        files=file or [],
        recipe=recipe,
        workers=workers,
        **given,
    )
    _print_report(report, as_json)


@app.command()
@_told
def encode(
    text: Annotated[str | None, typer.Argument(help="What to read.")] = None,
    file: Annotated[Path | None, typer.Option(help="A UTF-8 file to read instead.")] = None,
    ids: Annotated[str | None, typer.Option(help="Ids instead of a text, as in 105,6587,12.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json; without it, words are numbered.")] = None,
    scheme: Annotated[str, typer.Option(help="A name of `whatwhere schemes`, or a mixture.")] = "sinusoidal",
    dim: Annotated[int, typer.Option(help="Features of a vector.")] = 8,
    heads: Annotated[int, typer.Option(help="Attention heads, for schemes that act there.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the random token table.", min=0)] = 0,
    save: Annotated[Path | None, typer.Option(help="Write ids and vectors as safetensors.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print what a text becomes: tokens, ids, the row of each, the position's row and the sum.

    Example: whatwhere encode "The cat sat on the mat." --scheme rotary --dim 8
    """
    from whatwhere.analysis.walkthrough import walk
    from whatwhere.what import text as texts

    if text is not None and file is not None:
        raise TextError("encode got a text and a file: give one of them.")
    given = texts.read_text(file) if file is not None else text
    if given is None and ids is None:
        raise TextError('encode needs a text, a file or ids: whatwhere encode "The cat sat on the mat."')
    found = walk(
        given,
        ids=None if ids is None else _whole_numbers("--ids", ids),
        tokenizer=None if tokenizer is None else _load(tokenizer),
        scheme=scheme,
        dim=dim,
        num_heads=heads,
        seed=seed,
    )
    if save is not None:
        found.save(save)
    if as_json:
        print(json.dumps(found.as_dict()))
    else:
        _print_walk(found)
        if save is not None:
            print(f"\nSaved: {_visible(save)}")


@app.command()
@_told
def schemes(as_json: AsJson = False) -> None:
    """Print the catalogue: each way of saying where, its door, its formula and its promises.

    Example: whatwhere schemes --json
    """
    from whatwhere.where.catalogue import catalogue, describe

    rows = [describe(row) for row in catalogue.values()]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    header = ("scheme", "door", "formula", "learned", "relative", "up to", "used by")
    table = _table(*header)
    for row in rows:
        facts = ("yes" if row["learned"] else "no", row["moves"], row["length"])
        table.add_row(row["name"], row["door"] or "none", row["formula"], *facts, ", ".join(row["used_by"]))
    _console().print(table)


@app.command()
@_told
def bench(
    works: Annotated[
        list[str] | None,
        typer.Argument(
            help="rotary, lookup, token-step, attention, position-table, decoding, start, training; all.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small shapes, two rounds: only whether all runs.")] = False,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch.", min=1)] = 2,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seconds: Annotated[float, typer.Option(help="For the rounds of one case, at least five.")] = 10.0,
    out: Annotated[
        Path | None, typer.Option(help="A JSON file to keep finished works in; the next run goes on.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure whatwhere and its peers on the same work, as ratios to what memory allows.

    All works take about an hour; --out keeps what is finished.

    Example: whatwhere bench rotary decoding --threads 2
    """
    from whatwhere.benchmark import table
    from whatwhere.benchmark.run import bench as run_bench

    given: dict[str, Any] = {"quick": quick, "threads": threads, "device": device, "seconds": seconds}
    try:
        found = run_bench(works or (), **given, out=out, progress=True)
    except KeyboardInterrupt:
        if out is not None:
            raise
        _say("interrupted. With --out FILE finished works are kept, and the same command goes on.")
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(found | {"verdicts": table.judged(found)}))
    else:
        _print_bench(found)


def _console() -> "Console":
    from rich.console import Console

    # A pipe has no width: 80 columns would cut tables that nobody asked to be cut.
    return Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False)


def _table(*header: str) -> "Table":
    from rich.table import Table

    return Table(*header, box=None, padding=(0, 1))


def _print_report(report: "Report", as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.results))
        return
    header, rows = report.rows()
    table = _table()
    for n, name in enumerate(header):
        table.add_column(name, justify="left" if n == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console = _console()
    console.print(table)
    task = report.results["task"]
    seeds = len(report.results["settings"]["seeds"])
    low, high = min(task["trained"]), max(task["trained"])
    console.print(
        f"\n{task['measure']} in the task {task['name']} on new sequences, "
        + ("one seed" if seeds == 1 else f"median (range) over {seeds} seeds")
        + f"; trained on {low if low == high else f'{low}-{high}'} {task['unit']}."
    )
    if report.page is None:
        console.print("No page was drawn: pip install 'whatwhere[report]', then run the same command.")
    else:
        console.print(f"Report: {_visible(report.page.resolve())}", soft_wrap=True)


def _print_walk(found: "Walkthrough") -> None:
    from whatwhere.where.catalogue import catalogue

    console = _console()
    tokens = found.tokens or [""] * len(found.ids)
    adds = found.position_rows is not None
    title = "tokens, ids, and the row of each: E[id]" if adds else "tokens, ids, and their vectors: x_i = E[id]"
    _print_rows(console, title, [*zip(range(len(tokens)), tokens, found.ids, strict=True)], found.rows)
    numbered = [(n,) for n in range(len(tokens))]
    if found.position_rows is not None:
        _print_rows(console, f"position: {found.scheme}, what is added at each", numbered, found.position_rows)
        _print_rows(console, "sum: x_i = E[id_i] + position_i", numbered, found.vectors)
    if found.angles is not None:
        title = "queries and keys at this position turn by these angles (radians), one column a frequency"
        _print_rows(console, title, numbered, found.angles)
    if found.bias is not None:
        title = "the score of a key at this distance gets this bias, one column a head"
        _print_rows(console, title, numbered, found.bias)
    if not adds:
        console.print("\nNo position is added to the vectors.", end="")
        if all(catalogue[part.strip()].door is None for part in found.scheme.split("+")):
            console.print(" Nothing else tells where a token stands, but the causal mask.")
        elif found.angles is None and found.bias is None:
            console.print(" The scheme acts in the attention, by queries and keys, which a text alone does not have.")
        else:
            console.print()


def _print_rows(console: "Console", title: str, first: Sequence[tuple[Any, ...]], values: "Tensor") -> None:
    console.print(f"\n{title}", soft_wrap=True)
    table = _table()
    table.show_header = False
    shown = 8 if values.shape[-1] > 9 else values.shape[-1]
    for cells, row in zip(first[:MOST_ROWS], values[:MOST_ROWS].tolist(), strict=True):
        rest = [f"and {len(row) - shown} more"] if shown < len(row) else []
        table.add_row(*map(_visible, cells), *(f"{value + 0.0:8.4f}" for value in row[:shown]), *rest)
    console.print(table)
    if len(values) > MOST_ROWS:
        console.print(f" and {len(values) - MOST_ROWS:,} rows more: --json and --save hold them all.")


def _print_bench(found: Mapping[str, Any]) -> None:
    from whatwhere.benchmark import table as words

    regimes = words.regimes(found)
    table = _table("work", "candidate")
    for name in (*regimes, "time", "peak MiB", "error"):
        table.add_column(name, justify="right")
    table.add_column("target")
    case = None
    for row in words.rows(found):
        if (row.work, row.case) != case:
            case = (row.work, row.case)
            if table.row_count:
                table.add_row("")
            table.add_row(*case)
        cells = [row.ratios.get(name, "-") for name in regimes]
        last = row.note or "\n".join(row.verdicts)
        table.add_row("", row.candidate, *cells, row.time, row.peak, row.error, last)
    console = _console()
    console.print(table)
    console.print(
        "\nRatios to the first row of each case, medians over rounds; fresh and pooled are two ways of allocating "
        "memory. Errors are against float64.",
        soft_wrap=True,
    )
    for work, record in found["works"].items():
        for regime, why in record["unavailable"].items():
            console.print(f"{work}: {regime} could not be measured: {why}.", soft_wrap=True)


def _load(file: Path) -> "Tokenizer":
    from whatwhere.what import text as texts

    tokenizer = texts.load(file)
    # Many models cut and pad to a length of their own; here all of the text is shown, and nothing but the text.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _visible(cell: object) -> str:
    """Show signs that a terminal would obey, such as escapes, as their codes."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in str(cell))


def _whole_numbers(option: str, given: str) -> list[int]:
    try:
        # A comma may end the list: "7," is a list of one.
        return [int(part) for part in given.strip().removesuffix(",").split(",")] if given.strip(" ,") else []
    except ValueError:
        raise SettingError(f"{option} got {given!r}, but needs whole numbers with commas, as in 8,16,32.") from None


def _seeds(given: str) -> int | list[int]:
    numbers = _whole_numbers("--seeds", given)
    return numbers[0] if len(numbers) == 1 and "," not in given else numbers


def _settings(given: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Join what --set names to the settings that have options of their own."""
    found = {name: value for name, value in options.items() if value is not None}
    for part in given:
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            raise SettingError(f"--set got {part!r}, but needs name=value, as in --set direction=encoder.")
        if name in OPTIONS:
            raise SettingError(f"--set takes settings, and {name} is none; its option, if any: whatwhere compare -h.")
        if name in found:
            raise SettingError(f"compare got {name} twice: {found[name]!r} and {value!r}. Give it once.")
        found[name] = _value(name, value)
    return found


def _value(name: str, value: str) -> Any:
    if name == "trained":
        return _whole_numbers("--set trained", value)
    if "," in value:
        return [_value("", part) for part in value.split(",")]
    if value in ("True", "true", "False", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
