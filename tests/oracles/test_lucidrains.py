"""Rotary, axial rotary, xPos, PoPE, ALiBi, CoPE and FoX equal rotary-embedding-torch and x-transformers."""

from math import pi

import pytest
import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from x_transformers import x_transformers as xt
from x_transformers.attend import Attend

import whatwhere as ww

from .shared import ANGLES, LENGTH, queries_and_keys, require_close


@pytest.mark.parametrize("start", [0, 100])
@pytest.mark.parametrize("rotary_dim", [8, 32])
def test_rotary_embedding_torch(rotary_dim: int, start: int) -> None:
    q, k = queries_and_keys(32)
    theirs = RotaryEmbedding(rotary_dim, theta=5_000.0)
    rope = ww.Rotary(32, 5_000.0, interleaved=True, rotary_dim=rotary_dim)
    ours = rope(q, k, ww.positions(LENGTH, start=start))
    wanted = [theirs.rotate_queries_or_keys(x, offset=start) for x in (q, k)]
    require_close(ours, wanted, 5 * ANGLES * (1 + start / LENGTH))


@pytest.mark.parametrize("rotary_dim", [8, 32])
def test_x_transformers_rotary(rotary_dim: int) -> None:
    """With a position for each token of each sequence."""
    q, k = queries_and_keys(32)
    ids = torch.stack([torch.arange(LENGTH), torch.arange(0, 2 * LENGTH, 2)])
    frequencies, scale = xt.RotaryEmbedding(rotary_dim, base=5_000)(ids)
    ours = ww.Rotary(32, 5_000.0, interleaved=True, rotary_dim=rotary_dim)(q, k, ids)
    require_close(ours, [xt.apply_rotary_pos_emb(x, frequencies, scale) for x in (q, k)], 10 * ANGLES)


@pytest.mark.parametrize("num_heads", [1, 2, 8, 64, 3, 6, 12, 20, 71])
def test_x_transformers_alibi(num_heads: int) -> None:
    """Symmetric, and at the bottom right where there are more keys than queries."""
    theirs = xt.AlibiPositionalBias(num_heads)(4, 30)
    ours = ww.ALiBi(num_heads)(ww.positions(4, start=26), ww.positions(30))[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)


def test_x_transformers_alibi_at_given_positions() -> None:
    """For a batch whose sequences stand elsewhere, both ways of looking."""
    queries = torch.tensor([[3, 9, 40], [0, 1, 2]])
    keys = torch.tensor([[1, 5, 77, 80], [0, 1, 2, 3]])
    theirs = xt.AlibiPositionalBias(12).forward_custom_pos(queries, keys)
    torch.testing.assert_close(ww.ALiBi(12)(queries, keys), theirs, rtol=1e-6, atol=0)


def test_x_transformers_learned() -> None:
    theirs = xt.AbsolutePositionalEmbedding(16, 32)
    scheme = ww.Learned(dim=16, max_length=32)
    with torch.no_grad():
        scheme.weight.copy_(theirs.emb.weight)
    wanted = theirs(torch.zeros(1, 20, 16), offset=5)
    # They scale the table by 1 / sqrt(dim) at every call.
    torch.testing.assert_close(scheme(ww.positions(20, start=5))[0] * 16**-0.5, wanted)


# Axes, and xPos at the same center

FACTORS = 1e-6
"""Their factors are float32 powers: off by a few roundings of an exponent of up to 1."""


@pytest.mark.parametrize("sizes", [(9, 17), (3, 5, 7)], ids=str)
@pytest.mark.parametrize("start", [0, 100])
def test_axial_rotary(sizes: tuple[int, ...], start: int) -> None:
    """Each axis has a block of neighboring features and frequencies of its own."""
    axes, dim = len(sizes), 8
    p = ww.Positions.grid(*sizes)
    moved = ww.Positions.from_position_ids(p.index + start)
    x, _ = queries_and_keys(axes * dim, p.tokens)
    frequencies = RotaryEmbedding(dim, theta=5_000.0).get_axial_freqs(*sizes, offsets=(start,) * axes)
    wanted = apply_rotary_emb(frequencies, x.unflatten(2, sizes)).flatten(2, axes + 1)
    made, _ = ww.AxialRotary(axes * dim, axes, 5_000.0, interleaved=True)(x, x, moved)
    torch.testing.assert_close(made, wanted, rtol=0, atol=5 * (start + max(sizes)) * 1.2e-7)


@pytest.mark.parametrize("tokens", [7, LENGTH])
def test_xpos_of_rotary_embedding_torch(tokens: int) -> None:
    """Its center is half of the length."""
    q, k = queries_and_keys(32, tokens)
    theirs = RotaryEmbedding(32, use_xpos=True).rotate_queries_and_keys(q, k)
    ours = ww.XPos(32, interleaved=True, center=tokens // 2)(q, k, ww.positions(tokens))
    require_close(ours, theirs, 10 * ANGLES, rtol=FACTORS)


@pytest.mark.parametrize("scale_base", [512, 100])
def test_xpos_of_x_transformers(scale_base: int) -> None:
    """With a position for each token of each sequence; its center is half of what lies one beyond the largest."""
    q, k = queries_and_keys(32)
    ids = torch.stack([torch.arange(LENGTH), torch.arange(LENGTH) // 2 * 2])
    module = xt.RotaryEmbedding(32, use_xpos=True, scale_base=scale_base, base=5_000)
    frequencies, scale = module(ids)
    xpos = ww.XPos(32, 5_000.0, interleaved=True, scale_base=float(scale_base), center=LENGTH // 2)
    wanted = [xt.apply_rotary_pos_emb(x, frequencies, factor) for x, factor in ((q, scale), (k, scale**-1))]
    require_close(xpos(q, k, ids), wanted, 10 * (ANGLES + FACTORS) * 3.5 ** (LENGTH / 2 / scale_base))


@pytest.mark.parametrize("head_dim", [1, 7, 16])
def test_pope(head_dim: int) -> None:
    theirs = xt.PolarEmbedding(head_dim, heads=3, base=5_000)
    ours = ww.PoPE(head_dim, 3, theta=5_000.0)
    with torch.no_grad():
        theirs.learned_bias.uniform_(-2 * pi, 0)
        ours.delta.copy_(theirs.learned_bias[:, 0])
        q, k = torch.randn(2, 3, LENGTH, head_dim), torch.randn(2, 3, LENGTH, head_dim)
        angles, bias = theirs(torch.arange(LENGTH))
        wanted = xt.apply_polar_pos_emb(q, angles), xt.apply_polar_pos_emb(k, angles + bias)
        mapped = ours(q, k, ww.positions(LENGTH))
    lengths = wanted[0].norm(dim=-1)[..., :, None] * wanted[1].norm(dim=-1)[..., None, :]
    apart = (mapped[0] @ mapped[1].mT - wanted[0] @ wanted[1].mT).abs()
    assert (apart <= 4 * ANGLES * lengths).all()
    assert mapped[0].shape == wanted[0].shape


def test_pope_of_keys_without_a_phase_are_the_same_vectors() -> None:
    theirs = xt.PolarEmbedding(8, heads=1)
    k = torch.randn(1, 1, LENGTH, 8)
    wanted = xt.apply_polar_pos_emb(k, theirs(torch.arange(LENGTH))[0])
    torch.testing.assert_close(ww.PoPE(8, 1)(k, k, ww.positions(LENGTH))[1], wanted, rtol=0, atol=5 * ANGLES)


# Biases by content

TOKENS, HEADS, HEAD_DIM, DIM = 40, 4, 16, 24


@pytest.mark.parametrize("max_distance", [4, 64])
@torch.no_grad()
def test_x_transformers_cope(max_distance: int) -> None:
    """The whole attention: theirs scales the scores, masks them, counts, and adds <q, e>."""
    scheme = ww.CoPE(HEAD_DIM, HEADS, max_distance, std=1.0)
    theirs = xt.CoPE(HEAD_DIM, HEADS, max_distance)
    theirs.pos_emb.copy_(scheme.weight)
    attend = Attend(heads=HEADS, causal=True, cope=theirs, scale=HEAD_DIM**-0.5)
    q, k, v = torch.randn(3, 2, HEADS, TOKENS, HEAD_DIM)
    wanted, _ = attend(q, k, v)
    ours = ww.Where(score=scheme).at(ww.positions(TOKENS)).attention(q, k, v)
    # Both count in float32: 40 gates, each off by 2**-25, meet differences of <q, e> up to 20.
    torch.testing.assert_close(ours, wanted, rtol=0, atol=2e-5)
    assert (ours - ww.Where().at(ww.positions(TOKENS)).attention(q, k, v)).abs().max() > 0.1


@torch.no_grad()
def test_x_transformers_forgetting() -> None:
    """Their bias for the Forgetting Transformer, which sums in float32."""
    scheme, theirs = ww.FoX(DIM, HEADS), xt.DataDependentAlibi(DIM, HEADS)
    linear = theirs.to_forget_gates[0]
    scheme.weight.copy_(linear.weight)
    scheme.bias.copy_(linear.bias - 3)
    linear.bias -= 3
    x = torch.randn(2, TOKENS, DIM)
    q, k, v = torch.randn(3, 2, HEADS, TOKENS, HEAD_DIM)
    here = ww.Where(score=scheme).at(ww.positions(TOKENS))
    seen = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    bias = theirs(x).masked_fill(~seen, -torch.inf)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias)
    ours = here.attention(q, k, v, gates=here.gates(x))
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5)
    assert (ours - ww.Where().at(ww.positions(TOKENS)).attention(q, k, v)).abs().max() > 0.1
