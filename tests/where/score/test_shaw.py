"""Shaw: queries meet a learned vector of the clipped distance."""

import pytest
import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw
from tests.samples import table

ENGINES = ["dense", "sdpa"]


def sampled(head_dim: int = 4, num_heads: int = 2, past: int = 3, future: int = 2, **settings) -> ww.Shaw:
    torch.manual_seed(0)
    return ww.Shaw(head_dim, num_heads, past, future, std=1.0, **settings).double()


@pytest.mark.parametrize("engine", ENGINES)
def test_it_is_the_paper_s_form_of_keys_with_a_vector_added(engine):
    """Equation 4: e_ij = <q_i, k_j + a_ij> / sqrt(head_dim), through (queries, keys, head_dim)."""
    scheme, p = sampled(), ww.positions(7)
    q, k, v = (draw(2, 2, 7, 4, seed=n) for n in range(3))
    index = torch.arange(7)
    a = scheme.weight[(index - index[:, None]).clamp(-3, 2) + 3]  # (queries, keys, head_dim)
    logits = (q[:, :, :, None] * (k[:, :, None] + a)).sum(-1) / 2
    for causal in (True, False):
        seen = logits.masked_fill(~p.mask(causal=causal), -torch.inf)
        y = ww.Where(score=scheme).at(p).attention(q, k, v, causal=causal, engine=engine)
        torch.testing.assert_close(y, seen.softmax(-1) @ v)


def test_distances_beyond_the_clip_are_one():
    scheme, q = sampled(), draw(1, 2, 1, 4)
    made = table(scheme, ww.positions(1, start=50), ww.positions(101), q)[0, 0, 0]
    assert made[:48].unique().numel() == 1
    assert made[52:].unique().numel() == 1
    assert made[47:53].unique().numel() == 6
