"""Measure whatwhere and its peers: `python -m benchmarks`, in the root of a checkout."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whatwhere.cli.app import PLAIN
from whatwhere.errors import WhatWhereError
from whatwhere.report.terminal import new_console, new_table

if TYPE_CHECKING:
    from benchmarks.records import Results

app = typer.Typer(add_completion=False, **PLAIN)


def main() -> None:
    """Run the command line.

    Raises:
        SystemExit: When the command ends, with its exit status.
    """
    app(prog_name="python -m benchmarks")


def print_message(message: str) -> None:
    """Print a message where standard output may be read by a program.

    Args:
        message: one line, or several.
    """
    print(f"benchmarks: {message}", file=sys.stderr)


@app.command()
def measure(
    cases: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CASE",
            help="rotary, lookup, token-step, attention, window, position-table, decoding, loss, neighbors, start, "
            "training; all.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small shapes, two rounds: only to see that every case runs.")
    ] = False,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch.", min=1)] = 2,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seconds: Annotated[float, typer.Option(help="For the rounds of one variant, at least five.")] = 10.0,
    out: Annotated[
        Path | None, typer.Option(help="A JSON file to keep finished cases in; run the same command again to resume.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Measure whatwhere and its peers on the same cases, as ratios to what memory allows.

    All cases take about an hour; --out keeps what is finished.

    Example: python -m benchmarks rotary decoding --threads 2
    """
    from benchmarks import run, table

    try:
        results = run.bench(
            cases or (), quick=quick, threads=threads, device=device, seconds=seconds, out=out, progress=True
        )
    except WhatWhereError as problem:
        print_message(str(problem))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        kept = "Nothing is kept: pass --out FILE to keep finished cases and to resume."
        if out is not None:
            kept = f"Finished cases are in {out}: run the same command again to resume."
        print_message(f"interrupted. {kept}")
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps({**results, "verdicts": table.judged(results)}))
    else:
        _print(results)


def _print(results: "Results") -> None:
    from benchmarks import table as words

    regimes = words.regimes(results)
    table = new_table("case", "candidate")
    for name in (*regimes, "time", "peak MiB", "error"):
        table.add_column(name, justify="right")
    table.add_column("target")
    above = None
    for row in words.rows(results):
        if (row.case, row.variant) != above:
            above = (row.case, row.variant)
            if table.row_count:
                table.add_row("")
            table.add_row(*above)
        cells = [row.ratios.get(name, "-") for name in regimes]
        last = row.note or "\n".join(row.verdicts)
        table.add_row("", row.candidate, *cells, row.time, row.peak, row.error, last)
    console = new_console()
    console.print(table)
    console.print(
        "\nRatios to the first row of each variant, medians over rounds; fresh and pooled are two ways of allocating "
        "memory. Errors are against float64.",
        soft_wrap=True,
    )
    for case, record in results["cases"].items():
        for regime, why in record["unavailable"].items():
            console.print(f"{case}: {regime} could not be measured: {why}.", soft_wrap=True)


if __name__ == "__main__":
    main()
