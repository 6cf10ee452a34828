"""A comparison's folder: what was asked, each run as soon as it is done, and the results of all."""

import hashlib
import inspect
import json
import os
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from types import NoneType
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save

from whatwhere import __version__
from whatwhere.comparison.run import Run
from whatwhere.comparison.settings import SchemeLike, Settings, build_wheres, make_settings, name_of
from whatwhere.comparison.tasks import Task
from whatwhere.errors import ResultsError
from whatwhere.kernels.matmul import Route

FORMAT, VERSION = "whatwhere-results", 1
_ASKED, _RUN = "whatwhere-comparison", "whatwhere-run"
_RECORD: Mapping[str, type | tuple[type, ...]] = {
    "scheme": str,
    "seed": int,
    "file": str,
    "parameters": dict,
    "seconds_per_step": float,
    "scores": dict,
    "in_length": (float, NoneType),
    "shift": dict,
    "story": (dict, NoneType),
}


@dataclass(frozen=True, eq=False)
class Report:
    """Hold what a comparison found.

    Args:
        folder: results.json, report.html, runs/, layers/ and traces/.
        results: what results.json holds.

    `print(report)` gives the table of scores; `report.page` is the page to open.
    """

    folder: Path
    results: Mapping[str, Any]

    @property
    def summary(self) -> Mapping[str, Any]:
        """Median, min and max over seeds, by scheme."""
        found: Mapping[str, Any] = self.results["summary"]
        return found

    @property
    def page(self) -> Path | None:
        """The report to open in a browser; None where this installation has no page to write it with."""
        path = self.folder / "report.html"
        return path if path.is_file() else None

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Give the table of scores as header and rows: median and, where seeds differ, the range."""
        task = self.results["task"]
        lengths = sorted({int(n) for found in self.summary.values() for n in found["scores"]} - set(task["trained"]))
        low, high = min(task["tested_in_length"]), max(task["tested_in_length"])
        header = ["scheme", f"{low}-{high} {task['unit']}" if low < high else f"{low} {task['unit']}"]
        header += [str(length) for length in lengths]
        rows = [
            [name, self._cell(found["in_length"]), *(self._cell(found["scores"][str(n)]["all"]) for n in lengths)]
            for name, found in self.summary.items()
        ]
        for name, by_length in task["baselines"].items():
            within = fmean(by_length[str(n)] for n in task["tested_in_length"])
            rows.append([name, self._number(within), *(self._number(by_length[str(n)]) for n in lengths)])
        return header, rows

    def __str__(self) -> str:
        """Show the table of scores."""
        header, rows = self.rows()
        widths = [max(len(row[n]) for row in [header, *rows]) for n in range(len(header))]
        lines = [
            "  ".join(cell.ljust(width) if n == 0 else cell.rjust(width) for n, (cell, width) in enumerate(cells))
            for cells in (list(zip(row, widths, strict=True)) for row in [header, *rows])
        ]
        return "\n".join(line.rstrip() for line in lines)

    def _cell(self, found: Mapping[str, float] | None) -> str:
        if found is None:
            return "no row"
        low, median, high = (self._number(found[name]) for name in ("min", "median", "max"))
        return median if low == high else f"{median} ({low}-{high})"

    def _number(self, value: float) -> str:
        return f"{value:.1%}" if self.results["task"]["measure"] == "accuracy" else f"{value:.3f}"


class Folder:
    """The folder of one comparison; opening it checks that it is ours, and of the same comparison.

    Args:
        path: a folder that does not exist, is empty, or holds this comparison.
        route: how float32 products are to be computed; runs that join others follow theirs, `folder.route`.
    """

    def __init__(
        self,
        path: str | Path,
        task: Task,
        settings: Settings,
        schemes: Sequence[SchemeLike],
        route: Route = "default",
    ) -> None:
        self.path, self.route = Path(path), route
        self._asked: dict[str, Any] = {
            "format": _ASKED,
            "version": VERSION,
            "versions": versions(),
            "settings": settings.as_dict() | {"trained": list(task.trained), "place": settings.place},
            "task_identity": task.identity,
            "products": route,
        }
        self._identities = {name_of(scheme): _identity(scheme, settings) for scheme in schemes}
        try:
            self._open()
        except OSError as problem:
            raise ResultsError(
                f"{self.path} cannot be written: {problem.strerror}.\nChoose another folder."
            ) from problem

    def finished(self, scheme: str, seed: int) -> dict[str, Any] | None:
        """Read a run that is done; None where there is none yet."""
        path = self._run_path(scheme, seed)
        if not path.is_file():
            return None
        found = _read_json(path)
        record: Any = found.get("record")
        is_whole = isinstance(record, dict) and isinstance(found.get("drawing"), dict)
        is_whole = is_whole and all(isinstance(record.get(name, ...), kind) for name, kind in _RECORD.items())
        if found.get("format") != _RUN or not is_whole or (record["scheme"], record["seed"]) != (scheme, seed):
            raise ResultsError(f"{path} is not a run of a comparison.\nMove it away, or choose another folder.")
        if found.get("scheme_identity") != self._identities[scheme]:
            raise ResultsError(
                f"the scheme {scheme!r} has changed since {path} was written.\n"
                "Choose another folder, give the scheme another name, or delete this run to train it again."
            )
        # The layer is part of the run: without it the run is done again.
        return found if (self.path / record["file"]).is_file() else None

    def keep(self, run: Run) -> dict[str, Any]:
        """Write a finished run, its input layer and its trace."""
        scheme, seed = run.record["scheme"], run.record["seed"]
        name = f"{_file_name(scheme)}-{seed}.safetensors"
        files = {"file": f"layers/{name}", "trace": f"traces/{name}"}
        record = run.record | files
        metadata = {
            "version": str(VERSION),
            "scheme": scheme,
            "seed": str(seed),
            "task": str(self._asked["settings"]["task"]),
            "settings": json.dumps(self._asked["settings"]),
        }
        for kind, tensors in (("trace", run.trace), ("file", run.tensors)):
            named = {"format": "whatwhere-layer" if kind == "file" else "whatwhere-trace"}
            _write_tensors(self.path / files[kind], tensors, named | metadata)
        found = {
            "format": _RUN,
            "scheme_identity": self._identities[scheme],
            "record": record,
            "drawing": run.drawing,
        }
        write_json(self._run_path(scheme, seed), found)
        return found

    def write_results(self, results: Mapping[str, Any]) -> None:
        """Write results.json in one step."""
        write_json(self.path / "results.json", results)

    def _open(self) -> None:
        asked = self.path / "comparison.json"
        if self.path.exists() and not self.path.is_dir():
            raise ResultsError(f"{self.path} is a file; results need a folder.\nChoose another name: out='results'.")
        if not asked.is_file():
            # Half of that file is what is left where the disk was full.
            if self.path.is_dir() and any(path.name != "comparison.part" for path in self.path.iterdir()):
                raise ResultsError(
                    f"{self.path} is not empty and holds no comparison, so nothing is written into it.\n"
                    "Choose a new or an empty folder."
                )
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(asked, self._asked)
        before = _read_json(asked)
        self.route = self._asked["products"] = "onednn" if before.get("products") == "onednn" else "default"
        difference = _first_difference(before, json.loads(json.dumps(self._asked)))
        if difference is not None:
            name, old, new = difference
            raise ResultsError(
                f"{self.path} holds another comparison: there {name} is {old!r}, here {new!r}.\n"
                "Choose another folder, or repeat the command that made it to go on with it."
            )
        for part in ("runs", "layers", "traces"):
            (self.path / part).mkdir(exist_ok=True)

    def _run_path(self, scheme: str, seed: int) -> Path:
        return self.path / "runs" / f"{_file_name(scheme)}-{seed}.json"


def versions() -> dict[str, str]:
    """Give the versions that numbers depend on."""
    return {
        "whatwhere": __version__,
        "torch": version("torch"),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def machine() -> dict[str, Any]:
    """Describe the machine, as far as it tells."""
    return {"processor": _processor(), "cores": cores(), "system": f"{platform.system()} {platform.machine()}"}


def cores() -> int:
    """Count the cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def now() -> str:
    """Give the time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def command(
    task: str, schemes: Sequence[SchemeLike], seeds: Sequence[int], settings: Settings, out: Path, files: Sequence[Path]
) -> str:
    """Give the command that repeats a comparison; a scheme or task of one's own is known to it by name only."""
    parts = ["whatwhere", "compare", *map(name_of, schemes), "--task", task]
    parts += [word for file in files for word in ("--file", str(file))]
    # "7" would be seven seeds, "7," is one.
    numbers = ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")
    parts += ["--lengths", ",".join(map(str, settings.lengths)), "--seeds", numbers]
    usual = make_settings(task, settings.lengths).as_dict()
    for name, value in settings.as_dict().items():
        if value != usual[name]:
            parts += ["--set", f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"]
    return shlex.join([*parts, "--out", str(out)])


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file in one step: it is the old one or the new one, never half of it."""
    unfinished = path.with_suffix(".part")
    try:
        unfinished.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        unfinished.replace(path)
    except OSError as problem:
        raise ResultsError(f"{path} cannot be written: {problem.strerror}.\nMake room, then run it again.") from problem
    except ValueError as problem:
        raise ResultsError(
            f"{path} cannot hold numbers that are not finite: {problem}.\nFind out where the task or scheme gives them."
        ) from problem


def _write_tensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: dict[str, str]) -> None:
    unfinished = path.with_suffix(".part")
    try:
        # The library's own save_file makes files that others cannot read.
        unfinished.write_bytes(save({name: np.ascontiguousarray(v) for name, v in tensors.items()}, metadata))
        unfinished.replace(path)
    except OSError as problem:
        raise ResultsError(f"{path} cannot be written: {problem}.\nMake room, then run it again.") from problem


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise ResultsError(
            f"{path} cannot be read as JSON: {problem}.\nMove it away, or choose another folder."
        ) from problem
    if not isinstance(found, dict):
        raise ResultsError(f"{path} holds no JSON object.\nMove it away, or choose another folder.")
    return found


def _file_name(scheme: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", scheme)
    # Two names must not share a file, nor where a and A are one: what was replaced is told apart by a digest.
    return plain if plain == scheme.lower() else f"{plain}-{hashlib.sha256(scheme.encode()).hexdigest()[:6]}"


def _identity(scheme: SchemeLike, settings: Settings) -> str:
    """Give a digest that changes when a scheme is built otherwise, or its own source code changes."""
    with torch.random.fork_rng(devices=[]):  # learned tables are drawn; the caller's random state stays
        wheres = build_wheres(scheme, settings.dim, settings.heads, 2, settings.layers)
    parts = [repr(wheres)]
    sources: list[Any] = [] if isinstance(scheme, str) else [scheme[1]]
    for where in wheres:
        sources += [type(m) for m in where.modules() if not type(m).__module__.startswith(("whatwhere.", "torch."))]
    for source in dict.fromkeys(sources):
        try:
            parts.append(inspect.getsource(source))
        except (OSError, TypeError):
            parts.append(getattr(source, "__qualname__", type(source).__qualname__))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _first_difference(before: Any, now: Any, name: str = "") -> tuple[str, Any, Any] | None:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**now, **before}:
            found = _first_difference(before.get(key), now.get(key), key)
            if found is not None:
                return found
        return None
    return None if before == now else (name, before, now)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
