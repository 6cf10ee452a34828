"""Scores by scheme, seed and length: of a comparison, or of a training loop of your own."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whatwhere.comparison.results import ALL, Spread, TaskDescription, spread
from whatwhere.errors import SettingError


class Scored(ABC):
    """What tables, figures and tests of scores need."""

    @property
    @abstractmethod
    def task(self) -> TaskDescription:
        """The task, its lengths, its measure and its tokens."""

    @property
    @abstractmethod
    def schemes(self) -> list[str]:
        """Names of the schemes, in the order of the request."""

    @property
    @abstractmethod
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the runs, the least first."""

    @property
    @abstractmethod
    def tested(self) -> list[int]:
        """All tested lengths, the least first."""

    @abstractmethod
    def by_seed(self, scheme: str, length: int | None, group: str = ALL) -> dict[int, float | None]:
        """Return the score of each seed; None where there is none. Of length None, the mean in length."""

    @abstractmethod
    def find_scheme(self, name: str) -> str:
        """Return the name that a scheme has here."""

    def score(self, scheme: str, length: int | None, group: str = ALL) -> Spread | None:
        """Return the scores of a scheme."""
        return spread(self.by_seed(scheme, length, group).values())

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
class OwnScores(Scored):
    """Scores of a training loop of your own, for `write_tables` and `write_figures` of whatwhere.report.paper.

    Nothing is trained or checked here: runs of one seed must share what is random, or pairs mean nothing.

    Args:
        scores: by scheme, then seed, then length; None where a scheme cannot be tested. An accuracy is a share.
        name: of the task.
        longest_trained: the longest trained length.
        measure: "accuracy", or a loss with its unit, such as "nats per token".
        higher_is_better: True of an accuracy, False of a loss.
        unit: what lengths count.

    Raises:
        SettingError: If there are no scores, runs differ in their seeds or lengths, no length is a trained one, or a
            score is no finite number, or no share although it is an accuracy.

    Examples:
        >>> losses = {"rotary": {0: {64: 1.1, 256: 1.5}}, "alibi": {0: {64: 1.2, 256: 1.3}}}
        >>> own = OwnScores(losses, "notes", longest_trained=64, measure="nats per token", higher_is_better=False)
        >>> own.beyond, own.score("alibi", 256)
        ([256], Spread(median=1.3, min=1.3, max=1.3))
    """

    scores: Mapping[str, Mapping[int, Mapping[int, float | None]]]
    name: str
    longest_trained: int
    measure: str
    higher_is_better: bool
    unit: str = "tokens"

    def __post_init__(self) -> None:
        """Refuse what would give tables with gaps or wrong numbers."""
        if not self.scores or not self.seeds or not self.tested:
            raise SettingError('scores need a scheme, a seed and a length, such as {"rotary": {0: {64: 1.1}}}.')
        for scheme, runs in self.scores.items():
            if tuple(sorted(runs)) != self.seeds or any(sorted(run) != self.tested for run in runs.values()):
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
        """The task, its lengths and its measure; it has no groups and no baselines."""
        return TaskDescription(
            name=self.name,
            unit=self.unit,
            measure=self.measure,
            higher_is_better=self.higher_is_better,
            trained=(self.longest_trained,),
            tested_in_length=tuple(n for n in self.tested if n <= self.longest_trained),
            lengths=tuple(n for n in self.tested if n > self.longest_trained),
            shift_length=0,
            groups=(),
            baselines={},
            tokens=(),
            identity="",
        )

    @property
    def schemes(self) -> list[str]:
        """Names of the schemes."""
        return list(self.scores)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the runs, the least first."""
        return tuple(sorted(next(iter(self.scores.values()))))

    @property
    def tested(self) -> list[int]:
        """All tested lengths, the least first."""
        return sorted(next(iter(next(iter(self.scores.values())).values())))

    def by_seed(self, scheme: str, length: int | None, group: str = ALL) -> dict[int, float | None]:
        """Return the score of each seed; None where there is none. Of length None, the mean in length."""
        lengths = self.trained if length is None else [length]
        runs = {seed: [run[n] for n in lengths] for seed, run in sorted(self.scores[scheme].items())}
        return {seed: _mean(values) for seed, values in runs.items()}

    def find_scheme(self, name: str) -> str:
        """Return the name that a scheme has here.

        Raises:
            SettingError: If it has none.
        """
        if name not in self.scores:
            raise SettingError(f"there are no scores of {name!r}, but of: {', '.join(map(repr, self.schemes))}.")
        return name


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None where a value is missing, for means over other lengths cannot be compared."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
