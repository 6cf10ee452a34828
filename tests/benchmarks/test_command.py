"""`python -m benchmarks`: what it prints, and how it ends; that the package neither holds nor needs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import run
from benchmarks.__main__ import main
from benchmarks.table import ratio

from ..running import program

ROOT = Path(run.__file__).parents[1]


def test_help_has_an_example_and_loads_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['benchmarks', '--help']\nfrom benchmarks.__main__ import main\n"
    code += "try: main()\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    *shown, loaded = done.stdout.splitlines()
    assert "Usage: python -m benchmarks [OPTIONS] [CASE]..." in "\n".join(shown)
    assert "Example: python -m benchmarks rotary decoding --threads 2" in "\n".join(shown)
    assert "typer" in loaded.split()
    assert not {"torch", "numpy"} & set(loaded.split())


def test_the_table_and_its_json(tmp_path: Path) -> None:
    words = ("position-table", "--quick", "--threads", "1", "--out", tmp_path / "results.json")
    status, shown, said = program(main, *words)
    assert (status, said.startswith("1 of 1 cases: position-table")) == (0, True)
    assert "position-table  32 positions, 4 pairs" in shown
    status, written, said = program(main, *words, "--json")
    assert (status, said) == (0, "")  # the file had it all
    result = json.loads(written)
    assert result["verdicts"] == []
    for row in result["cases"]["position-table"]["variants"][0]["rows"]:
        (line,) = [line for line in shown.splitlines() if f" {row['candidate']}  " in line]
        assert f" {ratio(row['regimes']['fresh']['ratio']['median'])} " in line


@pytest.mark.parametrize("kept", [True, False])
def test_an_interruption_reports_whether_anything_is_kept(
    kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "bench", interrupted)
    out = tmp_path / "results.json"
    status, shown, said = program(main, *(["--out", out] if kept else []))
    assert (status, shown) == (130, "")
    assert said.startswith("benchmarks: interrupted.")
    assert (f"Finished cases are in {out}: " in said) is kept
    assert ("pass --out FILE" in said) is not kept


def test_a_bad_name_is_one_line() -> None:
    status, shown, said = program(main, "no-such-case")
    assert (status, shown) == (1, "")
    assert said.startswith("benchmarks: benchmarks got case='no-such-case', but knows only: rotary, lookup, ")
