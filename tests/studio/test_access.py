"""Each view for people who see, move and read otherwise: axe, the keyboard alone, motion, 200 %, forced colors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whatwhere.comparison import compare
from whatwhere.studio.session import Session


@pytest.mark.slow
def test_every_view_is_clean_reached_by_keyboard_and_fits(look: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "results"
    sizes: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 8, "test_sequences": 20, "steps": 7}
    schemes = ["learned", "rotary+alibi"]
    compare(schemes, lengths=[4, 6], seeds=2, out=out, workers=1, progress=False, trained=(2, 3), **sizes)
    result = look(Session.open(out), "access.mjs")
    right = {
        "axe": [], "moving": 0, "left": [], "unmarked": [], "round": True, "lost": [], "pale": 0, "overflow": 0,
    }  # fmt: skip
    assert result["views"] == dict.fromkeys(result["views"], right)
    assert len(result["views"]) == 14
    assert result["reached"] > 500
    assert result["complaints"] == []
