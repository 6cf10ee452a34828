"""Rotary, axial rotary, xPos, PoPE, ALiBi, CoPE and FoX equal rotary-embedding-torch and x-transformers."""

from math import pi

import pytest
import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from x_transformers import x_transformers as xt
from x_transformers.attend import Attend

import whatwhere as ww

from .shared import ANGLES, LENGTH, queries_and_keys, require_close

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
