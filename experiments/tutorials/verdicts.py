"""Verdicts: the claims of the tutorials, judged by the runs of a comparison."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.tutorials.registry import CLAIMS
from experiments.tutorials.trained import Judgment, TrainedClaim
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import ComparisonRecord
from whatwhere.comparison.statistics import PairedDifferences
from whatwhere.records import Missing


@dataclass(frozen=True)
class JudgedRecord(ComparisonRecord):
    """What `compare --json` prints: the content of results.json, and what follows from it.

    Args:
        verdicts: on the tutorial's claims.
        differences: between schemes at the longest length; the reason why there are none where SciPy is not installed.
    """

    verdicts: Sequence[Judgment]
    differences: PairedDifferences | Missing


def verdicts(results: Comparison) -> list[Judgment]:
    """Judge the tutorials' claims on the task of a comparison by its runs.

    Args:
        results: of a comparison.

    Returns:
        One judgment for each claim on this task, those that no run decides last; none where no tutorial has the task.
    """
    trained = [each for each in CLAIMS if isinstance(each, TrainedClaim)]
    judged = [each.judge(results) for each in trained if each.task == results.task.name]
    return sorted(judged, key=lambda each: each.verdict == "not measured")
