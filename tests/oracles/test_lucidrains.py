"""Rotary, ALiBi and the sinusoid equal rotary-embedding-torch and x-transformers."""

import pytest
import torch
from rotary_embedding_torch import RotaryEmbedding
from x_transformers import x_transformers as xt

import whatwhere as ww

LENGTH = 512
ANGLES = LENGTH * 1.2e-7  # both take angles in float32: p * 6e-8 from the angle, as much from the frequency


def queries_and_keys(head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample three heads for two sequences."""
    return torch.randn(2, 3, LENGTH, head_dim), torch.randn(2, 3, LENGTH, head_dim)


@pytest.mark.parametrize("start", [0, 100])
@pytest.mark.parametrize("rotary_dim", [8, 32])
def test_rotary_embedding_torch(rotary_dim: int, start: int) -> None:
    q, k = queries_and_keys(32)
    theirs = RotaryEmbedding(rotary_dim, theta=5_000.0)
    rope = ww.Rotary(32, 5_000.0, interleaved=True, rotary_dim=rotary_dim)
    ours = rope(q, k, ww.positions(LENGTH, start=start))
    for x, mine in zip((q, k), ours, strict=True):
        wanted = theirs.rotate_queries_or_keys(x, offset=start)
        torch.testing.assert_close(mine, wanted, rtol=0, atol=5 * ANGLES * (1 + start / LENGTH))


def test_pin_rotary_embedding_torch_counts_in_the_dtype_of_the_queries() -> None:
    """bfloat16 holds whole numbers up to 256: from position 257 on its angles are off by a radian and more."""
    q = torch.randn(1, 1, 600, 64)
    exact = ww.Rotary(64, interleaved=True)(q, q, ww.positions(600))[0]
    theirs = RotaryEmbedding(64).rotate_queries_or_keys(q.bfloat16()).float()
    ours = ww.Rotary(64, interleaved=True)(q.bfloat16(), q.bfloat16(), ww.positions(600))[0].float()
    assert (theirs - exact)[:, :, :257].abs().max() < 0.1  # up to 256 it is right
    assert (theirs - exact)[:, :, 257].abs().max() > 1
    assert (ours - exact).abs().max() < 0.04  # bfloat16's own rounding, in and out, of features up to 5


@pytest.mark.parametrize("rotary_dim", [8, 32])
def test_x_transformers_rotary(rotary_dim: int) -> None:
    """With a position for each token of each sequence."""
    q, k = queries_and_keys(32)
    ids = torch.stack([torch.arange(LENGTH), torch.arange(0, 2 * LENGTH, 2)])
    frequencies, scale = xt.RotaryEmbedding(rotary_dim, base=5_000)(ids)
    ours = ww.Rotary(32, 5_000.0, interleaved=True, rotary_dim=rotary_dim)(q, k, ids)
    for x, mine in zip((q, k), ours, strict=True):
        wanted = xt.apply_rotary_pos_emb(x, frequencies, scale)
        torch.testing.assert_close(mine, wanted, rtol=0, atol=10 * ANGLES)


def test_pin_x_transformers_rotary_is_rounded_by_a_cast() -> None:
    """`.bfloat16()` casts its buffer and then its positions: 257 becomes 256, one radian off in the first pair."""
    frequencies, _ = xt.RotaryEmbedding(32).bfloat16()(torch.tensor([257]))
    assert float(frequencies[0, 0, 0]) == 256
    q = torch.tensor([1.0, 0.0] * 16).expand(1, 1, 1, 32)
    rope, at = ww.Rotary(32, interleaved=True), torch.tensor([257])
    before = rope(q, q, at)[0]
    assert torch.equal(rope.bfloat16()(q, q, at)[0], before)


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


@pytest.mark.parametrize("dim", [2, 16, 64])
def test_x_transformers_sinusoid(dim: int) -> None:
    """Sines before cosines, with the first scale of 1 / sqrt(dim) set to one."""
    theirs = xt.ScaledSinusoidalEmbedding(dim, theta=5_000)
    with torch.no_grad():
        theirs.scale.fill_(1)
    wanted = theirs(torch.zeros(1, LENGTH, dim), offset=7)
    ours = ww.Sinusoidal(dim, theta=5_000.0, layout="half")(ww.positions(LENGTH, start=7))[0]
    torch.testing.assert_close(ours, wanted.detach(), rtol=0, atol=2 * ANGLES)


def test_x_transformers_learned() -> None:
    theirs = xt.AbsolutePositionalEmbedding(16, 32)
    scheme = ww.Learned(dim=16, max_length=32)
    with torch.no_grad():
        scheme.weight.copy_(theirs.emb.weight)
    wanted = theirs(torch.zeros(1, 20, 16), offset=5)
    # They scale the table by 1 / sqrt(dim) at every call.
    torch.testing.assert_close(scheme(ww.positions(20, start=5))[0] * 16**-0.5, wanted)
