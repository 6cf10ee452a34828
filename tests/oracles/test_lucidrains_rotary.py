"""Axial rotary and xPos equal rotary-embedding-torch and x-transformers, at the same center."""

import pytest
import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from torch import Tensor
from x_transformers import x_transformers as xt

import whatwhere as ww

LENGTH = 512
ANGLES = LENGTH * 1.2e-7  # both take angles in float32: p * 6e-8 from the angle, as much from the frequency
# Their factors are float32 powers: off by a few roundings of an exponent of up to 1.
FACTORS = 1e-6


def queries_and_keys(head_dim: int, tokens: int = LENGTH) -> tuple[Tensor, Tensor]:
    """Sample three heads for two sequences."""
    return torch.randn(2, 3, tokens, head_dim), torch.randn(2, 3, tokens, head_dim)


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
    for mine, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=FACTORS, atol=10 * ANGLES)


@pytest.mark.parametrize("scale_base", [512, 100])
def test_xpos_of_x_transformers(scale_base: int) -> None:
    """With a position for each token of each sequence; its center is half of what lies one beyond the largest."""
    q, k = queries_and_keys(32)
    ids = torch.stack([torch.arange(LENGTH), torch.arange(LENGTH) // 2 * 2])
    module = xt.RotaryEmbedding(32, use_xpos=True, scale_base=scale_base, base=5_000)
    frequencies, scale = module(ids)
    xpos = ww.XPos(32, 5_000.0, interleaved=True, scale_base=float(scale_base), center=LENGTH // 2)
    for x, mine, factor in zip((q, k), xpos(q, k, ids), (scale, scale**-1), strict=True):
        wanted = xt.apply_rotary_pos_emb(x, frequencies, factor)
        bound = 10 * (ANGLES + FACTORS) * 3.5 ** (LENGTH / 2 / scale_base)
        torch.testing.assert_close(mine, wanted, rtol=0, atol=bound)


# Where they are wrong: pinned, so that we notice when it is no longer so


def test_pin_a_center_that_moves_while_decoding() -> None:
    """A key that was mapped under one length does not fit a query of the next; they keep keys unmapped therefore."""
    module, q = xt.RotaryEmbedding(32, use_xpos=True), torch.zeros(1, 1, 1, 32)
    q[..., :2] = 1.0  # the fastest pair alone
    k = q.clone()

    def score(length: int) -> float:
        """The last query of so many tokens against the first key, as it was when it stood alone."""
        frequencies, scale = module(torch.arange(length))
        first, factor = module(torch.arange(1))
        query = xt.apply_rotary_pos_emb(q, frequencies[:, -1:], scale[:, -1:])
        return float((query * xt.apply_rotary_pos_emb(k, first, factor**-1)).sum())

    def at_once(length: int) -> float:
        frequencies, scale = module(torch.arange(length))
        query = xt.apply_rotary_pos_emb(q, frequencies[:, -1:], scale[:, -1:])
        return float((query * xt.apply_rotary_pos_emb(k, frequencies[:, :1], scale[:, :1] ** -1)).sum())

    xpos = ww.XPos(32, interleaved=True)
    for length in (200, 400):
        assert abs(score(length) / at_once(length) - 1) > 0.2
        rotated, _ = xpos(q, k, ww.positions(1, start=length - 1))
        cached = xpos(q, k, ww.positions(1))[1]
        assert float((rotated * cached).sum()) == pytest.approx(at_once(length), abs=1e-4)


def test_pin_factors_are_silently_infinite() -> None:
    at = torch.tensor([0, 80_000])
    _, scale = xt.RotaryEmbedding(32, use_xpos=True)(at)
    assert not bool((scale**-1).isfinite().all())
    q = torch.ones(1, 1, 2, 32)
    with pytest.raises(ww.errors.PositionError, match="position 80000 is 40000 away from XPos's center 40000"):
        ww.XPos(32, interleaved=True, center=40_000)(q, q, torch.tensor([40_000, 80_000]))
