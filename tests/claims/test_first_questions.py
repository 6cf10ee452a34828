"""The first tutorial's 20 questions: the answers that are exact. Training's answers are `whatwhere compare`'s."""

from math import sin

import pytest
import torch
from torch.nn import functional as F

import whatwhere as ww
from whatwhere.where.frequencies import inverse_frequencies, wavelengths

MAX_1_6_2 = torch.tensor([[15, 17, 3, 19, 8, 19, 4, 18]])


@pytest.fixture
def layer():
    """Return the tutorial's input layer: 20 tokens, 64 features, sinusoids."""
    torch.manual_seed(0)
    return ww.InputLayer(20, 64, ww.Sinusoidal(64), init=0.15)


def test_2_shape_of_the_output(layer):
    """Question 2: eight tokens give (8, 64)."""
    assert layer(MAX_1_6_2)[0].shape == (8, 64)


def test_4_addition_is_concatenation_through_one_map(layer):
    """Question 4: adding is concatenating and then one linear map that both halves share; it keeps the width at 64."""
    e, pe = layer.tokens(MAX_1_6_2)[0].double(), ww.Sinusoidal(64)(ww.positions(8))[0].double()
    w = torch.randn(64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close((e + pe) @ w, torch.cat([e, pe], -1) @ torch.cat([w, w]), atol=1e-12, rtol=0)
    assert torch.cat([e, pe], -1).shape == (8, 128)


def test_5_learned_positions_end_at_their_table():
    """Question 5: a table of 10 learned positions, 15 tokens: an error; with spare rows, vectors that are noise."""
    with pytest.raises(IndexError, match="beyond this table"):
        ww.Learned(dim=64, max_length=10)(ww.positions(15))
    spare = ww.Learned(dim=64, max_length=15)
    spare(ww.positions(10)).sum().backward()
    assert not spare.weight.grad[10:].any()


def test_6_pe_2_4():
    """Question 6: the factor of feature 4 is 1.7783, an even feature is a sine, PE(2, 4) = sin(1.1247) = 0.9021.

    The tutorial's own factor, 1.37, would give 0.994.
    """
    result = ww.Sinusoidal(64)(torch.tensor([2]))[0, 0, 4].item()
    assert 1 / inverse_frequencies(64)[2].item() == pytest.approx(1.7783, abs=5e-5)
    assert result == pytest.approx(0.9021, abs=5e-5)
    assert result == pytest.approx(sin(1.1247), abs=5e-5)
    assert result != pytest.approx(sin(2 / 1.37), abs=0.05)


def test_7_position_zero():
    """Question 7: position 0 is 0, 1, 0, 1, ..., for sin 0 = 0 and cos 0 = 1."""
    assert ww.Sinusoidal(64)(torch.tensor([0]))[0, 0].tolist() == [0.0, 1.0] * 32


def test_8_equal_sums_at_two_positions():
    """Question 8: equal sums at 3 and 5 are neither the same token nor the same position.

    The positions differ, so the tokens must differ too, by exactly what the positions differ by.
    """
    pe = ww.Sinusoidal(64)(ww.positions(6))[0]
    assert (pe[3] - pe[5]).abs().max() > 0.1
    a = torch.randn(64, generator=torch.Generator().manual_seed(0))
    table = ww.TokenEmbedding.from_weight(torch.stack([a, a + pe[3] - pe[5], torch.zeros(64)]))
    layer = ww.InputLayer(3, 64, ww.Sinusoidal(64))
    layer.tokens = table
    x = layer(torch.tensor([[2, 2, 2, 0, 2, 1], [2, 2, 2, 0, 2, 0]]))
    torch.testing.assert_close(x[0, 3], x[0, 5])
    assert (x[1, 3] - x[1, 5]).abs().max() > 0.1


def test_9_tokens_ten_times_as_large(layer):
    """Question 9: after the layer norm, 10 E + PE is E + PE/10: position becomes ten times weaker, nothing else."""
    louder = ww.InputLayer(20, 64, ww.Sinusoidal(64), scale=10.0)
    louder.tokens.weight = layer.tokens.weight
    e, pe = layer.tokens(MAX_1_6_2).double(), ww.Sinusoidal(64)(ww.positions(8)).double()
    normalized = F.layer_norm(louder(MAX_1_6_2).double(), (64,), eps=0.0)
    torch.testing.assert_close(normalized, F.layer_norm(e + pe / 10, (64,), eps=0.0), atol=1e-5, rtol=0)
    assert (normalized - F.layer_norm(e + pe, (64,), eps=0.0)).abs().max() > 0.5


def test_10_low_features_have_higher_frequencies():
    """Question 10: the frequency 10000^(-2i/d) falls with i, from one turn in 6.3 positions to one in 47,117."""
    frequencies = inverse_frequencies(64)
    assert bool((frequencies.diff() < 0).all())
    assert wavelengths(frequencies)[[0, -1]].tolist() == pytest.approx([6.283, 47_117], rel=1e-4)


def test_11_the_two_commas(layer):
    """Question 11: the commas at 3 and 5 have the same token vector, different positions and different sums."""
    tokens, pe, x = layer.tokens(MAX_1_6_2)[0], ww.Sinusoidal(64)(ww.positions(8))[0], layer(MAX_1_6_2)[0]
    assert torch.equal(tokens[3], tokens[5])
    assert not torch.allclose(pe[3], pe[5])
    assert not torch.allclose(x[3], x[5])


def test_12_what_training_updates(layer):
    """Question 12: the token table is the only parameter; sinusoids have none."""
    assert [name for name, _ in layer.named_parameters()] == ["tokens.weight"]


def test_13_number_of_parameters(layer):
    """Question 13: 20 x 64 = 1,280 parameters."""
    assert ww.parameters(layer).total == 1280


def test_15_position_100():
    """Question 15: position 100 has a valid pattern of its own, by the same formula; it is not that of position 0."""
    pe = ww.Sinusoidal(64)(ww.positions(101))[0]
    assert pe[100, 0].item() == pytest.approx(sin(100), abs=1e-6)
    assert torch.cdist(pe[100:], pe[:100]).min() > 1
