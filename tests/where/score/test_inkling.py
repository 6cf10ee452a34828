"""Inkling: queries mix learned profiles of the distance."""

import pytest
import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw


def sampled(extent: int = 5, **settings) -> ww.Inkling:
    torch.manual_seed(0)
    scheme = ww.Inkling(8, 2, 4, extent, std=1.0, **settings).double()
    if scheme.gain is not None:
        torch.nn.init.uniform_(scheme.gain, 0.5, 2.0)
    return scheme


def test_one_query_needs_its_own_gates_only():
    """In decoding the gates of the new token are as good as those of all keys."""
    scheme, p = sampled(), ww.Positions.packed([3, 4])
    x, q, k, v = draw(1, 7, 8), draw(1, 2, 7, 4, seed=1), draw(1, 2, 7, 4, seed=2), draw(1, 2, 7, 4, seed=3)
    here = ww.Where(scheme).at(p)
    wanted = here.attention(q, k, v, gates=here.gates(x))
    for t in range(7):
        step = ww.Where(scheme).at(p[t : t + 1], p)
        for gates in (step.gates(x[:, t : t + 1]), here.gates(x)):
            y = step.attention(q[:, :, t : t + 1], k, v, gates=gates)
            torch.testing.assert_close(y, wanted[:, :, t : t + 1], rtol=0, atol=1e-13)


@pytest.mark.usefixtures("our_own_checks")
def test_queries_that_are_not_among_the_keys_need_their_own_gates():
    scheme, p = sampled(), ww.positions(4)
    q = torch.ones(1, 2, 4, 4)
    late = ww.Where(scheme).at(ww.positions(2, start=9), p)
    with pytest.raises(ww.errors.ShapeError, match="a query is not among the keys"):
        late.attention(q[:, :, :2], q, q, gates=draw(1, 2, 4, 4))
    assert late.attention(q[:, :, :2].double(), q.double(), q.double(), gates=draw(1, 2, 2, 4)).shape == (1, 2, 2, 4)
