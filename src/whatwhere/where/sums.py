"""Sums over the keys up to a query, or between it and a key: FoX, CoPE, CARoPE and Selective RoPE depend on them.

Keys may be in any order, packed, or some of a longer sequence: a sum is by document and order, and complete or refused.
"""

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere.errors import PositionError
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import readable, require_range
from whatwhere.where.score_bias import Element


def query_slots(queries: Positions, keys: Positions) -> Int64[Tensor, "batch queries"]:
    """Return for each query the slot of the last visible key: the key of the same token, where it is among the keys.

    Where it is not, a sum of gates lacks the query's own for all keys alike, which softmax ignores.
    """
    if queries is keys:
        return torch.arange(keys.tokens, device=keys.device)[None]
    visible = queries.mask(keys)[:, 0]  # (batch, queries, keys)
    return keys.tokens - 1 - torch.where(visible, keys.order[:, None], -1).flip(-1).argmax(-1)


def at_slots(
    total: Float64[Tensor, "batch heads keys"], slots: Int64[Tensor, "rows queries"]
) -> Float64[Tensor, "batch heads queries"]:
    """Return the numbers of keys for each query, whose own key is at a slot."""
    return total.gather(-1, slots[:, None].expand(*total.shape[:2], -1))


def differences(
    of_queries: Float64[Tensor, "batch heads queries"], of_keys: Float64[Tensor, "batch heads keys"], dtype: torch.dtype
) -> Element:
    """Return the bias that is the number of a query minus that of a key."""
    dtype = torch.promote_types(dtype, torch.float32)

    def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (of_queries[b, h, i] - of_keys[b, h, j]).to(dtype)

    return element


def slots_in_order(keys: Positions) -> Int64[Tensor, "batch keys"] | None:
    """Return the slots of the keys by document and order; None where sums over slots are sums in order already."""
    ordered = in_order(keys)
    if ordered is None:
        return None
    document, slots = ordered
    if readable(slots):
        real = document.gather(-1, slots) >= 0  # padding comes first, and adds nothing wherever it is
        if bool(((slots.diff(dim=-1) > 0) | ~real[:, :-1]).all()):
            return None
    return slots


def in_order(keys: Positions) -> tuple[Int64[Tensor, "batch keys"], Int64[Tensor, "batch keys"]] | None:
    """Return the document of each key and the slots by document and order; None where keys count up by 1."""
    if keys.run or keys.tokens == 0:
        return None
    document = torch.zeros_like(keys.order) if keys.segment is None else keys.segment
    slots = keys.order.argsort(dim=-1, stable=True)
    return document, slots.gather(-1, document.gather(-1, slots).argsort(dim=-1, stable=True))


def require_no_holes(keys: Positions) -> None:
    """Raise PositionError where keys were taken from a sequence, and those between some of them were not."""
    ordered = in_order(keys)
    if ordered is None or not keys.is_part:
        return
    document, slots = ordered
    steps, same = keys.order.gather(-1, slots).diff(dim=-1), document.gather(-1, slots)
    holes = (steps > 1) & (same.diff(dim=-1) == 0) & (same[:, 1:] >= 0)
    require_range(holes.long(), 1, lambda _, at: missing_between(int(keys.order[at[0], slots[at]])))


def sums_in_order(
    x: Float[Tensor, "batch heads *queries keys"], slots: Int64[Tensor, "rows keys"] | None, backward: bool = False
) -> Float[Tensor, "batch heads *queries keys"]:
    """Return the cumulative sums over keys, from the first in order, or backward from the last."""
    if slots is not None:
        index = slots[(slice(None), *(None,) * (x.dim() - 2))]
        x = x.gather(-1, index.expand_as(x))
    sums = x.flip(-1).cumsum(-1).flip(-1) if backward else x.cumsum(-1)
    return sums if slots is None else sums.gather(-1, index.argsort(-1).expand_as(x))


def require_own_keys(queries: Positions, keys: Positions) -> None:
    """Raise PositionError where the key of a query's own token is missing, so that sums up to it are incomplete."""
    if queries is keys or queries.tokens == 0 or keys.tokens == 0:
        return
    visible = queries.mask(keys)[:, 0]
    last = torch.where(visible, keys.order[:, None], -1).amax(-1)
    missing = (last >= 0) & (last < queries.order)
    require_range(missing.long(), 1, lambda _, at: missing_between(int(last[at])))


def require_beginnings(keys: Positions) -> None:
    """Raise PositionError where keys were taken from a sequence without the first tokens of their documents."""
    if not keys.is_part or keys.tokens == 0:
        return
    starts = keys.known_starts()
    document = torch.zeros_like(keys.order) if keys.segment is None else keys.segment
    first = keys.order - Positions(keys.index, keys.order, document).order_in_document()
    missing = (first > starts) & (document >= 0)
    require_range(missing.long(), 1, lambda _, at: missing_between(int(starts[at])))


def missing_between(order: int) -> PositionError:
    """Return the error of a scheme that sums over keys which are not among those that were bound."""
    return PositionError(
        f"the scheme sums over all tokens between a query and a key, but after the one of order {order} some are not "
        "among the keys.\nGather keys, values, gates and increments of the whole sequence, in any order, and bind "
        "their positions: where.at(own, p.take(slots))."
    )
