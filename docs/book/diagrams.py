"""Draw the course's diagrams into docs/diagrams: `python -m docs.book.diagrams`. A test fails if they are old."""

from collections.abc import Mapping
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "diagrams"
# Each has a ground of its own, so that it can be read on any page, light or dark.
_STYLE = """
.ground { fill: #fbfaf7; } text { font: 15px system-ui, sans-serif; fill: #1d1d1f; text-anchor: middle; }
.small { font-size: 12.5px; } .left { text-anchor: start; } .code { font-family: ui-monospace, monospace; }
.box { fill: #ffffff; stroke: #6b6b70; stroke-width: 1.5; } .what { fill: #d6e6f7; stroke: #1f5fa0; }
.where { fill: #fbe3c6; stroke: #a85a00; } .group { fill: none; stroke: #8c8c92; stroke-dasharray: 5 4; }
path { fill: none; stroke: #45454a; stroke-width: 1.5; marker-end: url(#tip); } path.where { stroke: #a85a00; }
path.plain { marker-end: none; } marker path { fill: #45454a; stroke: none; marker-end: none; }
@media (prefers-color-scheme: dark) {
  .ground { fill: #1e2025; } text { fill: #ececf0; } .box { fill: #2a2d34; stroke: #a0a0a8; }
  .what { fill: #17385c; stroke: #7ab3ee; } .where { fill: #54340b; stroke: #f0b060; } .group { stroke: #85858d; }
  path { stroke: #c4c4cc; } path.where { stroke: #f0b060; fill: none; } marker path { fill: #c4c4cc; }
}
"""


class Drawing:
    """An SVG document of boxes, words and arrows.

    Args:
        width, height: in pixels.
        title: what the picture shows, for readers who do not see it.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "") -> None:
        """Draw a box around lines of text."""
        self._parts.append(f'<rect class="box {kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
        for n, line in enumerate(lines):
            middle = y + height / 2 + 5 + (n - (len(lines) - 1) / 2) * 19
            self.text(x + width / 2, middle, line, "small" if n else "")

    def group(self, x: float, y: float, width: float, height: float, label: str) -> None:
        """Draw a dashed frame, with a label inside its upper edge."""
        self._parts.append(f'<rect class="group" x="{x}" y="{y}" width="{width}" height="{height}" rx="10"/>')
        self.text(x + 12, y + 20, label, "small left")

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """Write words, centered unless kind says left."""
        self._parts.append(f'<text class="{kind}" x="{x}" y="{y}">{escape(words)}</text>')

    def arrow(self, *points: tuple[float, float], kind: str = "") -> None:
        """Draw a line through points, with a tip at its end unless the kind is plain."""
        steps = " L ".join(f"{x} {y}" for x, y in points)
        self._parts.append(f'<path class="{kind}" d="M {steps}"/>')

    def svg(self) -> str:
        """Return the document."""
        width, height = self._size
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-labelledby="title">\n<title id="title">{escape(self._title)}</title>\n'
            f"<style>{_STYLE}</style>\n"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto-start-reverse"><path d="M 0 0 L 8 4 L 0 8 Z"/></marker></defs>\n'
            f'<rect class="ground" width="{width}" height="{height}" rx="10"/>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )


def input_layer() -> Drawing:
    """Return the drawing of the input layer: text, ids, rows, positions, sums."""
    drawing = Drawing(
        760, 420, "The input layer: the ids of Max ( 1 pick rows, positions give vectors, and both are added"
    )
    columns = [("Max", 15, 0), ("(", 17, 1), ("1", 3, 2)]
    for row, label in zip(
        (45, 110, 185, 260, 345), ("tokens", "ids", "what: rows", "where: positions", "sums"), strict=True
    ):
        drawing.text(24, row + 5, label, "small left")
    for n, (token, number, position) in enumerate(columns):
        x = 170 + 195 * n
        drawing.box(x, 25, 160, 40, token)
        drawing.arrow((x + 80, 65), (x + 80, 92))
        drawing.text(x + 80, 115, str(number), "code")
        drawing.arrow((x + 80, 122), (x + 80, 164))
        drawing.box(x, 165, 160, 40, f"E[{number}]", kind="what")
        drawing.text(x + 80, 229, "+")
        drawing.box(x, 240, 160, 40, f"PE[{position}]", kind="where")
        drawing.arrow((x + 80, 280), (x + 80, 324))
        drawing.box(x, 325, 160, 40, f"E[{number}] + PE[{position}]")
        drawing.arrow((x + 80, 365), (x + 80, 394))
    drawing.text(445, 411, "to the first layer", "small")
    return drawing


def doors() -> Drawing:
    """Return the drawing of the three doors."""
    title = "The three doors: positions are added to token vectors, rotate queries and keys, or are added to scores"
    drawing = Drawing(820, 400, title)
    drawing.box(20, 170, 110, 60, "what", "token vectors", kind="what")
    drawing.box(180, 170, 60, 60, "+")
    drawing.box(330, 120, 110, 56, "queries")
    drawing.box(330, 224, 110, 56, "keys")
    drawing.box(520, 170, 100, 60, "< q, k >", "scores")
    drawing.box(690, 170, 110, 60, "softmax", "weights")
    drawing.arrow((130, 200), (179, 200))
    drawing.arrow((240, 190), (284, 190), (284, 148), (329, 148))
    drawing.arrow((240, 210), (284, 210), (284, 252), (329, 252))
    drawing.arrow((440, 148), (480, 148), (480, 188), (519, 188))
    drawing.arrow((440, 252), (480, 252), (480, 212), (519, 212))
    drawing.arrow((620, 200), (689, 200))
    names = [
        ("door 1: input", "sinusoidal, learned", 130),
        ("door 2: query_key", "rotary", 305),
        ("door 3: score", "ALiBi, T5", 490),
    ]
    for label, schemes, x in names:
        drawing.box(x, 20, 160, 52, label, schemes, kind="where")
    drawing.arrow((210, 72), (210, 169), kind="where")
    drawing.group(310, 100, 150, 200, "")
    drawing.arrow((385, 72), (385, 99), kind="where")
    drawing.arrow((570, 72), (570, 169), kind="where")
    drawing.box(300, 330, 220, 50, "positions p", "0, 1, 2, ...", kind="where")
    drawing.text(410, 322, "the same positions serve all three doors", "small")
    return drawing


def transformer() -> Drawing:
    """Return the drawing of a Transformer with encoder and decoder."""
    title = "A Transformer: an encoder and a decoder, each with an input layer and N layers, then the output projection"
    drawing = Drawing(760, 560, title)
    for x, name, masked in ((40, "encoder", ""), (400, "decoder", "causal ")):
        inputs = "ids of the source" if name == "encoder" else "ids of the target, so far"
        drawing.text(x + 160, 545, inputs, "small")
        drawing.arrow((x + 160, 528), (x + 160, 512))
        drawing.box(x + 40, 452, 240, 58, "input layer", "what + where, if door 1", kind="what")
        drawing.arrow((x + 160, 452), (x + 160, 414))
        drawing.box(x + 40, 356, 240, 58, f"{masked}self-attention", "where: doors 2 and 3", kind="where")
    drawing.group(50, 210, 300, 228, "encoder, N layers")
    drawing.group(410, 150, 300, 288, "decoder, N layers")
    drawing.arrow((200, 356), (200, 302))
    drawing.box(80, 244, 240, 58, "feed-forward", "each token by itself")
    drawing.arrow((560, 356), (560, 328))
    drawing.box(440, 270, 240, 58, "cross-attention", "to the encoder's vectors")
    drawing.arrow((560, 270), (560, 242))
    drawing.box(440, 184, 240, 58, "feed-forward", "each token by itself")
    drawing.arrow((200, 244), (200, 190), (380, 190), (380, 299), (439, 299))
    drawing.arrow((560, 184), (560, 118))
    drawing.box(440, 60, 240, 58, "output projection, softmax", "often the token table again", kind="what")
    drawing.arrow((560, 60), (560, 34))
    drawing.text(560, 24, "probabilities of the next token", "small")
    drawing.text(200, 120, "Each layer adds its result to", "small")
    drawing.text(200, 140, "its input, and normalizes.", "small")
    return drawing


DIAGRAMS: Mapping[str, Drawing] = {"input-layer": input_layer(), "doors": doors(), "transformer": transformer()}
"""By file name, without the ending."""


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, drawing in DIAGRAMS.items():
        (FOLDER / f"{name}.svg").write_text(drawing.svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
