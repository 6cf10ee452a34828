"""Shaw: queries meet a learned vector of the clipped distance."""

import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw
from tests.samples import table


def sampled(head_dim: int = 4, num_heads: int = 2, past: int = 3, future: int = 2, **settings) -> ww.Shaw:
    torch.manual_seed(0)
    return ww.Shaw(head_dim, num_heads, past, future, std=1.0, **settings).double()


def test_distances_beyond_the_clip_are_one():
    scheme, q = sampled(), draw(1, 2, 1, 4)
    made = table(scheme, ww.positions(1, start=50), ww.positions(101), q)[0, 0, 0]
    assert made[:48].unique().numel() == 1
    assert made[52:].unique().numel() == 1
    assert made[47:53].unique().numel() == 6
