"""The page as one file: with the answers that it asks for inside, and tables for readers without JavaScript."""

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from whatwhere.errors import SettingError
from whatwhere.page.markup import Markup, element, paragraph, table
from whatwhere.studio.api import FROZEN, QUESTIONS, WORKS
from whatwhere.studio.api.sheets import Left
from whatwhere.studio.bundle import PAGE, check_page
from whatwhere.studio.sources import Source
from whatwhere.studio.wire import pack


def freeze(source: Source, page: Path = PAGE, tell: Callable[[str], None] = lambda _: None) -> str:
    """Write the studio on a source as one HTML file, which opens from a disk, in a mail, in a notebook.

    Its policy lets run what stands in it, by hash, and nothing else; it loads nothing and sends nothing. What a view
    holds, the view's own file says, in `left`; other questions get the answer that this page is frozen.

    Args:
        page: where the bundle is.
        tell: is told what is being done.
    """
    check_page(page)
    left: dict[str, Left] = {}
    for view, leave in FROZEN.items():
        tell(f"asking for {view}")
        if (found := leave(source)) is not None:
            left[view] = found
    blocks = _Blocks(source, left)
    # Words of the vocabulary stand in the questions; no sign of theirs may end the script that holds them.
    data = json.dumps({"blocks": blocks.blocks, "answers": blocks.answers}).replace("<", "\\u003c")
    script, style = ((page / name).read_text(encoding="utf-8") for name in ("studio.js", "studio.css"))
    # An inline script ends at the first </script, wherever it stands; <!-- may turn the rest into a comment.
    script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", attributes={"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{source.name} · whatwhere studio"),
        Markup(f"<style>{style}</style>"),
    )
    body = element(
        "body",
        element("div", id="studio"),
        element("noscript", _told(source, left)),
        Markup(f'<script type="application/json" id="frozen">{data}</script>'),
        Markup(f"<script>{script}</script>"),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


class _Blocks:
    """Ask what the views have named, and keep each answer once, packed and gzipped."""

    def __init__(self, source: Source, left: Mapping[str, Left]) -> None:
        self.blocks: list[str] = []
        self.answers: dict[str, int] = {}
        self._known: dict[bytes, int] = {}
        # Where the file lay is nobody's business where the page goes.
        about = QUESTIONS["about"](source, {}) | {"frozen": list(left), "path": ""}
        about["begin"] |= {name: view.begin for name, view in left.items() if view.begin is not None}
        self._keep("about", {}, about)
        for name, settings in (question for view in left.values() for question in view.asked):
            self._keep(name, settings, _answer(source, name, settings))

    def _keep(self, name: str, settings: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        packed = pack(answer)
        if packed not in self._known:
            self._known[packed] = len(self.blocks)
            self.blocks.append(base64.b64encode(gzip.compress(packed, 9, mtime=0)).decode())
        self.answers[_key(name, settings)] = self._known[packed]


def _answer(source: Source, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    if name in QUESTIONS:
        return QUESTIONS[name](source, settings)
    if name in WORKS:
        return WORKS[name](source, settings, lambda share, said: None)
    raise SettingError(f"a frozen view asks {name!r}, which nothing answers.")


def _key(name: str, settings: Mapping[str, Any]) -> str:
    """Name a question as the page does: FrozenSource of web/src/frozen.ts sorts and writes alike."""
    return f"{name}?{json.dumps(dict(sorted(settings.items())), ensure_ascii=False, separators=(',', ':'))}"


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _told(source: Source, left: Mapping[str, Left]) -> Markup:
    """Write what the views show as tables."""
    return element(
        "main",
        element("h1", f"{source.name} · whatwhere studio"),
        paragraph("These are the numbers of the page, which draws with JavaScript."),
        *(element("section", element("h2", view.title), *_tables(view), id=name) for name, view in left.items()),
    )


def _tables(view: Left) -> Iterable[Markup]:
    return (table(sheet.caption, sheet.head, sheet.rows, "words") for sheet in view.sheets)
