"""Which tiles of queries and keys have visible pairs: from the least and the largest number of each tile's tokens.

A mask is causality, documents and a window, which compare numbers of a query and a key. Bounds of these numbers in a
tile decide about all of its pairs, so FlexAttention needs no table of all pairs to know which tiles to visit. This is
exact where the numbers grow from token to token.
"""

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from whatwhere.position.positions import Positions, common_batch
from whatwhere.where.window import Window

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


def _documents(queries: Positions, keys: Positions) -> tuple[Tensor, Tensor]:
    """Return the document of each token: 0 where these or those have none."""
    at_query, at_key = (torch.zeros_like(x.order) if x.segment is None else x.segment for x in (queries, keys))
    return at_query, at_key


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
