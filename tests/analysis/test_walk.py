"""docs/minilm.md: its commands print what it says that they print."""

import re
from pathlib import Path

import pytest

from ..running import script

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")


@pytest.mark.usefixtures("minilm")
def test_the_walk_is_up_to_date() -> None:
    """Words are equal; numbers may differ in the last digit, as libraries of matrices do."""
    module = script(ROOT / "docs" / "minilm.py")
    texts = (module.page(), module.PAGE.read_text(encoding="utf-8"))
    now, written = (re.sub(r"[█▉▊▋▌▍▎▏]+", "", text) for text in texts)
    assert words(now) == words(written), "run make docs"
    assert numbers(now) == pytest.approx(numbers(written), rel=0.02, abs=0.002), "run make docs"


def words(text: str) -> str:
    return " ".join(NUMBER.sub("0", text).split())


def numbers(text: str) -> list[float]:
    return [float(result.replace(",", "").rstrip(".")) for result in NUMBER.findall(text)]
