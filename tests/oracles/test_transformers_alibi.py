"""ALiBi equals Hugging Face transformers' BLOOM and MPT, for any number of heads."""

import math

import pytest
import torch
from transformers import BloomConfig
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.falcon import modeling_falcon as falcon
from transformers.models.mpt import modeling_mpt as mpt

import whatwhere as ww

HEADS = [1, 2, 4, 8, 16, 32, 64, 3, 5, 6, 12, 20, 25, 40, 71, 112]


@pytest.mark.parametrize("num_heads", HEADS)
def test_bloom_bias(num_heads: int) -> None:
    """They add slope * key position; softmax makes it slope * (key - query), which is ours where the key is past."""
    mask = torch.tensor([[1] * 9, [0] * 4 + [1] * 5])
    theirs = bloom.build_alibi_tensor(mask, num_heads, torch.float64).view(2, num_heads, 1, 9)
    p = ww.Positions.from_mask(mask)
    ours = ww.ALiBi(num_heads)(p, causal=True, dtype=torch.float64)
    at_query = theirs.transpose(-1, -2)  # the same number at the query's own place
    wanted = (theirs - at_query).masked_fill(~p.mask(), -torch.inf)
    torch.testing.assert_close(ours, wanted, rtol=5e-6, atol=1e-6)


def test_bloom_attention() -> None:
    """A whole module with its weights; six heads, left padding, float64."""
    config = BloomConfig(hidden_size=48, n_head=6, hidden_dropout=0.0, attention_dropout=0.0)
    module = bloom.BloomAttention(config, layer_idx=0).double().eval()
    mask = torch.tensor([[0] * 3 + [1] * 7, [1] * 10])
    p = ww.Positions.from_mask(mask)
    added = torch.zeros(2, 1, 10, 10, dtype=torch.float64).masked_fill(~p.mask(), -1e30)
    x = torch.randn(2, 10, 48, dtype=torch.float64)
    bias = bloom.build_alibi_tensor(mask, 6, torch.float64)
    wanted, _ = module(x, torch.zeros_like(x), bias, added)
    # (batch, tokens, heads, 3, head_dim) is their order
    q, k, v = module.query_key_value(x).unflatten(-1, (6, 3, 8)).transpose(1, 2).unbind(-2)
    y = ww.Where(score=ww.ALiBi(6)).at(p).attention(q, k, v)
    mine = module.dense(y.transpose(1, 2).flatten(-2))
    real = mask.bool()
    torch.testing.assert_close(mine[real], wanted[real], rtol=0, atol=1e-6)  # their softmax is float32


@pytest.mark.parametrize("num_heads", HEADS)
def test_mpt(num_heads: int) -> None:
    """Its rule reads otherwise, but comes to the same.

    It takes the slopes of the power of two above H, the 2nd, 4th, 6th, ... first, which are those of the power below.
    """
    theirs = mpt.build_mpt_alibi_tensor(num_heads, 300)  # (heads, 1, keys), for the query at the last key
    ours = ww.ALiBi(num_heads)(ww.positions(1, start=299), ww.positions(300))[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)


def test_pin_mpt_with_another_exponent_is_not_alibi() -> None:
    """`alibi_bias_max` replaces the paper's 8; at 16 a head's slope is the square of ours."""
    theirs = mpt.build_mpt_alibi_tensor(8, 2, alibi_bias_max=16)[:, 0, 0]
    torch.testing.assert_close(-theirs, ww.ALiBi(8).slopes.square())


def test_pin_bloom_loses_neighbors_in_bfloat16() -> None:
    """bfloat16 keeps 8 bits: near 8,191 the steps of slope * key position are 64 slopes wide; distances stay small."""
    theirs = bloom.build_alibi_tensor(torch.ones(1, 8192, dtype=torch.long), 8, torch.bfloat16)[0, 0, -64:]
    ours = ww.ALiBi(8)(ww.positions(1, start=8191), ww.positions(8192), dtype=torch.bfloat16)[0, 0, 0, -64:]
    assert theirs.unique().numel() <= 3
    assert ours.unique().numel() == 64


def test_pin_falcon_rounds_its_slopes() -> None:
    """It casts slopes to bfloat16: 2 ** -0.5 becomes 0.70703125, and a distance of 4,096 is off by 0.3."""
    theirs = falcon.build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), 12, torch.float32)[:, 0, 1]
    ours = ww.ALiBi(12).slopes
    assert torch.equal(theirs, ours.bfloat16().float())
    assert float(ours[8]) == pytest.approx(math.sqrt(0.5), rel=1e-7)
    assert 0.2 < 4096 * float((ours - theirs)[8].abs()) < 0.4
