"""A page as it is read without JavaScript."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Read what a page says without JavaScript; an element that is not closed where it must be fails."""

    def __init__(self, written: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.words = ""
        self.texts: dict[str, list[str]] = {"h2": [], "h3": [], "p": []}
        self._open: list[str] = []
        self.feed(written)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        assert len(named) == len(attrs), f"<{tag}> has an attribute twice"
        self.elements.append((tag, named))
        if tag == "table":
            self.tables.append(("", []))
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][1][-1].append("")
        elif tag in self.texts:
            self.texts[tag].append("")
        if tag not in {"meta", "br"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"style", "script"} & set(self._open):
            return
        self.words += data
        if "caption" in self._open:
            self.tables[-1] = (self.tables[-1][0] + data, self.tables[-1][1])
        elif "td" in self._open or "th" in self._open:
            self.tables[-1][1][-1][-1] += data
        for tag in self.texts.keys() & set(self._open):
            self.texts[tag][-1] += data

    def rows(self, caption: str) -> list[list[str]]:
        return next(rows for title, rows in self.tables if title == caption)

    def cell(self, caption: str, row: str, column: str) -> str:
        """Find the one cell of this row and column in the tables whose caption starts so."""
        result = []
        for title, (head, *rows) in self.tables:
            if title.startswith(caption) and column in head:
                result += [line[head.index(column)] for line in rows if line[0] == row]
        assert len(result) == 1, f"{caption}: {row}, {column}: {result}"
        return result[0]
