"""FoPE: rotary whose waves are mixed."""

from math import pi

import pytest
import torch

import whatwhere as ww
from tests.samples import draw


def sampled(*sizes, seed=0, **settings):
    torch.manual_seed(seed)
    return ww.FoPE(*sizes, **settings)


@pytest.mark.parametrize("length", [7, 64, 1_000, 62_832, 1_000_000])
def test_waves_that_complete_a_turn_within_the_trained_length_are_kept(length):
    rope = ww.FoPE(32, length, gain=0.0)
    turns = length / ww.frequencies.wavelengths(ww.frequencies.inverse_frequencies(32))
    assert rope.waves == int((turns > 1).sum())
    torch.testing.assert_close(rope.kept_frequencies, ww.frequencies.inverse_frequencies(32)[turns > 1])
    assert (rope.kept_frequencies > 2 * pi / length).all()


@pytest.mark.parametrize("interleaved", [False, True])
def test_slow_pairs_are_unchanged(interleaved):
    """vLLM pads the sines with 0; the authors with 1, which mixes the two features of a pair."""
    rope, q = sampled(16, 64, interleaved=interleaved), draw(1, 2, 5, 16)
    assert rope.waves == 3
    mapped = rope(q, q, ww.positions(5, start=30))[0].detach()
    pairs = [(2 * n, 2 * n + 1) if interleaved else (n, n + 8) for n in range(8)]
    still = [n for pair in pairs[3:] for n in pair]
    moved = [n for pair in pairs[:3] for n in pair]
    assert torch.equal(mapped[..., still], q[..., still])
    assert ((mapped - q)[..., moved].abs().amax((0, 1, 2)) > 1e-3).all()


def test_coefficients_start_near_the_unit_matrix():
    rope = sampled(64, 100_000, 8)
    unit = torch.eye(rope.waves)
    for weight in (rope.cosines, rope.sines):
        noise = (weight - unit).detach()
        # Xavier's deviation of a tensor of three axes, which counts the last one into both of the others.
        assert float(noise.std()) == pytest.approx(0.3 * (2 / (rope.waves * (rope.waves + 8))) ** 0.5, rel=0.05)
    assert not torch.equal(rope.cosines, rope.sines)


def test_a_key_and_its_queries_share_coefficients():
    """As in vLLM, where the sets are those of the key heads."""
    rope, p = sampled(8, 100, 2), ww.positions(6)
    q, k = draw(1, 4, 6, 8, seed=1), draw(1, 2, 6, 8, seed=2)
    mapped_q, mapped_k = rope(q, k, p)
    for head in range(4):
        alone = ww.FoPE(8, 100)
        with torch.no_grad():
            alone.cosines.copy_(rope.cosines[head // 2])
            alone.sines.copy_(rope.sines[head // 2])
        own_q, own_k = alone(q[:, head : head + 1], k[:, head // 2 : head // 2 + 1], p)
        torch.testing.assert_close(own_q, mapped_q[:, head : head + 1], rtol=0, atol=1e-6)
        torch.testing.assert_close(own_k, mapped_k[:, head // 2 : head // 2 + 1], rtol=0, atol=1e-6)


def test_more_sets_than_key_heads():
    """A key then takes the set of the first of its queries."""
    rope, p = sampled(8, 100, 4), ww.positions(6)
    k = draw(1, 2, 6, 8)
    every = rope(k.repeat_interleave(2, dim=1), k, p)
    torch.testing.assert_close(every[1], every[0][:, ::2], rtol=0, atol=0)
