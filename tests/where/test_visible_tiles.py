"""Tiles against the mask of all pairs: no visible pair is missed, and no masked pair counts as visible."""

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import whatwhere as ww
from whatwhere.where.gpu_attention import TILE, block_mask, tiled_mask, visible_tiles

P = ww.positions(23)
PACKED = ww.Positions.packed([9, 1, 13])
LEFT = ww.Positions.from_mask(torch.arange(23) >= torch.tensor([[0], [6], [23]]))
SHUFFLED = torch.randperm(23, generator=torch.Generator().manual_seed(0))
GROWING = {
    "run": (P, P),
    "packed": (PACKED, PACKED),
    "left padding": (LEFT, LEFT),
    "cache": (P[17:], P),
    "of packed documents": (PACKED[11:20], PACKED),
    "one query": (P[22:], P),
    "more queries": (P, P[:5]),
    "jumps": (ww.Positions.from_position_ids(torch.arange(23) * 3),) * 2,
}
ANY_ORDER = {
    "shuffled": (P.take(SHUFFLED), P),
    "striped": (P, P[1::2]),
    "any order": (ww.Positions.from_coordinates(torch.arange(23), order=SHUFFLED),) * 2,
    "documents in any order": (ww.Positions.from_coordinates(torch.arange(23), segment=SHUFFLED % 3 - 1),) * 2,
}
WINDOWS = {
    "none": None,
    "sliding": ww.Window(5),
    "first": ww.Window(4, first=2),
    "chunks": ww.Window(6, chunked=True),
    "chunks and first": ww.Window(6, chunked=True, first=1),
}


def exact(p: ww.Positions, keys: ww.Positions, causal: bool, window: ww.Window | None, rows: int, columns: int):
    """Return in which tiles some pair and all pairs are visible, from the mask."""
    mask = p.mask(keys, causal) if window is None else p.mask(keys, causal) & window.mask(p, keys)
    missing = (0, -mask.shape[3] % columns, 0, -mask.shape[2] % rows)
    tiles = F.pad(mask[:, 0], missing).unflatten(2, (-1, columns)).unflatten(1, (-1, rows))
    return tiles.any(4).any(2), tiles.all(4).all(2)


def bounded(p: ww.Positions, keys: ww.Positions, *how) -> tuple[Tensor, Tensor]:
    """Return what the bounds say, after checking that no visible tile is missed and none is called whole wrongly."""
    some, whole = visible_tiles(p, keys, *how)
    wanted_some, wanted_whole = exact(p, keys, *how)
    assert not (wanted_some & ~some).any()
    assert not (whole & ~wanted_whole).any()
    return some, whole


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", [*GROWING, *ANY_ORDER])
def test_no_visible_tile_is_missed(name, window):
    for causal, (rows, columns) in product([True, False], [(4, 3), (8, 8), (1, 1), (32, 2)]):
        bounded(*(GROWING | ANY_ORDER)[name], causal, WINDOWS[window], rows, columns)


@pytest.mark.parametrize("window", [None, ww.Window(100), ww.Window(90, chunked=True)], ids=repr)
@pytest.mark.parametrize(
    "p", [ww.positions(300), ww.Positions.packed([130, 70, 100]), ww.Positions.from_mask(torch.arange(300) > 140)]
)
def test_the_mask_of_flex_attention_is_that_made_of_all_pairs(p, window):
    """The same tiles, or some more of which it masks every pair; tiles without masked pairs are the same."""
    cache = ww.Where(window=window).at(p)._cache
    allowed = cache.allowed(True, window)
    wanted = block_mask(allowed, 1, 1, 300, 300, torch.device("cpu"))
    mask = tiled_mask(allowed, *visible_tiles(p, p, True, window, TILE, TILE), 300, 300)
    assert mask.shape == wanted.shape
    assert torch.equal(mask.full_kv_num_blocks, wanted.full_kv_num_blocks)
    assert not (wanted.to_dense().bool() & ~mask.to_dense().bool()).any()
    for part in (mask, wanted):  # both list the tiles that are visited first, in order
        assert part.kv_indices.dtype == torch.int32
    assert mask.q_indices.shape == wanted.q_indices.shape
