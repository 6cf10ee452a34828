"""The page as one file: with the answers that it asks for inside, and tables for readers without JavaScript."""

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from whatwhere.atomic import require_writable, write_atomic
from whatwhere.errors import SettingError
from whatwhere.inspection import Inspection
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.report.html import Markup, element, folded, paragraph, sections
from whatwhere.report.section import Table
from whatwhere.studio.api import FROZEN, QUESTIONS, WORKS
from whatwhere.studio.api.about import about
from whatwhere.studio.api.static_tables import Left
from whatwhere.studio.bundle import PAGE, check_page
from whatwhere.studio.session import Kind, Source
from whatwhere.studio.wire import pack

FIRST: Mapping[Kind, str] = {"results": "compare", "checkpoint": "overview"}
"""The view that a frozen page opens on, where it is left there."""


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
    if (first := FIRST.get(source.kind)) in left:
        left = {first: left.pop(first)} | left
    tell("gathering the answers")
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


def write_page(
    source: Source, file: str | Path, page: Path = PAGE, tell: Callable[[str], None] = lambda _: None
) -> Path:
    """Freeze a source into a file, in one step, and give where it lies; one that is there is replaced.

    Args:
        file: to write; whether it can be written is tried before the work.
        page, tell: as `freeze` takes them.
    """
    file = check_file(file, source.checkpoint, page=page)
    content = freeze(source, page, tell)
    with writing(file):
        write_atomic(file, content)
    return file


def write_inspection(
    checkpoint: Checkpoint, found: Inspection, file: str | Path, progress: Callable[[str], None] = lambda _: None
) -> Path:
    """Write the studio's page on an inspected checkpoint as one file, which opens on the findings.

    It needs no program and no network; without JavaScript it shows text and tables. The page holds the neighbors of all
    tokens, which take half a minute to compute for 30,000 tokens.

    Args:
        checkpoint: what was inspected.
        found: its inspection.
        file: to write; an existing one is replaced.
        progress: called with each step that takes a while, in words.

    Returns:
        The path of the file.

    Raises:
        MissingExtra: this installation has no page.
        SettingError: the file cannot be written, or is the checkpoint itself.
    """
    source = Source(checkpoint)
    source.keep_inspection(found)
    return write_page(source, file, tell=progress)


def check_file(file: str | Path, read: Checkpoint, page: Path = PAGE) -> Path:
    """Try whether a page can be written, before the work, and give its path.

    Args:
        file: where to.
        read: what the page is made of, which is not written over.
        page: where the bundle is.
    """
    check_page(page)
    file = Path(file)
    if file.is_dir():
        raise SettingError(f"{file} is a folder, but the page is one file: pass {file / 'report.html'}.")
    parts = {entry.file for entry in read.tensors.values() if entry.file.exists()}
    if file.exists() and any(file.samefile(each) for each in parts):
        raise SettingError(f"{file} is what is read here, which is not written over.\nName another.")
    with writing(file):
        require_writable(file)
    return file


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Raise SettingError where a file cannot be written."""
    try:
        yield
    except (OSError, ValueError) as problem:  # ValueError: a path with a null byte
        reason = getattr(problem, "strerror", None) or problem
        raise SettingError(f"{file} cannot be written: {reason}.\nChoose another file.") from None


class _Blocks:
    """Ask what the views have named, and keep each answer once, packed and gzipped."""

    def __init__(self, source: Source, left: Mapping[str, Left]) -> None:
        self.blocks: list[str] = []
        self.answers: dict[str, int] = {}
        self._known: dict[bytes, int] = {}
        # Where the file lay is nobody's business where the page goes.
        opened = about(source, {})
        begin = {**opened.begin, **{name: view.begin for name, view in left.items() if view.begin is not None}}
        self._keep("about", {}, replace(opened, path="", begin=begin, frozen=[*left], first=next(iter(left), None)))
        for name, settings in (question for view in left.values() for question in view.asked):
            self._keep(name, settings, _answer(source, name, settings))

    def _keep(self, name: str, settings: Mapping[str, Any], answer: object) -> None:
        packed = pack(answer)
        if packed not in self._known:
            self._known[packed] = len(self.blocks)
            self.blocks.append(base64.b64encode(gzip.compress(packed, 9, mtime=0)).decode())
        self.answers[_key(name, settings)] = self._known[packed]


def _answer(source: Source, name: str, settings: Mapping[str, Any]) -> Any:
    if name in QUESTIONS:
        return QUESTIONS[name](source, settings)
    if name in WORKS:
        return WORKS[name](source, settings, lambda share, said: None)
    raise SettingError(f"a frozen view asks {name!r}, which nothing answers.")


def _key(name: str, settings: Mapping[str, Any]) -> str:
    """Return the name of a question as the page does: FrozenSource of web/src/frozen.ts sorts and writes alike."""
    return f"{name}?{json.dumps(dict(sorted(settings.items())), ensure_ascii=False, separators=(',', ':'))}"


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _told(source: Source, left: Mapping[str, Left]) -> Markup:
    """Write what the views show as sentences and tables."""
    ways = element("ol", *(element("li", element("a", view.title, href=f"#{name}")) for name, view in left.items()))
    return element(
        "main",
        element("h1", f"{source.name} · whatwhere studio"),
        paragraph("These are the numbers of the page, which draws with JavaScript."),
        element("nav", ways, aria_label="Views"),
        *(element("section", element("h2", view.title), *_read(name, view), id=name) for name, view in left.items()),
    )


def _read(name: str, view: Left) -> Iterator[Markup]:
    """Yield the text and tables of a view."""
    yield from map(paragraph, view.said)
    yield from sections(view.sections, level=3, prefix=f"{name}-")
    for sheet in view.sheets:
        if sheet.title:
            yield element("h3", sheet.title)
        yield from map(paragraph, sheet.said)
        if sheet.rows:
            yield folded(Table(sheet.caption, sheet.head, sheet.rows))
