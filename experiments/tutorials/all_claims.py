"""All claims of the five tutorials, by id, and the one loop that measures those that no training decides."""

import difflib
from collections.abc import Callable, Sequence
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
from experiments.tutorials.claim import Claim, ExactClaim, Measured, ModelClaim, Verdict, verdict_of
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
    """What the measurement of a claim gave.

    Args:
        id: of the claim.
        verdict: of this measurement.
        measured: the quantities behind it.
        seconds: that it took.
        confirmed: whether the verdict is the claim's own, and each quantity is what is expected.
        reason: why nothing was measured, or "".
    """

    id: str
    verdict: Verdict
    measured: Sequence[Measured]
    seconds: float
    confirmed: bool
    reason: str


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


def measure(chosen: ExactClaim | ModelClaim, checkpoint: "Checkpoint | None" = None) -> Finding:
    """Measure a claim.

    Returns:
        The finding; "not measured" where an optional package, the checkpoint, or a word in its vocabulary is missing.

    Examples:
        >>> measure(claim("0.2")).verdict
        'holds'
    """
    start = perf_counter()
    try:
        measured, reason = _measured(chosen, checkpoint)
    except (MissingExtra, TokenError) as error:
        measured, reason = (), str(error)
    verdict = verdict_of(measured)
    confirmed = verdict == chosen.verdict and all(each.is_expected for each in measured)
    return Finding(chosen.id, verdict, measured, perf_counter() - start, confirmed, reason)


def _measured(chosen: ExactClaim | ModelClaim, checkpoint: "Checkpoint | None") -> tuple[tuple[Measured, ...], str]:
    if isinstance(chosen, ExactClaim):
        return tuple(chosen.measure()), ""
    if checkpoint is None:
        return (), "it takes the token table of a trained model: pass its checkpoint."
    return tuple(chosen.measure(checkpoint)), ""


def measure_claims(
    ids: Sequence[str] | None = None,
    on_claim: Callable[[Finding], None] | None = None,
    checkpoint: "Checkpoint | None" = None,
) -> list[Finding]:
    """Measure claims that no training decides.

    Returns:
        One finding for each claim, in the order of the ids.

    Raises:
        SettingError: If there is no such claim, or runs of a comparison decide it.

    Examples:
        >>> [finding.verdict for finding in measure_claims(["0.1", "0.2"])]
        ['holds', 'holds']
    """
    chosen = CLAIMS if ids is None else [claim(id) for id in ids]
    measurable = [each for each in chosen if isinstance(each, ExactClaim | ModelClaim)]
    if ids is not None and len(measurable) < len(chosen):
        others = ", ".join(each.id for each in chosen if not isinstance(each, ExactClaim | ModelClaim))
        raise SettingError(f"claims that training decides cannot be measured at once: {others}. Use whatwhere compare.")
    findings = []
    for each in measurable:
        if ids is None and checkpoint is None and isinstance(each, ModelClaim):
            continue
        findings.append(measure(each, checkpoint))
        if on_claim is not None:
            on_claim(findings[-1])
    return findings


def verdicts(results: Comparison) -> list[Judgment]:
    """Judge the claims on the task of a comparison by its runs: one judgment each, those that no run decides last."""
    trained = [each for each in CLAIMS if isinstance(each, TrainedClaim)]
    judged = [each.judge(results) for each in trained if each.task == results.task.name]
    return sorted(judged, key=lambda each: each.verdict == "not measured")
