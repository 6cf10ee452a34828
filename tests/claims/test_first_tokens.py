"""The first tutorial, stage 1: token vectors. Each docstring states a claim and what is true.

Its task: 20 tokens, 64 features, expressions such as Max(1,6,2).
"""

from math import sqrt

import pytest
import torch
from torch.nn import functional as F
from transformers import GPT2Config

import whatwhere as ww
from whatwhere.what.expressions import expression_tokenizer

MAX_1_6_2 = torch.tensor([[15, 17, 3, 19, 8, 19, 4, 18]])


def table(init="normal", vocab_size=20, dim=64, seed=0):
    torch.manual_seed(seed)
    return ww.TokenEmbedding(vocab_size, dim, init=init)


def rows_of(init, seed=0):
    return table(init, seed=seed).weight.detach()


def test_its_tokenizer():
    """Max(1,6,2) is [15, 17, 3, 19, 8, 19, 4, 18] with 20 tokens. True."""
    tokenizer = expression_tokenizer()
    assert tokenizer.encode("Max(1,6,2)").ids == MAX_1_6_2[0].tolist()
    assert tokenizer.get_vocab_size() == 20
    assert [tokenizer.token_to_id(digit) for digit in "0123456789"] == list(range(2, 12))


def test_its_five_operators():
    """The operators are First, Second, Last, Max and Min, ids 12 to 16; a sum or an equals sign is no token."""
    tokenizer = expression_tokenizer()
    operators = ("First", "Second", "Last", "Max", "Min")
    assert [tokenizer.token_to_id(name) for name in operators] == [12, 13, 14, 15, 16]
    for text in ("Sum(1,6,2)", "Max(1,6,2)=6"):
        with pytest.raises(ww.errors.TextError):
            ww.text.encode(tokenizer, text)


def test_lookup_returns_a_row_for_each_token():
    """Eight ids become (8, 64), and both commas have the same vector. True."""
    e = table()
    x = e(MAX_1_6_2[0])
    assert x.shape == (8, 64)
    assert torch.equal(x[3], x[5])
    assert torch.equal(x[4], e.weight[8])


def test_lookup_is_a_product_with_a_one_hot_row():
    """A lookup is the product of a one-hot row with E. True, to the last bit: every other term is zero."""
    e = table()
    one_hot = F.one_hot(MAX_1_6_2, 20).float()
    assert torch.equal(e(MAX_1_6_2), one_hot @ e.weight)


@pytest.mark.parametrize(
    ("vocab_size", "dim", "millions"),
    [(128_256, 4096, 525), (129_280, 7168, 927)],
    ids=["LLaMA-3 8B", "DeepSeek-V3"],
)
def test_tables_of_large_models(vocab_size, dim, millions):
    """LLaMA-3's 128,256 x 4,096 is right for 8B; the vocabulary of DeepSeek-V3 is 129,280, not 128,000."""
    tokens = ww.parameters({"vocab_size": vocab_size, "dim": dim}).tokens
    assert round(tokens / 1e6) == millions
    assert round(ww.parameters({"vocab_size": 128_000, "dim": 7168}).tokens / 1e6) != 927


def test_a_vector_has_no_more_information_than_its_id():
    """The dense vector "holds more" than the id. False: vector and id determine each other, so they carry the same."""
    e = table(vocab_size=1000, dim=16)
    ids = torch.randint(0, 1000, (5000,), generator=torch.Generator().manual_seed(1))
    back = torch.cdist(e(ids).double(), e.weight.double()).argmin(-1)
    assert torch.equal(back, ids)
    assert len(torch.unique(e(ids), dim=0)) == len(torch.unique(ids))


def test_a_linear_layer_on_one_hot_rows_is_an_embedding():
    """One-hot input "cannot learn". False: a linear layer on it is the table, and SGD moves both alike."""
    e = table()
    linear = torch.nn.Linear(20, 64, bias=False)
    linear.load_state_dict({"weight": e.weight.detach().T})
    one_hot = F.one_hot(MAX_1_6_2, 20).float()
    for _ in range(3):
        for module, given in ((e, MAX_1_6_2), (linear, one_hot)):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            module.zero_grad()
            module(given).pow(3).sum().backward()
            optimizer.step()
    torch.testing.assert_close(linear.weight.T, e.weight)


def test_two_dimensions_separate_20_tokens():
    """20 tokens need more than 20 dimensions. False: on a circle, each has the highest logit for its own vector."""
    angle = torch.arange(20) * 2 * torch.pi / 20
    e = ww.TokenEmbedding.from_weight(torch.stack([angle.cos(), angle.sin()], -1))
    ids = torch.arange(20)
    assert e.embedding_dim == 2
    assert torch.equal(e.readout(e(ids)).argmax(-1), ids)


def test_glorot_is_not_the_fan_in_bound():
    """Glorot is U(-sqrt(1/d), sqrt(1/d)) = +-0.125. False: that is the fan-in bound; Glorot is sqrt(6/84) = 0.267."""
    fan_in, glorot = rows_of("fan_in_uniform"), rows_of("glorot_uniform")
    assert fan_in.abs().max().item() == pytest.approx(0.125, abs=0.002)
    assert fan_in.std().item() == pytest.approx(0.125 / sqrt(3), rel=0.05)  # 0.072
    assert sqrt(6 / (20 + 64)) == pytest.approx(0.267, abs=0.0005)
    assert glorot.abs().max().item() == pytest.approx(0.267, abs=0.003)
    assert glorot.std().item() == pytest.approx(0.154, rel=0.05)


def test_initial_range():
    """Values lie in [-0.3, 0.3] with spread 0.15. So for Glorot, not for +-0.125; N(0, 0.15) reaches about 0.5."""
    assert 0.25 < rows_of("glorot_uniform").abs().max() < 0.3
    assert rows_of("fan_in_uniform").std() < 0.08
    largest = torch.stack([rows_of(0.15, seed=seed).abs().max() for seed in range(50)])
    assert bool((largest > 0.3).all())
    assert largest.mean().item() == pytest.approx(0.5, abs=0.05)


def test_the_update_rule():
    """E[t] <- E[t] - lr * gradient. True for SGD, and the rows of absent tokens stay."""
    e = table()
    before = e.weight.detach().clone()
    e(MAX_1_6_2).pow(2).sum().backward()
    gradient = e.weight.grad.clone()
    torch.optim.SGD(e.parameters(), lr=0.5).step()
    torch.testing.assert_close(e.weight.detach(), before - 0.5 * gradient)
    absent = [t for t in range(20) if t not in MAX_1_6_2[0].tolist()]
    assert torch.equal(e.weight[absent], before[absent])


def test_seven_rows_get_a_gradient_and_the_comma_gets_two():
    """Eight tokens, two of them commas: 7 rows get a gradient, and the comma's is the sum of both positions."""
    e = table()
    g = torch.randn(1, 8, 64, generator=torch.Generator().manual_seed(2))
    e(MAX_1_6_2).backward(g)
    touched = e.weight.grad.abs().sum(-1).nonzero()[:, 0].tolist()
    assert touched == sorted(set(MAX_1_6_2[0].tolist()))
    assert len(touched) == 7
    torch.testing.assert_close(e.weight.grad[19], g[0, 3] + g[0, 5])
    torch.testing.assert_close(e.weight.grad[15], g[0, 0])


def test_widths_of_gpt_2_and_gpt_3():
    """GPT-2 has 768 features and GPT-3 12,288, with 50,000 tokens and more. True: 50,257 in both."""
    gpt2 = GPT2Config()
    assert (gpt2.n_embd, gpt2.vocab_size) == (768, 50_257)
    assert ww.parameters(gpt2).tokens == 50_257 * 768
    assert ww.parameters({"vocab_size": 50_257, "dim": 12_288}).tokens == 617_558_016
