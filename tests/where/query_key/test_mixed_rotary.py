"""MixedRotary: pairs rotated by both coordinates, at learned rates."""

import numpy as np
import torch

import whatwhere as ww
from tests.samples import draw, draw_float64

AT = np.array([[0, 1, 3, 40], [2, 0, 3, 7]])
P = ww.Positions.from_coordinates(torch.tensor(AT)[:, None])


def test_axial_frequencies_are_a_special_case():
    axial, mixed = ww.AxialRotary(8, theta=100.0), ww.MixedRotary(8, dtype=torch.float64)
    with torch.no_grad():
        rows, columns = axial.inverse_frequencies.unflatten(0, (2, 2))
        mixed.weight.copy_(torch.stack([torch.cat([rows, 0 * rows]), torch.cat([0 * rows, columns])])[:, None])
    q = draw_float64(1, 2, 4, 8)
    torch.testing.assert_close(mixed(q, q, P)[0].detach(), axial(q, q, P)[0], rtol=0, atol=1e-6)


def test_it_starts_in_two_directions_at_a_right_angle():
    scheme = ww.MixedRotary(16, 5, theta=10.0, dtype=torch.float64)
    first, second = scheme.weight.detach().unflatten(-1, (2, 4)).unbind(-2)
    assert (first * second).sum(0).abs().max() < 1e-12
    rates = torch.tensor([10.0 ** (-i / 4) for i in range(4)]).double().expand(5, 4)
    torch.testing.assert_close(first.norm(dim=0), rates, rtol=1e-6, atol=0)
    angles = torch.atan2(first[0, :, 0], first[1, :, 0])
    assert len(set(angles.tolist())) == 5


def test_query_heads_have_the_frequencies_of_their_key_head():
    scheme, moved = ww.MixedRotary(8, sets=2), ww.Positions.from_coordinates(torch.tensor(AT)[:, None] + 9)
    q, k = draw(1, 4, 4, 8), draw(1, 2, 4, 8, seed=1)
    with torch.no_grad():
        scores = [a @ b.repeat_interleave(2, 1).mT for a, b in (scheme(q, k, P), scheme(q, k, moved))]
        torch.testing.assert_close(*scores, rtol=0, atol=1e-4)
