"""The exported page: one file with the answers to its first queries, and tables for readers without JavaScript."""

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from whatwhere.analysis.inspection import Inspection
from whatwhere.atomic import require_writable, write_atomic
from whatwhere.errors import MissingExtra, SettingError
from whatwhere.installation import REBUILD
from whatwhere.long_work import by_share
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.report.html import Markup, element, paragraph, sections
from whatwhere.studio.api import EXPORTS, JOBS, QUERIES
from whatwhere.studio.api.about import about
from whatwhere.studio.api.settings import ExportedView
from whatwhere.studio.schemes import first_names
from whatwhere.studio.session import Corpus, Session
from whatwhere.studio.wire import pack

PAGE = Path(__file__).parent / "web" / "dist"
"""The page as it was bundled when the package was built."""


def export(
    path: str | Path | Checkpoint | None,
    file: str | Path,
    *,
    map_method: Literal["pca", "tsne", "umap"] = "pca",
    corpus: str | Path | None = None,
    allow_pickle: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the studio's page on a checkpoint or on the results of a comparison into one HTML file.

    It opens in any browser, from a disk or a mail, and needs no program and no network; without JavaScript it shows
    text and tables. It holds what the views show first, and the nearest neighbors of all tokens, which for 30,000
    tokens take half a minute to compute.

    Args:
        path: a checkpoint, or the path of one or of a results folder; None is a small table of random vectors.
        file: to write; an existing one is replaced, whole or not at all.
        map_method: adds a token map by t-SNE (extra `map`) or UMAP (extra `umap`) to the one by PCA.
        corpus: a text in UTF-8, whose tokens are counted to color the map by.
        allow_pickle: read pickles of PyTorch too; only where you trust the author.
        progress: called with each step that takes a while, in words.

    Returns:
        The path of the file.

    Raises:
        MissingExtra: If this installation has no page, or lacks the package of the map.
        CheckpointError: If the checkpoint cannot be read.
        SettingError: If the map has no such method, or the file cannot be written or is the checkpoint itself.

    Examples:
        >>> export("path/to/model", "model.html", map_method="umap")  # doctest: +SKIP
        PosixPath('model.html')
    """
    if isinstance(path, Checkpoint):
        session = Session(path, None if corpus is None else Corpus(Path(corpus)))
    else:
        session = Session.open(path, allow_pickle=allow_pickle, corpus=None if corpus is None else Path(corpus))
    check_file(file, session.checkpoint)
    if map_method != "pca":
        settings = {"method": map_method, "table": "input"}
        with by_share(map_method) as report:

            def show(fraction: float, message: str) -> None:
                progress(f"{map_method}: {message}")
                report(fraction, message)

            JOBS["maps.draw"](session, settings, show)
    return write_page(session, file, progress)


def render_page(session: Session, progress: Callable[[str], None] = lambda _: None) -> str:
    """Return the studio on a session as one HTML document, which opens from a disk, in a mail, in a notebook.

    Its policy runs the scripts of the document alone, by hash; it loads nothing and sends nothing. Each view chooses in
    `exported` which answers the document holds; for others it shows how to open the studio itself.
    """
    check_page()
    views: dict[str, ExportedView] = {}
    # The overview of a model, which takes seconds to compute, is there at once in a file: it is first.
    for name in sorted(about(session, {}).views, key=lambda name: session.kind != "checkpoint" or name != "overview"):
        progress(f"exporting {name}")
        if (view := EXPORTS[name](session)) is not None:
            views[name] = view
    progress("computing the answers")
    blocks = _Blocks(session, views)
    # Queries hold words of the vocabulary, of which no character may end the script.
    data = json.dumps({"blocks": blocks.blocks, "answers": blocks.answers}).replace("<", "\\u003c")
    script, style = ((PAGE / name).read_text(encoding="utf-8") for name in ("studio.js", "studio.css"))
    # An inline script ends at the first </script, wherever it is; <!-- may make the rest a comment.
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
        element("title", f"{session.name} · whatwhere studio"),
        Markup(f"<style>{style}</style>"),
    )
    body = element(
        "body",
        element("div", id="studio"),
        element("noscript", _without_javascript(session, views)),
        Markup(f'<script type="application/json" id="exported">{data}</script>'),
        Markup(f"<script>{script}</script>"),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def write_page(session: Session, file: str | Path, progress: Callable[[str], None] = lambda _: None) -> Path:
    """Write the exported page of a session into a file, in one step, and return its path; an existing one is replaced.

    Args:
        file: to write; whether it can be written is checked first.
        progress: as in `render_page`.
    """
    file = check_file(file, session.checkpoint)
    content = render_page(session, progress)
    with writing(file):
        write_atomic(file, content)
    return file


def write_inspection(
    checkpoint: Checkpoint, inspection: Inspection, file: str | Path, progress: Callable[[str], None] = lambda _: None
) -> Path:
    """Write the studio's page on an inspected checkpoint as one file, which opens on the findings.

    It needs no program and no network; without JavaScript it shows text and tables. The page holds the neighbors of all
    tokens, which take half a minute to compute for 30,000 tokens.

    Args:
        file: to write; an existing one is replaced.

    Returns:
        The path of the file.

    Raises:
        MissingExtra: If this installation has no page.
        SettingError: If the file cannot be written, or is the checkpoint itself.
    """
    session = Session(checkpoint)
    session.keep_inspection(inspection)
    return write_page(session, file, progress)


def check_file(file: str | Path, read: Checkpoint) -> Path:
    """Check that a page can be written, and return its path.

    Args:
        read: the checkpoint of the page, which is not overwritten.
    """
    check_page()
    file = Path(file)
    if file.is_dir():
        raise SettingError(f"{file} is a folder, but the page is one file: pass {file / 'report.html'}.")
    parts = {entry.file for entry in read.tensors.values() if entry.file.exists()}
    if file.exists() and any(file.samefile(each) for each in parts):
        raise SettingError(f"{file} is part of the checkpoint, which is not overwritten.\nName another file.")
    with writing(file):
        require_writable(file)
    return file


def check_page(page: Path | None = None) -> None:
    """Raise MissingExtra if the page was not bundled when the package was built."""
    if not ((page or PAGE) / "index.html").is_file():
        raise MissingExtra(
            "this installation has no page for the studio: it was built without Node.js.\n"
            f"In a checkout: make page. Else install Node.js 20 or later and build again: {REBUILD}"
        )


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Raise SettingError where a file cannot be written."""
    try:
        yield
    except (OSError, ValueError) as problem:  # ValueError: a path with a null byte
        reason = getattr(problem, "strerror", None) or problem
        raise SettingError(f"{file} cannot be written: {reason}.\nChoose another file.") from None


class _Blocks:
    """The answers to the queries of the views, each once, packed and gzipped."""

    def __init__(self, session: Session, views: Mapping[str, ExportedView]) -> None:
        self.blocks: list[str] = []
        self.answers: dict[str, int] = {}
        self._known: dict[bytes, int] = {}
        # The path of the file stays here: the page may go anywhere.
        opened = about(session, {})
        begin = {**opened.begin, **{name: view.begin for name, view in views.items() if view.begin is not None}}
        held = first_names(session) if opened.runs else []
        shown = [title for name, title in zip(opened.runs, opened.run_titles, strict=True) if name in held]
        runs = [name for name in opened.runs if name in held]
        opened = replace(opened, path="", begin=begin, exported=True, views=[*views], runs=runs, run_titles=shown)
        self._keep("about", {}, opened)
        for name, settings in (query for view in views.values() for query in view.queries):
            self._keep(name, settings, _answer(session, name, settings))

    def _keep(self, name: str, settings: Mapping[str, Any], answer: object) -> None:
        packed = pack(answer)
        if packed not in self._known:
            self._known[packed] = len(self.blocks)
            self.blocks.append(base64.b64encode(gzip.compress(packed, 9, mtime=0)).decode())
        self.answers[_key(name, settings)] = self._known[packed]


def _answer(session: Session, name: str, settings: Mapping[str, Any]) -> Any:
    if name in QUERIES:
        return QUERIES[name](session, settings)
    if name in JOBS:
        return JOBS[name](session, settings, lambda fraction, message: None)
    raise SettingError(f"an exported view queries {name!r}, which nothing answers.")


def _key(name: str, settings: Mapping[str, Any]) -> str:
    """Return the key of a query as the page does: web/src/exported.ts sorts and writes alike."""
    return f"{name}?{json.dumps(dict(sorted(settings.items())), ensure_ascii=False, separators=(',', ':'))}"


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _without_javascript(session: Session, views: Mapping[str, ExportedView]) -> Markup:
    """Return what the views show as sentences and tables."""
    links = element("ol", *(element("li", element("a", view.title, href=f"#{name}")) for name, view in views.items()))
    return element(
        "main",
        element("h1", f"{session.name} · whatwhere studio"),
        paragraph("These are the numbers of the page, which draws with JavaScript."),
        element("nav", links, aria_label="Views"),
        *(element("section", element("h2", view.title), *_read(name, view), id=name) for name, view in views.items()),
    )


def _read(name: str, view: ExportedView) -> Iterator[Markup]:
    """Yield the text and tables of a view."""
    yield from map(paragraph, view.text)
    yield from sections(view.sections, level=3, prefix=f"{name}-")
