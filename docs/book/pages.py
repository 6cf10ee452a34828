"""Stage the Markdown pages of the repository for the site: its links, its figures, and frames with live ones."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from docs.book.notebooks import colab_address

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")
_LIVE = re.compile(r"^<!-- live: (?P<page>\w+) (?P<view>#\S+) (?P<title>.+) -->$(?P<picture>\n\[!\[.+)?", re.MULTILINE)
_FIGURE = re.compile(r"^<!-- figure: (?P<file>\S+\.svg) (?P<title>.+) -->$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_COPIED = (".svg", ".png", ".css", ".json")


def stage_pages(
    pages: Path, live: frozenset[str], notebooks: frozenset[str], figures: frozenset[str], repository: str = ""
) -> None:
    """Write all pages and pictures of the repository into the folder that the site is built from.

    Args:
        pages: the folder.
        live: names of the exported studio pages that are there; frames of others are left out.
        notebooks: names of the chapters that are there as notebooks, which their pages link.
        figures: file names of the figures of the schemes' cards.
        repository: OWNER/NAME on GitHub, from which Colab opens the notebooks; empty without one.
    """
    for source, target in sources():
        file = pages / target
        file.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix != ".md":
            shutil.copyfile(source, file)
            continue
        text = relinked(source.read_text(encoding="utf-8"), source, target, pages)
        text = illustrated(framed(text, target, live), figures)
        if target.parent.name == "course" and target.stem in notebooks:
            title, _, body = text.partition("\n")
            links = f"[Download this chapter as a notebook](../notebooks/{target.stem}.ipynb)"
            if repository:
                links += f", or [open it in Colab]({colab_address(repository, target.stem)})"
            text = f"{title}\n\n{links}\n{body}"
        file.write_text(text, encoding="utf-8")


def sources() -> Iterator[tuple[Path, PurePosixPath]]:
    """Iterate over the files that become the site, each with its path there."""
    for file in sorted(ROOT.glob("*.md")):
        yield file, site_path(file)
    docs = ROOT / "docs"
    yield from ((file, site_path(file)) for file in sorted(docs.rglob("*.md")))
    for file in sorted(docs.rglob("*")):
        if file.suffix in _COPIED:
            yield file, site_path(file)


def site_path(file: Path) -> PurePosixPath:
    """Return where a file of the repository is on the site.

    Examples:
        >>> site_path(ROOT / "README.md"), site_path(ROOT / "docs/studio.md")
        (PurePosixPath('index.md'), PurePosixPath('studio.md'))
    """
    path = PurePosixPath(file.relative_to(ROOT).as_posix())
    if path == PurePosixPath("README.md"):
        return PurePosixPath("index.md")
    if path == PurePosixPath("docs/book/site.css"):
        return PurePosixPath("site.css")
    if path.is_relative_to("docs"):
        return path.relative_to("docs")
    if path == PurePosixPath("src/whatwhere/reference"):
        return PurePosixPath("reference/textbook.md")
    return PurePosixPath("project") / path


def relinked(text: str, source: Path, target: PurePosixPath, pages: Path) -> str:
    """Return a page with its links to other files of the repository as links of the site.

    A file that is no page, such as an example, is copied beside the pages; a folder that has files on the site gets a
    list of them. Code is left as it is.
    """

    def link(match: re.Match[str]) -> str:
        path, anchor = match.group(1), match.group(2) or ""
        if not path or "://" in path or path.startswith("mailto:"):
            return match.group(0)
        linked = (source.parent / path).resolve()
        there = site_path(linked)
        if linked.is_file() and linked.suffix not in (".md", *_COPIED):
            (pages / there).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(linked, pages / there)
        names = sorted(file.name for file in linked.glob("*") if file.suffix in _COPIED)
        if names and there.suffix != ".md":  # a server does not list a folder
            there = there / "index.html"
            (pages / there).parent.mkdir(parents=True, exist_ok=True)
            listed = "\n".join(f'<li><a href="{name}">{name}</a></li>' for name in names)
            (pages / there).write_text(f"<!doctype html>\n<title>{path}</title>\n<ul>\n{listed}\n</ul>\n", "utf-8")
        return f"]({os.path.relpath(there, target.parent)}{anchor})"

    return _outside_code(text, lambda part: _LINK.sub(link, part))


def framed(text: str, target: PurePosixPath, live: frozenset[str]) -> str:
    """Return a page in which each comment `live: PAGE #/VIEW TITLE` is a frame with that view of an exported page.

    A picture of it on the next line is for readers elsewhere, and stays only where there is no such page.
    """
    up = "../" * len(target.parent.parts)

    def frame(match: re.Match[str]) -> str:
        if match["page"] not in live:
            return (match["picture"] or "").strip()
        address = f"{up}live/{match['page']}.html{match['view']}"
        return (
            # In a sandbox, a figure that scrolls to its own heading does not scroll the chapter around it.
            '<figure class="live">\n<iframe sandbox="allow-scripts allow-popups allow-downloads" loading="lazy" '
            f'src="{address}" title="{match["title"]}"></iframe>\n'
            f'<figcaption>{match["title"]}. <a href="{address}">Open it in a page of its own.</a></figcaption>\n'
            "</figure>"
        )

    return _LIVE.sub(frame, text)


def illustrated(text: str, figures: frozenset[str]) -> str:
    """Return a page in which each comment `figure: FILE TITLE` is that figure.

    Args:
        text: of the page, in Markdown.
        figures: the file names, beside the page.

    Raises:
        KeyError: If there is no such figure.

    Examples:
        >>> illustrated("<!-- figure: rotary.svg rotary by distance -->", frozenset({"rotary.svg"}))
        '![rotary by distance](rotary.svg)'
    """

    def figure(match: re.Match[str]) -> str:
        if match["file"] not in figures:
            raise KeyError(f"the figure {match['file']} was not drawn.")
        return f"![{match['title']}]({match['file']})"

    return _FIGURE.sub(figure, text)


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """Return a text whose parts outside code are changed."""
    parts, end = [], 0
    for match in _CODE.finditer(text):
        parts += [change(text[end : match.start()]), match.group(0)]
        end = match.end()
    return "".join([*parts, change(text[end:])])
