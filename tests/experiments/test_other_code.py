"""What claims measure, beside other people's code and the float64 reference; and how what fails is refused."""

from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import BertConfig, DeepseekV3Config, GPT2Config, LlamaConfig, PretrainedConfig

import whatwhere as ww
from experiments.tutorials.tutorial_1_tokens import PUBLISHED, token_table
from experiments.tutorials.tutorial_2 import SENTENCE, VOCABULARY
from experiments.tutorials.tutorial_5 import CAT, DOG, ROWS, SAT, THE
from whatwhere import reference


def test_published_sizes() -> None:
    """Claims 0.4 and 0.16."""
    gpt2, deepseek = GPT2Config(), DeepseekV3Config()
    assert PUBLISHED["GPT-2"] == (gpt2.vocab_size, gpt2.n_embd)
    assert PUBLISHED["DeepSeek-V3"] == (deepseek.vocab_size, deepseek.hidden_size)
    assert ww.parameters(gpt2).tokens == 50_257 * 768


@pytest.mark.parametrize("config", [GPT2Config(), BertConfig(), LlamaConfig()], ids=["GPT-2", "BERT", "Llama"])
def test_dimensions_below_the_vocabulary(config: PretrainedConfig) -> None:
    """Claim 1.3."""
    assert 768 <= config.hidden_size < config.vocab_size / 5
    assert ww.parameters(config).tokens == config.vocab_size * config.hidden_size


@pytest.mark.parametrize("heads", [8, 12, 16])
def test_slopes(heads: int) -> None:
    """Claims 2.10 and 2.11."""
    assert ww.ALiBi(heads).slopes.tolist() == pytest.approx(reference.alibi_slopes(heads))


def test_the_sinusoid_has_a_map_of_each_offset() -> None:
    """Claim 3.3: exactly, where float32 does not hide it."""
    pe = reference.sinusoid(np.arange(515), 64)
    best, *_ = np.linalg.lstsq(pe[:-3], pe[3:], rcond=None)
    assert np.abs(pe[:-3] @ best - pe[3:]).max() < 1e-10


def test_the_initial_range_of_gpt_2() -> None:
    """Claim 4.6."""
    weight = token_table("normal", 2000, 768).weight.detach()
    assert weight.std().item() == pytest.approx(GPT2Config().initializer_range, rel=0.01)
    assert weight.std().item() > 3 * sqrt(2 / (50_257 + 768))


def test_the_gradient_of_a_repeated_token() -> None:
    """Claim 4.8."""
    table, ids = token_table("glorot_normal", ROWS, 8), torch.tensor([THE, CAT, SAT, THE, DOG])
    g = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    table(ids).backward(g)
    expected = reference.lookup_gradient(g.numpy().astype(np.float64), ids.numpy(), vocab_size=ROWS)
    torch.testing.assert_close(table.weight.grad, torch.from_numpy(expected).float(), atol=1e-6, rtol=0)


def test_the_gradient_of_a_tied_table() -> None:
    """Claim 4.9: the sum of what the lookup and the output projection give."""
    table, ids = token_table("glorot_normal", ROWS, 8).double(), torch.tensor([CAT])
    hidden = table(ids)
    logits = table.readout(hidden)
    F.cross_entropy(logits, torch.tensor([SAT])).backward()
    g = logits.detach().softmax(-1) - F.one_hot(torch.tensor([SAT]), ROWS)
    d_hidden, d_weight = reference.readout_gradient(g.numpy(), hidden.detach().numpy(), table.weight.detach().numpy())
    both = torch.from_numpy(d_weight + reference.lookup_gradient(d_hidden, ids.numpy(), ROWS))
    torch.testing.assert_close(table.weight.grad, both, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: _encode(SENTENCE), ww.errors.TextError, r"does not know '\.'"),
        (lambda: _encode("The dog"), ww.errors.TextError, "does not know 'dog'"),
        (lambda: ww.Sinusoidal(5), ww.errors.ShapeError, "dim=5, but needs an even number"),
        (lambda: ww.Rotary(5), ww.errors.ShapeError, "head_dim=5, but needs an even number"),
        (lambda: ww.Learned(8, max_length=6)(torch.tensor([6])), ww.errors.PositionError, "position 6 is beyond"),
        (lambda: ww.Learned(512, max_length=64)(ww.positions(65)), IndexError, "64 positions"),
    ],
    ids=["1.4", "1.10", "1.8", "2.5", "2.1", "3.8"],
)
def test_what_fails_is_refused_with_the_reason(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def _encode(sentence: str) -> object:
    return ww.text.encode(ww.text.from_vocabulary(VOCABULARY), sentence)
