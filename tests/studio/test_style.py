"""The colors of the page: both themes have them all, and they can be told from the ground they stand on."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import whatwhere
from whatwhere.report.html import COLORS

STYLE = (Path(whatwhere.__file__).parent / "studio" / "web" / "src" / "studio.css").read_text(encoding="utf-8")


def luminance(color: str) -> float:
    """Compute the relative luminance of WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-relative-luminance."""
    return float(np.dot(linear(color), [0.2126, 0.7152, 0.0722]))


def linear(color: str) -> list[float]:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


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


COLOR_BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
"""What is seen of linear RGB; Machado, Oliveira and Fernandes 2009, severity 1."""


def oklab(linear: np.ndarray) -> np.ndarray:
    """Compute Oklab, https://bottosson.github.io/posts/oklab, in which distances are differences that are seen."""
    cones = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
    axes = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    return np.asarray(axes) @ np.cbrt(np.asarray(cones) @ np.clip(linear, 0, 1))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("blindness", COLOR_BLINDNESS)
def test_the_color_blind_can_tell_the_colors_of_curves_apart(theme: str, blindness: str) -> None:
    """The palette of Okabe and Ito, whose yellow cannot be seen on white, has 0.076 by this measure."""
    colors = [np.array(linear(themes()[theme][f"--c{index}"])) for index in range(8)]
    seen = [oklab(COLOR_BLINDNESS[blindness] @ color) for color in colors]
    assert min(np.linalg.norm(one - other) for one, other in combinations(seen, 2)) > 0.085


def test_figures_that_python_writes_have_the_same_colors() -> None:
    assert [themes()["light"][f"--c{index}"] for index in range(8)] == list(COLORS)


def test_the_page_asks_for_nothing() -> None:
    assert not re.search(r"@import|url\(|</", STYLE)
