"""SAM: queries read vectors of the distances along rows and along columns."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw
from tests.samples import table


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
