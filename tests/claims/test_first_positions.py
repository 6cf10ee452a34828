"""The first tutorial, stage 2: positions. Each docstring states a claim and what is true.

Its scheme: sinusoids in 64 features, added to the token vectors.
"""

from math import acos, cos, degrees, pi, sin, sqrt

import pytest
import torch

import whatwhere as ww
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Batch, Expressions, held_out
from whatwhere.what.expressions import expression_tokenizer
from whatwhere.where.frequencies import inverse_frequencies, offset_map, wavelengths

TRAINED = 14  # tokens of the longest expression of the default training, six arguments


def encoding(tokens, dim=64, start=0):
    """Return PE of consecutive positions, in float64 from float32 values."""
    return ww.Sinusoidal(dim)(ww.positions(tokens, start=start))[0].double()


def value(position, feature):
    return ww.Sinusoidal(64)(torch.tensor([position]))[0, 0, feature].item()


def transformer(layers, direction):
    """Make a Transformer without positional encoding, with random weights, in float64."""
    torch.manual_seed(0)
    settings = Settings(task="expressions", lengths=(), layers=layers, direction=direction, device="cpu")
    return Transformer(20, [ww.Where()] * layers, settings).double().eval()


def ids(*texts):
    return torch.tensor([expression_tokenizer().encode(text).ids for text in texts])


def all_expressions():
    """Return each of the 5 x 1000 expressions of three digits once."""
    digits = torch.cartesian_prod(*[torch.arange(10)] * 3).repeat(5, 1)
    operators = torch.arange(5).repeat_interleave(1000)
    out = torch.full((5000, 8), 19)
    out[:, 0], out[:, 1], out[:, 7], out[:, 2:7:2] = operators + 12, 17, 18, digits + 2
    answers = torch.stack([*digits.unbind(1), digits.amax(1), digits.amin(1)])
    return Batch(out, answers.gather(0, operators[None])[0] + 2, operators, 0)


def test_attention_is_equivariant_not_invariant():
    """Attention is "permutation invariant". It is equivariant: shuffled input gives the same rows, shuffled."""
    model, x = transformer(2, "encoder"), ids("Max(1,6,2)")
    order = torch.tensor([4, 0, 7, 2, 6, 1, 3, 5])
    out, shuffled = model(x), model(x[:, order])
    torch.testing.assert_close(shuffled, out[:, order], atol=1e-12, rtol=0)
    assert (shuffled - out).abs().max() > 0.01


def test_one_token_is_invariant_to_the_order_of_the_others():
    """What attention makes of one token is the same in every order of the others. True."""
    model, x = transformer(2, "encoder"), ids("Max(1,6,2)")
    order = torch.tensor([0, 4, 7, 2, 6, 1, 3, 5])
    torch.testing.assert_close(model(x[:, order])[:, 0], model(x)[:, 0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_an_encoder_cannot_tell_first_1_6_2_from_first_6_2_1(layers):
    """Without positions, First(1,6,2) and First(6,2,1) look the same. True of an encoder of any depth."""
    first, second = transformer(layers, "encoder")(ids("First(1,6,2)", "First(6,2,1)"), at=0)
    torch.testing.assert_close(first, second, atol=1e-12, rtol=0)


def test_one_causal_layer_cannot_tell_them_apart():
    """Without positions, they look the same at the last token. True of one causal layer."""
    first, second = transformer(1, "decoder")(ids("First(1,6,2)", "First(6,2,1)"), at=-1)
    torch.testing.assert_close(first, second, atol=1e-12, rtol=0)


def test_two_causal_layers_tell_them_apart():
    """Without positions, they look the same. False of two causal layers: attention depends on the position."""
    first, second = transformer(2, "decoder")(ids("First(1,6,2)", "First(6,2,1)"), at=-1)
    assert (first - second).abs().max() > 1e-6


def test_best_score_that_ignores_order():
    """Without positions, nothing about First can be known. The most frequent digit is right for 0.43, not 0.1.

    Of three digits all are equal in 1 of 100 cases, two in 27 and none in 72; Max and Min need no order at all.
    """
    by_hand = (1 * 3 / 3 + 27 * 2 / 3 + 72 * 1 / 3) / 100
    every = all_expressions()
    ceiling = Expressions(trained=(3,)).baselines(3, every)["order-free ceiling"]
    first = Batch(*(part[:1000] for part in (every.ids, every.targets, every.groups)), 0)
    of_first = Expressions(trained=(3,)).baselines(3, first)["order-free ceiling"]
    assert by_hand == pytest.approx(0.43)
    assert of_first == pytest.approx(0.43, abs=1e-6)
    assert ceiling == pytest.approx((3 * 0.43 + 2) / 5, abs=1e-6)  # 0.658


def test_every_position_has_a_vector_of_its_own():
    """The vector of a position is unique. True: of 128 positions, the closest are neighbors, 1.47 apart."""
    distance = torch.pdist(encoding(128))
    neighbors = sqrt(2 * (1 - inverse_frequencies(64).cos()).sum())
    assert distance.min().item() == pytest.approx(neighbors, abs=1e-5)
    assert neighbors == pytest.approx(1.47, abs=0.005)


def test_inner_products_depend_on_the_offset_alone():
    """Positions i and i+k are alike in the same way everywhere. True of the inner product of the bare vectors."""
    pe = encoding(128)
    inner = pe @ pe.T
    for k in range(128):
        torch.testing.assert_close(inner.diagonal(k), inner[0, k].expand(128 - k), atol=1e-5, rtol=0)


def test_similarity_does_not_fall_with_distance():
    """Distances are "consistent". Not monotone: offset 6 is more alike than 5, and so on 38 times below 100."""
    pe = encoding(100)
    similarity = pe @ pe[0]
    rises = (similarity.diff() > 0).nonzero()[:, 0]
    assert rises[0] == 5
    assert len(rises) == 38


def test_random_projections_hide_the_offset():
    """Attention sees the offset. Not through random W_Q and W_K: scores vary as much along an offset as overall."""
    pe, g = encoding(128), torch.Generator().manual_seed(0)
    w_q, w_k = torch.randn(2, 64, 64, generator=g, dtype=torch.float64)
    scores = (pe @ w_q) @ (pe @ w_k).T
    along = torch.stack([scores.diagonal(k).std() for k in range(64)]).mean()
    assert along > 0.5 * scores.std()


@pytest.mark.parametrize(("init", "times"), [(0.15, 4.7), ("fan_in_uniform", 9.8), ("normal", 35)])
def test_position_outweighs_a_fresh_token(init, times):
    """The encoding "doesn't dominate". At the start it does: its mean square is 1/2, whatever the width.

    Beside N(0, 0.15) it is 4.7 times as large, beside the tutorial's +-0.125 9.8 times, beside GPT-2's 0.02 35 times.
    """
    torch.manual_seed(0)
    token = ww.TokenEmbedding(5000, 64, init=init).weight.detach().square().mean().sqrt()
    position = encoding(32).square().mean().sqrt()
    assert position.item() == pytest.approx(sqrt(0.5), abs=1e-6)
    assert (position / token).item() == pytest.approx(times, rel=0.02)


def test_why_the_original_multiplies_tokens_by_sqrt_d():
    """Rows of spread 1/sqrt(d), times sqrt(d), are larger than the encoding: 1 against 0.707."""
    torch.manual_seed(0)
    tokens = ww.TokenEmbedding(5000, 64, init=1 / 8, scale="sqrt_dim")(torch.arange(5000)).detach()
    assert tokens.square().mean().sqrt().item() == pytest.approx(1, rel=0.02)


def test_i_counts_pairs():
    """i is "the dimension index, 0 to 31". It counts pairs: 64 features have 32 frequencies."""
    assert len(inverse_frequencies(64)) == 32
    assert value(3, 10) == pytest.approx(sin(3 / 10_000 ** (2 * 5 / 64)), abs=1e-6)
    assert value(3, 11) == pytest.approx(cos(3 / 10_000 ** (2 * 5 / 64)), abs=1e-6)


@pytest.mark.parametrize(
    ("i", "printed", "right"), [(1, 1.17, 1.3335), (2, 1.37, 1.7783), (10, 3.98, 17.783), (31, 6812, 7498.9)]
)
def test_wavelength_factors(i, printed, right):
    """10000^(2i/64) is 1.17, 1.37, 3.98 and 6812 for i = 1, 2, 10 and 31. All four are false."""
    factor = 1 / inverse_frequencies(64)[i].item()
    assert factor == pytest.approx(right, rel=5e-5)
    assert factor != pytest.approx(printed, rel=0.05)


def test_longest_wavelength():
    """The slowest pair completes a turn in 2 pi x 6812 positions. False: in 2 pi x 7499 = 47,117."""
    longest = wavelengths(inverse_frequencies(64))[-1].item()
    assert longest == pytest.approx(47_117, abs=0.5)
    assert longest != pytest.approx(2 * pi * 6812, rel=0.05)


@pytest.mark.parametrize(
    ("position", "feature", "printed", "right"),
    [(1, 2, 0.755, 0.6816), (1, 3, 0.656, 0.7318), (4, 2, -0.266, 0.1415), (4, 3, -0.964, -0.9899)],
)
def test_features_2_and_3_of_positions_1_and_4(position, feature, printed, right):
    """PE(1, 2..3) = .755, .656 and PE(4, 2..3) = -.266, -.964. False; PE(4, 2) has even the wrong sign."""
    assert value(position, feature) == pytest.approx(right, abs=5e-5)
    assert value(position, feature) != pytest.approx(printed, abs=0.02)


@pytest.mark.parametrize(
    ("position", "first"), [(0, (0.0, 1.0)), (1, (0.841, 0.540)), (2, (0.909, -0.416)), (3, (0.141, -0.990))]
)
def test_fast_features(position, first):
    """Features 0 and 1 of positions 0 to 3. True; so are the last two of position 1."""
    assert (value(position, 0), value(position, 1)) == pytest.approx(first, abs=6e-4)
    assert (value(1, 62), value(1, 63)) == pytest.approx((0.0001, 1.0), abs=5e-5)


def test_slow_features():
    """Feature 62 is .0001, .0003, .0004, .0006 and 63 is .9999. The fourth is .0005, and the cosines are 1.0000."""
    sines = [value(p, 62) for p in (1, 2, 3, 4)]
    assert sines == pytest.approx([0.00013, 0.00027, 0.00040, 0.00053], abs=5e-6)
    assert round(sines[3], 4) == 0.0005
    assert all(value(p, 63) > 0.999_999_8 for p in (1, 2, 3, 4))


def test_sums_of_token_and_position():
    """The sums of all eight tokens in features 0, 1 and 63. True: the encoding is right to two decimals there."""
    shown = [(0, 1, 1), (0.84, 0.54, 1), (0.91, -0.42, 1), (0.14, -0.99, 1)]
    shown += [(-0.76, -0.65, 1), (-0.96, 0.28, 1), (-0.28, 0.96, 1), (0.66, 0.75, 1)]
    torch.testing.assert_close(encoding(8)[:, [0, 1, 63]], torch.tensor(shown, dtype=torch.float64), atol=0.005, rtol=0)


def test_feature_2_of_the_sixth_token():
    """The "6" at position 4 ends as [-.87, -.59, -.29, .., 1.09]. The third is -.02 + .14 = .12."""
    token = torch.tensor([-0.11, 0.06, -0.02, 0.09], dtype=torch.float64)
    total = (token + encoding(5)[4, [0, 1, 2, 63]]).tolist()
    assert total == pytest.approx([-0.87, -0.59, 0.12, 1.09], abs=0.005)
    assert total[2] != pytest.approx(-0.29, abs=0.3)


@pytest.mark.parametrize("k", [1, 3, 60, -2])
def test_a_shift_is_one_linear_map(k):
    """PE(p+k) is a linear function of PE(p). True: one matrix for every p, and it is a rotation."""
    pe, m = encoding(40, start=10), offset_map(k, 64)
    torch.testing.assert_close(pe @ m.T, encoding(40, start=10 + k), atol=1e-6, rtol=0)
    torch.testing.assert_close(m @ m.T, torch.eye(64, dtype=torch.float64), atol=1e-12, rtol=0)


def test_bounded():
    """All values lie in [-1, 1]. True."""
    assert encoding(2000).abs().max() <= 1


def test_not_every_feature_is_smooth():
    """Neighbors differ gradually. Not in features 0 and 1, which rotate by one radian, 57 degrees, at each step."""
    pe = encoding(20)
    cosines = ww.analysis.similarity(pe[:-1, :2], pe[1:, :2])
    assert [degrees(acos(c)) for c in cosines.tolist()] == pytest.approx([57.2958] * 19, abs=1e-3)
    assert pe[:, 0].diff().abs().max() > 0.9


def test_defined_but_untrained_beyond_the_trained_length():
    """It "works for any length". A vector exists; most of its features are outside the range seen in training."""
    far = encoding(1, start=1_000_000)
    assert bool(far.isfinite().all())
    seen = encoding(TRAINED)
    beyond = encoding(26)[25]  # the last token of twelve arguments
    outside = (beyond > seen.amax(0)) | (beyond < seen.amin(0))
    assert int(outside.sum()) > 32
    assert not list(ww.Sinusoidal(64).parameters())


def test_a_learned_table_ends():
    """Learned positions cannot pass their table. True, and a row beyond the training sequences stays noise."""
    learned = ww.Learned(dim=64, max_length=20)
    learned(ww.positions(TRAINED)).square().sum().backward()
    assert learned.weight.grad[:TRAINED].abs().sum(-1).min() > 0
    assert not learned.weight.grad[TRAINED:].any()
    with pytest.raises(IndexError, match="20 positions"):
        learned(ww.positions(21))


def test_initial_range_of_the_sum():
    """Token and position together lie in +-1.3 at the start. True: 0.267 + 1 with Glorot's table."""
    torch.manual_seed(0)
    layer = ww.InputLayer(20, 64, ww.Sinusoidal(64), init="glorot_uniform")
    assert 1.1 < layer(torch.arange(20)[None]).abs().max() < 1.3


def test_a_split_by_expression_leaks_nothing():
    """10,000 expressions of three digits are sampled and split at random. Then 4 of 5 in the test were trained on.

    There are only 5 x 1000, and 8,000 draws miss a given one with probability (1 - 1/5000)^8000 = 0.20. A split by a
    hash of the tokens has each expression either in training or in the test.
    """
    every = all_expressions()
    assert len(torch.unique(every.ids, dim=0)) == 5000
    kept = held_out(every.ids)
    assert 0.08 < kept.float().mean() < 0.12
    task = Expressions(trained=(3,), direction="encoder")
    sampled = task.sample(4000, torch.Generator().manual_seed(0))
    trained = {tuple(row) for row in sampled.ids[sampled.targets >= 0].tolist()}
    tested = {tuple(row) for row in task.test_set(3, 400).ids.tolist()}
    assert len(trained) > 1000
    assert len(tested) > 100
    assert not trained & tested
