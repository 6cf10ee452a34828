"""SAM: queries read vectors of the distances along rows and along columns."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from tests.gradients import require_gradients
from tests.samples import draw_float64 as draw
from tests.samples import table
from whatwhere import reference

QUERIES, KEYS = np.array([[0, 3, 2, 40], [1, 0, 4, 2]]), np.array([[0, 1, 2, 7, 3], [2, 2, 0, 1, 4]])
AT_QUERIES, AT_KEYS = (ww.Positions.from_coordinates(torch.tensor(index)[:, None]) for index in (QUERIES, KEYS))


@pytest.mark.parametrize("window", [3, (4, 2), (1, 5), 50])
def test_it_is_the_reference_forward_and_backward(window):
    scheme, g = ww.SAM(6, 2, window, std=1.0, dtype=torch.float64), draw(1, 2, 4, 5)
    q = draw(1, 2, 4, 6, seed=1).requires_grad_()
    bias = table(scheme, AT_QUERIES, AT_KEYS, q)
    given = (q.detach()[0].numpy(), scheme.rows.detach().numpy(), scheme.columns.detach().numpy(), QUERIES, KEYS)
    np.testing.assert_allclose(bias[0].detach().numpy(), reference.sam_bias(*given), rtol=0, atol=1e-13)
    bias.backward(g)
    require_gradients(
        (q.grad[0], scheme.rows.grad, scheme.columns.grad),
        lambda *arrays: reference.sam_bias(*arrays, QUERIES, KEYS),
        given[:3],
        g[0],
    )


def test_the_query_is_not_scaled():
    """With zero keys the attention's weights are the softmax of the bias alone, whose queries have no 1/sqrt(d)."""
    scheme, p = ww.SAM(16, 1, (1, 2), std=1.0, dtype=torch.float64), ww.Positions.grid(1, 2)
    q, v = draw(1, 1, 2, 16), torch.eye(2, dtype=torch.float64)[None, None]
    weights = ww.Where(scheme).at(p).attention(q, torch.zeros_like(q), v, causal=False).detach()[0, 0]
    at_zero, at_one = (float(q[0, 0, 1] @ scheme.columns.detach()[n]) for n in (1, 2))
    assert float(weights[1, 0] / weights[1, 1]) == pytest.approx(np.exp(at_one - at_zero))


def test_distances_beyond_the_window_are_its_largest():
    scheme, q = ww.SAM(8, 1, 3, std=1.0), draw(1, 1, 1, 8).float()
    far, near = (ww.Positions.from_coordinates(torch.tensor([[[n]], [[0]]])) for n in (9, 2))
    origin = ww.Positions.grid(1, 1)
    assert torch.equal(table(scheme, far, origin, q), table(scheme, near, origin, q))
    assert not torch.equal(table(scheme, origin, near, q), table(scheme, near, origin, q))


@pytest.mark.parametrize("settings", [{"head_dim": 0}, {"num_heads": -1}, {"window_size": (2, 0)}, {"std": 0.0}])
@pytest.mark.usefixtures("our_own_checks")
def test_settings_that_make_no_sense_raise(settings):
    (name,) = settings
    with pytest.raises(ww.WhatWhereError, match=f"SAM got {name}"):
        ww.SAM(**{"head_dim": 8, "num_heads": 2} | settings)
