"""Hostile text is shown in one way, in a terminal, an error, a file and on the page."""

import json
import shutil
import sys
import unicodedata
from pathlib import Path

import pytest

from whatwhere.escape import cut, quoted, shown_token, visible, visible_token

TEXTS = [
    "", " ", "  ", "a b", " a\tb\n\r", "\u200b", "\u202eabc", "\u0301a\u0301", "\U000e0041\ufeff\u00a0", "שלום 東",
    "\x00\x1b[31m", "\x7f\x9f", "e\u0301", "\u2066\u2069", "\u115f\u1160\u3164\uffa0\u2800", "a\ufe0f\U000e0101",
    "\ufffe\uffff", "🐱" * 81, "x" * 48, "x" * 49, "x" * 500, "\u200b" * 60, "a\u200b" * 30, "\u0301" * 60,
    "<script>alert(1)</script>", "−5 %", "\\x1b",
]  # fmt: skip
"""Texts that a vocabulary may hold."""


@pytest.mark.parametrize("text", TEXTS)
def test_no_character_stays_invisible(text: str) -> None:
    for shown, kept in ((visible(text), " \u00a0"), (visible_token(text), ""), (quoted(text), " \u00a0")):
        assert not [c for c in shown if c not in kept and unicodedata.category(c)[0] in "CZ"]
        assert visible(shown) == shown
    assert len(visible_token(text)) <= 48


def test_tokens_as_they_are_shown() -> None:
    assert visible_token(" a\tb\n") == "␣a⇥b↵"
    assert visible_token("\u202eabc") == "⟨U+202E⟩abc"
    assert visible_token("\u0301a\u0301") == "◌\u0301a\u0301"
    assert visible_token("x" * 500) == "x" * 36 + "…" + "x" * 11
    assert visible_token("\u200b" * 60) == "⟨U+200B⟩" * 4 + "…" + "⟨U+200B⟩"
    assert visible("a\u00a0b \u2028") == "a\u00a0b ⟨U+2028⟩"
    assert cut("abcdefghij", 6) == "abcd…j"
    assert quoted("a'\n") == "'a'⟨U+000A⟩'"
    assert visible("\ud800") == "⟨U+D800⟩"
    shown = (shown_token("Ġthe", " the"), shown_token("##ing", "ing"), shown_token("Ã", None))
    assert shown == ("␣the", "##ing", "<0xC3>")


def test_the_page_shows_the_same(tmp_path: Path) -> None:
    """The rules are written twice, in Python and in TypeScript."""
    browser = pytest.importorskip("reliability.browser", reason="the studio's extra is not installed")
    if shutil.which("node") is None or not (browser.WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("Node.js or the page's packages are missing: make page")
    # Every assigned character of the first plane, some beyond, and the lone surrogates: versions of Unicode differ in
    # the unassigned ones.
    each = [chr(n) for n in (*range(0x10000), *range(0x1F300, 0x1F600), *range(0xE0000, 0xE01F0))]
    known = [char for char in each if unicodedata.category(char) != "Cn"]
    blocks = ["".join(known[n : n + 16]) for n in range(0, len(known), 16)]
    texts = [*TEXTS, "\ud800a", *blocks]
    (tmp_path / "texts.json").write_text(json.dumps([list(map(ord, text)) for text in texts]))
    words = ["Ġthe", "the", "##ing", "▁king", "Ã", "ĊĊ", "[MASK]", "", "Ġ", "<0x0A>", "東", "##"]
    pairs = [(word, text) for word in words for text in (" the", "ing", "", None, "\n", "\u202e")]
    (tmp_path / "pairs.json").write_text(json.dumps(pairs))
    shown = browser.driven("modules.mjs", texts=str(tmp_path / "texts.json"), pairs=str(tmp_path / "pairs.json"))
    expected = {
        "visible": [visible(text) for text in texts],
        "token": [visible_token(text) for text in texts],
        "shown": [shown_token(*pair) for pair in pairs],
        "short": [visible_token(text, 12) for text in texts],
    }
    for name, lines in expected.items():
        different = [(a, b) for a, b in zip(shown[name], lines, strict=True) if a != b]
        assert not different, (name, different[:3], sys.version)
