"""Write report.html: one page that opens from disk and shows what a comparison found."""

from pathlib import Path

from whatwhere.comparison.page.answer import answer
from whatwhere.comparison.page.embedding import token_table
from whatwhere.comparison.page.positions import by_distance, fingerprints
from whatwhere.comparison.page.reading import Results, read_results
from whatwhere.comparison.page.record import record, verdicts
from whatwhere.comparison.page.scores import accuracy
from whatwhere.comparison.page.shift import shift_test
from whatwhere.comparison.page.wording import run_of
from whatwhere.errors import ResultsError
from whatwhere.page.markup import Markup, document, element, paragraph
from whatwhere.page.svg import require_matplotlib
from whatwhere.page.wording import code, count

_CONTENTS = {
    "answer": "The answer",
    "accuracy": "By length",
    "shift": "Shift test",
    "tokens": "Token table",
    "fingerprints": "Fingerprints",
    "distance": "By distance",
    "verdicts": "Verdicts",
    "record": "Settings",
}


def write_report(folder: Path) -> Path:
    """Write report.html beside the results.json of a comparison, and return where it lies.

    The page needs no network and no script, follows the reader's choice of light or dark, and holds every number of its
    figures in tables. The same folder gives the same bytes with the same version of matplotlib. A report that is there
    already is replaced in one step.

    Args:
        folder: what `whatwhere compare` wrote: results.json and layers/*.safetensors, which are never unpickled.

    Raises:
        MissingExtra: matplotlib is not installed.
        ResultsError: results.json or a file it names is missing, damaged, or of another comparison.
    """
    require_matplotlib()
    folder = Path(folder)
    results = read_results(folder)
    try:
        page = _page(results)
    except ResultsError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # a part too deep to be checked before
        raise ResultsError(
            f"{folder / 'results.json'} holds a part that cannot be read: {type(error).__name__}: {error}.\n"
            "The file was changed, or made by something else. Run the comparison again, into a new folder."
        ) from error
    path = folder / "report.html"
    unfinished = folder / "report.html.part"
    unfinished.write_text(page, encoding="utf-8", newline="\n")
    unfinished.replace(path)
    return path


def _page(results: Results) -> Markup:
    sections = [answer, accuracy, shift_test, token_table, fingerprints, by_distance, verdicts, record]
    title = "Which way of saying where holds beyond the trained length?"
    seeds = len({run["seed"] for run in results.runs})
    task = results.task
    run = paragraph(
        "Task ",
        code(str(task["name"])),
        f", trained on {run_of(task['trained'])} {task['unit']}, ",
        f"{count(len(results.schemes), 'scheme')}, {count(seeds, 'seed')} each. Written by whatwhere compare, ",
        str(results.data.get("created", "")),
        ".",
    )
    links = [element("li", element("a", words, href=f"#{anchor}")) for anchor, words in _CONTENTS.items()]
    contents = element("nav", element("ol", *links), aria_label="Contents")
    body = [
        element("header", element("h1", title), run),
        contents,
        element("main", *(write(results) for write in sections)),
    ]
    return document(f"whatwhere: {title}", *body)
