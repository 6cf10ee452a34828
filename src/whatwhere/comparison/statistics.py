"""Which scheme is better: paired differences between the schemes of a comparison, with an exact test.

Runs of one seed share initial tokens, batches and test sets, so two schemes are compared seed by seed.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from whatwhere.comparison.read import Scored
from whatwhere.errors import MissingExtra, SettingError
from whatwhere.records import Missing

Outcome = Literal["better", "not separated", "too few seeds"]

LEVEL = 0.05  # a difference is claimed where its p-value, corrected by Holm's method, is at most this
CONFIDENCE = 0.95
SEEDS_FOR_INTERVAL = 5  # fewer seeds have no interval

NO_SCIPY = "differences are tested with SciPy, which is not installed: pip install 'whatwhere[compare]'"

_POWER = 0.8  # of this share of comparisons a difference is found that is called detectable
_ENUMERATED = 14  # all sign patterns of so many seeds; of more, as many random ones
_FLOAT32 = 2.0**-23  # relative rounding of a score that was a mean in float32, as earlier versions wrote accuracies
_FLOAT64 = 2.0**-46  # the same of other losses, whose sums over up to 64 seeds and sign patterns are rounded too


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """A scheme against another, seed by seed.

    Args:
        interval: 95 % interval of that mean by Student's t, for this pair alone; None below five seeds and of equal
            gains.
        effect: Hedges' g of paired differences: the mean divided by the standard deviation, corrected for few seeds;
            None below three seeds and of equal gains.
    """

    first: str  # the scheme with the better mean
    second: str  # the other
    gains: tuple[float, ...]  # for each seed, score(first) - score(second), or the opposite of a loss
    ahead: int  # in how many seeds the first is better
    mean: float  # of the gains, never negative; what is tested
    interval: Interval | None
    effect: float | None
    p: float  # two-sided p-value of the sign-flip permutation test
    p_holm: float  # the same, corrected by Holm's method over the family
    outcome: Outcome  # "better" where p_holm is at most the level; "too few seeds" where no result could be


@dataclass(frozen=True)
class PairedDifferences:
    """The schemes of a comparison at one length, compared in pairs."""

    length: int | None  # a tested length; None is the mean over the trained lengths
    seeds: tuple[int, ...]  # whose runs are paired
    against: str | None  # the scheme that every other is compared with; None where all pairs are
    family: int  # how many pairs are tested at once, for which Holm's method corrects
    level: float  # of the test
    seeds_needed: int  # with fewer, no p-value of this family can reach the level
    pairs: tuple[Difference, ...]  # the schemes with the better mean first
    left_out: tuple[str, ...]  # schemes without a finite score in every seed

    @property
    def enough_seeds(self) -> bool:
        """Whether a p-value of this family can reach the level."""
        return len(self.seeds) >= self.seeds_needed


def paired_differences(results: Scored, length: int | None, against: str | None = None) -> PairedDifferences | Missing:
    """Compute by how much schemes differ at a length, and whether the seeds show it.

    The test flips signs: were two schemes alike, each seed's difference could as well have the opposite sign. Its
    p-value is the share of all sign patterns whose mean is at least as far from 0 as the measured one. It is exact up
    to 14 seeds (of more, 16,384 random patterns are taken), and uses the size of the differences, which a sign test
    does not. The least p-value of n seeds is 2 / 2^n. Accuracies may be rounded to float32, as losses that are
    all numbers of float32: what differs by no more than that rounding is equal, in the test as in `ahead`.

    Holm's method keeps the chance of any false claim in the family below the level. The family is all pairs of schemes
    at this length, for the best scheme is chosen after looking; or all schemes against one that was chosen before.

    Of a scheme with several settings (`vary`) one is compared, which was chosen by held-out losses and not by these
    scores: otherwise the family would count settings, and the best of many would be favored.

    Intervals are those of a paired t test: mean +- t * standard deviation / sqrt(seeds). Of normal differences 95 %
    of them contain the true mean, whatever the number of seeds; of skewed ones fewer: about 88 % at five seeds and
    90 % at ten, where differences are exponentially distributed.

    Args:
        results: of a comparison, or OwnScores.
        length: a tested length; None is the mean over the trained lengths.
        against: a scheme that was chosen before looking at the results; None takes the one that was chosen when the
            comparison began, and compares all pairs where there is none.

    Returns:
        The differences; the reason why there are none where SciPy is not installed.

    Raises:
        SettingError: If the length was not tested, or `against` is not a scheme of the comparison.

    Examples:
        >>> from whatwhere.comparison import OwnScores
        >>> losses = {"rotary": {0: {512: 1.1}, 1: {512: 1.2}}, "alibi": {0: {512: 1.0}, 1: {512: 1.1}}}
        >>> own = OwnScores(losses, "notes", longest_trained=512, measure="nats per token", higher_is_better=False)
        >>> pair = paired_differences(own, 512).pairs[0]
        >>> pair.first, pair.ahead, pair.outcome
        ('alibi', 2, 'too few seeds')
    """
    if length is not None and length not in (*results.trained, *results.beyond):
        raise SettingError(f"length {length} was not tested; tested: {[*results.trained, *results.beyond]}.")
    against = results.against if against is None else results.find_scheme(against, compared=True)
    scores = _scores(results, length)
    order = sorted(scores, key=lambda scheme: -float(scores[scheme].mean()))
    chosen = [
        (first, second)
        for n, first in enumerate(order)
        for second in order[n + 1 :]
        if against is None or against in (first, second)
    ]
    seeds = results.seeds
    both = np.array([(scores[first], scores[second]) for first, second in chosen]).reshape(len(chosen), 2, len(seeds))
    lengths = results.trained if length is None else (length,)  # whose mean in float64 is a number of float32 no more
    losses = (x for scheme in scores for n in lengths for x in results.by_seed(scheme, n).values())
    narrow = results.percent or all(x is None or float(np.float32(x)) == x for x in losses)
    gains, rounding = both[:, 0] - both[:, 1], (_FLOAT32 if narrow else _FLOAT64) * np.abs(both).sum(axis=1)
    needed = seeds_needed(len(chosen))
    try:
        intervals = _intervals(gains, rounding)
    except MissingExtra as missing:
        return Missing(str(missing))
    p, effects = sign_flip_test(gains, rounding), list(map(_effect, gains, rounding))
    corrected = holm(p)
    pairs = []
    for n, (pair, gain) in enumerate(zip(chosen, gains, strict=True)):
        ahead, mean, tested = int((gain > rounding[n]).sum()), float(gain.mean()), (float(p[n]), float(corrected[n]))
        outcome: Outcome = "better" if corrected[n] <= LEVEL else "not separated"
        outcome = outcome if len(seeds) >= needed else "too few seeds"
        pairs.append(Difference(*pair, tuple(gain.tolist()), ahead, mean, intervals[n], effects[n], *tested, outcome))
    left_out = tuple(scheme for scheme in results.compared.values() if scheme not in scores)
    return PairedDifferences(length, seeds, against, len(chosen), LEVEL, needed, tuple(pairs), left_out)


def seeds_needed(family: int, level: float = LEVEL) -> int:
    """Compute how many seeds a family of pairs needs so that a p-value by Holm's method can reach a level."""
    return next(n for n in range(1, 1000) if max(family, 1) * 2 / 2**n <= level)


def detectable(seeds: int, family: int) -> float | None:
    """Compute the mean difference that a pair shows in four of five comparisons, in standard deviations over seeds.

    It is that of normal differences, tested at the level divided by the family: by the power of the t test, or, where
    all seeds must agree, by the chance that they do. None where the seeds cannot show any. It needs SciPy.
    """
    try:
        from scipy.optimize import brentq
        from scipy.stats import nct, norm, t
    except ImportError:
        raise MissingExtra(NO_SCIPY) from None
    if seeds < seeds_needed(family):
        return None
    level, freedom = LEVEL / max(family, 1), seeds - 1
    most, root = t.ppf(1 - level / 2, freedom), math.sqrt(seeds)
    found = float(brentq(lambda mean: nct.sf(most, freedom, mean * root) - _POWER, 0, 50))
    unanimous = level * 2**seeds / 2 < 2  # the two patterns of one sign alone are rare enough
    return max(found, float(norm.ppf(_POWER ** (1 / seeds)))) if unanimous else found


def seeds_sentence(schemes: int, seeds: int, against: str | None = None) -> str:
    """Describe which differences so many seeds can show between so many schemes; "" of a single scheme.

    Examples:
        >>> seeds_sentence(5, 3)
        '5 schemes are 10 pairs: 3 seeds cannot show that any differ. 9 can; 8 if all are compared with one of them.'
        >>> seeds_sentence(2, 8)
        '2 schemes are 1 pair: 8 seeds show a difference of 1.2 standard deviations over seeds, 4 times of 5.'
    """
    if schemes < 2:
        return ""
    family, fewer = schemes * (schemes - 1) // 2, schemes - 1
    pairs = f"{schemes} schemes are {family} pair{'s' * (family > 1)}"
    if against is not None:
        family, pairs = fewer, f"{fewer} scheme{'s' * (fewer > 1)} against {against}"
    needed, counted = seeds_needed(family), f"{seeds} seed{'s' * (seeds > 1)}"
    if seeds < needed:
        other = seeds_needed(fewer)
        one = f"; {other} if all are compared with one of them" if against is None and other < needed else ""
        return f"{pairs}: {counted} cannot show that any differ. {needed} can{one}."
    try:
        return (
            f"{pairs}: {counted} show a difference of {detectable(seeds, family):.1f} standard deviations over seeds, "
            "4 times of 5."
        )
    except MissingExtra:
        return f"{pairs}: {counted} are enough to show a difference."


def holm(p: Float[np.ndarray, " family"]) -> Float[np.ndarray, " family"]:
    """Correct p-values by Holm's method."""
    order = np.argsort(p, kind="stable")
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return corrected


def _scores(results: Scored, length: int | None) -> dict[str, Float[np.ndarray, " seeds"]]:
    """Return the scores of each scheme by seed, higher is better; of schemes with a finite score in every seed."""
    sign = 1.0 if results.task.higher_is_better else -1.0
    found = {}
    for scheme in results.compared.values():
        by_seed = results.by_seed(scheme, length)
        known = [value for value in by_seed.values() if value is not None and math.isfinite(value)]
        if len(known) == len(results.seeds):
            found[scheme] = sign * np.array(known)
    return found


def _effect(gains: Float[np.ndarray, " seeds"], rounding: Float[np.ndarray, " seeds"]) -> float | None:
    freedom = len(gains) - 1
    if freedom < 2 or _equal(gains, rounding):
        return None
    correction = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / math.sqrt(freedom / 2)
    return float(gains.mean() / gains.std(ddof=1)) * correction


def _equal(gains: Float[np.ndarray, " seeds"], rounding: Float[np.ndarray, " seeds"]) -> bool:
    return bool(np.ptp(gains) <= 2 * rounding.max())


def sign_flip_test(
    gains: Float[np.ndarray, "pairs seeds"], rounding: Float[np.ndarray, "pairs seeds"] | None = None
) -> Float[np.ndarray, " pairs"]:
    """Return the two-sided p-value of each row: the share of sign patterns whose sum is at least as far from 0.

    Args:
        gains: differences of scores.
        rounding: of each gain; None is that of two shares in float32. Sums that differ by no more are equal.
    """
    seeds = gains.shape[1]
    if seeds <= _ENUMERATED:
        signs = 1.0 - 2.0 * (np.arange(2**seeds)[:, None] >> np.arange(seeds) & 1)
    else:
        signs = np.random.default_rng(0).choice((-1.0, 1.0), (2**_ENUMERATED, seeds))
        signs[0] = 1.0  # the measured pattern is one of them
    least = np.abs(gains.sum(axis=1)) - (2 * _FLOAT32 * seeds if rounding is None else rounding.sum(axis=1))
    return np.array([(np.abs(signs @ gain) >= low).mean() for gain, low in zip(gains, least, strict=True)], np.float64)


def _intervals(
    gains: Float[np.ndarray, "pairs seeds"], rounding: Float[np.ndarray, "pairs seeds"]
) -> list[Interval | None]:
    try:
        from scipy.stats import t
    except ImportError:
        raise MissingExtra(NO_SCIPY) from None
    seeds = gains.shape[1]
    if seeds < SEEDS_FOR_INTERVAL:
        return [None] * len(gains)
    reach = t.ppf((1 + CONFIDENCE) / 2, seeds - 1) * gains.std(axis=1, ddof=1) / math.sqrt(seeds)
    ends = zip((gains.mean(axis=1) - reach).tolist(), (gains.mean(axis=1) + reach).tolist(), strict=True)
    same = map(_equal, gains, rounding)
    return [None if equal else Interval(*pair) for equal, pair in zip(same, ends, strict=True)]
