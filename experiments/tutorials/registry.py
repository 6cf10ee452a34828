"""All claims of the five tutorials, by id, and the one loop that measures those that no training decides."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

from experiments.tutorials import (
    beyond_training,
    fifth_token_table,
    first_order,
    first_positions,
    first_tokens,
    first_training,
    fourth_text_to_input,
    real_model,
    second_sinusoids,
    third_four_schemes,
    trained_attention,
    varied_training,
)
from experiments.tutorials.claim import Claim, ExactClaim, Measured, ModelClaim, Verdict, verdict_of
from experiments.tutorials.committed import COMMITTED
from experiments.tutorials.quotes import QUOTES
from experiments.tutorials.trained import TrainedClaim
from whatwhere.errors import MissingExtra, SettingError, TokenError

if TYPE_CHECKING:
    from whatwhere.models.checkpoint import Checkpoint

_MODULES = (
    first_tokens,
    first_order,
    first_positions,
    first_training,
    beyond_training,
    second_sinusoids,
    third_four_schemes,
    fourth_text_to_input,
    fifth_token_table,
    real_model,
    varied_training,
    trained_attention,
)


def _completed(each: Claim) -> Claim:
    """Return a claim with its quotation and, where training decides it, the committed verdict."""
    quoted = replace(each, quote=QUOTES[each.id])
    if not isinstance(quoted, TrainedClaim) or each.id not in COMMITTED:
        return quoted
    verdict, experiment = COMMITTED[each.id]
    return replace(quoted, verdict=verdict, experiment=experiment)


CLAIMS: tuple[Claim, ...] = tuple(
    sorted((_completed(each) for module in _MODULES for each in module.CLAIMS), key=lambda each: each.order)
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

    Args:
        id: as in "0.13".

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

    Args:
        chosen: the claim.
        checkpoint: of the model whose rows decide a ModelClaim; the committed verdicts are those of all-MiniLM-L6-v2.

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

    Args:
        ids: of the claims; None for all exact ones and, where a checkpoint is passed, those that its rows decide.
        on_claim: is called with each finding as soon as it is made.
        checkpoint: of a real model, for the claims of trained rows.

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
