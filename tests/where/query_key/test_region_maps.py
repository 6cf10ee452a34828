"""Self-Extend and dual chunk attention: rotary maps at other coordinates in each region of pairs."""

from functools import cache

import numpy as np
import pytest
import torch

import whatwhere as ww
from tests.samples import draw
from whatwhere import reference
from whatwhere.where import attention
from whatwhere.where.region_map import by_region, products

SELF_EXTEND = {"window": 5, "group_size": 3}
DUAL_CHUNK = {"chunk_size": 6, "max_distance": 9}
SCHEMES = {
    "self-extend": (lambda rope: ww.SelfExtend(rope, **SELF_EXTEND), reference.self_extend_distance, SELF_EXTEND),
    "dual-chunk": (lambda rope: ww.DualChunk(rope, **DUAL_CHUNK), reference.dual_chunk_distance, DUAL_CHUNK),
}
each = pytest.mark.parametrize("name", SCHEMES)


@cache
def table(name, queries, keys):
    """Return the distance of every pair, by the reference."""
    _, distance, settings = SCHEMES[name]
    return np.array([[distance(i, j, **settings) for j in keys] for i in queries])


@each
@pytest.mark.parametrize("engine", ["dense", "sdpa"])
@pytest.mark.parametrize(
    "settings", [{}, {"interleaved": True, "theta": 500.0}, {"rotary_dim": 4}], ids=["half", "interleaved", "partial"]
)
def test_attention_is_that_of_the_reference(name, engine, settings):
    """The whole attention, causal, with a bias, a sink and grouped queries, far beyond window and chunk."""
    start, n = 40, 23
    scheme = SCHEMES[name][0](ww.Rotary(8, **settings))
    alibi, sink = ww.ALiBi(4), ww.Sink(4, dtype=torch.float64)
    torch.nn.init.constant_(sink.weight, 0.3)
    where = ww.Where(scheme, alibi, sink=sink)
    q, k, v = (draw(1, heads, n, 8, seed=heads + s, dtype=torch.float64) for heads, s in ((4, 0), (2, 1), (2, 2)))
    here = where.at(ww.positions(n, start=start))
    y = here.attention(*here.query_key(q, k), v, engine=engine)
    at = range(start, start + n)
    every = [x[0].repeat_interleave(2, dim=0).numpy() for x in (k, v)]
    scores = reference.rotary_scores(q[0].numpy(), every[0], table(name, at, at), **settings) / 8**0.5
    bias = scores + reference.alibi_bias(list(at), list(at), 4)
    zeros = np.zeros((4, n, 8))
    expected = reference.attention(
        zeros, zeros, every[1], bias, np.tril(np.ones((n, n), dtype=bool)), sink=sink.weight.detach().numpy()
    )
    # Cosines and sines are rounded to float32.
    np.testing.assert_allclose(y[0].detach().numpy(), expected, rtol=0, atol=2e-6)


@each
def test_products_are_those_of_the_reference(name):
    scheme, n = SCHEMES[name][0](ww.Rotary(8)), 23
    p, q, k = ww.positions(n), draw(1, 2, n, 8, seed=3, dtype=torch.float64), draw(1, 2, n, 8, seed=4).double()
    ours = products(scheme, *scheme(q, k, p), p, p)[0]
    distances = np.array([[table(name, (i,), (j,))[0, 0] if j <= i else 0 for j in range(n)] for i in range(n)])
    expected = reference.rotary_scores(q[0].numpy(), k[0].numpy(), distances)
    np.testing.assert_allclose(ours.numpy()[:, *np.tril_indices(n)], expected[:, *np.tril_indices(n)], atol=2e-6)


def test_no_distance_is_beyond_what_the_model_was_trained_for():
    """A window of 4 and groups of 2 bring 16 positions into 10, chunks of 6 any number."""
    far = [reference.self_extend_distance(i, j, 4, 2) for i in range(16) for j in range(i + 1)]
    assert max(far) == 9
    everything = [(i, j, reference.dual_chunk_distance(i, j, 6, 9)) for i in range(60) for j in range(i + 1)]
    assert {d for _, _, d in everything} == set(range(10))
    assert all(d == i - j for i, j, d in everything if i - j < 9 - 6 + 1)


@each
@pytest.mark.parametrize("length", [4, 5, 6])
def test_short_texts_cost_and_compute_what_plain_rotary_does(name, length, monkeypatch):
    """Bit by bit, without the longer list of keys, while all positions are before the window or in the first chunk."""
    plain, scheme = ww.Rotary(8), SCHEMES[name][0](ww.Rotary(8))
    q, v = draw(1, 2, length, 8), draw(1, 2, length, 8, seed=1)
    listed = []
    monkeypatch.setattr("whatwhere.where.binding.by_region", lambda *given: listed.append(given) or by_region(*given))
    here, there = ww.Where(scheme).at(length), ww.Where(plain).at(length)
    if length <= {"self-extend": 5, "dual-chunk": 6}[name]:
        y = here.attention(*here.query_key(q, q), v)
        assert torch.equal(y, there.attention(*there.query_key(q, q), v))
        assert not listed
    else:
        here.attention(*here.query_key(q, q), v)
        assert listed


PADDED = torch.ones(2, 300, dtype=torch.bool)
PADDED[1, :90] = False


@each
@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize(
    "p",
    [ww.positions(300), ww.Positions.packed([170, 130]), ww.Positions.from_mask(PADDED)],
    ids=["run", "packed", "padded"],
)
def test_long_texts_go_by_chunks_of_queries(name, window, p, monkeypatch):
    """Each chunk skips the listed keys that are of other regions, and the result is that of the whole table."""
    where = ww.Where(SCHEMES[name][0](ww.Rotary(8)), ww.ALiBi(2), window=window)
    q, k, v = (draw(2, 2, 300, 8, seed=s).requires_grad_() for s in range(3))
    keys, with_table = [], attention._with_table

    def counted(q, k, *rest):
        keys.append(k.shape[2])
        return with_table(q, k, *rest)

    monkeypatch.setattr(attention, "_CHUNK", 1 << 16)
    monkeypatch.setattr(attention, "_with_table", counted)
    results = []
    for engine in ("sdpa", "dense"):
        here = where.at(p)
        y = here.attention(*here.query_key(q, k), v, engine=engine)
        results.append((y, *torch.autograd.grad(y.square().sum(), (q, k, v))))
    for ours, dense in zip(*results, strict=True):
        torch.testing.assert_close(ours, dense, rtol=1e-4, atol=2e-5)
    assert len(keys) > 2
    assert max(keys) < 450  # of 600 or 900 in the list


@each
def test_a_factor_of_queries_goes_around_it(name):
    """SSMax has another factor for each head, and each region has all heads."""
    inner, n = SCHEMES[name][0](ww.Rotary(8)), 23
    scheme = ww.SSMax(8, 3, inner)
    with torch.no_grad():
        scheme.weight.copy_(torch.tensor([0.2, 0.5, 1.3]))
    q, k, v = (draw(1, 3, n, 8, seed=s) for s in range(3))
    ours, plain = ww.Where(scheme).at(n), ww.Where(inner).at(n)
    growth = scheme.weight[:, None, None] * torch.arange(1, n + 1).log()[:, None]
    expected = plain.attention(*plain.query_key(q * growth, k), v)
    torch.testing.assert_close(ours.attention(*ours.query_key(q, k), v), expected)


def test_a_cache_of_dual_chunk_attention_has_each_key_once():
    q = draw(1, 4, 3, 8)
    for scheme, copies in ((ww.SelfExtend(ww.Rotary(8), 4, 2), 2), (ww.DualChunk(ww.Rotary(8), 4, 5), 1)):
        assert scheme(q, q[:, :2], ww.positions(3))[1].shape == (1, 2 * copies, 3, 8)
