"""tables and figures: the results of a comparison as files for a paper."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whatwhere.cli.app import COMPARE, AsJson, app, print_json, to_path
from whatwhere.escape import visible
from whatwhere.report.terminal import new_console

if TYPE_CHECKING:
    from whatwhere.report.paper import WrittenFiles

Results = Annotated[Path, typer.Argument(parser=to_path, help="Folder that whatwhere compare or whatwhere demo wrote.")]


@app.command(rich_help_panel=COMPARE)
def tables(
    results: Results,
    out: Annotated[Path, typer.Option(parser=to_path, help="Folder for the files.")] = Path("tables"),
    format: Annotated[
        list[str] | None,
        typer.Option(help="Format: csv, markdown or latex, or several, as in csv,latex. Default: all of them."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Scheme, chosen before the runs, that all are compared with. Default: all pairs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the tables of a comparison: scores and differences; CSV has every seed, shift and run, in full.

    Example: whatwhere tables whatwhere-demo --format latex --out paper
    """
    from whatwhere.comparison import read_results
    from whatwhere.report.paper import TABLE_FORMATS, write_tables

    _show(write_tables(read_results(results), out, _formats(format) or TABLE_FORMATS, against), as_json)


@app.command(rich_help_panel=COMPARE)
def figures(
    results: Results,
    out: Annotated[Path, typer.Option(parser=to_path, help="Folder for the files.")] = Path("figures"),
    format: Annotated[
        list[str] | None, typer.Option(help="Format: svg, pdf or png, or several. Default: svg,pdf.")
    ] = None,
    scheme: Annotated[list[str] | None, typer.Option(help="Scheme to draw; may be repeated. Default: all.")] = None,
    width: Annotated[float, typer.Option(help="Width in mm: 84 for a column, 174 for a page of two.")] = 84.0,
    as_json: AsJson = False,
) -> None:
    """Write the figures of a comparison: scores by length with their range over seeds, each group, the shift test.

    Example: whatwhere figures whatwhere-demo --format svg --width 174 --out paper
    """
    from whatwhere.comparison import read_results
    from whatwhere.report.paper import write_figures

    _show(write_figures(read_results(results), out, _formats(format) or ("svg", "pdf"), width, scheme or None), as_json)


def _formats(given: list[str] | None) -> list[str]:
    """Return the formats of an option that may be repeated, each time with a list."""
    return [part.strip() for text in given or [] for part in text.split(",")]


def _show(written: "WrittenFiles", as_json: bool) -> None:
    if as_json:
        print_json(written)
        return
    console = new_console()
    for name in written.files:
        console.print(visible(Path(written.folder) / name), soft_wrap=True)
    if written.missing:
        console.print(f"Not all is written: {visible(written.missing)}.")
