"""Whether a file that a command wrote is whole, as its format tells: for outputs with nothing to compare them with."""

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors.torch import load

from whatwhere.records import CHECKSUM, checksum


def incomplete(path: Path, suffix: str = "") -> str:
    """Return what a file lacks, or "".

    Args:
        path: of the file.
        suffix: tells its format; that of its name by default. Formats that have no end are taken as they are.
    """
    content = path.read_bytes()
    try:
        return _LACKS.get(suffix or path.suffix, _nothing)(content) if content else "it is empty"
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"[:200]


def _nothing(content: bytes) -> str:
    return ""


def _json(content: bytes) -> str:
    value = json.loads(content)
    stated = value.get(CHECKSUM) if isinstance(value, dict) else None
    return "it has another checksum than it states" if stated and stated != checksum(value) else ""


def _tensors(content: bytes) -> str:
    return "" if load(content) else "it has no tensors"


def _rows(delimiter: str) -> Callable[[bytes], str]:
    def lacks(content: bytes) -> str:
        widths = {len(row) for row in csv.reader(content.decode().splitlines(), delimiter=delimiter)}
        return "" if len(widths) == 1 and content.endswith(b"\n") else f"it ends early, or has rows of {widths} columns"

    return lacks


def _ending(end: bytes) -> Callable[[bytes], str]:
    return lambda content: "" if content.rstrip().endswith(end) else f"it does not end with {end.decode()}"


_LACKS: Mapping[str, Callable[[bytes], str]] = {
    ".csv": _rows(","),
    ".html": _ending(b"</html>"),
    ".json": _json,
    ".md": _ending(b"|"),
    ".pdf": _ending(b"%%EOF"),
    ".safetensors": _tensors,
    ".svg": _ending(b"</svg>"),
    ".tex": _ending(b"\\end{table}"),
    ".tsv": _rows("\t"),
}
"""By the suffix of a name: what a file of such content lacks."""
