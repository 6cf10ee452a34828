"""The linear map between sinusoids of shifted positions."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whatwhere.where.frequencies import (
    LAYOUTS,
    offset_map,
    sinusoid,
)


@settings(deadline=None, max_examples=40)
@given(st.integers(-50, 5000), st.integers(0, 5000), st.sampled_from(LAYOUTS))
def test_offset_map_shifts_every_position_equally(k, p, layout):
    p = max(p, -k)
    before, after = sinusoid(torch.tensor([p, p + k]), 12, layout=layout).double()
    matrix = offset_map(k, 12, layout=layout)
    assert torch.allclose(matrix @ before, after, atol=3e-7)
    assert torch.allclose(matrix @ matrix.T, torch.eye(12, dtype=torch.float64), atol=1e-12)
