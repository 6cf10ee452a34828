"""Reports as HTML in which every text is escaped: markup and text are different types."""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence

from whatwhere.escape import visible
from whatwhere.report.section import Chart, Paragraph, Part, Section, Table

_VOID = frozenset({"meta", "br"})
_OPEN_ROWS = 25
"""Rows of a table that is shown open; a longer one is folded."""


class Markup(str):
    """Text that is HTML already. Only `element` and `join` make it; a plain str is text and is escaped."""

    __slots__ = ()


def join(*children: str) -> Markup:
    """Return children one after the other: markup stays, text is escaped.

    Examples:
        >>> join(Markup("<br>"), "<br>")
        '<br>&lt;br&gt;'
    """
    return Markup("".join(c if isinstance(c, Markup) else html.escape(visible(c), quote=True) for c in children))


def element(tag: str, *children: str, attributes: Mapping[str, str] | None = None, **more: str) -> Markup:
    """Return one element.

    Args:
        tag: its name.
        children: markup, or text that is escaped.
        attributes: whose names are no Python names, such as "http-equiv".
        more: other attributes, written as Python names: `class_` is class, `aria_label` is aria-label.

    Examples:
        >>> element("td", "<b>", class_="name")
        '<td class="name">&lt;b&gt;</td>'
    """
    named = dict(attributes or {}) | {name.rstrip("_").replace("_", "-"): value for name, value in more.items()}
    written = "".join(f' {name}="{html.escape(visible(value), quote=True)}"' for name, value in named.items())
    return Markup(f"<{tag}{written}>" if tag in _VOID else f"<{tag}{written}>{join(*children)}</{tag}>")


def sections(found: Iterable[Section], level: int = 2, prefix: str = "") -> Iterator[Markup]:
    """Yield each section as an element with its heading.

    Args:
        found: the sections.
        level: of their headings, 1 to 6.
        prefix: begins the ids of the elements, where one page has sections of several reports.

    Examples:
        >>> list(sections([Section("sizes", "Sizes", [Paragraph("3 < 4.")])]))
        ['<section id="sizes"><h2>Sizes</h2><p>3 &lt; 4.</p></section>']
    """
    for section in found:
        heading = element(f"h{level}", section.title)
        yield element("section", heading, *map(_part, section.parts), id=f"{prefix}{section.name}")


def paragraph(*children: str) -> Markup:
    """Return a paragraph."""
    return element("p", *children)


def table(found: Table) -> Markup:
    """Return a table whose first column names its rows. A wide one scrolls by itself, also with the keyboard."""
    top = element("tr", *(element("th", cell, scope="col") for cell in found.columns))
    whole = element(
        "table",
        element("caption", element("span", found.caption)),
        element("thead", top),
        element("tbody", *(_row(row, found.numeric) for row in found.rows)),
    )
    return element("div", whole, class_="scroll", role="region", aria_label=found.caption, tabindex="0")


def folded(found: Table) -> Markup:
    """Return a table; a long one is hidden below its caption, which opens it."""
    if len(found.rows) <= _OPEN_ROWS:
        return table(found)
    return element("details", element("summary", found.caption), table(found))


def _part(part: Part) -> Markup:
    if isinstance(part, Paragraph):
        return paragraph(part.text)
    if isinstance(part, Chart):
        return join(*(paragraph(text) for text in (part.note, part.method) if text), folded(part.table))
    return folded(part)


def _row(cells: Sequence[str], numeric: Sequence[int]) -> Markup:
    first = element("th", cells[0], scope="row")
    rest = (
        element("td", cell, attributes={"class": "number"} if n in numeric else None)
        for n, cell in enumerate(cells)
        if n
    )
    return element("tr", first, *rest)
