"""All claims of the five tutorials, by id, and the one loop that measures those that no training decides."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from experiments.tutorials import (
    rows_of_minilm,
    trained_tables,
    tutorial_1_positions,
    tutorial_1_tokens,
    tutorial_2,
    tutorial_3,
    tutorial_4,
    tutorial_5,
    varied_settings,
)
from experiments.tutorials.claim import Claim, Measured, MeasuredClaim, Verdict, verdict_of
from experiments.tutorials.trained import Judgment, TrainedClaim
from whatwhere.comparison.read import Comparison
from whatwhere.errors import MissingExtra, SettingError, TokenError

if TYPE_CHECKING:
    from whatwhere.models.checkpoint import Checkpoint

_MODULES = (
    tutorial_1_tokens,
    tutorial_1_positions,
    trained_tables,
    tutorial_2,
    tutorial_3,
    tutorial_4,
    tutorial_5,
    rows_of_minilm,
    varied_settings,
)


CLAIMS: tuple[Claim, ...] = tuple(
    sorted((each for module in _MODULES for each in module.CLAIMS), key=lambda each: each.order)
)
"""In the order of their ids."""

_BY_ID = {each.id: each for each in CLAIMS}


@dataclass(frozen=True)
class Finding:
    """What the measurement of a claim gave."""

    id: str
    verdict: Verdict
    measured: Sequence[Measured]
    seconds: float
    confirmed: bool  # whether the verdict is the claim's own, and each quantity is what is expected
    reason: str  # why nothing was measured, or ""


def claim(id: str) -> Claim:
    """Return a claim.

    Raises:
        SettingError: If there is no such claim.

    Examples:
        >>> claim("0.2").verdict
        'holds'
    """
    if id not in _BY_ID:
        near = difflib.get_close_matches(id, _BY_ID, n=3) or [CLAIMS[0].id, CLAIMS[-1].id]
        raise SettingError(
            f"there is no claim {id!r}. An id has the tutorial's number, 0 to 4, and the claim's; near are: "
            f"{', '.join(near)}."
        )
    return _BY_ID[id]


def measure(chosen: MeasuredClaim, checkpoint: "Checkpoint | None" = None) -> Finding:
    """Measure a claim: "not measured" where an optional package, the checkpoint or a word in its vocabulary is missing.

    Examples:
        >>> measure(claim("0.2")).verdict
        'holds'
    """
    start, measured, reason = perf_counter(), tuple[Measured, ...](), ""
    try:
        if chosen.kind == "exact":
            measured = tuple(chosen.measure())
        elif checkpoint is not None:
            measured = tuple(chosen.measure(checkpoint))
        else:
            reason = "it takes the token table of a trained model: pass its checkpoint."
    except (MissingExtra, TokenError) as error:
        reason = str(error)
    verdict = verdict_of(measured)
    confirmed = verdict == chosen.verdict and all(each.is_expected for each in measured)
    return Finding(chosen.id, verdict, measured, perf_counter() - start, confirmed, reason)


def measure_claims(checkpoint: "Checkpoint | None" = None) -> list[Finding]:
    """Measure all claims that no training decides, those on trained rows where there is a checkpoint."""
    measurable = [each for each in CLAIMS if isinstance(each, MeasuredClaim)]
    return [measure(each, checkpoint) for each in measurable if each.kind == "exact" or checkpoint is not None]


def verdicts(results: Comparison) -> list[Judgment]:
    """Judge the claims on the task of a comparison by its runs: one judgment each, those that no run decides last."""
    trained = [each for each in CLAIMS if isinstance(each, TrainedClaim)]
    judged = [each.judge(results) for each in trained if each.task == results.task.name]
    return sorted(judged, key=lambda each: each.verdict == "not measured")
