"""E5: the least theta of rotary positions for a context length, by the bound of Men et al., 2024, and frequency maps.

B(m) = sum_i cos(m theta ** (-2 i / d)) >= 0 for all m <= L
"""

import numpy as np
from jaxtyping import Float

from experiments.bench import Bench
from experiments.record import Result, Statement
from whatwhere.where.frequencies import inverse_frequencies
from whatwhere.where.scaling import NTK, Linear, Scaling, YaRN

HEAD_DIM = 128
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
STEP = 1.05
"""Ratio of two neighboring theta of the search."""


def base_bound(bench: Bench) -> list[Result]:
    """Search the least theta for lengths from 1,024 to 32,768, and compare it with the published fit."""
    source = "Men et al., 2024"
    near = Statement(
        "E5.1",
        "The least theta without a negative B(m) grows like 0.0424 L^1.628",
        source,
        "least theta over the fit, for L = 1,024 to 32,768",
        "from 1/2 to 2",
        "number",
    )
    monotone = Statement(
        "E5.2",
        "Every theta above the least one keeps the bound",
        "implied by: a lower bound",
        "greatest theta that breaks the bound, over the least one that keeps it",
        "below 1",
        "number",
    )
    kept = Statement(
        "E5.3",
        "NTK scaling keeps the fastest pair and divides the slowest by the factor; linear scaling divides all",
        "bloc97, 2023; Chen et al., 2023",
        "largest relative error of the four frequencies",
        "below 1e-12",
        "number",
    )
    searches = [_search(length) for length in LENGTHS]
    return [
        bench.judge(near, [least / fit(length) for length, (least, _) in zip(LENGTHS, searches, strict=True)]),
        bench.judge(monotone, [last / least for least, last in searches]),
        bench.judge(kept, [_map_error()]),
    ]


def fit(length: int) -> float:
    """Return the published fit of the least theta.

    Examples:
        >>> round(fit(4096))
        32232
    """
    return float(0.0424 * length**1.628)


def similarity_bound(thetas: Float[np.ndarray, " thetas"], length: int) -> Float[np.ndarray, " thetas"]:
    """Compute the least B(m) over m = 0 .. length."""
    m = np.arange(length + 1.0)
    least = []
    for theta in thetas:
        frequencies = inverse_frequencies(HEAD_DIM, float(theta)).numpy()
        total = np.zeros(length + 1)
        for frequency in frequencies:
            total += np.cos(m * frequency)
        least.append(total.min())
    return np.array(least)


def _search(length: int) -> tuple[float, float]:
    """Return the least theta that keeps the bound, and the greatest that breaks it."""
    thetas = np.exp(np.arange(np.log(fit(length) / 8), np.log(fit(length) * 8), np.log(STEP)))
    keeps = similarity_bound(thetas, length) >= 0
    return float(thetas[keeps.argmax()]), float(thetas[~keeps][-1])


def _map_error() -> float:
    plain, factor = inverse_frequencies(HEAD_DIM).numpy(), 4.0

    def scaled(rule: Scaling) -> Float[np.ndarray, " pairs"]:
        values: np.ndarray = rule.frequencies(HEAD_DIM, 10_000.0).numpy()
        return values

    ntk, linear = scaled(NTK(factor)), scaled(Linear(factor))
    yarn = scaled(YaRN(factor, original_length=2048))
    errors = [ntk[0] / plain[0] - 1, ntk[-1] * factor / plain[-1] - 1, np.abs(linear * factor / plain - 1).max()]
    errors += [yarn[0] / plain[0] - 1, yarn[-1] * factor / plain[-1] - 1]
    return float(np.abs(errors).max())
