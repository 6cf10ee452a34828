"""The first tutorial, stage 2: positions. Its scheme: sinusoids in 64 features, added to the token vectors."""

from collections.abc import Sequence

from whatwhere.claims.claim import Claim, ExactClaim, Measured
from whatwhere.where.frequencies import inverse_frequencies


def _wavelength_factors() -> Sequence[Measured]:
    factors = (1 / inverse_frequencies(64)).tolist()
    # The index of the pair, what is printed, by how much it may be off, what the formula gives in arithmetic by hand.
    rows = ((1, 1.17, 0.005, 1.3335), (2, 1.37, 0.005, 1.7783), (10, 3.98, 0.005, 17.783), (31, 6812, 0.5, 7498.9))
    return [
        Measured(f"10000^({2 * i}/64)", factors[i], printed, tolerance, expected, 5e-5 * expected)
        for i, printed, tolerance, expected in rows
    ]


CLAIMS: tuple[Claim, ...] = (
    ExactClaim(
        id="0.24",
        says="The factor 10000^(2i/64) is 1.17, 1.37, 3.98 and 6812 for i = 1, 2, 10 and 31.",
        verdict="fails",
        right="It is 1.3335, 1.7783, 17.783 and 7498.9: the printed factors have other exponents.",
        chapter="sinusoid",
        measure=_wavelength_factors,
    ),
)
