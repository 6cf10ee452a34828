"""Transformer-XL: queries meet the projected sinusoid of the distance."""

import math
from copy import deepcopy

import pytest
import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw
from tests.samples import table

ROUNDED = 2e-6
"""Sine and cosine are rounded to float32, by 3e-8 each, in sums of a few dozen products of size 1 to 3."""


def sampled(head_dim: int = 4, num_heads: int = 2, **settings) -> ww.TransformerXL:
    torch.manual_seed(0)
    return ww.TransformerXL(head_dim, num_heads, std=1.0, **settings).double()


@pytest.mark.parametrize("engine", ["dense", "sdpa"])
def test_attention_is_the_paper_s_four_terms(engine):
    scheme, p = sampled(), ww.positions(7)
    q, k, v = (draw(2, 2, 7, 4, seed=n) for n in range(3))
    distance = torch.arange(7)[:, None] - torch.arange(7)
    frequencies = ww.frequencies.inverse_frequencies(8)
    angles = distance[..., None] * frequencies
    r = torch.einsum("hdn,ijn->ijhd", scheme.weight, torch.cat([angles.sin(), angles.cos()], dim=-1))
    a = q @ k.mT
    b = torch.einsum("bhid,ijhd->bhij", q, r)
    c = torch.einsum("hd,bhjd->bhj", scheme.u, k)[:, :, None]
    d = torch.einsum("hd,ijhd->hij", scheme.v, r)
    logits = (a + b + c + d) / math.sqrt(4)
    for causal in (True, False):
        seen = logits.masked_fill(~p.mask(causal=causal), -torch.inf)
        y = ww.Where(score=scheme).at(p).attention(q, k, v, causal=causal, engine=engine)
        torch.testing.assert_close(y, seen.softmax(-1) @ v, rtol=0, atol=ROUNDED)


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
