"""Results of `whatwhere compare`: the trained model of each run, under the name of its file."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from whatwhere.errors import CheckpointError
from whatwhere.models.checkpoint.base import ByteRange, Contents
from whatwhere.models.checkpoint.files import plain_name, read_json
from whatwhere.models.checkpoint.safetensors import read_header, require_checksum
from whatwhere.records import Schema

RESULTS_SCHEMA = Schema(
    "whatwhere-results",
    4,
    "Run the comparison again, into a new folder, or read it with the whatwhere that wrote it.",
    unchecked={3},
)
RESULTS, RESULTS_FORMAT = "results.json", "results"
MAX_RESULTS_BYTES = 200_000_000
TABLE = "input.tokens.weight"
_MODELS = "models"
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Lone surrogates, which JSON can express and UTF-8 cannot."""


def is_results(folder: Path) -> bool:
    """Return whether a folder has results of `whatwhere compare`: the file that it writes last."""
    return (folder / RESULTS).is_file()


def open_results(folder: Path) -> Contents:
    """Read the headers of the trained models of a comparison; `rotary-0/input.tokens.weight` is a table of seed 0."""
    path = folder / RESULTS
    results = RESULTS_SCHEMA.opened(read_json(path, MAX_RESULTS_BYTES), str(path), CheckpointError)
    entries: dict[str, ByteRange] = {}
    files = _model_files(path, results.get("runs"))
    # Results without trained models have no such folder; if there is one, a missing file is an error.
    for file in files if (folder / _MODELS).is_dir() else ():
        require_checksum(file, RESULTS_SCHEMA)
        for own, entry in read_header(file)[0].items():
            name = f"{file.stem}/{own}"
            entries[name] = replace(entry, name=name)
    tokens = _tokens(results.get("task"))
    return Contents(
        RESULTS_FORMAT,
        entries,
        words=lambda: tokens,
        metadata=results,
        token_table=next((name for name in entries if name.endswith(f"/{TABLE}")), None),
    )


def _model_files(path: Path, runs: Any) -> list[Path]:
    """Return the files of the runs, all of which must be in models/."""
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise CheckpointError(f"{path} has no list of runs.\nPass a folder that whatwhere compare has written.")
    files = []
    for run in runs:
        name = run.get("file")
        inside = name.removeprefix(f"{_MODELS}/") if isinstance(name, str) and name.startswith(f"{_MODELS}/") else ""
        files.append(path.parent / _MODELS / plain_name(inside, str(path)))
    return list(dict.fromkeys(files))


def _tokens(task: Any) -> list[str] | None:
    tokens = task.get("tokens") if isinstance(task, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        return None
    return [_SURROGATE.sub("\ufffd", token) for token in tokens]
