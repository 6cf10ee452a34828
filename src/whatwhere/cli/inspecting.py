"""inspect: both halves of the input layer of a checkpoint."""

import json
from pathlib import Path
from typing import Annotated

import typer

from whatwhere.cli.app import AsJson, app, told
from whatwhere.terminal import new_console, progress, visible


@app.command()
@told
def inspect(
    path: Annotated[Path, typer.Argument(help="A model's file or folder, of any format.")],
    sections: Annotated[
        str | None,
        typer.Option(
            help="Only these, with commas: sizes, shares, norms, spectrum, unhealthy, positions, rotary, biases."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write the studio's page on it all, one HTML file that needs no program.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows of each list.", min=1)] = 12,
    seed: Annotated[int, typer.Option(help="Of samples of rows.", min=0)] = 0,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read pickles too: only where you trust the author.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a checkpoint's tokens are and where they stand: sizes, lengths, unhealthy rows, positions, rotary.

    Example: whatwhere inspect path/to/model --report model.html
    """
    from whatwhere.inspection import inspect as look
    from whatwhere.interop.checkpoint import Checkpoint

    names = None if sections is None else [name.strip() for name in sections.split(",") if name.strip()]
    with progress() as tell:
        opened = Checkpoint.open(path, allow_pickle=allow_pickle)
        if report is not None:
            from whatwhere.studio.freezing import check_file

            check_file(report, opened)  # before the work
        found = look(opened, names, seed=seed, tell=tell)
        if report is not None:
            found.write(report, tell=tell)
    if as_json:
        print(json.dumps(found.data))
        return
    from whatwhere.inspection.terminal import show

    console = new_console()
    show(found.data, console, rows)
    if report is not None:
        console.print(f"\nReport: {visible(report.resolve())}", soft_wrap=True)
