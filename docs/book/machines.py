"""The site for machines: llms.txt lists its pages (llmstxt.org), llms-full.txt has the texts that explain."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

EXPLAINED = ("Start", "Course", "How-to")
"""The groups of the navigation whose pages are in llms-full.txt."""


def write_texts_for_machines(folder: Path) -> None:
    """Write llms.txt and llms-full.txt beside the staged pages, in the order of the navigation.

    Args:
        folder: where the pages and the configuration were staged.
    """
    project = tomllib.loads((folder / "zensical.toml").read_text(encoding="utf-8"))["project"]
    pages, short, full = folder / "pages", [f"# {project['site_name']}", f"> {project['site_description']}"], []
    for group in project["nav"]:
        for name, entries in group.items():
            listed = [(title, page, (pages / page).read_text(encoding="utf-8")) for title, page in _pages(entries)]
            lines = [f"- [{title}]({Path(page).with_suffix('.html')}){_summary(text)}" for title, page, text in listed]
            short.append(f"## {name}\n\n" + "\n".join(lines))
            if name in EXPLAINED:
                full += [text.strip() for _, _, text in listed]
    (pages / "llms.txt").write_text("\n\n".join(short) + "\n", encoding="utf-8")
    (pages / "llms-full.txt").write_text("\n\n".join(full) + "\n", encoding="utf-8")


def _pages(entries: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        for title, value in entry.items():
            if isinstance(value, str):
                yield title, value
            else:
                yield from _pages(value)


def _summary(text: str) -> str:
    """Return the first sentence of a page, after a colon; nothing where it begins with no sentence."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    first = next((part for part in paragraphs if re.match(r"[A-Z*`\"'(]", part)), "")
    sentence = re.match(r"(.+?[.?!])(?=\s[A-Z]|$)", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", first))
    return f": {sentence[1]}" if sentence else ""
