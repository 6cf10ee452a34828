"""Swin and Swin v2: one bias for each distance within a window of a grid."""

import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw


def test_windows_of_an_image_are_a_batch_or_documents():
    """Four windows as sequences of a batch, or packed as documents of one: the same attention."""
    where, window = ww.Where(ww.Swin(2, 2, std=1.0)), ww.Positions.grid(2, 2)
    q, k, v = (draw(4, 2, 4, 8, seed=n).float() for n in range(3))
    apart = where.at(window).attention(q, k, v, causal=False)
    packed = ww.Positions.from_coordinates(window.index.repeat(1, 1, 4), segment=torch.arange(4).repeat_interleave(4))
    joined = [x.transpose(0, 1).flatten(1, 2)[None] for x in (q, k, v)]  # (1, heads, windows * tokens, features)
    together = where.at(packed).attention(*joined, causal=False)
    torch.testing.assert_close(together[0].unflatten(1, (4, 4)).transpose(0, 1), apart, rtol=0, atol=1e-6)
