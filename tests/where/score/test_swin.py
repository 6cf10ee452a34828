"""Swin and Swin v2: one bias for each distance within a window of a grid."""

import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw


def test_query_minus_key_rows_first():
    scheme = ww.Swin(1, (2, 3))
    with torch.no_grad():
        scheme.weight.copy_(torch.arange(15.0)[:, None])
    bias = scheme(ww.Positions.grid(2, 3))[0, 0]
    assert bias[0, 0] == 7  # no distance: the middle of the table
    assert bias[1, 0] == 8  # a query one column on
    assert bias[3, 0] == 12  # a query one row on
    assert bias[0, 5] == 0  # a key one row and two columns on
    assert not torch.equal(bias, bias.T)


def test_distances_beyond_the_window_are_its_largest():
    scheme = ww.Swin(2, 4, std=1.0)
    bias = scheme(ww.Positions.grid(9, 9))[0].unflatten(-1, (9, 9))[:, 40]  # of the query in the middle
    near = scheme(ww.Positions.grid(7, 7))[0].unflatten(-1, (7, 7))[:, 24]
    assert torch.equal(bias[:, 1:-1, 1:-1], near)
    assert torch.equal(bias[:, 0], bias[:, 1])
    assert torch.equal(bias[:, :, -1], bias[:, :, -2])


def test_the_trained_size_keeps_the_bias_of_a_distance():
    small, grown, moved = ww.SwinV2(2, 4), ww.SwinV2(2, 8, 4), ww.SwinV2(2, 8)
    for scheme in (grown, moved):
        scheme.load_state_dict(small.state_dict())
    p = ww.Positions.grid(4, 4)
    torch.testing.assert_close(grown(p), small(p), rtol=0, atol=1e-5)
    assert (moved(p) - small(p)).abs().max() > 1e-2


def test_windows_of_an_image_are_a_batch_or_documents():
    """Four windows as sequences of a batch, or packed as documents of one: the same attention."""
    where, window = ww.Where(ww.Swin(2, 2, std=1.0)), ww.Positions.grid(2, 2)
    q, k, v = (draw(4, 2, 4, 8, seed=n).float() for n in range(3))
    apart = where.at(window).attention(q, k, v, causal=False)
    packed = ww.Positions.from_coordinates(window.index.repeat(1, 1, 4), segment=torch.arange(4).repeat_interleave(4))
    joined = [x.transpose(0, 1).flatten(1, 2)[None] for x in (q, k, v)]  # (1, heads, windows * tokens, features)
    together = where.at(packed).attention(*joined, causal=False)
    torch.testing.assert_close(together[0].unflatten(1, (4, 4)).transpose(0, 1), apart, rtol=0, atol=1e-6)
