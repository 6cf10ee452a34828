"""What claims measure, beside other people's code and the float64 reference."""

from math import sqrt

import numpy as np
import pytest
from transformers import BertConfig, DeepseekV3Config, GPT2Config, LlamaConfig, PretrainedConfig

import whatwhere as ww
from experiments.tutorials.tutorial_1_tokens import PUBLISHED, token_table
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
