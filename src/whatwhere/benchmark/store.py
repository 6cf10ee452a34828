"""The file of results: written anew after each work, read again to go on."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whatwhere.errors import ResultsError

FORMAT, VERSION = "whatwhere-benchmark", 1
_SAME = ("settings", "machine", "versions")
_NUMBERS = re.compile(r"\[\s+([-+.\deE]+(?:,\s+[-+.\deE]+)*)\s+\]")


class Store:
    """Hold what was measured, and keep it in a file if there is one.

    Args:
        path: the file; None keeps nothing.
        told: command, settings, machine and versions. A file of other ones is refused: its numbers are not comparable.
    """

    def __init__(self, path: Path | None, told: Mapping[str, Any]) -> None:
        self.path = path
        self.results: dict[str, Any] = {"format": FORMAT, "version": VERSION, **told, "works": {}}
        if path is not None and path.exists():
            before = read(path)
            for name in _SAME:
                if before[name] != json.loads(json.dumps(told[name])):
                    raise ResultsError(
                        f"{path} was measured with other {name}: there {before[name]}, here {told[name]}.\n"
                        "Choose another file, or move this one away."
                    )
            self.results["works"] = before["works"]
        elif path is not None:
            self._write()  # a place that cannot be written is told now, not after an hour

    def has(self, work: str, code: str) -> bool:
        """Tell whether a work is done, by this code."""
        found = self.results["works"].get(work)
        return found is not None and found["code"] == code

    def keep(self, work: str, record: Mapping[str, Any]) -> None:
        """Add a work that is done."""
        self.results["works"][work] = dict(record)
        if self.path is not None:
            self._write()

    def _write(self) -> None:
        assert self.path is not None
        unfinished = self.path.with_name(self.path.name + ".part")
        try:
            unfinished.write_text(as_text(self.results), encoding="utf-8")
            unfinished.replace(self.path)  # the old file or the new one, never half of it
        except OSError as problem:
            raise ResultsError(
                f"{self.path} cannot be written: {problem.strerror}.\nChoose another file, or make room."
            ) from problem


def as_text(results: Mapping[str, Any]) -> str:
    """Give JSON with every list of numbers on a line of its own.

    >>> print(as_text({"rounds": [1.5, 2.0]}), end="")
    {
     "rounds": [1.5, 2.0]
    }
    """
    text = json.dumps(results, indent=1, allow_nan=False)
    return _NUMBERS.sub(lambda found: "[" + ", ".join(re.split(r",\s+", found[1])) + "]", text) + "\n"


def read(path: Path) -> dict[str, Any]:
    """Read a file of results."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ResultsError(
            f"{path} cannot be read as JSON: {problem}.\nMove it away, or choose another file."
        ) from problem
    names = {*_SAME, "works", "command"}
    if not isinstance(found, dict) or found.get("format") != FORMAT or not names <= found.keys():
        raise ResultsError(f"{path} holds no results of whatwhere bench.\nMove it away, or choose another file.")
    if found["version"] != VERSION:
        raise ResultsError(
            f"{path} is of version {found['version']}, but this whatwhere reads {VERSION}.\n"
            "Measure again into another file."
        )
    return found
