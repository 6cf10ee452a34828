"""Reading a comparison's results: the typed content of its folder."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float

from whatwhere.comparison.results import (
    ALL,
    ComparisonRecord,
    RunResult,
    Scores,
    Spread,
    Summary,
    TaskDescription,
    spread,
)
from whatwhere.comparison.settings import Settings, with_settings
from whatwhere.errors import CheckpointError, ResultsError, SettingError
from whatwhere.escape import visible
from whatwhere.models.checkpoint.files import read_json as read_object
from whatwhere.models.checkpoint.folder import MAX_RESULTS_BYTES, RESULTS_SCHEMA
from whatwhere.models.checkpoint.safetensors import require_checksum
from whatwhere.records import Schema, from_json

RESULTS = "results.json"
BEFORE, AFTER = "input.tokens.weight@0", "input.tokens.weight"
"""Names of the token table before and after training, in the file of a run's model."""

Table = Float[np.ndarray, "rows dim"]
_Runs = Mapping[str, Mapping[int, tuple[float | None, Mapping[int, Scores]]]]
"""By scheme and seed, the mean score over the trained lengths, and the scores by length and group."""


class Scored(ABC):
    """Scores by scheme, seed and length, of a comparison or of your own: what tables, figures and tests need."""

    @property
    @abstractmethod
    def task(self) -> TaskDescription:
        """The task, its lengths, its measure and its tokens."""

    @property
    @abstractmethod
    def _all(self) -> _Runs:
        """The runs by scheme and seed."""

    @property
    def against(self) -> str | None:
        """The scheme that all others are compared with, chosen before any run; None where all pairs are compared."""
        return None

    @property
    def compared(self) -> Mapping[str, str]:
        """The schemes that are ranked and tested, each with the name of its scores: of several settings the chosen."""
        return {scheme: scheme for scheme in self.schemes}

    @property
    def schemes(self) -> list[str]:
        """Names of the schemes, in the order of the request."""
        return list(self._all)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the runs, the least first."""
        return tuple(sorted({seed for runs in self._all.values() for seed in runs}))

    @property
    def tested(self) -> list[int]:
        """All tested lengths, the least first."""
        return sorted({length for runs in self._all.values() for _, scores in runs.values() for length in scores})

    def by_seed(self, scheme: str, length: int | None, group: str = ALL) -> dict[int, float | None]:
        """Return the score of each seed; None where there is none. Of length None, the mean over the trained lengths.

        Args:
            scheme: its name.
            length: a tested length, or None.
            group: of targets.
        """
        return {
            seed: in_length if length is None else scores.get(length, {}).get(group)
            for seed, (in_length, scores) in sorted(self._all[scheme].items())
        }

    def score(self, scheme: str, length: int | None, group: str = ALL) -> Spread | None:
        """Return the spread over seeds; None where a seed has no score. Arguments as for `by_seed`."""
        return spread(self.by_seed(scheme, length, group).values())

    def find_scheme(self, name: str, compared: bool = False) -> str:
        """Return the name that a scheme has here.

        Args:
            name: that name, or another name of the scheme, such as rope.
            compared: only of those that are ranked and tested; a scheme of several settings is the chosen one.

        Raises:
            SettingError: If there is no such scheme.
        """
        known = self.compared if compared else {scheme: scheme for scheme in self.schemes}
        if name in known:
            return known[name]
        from whatwhere.where.catalogue import canonical_name  # loads PyTorch, which readers of results do without

        if (canonical := canonical_name(name)) in known:
            return known[canonical]
        if canonical in known.values():
            return canonical
        reason = ", or it is a setting that was not chosen" if canonical in self.schemes else ""
        raise SettingError(f"the comparison has no scheme {name!r}{reason}. It has: {', '.join(map(repr, known))}.")

    @property
    def percent(self) -> bool:
        """Whether the measure is a share, which is shown in percent."""
        return self.task.measure == "accuracy"

    @property
    def trained(self) -> list[int]:
        """Tested lengths within the trained ones."""
        return [length for length in self.tested if length <= max(self.task.trained)]

    @property
    def beyond(self) -> list[int]:
        """Tested lengths beyond the trained ones."""
        return [length for length in self.tested if length > max(self.task.trained)]


@dataclass(frozen=True)
class Comparison(Scored):
    """What a comparison measured: the content of its results.json, and the folder with its other files.

    Args:
        folder: results.json, runs/, models/ and traces/.
        record: the content of results.json.

    `print(comparison)` shows the scores; `whatwhere.report.comparison` writes them as text and tables.
    """

    folder: Path
    record: ComparisonRecord

    def settings(self, run: RunResult) -> Settings:
        """Return the settings of a run: those of the comparison, and what varies.

        Args:
            run: of this comparison.
        """
        return with_settings(self.record.settings, run.varied, run.max_length)

    @property
    def task(self) -> TaskDescription:
        """The task, its lengths and its measure."""
        return self.record.task

    @property
    def against(self) -> str | None:
        """The scheme that all others are compared with, chosen before any run; None where all pairs are compared.

        None too where its setting could not be chosen, for a training diverged.
        """
        against = None if self.record.request is None else self.record.request.against
        name = self.compared.get(against or "", against)
        return name if name in self.compared.values() else None

    @property
    def compared(self) -> Mapping[str, str]:
        """The schemes that are ranked and tested, each with the name of its scores: of several settings the chosen."""
        return {each.scheme: each.chosen for each in self.record.choices} or super().compared

    @property
    def runs(self) -> Sequence[RunResult]:
        """The runs, one for each scheme and seed."""
        return self.record.runs

    @property
    def summary(self) -> Mapping[str, Summary]:
        """The spread over seeds, by scheme, in the order of the request."""
        return self.record.summary

    @cached_property
    def _all(self) -> _Runs:
        found: dict[str, dict[int, tuple[float | None, Mapping[int, Scores]]]] = {name: {} for name in self.summary}
        for run in self.runs:
            found[run.scheme][run.seed] = run.in_length, run.scores
        return found

    @property
    def shifts(self) -> list[int]:
        """Shifts of the shift test."""
        return sorted({shift for summary in self.summary.values() for shift in summary.shift})

    @property
    def first_runs(self) -> list[RunResult]:
        """The run of the first seed of each scheme, in the order of the schemes."""
        least = {run.scheme: run for run in sorted(self.runs, key=lambda run: -run.seed)}
        return [least[scheme] for scheme in self.schemes if scheme in least]

    def score(self, scheme: str, length: int | None, group: str = ALL) -> Spread | None:
        """Return the spread over seeds, as summarized."""
        summary = self.summary[scheme]
        return summary.in_length if length is None else summary.scores.get(length, {}).get(group)

    def tables(self, run: RunResult) -> dict[str, Table]:
        """Read the token tables that a run saved.

        Args:
            run: of this comparison.

        Returns:
            By name; nothing where the file is absent, no table whose numbers are not finite.

        Raises:
            ResultsError: If the file is damaged or outside the folder.
        """
        path = self.file(run.file)
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
            ResultsError: If the file is damaged or outside the folder.
        """
        path = self.file(run.trace)
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
        side = "higher" if self.task.higher_is_better else "lower"
        return "\n".join([visible(f"{self.task.measure} by {self.task.unit}; {side} is better"), *lines])

    def file(self, name: str) -> Path | None:
        """Return the path of a file that results.json names; None where there is none.

        Args:
            name: relative to the folder.

        Raises:
            ResultsError: If it lies outside the folder.
        """
        try:
            path = Path(os.path.realpath(self.folder / name))
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
class OwnScores(Scored):
    """Scores of a training loop of your own, for `write_tables` and `write_figures` of whatwhere.report.paper.

    Nothing is trained or checked here: runs of one seed must share what is random, or pairs mean nothing.

    Raises:
        SettingError: If there are no scores, runs differ in their seeds or lengths, no length is a trained one, or a
            score is not a finite number, or no share although it is an accuracy.

    Examples:
        >>> losses = {"rotary": {0: {64: 1.1, 256: 1.5}}, "alibi": {0: {64: 1.2, 256: 1.3}}}
        >>> own = OwnScores(losses, "notes", longest_trained=64, measure="nats per token", higher_is_better=False)
        >>> own.beyond, own.score("alibi", 256)
        ([256], Spread(median=1.3, min=1.3, max=1.3))
    """

    # By scheme, seed and length; None where a scheme cannot be tested. An accuracy is a share.
    scores: Mapping[str, Mapping[int, Mapping[int, float | None]]]
    name: str  # of the task
    longest_trained: int  # the longest trained length
    measure: str  # "accuracy", or a loss with its unit, such as "nats per token"
    higher_is_better: bool  # True of an accuracy, False of a loss
    unit: str = "tokens"  # what lengths count

    def __post_init__(self) -> None:
        if not self.scores or not self.seeds or not self.tested:
            raise SettingError('scores need a scheme, a seed and a length, such as {"rotary": {0: {64: 1.1}}}.')
        first = self.scores[self.schemes[0]]
        tested = [run.keys() for run in first.values()][:1]
        for scheme, runs in self.scores.items():
            if runs.keys() != first.keys() or any(run.keys() not in tested for run in runs.values()):
                raise SettingError(
                    f"the runs of {scheme!r} have other seeds or lengths than those of {self.schemes[0]!r}: schemes "
                    "are compared seed by seed. Pass the same of each; None where a scheme cannot be tested."
                )
            for value in (value for run in runs.values() for value in run.values() if value is not None):
                if not math.isfinite(value) or (self.percent and not 0 <= value <= 1):
                    needed = "a share from 0 to 1" if self.percent else "a finite number"
                    raise SettingError(f"{scheme!r} has the score {value}, but needs {needed}, or None.")
        if not self.trained:
            raise SettingError(
                f"the tested lengths {self.tested} are all beyond the trained {self.longest_trained}: test one within."
            )

    @property
    def task(self) -> TaskDescription:
        """The task, its lengths and its measure."""
        return TaskDescription(
            name=self.name,
            unit=self.unit,
            measure=self.measure,
            higher_is_better=self.higher_is_better,
            trained=(self.longest_trained,),
            tested_in_length=tuple(n for n in self.tested if n <= self.longest_trained),
            lengths=tuple(n for n in self.tested if n > self.longest_trained),
            shift_length=0, groups=(), baselines={}, tokens=(), identity="",
        )  # fmt: skip

    @cached_property
    def _all(self) -> _Runs:
        def with_mean(run: Mapping[int, float | None]) -> tuple[float | None, Mapping[int, Scores]]:
            inside = [value for length, value in run.items() if length <= self.longest_trained]
            return _mean(inside), {length: {ALL: value} for length, value in run.items()}

        return {name: {seed: with_mean(run) for seed, run in runs.items()} for name, runs in self.scores.items()}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    # Means over other lengths cannot be compared.
    return sum(known) / len(known) if known and len(known) == len(values) else None


def read_results(folder: str | Path) -> Comparison:
    """Read the results of a comparison.

    Args:
        folder: what `whatwhere compare` wrote, or its results.json. Nothing in it is unpickled.

    Raises:
        ResultsError: If results.json is missing, damaged, of another format or of another version.

    Examples:
        >>> read_results("no-such-folder")
        Traceback (most recent call last):
        whatwhere.errors.ResultsError: there is no folder no-such-folder.
        Pass the results folder of a comparison; whatwhere demo and whatwhere compare write one, named by --out.
    """
    folder = Path(folder)
    folder = folder.parent if folder.name == RESULTS and folder.is_file() else folder
    path = folder / RESULTS
    if not folder.is_dir():
        raise ResultsError(
            f"{f'{folder} is a file' if folder.exists() else f'there is no folder {folder}'}.\n"
            "Pass the results folder of a comparison; whatwhere demo and whatwhere compare write one, named by --out."
        )
    if not path.is_file():
        raise ResultsError(
            f"{folder} holds no {RESULTS}, so there is nothing to show yet.\n"
            "It is written when a comparison ends. Run: whatwhere compare"
        )
    record = from_json(ComparisonRecord, read_json(path, RESULTS_SCHEMA), str(path))
    if not (record.summary and record.task.trained):
        raise ResultsError(f"{path} names no scheme or no trained length.\nRun the comparison again.")
    names, in_runs = [(run.scheme, run.seed) for run in record.runs], {run.scheme for run in record.runs}
    incomplete = sorted(record.summary.keys() ^ in_runs)
    faults = [f"the scheme {name!r} in its summary or in its runs, but not in both" for name in incomplete]
    faults += [f"the run {name!r}, seed {seed}, twice" for name, seed in names if names.count((name, seed)) > 1]
    chosen = {name for each in record.choices for name in (each.chosen, *each.losses)}
    faults += [f"the setting {name!r} of a scheme, but no run of it" for name in sorted(chosen - in_runs)]
    if faults:
        raise ResultsError(f"{path} has {faults[0]}: it was changed.\nRun the comparison again, into a new folder.")
    return Comparison(folder, record)


def read_json(path: Path, schema: Schema) -> Mapping[str, object]:
    """Read a file of ours that holds one JSON object."""
    try:
        content = read_object(path, MAX_RESULTS_BYTES)
    except CheckpointError as problem:
        first = str(problem).partition("\n")[0].rstrip(".")
        raise ResultsError(f"{first}.\nMove it away, or choose another folder.") from None
    return schema.unwrap(content, str(path))


def _cell(values: Spread | None) -> str:
    if values is None:
        return "no row"
    median, low, high = (f"{value:.3f}" for value in (values.median, values.min, values.max))
    return median if low == high else f"{median} ({low} to {high})"


def _read_tensors(path: Path, chosen: Callable[[str], bool]) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, safe_open

    try:
        require_checksum(path, RESULTS_SCHEMA)
        with safe_open(path, framework="numpy") as opened:
            names = [name for name in opened.keys() if chosen(name)]  # noqa: SIM118
            return {name: np.asarray(opened.get_tensor(name), dtype=np.float64) for name in names}
    except (SafetensorError, OSError, TypeError, ValueError) as error:  # CheckpointError is a ValueError
        raise ResultsError(
            f"{path} cannot be read as safetensors: {error}.\n"
            "Delete it to have the report without it, or run the comparison again."
        ) from error
