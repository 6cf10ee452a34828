"""Read a comparison's folder, and check it before anything is told of it."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from whatwhere.errors import ResultsError, WhatWhereError

BEFORE, AFTER = "tokens.weight@0", "tokens.weight"  # names in the files of trained layers
FORMAT, VERSION = "whatwhere-results", 1
_PARTS = {
    "settings": dict,
    "task": dict,
    "runs": list,
    "summary": dict,
    "schemes": dict,
    "verdicts": list,
    "versions": dict,
    "machine": dict,
}
_TASK_PARTS = ("name", "unit", "trained", "lengths", "groups", "measure", "better", "baselines", "tokens")
_RUN_PARTS = ("scheme", "seed", "scores", "in_length", "shift", "file")

Table = Float[np.ndarray, "rows dim"]
Spread = tuple[float, float, float]  # median, least, greatest


@dataclass(frozen=True)
class Results:
    """Hold what a comparison measured, in the words of its results.json."""

    folder: Path
    data: dict[str, Any]

    @property
    def task(self) -> dict[str, Any]:
        """Name the task, its unit, its lengths, its measure and its tokens."""
        task: dict[str, Any] = self.data["task"]
        return task

    @property
    def runs(self) -> list[dict[str, Any]]:
        """List the runs, one for each scheme and seed."""
        runs: list[dict[str, Any]] = self.data["runs"]
        return runs

    @property
    def schemes(self) -> list[str]:
        """List the schemes in the order in which they were asked for."""
        asked = [name for name in self.data["settings"].get("schemes", []) if name in self.data["summary"]]
        return asked + [name for name in self.data["summary"] if name not in asked]

    @property
    def percent(self) -> bool:
        """Say whether the measure is a share, shown as percent."""
        return bool(self.task["measure"] == "accuracy")

    @property
    def higher(self) -> bool:
        """Say whether more is better."""
        return bool(self.task["better"] == "higher")

    @property
    def trained(self) -> list[int]:
        """List the trained lengths for which a scheme has scores of their own."""
        return [length for length in self._measured() if length <= max(self.task["trained"])]

    @property
    def beyond(self) -> list[int]:
        """List the tested lengths beyond the trained ones."""
        return [length for length in self._measured() if length > max(self.task["trained"])]

    def _measured(self) -> list[int]:
        return sorted({int(length) for scheme in self.schemes for length in self.data["summary"][scheme]["scores"]})

    def score(self, scheme: str, length: int | None, group: str = "all") -> Spread | None:
        """Read one spread over seeds: at a length, or in length where it is None. None means "no row"."""
        summary = self.data["summary"][scheme]
        found = summary["in_length"] if length is None else summary["scores"].get(str(length), {}).get(group)
        return spread(found)

    def shift(self, scheme: str, shift: int, measure: str) -> Spread | None:
        """Read one spread over seeds of the shift test; measure is "score" or "largest_logit_change"."""
        return spread(self.data["summary"][scheme]["shift"].get(str(shift), {}).get(measure))

    @property
    def shifts(self) -> list[int]:
        """List the shifts that were tried."""
        return sorted({int(shift) for scheme in self.schemes for shift in self.data["summary"][scheme]["shift"]})

    def tables(self, run: Mapping[str, Any]) -> dict[str, Table]:
        """Read the token tables that a run saved; a file that is not there gives none."""
        path = self._own_file(run["file"])
        return _token_tables(path) if path.is_file() else {}

    def trace(self, run: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Read what a run kept of its training, as float64; nothing where it was made before traces were."""
        name = run.get("trace")
        path = self._own_file(name) if isinstance(name, str) else None
        return {} if path is None or not path.is_file() else _tensors(path, lambda name: True)

    def _own_file(self, name: str) -> Path:
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise ResultsError(
                f"results.json names the file {name!r}, which lies outside its own folder {self.folder}.\n"
                "A results folder holds its own files, so this one was changed or made by something else. "
                "Run the comparison again, into a new folder."
            )
        return path


def _tensors(path: Path, chosen: Callable[[str], bool]) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as opened:
            names = [name for name in opened.keys() if chosen(name)]  # noqa: SIM118
            return {name: np.asarray(opened.get_tensor(name), dtype=np.float64) for name in names}
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise ResultsError(
            f"{path} cannot be read as safetensors: {error}.\n"
            "Delete it to have the report without it, or run the comparison again."
        ) from error


def _token_tables(path: Path) -> dict[str, Table]:
    tables = _tensors(path, lambda name: name.partition("@")[0] == "tokens.weight")
    if any(table.ndim != 2 or 0 in table.shape for table in tables.values()):
        raise ResultsError(
            f"{path} holds a token table that is not (tokens, dim).\nRun the comparison again, into a new folder."
        )
    # A run that diverged has no picture; its scores say so already.
    return {name: table for name, table in tables.items() if np.isfinite(table).all()}


def spread(found: Mapping[str, Any] | None) -> Spread | None:
    """Read median, min and max; None stays None."""
    return None if found is None else (number(found["median"]), number(found["min"]), number(found["max"]))


def number(value: Any) -> float:
    """Read a number; what is missing where a number must be, is not a number."""
    return math.nan if value is None else float(value)


def optional(value: Any) -> float | None:
    """Read a number that may be missing."""
    return None if value is None else float(value)


@contextmanager
def checked(folder: Path) -> Iterator[None]:
    """Turn what a part of results.json raises, that lies too deep to be checked before, into ResultsError."""
    try:
        yield
    except WhatWhereError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ResultsError(
            f"{folder / 'results.json'} holds a part that cannot be read: {type(error).__name__}: {error}.\n"
            "The file was changed, or made by something else. Run the comparison again, into a new folder."
        ) from error


def read_results(folder: Path) -> Results:
    """Read results.json of a comparison's folder.

    Raises ResultsError where it is missing, is not ours, is of another version, or lacks a part.
    """
    path = folder / "results.json"
    if not path.is_file():
        raise ResultsError(
            f"{folder} holds no results.json, so there is nothing to report yet.\n"
            "It is written when a comparison ends. Run: whatwhere compare"
        )
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"{path} cannot be read as JSON: {error}.\nRun the comparison again.") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ResultsError(
            f"{path} is not a comparison of ours: its format is not {FORMAT!r}.\n"
            "Give the folder that whatwhere compare or whatwhere demo wrote."
        )
    if data.get("version") != VERSION:
        raise ResultsError(
            f"{path} has version {data.get('version')!r}, but this whatwhere reads version {VERSION}.\n"
            "Run the comparison again, or read it with the whatwhere that wrote it."
        )
    _check_parts(path, data)
    return Results(folder, data)


def _check_parts(path: Path, data: dict[str, Any]) -> None:
    wrong = [name for name, kind in _PARTS.items() if not isinstance(data.get(name), kind)]
    if not wrong:
        wrong = [f"task.{name}" for name in _TASK_PARTS if name not in data["task"]]
        runs = [(i, run if isinstance(run, dict) else {}) for i, run in enumerate(data["runs"])]
        wrong += [f"runs[{i}].{name}" for i, run in runs for name in _RUN_PARTS if name not in run]
        needed = ("scores", "in_length", "shift", "parameters", "seconds_per_step")
        found = {name: part if isinstance(part, dict) else {} for name, part in data["summary"].items()}
        wrong += [f"summary[{name!r}].{n}" for name, part in found.items() for n in needed if n not in part]
    if not wrong and not (data["summary"] and data["task"]["trained"]):
        wrong = ["any scheme or any trained length"]
    if wrong:
        raise ResultsError(
            f"{path} lacks {', '.join(wrong[:3])}{' and more' if len(wrong) > 3 else ''}.\n"
            "The comparison was interrupted while writing, or the file was changed. Run the same command again."
        )
