"""The colors of the page: both themes have them all, and they can be told from the ground they stand on."""

import re
from pathlib import Path

import numpy as np
import pytest

import whatwhere

STYLE = (Path(whatwhere.__file__).parent / "studio" / "web" / "src" / "studio.css").read_text(encoding="utf-8")


def luminance(color: str) -> float:
    """Compute the relative luminance of WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-relative-luminance."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def themes() -> dict[str, dict[str, str]]:
    light, _, rest = STYLE.partition(':root[data-theme="dark"]')
    dark = rest.partition("* {")[0]
    return {name: dict(re.findall(r"(--\w+): (#\w{6})", text)) for name, text in (("light", light), ("dark", dark))}


def test_every_variable_has_a_light_and_a_dark_value() -> None:
    light, dark = themes()["light"], themes()["dark"]
    assert light.keys() == dark.keys() >= set(re.findall(r"var\((--\w+)\)", STYLE))
    assert light["--page"] != dark["--page"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_and_lines_can_be_told_from_the_page(theme: str) -> None:
    colors = themes()[theme]
    assert contrast("#ffffff", "#000000") == pytest.approx(21.0)
    for name in ("ink", "muted", "link", "good", "bad", "open"):
        assert contrast(colors[f"--{name}"], colors["--page"]) >= 4.5, name
    for name in ("ink", "muted"):
        assert contrast(colors[f"--{name}"], colors["--shade"]) >= 4.5, name
    for index in range(8):
        assert contrast(colors[f"--c{index}"], colors["--page"]) >= 3.0, index


def test_the_page_asks_for_nothing() -> None:
    assert not re.search(r"@import|url\(|</", STYLE)
