"""Which tiles of queries and keys have visible pairs: from the least and the largest number of each tile's tokens.

A mask is causality, documents and a window, which compare numbers of a query and a key. Bounds of these numbers in a
tile decide about all of its pairs, so neither FlexAttention nor the kernel `flash` needs a table of all pairs to know
which tiles to visit. This is exact where the numbers grow from token to token.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from whatwhere.errors import PositionError
from whatwhere.kernels.flash_attention import FlashMask, TileLists
from whatwhere.position.positions import Positions, common_batch
from whatwhere.tensor_checks import require_range
from whatwhere.where.window import Window

_HALF = 1 << 30
"""Half of the range in which numbers of tokens may lie in 32 bits, so that their differences fit too."""
_Bounds = tuple[Tensor, Tensor, Tensor, Tensor]
"""The least and the largest number of each tile of queries, (batch, tiles, 1), and of keys, (batch, 1, tiles)."""


def visible_tiles(
    queries: Positions, keys: Positions, causal: bool, window: Window | None, rows: int, columns: int
) -> tuple[Bool[Tensor, "batch row_tiles column_tiles"], Bool[Tensor, "batch row_tiles column_tiles"]]:
    """Return in which tiles of so many rows and columns some pair may be visible, and in which all pairs certainly are.

    Tiles with fewer rows or columns, at the end, are never certain.
    """

    def bounds(at_query: Tensor, at_key: Tensor) -> _Bounds:
        (q_least, q_most), (k_least, k_most) = _bounds(at_query, rows), _bounds(at_key, columns)
        return q_least[:, :, None], q_most[:, :, None], k_least[:, None], k_most[:, None]

    whole = _filled(queries, rows)[:, None] & _filled(keys, columns)
    whole = whole.expand(common_batch(queries, keys), -1, -1)
    some = torch.ones_like(whole)
    if causal:
        q_least, q_most, k_least, k_most = bounds(queries.order, keys.order)
        some, whole = some & (k_least <= q_most), whole & (k_most <= q_least)
    if queries.segment is not None or keys.segment is not None:
        of_tiles = bounds(*_documents(queries, keys))
        meet, same = _equal(of_tiles)
        some, whole = some & meet & (of_tiles[1] >= 0) & (of_tiles[3] >= 0), whole & same & (of_tiles[0] >= 0)
    if window is not None:
        near, within = _in_window(bounds(window.counted(queries, keys), window.counted(keys, queries)), window)
        some, whole = some & near, whole & within
    return some, whole


def flash_mask(
    queries: Positions,
    keys: Positions,
    causal: bool,
    window: Window | None,
    biased: bool,
    lists: Callable[[int, int], TileLists],
) -> FlashMask:
    """Return the mask as the kernel `flash` takes it, with numbers of 32 bits; coordinates where there is a bias."""
    rows, none = common_batch(queries, keys), (torch.zeros_like(queries.order), torch.zeros_like(keys.order))
    has_documents = queries.segment is not None or keys.segment is not None
    counts = none if window is None else (window.counted(queries, keys), window.counted(keys, queries))
    first = torch.zeros_like(counts[1]) if window is None else (counts[1] < window.first).long()
    if window is not None and window.chunked:
        counts = counts[0] // window.size, counts[1] // window.size
    pairs = [
        _counted(keys.index[0].amin(-1, keepdim=True), queries.index[0], keys.index[0]) if biased else none,
        _counted(keys.order.amin(-1, keepdim=True), queries.order, keys.order),
        _counted(0, *_documents(queries, keys)) if has_documents else none,
        _counted(counts[1].amin(-1, keepdim=True), *counts),
    ]
    of_queries, of_keys = ([pair[side].expand(rows, -1) for pair in pairs] for side in (0, 1))
    return FlashMask(
        torch.stack(of_queries, 1).to(torch.int32),
        torch.stack([*of_keys, first.expand(rows, -1)], 1).to(torch.int32),
        causal=causal,
        documents=has_documents,
        window="none" if window is None else "chunked" if window.chunked else "sliding",
        size=0 if window is None else window.size,
        first=window is not None and window.first > 0,
        lists=lists,
    )


def _documents(queries: Positions, keys: Positions) -> tuple[Tensor, Tensor]:
    """Return the document of each token: 0 where these or those have none."""
    at_query, at_key = (torch.zeros_like(x.order) if x.segment is None else x.segment for x in (queries, keys))
    return at_query, at_key


def _counted(least: Tensor | int, at_query: Tensor, at_key: Tensor) -> tuple[Tensor, Tensor]:
    """Return numbers counted from the least one, which must fit into 32 bits."""
    for x in (at_query, at_key):
        require_range(x - least + _HALF, 2 * _HALF, _too_far)
    return at_query - least, at_key - least


def _too_far(value: int, slot: tuple[int, ...]) -> PositionError:
    return PositionError(
        f"engine='flash' counts positions in 32 bits, but two are {abs(value - _HALF)} apart, at {slot}.\n"
        "Pass engine='flex'."
    )


def _equal(bounds: _Bounds) -> tuple[Tensor, Tensor]:
    """Return where a query and a key may have one number, and where all have."""
    q_least, q_most, k_least, k_most = bounds
    meet = (k_least <= q_most) & (k_most >= q_least)
    return meet, (q_least == q_most) & (k_least == k_most) & (q_least == k_least)


def _in_window(bounds: _Bounds, window: Window) -> tuple[Tensor, Tensor]:
    """Return where some pair may be within the window, and where all are."""
    q_least, q_most, k_least, k_most = bounds
    if window.chunked:
        size = window.size
        near, within = _equal((q_least // size, q_most // size, k_least // size, k_most // size))
    else:
        near = (k_least < q_most + window.size) & (k_most > q_least - window.size)
        within = (q_most - k_least < window.size) & (k_most - q_least < window.size)
    return (near | (k_least < window.first), within | (k_most < window.first)) if window.first else (near, within)


def _bounds(numbers: Int64[Tensor, "batch tokens"], size: int) -> tuple[Tensor, Tensor]:
    """Return the least and the largest number of each tile."""
    slots = torch.arange(-(-numbers.shape[1] // size) * size, device=numbers.device).clamp(max=numbers.shape[1] - 1)
    tiles = numbers[:, slots].unflatten(1, (-1, size))
    return tiles.amin(-1), tiles.amax(-1)


def _filled(tokens: Positions, size: int) -> Bool[Tensor, " tiles"]:
    """Return which tiles have all of their tokens."""
    return torch.arange(1, -(-tokens.tokens // size) + 1, device=tokens.device) * size <= tokens.tokens
