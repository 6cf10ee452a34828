"""The second tutorial: token vectors and sinusoids in PyTorch. Each docstring states a claim and what is true.

Its sentence is "The cat sat on the mat.", six tokens in 4 features; it prints what one run of it gave.
"""

from math import sqrt

import pytest
import torch
from transformers import BertConfig, GPT2Config, LlamaConfig

import whatwhere as ww
from whatwhere.where.frequencies import inverse_frequencies, offset_map

SENTENCE = "The cat sat on the mat."
VOCABULARY = {"The": 0, "cat": 1, "sat": 2, "on": 3, "the": 4, "mat": 5}
IDS = torch.tensor([[0, 1, 2, 3, 4, 5]])
BY_HAND = [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9], [0.1, 0.4, 0.7], [0.1, 0.2, 0.3], [0.3, 0.6, 0.9]]
PRINTED_ROWS = torch.tensor(
    [
        [2.5494626, 2.1836805, -0.6540274, 0.46965423],
        [0.97532207, 0.6788647, 0.96263754, -0.7236505],
        [-1.2769781, 1.6223831, 1.5896688, -0.56061673],
        [-0.19115989, 0.3766303, 0.92879164, -1.8446202],
        [-0.0528306, -0.43373212, 0.03201937, -1.5071114],
        [0.9814359, -0.16224287, 1.2935413, 0.2622175],
    ]
)
PRINTED_POSITIONS = torch.tensor(
    [
        [0.0000, 1.0000, 0.0000, 1.0000],
        [0.8415, 0.5403, 0.0100, 0.9999],
        [0.9093, -0.4161, 0.0200, 0.9998],
        [0.1411, -0.9900, 0.0300, 0.9996],
        [-0.7568, -0.6536, 0.0400, 0.9992],
        [-0.9589, 0.2837, 0.0500, 0.9988],
    ]
)
PRINTED_SUMS = torch.tensor(
    [
        [2.5495, 3.1837, -0.6540, 1.4697],
        [1.8168, 1.2192, 0.9726, 0.2763],
        [-0.3677, 1.2062, 1.6097, 0.4392],
        [-0.0500, -0.6134, 0.9588, -0.8451],
        [-0.8096, -1.0874, 0.0720, -0.5079],
        [0.0225, 0.1214, 1.3435, 1.2610],
    ]
)
HALF_A_DIGIT = 5.1e-5  # of four printed decimals, and the rounding of float32


@pytest.fixture
def layer():
    """Return the tutorial's input layer with the rows that it printed."""
    layer = ww.InputLayer(6, 4, ww.Sinusoidal(4))
    layer.tokens = ww.TokenEmbedding.from_weight(PRINTED_ROWS)
    return layer


def fresh_table(vocab_size, dim, seed=0):
    """Return a table initialized as nn.Embedding is."""
    torch.manual_seed(seed)
    return ww.TokenEmbedding(vocab_size, dim, init="torch")


def its_function(tokens, dim):
    """Return what its positional_encoding computes: sines in the even features, cosines in the odd ones."""
    table = torch.zeros(tokens, dim)
    angles = torch.arange(tokens)[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
    return table


def test_the_capital_makes_another_token():
    """ "The" (0) and "the" (4) have the same vector, being the same word. False: its own run prints cosine -0.334."""
    ids, _ = ww.text.encode(ww.text.from_vocabulary(VOCABULARY), "The the")
    assert ids == [0, 4]
    x = ww.TokenEmbedding.from_weight(PRINTED_ROWS)(torch.tensor(ids))
    assert ww.analysis.similarity(x[0], x[1]).item() == pytest.approx(-0.334, abs=5e-4)
    assert ww.analysis.similarity(x[0], x[1]).item() != pytest.approx(1, abs=0.5)


def test_lower_case_makes_them_one_token():
    """The same word, the same vector. True where the tokenizer writes everything in lower case: one id, one row."""
    tokenizer = ww.text.words(SENTENCE, lowercase=True)
    ids, tokens = ww.text.encode(tokenizer, SENTENCE)
    assert (tokens[0], ids[0]) == (tokens[4], ids[4])
    assert ww.text.words(SENTENCE).get_vocab_size() == tokenizer.get_vocab_size() + 1


def test_rows_made_equal_by_hand_diverge():
    """Its example table has equal rows 0 and 4. One step ends that: each row gets the gradient of its own positions."""
    table = ww.TokenEmbedding.from_weight(torch.tensor(BY_HAND))
    assert torch.equal(table.weight[0], table.weight[4])
    table(IDS).backward(torch.randn(1, 6, 3, generator=torch.Generator().manual_seed(0)))
    torch.optim.SGD(table.parameters(), lr=0.1).step()
    assert (table.weight[0] - table.weight[4]).abs().max() > 0.01


@pytest.mark.parametrize("dim", [4, 64, 300])
def test_fresh_rows_have_no_meaning(dim):
    """Similar words have similar vectors. Not before training: cosines of fresh rows spread by 1/sqrt(d) around 0."""
    rows = fresh_table(500, dim).weight.detach()
    pairs = torch.triu_indices(500, 500, offset=1)
    cosines = ww.analysis.similarity(rows[pairs[0]], rows[pairs[1]])
    assert cosines.mean().item() == pytest.approx(0, abs=0.1 / sqrt(dim))
    assert cosines.std().item() == pytest.approx(1 / sqrt(dim), rel=0.05)


@pytest.mark.parametrize("config", [GPT2Config(), BertConfig(), LlamaConfig()], ids=["GPT-2", "BERT", "Llama"])
def test_dimensions_below_the_vocabulary(config):
    """A vector has far fewer dimensions than the vocabulary has tokens. True of language models, in 768 and more."""
    assert 768 <= config.hidden_size < config.vocab_size / 5
    assert ww.parameters(config).tokens == config.vocab_size * config.hidden_size


def test_its_sentence_has_seven_tokens():
    """Its sentence has six tokens. With the full stop, which its list omits silently, it has seven."""
    ids, tokens = ww.text.encode(ww.text.words(SENTENCE), SENTENCE)
    assert tokens == ["The", "cat", "sat", "on", "the", "mat", "."]
    assert len(ids) == 7
    tokenizer = ww.text.from_vocabulary(VOCABULARY)
    assert ww.text.encode(tokenizer, SENTENCE[:-1])[0] == IDS[0].tolist()
    with pytest.raises(ww.errors.TextError, match=r"does not know '\.'"):
        ww.text.encode(tokenizer, SENTENCE)


def test_fresh_rows_are_sampled_from_n_0_1():
    """nn.Embedding samples its rows. True, from N(0, 1), as init="torch" does."""
    assert fresh_table(500, 64).weight.std().item() == pytest.approx(1, rel=0.02)


def test_its_printed_numbers_cannot_be_reproduced():
    """Its code prints these numbers. Only once: it sets no seed, and tables agree with equal seeds only."""
    assert torch.equal(fresh_table(10, 4, seed=1).weight, fresh_table(10, 4, seed=1).weight)
    assert not torch.isclose(fresh_table(10, 4, seed=1).weight, fresh_table(10, 4, seed=2).weight).any()


@pytest.mark.parametrize("dim", [4, 64])
def test_its_tokens_outweigh_its_positions(dim):
    """Beside N(0, 1), the encoding is the smaller: its norm is sqrt(d/2) everywhere, a token's about sqrt(d)."""
    norms = ww.Sinusoidal(dim)(ww.positions(100))[0].norm(dim=-1)
    assert norms.tolist() == pytest.approx([sqrt(dim / 2)] * 100, rel=1e-6)
    squares = fresh_table(5000, dim).weight.square().sum(-1)
    assert squares.mean().sqrt().item() == pytest.approx(sqrt(dim), rel=0.02)


def test_its_table_of_positions(layer):
    """The 24 numbers of the encoding, (6, 4). All right."""
    torch.testing.assert_close(layer.where.input(ww.positions(6))[0], PRINTED_POSITIONS, atol=HALF_A_DIGIT, rtol=0)


def test_its_sums(layer):
    """The 24 numbers of token plus position, (6, 4). All right."""
    torch.testing.assert_close(layer(IDS)[0], PRINTED_SUMS, atol=HALF_A_DIGIT, rtol=0)


def test_i_counts_pairs():
    """i is "the dimension". It counts pairs: feature 2 has i = 1 and frequency 1/100, as its own table shows."""
    assert inverse_frequencies(4).tolist() == pytest.approx([1, 1 / 100])
    result = ww.Sinusoidal(4)(ww.positions(6))[0, :, 2]
    torch.testing.assert_close(result, (torch.arange(6) / 100).sin())
    by_dimension = (torch.arange(6) / 10_000 ** (2 * 2 / 4)).sin()  # i = 2 in its formula
    assert (result - by_dimension)[1:].abs().min() > 0.009


def test_its_function_for_even_dimensions():
    """positional_encoding(seq_len, d_model) is the formula. True for even d_model."""
    for dim in (2, 4, 64):
        torch.testing.assert_close(its_function(6, dim), ww.Sinusoidal(dim)(ww.positions(6))[0], atol=1e-6, rtol=0)


def test_its_function_for_odd_dimensions():
    """It takes any d_model. False: five features have three sines and room for two cosines, and it stops."""
    with pytest.raises(RuntimeError, match="size"):
        its_function(6, 5)
    with pytest.raises(ww.errors.ShapeError, match=r"dim=5, but needs an even number"):
        ww.Sinusoidal(5)


def test_the_sums_do_not_depend_on_their_neighbors():
    """The sums are "context-aware". False: they depend on the position; attention is the first to read other tokens."""
    one, other = "the cat chased the mouse", "the mouse chased the cat"
    tokenizer = ww.text.words(one)
    ids = torch.tensor([ww.text.encode(tokenizer, text)[0] for text in (one, other)])
    torch.manual_seed(0)
    x = ww.InputLayer(4, 16, ww.Sinusoidal(16), init=1.0)(ids).detach()
    assert torch.equal(x[0, [0, 2, 3]], x[1, [0, 2, 3]])  # the, chased, the: same token, same position
    assert not torch.allclose(x[0, 0], x[0, 3])  # the same token at two positions
    q = x[:, None]
    y = ww.Where().at(ww.positions(5)).attention(q, q, q, causal=False)[:, 0]
    assert (y[0, [0, 2, 3]] - y[1, [0, 2, 3]]).abs().amax(-1).min() > 1e-3


def test_a_row_is_fixed():
    """A token has one vector in every context. True of the table."""
    tokenizer = ww.text.words("the bank of the river , the bank account")
    table = fresh_table(tokenizer.get_vocab_size(), 8)
    river, account = (table(torch.tensor(tokenizer.encode(t).ids)) for t in ("the river bank", "bank account"))
    assert torch.equal(river[2], account[0])


def test_unknown_words():
    """A token outside the vocabulary becomes <UNK> or subwords. True; its own dictionary knows neither and fails."""
    with pytest.raises(ww.errors.TextError, match="does not know 'dog'"):
        ww.text.encode(ww.text.from_vocabulary(VOCABULARY), "The dog")
    tokenizer = ww.text.from_vocabulary(VOCABULARY | {"<UNK>": 6}, unknown="<UNK>")
    assert ww.text.encode(tokenizer, "The dog")[0] == [0, 6]


@pytest.mark.parametrize("kind", ["bpe", "byte"])
def test_bytes_encode_every_word(kind):
    """Every vocabulary has unknown words. False of bytes: all text comes back from its ids."""
    tokenizer = ww.text.train(kind, SENTENCE, vocab_size=300)
    ids, _ = ww.text.encode(tokenizer, "The Döner sat, 猫!")
    assert tokenizer.decode(ids) == "The Döner sat, 猫!"


def test_absolute_position_can_be_read_off():
    """The encoding contains absolute positions. True: each vector is most like itself among 1,000."""
    pe = ww.Sinusoidal(64)(ww.positions(1000))[0].double()
    assert torch.equal((pe @ pe.T).argmax(-1), torch.arange(1000))


@pytest.mark.parametrize("k", [-1, -5, 3])
def test_relative_position_takes_a_map(k):
    """The encoding contains relative positions. Through a map: one matrix in W_Q shifts attention by k positions."""
    pe = ww.Sinusoidal(64)(ww.positions(200))[0].double()
    index = torch.arange(10, 190)
    attended = (pe[index] @ offset_map(k, 64).T @ pe.T).argmax(-1)
    assert torch.equal(attended, index + k)
    assert torch.equal((pe[index] @ pe.T).argmax(-1), index)  # without the map: itself


def test_relative_position_is_lost_in_the_sum(layer):
    """The sums contain relative positions. Not by themselves: shifted by 1,000, most inner products differ."""
    near, far = (layer(IDS, ww.positions(6, start=start))[0].double() for start in (0, 1000))
    bare = [ww.Sinusoidal(4)(ww.positions(6, start=start))[0].double() for start in (0, 1000)]
    torch.testing.assert_close(bare[0] @ bare[0].T, bare[1] @ bare[1].T, atol=1e-5, rtol=0)
    changed = (near @ near.T - far @ far.T).abs()
    assert (changed > 0.1).float().mean() > 0.5
