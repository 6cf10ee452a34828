"""The updates that a row misses while it is skipped, summed by a Gauss quadrature rule.

Dense AdamW changes a row at every step, also where no token of the batch looked it up. A row with moments m and v, last
updated at step t, has by step n changed by

    m sum_s B_s / (x_s sqrt(v) + eps)      s = t + 1 .. n
    B_s = lr_s / (1 - beta1^s)  beta1^(s - t)  P_n / P_s        P_s = product over u <= s of (1 - lr_u weight_decay_u)
    x_s = beta2^((s - t) / 2) / sqrt(1 - beta2^s)

B_s is positive, so a few nodes and weights replace the n - t steps, for every v and eps: the Gauss rule of the
measure B_s / x_s^3. It is exact for sqrt(v) far above eps and far below it, and for as few steps as it has nodes; how
many nodes it needs in between is computed from the betas. A power series in eps / sqrt(v) diverges for small gradients.
Golub and Welsch 1969, https://doi.org/10.1090/S0025-5718-69-99647-1.
"""

from dataclasses import dataclass, field
from functools import cache
from math import floor, log, log1p, log10, sqrt
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, Int64

from whatwhere.errors import SettingError

RATE, ROOT, KEPT, FIRST, HALF, NODES = range(6)
"""Columns of StepHistory.steps: lr / (1 - beta1^s), 1 / sqrt(1 - beta2^s), the logarithms of the products of
1 - lr weight_decay, of beta1 and of sqrt(beta2) since the history begins, and the nodes of a rule from s on."""

MADE, COUNT, ENDED, CACHED, RULE = range(5)
"""Columns of StepHistory.rules: the last slot that a rule covers, how many nodes it has, whether later steps have no
weight, the slot that StepHistory.cached is for; from RULE on its nodes, then its weights, as of its last slot."""

PRODUCTS = 9  # columns of StepHistory.products

POWER = 3
_ZERO = -1e4  # the logarithm of a beta1 of 0: its exponential is 0, and it can be subtracted
_LIMIT, _TOLERANCE, _TAIL = 16, 1e-6, 1e-9
_WIDE_LIMIT, _WIDE_TOLERANCE, _WIDE_TAIL = 32, 1e-10, 1e-13
_ROWS = 256  # rules that are computed at once


@dataclass
class StepHistory:
    """The settings of recent steps, and from them the updates that skipped rows have missed."""

    base: int  # the step after which the history begins; every row is up to date up to it or a later one
    betas: tuple[float, float]  # of the first step, for rows that are at the base
    wide: bool = False  # rules for float64 tables
    at_zero: bool = False  # eps is zero, where one node is exact
    count: int = 0
    sent: Any = None  # the steps on a GPU, and how many of them are there
    most: int = field(init=False)
    steps: Float64[np.ndarray, "capacity columns"] = field(init=False)
    rules: Float64[np.ndarray, "capacity rule"] = field(init=False)
    cached: Float32[np.ndarray, "capacity columns"] = field(init=False)

    def __post_init__(self) -> None:
        self.most = _WIDE_LIMIT if self.wide else _LIMIT
        columns = 3 + 2 * self.most
        self.steps, self.rules = np.zeros((64, NODES + 1)), np.zeros((64, RULE + 2 * self.most))
        self.cached = np.zeros((64, columns), np.float32)  # coefficients, written and read by the compiled kernel
        self._size(0, self.betas)

    @property
    def now(self) -> int:
        """The number of the last step."""
        return self.base + self.count

    @property
    def log_tail(self) -> float:
        """The logarithm of the weight, relative to the first step, below which later steps are ignored."""
        return log(_WIDE_TAIL if self.wide else _TAIL)

    def record(self, lr: float, betas: tuple[float, float], weight_decay: float) -> None:
        """Add a step."""
        slot = self.count + 1
        if slot == len(self.steps):
            arrays = (self.steps, self.rules, self.cached)
            self.steps, self.rules, self.cached = (np.concatenate([x, np.zeros_like(x)]) for x in arrays)
        self._size(slot, betas)
        before, row, (beta1, beta2) = self.steps[self.count], self.steps[slot], betas
        row[RATE] = lr / (1 - beta1 ** (self.base + slot))
        row[ROOT] = 1 / sqrt(1 - beta2 ** (self.base + slot))
        row[KEPT] = before[KEPT] + log1p(-lr * weight_decay)
        row[FIRST] = before[FIRST] + (log(beta1) if beta1 > 0 else _ZERO)
        row[HALF] = before[HALF] + log(beta2) / 2
        self.count = slot

    def coefficients(self, since: Int64[np.ndarray, " rows"]) -> Float64[np.ndarray, "rows columns"]:
        """Return the coefficients that bring rows last updated at each of these steps up to date.

            p <- D p - m sum_i w_i / (x_i sqrt(v) + eps)        m <- M m        v <- V v

        Rules are computed from all steps here; the compiled kernel adds new steps to the rule that it has.
        """
        slots = since - self.base
        unfinished = slots[(self.rules[slots, ENDED] == 0) & (since > 0)]  # before step 1 there are no moments
        for begin in range(0, len(unfinished), _ROWS):
            self._make_rules(unfinished[begin : begin + _ROWS])
        past = self.steps[self.count] - self.steps[slots]
        rules = self.rules[slots]
        out = np.concatenate([np.exp(past[:, [KEPT, FIRST, HALF]] * [1, 1, 2]), rules[:, RULE:]], axis=1)
        made = rules[:, MADE].astype(np.int64)
        out[:, 3 + self.most :] *= np.exp(self.steps[self.count, KEPT] - self.steps[made, KEPT])[:, None]
        return out

    def products(self, begin: int) -> Float64[np.ndarray, "steps columns"]:
        """Return the steps from a slot on as kernels on a GPU read them, which add up B_s and x_s themselves.

        The products of the decays of p, m and sqrt(v) since the history began, each as a number from 1 to 2 and a power
        of 2, since many steps leave the range of float64; B_s P_n and x_s by the same powers; and how far B_s / x_s has
        faded, as a logarithm.
        """
        steps = self.steps[begin : self.count + 1]
        logarithms = steps[:, [KEPT, FIRST, HALF]] / log(2)
        powers = np.floor(logarithms)
        kept, first, half = np.exp2(logarithms - powers).T
        weights, nodes, fading = steps[:, RATE] * first / kept, steps[:, ROOT] * half, steps[:, HALF] - steps[:, FIRST]
        return np.column_stack([kept, first, half, powers, weights, nodes, fading])

    def _make_rules(self, slots: Int64[np.ndarray, " rules"]) -> None:
        steps = self.steps[: self.count + 1]
        fading = steps[:, HALF] - steps[:, FIRST]  # rises from step to step
        ends = np.searchsorted(fading, fading[slots] - self.log_tail, side="right")  # the first step that is ignored
        taken = slots[:, None] + np.arange(1, max(int((ends - slots).max()), 2))
        inside = taken < ends[:, None]
        later, start = steps[np.minimum(taken, self.count)], steps[slots][:, None]
        made = np.minimum(ends - 1, self.count)
        kept = np.where(inside, steps[made, None, KEPT] - later[..., KEPT], 0)
        masses = later[..., RATE] * np.exp(later[..., FIRST] - start[..., FIRST] + kept) * inside
        points = later[..., ROOT] * np.exp(later[..., HALF] - start[..., HALF])
        nodes, weights = gauss_rules(points, masses, steps[slots, NODES].astype(np.int64), self.most)
        self.rules[slots, MADE], self.rules[slots, COUNT] = made, (weights > 0).sum(1)
        self.rules[slots, ENDED] = ends <= self.count
        self.rules[slots, RULE:] = np.concatenate([nodes, weights], axis=1)

    def _size(self, slot: int, betas: tuple[float, float]) -> None:
        sizes = rule_sizes(*_rounded(betas), self.wide)
        power = max(self.base + slot, 1).bit_length() - 1
        self.steps[slot, NODES] = 0 if self.at_zero else sizes[min(power, len(sizes) - 1)]


def gauss_rules(
    points: Float[np.ndarray, "rules steps"],
    masses: Float[np.ndarray, "rules steps"],
    sizes: Int[np.ndarray, " rules"],
    most: int,
) -> tuple[Float64[np.ndarray, "rules most"], Float64[np.ndarray, "rules most"]]:
    """Return nodes y and weights w with sum_i w_i / (y_i r + e) close to sum_s B_s / (x_s r + e) for all r, e >= 0."""
    nodes, weights = np.ones((len(points), most)), np.zeros((len(points), most))
    number = (masses > 0).sum(1)
    for i in np.flatnonzero(number <= np.maximum(sizes, 1)):  # as many nodes as steps: the steps themselves
        here = masses[i] > 0
        nodes[i, : number[i]], weights[i, : number[i]] = points[i, here], masses[i, here]
    zero = (sizes == 0) & (number > 0)
    nodes[zero, :1], weights[zero, 0] = 1, (masses[zero] / points[zero]).sum(1)
    for size in np.unique(sizes[(sizes > 0) & (number > sizes)]):
        rows = (sizes == size) & (number > size)
        matrix, total = jacobi(points[rows], masses[rows], int(size))
        nodes[rows, :size], weights[rows, :size] = nodes_of(matrix, total)
    return nodes, weights


def jacobi(
    points: Float[np.ndarray, "rules steps"], masses: Float[np.ndarray, "rules steps"], size: int
) -> tuple[Float64[np.ndarray, "rules size size"], Float64[np.ndarray, " rules"]]:
    """Return the Jacobi matrices of the measures masses / points^3, by Lanczos, and the total masses."""
    measure = masses / points**POWER
    total = measure.sum(1)
    vectors = np.zeros((size, *points.shape))
    vectors[0] = np.sqrt(measure / total[:, None])
    matrix = np.zeros((len(points), size, size))
    for i in range(size):
        rest = points * vectors[i]
        matrix[:, i, i] = (rest * vectors[i]).sum(1)
        if i + 1 == size:
            break
        for _ in range(2):  # twice, or the vectors lose orthogonality
            for vector in vectors[: i + 1]:
                rest = rest - vector * (vector * rest).sum(1)[:, None]
        norm = np.sqrt((rest * rest).sum(1))
        # A measure of fewer points than nodes ends here; the rows that follow are not coupled to it.
        norm = np.where(norm > 1e-14 * matrix[:, 0, 0], norm, 0)
        matrix[:, i, i + 1] = matrix[:, i + 1, i] = norm
        vectors[i + 1] = rest * np.divide(1, norm, out=np.zeros_like(norm), where=norm > 0)[:, None]
    return matrix, total


def nodes_of(
    matrix: Float64[np.ndarray, "rules size size"], total: Float64[np.ndarray, " rules"]
) -> tuple[Float64[np.ndarray, "rules size"], Float64[np.ndarray, "rules size"]]:
    """Return nodes and weights: the eigenvalues, and the squared first components of the eigenvectors."""
    nodes, vectors = np.linalg.eigh(matrix)
    weights = vectors[:, 0] ** 2 * total[:, None]
    return np.where(weights > 0, nodes, 1), weights * nodes**POWER


def require_betas(beta1: float, beta2: float) -> None:
    """Raise SettingError unless missed updates can be summed: 0 <= beta1 < sqrt(beta2) < 1, and beta1 well below."""
    rule_sizes(*_rounded((beta1, beta2)))


@cache
def rule_sizes(beta1: float, beta2: float, wide: bool = False) -> tuple[int, ...]:
    """Return the number of nodes that the rule of a row needs that was last updated at step 1, 2, 4, 8, ....

    The largest error over all ratios of eps to sqrt(v), relative to the sum of updates, is computed at a constant
    learning rate, and kept below 1e-6. Early rules need more nodes, since 1 / sqrt(1 - beta2^s) changes fast.
    """
    limit, tail = (_WIDE_LIMIT, _WIDE_TAIL) if wide else (_LIMIT, _TAIL)
    if not 0 <= beta1 < 1 or not beta1 < sqrt(beta2) < 1:
        raise _betas_error(beta1, beta2)
    if beta1 == 0:
        return (1,)
    kept = int(log(tail) / log(beta1 / sqrt(beta2))) + 1
    if beta2 ** (kept * POWER / 2) < 1e-200:  # points so far apart leave the range of float64
        raise _betas_error(beta1, beta2)
    sizes = tuple(_size_at(2**power, beta1, beta2, min(limit, kept), kept, wide) for power in range(14))
    if 0 in sizes:
        raise _betas_error(beta1, beta2)
    return sizes


def _size_at(step: int, beta1: float, beta2: float, limit: int, kept: int, wide: bool) -> int:
    """Return the fewest nodes that are exact enough after this step; 0 if none are."""
    j = np.arange(1.0, kept + 1)
    masses, points = beta1**j / (1 - beta1 ** (step + j)), beta2 ** (j / 2) / np.sqrt(1 - beta2 ** (step + j))
    ratios = np.append(np.geomspace(points.min() / 100, points.max() * 100, 60), 0)[:, None]
    exact = (masses / (points + ratios)).sum(1)
    matrix, total = jacobi(points[None], masses[None], limit)
    error = np.inf
    for size in range(2, limit + 1):
        nodes, weights = nodes_of(matrix[:, :size, :size], total)
        error = np.abs((weights / (nodes + ratios)).sum(1) / exact - 1).max()
        if error <= (_WIDE_TOLERANCE if wide else _TOLERANCE):
            return size
    return limit if error <= _TOLERANCE else 0


def _rounded(betas: tuple[float, float]) -> tuple[float, float]:
    """Round 1 - beta1 down to two digits, so that a schedule of beta1 needs few different sizes."""
    gap = 1 - betas[0]
    if not (0 < gap <= 1 and betas[1] >= 0):
        raise _betas_error(*betas)
    unit = 10.0 ** (floor(log10(gap)) - 1)
    rounded = max(1 - floor(gap / unit + 1e-6) * unit, 0.0)
    return (rounded if rounded < sqrt(betas[1]) else betas[0]), betas[1]


def _betas_error(beta1: float, beta2: float) -> SettingError:
    return SettingError(
        f"RowAdamW got betas=({beta1:.6g}, {beta2:.6g}), but needs 0 <= beta1 < sqrt(beta2) < 1, and beta1 well below: "
        "else the motion of a skipped row dies away too slowly to be summed up in a few terms.\n"
        "Usual are (0.9, 0.999) and (0.9, 0.95). For these betas use torch.optim.AdamW."
    )
