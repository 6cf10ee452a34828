"""PoPE equals x-transformers' PolarEmbedding: the scores, with phases on either side."""

from math import pi

import pytest
import torch
from x_transformers import x_transformers as xt

import whatwhere as ww

LENGTH = 512
ANGLES = LENGTH * 1.2e-7  # its angles are float32: p * 6e-8 from the angle, as much from the frequency


@pytest.mark.parametrize("head_dim", [1, 7, 16])
def test_scores(head_dim: int) -> None:
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


def test_keys_without_a_phase_are_the_same_vectors() -> None:
    theirs = xt.PolarEmbedding(8, heads=1)
    k = torch.randn(1, 1, LENGTH, 8)
    wanted = xt.apply_polar_pos_emb(k, theirs(torch.arange(LENGTH))[0])
    torch.testing.assert_close(ww.PoPE(8, 1)(k, k, ww.positions(LENGTH))[1], wanted, rtol=0, atol=5 * ANGLES)


def test_pin_its_phases_stop_learning_beyond_the_clamp() -> None:
    theirs = xt.PolarEmbedding(4, heads=1)
    with torch.no_grad():
        theirs.learned_bias.fill_(0.1)
    theirs(torch.arange(3))[1].sum().backward()
    assert not theirs.learned_bias.grad.any()
