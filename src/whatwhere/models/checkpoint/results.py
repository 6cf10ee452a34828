"""The folders of our own comparisons: the trained input layer of each run, under the name of its file."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import Contents
from whatwhere.models.checkpoint.byte_ranges import ByteRange, ByteRangeReader
from whatwhere.models.checkpoint.files import plain_name, read_json
from whatwhere.models.checkpoint.safetensors import read_header

FORMAT, VERSION = "whatwhere-results", 2
RESULTS = "results.json"
_MAX_BYTES = 200_000_000
_TABLE = "tokens.weight"
_LAYERS = "layers"
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Lone surrogates, which JSON can express and no text contains."""


def is_results(folder: Path) -> bool:
    """Return whether a folder has the file that a comparison writes last.

    Args:
        folder: to look in.
    """
    return (folder / RESULTS).is_file()


def open_results(folder: str | Path) -> Contents:
    """Read the headers of a comparison's runs: `rotary-0/tokens.weight` is the token table of `rotary`, seed 0.

    Args:
        folder: that `whatwhere compare` has written.

    Raises:
        CheckpointError: it is another format or version, or a file is missing or damaged.
    """
    path = Path(folder) / RESULTS
    results = read_json(path, _MAX_BYTES)
    if results.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has the format {quoted(str(results.get('format')))}, but {FORMAT!r} is needed.\n"
            "Pass a folder that whatwhere compare has written."
        )
    if results.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has version {quoted(str(results.get('version')))}, but this whatwhere reads version {VERSION}.\n"
            "Run the comparison again, into a new folder, or read it with the whatwhere that wrote it."
        )
    ranges: dict[str, ByteRange] = {}
    files = _layer_files(path, results.get("runs"))
    # Without trained layers the whole folder is absent; a single missing file is damage.
    for file in files if (path.parent / _LAYERS).is_dir() else ():
        header, _ = read_header(file)
        ranges |= {f"{file.stem}/{name}": _renamed(one, f"{file.stem}/{name}") for name, one in header.items()}
    entries = {name: one.entry for name, one in ranges.items()}
    table = next((name for name in entries if name.endswith(f"/{_TABLE}")), None)
    tokens = _tokens(results.get("task"))
    return Contents(
        "results", entries, ByteRangeReader(ranges), words=lambda: tokens, metadata=results, token_table=table
    )


def _layer_files(path: Path, runs: Any) -> list[Path]:
    """Return the files of the runs, which are in layers/ and nowhere else."""
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise CheckpointError(f"{path} has no list of runs.\nPass a folder that whatwhere compare has written.")
    files = []
    for run in runs:
        name = run.get("file")
        inside = name.removeprefix(f"{_LAYERS}/") if isinstance(name, str) and name.startswith(f"{_LAYERS}/") else ""
        files.append(path.parent / _LAYERS / plain_name(inside, str(path)))
    return list(dict.fromkeys(files))


def _renamed(source: ByteRange, name: str) -> ByteRange:
    return replace(source, entry=replace(source.entry, name=name))


def _tokens(task: Any) -> list[str] | None:
    tokens = task.get("tokens") if isinstance(task, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        return None
    return [_SURROGATE.sub("\ufffd", token) for token in tokens]
