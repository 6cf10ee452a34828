"""The expected bias, and the explanation of a wrong one by the mistakes that are known."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from whatwhere import reference
from whatwhere.errors import DoorError, SettingError
from whatwhere.position.positions import as_positions
from whatwhere.testing.harness import UNIT, Measurement
from whatwhere.where.catalogue import catalogue, scheme
from whatwhere.where.score_bias import ScoreBias, tabulate

Table = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(query positions, key positions) -> (heads, queries, keys), in float64."""

ROUNDING = 16 * UNIT
ROUNDING_WHY = (
    "float32 rounds slope, product and sum by 2**-24 of a head's largest number, and five times that is allowed"
)
_REFERENCES: dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
    "alibi": reference.alibi_bias,
    "sandwich": reference.sandwich_bias,
}


@dataclass(frozen=True)
class Expected:
    """The expected bias, and the properties that are checked."""

    table: Table  # its formula
    name: str | None = None  # of the scheme; None for a function
    relative: bool = True  # whether it depends on the distance only
    near: int | None = None  # distances up to here differ in float16 and bfloat16; None where that is not promised

    def at(
        self, queries: Int64[Tensor, " queries"], keys: Int64[Tensor, " keys"]
    ) -> Float64[Tensor, "heads queries keys"]:
        """Return the bias of these positions, in float64."""
        return torch.as_tensor(np.array(self.table(queries.numpy(), keys.numpy()), dtype=np.float64))


def find_expected(expected: str | ScoreBias | Table, num_heads: int) -> Expected:
    """Return the expected bias from the name of a scheme, a scheme with its weights, or a function."""
    if isinstance(expected, str):
        where, row = scheme(expected, 64 * num_heads, num_heads, max_length=512), catalogue.get(expected)
        if row is None or where.score is None:
            raise DoorError(
                f"check_bias got expected={expected!r}, which is not a score bias: choose a scheme of the door `score`."
            )
        if row.learned:
            raise SettingError(
                f"check_bias got expected={expected!r}, which has weights, and those initialized here would not be "
                "yours.\nPass the scheme with your weights, or a function of positions: expected=lambda q, k: ..."
            )
        bias = _REFERENCES.get(expected)
        table = _table_of(where.score) if bias is None else lambda q, k: bias(q, k, num_heads)
        return Expected(table, expected, row.relative, row.distinct_up_to)
    if isinstance(expected, ScoreBias):
        return Expected(_table_of(expected), type(expected).__name__)
    if not callable(expected):
        raise SettingError(
            f"check_bias got expected={expected!r}, but needs the name of a scheme, a scheme, or a function of query "
            "and key positions that returns (heads, queries, keys)."
        )
    return Expected(expected)


def _table_of(bias: ScoreBias) -> Table:
    """Return the formula of a scheme for each pair of positions, unrounded and without a mask."""
    if bias.by_content:
        raise DoorError(f"{type(bias).__name__} depends on queries and keys, so positions alone do not determine it.")

    def table(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        at_queries, at_keys = (as_positions(torch.from_numpy(index)) for index in (queries, keys))
        with torch.no_grad():
            element = bias.bind(at_queries, at_keys)
            cpu = torch.device("cpu")
            return np.asarray(
                tabulate(element, 1, bias.num_heads, len(queries), len(keys), cpu)[0].double().numpy(), dtype=np.float64
            )

    return table


def compare(
    table: Float[Tensor, "heads queries keys"],
    expected: Float64[Tensor, "heads queries keys"],
    distances: Int64[Tensor, "queries keys"],
    allowed: Bool[Tensor, "queries keys"],
    scale: Float64[Tensor, "heads queries keys"] | None = None,
    rounding: float = ROUNDING,
    note: Callable[[], str] = str,
) -> Measurement:
    """Return the error of each allowed pair, of the head with the largest one relative to its tolerance.

    A constant for each query has no effect on softmax: where the tables agree up to the difference at the nearest key
    of each query, that difference is subtracted.
    The tolerance is relative to the largest number of each head of `scale`; None takes `expected`.
    """
    largest = (expected if scale is None else scale).abs().masked_fill(~allowed, 0).amax((1, 2))
    tolerance = rounding * largest.clamp(min=UNIT)[:, None].expand(-1, int(allowed.sum()))
    difference = (table.double() - expected).masked_fill(~allowed, 0)
    from_nearest = _from_nearest(difference, distances, allowed)
    direct, centered = (part.abs()[:, allowed] for part in (difference, from_nearest))
    shifted = bool((direct / tolerance).amax() > (centered / tolerance).amax().clamp(min=1))
    errors = centered if shifted else direct
    head = (errors / tolerance).nan_to_num(nan=torch.inf).argmax(0, keepdim=True)
    return Measurement(
        errors.gather(0, head)[0],
        distances[allowed],
        tolerance.gather(0, head)[0],
        note,
        "they differ by a constant for each query, which softmax cancels" if shifted else "",
        "distance",
    )


def _from_nearest(table: Tensor, distances: Tensor, allowed: Tensor) -> Float64[Tensor, "heads queries keys"]:
    """Return the table minus each query's number at its nearest key."""
    nearest = distances.abs().masked_fill(~allowed, int(distances.abs().amax()) + 1).argmin(-1)
    return table.double() - table.double().gather(-1, nearest[None, :, None].expand(len(table), -1, 1))


def explain_bias(
    expected: Expected,
    table: Float[Tensor, "heads queries keys"],
    queries: Int64[Tensor, " queries"],
    keys: Int64[Tensor, " keys"],
    allowed: Bool[Tensor, "queries keys"],
) -> str:
    """Return the known mistake that explains a wrong bias, or the wrong number at the least distance."""
    distances, needed = queries[:, None] - keys, expected.at(queries, keys)
    past = allowed & (distances >= 0)
    if not past.equal(allowed) and not compare(table, needed, distances, past).exceeded.any():
        return "it is correct up to the query's own position, and wrong for later keys: it is made for causal attention"
    for explanation, mistake in _mistakes(expected, table, queries, keys, allowed):
        if not compare(table, mistake, distances, allowed).exceeded.any():
            return explanation
    if not compare(table, needed, distances, allowed, table.double(), rounding=2.0**-7).exceeded.any():
        return "its errors are those of numbers rounded to bfloat16"
    got, needed = (_from_nearest(part, distances, allowed) for part in (table, needed))
    wrong = ((got - needed).abs() > ROUNDING * needed.abs().amax((1, 2), keepdim=True)) & allowed
    order = torch.where(wrong, distances.abs(), int(distances.abs().amax()) + 1)
    head, i, j = (int(n) for n in np.unravel_index(int(order.argmin()), order.shape))
    return (
        f"relative to the nearest key, head {head} returns {got[head, i, j]:.4g} at distance {distances[i, j]:,}; "
        f"{needed[head, i, j]:.4g} is needed"
    )


def _mistakes(
    expected: Expected, table: Tensor, queries: Tensor, keys: Tensor, allowed: Tensor
) -> Iterator[tuple[str, Tensor]]:
    needed = expected.at(queries, keys)
    if expected.name == "alibi":
        heads = len(needed)
        plain = torch.tensor([2.0 ** (-8 * h / heads) for h in range(1, heads + 1)], dtype=torch.float64)
        authors = torch.tensor(reference.alibi_slopes(heads), dtype=torch.float64)
        yield (
            f"its slopes are 2 ** (-8 h / {heads}); the authors' rule differs where the number of heads is not a "
            "power of two",
            needed * (plain / authors)[:, None, None],
        )
    yield "its distance is key minus query, with the opposite sign", expected.at(keys, queries).mT
    yield "its distances are one too large", expected.at(queries + 1, keys)
    yield "its distances are one too small", expected.at(queries, keys + 1)
    masked = torch.where(allowed, needed, 0.0)
    factor = ((torch.where(allowed, table.double(), 0.0) * masked).sum() / masked.square().sum().clamp(min=UNIT)).item()
    if factor < 0:
        yield f"every number is {factor:.4g} times the expected one: its sign is the opposite", factor * needed
    else:
        yield f"every number is {factor:.4g} times the expected one", factor * needed
    difference = (table.double()[:, None] - needed).masked_fill(~allowed, 0).abs().amax((2, 3))
    order = difference.argmin(1)
    yield f"its heads are in another order: its head 0 is head {int(order[0])}", needed[order]
