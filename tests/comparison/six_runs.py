"""A comparison of six runs, whose results must be the same wherever these take place."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import whatwhere as ww
from whatwhere.atomic import is_unfinished
from whatwhere.comparison import read_results
from whatwhere.comparison.results import RunResult

SIZES: dict[str, Any] = {"layers": 1, "dim": 16, "batch": 8, "feedforward": 16, "test_sequences": 40}
WORDS = ["compare", "none", "alibi", "--seeds", "3", "--lengths", "8", "--steps", "30", "--layers", "1", "--dim", "16"]
WORDS += ["--set", "batch=8", "--set", "feedforward=16", "--set", "test_sequences=40"]
"""Of the command line."""


def compare(out: Path, **given: Any) -> None:
    """Do the runs."""
    ww.compare(["none", "alibi"], lengths=[8], seeds=3, steps=30, out=out, **SIZES, **given)


def require_same(expected: Path, folder: Path) -> None:
    """Fail unless two folders hold the same runs, times apart, and the same models and traces, byte for byte."""
    assert numbers(folder) == numbers(expected)
    for part in ("runs", "models", "traces"):
        assert names(folder / part) == names(expected / part)
    assert len(names(expected / "models")) == len(names(expected / "traces")) == len(read_results(expected).runs)
    assert read_results(folder).record.schemes == read_results(expected).record.schemes
    for file in expected.glob("*/*.safetensors"):
        assert file.read_bytes() == (folder / file.relative_to(expected)).read_bytes()


def names(folder: Path) -> list[str]:
    """List a folder, but for what a killed process has left unfinished."""
    return sorted(path.name for path in folder.iterdir() if not is_unfinished(path) and path.suffix != ".lock")


def numbers(folder: Path) -> list[RunResult]:
    """Return what must be equal: all but times."""
    return [replace(run, seconds=0.0, seconds_per_step=0.0) for run in read_results(folder).runs]
