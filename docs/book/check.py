"""What a strict build leaves unchecked: the navigation is whole, frames and pictures are there, all is local."""

import re
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

_LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "object": "data"}
_ALLOWED = {"canonical", "alternate"}


def problems_of_navigation(folder: Path) -> list[str]:
    """Return what is wrong with the navigation of staged pages: entries without a page, pages without an entry."""
    config = tomllib.loads((folder / "zensical.toml").read_text(encoding="utf-8"))
    named = set(_targets(config["project"]["nav"]))
    there = {file.relative_to(folder / "pages").as_posix() for file in (folder / "pages").rglob("*.md")}
    return [
        *(f"The navigation names {name}, but no such page was written." for name in sorted(named - there)),
        *(f"{name} is a page that the navigation lacks." for name in sorted(there - named)),
    ]


def problems_of_site(site: Path) -> list[str]:
    """Return what is wrong with built pages: links to files that are not there, and anything from other servers."""
    problems = []
    for page in sorted(site.rglob("*.html")):
        if page.parent.name == "live" or page.name == "404.html":
            continue  # exported pages are whole files, and 404.html is shown at any address
        for tag, attribute, target in _references(page):
            if re.match(r"https?:|//", target):
                if tag in _LOADED:
                    problems.append(f"{page.relative_to(site)} loads {target}")
            elif not re.match(r"#|mailto:|data:", target) and not _is_served(
                page.parent / re.split(r"[#?]", target)[0]
            ):
                problems.append(f"{page.relative_to(site)}: {attribute} {target} is not there")
    return problems


def _is_served(path: Path) -> bool:
    return path.is_file() or (path / "index.html").is_file()


def _targets(entries: Any) -> Iterator[str]:
    """Iterate over the pages of a navigation."""
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from _targets(value)


def _references(page: Path) -> list[tuple[str, str, str]]:
    """Return the tag, attribute and target of all links of a page, and of all that it loads."""
    found: list[tuple[str, str, str]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            given = {name: value or "" for name, value in attrs}
            attribute = "href" if tag == "a" else _LOADED.get(tag, "")
            if attribute in given and given.get("rel") not in _ALLOWED:
                found.append((tag, attribute, given[attribute]))

    Reader().feed(page.read_text(encoding="utf-8"))
    return found
