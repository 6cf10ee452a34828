"""`whatwhere bench`: what it prints, and how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from whatwhere.benchmark import run
from whatwhere.benchmark.table import ratio

from ..running import refused, whatwhere


def test_the_table_and_its_json(tmp_path: Path) -> None:
    words = ("bench", "position-table", "--quick", "--threads", "1", "--out", tmp_path / "results.json")
    status, shown, said = whatwhere(*words)
    assert (status, said.startswith("1 of 1 works: position-table")) == (0, True)
    assert "position-table  32 positions, 4 pairs" in shown
    status, written, said = whatwhere(*words, "--json")
    assert (status, said) == (0, "")  # the file had it all
    found = json.loads(written)
    assert found["verdicts"] == []
    for row in found["works"]["position-table"]["cases"][0]["rows"]:
        (line,) = [line for line in shown.splitlines() if f" {row['candidate']}  " in line]
        assert f" {ratio(row['regimes']['fresh']['ratio']['median'])} " in line


def test_what_could_not_be_measured_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    record: dict[str, Any] = {"cases": [], "unavailable": {"pooled": "this C library has no mallopt"}}
    monkeypatch.setattr(run, "bench", lambda *_, **__: {"settings": {"quick": False}, "works": {"rotary": record}})
    status, shown, _ = whatwhere("bench")
    assert status == 0
    assert "rotary: pooled could not be measured: this C library has no mallopt." in shown


@pytest.mark.parametrize("kept", [True, False])
def test_an_interruption_says_whether_anything_is_kept(
    kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "bench", interrupted)
    status, shown, said = whatwhere("bench", *(["--out", tmp_path / "results.json"] if kept else []))
    assert (status, shown) == (130, "")
    assert ("What is finished is kept" in said) is kept
    assert ("With --out FILE finished works are kept" in said) is not kept


def test_a_bad_name_is_one_line() -> None:
    said = refused("bench", "no-such-work")
    assert said.startswith("whatwhere: bench got work='no-such-work', but knows only: rotary, lookup, ")
