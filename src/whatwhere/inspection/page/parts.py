"""Tokens, figures and keys, the same way everywhere on the page."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from whatwhere import terminal
from whatwhere.page.charts import swatch
from whatwhere.page.markup import Markup, element, join
from whatwhere.page.wording import code


def token(row: Mapping[str, Any]) -> Markup:
    """Set a token apart, with what cannot be seen shown as its code; the id alone where there is none."""
    return join("(no token)") if row["token"] is None else shown(row["token"])


def shown(text: str) -> Markup:
    """Write a text so that each of its signs can be seen.

    >>> shown(" a\\u202e")
    '<code>␣a\\\\u202e</code>'
    """
    signs = terminal.visible(text)
    if signs != signs.strip(" "):
        kept = signs.strip(" ")
        ahead = len(signs) - len(signs.lstrip(" "))
        signs = "␣" * ahead + kept + "␣" * (len(signs) - len(kept) - ahead) if kept else "␣" * len(signs)
    if signs and unicodedata.category(signs[0]).startswith("M"):
        signs = "◌" + signs  # a mark that combines needs something to stand on
    return code(signs)


def figure(drawn: Markup, *caption: str) -> Markup:
    """Put a caption under a drawing."""
    return element("figure", drawn, element("figcaption", *caption))


def panels(*figures: Markup) -> Markup:
    """Put figures side by side where there is room."""
    return element("div", *figures, class_="panels", style="align-items: start")


def key(name: str, words: Sequence[str]) -> Markup:
    """Say which line is which."""
    lines = [element("li", swatch(name, index), join(each)) for index, each in enumerate(words)]
    return element("ul", *lines, class_="key")
