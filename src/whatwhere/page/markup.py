"""Write HTML in which every text is escaped, because markup and text are different types."""

import html
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

# They change the order in which the text around them is read; a name that holds one could rewrite its own table row.
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_VOID = frozenset({"meta", "br"})


class Markup(str):
    """Hold text that is HTML already. Only `element` and `join` make it; a plain str is text and is escaped."""

    __slots__ = ()


def visible(text: str) -> str:
    """Replace what cannot be shown (control characters, lone surrogates, marks of reading direction) by U+FFFD.

    >>> visible("a\\x00b")
    'a\\ufffdb'
    """
    return "".join(
        "\ufffd" if char in _BIDIRECTIONAL or unicodedata.category(char) in {"Cc", "Cs"} else char for char in text
    )


def join(*children: str) -> Markup:
    """Put children in a row: markup stays, text is escaped."""
    return Markup("".join(c if isinstance(c, Markup) else html.escape(visible(c), quote=True) for c in children))


def element(tag: str, *children: str, attributes: Mapping[str, str] | None = None, **more: str) -> Markup:
    """Write one element. Attribute names are written as Python names: `class_` is class, `aria_label` is aria-label.

    >>> element("td", "<b>", class_="name")
    '<td class="name">&lt;b&gt;</td>'
    """
    named = dict(attributes or {}) | {name.rstrip("_").replace("_", "-"): value for name, value in more.items()}
    written = "".join(f' {name}="{html.escape(visible(value), quote=True)}"' for name, value in named.items())
    return Markup(f"<{tag}{written}>" if tag in _VOID else f"<{tag}{written}>{join(*children)}</{tag}>")


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "numbers") -> Markup:
    """Write a table whose first column names its rows. A wide one scrolls in itself, also by keyboard.

    Args:
        caption: what the table shows; text.
        head: one heading for each column.
        rows: the cells of each row, text or markup.
        kind: "numbers" align to the right, "words" to the left, "told" are numbers with words in the last column.
    """
    top = element("tr", *(element("th", cell, scope="col") for cell in head))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    whole = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", top),
        element("tbody", *body),
        class_=kind,
    )
    return element("div", whole, class_="scroll", role="region", aria_label=str(caption), tabindex="0")


def folded(summary: str, *children: str) -> Markup:
    """Write a part that opens on demand."""
    return element("details", element("summary", summary), *children)


def paragraph(*children: str, kind: str = "") -> Markup:
    """Write a paragraph."""
    return element("p", *children, attributes={"class": kind} if kind else None)
