"""Each view as people use it otherwise: in Firefox, by keyboard, with axe, little motion, 200 %, forced colors."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whatwhere.comparison import compare
from whatwhere.studio.export import render_page
from whatwhere.studio.session import Session

from .conftest import lacking

FIREFOX = shutil.which("firefox") or shutil.which("firefox-esr")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Open results that every view has something to show of."""
    out = tmp_path_factory.mktemp("compared") / "results"
    sizes: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 8, "test_sequences": 20, "steps": 7}
    schemes = ["learned", "rotary+alibi"]
    compare(schemes, lengths=[4, 6], seeds=2, out=out, workers=1, progress=False, trained=(2, 3), **sizes)
    return Session.open(out)


@pytest.mark.slow
def test_firefox_draws_every_view(look: Callable[..., dict[str, Any]], compared: Session, tmp_path: Path) -> None:
    if FIREFOX is None:
        lacking("firefox is missing: apt install firefox-esr")
    file = tmp_path / "page.html"
    file.write_text(render_page(compared), encoding="utf-8")
    (tmp_path / "saved").mkdir()
    result = look(compared, "firefox.mjs", firefox=FIREFOX, file=str(file), saved=str(tmp_path / "saved"))
    assert result["browser"] == "firefox"
    assert result["views"] == dict.fromkeys(result["views"], 0)
    assert len(result["views"]) == 14
    assert result["exported"] == dict.fromkeys(result["exported"], 0)
    assert len(result["exported"]) > 5
    (picture,) = (tmp_path / "saved").glob("*.svg")
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    assert result["light"] != result["dark"]
    assert result["focused"] == ["A solid", "BUTTON solid"] + 14 * ["A solid"]
    assert result["complaints"] == []


@pytest.mark.slow
def test_every_view_is_clean_reached_by_keyboard_and_fits(
    look: Callable[..., dict[str, Any]], compared: Session
) -> None:
    result = look(compared, "access.mjs")
    right = {
        "axe": [], "moving": 0, "left": [], "unmarked": [], "round": True, "lost": [], "pale": 0, "overflow": 0,
    }  # fmt: skip
    assert result["views"] == dict.fromkeys(result["views"], right)
    assert len(result["views"]) == 14
    assert result["reached"] > 500
    assert result["complaints"] == []
