"""Write report.html: the studio's page on what a comparison found, frozen into one file."""

from pathlib import Path

from whatwhere.comparison.reading import checked, read_results
from whatwhere.errors import CheckpointError, ResultsError
from whatwhere.studio.bundle import PAGE, check_page


def write_report(folder: Path) -> Path:
    """Write report.html beside the results.json of a comparison, and return where it lies.

    The page needs no program and no network, and holds its numbers in tables for readers without JavaScript. The same
    folder gives the same bytes. A report that is there already is replaced in one step.

    Args:
        folder: what `whatwhere compare` wrote: results.json, layers/ and traces/, which are never unpickled.

    Raises:
        MissingExtra: this installation has no page.
        ResultsError: results.json or a file it names is missing, damaged, or of another comparison.
    """
    from whatwhere.studio.freezing import write_page
    from whatwhere.studio.sources import Source

    check_page(PAGE)
    folder = Path(folder)
    results = read_results(folder)
    with checked(folder):
        for run in results.runs:
            results.tables(run)
        try:
            return write_page(Source.open(folder), folder / "report.html", PAGE)
        except CheckpointError as error:
            raise ResultsError(f"{error}\nRun the comparison again, into a new folder.") from error
