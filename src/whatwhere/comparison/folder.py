"""The folder of a comparison: each run as soon as it is finished, the results of all, and reading both again."""

import hashlib
import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from whatwhere.atomic import atomic_file, is_unfinished, write_atomic
from whatwhere.comparison.results import (
    ALL,
    FORMAT,
    VERSION,
    ComparisonRecord,
    RunResult,
    SchemeView,
    Spread,
    Summary,
    TaskDescription,
    versions,
)
from whatwhere.comparison.run import Run
from whatwhere.comparison.settings import SchemeLike, Settings, build_wheres, name_of
from whatwhere.comparison.tasks import Task
from whatwhere.errors import ResultsError
from whatwhere.escape import visible
from whatwhere.models.checkpoint.safetensors import Part, computed, write_safetensors
from whatwhere.records import from_json, to_json

RESULTS = "results.json"
BEFORE, AFTER = "tokens.weight@0", "tokens.weight"
"""Names of the token table before and after training, in the file of a run's input layer."""

_REQUEST, _RUN = "whatwhere-comparison", "whatwhere-run"

Table = Float[np.ndarray, "rows dim"]


@dataclass(frozen=True)
class Comparison:
    """What a comparison measured: the content of its results.json, and the folder with its other files.

    Args:
        folder: results.json, runs/, layers/ and traces/.
        record: the content of results.json.

    `print(comparison)` shows the scores; `whatwhere.report.comparison` writes them as text and tables.
    """

    folder: Path
    record: ComparisonRecord

    @property
    def task(self) -> TaskDescription:
        """The task, its lengths, its measure and its tokens."""
        return self.record.task

    @property
    def runs(self) -> Sequence[RunResult]:
        """The runs, one for each scheme and seed."""
        return self.record.runs

    @property
    def summary(self) -> Mapping[str, Summary]:
        """The spread over seeds, by scheme, in the order of the request."""
        return self.record.summary

    @property
    def schemes(self) -> list[str]:
        """Names of the schemes, in the order of the request."""
        return list(self.record.summary)

    @property
    def percent(self) -> bool:
        """Whether the measure is a share, which is shown in percent."""
        return self.task.measure == "accuracy"

    @property
    def trained(self) -> list[int]:
        """Tested lengths within the trained ones."""
        return [length for length in self._tested() if length <= max(self.task.trained)]

    @property
    def beyond(self) -> list[int]:
        """Tested lengths beyond the trained ones."""
        return [length for length in self._tested() if length > max(self.task.trained)]

    @property
    def shifts(self) -> list[int]:
        """Shifts of the shift test."""
        return sorted({shift for summary in self.summary.values() for shift in summary.shift})

    def score(self, scheme: str, length: int | None, group: str = ALL) -> Spread | None:
        """Return the scores of a scheme.

        Args:
            scheme: its name.
            length: a tested length; None is the mean over the trained lengths.
            group: of targets.

        Returns:
            The spread over seeds; None where the scheme has no row for a position.
        """
        summary = self.summary[scheme]
        return summary.in_length if length is None else summary.scores.get(length, {}).get(group)

    def ahead(self, first: str, second: str, length: int | None) -> tuple[int, int]:
        """Compare two schemes seed by seed: runs of one seed share initial tokens and batches, so they are paired.

        Args:
            first: name of a scheme.
            second: name of another.
            length: a tested length; None is the mean over the trained lengths.

        Returns:
            In how many seeds the first is better, and in how many the two differ.
        """
        values: dict[str, dict[int, float]] = {first: {}, second: {}}
        for run in self.runs:
            value = run.in_length if length is None else run.scores.get(length, {}).get(ALL)
            if run.scheme in values and value is not None and math.isfinite(value):
                values[run.scheme][run.seed] = value if self.task.higher_is_better else -value
        both = [(values[first][seed], values[second][seed]) for seed in values[first].keys() & values[second].keys()]
        return sum(one > other for one, other in both), sum(one != other for one, other in both)

    def tables(self, run: RunResult) -> dict[str, Table]:
        """Read the token tables that a run saved.

        Args:
            run: of this comparison.

        Returns:
            By name; nothing where the file is absent, no table whose numbers are not finite.

        Raises:
            ResultsError: the file is damaged or outside the folder.
        """
        path = self._file(run.file)
        if path is None:
            return {}
        tables = _read_tensors(path, lambda name: name.partition("@")[0] == AFTER)
        if any(table.ndim != 2 or 0 in table.shape for table in tables.values()):
            raise ResultsError(
                f"{path} holds a token table that is not (tokens, dim).\nRun the comparison again, into a new folder."
            )
        return {name: table for name, table in tables.items() if np.isfinite(table).all()}

    def trace(self, run: RunResult) -> dict[str, np.ndarray]:
        """Read what a run recorded of its training and of its attention, as float64.

        Args:
            run: of this comparison.

        Returns:
            By name; nothing where the file is absent.

        Raises:
            ResultsError: the file is damaged or outside the folder.
        """
        path = self._file(run.trace)
        return {} if path is None else _read_tensors(path, lambda name: True)

    def __repr__(self) -> str:
        """Return one line; the whole record would fill a notebook."""
        names = ", ".join(map(visible, self.schemes))
        return f"<comparison of {names} in {visible(self.folder)}: {len(self.runs)} runs>"

    def __str__(self) -> str:
        """Return the scores of each scheme as a table: the median over seeds, and the range where they differ."""
        rows = [["scheme", "in length", *map(str, self.beyond)]]
        rows += [[visible(s), *(_cell(self.score(s, n)) for n in (None, *self.beyond))] for s in self.schemes]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
        lines = ["  ".join(row).rstrip() for row in padded]
        return "\n".join([visible(f"{self.task.measure} by {self.task.unit}"), *lines])

    def _tested(self) -> list[int]:
        return sorted({length for summary in self.summary.values() for length in summary.scores})

    def _file(self, name: str) -> Path | None:
        try:
            path = (self.folder / name).resolve()
        except ValueError as problem:  # a null byte
            raise ResultsError(
                f"{RESULTS} names the file {name!r}: {problem}.\nRun the comparison again, into a new folder."
            ) from None
        if not path.is_relative_to(self.folder.resolve()):
            raise ResultsError(
                f"{RESULTS} names the file {name!r}, which lies outside its own folder {self.folder}.\n"
                "A results folder holds its own files, so this one was changed or made by something else. "
                "Run the comparison again, into a new folder."
            )
        return path if path.is_file() else None


@dataclass(frozen=True)
class _Request:
    """The content of comparison.json: what two calls must share to write into one folder."""

    format: str
    version: int
    versions: Mapping[str, str]
    settings: Settings
    device: str
    task_identity: str


@dataclass(frozen=True)
class FinishedRun:
    """The content of a file in runs/.

    Args:
        format: of the file.
        scheme_identity: a digest of how the scheme is built.
        result: scores and costs.
        view: what the scheme makes of positions and distances.
    """

    format: str
    scheme_identity: str
    result: RunResult
    view: SchemeView


class Folder:
    """The folder that a comparison writes; opening it checks that it is of the same comparison.

    Args:
        path: a folder that does not exist, is empty, or holds this comparison.
        task: of the comparison.
        settings: of the comparison.
        schemes: the requested schemes.

    Raises:
        ResultsError: the folder holds something else, or cannot be written.
    """

    def __init__(
        self,
        path: str | Path,
        task: Task,
        settings: Settings,
        schemes: Sequence[SchemeLike],
    ) -> None:
        self.path = Path(path)
        settings = replace(settings, trained=tuple(task.trained))
        device = settings.resolved_device
        self._request = _Request(_REQUEST, VERSION, versions(), settings, device, task.identity)
        self._identities = {name_of(scheme): _identity(scheme, settings) for scheme in schemes}
        try:
            self._open()
        except OSError as problem:
            raise ResultsError(
                f"{self.path} cannot be written: {problem.strerror}.\nChoose another folder."
            ) from problem

    def finished(self, scheme: str, seed: int) -> FinishedRun | None:
        """Read a finished run.

        Args:
            scheme: name of the scheme.
            seed: of the run.

        Returns:
            The run; None where there is none yet.

        Raises:
            ResultsError: the file is damaged, or the scheme has changed since it was written.
        """
        path = self._run_path(scheme, seed)
        if not path.is_file():
            return None
        content = _read_json(path)
        try:
            run = from_json(FinishedRun, content, str(path))
        except ResultsError as problem:
            raise _no_run(path, problem) from None
        if run.format != _RUN or (run.result.scheme, run.result.seed) != (scheme, seed) or not run.result.file:
            raise _no_run(path)
        if run.scheme_identity != self._identities[scheme]:
            raise ResultsError(
                f"the scheme {scheme!r} has changed since {path} was written.\n"
                "Choose another folder, name the scheme differently, or delete this run to train it again."
            )
        # The layer is part of the run: without it the run is done again.
        return run if (self.path / run.result.file).is_file() else None

    def keep(self, run: Run) -> FinishedRun:
        """Write a finished run, its input layer and its trace.

        Args:
            run: the outcome.

        Raises:
            ResultsError: a file cannot be written.
        """
        scheme, seed = run.result.scheme, run.result.seed
        name = f"{_file_name(scheme)}-{seed}.safetensors"
        result = replace(run.result, file=f"layers/{name}", trace=f"traces/{name}")
        settings = self._request.settings
        metadata = {
            "version": str(VERSION),
            "scheme": scheme,
            "seed": str(seed),
            "task": settings.task,
            "settings": json.dumps(to_json(settings, None)),
        }
        _write_tensors(self.path / result.trace, run.trace, {"format": "whatwhere-trace"} | metadata)
        _write_tensors(self.path / result.file, run.tensors, {"format": "whatwhere-layer"} | metadata)
        finished = FinishedRun(_RUN, self._identities[scheme], result, run.view)
        write_json(self._run_path(scheme, seed), finished)
        return finished

    def write_results(self, record: ComparisonRecord) -> Comparison:
        """Write results.json, whole or not at all.

        Args:
            record: its content.

        Raises:
            ResultsError: it cannot be written.
        """
        write_json(self.path / RESULTS, record)
        return Comparison(self.path, record)

    def _open(self) -> None:
        path = self.path / "comparison.json"
        if self.path.exists() and not self.path.is_dir():
            raise ResultsError(f"{self.path} is a file; results need a folder.\nChoose another name: out='results'.")
        if not path.is_file():
            # Where the process was killed while it wrote that file, a part of it is left.
            if self.path.is_dir() and not all(is_unfinished(entry) for entry in self.path.iterdir()):
                raise ResultsError(
                    f"{self.path} is not empty and holds no comparison, so nothing is written into it.\n"
                    "Choose a new or an empty folder."
                )
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(path, self._request)
        before = _read_json(path)
        difference = _first_difference(before, json.loads(json.dumps(to_json(self._request, None))))
        if difference is not None:
            name, old, new = difference
            raise ResultsError(
                f"{self.path} holds another comparison: there {name} is {old!r}, here {new!r}.\n"
                "Choose another folder, or run the command that made it again to resume it."
            )
        for part in ("runs", "layers", "traces"):
            (self.path / part).mkdir(exist_ok=True)

    def _run_path(self, scheme: str, seed: int) -> Path:
        return self.path / "runs" / f"{_file_name(scheme)}-{seed}.json"


def read_results(folder: str | Path) -> Comparison:
    """Read the results of a comparison.

    Args:
        folder: what `whatwhere compare` wrote. Nothing in it is unpickled.

    Raises:
        ResultsError: results.json is missing, damaged, of another format or of another version.

    Examples:
        >>> read_results("no-such-folder")
        Traceback (most recent call last):
        whatwhere.errors.ResultsError: no-such-folder holds no results.json, so there is nothing to show yet.
        It is written when a comparison ends. Run: whatwhere compare
    """
    path = Path(folder) / RESULTS
    if not path.is_file():
        raise ResultsError(
            f"{folder} holds no {RESULTS}, so there is nothing to show yet.\n"
            "It is written when a comparison ends. Run: whatwhere compare"
        )
    content = _read_json(path)
    if content.get("format") != FORMAT:
        raise ResultsError(
            f"{path} is not a comparison of ours: its format is not {FORMAT!r}.\n"
            "Pass the folder that whatwhere compare or whatwhere demo wrote."
        )
    if content.get("version") != VERSION:
        raise ResultsError(
            f"{path} has version {content.get('version')!r}, but this whatwhere reads version {VERSION}.\n"
            "Run the comparison again, into a new folder, or read it with the whatwhere that wrote it."
        )
    record = from_json(ComparisonRecord, content, str(path))
    if not (record.summary and record.task.trained):
        raise ResultsError(f"{path} names no scheme or no trained length.\nRun the comparison again.")
    return Comparison(Path(folder), record)


def write_json(path: Path, record: object) -> None:
    """Write a record as JSON, whole or not at all; every number is kept to the last bit.

    Args:
        path: to write.
        record: a dataclass.

    Raises:
        ResultsError: the file cannot be written.
    """
    try:
        write_atomic(path, json.dumps(to_json(record, None), indent=1, allow_nan=False) + "\n")
    except OSError as problem:
        raise ResultsError(f"{path} cannot be written: {problem.strerror}.\nMake room, then run it again.") from problem


def _cell(found: Spread | None) -> str:
    if found is None:
        return "no row"
    median, low, high = (f"{value:.3f}" for value in (found.median, found.min, found.max))
    return median if low == high else f"{median} ({low} to {high})"


def _no_run(path: Path, problem: ResultsError | None = None) -> ResultsError:
    reason = "" if problem is None else f" ({str(problem).splitlines()[0]})"
    return ResultsError(f"{path} is not a run of a comparison{reason}.\nMove it away, or choose another folder.")


def _read_json(path: Path) -> Mapping[str, object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise ResultsError(
            f"{path} cannot be read as JSON: {problem}.\nMove it away, or choose another folder."
        ) from problem
    if not isinstance(content, dict):
        raise ResultsError(f"{path} holds no JSON object.\nMove it away, or choose another folder.")
    return content


def _read_tensors(path: Path, chosen: Callable[[str], bool]) -> dict[str, np.ndarray]:
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


def _write_tensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write tensors, whole or not at all; equal ones make equal files, byte for byte."""
    parts = [_part(name, np.ascontiguousarray(array)) for name, array in sorted(tensors.items())]
    try:
        with atomic_file(path) as unfinished:
            # The safetensors library writes metadata in another order each time, and files that others cannot read.
            write_safetensors(unfinished, parts, dict(sorted(metadata.items())))
    except OSError as problem:
        raise ResultsError(f"{path} cannot be written: {problem}.\nMake room, then run it again.") from problem


def _part(name: str, array: np.ndarray) -> Part:
    return computed(name, str(array.dtype), array.shape, lambda: torch.from_numpy(array))


def _file_name(scheme: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", scheme)
    # Two names must not share a file, also where a disk does not distinguish a from A: a digest tells them apart.
    return plain if plain == scheme.lower() else f"{plain}-{hashlib.sha256(scheme.encode()).hexdigest()[:6]}"


def _identity(scheme: SchemeLike, settings: Settings) -> str:
    """Return a digest that changes when a scheme is built differently, or its own source code changes."""
    wheres = build_wheres(scheme, settings.dim, settings.heads, 2, settings.layers)
    parts = [repr(wheres)]
    sources: list[object] = [] if isinstance(scheme, str) else [scheme[1]]
    for where in wheres:
        sources += [type(m) for m in where.modules() if not type(m).__module__.startswith(("whatwhere.", "torch."))]
    parts += [_source(source) for source in dict.fromkeys(sources)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _source(definition: object) -> str:
    try:
        return inspect.getsource(definition)  # type: ignore[arg-type]
    except (OSError, TypeError):
        name: str = getattr(definition, "__qualname__", type(definition).__qualname__)
        return name


def _first_difference(before: object, now: object, name: str = "") -> tuple[str, object, object] | None:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**now, **before}:
            found = _first_difference(before.get(key), now.get(key), key)
            if found is not None:
                return found
        return None
    return None if before == now else (name, before, now)
