"""PoPE: features are lengths, directions tell positions."""

from math import pi

import torch
from torch.nn import functional as F

import whatwhere as ww
from tests.samples import draw


def sampled(head_dim, num_heads, theta=10_000.0, dtype=None):
    """Return a PoPE whose phases are sampled from the whole circle."""
    pope = ww.PoPE(head_dim, num_heads, theta, dtype=dtype)
    with torch.no_grad():
        pope.delta.copy_(-2 * pi * torch.rand(pope.delta.shape, generator=torch.Generator().manual_seed(9)))
    return pope


def test_the_scale_is_that_of_the_original_head():
    where = ww.Where(query_key=ww.PoPE(16, 2))
    assert where.at(ww.positions(3)).scale == 16**-0.5
    q = k = v = draw(1, 2, 3, 16)
    here = where.at(ww.positions(3))
    mapped = here.query_key(q, k)
    assert mapped[0].shape == (1, 2, 3, 32)
    expected = F.scaled_dot_product_attention(*mapped, v, is_causal=True, scale=0.25)
    torch.testing.assert_close(here.attention(*mapped, v), expected)


def test_phases_are_periodic():
    pope, q = sampled(8, 1), draw(1, 1, 4, 8)
    before, phases = pope(q, q, ww.positions(4))[0].detach(), pope.phases
    pope.delta.data.add_(4 * pi)
    torch.testing.assert_close(pope(q, q, ww.positions(4))[0].detach(), before, rtol=0, atol=5e-6)
    torch.testing.assert_close(pope.phases, phases, rtol=0, atol=5e-6)
    assert ((phases >= -2 * pi) & (phases <= 0)).all()
    assert not ww.PoPE(8, 1).phases.any()


def test_bfloat16_in_and_out_with_float32_between():
    pope, p = sampled(16, 2), ww.positions(600)
    q = draw(1, 2, 600, 16)
    exact = pope(q.bfloat16().float(), q, p)[0]
    low = pope(q.bfloat16(), q.bfloat16(), p)[0]
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), exact.detach(), rtol=2**-8, atol=1e-6)
