"""SSMax: queries that grow with the logarithm of how much they see."""

import pytest
import torch

import whatwhere as ww
from tests.samples import draw


def scaled(**settings):
    """Return an SSMax whose heads differ."""
    scheme = ww.SSMax(8, 3, **settings)
    with torch.no_grad():
        scheme.weight.copy_(torch.tensor([0.2, 0.5, 1.3]))
    return scheme


@pytest.mark.parametrize("length", [2, 64, 1024])
def test_it_starts_with_a_mean_factor_of_one_over_the_trained_length(length):
    scheme = ww.SSMax(1, 2, original_length=length)
    ones = torch.ones(1, 2, length, 1)
    factors = scheme(ones, ones, ww.positions(length))[0].detach()
    assert float(factors.mean()) == pytest.approx(1, abs=1e-5)
    if length == 1024:
        assert float(scheme.weight[0].detach()) == pytest.approx(0.168, abs=5e-4)


def test_a_wrapped_map_receives_the_length():
    inner = ww.Rotary(8, scaling=ww.scaling.DynamicNTK(factor=4.0, original_length=4))
    where, p = ww.Where(query_key=scaled(then=inner)), ww.positions(9)
    q, k = draw(1, 3, 9, 8, seed=1), draw(1, 3, 9, 8, seed=2)
    for length in (4, 9, 50):
        _, mapped_k = where.at(p, regime_length=length).query_key(q, k)
        assert torch.equal(mapped_k, inner(q, k, p, regime_length=length)[1])
    assert torch.equal(where.at(p).query_key(q, k)[1], inner(q, k, p)[1])
    assert not torch.equal(inner(q, k, p)[1], inner(q, k, p, regime_length=4)[1])


def test_attention_is_a_softmax_to_the_base_of_what_is_seen():
    """Nakanishi, equation 3: weights n ** (s z) over their sum, n the tokens that the query sees."""
    scheme, p = scaled(), ww.positions(7)
    q, k, v = draw(1, 3, 7, 8, seed=1), draw(1, 3, 7, 8, seed=2), draw(1, 3, 7, 8, seed=3)
    here = ww.Where(query_key=scheme).at(p)
    ours = here.attention(*here.query_key(q, k), v)
    z = (q.double() @ k.double().mT) / 8**0.5
    n = torch.arange(1, 8).double()[:, None]
    powers = (n ** (scheme.weight.double()[:, None, None] * z)).tril()
    wanted = powers / powers.sum(-1, keepdim=True) @ v.double()
    torch.testing.assert_close(ours.double(), wanted, rtol=0, atol=2e-6)
