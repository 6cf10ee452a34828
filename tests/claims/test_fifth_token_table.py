"""The fifth tutorial: embeddings give meaning to token ids. Each docstring states a claim and what is true.

Its layer: 2,000 tokens, 128 features, "Xavier" values; its small table holds 0.1, 0.2, ..., 2.0.
"""

from math import sqrt

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import GPT2Config

import whatwhere as ww
from whatwhere import reference

SMALL = torch.arange(1, 21).reshape(5, 4) / 10
KING, MAN, WOMAN = torch.tensor([[0.52, 0.93, -0.12, 0.45], [0.30, 0.85, -0.20, 0.15], [0.25, 0.70, -0.05, 0.35]])
THE, CAT, SAT, DOG = 42, 156, 89, 201


def table(vocab_size=300, dim=8, init="glorot_normal"):
    torch.manual_seed(0)
    return ww.TokenEmbedding(vocab_size, dim, init=init)


def gradients(tokens, dim=8):
    return torch.randn(tokens, dim, generator=torch.Generator().manual_seed(1))


def two_steps(optimizer, e):
    """Train on "the" alone, then on "cat" alone; return the rows before and after the second step, and gradients."""
    g, ids = gradients(2), torch.arange(300)
    e(torch.tensor([THE])).backward(g[:1])
    optimizer.step()
    before = e(ids).detach().clone()
    optimizer.zero_grad()
    e(torch.tensor([CAT])).backward(g[1:])
    optimizer.step()
    return before, e(ids).detach(), g


def changed(before, after):
    return (before != after).any(-1).nonzero()[:, 0].tolist()


def test_its_lookups():
    """A sentence of three gives (3, 4), two give (2, 3, 4), each row as in the table. True."""
    tokenizer = ww.text.from_vocabulary({"a": 0, "cat": 1, "sat": 2, "on": 3, "mat": 4})
    ids = torch.tensor([tokenizer.encode(text).ids for text in ("a cat sat", "cat sat mat")])
    x = ww.TokenEmbedding.from_weight(SMALL)(ids)
    assert ids.tolist() == [[0, 1, 2], [1, 2, 4]]
    assert x[0].shape == (3, 4)
    assert x.shape == (2, 3, 4)
    assert x[0].flatten().tolist() == pytest.approx([n / 10 for n in range(1, 13)])
    assert x[1, 2].tolist() == pytest.approx([1.7, 1.8, 1.9, 2.0])


def test_its_usage_example():
    """Two sentences of three give (2, 3, 128), and "the" has the same vector in both. True."""
    x = table(2000, 128)(torch.tensor([[THE, CAT, SAT], [THE, DOG, SAT]]))
    assert x.shape == (2, 3, 128)
    assert torch.equal(x[0, 0], x[1, 0])
    assert not torch.equal(x[0, 1], x[1, 1])


def test_the_nearest_word_is_king_itself():
    """king - man + woman is nearest to queen. Of the words shown king is nearest; analogies exclude the words given."""
    other = torch.tensor([0.5, 0.1, 0.1, 0.1])
    e = torch.stack([KING, MAN, WOMAN, other])
    cosines = ww.analysis.similarity(KING - MAN + WOMAN, e)
    assert cosines.tolist()[:3] == pytest.approx([0.9671, 0.8553, 0.9655], abs=5e-5)
    result = ww.analysis.analogy(e, 1, 0, 2, k=1)
    assert cosines.argmax() == 0
    assert result.with_inputs.ids.tolist() == [[2]]  # woman, of vectors of norm 1
    assert result.without_inputs.ids.tolist() == [[3]]


@pytest.mark.parametrize(
    ("other", "shown", "right"),
    [([0.52, 0.58, 0.72, 0.79], 0.998, 0.9996), ([0.1, -0.5, 0.2, 0.9], 0.543, 0.4389)],
    ids=["dog", "car"],
)
def test_cosines_of_cat(other, shown, right):
    """cat and dog have cosine .998, cat and car .543. It is .9996 and .4389."""
    cosine = ww.analysis.similarity(torch.tensor([0.5, 0.6, 0.7, 0.8]), torch.tensor(other)).item()
    assert cosine == pytest.approx(right, abs=5e-5)
    assert cosine != pytest.approx(shown, abs=1e-3)


def test_positive_vectors_are_all_similar():
    """Similar vectors mean similar words. In the table 0.1 to 2.0, all positive, any two have cosine .936 or more.

    With the mean row subtracted, "a" and "mat" are opposites.
    """
    cosines = ww.analysis.similarity(SMALL[:, None], SMALL)
    assert cosines.min().item() == pytest.approx(0.936, abs=5e-4)
    centered = SMALL - SMALL.mean(0)
    assert ww.analysis.similarity(centered[0], centered[4]).item() == pytest.approx(-1, abs=1e-6)


@pytest.mark.parametrize(
    ("dim", "millions", "real"),
    [(64, 3.2, 3.2), (128, 6.4, 6.4), (768, 38.4, 38.6), (1280, 64.0, 64.3), (12_288, 614.4, 617.6)],
)
def test_parameters_for_50_000_tokens(dim, millions, real):
    """3.2, 6.4, 38.4, 64 and 614 million for 50,000 tokens. True; GPT-2 and GPT-3 have 50,257, a little more."""
    assert ww.parameters({"vocab_size": 50_000, "dim": dim}).tokens == pytest.approx(millions * 1e6, rel=1e-12)
    assert ww.parameters({"vocab_size": 50_257, "dim": dim}).tokens == pytest.approx(real * 1e6, abs=5e4)


@pytest.mark.parametrize(
    ("dim", "layers", "length", "share"), [(768, 12, 1024, 0.310), (12_288, 96, 2048, 0.0035)], ids=["GPT-2", "GPT-3"]
)
def test_the_share_of_the_table_falls_as_models_grow(dim, layers, length, share):
    """The table is the largest part only of small models: 31 % of GPT-2 small, 0.35 % of GPT-3."""
    counted = ww.parameters({"vocab_size": 50_257, "dim": dim, "max_length": length})
    blocks = layers * (12 * dim**2 + 13 * dim) + 2 * dim  # attention 4 d^2, feed-forward 8 d^2, biases and norms
    assert counted.tokens / (counted.total + blocks) == pytest.approx(share, rel=0.02)


@pytest.mark.parametrize(("vocab_size", "dim", "spread"), [(2000, 128, 0.0307), (50_257, 768, 0.0063)])
def test_xavier_shrinks_with_the_vocabulary(vocab_size, dim, spread):
    """Xavier is N(0, sqrt(2 / (V + d))). True, .0307 here; for GPT-2's table it is .0063, a third of GPT-2's own."""
    assert sqrt(2 / (vocab_size + dim)) == pytest.approx(spread, abs=5e-5)
    assert table(vocab_size, dim).weight.detach().std().item() == pytest.approx(spread, rel=0.01)
    assert table(vocab_size, dim, "normal").weight.detach().std().item() == pytest.approx(
        GPT2Config().initializer_range, rel=0.01
    )


def test_xavier_does_not_keep_the_variance_of_a_lookup():
    """Xavier "maintains variance". Not in a lookup, which sums nothing: ten times the tokens, a third as large."""
    ids = torch.arange(1000)
    few, many = (table(vocab_size, 128)(ids).detach().std().item() for vocab_size in (2000, 20_000))
    assert few / many == pytest.approx(sqrt(20_128 / 2128), rel=0.02)  # 3.1


def test_cosines_before_training():
    """Two rows have cosine about 0 before training. True on average; the spread in 64 features is 1/8."""
    e = table(1000, 64).weight.detach()
    cosines = ww.analysis.similarity(e[:, None], e)[torch.triu(torch.ones(1000, 1000, dtype=torch.bool), diagonal=1)]
    assert cosines.mean().item() == pytest.approx(0, abs=0.005)
    assert cosines.std().item() == pytest.approx(1 / sqrt(64), rel=0.02)


def test_sgd_updates_only_the_token_that_is_there():
    """E[156] -= lr * gradient, and only the row of token 156. True for plain SGD."""
    e = table()
    before, after, g = two_steps(torch.optim.SGD(e.parameters(), lr=0.1), e)
    assert changed(before, after) == [CAT]
    torch.testing.assert_close(after[CAT], before[CAT] - 0.1 * g[1])


def test_adam_also_moves_tokens_of_earlier_batches():
    """Only token 156 is updated. False with Adam, also where only the batch's rows are computed: "the" moves on.

    m = .9 * .1 g / (1 - .9^2) and v = .999 * .001 g^2 / (1 - .999^2), so m / sqrt(v) is .67 by the sign of g.
    """
    e = table()
    before, after, g = two_steps(ww.RowAdamW(e, lr=0.1, weight_decay=0.0), e)
    step = 0.1 * (0.9 * 0.1 / (1 - 0.9**2)) / sqrt(0.999 * 0.001 / (1 - 0.999**2))
    assert changed(before, after) == [THE, CAT]
    torch.testing.assert_close(after[THE], before[THE] - step * g[0].sign(), atol=1e-5, rtol=0)


def test_adamw_moves_every_row():
    """Only token 156 is updated. False with AdamW: its decay shrinks all rows, also of tokens that never occurred."""
    e = table()
    before, after, _ = two_steps(ww.RowAdamW(e, lr=0.1, weight_decay=0.01), e)
    assert changed(before, after) == list(range(300))
    unseen = [t for t in range(300) if t not in (THE, CAT)]
    torch.testing.assert_close(after[unseen], before[unseen] * (1 - 0.1 * 0.01))


def test_the_gradient_of_a_repeated_token_is_a_sum():
    """A token at positions 0 and 3 gets the sum of both gradients. True, and so for its backward loop."""
    e, g = table(), gradients(5)
    ids = torch.tensor([THE, CAT, SAT, THE, DOG])
    e(ids).backward(g)
    assert torch.equal(e.weight.grad[THE], g[0] + g[3])
    assert torch.equal(e.weight.grad[CAT], g[1])
    loop = reference.lookup_gradient(g.numpy().astype(np.float64), ids.numpy(), vocab_size=300)
    torch.testing.assert_close(e.weight.grad.double(), torch.from_numpy(loop), atol=1e-6, rtol=0)
    assert changed(torch.zeros(300, 8), e.weight.grad) == sorted({THE, CAT, SAT, DOG})


def test_a_tied_table_gets_a_gradient_in_every_row():
    """Only token 156 is updated. False where the output projection shares the table: every logit moves its row."""
    e, ids = table().double(), torch.tensor([CAT])
    hidden = e(ids)
    logits = e.readout(hidden)
    F.cross_entropy(logits, torch.tensor([SAT])).backward()
    assert changed(torch.zeros(300, 8), e.weight.grad) == list(range(300))
    g = logits.detach().softmax(-1) - F.one_hot(torch.tensor([SAT]), 300)
    weight = e.weight.detach().numpy()
    d_hidden, d_weight = reference.readout_gradient(g.numpy(), hidden.detach().numpy(), weight)
    both = torch.from_numpy(d_weight + reference.lookup_gradient(d_hidden, ids.numpy(), 300))
    torch.testing.assert_close(e.weight.grad, both, atol=1e-12, rtol=0)


def test_tying_saves_a_table():
    """Tying, W = E^T, needs fewer parameters. True: one table of V x d less, 38.6 million for GPT-2 small."""
    e, hidden = table(), gradients(3)
    torch.testing.assert_close(e.readout(hidden), hidden @ e.weight.T)
    sizes = {"vocab_size": 50_257, "dim": 768}
    saved = ww.parameters(sizes | {"tied": False}).total - ww.parameters(sizes | {"tied": True}).total
    assert saved == 38_597_376
    assert sum(p.numel() for p in e.parameters()) == 300 * 8


def test_cat_sat_and_sat_cat():
    """The texts "cat sat" and "sat cat" have the same vectors in another order. True; no longer with positions."""
    torch.manual_seed(0)
    layer, ids = ww.InputLayer(300, 8, ww.Sinusoidal(8)), torch.tensor([[CAT, SAT], [SAT, CAT]])
    first, second = layer.tokens(ids)
    assert torch.equal(first, second.flip(0))
    first, second = layer(ids)
    assert (first - second.flip(0)).abs().max() > 0.5
