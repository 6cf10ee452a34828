"""The commands golden and verify: the numbers of a model's positions, and the check of a port by them."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from whatwhere.cli.app import PORT, AsJson, app, nothing_resumed, print_json, to_path
from whatwhere.escape import visible
from whatwhere.report.terminal import new_console, progress

Model = Annotated[Path, typer.Argument(parser=to_path, help="Model or config.json, or its name at huggingface.co.")]


@app.command(rich_help_panel=PORT)
def golden(
    model: Model,
    out: Annotated[Path, typer.Option("--out", parser=to_path, help="New folder for golden.json and its numbers.")],
    part: Annotated[str | None, typer.Option(help="Of a model that has both: encoder or decoder.")] = None,
    like: Annotated[str | None, typer.Option(help="Known model type to read an unknown one like.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder of golden vectors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the numbers of a model's positions, for checking a port of it in any language.

    For each kind of layer: pairs, frequencies, cosine and sine, rotated vectors, temperature, scale, window, bias,
    sinks and T5's buckets, in float64, at positions up to 131,071. A configuration is enough for all but learned ones.

    Example: whatwhere golden path/to/config.json --out golden
    """
    from whatwhere.models.checkpoint import read
    from whatwhere.models.golden import write_golden

    with nothing_resumed(), progress() as show_step:
        source = read(model, part=part, like=like)
        show_step("computing the numbers")
        written = write_golden(source, out, force=force)
    if as_json:
        print_json(written)
        return
    console = new_console()
    line = partial(console.print, soft_wrap=True, markup=False, highlight=False)
    for n, kind in enumerate(written.kinds):
        layers = f"{len(kind.layers)} layers" if len(kind.layers) > 1 else "1 layer"
        line(f"kind {n}, {layers}: {visible(kind.where)}")
        line(f"  numbers: {', '.join(kind.names)}")
        for left in kind.not_written:
            line(f"  not written: {visible(left)}")
    line(f"Written: {visible(out)}")


@app.command(rich_help_panel=PORT)
def verify(
    folder: Annotated[Path, typer.Argument(parser=to_path, help="Folder that whatwhere golden has written.")],
    numbers: Annotated[
        Path, typer.Argument(parser=to_path, help="Safetensors with its names, as the port computes them.")
    ],
    float32_angles: Annotated[
        bool, typer.Option("--float32-angles", help="Allow angles in float32, as in transformers.")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Compare the names that are there, and miss none.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the numbers that a port computes: which law it breaks, at which position, by which known mistake.

    The exit status is 1 where a law fails, or where a number is missing.

    Example: whatwhere verify golden numbers.safetensors
    """
    from whatwhere.models.golden import verify as compare

    reports = compare(folder, numbers, float32_angles=float32_angles, partial=partial)
    if as_json:
        print(json.dumps({name: report.as_dict() for name, report in reports.items()}, allow_nan=False))
    else:
        console = new_console()
        for name, report in reports.items():
            text = f"{name}\n{report}\n"
            console.print("\n".join(map(visible, text.split("\n"))), soft_wrap=True, markup=False, highlight=False)
    if not all(report.passed for report in reports.values()):
        raise typer.Exit(1)
