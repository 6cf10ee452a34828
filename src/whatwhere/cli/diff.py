"""diff: the difference between two checkpoints."""

import json
from pathlib import Path
from typing import Annotated

import typer

from whatwhere.cli.app import AsJson, app, exit_on_error
from whatwhere.cli.neighbors import Model, Pickles, Which
from whatwhere.escape import visible
from whatwhere.report.terminal import new_console, print_sections, progress


@app.command()
@exit_on_error
def diff(
    first: Model,
    second: Annotated[Path, typer.Argument(help="Another one, in any supported format.")],
    k: Annotated[int, typer.Option("-k", help="Nearest neighbors to compare.", min=1)] = 10,
    sample: Annotated[int, typer.Option(help="Tokens to sample, whose neighbors are compared.", min=1)] = 512,
    rows: Annotated[int, typer.Option(help="Rows that moved most to list.", min=0)] = 10,
    table: Which = "input",
    seed: Annotated[int, typer.Option(help="Random seed for sampling.", min=0)] = 0,
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Compare the input layers of two checkpoints: token embeddings, nearest neighbors, positions, configurations.

    Between two types it measures what a cast or a quantization changed. Two configurations alone are compared too.

    Example: whatwhere diff path/to/model path/to/model.gguf

    For scripts: whatwhere diff path/to/model path/to/other --json
    """
    from whatwhere.inspection.difference import difference
    from whatwhere.records import to_json
    from whatwhere.report import difference as texts

    with progress() as show_step:
        found = difference(
            first,
            second,
            table=table,
            k=k,
            queries=sample,
            rows=rows,
            seed=seed,
            allow_pickle=allow_pickle,
            progress=show_step,
        )
    if as_json:
        print(json.dumps({"headline": texts.headline(found)} | to_json(found)))
        return
    console = new_console()
    for name, side in (("A", found.first), ("B", found.second)):
        console.print(f"{name}  {visible(side.path)} ({visible(side.format)})", soft_wrap=True)
    console.print(f"{visible(texts.headline(found))}.")
    print_sections(texts.sections(found), console, max(rows, 1))
