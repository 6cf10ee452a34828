"""Transformer-XL: queries meet the projected sinusoid of the distance."""

from copy import deepcopy

import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw
from tests.samples import table

ROUNDED = 2e-6
"""Sine and cosine are rounded to float32, by 3e-8 each, in sums of a few dozen products of size 1 to 3."""


def sampled(head_dim: int = 4, num_heads: int = 2, **settings) -> ww.TransformerXL:
    torch.manual_seed(0)
    return ww.TransformerXL(head_dim, num_heads, std=1.0, **settings).double()


def test_past_and_future_differ():
    scheme, p = sampled(), ww.positions(3)
    same = draw(1, 2, 1, 4).expand(1, 2, 3, 4)
    made = table(scheme, p, p, same, same)
    assert (made[..., 0, 1] - made[..., 1, 0]).abs().min() > 1e-2
    torch.testing.assert_close(made[..., 0, 1], made[..., 1, 2], rtol=0, atol=ROUNDED)


def test_a_bfloat16_model_loses_no_more_than_its_numbers():
    """Queries and parameters are bfloat16, sums of them are not."""
    narrow, p = sampled(head_dim=16).bfloat16(), ww.positions(5)
    q, k = (draw(1, 2, 5, 16, seed=n).bfloat16() for n in range(2))
    made = table(narrow, p, p, q, k).double()
    wide = deepcopy(narrow).double()
    torch.testing.assert_close(made, table(wide, p, p, q.double(), k.double()), rtol=0, atol=2e-5)
