"""ask, tables and figures: what the trained models of a comparison answer, and its results as files for a paper."""

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from whatwhere.cli.app import COMPARE, Printed, Results, Run, command, to_paths, whole_numbers
from whatwhere.cli.compare import Modules, load_own
from whatwhere.errors import SettingError


@command(COMPARE)
def ask(
    results: Results,
    text: Annotated[str, Argument(help="A sequence of its task, such as First(6,2,1), or aKcR?c for recall.")],
    scheme: Annotated[list[str] | None, Option(help="Scheme that answers; may be repeated. Default: all.")] = None,
    seed: Annotated[
        str | None, Option(help="Seed of the runs, or all. Default: of each scheme the run of the median score.")
    ] = None,
    positions: Annotated[
        str | None, Option(help="Position of each token, as in 0,1,2,3. Default: as in the tests of the runs.")
    ] = None,
    run: Run = None,
    module: Modules = None,
) -> Printed:
    """Show what the trained models of a comparison answer: each answer, its probability, and the next probable tokens.

    --json has the attention weights too: layers, heads, queries, keys.

    Example: whatwhere ask whatwhere-demo "First(6,2,1)"

    A model of your own: whatwhere ask whatwhere-results "Max(1,2)" --module mine.py:Decoder

    With other positions: whatwhere ask whatwhere-demo "Max(1,2)" --run alibi-0 --positions 0,1,2,9,10,11
    """
    from whatwhere import comparison
    from whatwhere.report.comparison import answers
    from whatwhere.studio.schemes import find_run

    own = load_own(module or [])
    at = None if positions is None else whole_numbers("--positions", positions)
    if run is not None:
        if scheme or seed:
            raise SettingError("--run names a scheme and a seed.\nLeave --scheme and --seed out.")
        found = find_run(comparison.read_results(results), run)
        scheme, seed = [found.scheme], str(found.seed)
    chosen: dict[str, Any] = {"schemes": scheme, "seed": _seed(seed), "positions": at}
    asked = comparison.ask(results, text, **chosen, builds=own.schemes, model=own.model)
    return Printed(asked, answers(asked))


def _seed(text: str | None) -> int | Literal["all"] | None:
    if text is None or text == "all":
        return None if text is None else "all"
    if not text.isdecimal():
        raise SettingError(f"--seed got {text!r}, but needs a whole number, or all.")
    return int(text)


@command(COMPARE)
def tables(
    results: Results,
    out: Annotated[Path, to_paths("Folder for the files.")] = Path("tables"),
    format: Annotated[
        list[str] | None,
        Option(help="Format: csv, markdown or latex, or several, as in csv,latex. Default: all of them."),
    ] = None,
    against: Annotated[
        str | None, Option(help="Scheme, chosen before the runs, that all are compared with. Default: all pairs.")
    ] = None,
) -> Printed:
    """Write the tables of a comparison: scores and differences; CSV has every seed, shift and run, in full.

    Example: whatwhere tables whatwhere-demo --format latex --out paper
    """
    from whatwhere.comparison import read_results
    from whatwhere.report.paper import TABLE_FORMATS, write_tables

    written = write_tables(read_results(results), out, _formats(format) or TABLE_FORMATS, against)
    return Printed(written, written.lines)


@command(COMPARE)
def figures(
    results: Results,
    out: Annotated[Path, to_paths("Folder for the files.")] = Path("figures"),
    format: Annotated[list[str] | None, Option(help="Format: svg, pdf or png, or several. Default: svg,pdf.")] = None,
    scheme: Annotated[list[str] | None, Option(help="Scheme to draw; may be repeated. Default: all.")] = None,
    width: Annotated[float, Option(help="Width in mm: 84 for a column, 174 for a page of two.")] = 84.0,
    against: Annotated[
        str | None, Option(help="Scheme from which the differences of all others are drawn too.")
    ] = None,
) -> Printed:
    """Write the figures of a comparison: scores by length with their range over seeds, each group, the shift test.

    Example: whatwhere figures whatwhere-demo --format svg --width 174 --out paper
    """
    from whatwhere.comparison import read_results
    from whatwhere.report.paper import write_figures

    written = write_figures(
        read_results(results), out, _formats(format) or ("svg", "pdf"), width, scheme or None, against
    )
    return Printed(written, written.lines)


def _formats(given: list[str] | None) -> list[str]:
    """Return the formats of an option that may be repeated, each time with a list."""
    return [part.strip() for text in given or [] for part in text.split(",")]
