"""The folders of our own comparisons: the trained input layer of each run, under the name of its file."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint.contents import Contents
from whatwhere.interop.checkpoint.files import plain_name, read_json, shown
from whatwhere.interop.checkpoint.safetensors import read_header
from whatwhere.interop.checkpoint.stretches import Stretch, Stretches

FORMAT = "whatwhere-results"
RESULTS = "results.json"
_LARGEST = 200_000_000
_TABLE = "tokens.weight"
_LAYERS = "layers"
_HALF = re.compile("[\ud800-\udfff]")
"""Half characters, which JSON can name and no text has."""


def is_results(folder: Path) -> bool:
    """Tell whether a folder has the file that a comparison writes last."""
    return (folder / RESULTS).is_file()


def open_results(folder: str | Path) -> Contents:
    """Open the runs of a comparison; `rotary-0/tokens.weight` is the token table of seed 0 of the scheme rotary."""
    path = Path(folder) / RESULTS
    results = read_json(path, _LARGEST)
    if results.get("format") != FORMAT or results.get("version") != 1:
        raise CheckpointError(
            f"{path} has the format {shown(str(results.get('format')))}, but {FORMAT!r}, version 1, is read.\n"
            "Pass a folder that whatwhere compare has written."
        )
    stretches: dict[str, Stretch] = {}
    files = _files(path, results.get("runs"))
    # Who keeps results without their trained layers has deleted the whole folder; one file that is gone is damage.
    for file in files if (path.parent / _LAYERS).is_dir() else ():
        found, _ = read_header(file)
        stretches |= {
            f"{file.stem}/{name}": _renamed(stretch, f"{file.stem}/{name}") for name, stretch in found.items()
        }
    entries = {name: stretch.entry for name, stretch in stretches.items()}
    table = next((name for name in entries if name.endswith(f"/{_TABLE}")), None)
    words = _words(results.get("task"))
    return Contents("results", entries, Stretches(stretches), words=lambda: words, metadata=results, token_table=table)


def _files(path: Path, runs: Any) -> list[Path]:
    """Give the files of the runs, which stand in layers/ and nowhere else."""
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise CheckpointError(f"{path} has no list of runs.\nPass a folder that whatwhere compare has written.")
    found = []
    for run in runs:
        name = run.get("file")
        inside = name.removeprefix(f"{_LAYERS}/") if isinstance(name, str) and name.startswith(f"{_LAYERS}/") else ""
        found.append(path.parent / _LAYERS / plain_name(inside, str(path)))
    return list(dict.fromkeys(found))


def _renamed(stretch: Stretch, name: str) -> Stretch:
    return replace(stretch, entry=replace(stretch.entry, name=name))


def _words(task: Any) -> list[str] | None:
    tokens = task.get("tokens") if isinstance(task, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        return None
    return [_HALF.sub("\ufffd", token) for token in tokens]
