"""The fourth tutorial: from text to the input of the encoder. Each test says a claim and what is true.

Its scheme: sinusoids in 512 features, from a formula of its own, added to the token vectors.
"""

from math import cos, pi, sin, sqrt

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere import reference
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.settings import Settings
from whatwhere.where.frequencies import inverse_frequencies, offset_map, wavelengths

CHASE = ("The cat chased the dog.", "The dog chased the cat.")
SWAP = torch.tensor([0, 4, 2, 3, 1, 5])  # places of the one sentence's tokens in the other


def encoding(tokens, dim=512, start=0):
    """Return PE of consecutive positions, in float64 from float32 values."""
    return ww.Sinusoidal(dim)(ww.positions(tokens, start=start))[0].double()


def printed_frequencies(dim):
    """Return 10000^(-2i/d), i the dimension 0..d-1, as the tutorial prints it."""
    return 10_000.0 ** (-2 * np.arange(dim) / dim)


def printed(tokens, dim):
    """Return the tutorial's PE: sine for even i, cosine for odd i, each with its own frequency."""
    angles = np.arange(tokens)[:, None] * printed_frequencies(dim)
    return np.where(np.arange(dim) % 2 == 0, np.sin(angles), np.cos(angles))


def chase():
    """Return the ids of both sentences; "The" and "the" are two words."""
    tokenizer = ww.text.words(CHASE[0])
    return torch.tensor([tokenizer.encode(text).ids for text in CHASE])


def transformer(layers, direction, scheme="none"):
    """Return a Transformer with random weights, in float64."""
    torch.manual_seed(0)
    settings = Settings(task="expressions", lengths=(), layers=layers, direction=direction, device="cpu")
    where = ww.scheme(scheme, dim=settings.dim, num_heads=settings.heads, max_length=8)
    return Transformer(6, [where] * layers, settings).double().eval()


def test_both_cats_have_one_id_and_one_row_but_two_sums():
    """Both "cat"s have the same id and the same word vector, and two different final vectors. True."""
    tokenizer = ww.text.from_vocabulary({"Your": 105, "cat": 6587, "is": 5475, "a": 3578, "lovely": 65})
    ids = tokenizer.encode("Your cat is a lovely cat").ids
    assert ids == [105, 6587, 5475, 3578, 65, 6587]
    layer = ww.InputLayer(6588, 512, ww.Sinusoidal(512))
    rows, x = layer.tokens(torch.tensor(ids)), layer(torch.tensor([ids]))[0]
    assert torch.equal(rows[1], rows[5])
    torch.testing.assert_close((x[5] - x[1]).double(), encoding(6)[5] - encoding(6)[1], atol=1e-6, rtol=0)
    assert (x[5] - x[1]).norm() > 1


def test_two_sentences_of_the_same_words_have_the_same_vectors_in_another_order():
    """Both sentences about the cat and the dog look "identical". Their sum does; in sequence they differ."""
    cat, dog = chase()
    table = ww.TokenEmbedding(6, 64, dtype=torch.float64)
    assert torch.equal(cat.sort().values, dog.sort().values)
    torch.testing.assert_close(table(cat).sum(0), table(dog).sum(0))
    assert torch.equal(table(dog), table(cat)[SWAP])
    assert not torch.allclose(table(dog), table(cat))


@pytest.mark.parametrize("layers", [1, 2, 6])
def test_an_encoder_treats_them_alike(layers):
    """Without positions a Transformer treats both alike. True of an encoder: each word has the same output in both."""
    cat, dog = transformer(layers, "encoder")(chase())
    torch.testing.assert_close(dog, cat[SWAP], atol=1e-12, rtol=0)
    torch.testing.assert_close(dog.mean(0), cat.mean(0), atol=1e-12, rtol=0)
    assert (dog - cat).abs().max() > 0.01


def test_causal_layers_tell_them_apart_from_the_second_on():
    """Without positions a Transformer treats both alike. A decoder of two layers does not: its mask has an order."""
    cat, dog = transformer(1, "decoder")(chase(), at=-1)
    torch.testing.assert_close(dog, cat, atol=1e-12, rtol=0)
    cat, dog = transformer(2, "decoder")(chase(), at=-1)
    assert (dog - cat).abs().max() > 1e-6


def test_positions_tell_them_apart():
    """With the positional encoding, the encoder tells them apart. True, even pooled."""
    cat, dog = transformer(1, "encoder", "sinusoidal")(chase())
    assert (dog.mean(0) - cat.mean(0)).abs().max() > 1e-6


def test_dimensions_are_even_or_odd_not_positions():
    """Sines stand at "even positions". At even dimensions: all positions, odd ones too, begin with a sine."""
    first_two = encoding(4)[:, :2].flatten().tolist()
    assert first_two == pytest.approx([f(p) for p in range(4) for f in (sin, cos)], abs=1e-6)
    assert first_two[2] != pytest.approx(cos(1), abs=0.1)


@pytest.mark.parametrize("dimension", [1, 2, 3, 64, 65, 255, 256])
def test_the_exponent_of_a_dimension(dimension):
    """The exponent of dimension i is 2i/d. It is i/d for even i and (i-1)/d for odd i: two share one frequency."""
    angle = 7 / 10_000 ** ((dimension - dimension % 2) / 512)
    right = cos(angle) if dimension % 2 else sin(angle)
    assert encoding(8)[7, dimension].item() == pytest.approx(right, abs=1e-6)
    assert printed(8, 512)[7, dimension] != pytest.approx(right, abs=1e-3)


def test_pe_1_1():
    """PE(1, 1) is .54 in the sample row. True of the right formula; the tutorial's own gives .5697."""
    assert encoding(2)[1, 1].item() == pytest.approx(0.5403, abs=5e-5)
    assert printed(2, 512)[1, 1] == pytest.approx(0.5697, abs=5e-5)


def test_the_printed_formula_has_no_constant_length():
    """All vectors of one width have the length sqrt(d/2). By the printed formula they have not.

    In 64 features: 5.657 against 5.647 to 5.717 among the first six alone.
    """
    right, wrong = encoding(6, dim=64).norm(dim=-1), np.linalg.norm(printed(6, 64), axis=-1)
    assert right.tolist() == pytest.approx([sqrt(32)] * 6, abs=1e-6)
    assert (wrong.min(), wrong.max()) == pytest.approx((5.647, 5.717), abs=5e-4)


def test_the_printed_formula_has_no_map_of_an_offset():
    """PE(p+k) is a linear function of PE(p). True of the right formula; by the printed one no matrix does it.

    Its sines have no cosine of the same frequency beside them: the best matrix for k = 3 errs by about 1.07.
    """

    def largest_error(pe):
        best, *_ = np.linalg.lstsq(pe[:-3], pe[3:], rcond=None)
        return np.abs(pe[:-3] @ best - pe[3:]).max()

    assert largest_error(printed(515, 64)) == pytest.approx(1.07, abs=0.06)
    assert largest_error(reference.sinusoid(np.arange(515), 64)) < 1e-10
    torch.testing.assert_close(encoding(40, 64) @ offset_map(3, 64).T, encoding(40, 64, start=3), atol=1e-6, rtol=0)


def test_the_printed_formula_wastes_half_of_its_features():
    """The slowest feature turns once in 6.1e8 positions, by the printed formula. Rightly once in 60,611.

    Printed, 256 of 512 features turn by a ten-thousandth or less a position; rightly none does.
    """
    frequencies = inverse_frequencies(512)
    assert 2 * pi / printed_frequencies(512)[-1] == pytest.approx(6.1e8, rel=0.01)
    assert wavelengths(frequencies)[-1].item() == pytest.approx(60_611, abs=0.5)
    assert (printed_frequencies(512) < 1.001e-4).sum() == 256
    assert frequencies.min() > 1e-4


@pytest.mark.parametrize("layout", ["interleaved", "half", "tensor2tensor"])
@pytest.mark.parametrize(("position", "shown"), [(0, 0.01), (1, 0.02)])
def test_the_last_feature_of_the_sample_rows(layout, position, shown):
    """The rows of positions 0 and 1 end in 0.01 and 0.02. The last is a slow cosine: both end in 1.00."""
    last = ww.Sinusoidal(512, layout=layout)(ww.positions(2))[0, position, -1].item()
    assert last == pytest.approx(1, abs=1e-7)
    assert printed(2, 512)[position, -1] == pytest.approx(1, abs=1e-7)
    assert last != pytest.approx(shown, abs=0.5)


def test_the_sums_of_hello_world():
    """The sums [.23, .55, .., .13] and [1.73, .88, .., .47] are right as arithmetic; rightly they end in 1.12, 1.45."""
    ids = ww.text.from_vocabulary({"Hello": 152, "world": 856}).encode("Hello world").ids
    layer, shown = ww.InputLayer(857, 512, ww.Sinusoidal(512)), [0, 1, 511]
    with torch.no_grad():
        layer.tokens.weight[152, shown] = torch.tensor([0.23, -0.45, 0.12])
        layer.tokens.weight[856, shown] = torch.tensor([0.89, 0.34, 0.45])
    x = layer(torch.tensor([ids]))[0, :, shown].flatten().tolist()
    assert x == pytest.approx([0.23, 0.55, 1.12, 1.73, 0.88, 1.45], abs=0.005)
    assert (x[2] - 1 + 0.01, x[5] - 1 + 0.02) == pytest.approx((0.13, 0.47), abs=0.005)
    assert x[2] != pytest.approx(0.13, abs=0.5)
    assert x[5] != pytest.approx(0.47, abs=0.5)


def test_bounded_is_not_small():
    """Values in [-1, 1] keep positions "from dominating the word embeddings". They do not: 16 long against 0.45.

    Every position is sqrt(512/2) = 16 long, 35 times a row of N(0, 0.02).
    """
    torch.manual_seed(0)
    rows = ww.TokenEmbedding(2000, 512).weight.detach().norm(dim=-1)
    where = encoding(512)
    assert where.abs().max() <= 1
    assert where.norm(dim=-1).tolist() == pytest.approx([16] * 512, abs=1e-5)
    assert (16 / rows).mean().item() == pytest.approx(16 / (0.02 * sqrt(512)), rel=0.01)  # 35.4


def test_every_position_has_its_own_vector():
    """Each position gets a unique encoding. True: of 512 positions, the closest are neighbors, 3.71 apart."""
    neighbors = sqrt(2 * (1 - inverse_frequencies(512).cos()).sum())
    assert torch.pdist(encoding(512)).min().item() == pytest.approx(neighbors, abs=1e-5)
    assert neighbors == pytest.approx(3.71, abs=0.005)


def test_a_position_has_one_vector_in_all_sentences():
    """The encoding is computed once and is the same in all sentences. True of a fixed scheme and of packed texts."""
    layer, g = ww.InputLayer(100, 512, ww.Sinusoidal(512)), torch.Generator().manual_seed(0)
    ids = torch.randint(100, (2, 8), generator=g)
    added = layer(ids) - layer.tokens(ids)
    torch.testing.assert_close(added.double(), encoding(8).expand(2, 8, 512), atol=1e-6, rtol=0)
    packed = layer(ids, ww.Positions.packed([3, 5])) - layer.tokens(ids)
    expected = torch.cat([encoding(3), encoding(5)])
    torch.testing.assert_close(packed.double(), expected.expand(2, 8, 512), atol=1e-6, rtol=0)


def test_random_positions_are_not_the_same_in_all_sentences():
    """The encoding is the same in all sentences. False where positions are drawn anew for each of them."""
    randomized = ww.Positions.randomized(8, max_length=100, batch=2, generator=torch.Generator().manual_seed(0))
    rows = ww.Sinusoidal(512)(randomized)
    assert (rows[0] - rows[1]).abs().max() > 0.5


def test_longer_sequences_have_vectors_that_training_never_showed():
    """It "can potentially handle longer sequences". A vector exists, but most of its features are new to the model.

    After 64 positions, every pair that turned by less than a quarter leaves all that was seen: 152 of 256 pairs.
    """
    seen, following = encoding(64), encoding(1, start=64)[0]
    new = (following > seen.amax(0)) | (following < seen.amin(0))
    slow = inverse_frequencies(512) * 64 < pi / 2
    assert int(slow.sum()) == 152
    assert bool(new.unflatten(0, (256, 2))[slow].all())
    with pytest.raises(IndexError, match="64 positions"):
        ww.Learned(512, max_length=64)(ww.positions(65))


def test_50_000_words_fit_in_512_features():
    """50,000 words are represented in 512 features. True: of 25.6 million numbers, each row is nearest to itself."""
    torch.manual_seed(0)
    table, ids = ww.TokenEmbedding(50_000, 512), torch.arange(0, 50_000, 499)
    assert ww.parameters(table).total == 25_600_000
    with torch.no_grad():
        assert torch.equal(table.readout(table(ids)).argmax(-1), ids)
