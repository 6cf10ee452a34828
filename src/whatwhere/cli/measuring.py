"""bench: whatwhere beside its peers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from whatwhere.cli.app import AsJson, app, say, told
from whatwhere.terminal import new_console, new_table


@app.command()
@told
def bench(
    works: Annotated[
        list[str] | None,
        typer.Argument(
            help="rotary, lookup, token-step, attention, position-table, decoding, neighbors, start, training; all.",
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
        say("interrupted. With --out FILE finished works are kept, and the same command goes on.")
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(found | {"verdicts": table.judged(found)}))
    else:
        _print_bench(found)


def _print_bench(found: Mapping[str, Any]) -> None:
    from whatwhere.benchmark import table as words

    regimes = words.regimes(found)
    table = new_table("work", "candidate")
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
    console = new_console()
    console.print(table)
    console.print(
        "\nRatios to the first row of each case, medians over rounds; fresh and pooled are two ways of allocating "
        "memory. Errors are against float64.",
        soft_wrap=True,
    )
    for work, record in found["works"].items():
        for regime, why in record["unavailable"].items():
            console.print(f"{work}: {regime} could not be measured: {why}.", soft_wrap=True)
