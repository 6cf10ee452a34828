"""The file of results: written anew after each case, on a GPU after each variant; read again to resume."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from benchmarks.records import CaseRecord, Results
from whatwhere.errors import ResultsError

FORMAT, VERSION = "whatwhere-benchmark", 2
_SAME = ("settings", "machine", "versions")
_NUMBERS = re.compile(r"\[\s+([-+.\deE]+(?:,\s+[-+.\deE]+)*)\s+\]")


class Store:
    """Keep what was measured, in a file if there is one.

    Args:
        path: the file; None keeps nothing.
        results: command, settings, machine and versions, and no cases yet.

    Raises:
        ResultsError: If the file has other settings, machine or versions, so that its numbers are not comparable; or it
            cannot be read or written.
    """

    def __init__(self, path: Path | None, results: Results) -> None:
        self.path, self.results = path, results
        if path is not None and path.exists():
            before = read(path)
            for name in _SAME:
                there, here = before[name], json.loads(json.dumps(results[name]))  # type: ignore[literal-required]
                if there != here:
                    raise ResultsError(
                        f"{path} was measured with other {name}: there {there}, here {here}.\n"
                        "Choose another file, or move this one away."
                    )
            self.results["cases"] = before["cases"]
        elif path is not None:
            self._write()  # a folder that cannot be written is reported now, not after an hour

    def measured(self, case: str, code: str) -> set[str]:
        """Return the names of the variants of a case that were measured on this code.

        Args:
            case: its name.
            code: digest of the code.
        """
        record = self.results["cases"].get(case)
        return {variant["variant"] for variant in record["variants"]} if record and record["code"] == code else set()

    def keep(self, case: str, record: CaseRecord, order: Sequence[str]) -> None:
        """Add what was measured of a case, to what the same code has measured of it before.

        Args:
            case: its name.
            record: what was measured.
            order: the names of all its variants.

        Raises:
            ResultsError: If the file cannot be written.
        """
        names = {variant["variant"] for variant in record["variants"]}
        before = self.results["cases"].get(case)
        others = before["variants"] if before is not None and before["code"] == record["code"] else []
        variants = [*record["variants"], *(variant for variant in others if variant["variant"] not in names)]
        variants.sort(key=lambda variant: order.index(variant["variant"]))
        self.results["cases"][case] = {**record, "variants": variants}
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


def as_text(results: object) -> str:
    """Return JSON with every list of numbers on one line.

    Args:
        results: what JSON can hold.

    Returns:
        Text that ends with a line break.

    Raises:
        ValueError: If a number is not finite.

    Examples:
        >>> print(as_text({"rounds": [1.5, 2.0]}), end="")
        {
         "rounds": [1.5, 2.0]
        }
    """
    text = json.dumps(results, indent=1, allow_nan=False)
    return _NUMBERS.sub(lambda match: "[" + ", ".join(re.split(r",\s+", match[1])) + "]", text) + "\n"


def read(path: Path) -> Results:
    """Read a file of results.

    Args:
        path: the file.

    Returns:
        What it holds.

    Raises:
        ResultsError: If it cannot be read, is something else, or of another version.
    """
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ResultsError(
            f"{path} cannot be read as JSON: {problem}.\nMove it away, or choose another file."
        ) from problem
    if not isinstance(results, dict) or results.get("format") != FORMAT:
        raise ResultsError(f"{path} is not a file of benchmark results.\nMove it away, or choose another file.")
    if results.get("version") != VERSION:
        raise ResultsError(
            f"{path} is of version {results.get('version')}, but version {VERSION} is needed.\n"
            "Measure again into another file."
        )
    if missing := sorted({*_SAME, "cases", "command"} - results.keys()):
        raise ResultsError(f"{path} lacks {', '.join(missing)}.\nMove it away, or choose another file.")
    return cast(Results, results)
