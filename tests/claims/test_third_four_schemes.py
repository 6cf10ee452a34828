"""The third tutorial: the token table and four ways of saying where. Each test says a claim and what is true."""

from math import cos, sin, sqrt

import pytest
import torch
from torch.nn import functional as F

import whatwhere as ww
from whatwhere import reference
from whatwhere.comparison.model import Block
from whatwhere.where.frequencies import inverse_frequencies

HEADS, TOKENS, HEAD_DIM = 8, 12, 16
INTO_HALVES = torch.cat([torch.arange(0, HEAD_DIM, 2), torch.arange(1, HEAD_DIM, 2)])  # 0, 2, ..., 1, 3, ...


@pytest.fixture
def qkv():
    """Return queries, keys and values, (1, 8 heads, 12 tokens, 16 features), in float64."""
    g = torch.Generator().manual_seed(0)
    return torch.randn(3, 1, HEADS, TOKENS, HEAD_DIM, generator=g, dtype=torch.float64).unbind(0)


def its_rotation(x, positions):
    """Return its vector form: x * cos(m theta_i), each twice, plus (-x_1, x_0, -x_3, x_2, ...) * sin(m theta_i)."""
    d = x.shape[-1]
    theta = 10_000 ** (-2 * torch.arange(d // 2, dtype=torch.float64) / d)
    angle = (positions[:, None] * theta).repeat_interleave(2, dim=-1)
    swapped = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return x * angle.cos() + swapped * angle.sin()


def score(rope, q, k, m, n):
    """Return the inner product of a query at position m and a key at n."""
    q_m, k_n = rope(q, k, torch.tensor([m]), key_positions=torch.tensor([n]))
    return (q_m * k_n).sum().item()


def slopes(heads):
    return ww.ALiBi(heads).slopes.tolist()


def test_token_plus_learned_position():
    """Output = W[id] + P[position]. True, with positions from 0."""
    layer = ww.InputLayer(100, 8, ww.Learned(8, max_length=6))
    ids = torch.tensor([[7, 7, 99, 0, 7]])
    expected = torch.stack([layer.tokens.weight[t] + layer.where.input.weight[p] for p, t in enumerate(ids[0])])
    assert torch.equal(layer(ids)[0], expected)


def test_learned_positions_end_at_t_max():
    """P is T_max x C and positions run from 0 to T_max - 1. True: T_max itself is refused."""
    learned = ww.Learned(dim=8, max_length=6)
    assert learned.weight.shape == (6, 8)
    assert torch.equal(learned(torch.tensor([5]))[0, 0], learned.weight[5])
    with pytest.raises(ww.errors.PositionError, match="position 6 is beyond"):
        learned(torch.tensor([6]))


def test_dimensions_have_no_meaning_of_their_own():
    """Each dimension holds some property. Not by itself: a turned table and a next matrix turned back do the same.

    All cosines of the rows stay, no number of them does.
    """
    g = torch.Generator().manual_seed(0)
    rows, after = torch.randn(50, 16, generator=g).double(), torch.randn(16, 32, generator=g).double()
    turn = torch.linalg.qr(torch.randn(16, 16, generator=g).double()).Q
    one, other = ww.TokenEmbedding.from_weight(rows), ww.TokenEmbedding.from_weight(rows @ turn)
    ids = torch.arange(50)
    assert (one(ids) - other(ids)).abs().mean() > 0.5
    torch.testing.assert_close(other(ids) @ (turn.T @ after), one(ids) @ after, atol=1e-12, rtol=0)
    torch.testing.assert_close(
        *[ww.analysis.similarity(e.weight[:, None], e.weight) for e in (other, one)], atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("d", [2, 8, 64])
def test_its_sinusoid(d):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), then the cosine, i = 0 .. d/2 - 1. True, and i is counted right."""
    expected = [[f(p / 10_000 ** (2 * i / d)) for i in range(d // 2) for f in (sin, cos)] for p in range(40)]
    torch.testing.assert_close(ww.Sinusoidal(d)(ww.positions(40))[0], torch.tensor(expected), atol=1e-6, rtol=0)


def test_every_pair_has_a_frequency_of_its_own():
    """Each even dimension has another frequency, and each position a vector of its own. True."""
    assert len(set(inverse_frequencies(64).tolist())) == 32
    assert torch.pdist(ww.Sinusoidal(64)(ww.positions(512))[0]).min() > 1


@pytest.mark.parametrize("name", ["sinusoidal", "rotary", "alibi"])
def test_who_is_biased_to_relative_positions(name):
    """Sinusoids are strongly biased to relative positions. Weakly: a text 100 places later is another text to them.

    To rotary and ALiBi it is the same text; they see nothing but distances.
    """
    torch.manual_seed(0)
    where, ids = ww.scheme(name, dim=32, num_heads=4, max_length=128), torch.randint(20, (1, 8))
    layer, block = ww.InputLayer(20, 32, where.input, init=1.0), Block(32, 4, 64, causal=True)
    heres = [where.at(ww.positions(8, start=start)) for start in (0, 100)]
    near, far = (block(layer(ids, here), here) for here in heres)
    moved = (near - far).abs().max().item()
    assert ww.catalogue[name].relative == (name in ("rotary", "alibi"))
    assert moved < 1e-5 if ww.catalogue[name].relative else moved > 0.01


def test_its_rotary(qkv):
    """RoPE turns consecutive pairs by m theta_i, theta_i = 10000^(-2i/d), d even. True: the paper's layout."""
    (q, k, _), p = qkv, torch.arange(TOKENS) + 500
    rotated_q, rotated_k = ww.Rotary(HEAD_DIM, interleaved=True)(q, k, p)
    torch.testing.assert_close(rotated_q, its_rotation(q, p), atol=1e-6, rtol=0)
    torch.testing.assert_close(rotated_k, its_rotation(k, p), atol=1e-6, rtol=0)
    with pytest.raises(ww.errors.ShapeError, match="head_dim=5, but needs an even number"):
        ww.Rotary(5)


def test_the_other_layout_is_the_same_after_a_permutation(qkv):
    """Llama and Hugging Face turn pairs (i, i + d/2). The same after the permutation 0, 2, .., 1, 3, .. of q and k."""
    (q, k, _), p = qkv, ww.positions(TOKENS)
    paired_q, paired_k = ww.Rotary(HEAD_DIM, interleaved=True)(q, k, p)
    halved_q, halved_k = ww.Rotary(HEAD_DIM)(q[..., INTO_HALVES], k[..., INTO_HALVES], p)
    torch.testing.assert_close(halved_q, paired_q[..., INTO_HALVES], atol=1e-12, rtol=0)
    torch.testing.assert_close(halved_q @ halved_k.mT, paired_q @ paired_k.mT, atol=1e-12, rtol=0)


def test_mixed_layouts_are_silently_wrong(qkv):
    """Either layout serves any weights. False: without the permutation shapes and lengths agree, scores do not."""
    (q, k, _), p = qkv, ww.positions(TOKENS)
    paired_q, paired_k = ww.Rotary(HEAD_DIM, interleaved=True)(q, k, p)
    mixed_q, mixed_k = ww.Rotary(HEAD_DIM)(q, k, p)
    torch.testing.assert_close(mixed_q.norm(dim=-1), paired_q.norm(dim=-1), atol=1e-6, rtol=0)
    assert (mixed_q @ mixed_k.mT - paired_q @ paired_k.mT).abs().max() > 1


@pytest.mark.parametrize("interleaved", [True, False])
def test_the_rotation_between_query_and_key(qkv, interleaved):
    """q_m.k_n is q^T R_(m-n) k. The sign is wrong: q^T R_m^T R_n k = q^T R_(n-m) k.

    A query at 0 and a key at 4 give R_4; the printed form, R_(-4), is a query at 4 and a key at 0.
    """
    q, k = (x[:, :1, :1] for x in qkv[:2])
    rope = ww.Rotary(HEAD_DIM, interleaved=interleaved)
    result = score(rope, q, k, m=3, n=7)
    assert result == pytest.approx(score(rope, q, k, m=0, n=4), abs=1e-5)
    assert result != pytest.approx(score(rope, q, k, m=4, n=0), abs=0.1)


def test_the_rotation_by_hand():
    """q = (1, 0) at 0 and k = (0, 1) at 1: R_1 k = (-sin 1, cos 1), so the score is -0.84; R_(-1) would give +0.84.

    Where q = k, both signs give cos(m - n): there the error cannot be seen.
    """
    east, north = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.tensor([0.0, 1.0]).view(1, 1, 1, 2)
    rope = ww.Rotary(2)
    assert score(rope, east, north, m=0, n=1) == pytest.approx(-sin(1), abs=1e-6)
    assert score(rope, east, north, m=1, n=0) == pytest.approx(sin(1), abs=1e-6)
    assert score(rope, east, east, m=0, n=1) == score(rope, east, east, m=1, n=0) == pytest.approx(cos(1), abs=1e-6)


def test_rotary_changes_queries_and_keys_not_scores(qkv):
    """RoPE "directly modifies attention scores". False: it turns q and k; plain attention of those is all there is."""
    q, k, v = qkv
    where = ww.scheme("rotary", dim=HEADS * HEAD_DIM, num_heads=HEADS, max_length=TOKENS)
    here = where.at(ww.positions(TOKENS))
    assert (ww.catalogue["rotary"].door, where.score) == ("query_key", None)
    rotated_q, rotated_k = here.query_key(q, k)
    plain = F.scaled_dot_product_attention(rotated_q, rotated_k, v, is_causal=True)
    torch.testing.assert_close(here.attention(rotated_q, rotated_k, v), plain, atol=1e-12, rtol=0)
    torch.testing.assert_close(rotated_q.norm(dim=-1), q.norm(dim=-1), atol=1e-6, rtol=0)


def test_no_bias_could_do_what_rotary_does(qkv):
    """What RoPE does to a score depends on q and k; a bias, as ALiBi's, is one number for a pair of positions."""
    q, k, _ = qkv
    rotated_q, rotated_k = ww.Rotary(HEAD_DIM)(q, k, ww.positions(TOKENS))
    change = (rotated_q @ rotated_k.mT - q @ k.mT)[0]  # the heads differ in q and k only
    assert change.diagonal(dim1=-2, dim2=-1).abs().max() < 1e-5  # at distance 0 nothing changes
    assert change[:, 5, 0].min() < -1
    assert change[:, 5, 0].max() > 1


def test_rotated_keys_can_be_cached(qkv):
    """RoPE would have to touch each new score. False: a key is turned once, kept in the cache, and serves for good."""
    q, k, v = qkv
    where, p = ww.Where(query_key=ww.Rotary(HEAD_DIM)), ww.positions(TOKENS)
    whole = where.at(p).attention(*where.at(p).query_key(q, k), v)
    cached = where.at(p[:-1]).query_key(q[:, :, :-1], k[:, :, :-1])[1]
    step = where.at(p[-1:], p)
    last, new = step.query_key(q[:, :, -1:], k[:, :, -1:])
    result = step.attention(last, torch.cat([cached, new], dim=2), v)
    torch.testing.assert_close(result, whole[:, :, -1:], atol=1e-12, rtol=0)


@pytest.mark.parametrize("engine", ["dense", "sdpa"])
def test_its_alibi(qkv, engine):
    """softmax(q_i K^T + m [-(i-1), .., -2, -1, 0]) over the first i keys. True, but for the scale that it leaves out.

    Scores are divided by sqrt(d), the bias is not.
    """
    q, k, _ = qkv
    values = torch.eye(TOKENS, dtype=torch.float64).expand(1, HEADS, -1, -1)  # attention gives its weights back
    alibi = ww.ALiBi(HEADS)
    result = ww.Where(score=alibi).at(ww.positions(TOKENS)).attention(q, k, values, engine=engine)[0]
    for i in (1, 5, TOKENS):
        bias = alibi.slopes.double()[:, None] * torch.arange(-(i - 1), 1)
        scores = (k[0, :, :i] @ q[0, :, i - 1, :, None])[..., 0]
        torch.testing.assert_close(result[:, i - 1, :i], (scores / sqrt(HEAD_DIM) + bias).softmax(-1))
        assert not result[:, i - 1, i:].any()
    as_printed, all_scaled = (scores + bias).softmax(-1), ((scores + bias) / sqrt(HEAD_DIM)).softmax(-1)
    assert (result[:, -1] - as_printed).abs().max() > 0.01
    assert (result[:, -1] - all_scaled).abs().max() > 0.01


def test_alibi_learns_nothing_and_adds_no_vectors():
    """m is not learned, and there are no positional vectors. True."""
    where = ww.scheme("alibi", dim=64, num_heads=8, max_length=16)
    assert ww.parameters(where).total == 0
    assert (where.input, where.query_key) == (None, None)


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16, 32])
def test_slopes_are_a_geometric_sequence(heads):
    """Slopes start at 2^(-8/n) and fall by 2^(-8/n). True of any power of two; the last one is always 1/256."""
    assert slopes(heads) == pytest.approx([(2 ** (-8 / heads)) ** h for h in range(1, heads + 1)])
    assert slopes(heads)[-1] == 1 / 256


def test_slopes_of_8_heads():
    """8 heads: 1/2, 1/4, .., 1/2^8. True."""
    assert slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


def test_slopes_of_16_heads():
    """16 heads: 1/2, 1/4, .., 1/2^16. False, also by its own rule: 2^-0.5, 2^-1, 2^-1.5, .., 2^-8."""
    assert slopes(16) == pytest.approx([2 ** (-h / 2) for h in range(1, 17)])
    printed = [2**-h for h in range(1, 17)]
    assert all(right > 1.4 * wrong for right, wrong in zip(slopes(16), printed, strict=True))


def test_slopes_of_12_heads():
    """n heads: start and ratio 2^(-8/n). False of 12: the authors take 8 heads' slopes and every other one of 16's."""
    assert slopes(12) == pytest.approx([2**-h for h in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])
    assert slopes(12) == pytest.approx(reference.alibi_slopes(12))
    assert sorted(slopes(12)) != pytest.approx(sorted(2 ** (-8 * h / 12) for h in range(1, 13)), rel=0.05)


def test_the_sign_of_the_slope():
    """m is -1/2^k for head k. The distances are negative already: m is 1/2^k, or far keys would be rewarded."""
    last = ww.ALiBi(8)(ww.positions(TOKENS))[0, :, -1]  # each head's bias for the last query
    expected = [[2**-k * -distance for distance in range(TOKENS - 1, -1, -1)] for k in range(1, 9)]
    torch.testing.assert_close(last, torch.tensor(expected))
    assert bool((last.diff() > 0).all())  # the nearer, the better
