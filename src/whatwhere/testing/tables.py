"""What a bias should be, and which known reading it is where it is another."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from whatwhere import reference
from whatwhere.errors import DoorError, SettingError
from whatwhere.ruler import as_positions
from whatwhere.testing.probe import UNIT, Measured
from whatwhere.where.catalogue import catalogue, scheme
from whatwhere.where.doors import ScoreBias, tabulate

Table = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(query positions, key positions) -> (heads, queries, keys), in float64."""

ROUNDING = 16 * UNIT
ROUNDING_WHY = (
    "float32 rounds slope, product and sum by 2**-24 of a head's largest number, and five times that is granted"
)
_REFERENCES: dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
    "alibi": reference.alibi_bias,
    "sandwich": reference.sandwich_bias,
}


@dataclass(frozen=True)
class Expected:
    """Hold what a bias should be, and what is promised of it."""

    table: Table
    name: str | None = None
    relative: bool = True
    near: int | None = None

    def at(
        self, queries: Int64[Tensor, " queries"], keys: Int64[Tensor, " keys"]
    ) -> Float64[Tensor, "heads queries keys"]:
        """Give the table of these positions."""
        return torch.as_tensor(np.asarray(self.table(queries.numpy(), keys.numpy()), dtype=np.float64))


def find_expected(expected: str | ScoreBias | Table, num_heads: int) -> Expected:
    """Find what is expected: a row of the catalogue by name, a scheme with its weights, or a function."""
    if isinstance(expected, str):
        where, row = scheme(expected, 64 * num_heads, num_heads, max_length=512), catalogue.get(expected)
        if row is None or where.score is None:
            raise DoorError(f"check_bias got expected={expected!r}, which is no bias: choose a row of door `score`.")
        if row.learned:
            raise SettingError(
                f"check_bias got expected={expected!r}, which has weights of its own, and those drawn here would not "
                "be yours.\nGive the scheme that holds them, or a function of positions: expected=lambda q, k: ..."
            )
        found = _REFERENCES.get(expected)
        table = _table_of(where.score) if found is None else lambda q, k: found(q, k, num_heads)
        return Expected(table, expected, row.relative, row.near)
    if isinstance(expected, ScoreBias):
        return Expected(_table_of(expected), type(expected).__name__)
    if not callable(expected):
        raise SettingError(
            f"check_bias got expected={expected!r}, but needs the name of a scheme, a scheme, or a function of query "
            "and key positions that gives (heads, queries, keys)."
        )
    return Expected(expected)


def _table_of(bias: ScoreBias) -> Table:
    """Give the formula by element of a scheme, without a mask and unrounded."""
    if bias.by_content:
        raise DoorError(f"{type(bias).__name__} depends on queries and keys, so positions alone give no table.")

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
    wanted: Float64[Tensor, "heads queries keys"],
    distances: Int64[Tensor, "queries keys"],
    allowed: Bool[Tensor, "queries keys"],
    size: Float64[Tensor, "heads queries keys"] | None = None,
    rounding: float = ROUNDING,
    note: Callable[[], str] = str,
) -> Measured:
    """Give how far two tables are apart, at the pairs that are allowed, worst head first.

    What they are apart at a query's nearest key is taken off from its other keys where that brings them together:
    softmax takes off what all keys share.

    Args:
        table, wanted: the two.
        distances: query minus key.
        allowed: which pairs count.
        size: whose largest number, in each head, the tolerance is a share of; None takes what is wanted.
        rounding: that share.
        note: says more where they differ.
    """
    largest = (wanted if size is None else size).abs().masked_fill(~allowed, 0).amax((1, 2))
    tolerance = rounding * largest.clamp(min=UNIT)[:, None].expand(-1, int(allowed.sum()))
    off = (table.double() - wanted).masked_fill(~allowed, 0)
    direct, centered = (part.abs()[:, allowed] for part in (off, _from_nearest(off, distances, allowed)))
    shifted = bool((direct / tolerance).amax() > (centered / tolerance).amax().clamp(min=1))
    errors = centered if shifted else direct
    head = (errors / tolerance).nan_to_num(nan=torch.inf).argmax(0, keepdim=True)
    return Measured(
        errors.gather(0, head)[0],
        distances[allowed],
        tolerance.gather(0, head)[0],
        note,
        "they differ by a number that all keys of a query share, which softmax takes off again" if shifted else "",
        "distance",
    )


def _from_nearest(table: Tensor, distances: Tensor, allowed: Tensor) -> Float64[Tensor, "heads queries keys"]:
    """Take off each query's number at its nearest key."""
    nearest = distances.abs().masked_fill(~allowed, int(distances.abs().amax()) + 1).argmin(-1)
    return table.double() - table.double().gather(-1, nearest[None, :, None].expand(len(table), -1, 1))


def told_bias(
    expected: Expected,
    table: Float[Tensor, "heads queries keys"],
    queries: Int64[Tensor, " queries"],
    keys: Int64[Tensor, " keys"],
    allowed: Bool[Tensor, "queries keys"],
) -> str:
    """Name the reading that a wrong bias is right by, or the first number that is off."""
    distances, wanted = queries[:, None] - keys, expected.at(queries, keys)
    past = allowed & (distances >= 0)
    if not past.equal(allowed) and not compare(table, wanted, distances, past).wrong.any():
        return "it is right up to the query's own place, and wrong for later keys: it is made for causal attention"
    for words, reading in _readings(expected, table, queries, keys, allowed):
        if not compare(table, reading, distances, allowed).wrong.any():
            return words
    if not compare(table, wanted, distances, allowed, table.double(), rounding=2.0**-7).wrong.any():
        return "it is as far off as bfloat16 rounds its numbers"
    made, needed = (_from_nearest(part, distances, allowed) for part in (table, wanted))
    wrong = ((made - needed).abs() > ROUNDING * needed.abs().amax((1, 2), keepdim=True)) & allowed
    order = torch.where(wrong, distances.abs(), int(distances.abs().amax()) + 1)
    head, i, j = (int(n) for n in np.unravel_index(int(order.argmin()), order.shape))
    return (
        f"against the nearest key, head {head} gives {made[head, i, j]:.4g} at distance {distances[i, j]:,}; "
        f"{needed[head, i, j]:.4g} is needed"
    )


def _readings(
    expected: Expected, table: Tensor, queries: Tensor, keys: Tensor, allowed: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Give the readings that circulate, each with its table."""
    wanted = expected.at(queries, keys)
    if expected.name == "alibi":
        heads = len(wanted)
        plain = torch.tensor([2.0 ** (-8 * h / heads) for h in range(1, heads + 1)], dtype=torch.float64)
        authors = torch.tensor(reference.alibi_slopes(heads), dtype=torch.float64)
        yield (
            f"its slopes are the plain power 2 ** (-8 h / {heads}); the authors' rule for a number of heads that is no "
            "power of two is another",
            wanted * (plain / authors)[:, None, None],
        )
    yield "it takes key minus query for the distance", expected.at(keys, queries).mT
    yield "its distances are one too large", expected.at(queries + 1, keys)
    yield "its distances are one too small", expected.at(queries, keys + 1)
    known = torch.where(allowed, wanted, 0.0)
    factor = ((torch.where(allowed, table.double(), 0.0) * known).sum() / known.square().sum().clamp(min=UNIT)).item()
    if factor < 0:
        yield f"every number is {factor:.4g} times what is needed: the sign is the other", factor * wanted
    else:
        yield f"every number is {factor:.4g} times what is needed", factor * wanted
    apart = (table.double()[:, None] - wanted).masked_fill(~allowed, 0).abs().amax((2, 3))
    order = apart.argmin(1)
    yield f"the heads come in another order: its head 0 is head {int(order[0])}", wanted[order]
