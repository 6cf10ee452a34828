"""The page of an inspection: one HTML file, without script or network."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from whatwhere.errors import SettingError
from whatwhere.inspection.answer import there
from whatwhere.inspection.page.ill import unhealthy
from whatwhere.inspection.page.what import norms, shares, sizes, spectrum
from whatwhere.inspection.page.where import biases, positions, rotary
from whatwhere.inspection.wording import TITLES
from whatwhere.page.markup import Markup, document, element, join, paragraph, section
from whatwhere.page.svg import require_matplotlib
from whatwhere.page.wording import code

_WRITTEN: Mapping[str, Callable[[Mapping[str, Any]], tuple[str, list[Markup]]]] = {
    "sizes": sizes,
    "shares": shares,
    "norms": norms,
    "spectrum": spectrum,
    "unhealthy": unhealthy,
    "positions": positions,
    "rotary": rotary,
    "biases": biases,
}


def write_page(data: Mapping[str, Any], file: Path) -> Path:
    """Write the page, in one step, and give where it lies.

    The page needs no network and no script, follows the reader's choice of light or dark, and holds the numbers of its
    figures in tables or words.

    Args:
        data: as `gather` gives it.
        file: to write; one that is there is replaced.
    """
    require_matplotlib()
    if file.is_dir():
        raise SettingError(f"{file} is a folder, but the page is one file: pass {file / 'report.html'}.")
    unfinished = file.with_name(f"{file.name}.part")
    try:
        unfinished.write_text(page(data), encoding="utf-8", newline="\n")
        unfinished.replace(file)
    except (OSError, ValueError) as problem:  # ValueError: a path with a null byte
        reason = getattr(problem, "strerror", None) or problem
        raise SettingError(f"{file} cannot be written: {reason}.\nChoose another file.") from None
    return file


def page(data: Mapping[str, Any]) -> Markup:
    """Give the whole page."""
    found = data["sections"]
    title = "What the tokens are, and where they stand"
    name = Path(data["path"]).name or str(data["path"])
    links = [element("li", element("a", TITLES[part], href=f"#{part}")) for part in found]
    run = paragraph(
        code(data["path"]),
        f", {data['checkpoint']}. Written by whatwhere inspect {data['whatwhere']}; samples are drawn with seed "
        f"{data['seed']}.",
    )
    body = [
        element("header", element("h1", title), paragraph(_capital(data["answer"]), ".", kind="seen"), run),
        element("nav", element("ol", *links), aria_label="Contents"),
        element("main", *(_section(part, content) for part, content in found.items())),
    ]
    return document(f"whatwhere: {name}", *body)


def _section(part: str, content: Mapping[str, Any]) -> Markup:
    if not there(content):
        return section(part, TITLES[part], join(_capital(content["missing"]), "."))
    seen, parts = _WRITTEN[part](content)
    return section(part, TITLES[part], seen, *parts)


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
