"""The first Qwen: theta and queries follow the length, as the code beside its files computes them."""

from math import ceil, log
from typing import Any

import numpy as np
import pytest
import torch

import whatwhere as ww

FILE: dict[str, Any] = {
    "architectures": ["QWenLMHeadModel"], "attn_dropout_prob": 0.0, "bf16": False, "emb_dropout_prob": 0.0,
    "hidden_size": 4096, "intermediate_size": 22_016, "initializer_range": 0.02, "kv_channels": 128,
    "layer_norm_epsilon": 1e-6, "max_position_embeddings": 32_768, "model_type": "qwen", "no_bias": True,
    "num_attention_heads": 32, "num_hidden_layers": 32, "onnx_safe": None, "rotary_emb_base": 10_000,
    "rotary_pct": 1.0, "scale_attn_weights": True, "seq_length": 8192, "tie_word_embeddings": False,
    "tokenizer_class": "QWenTokenizer", "use_cache": True, "use_dynamic_ntk": True, "use_flash_attn": "auto",
    "use_logn_attn": True, "vocab_size": 151_936,
}  # fmt: skip
SMALL = {**FILE, "hidden_size": 16, "kv_channels": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "seq_length": 6}


def test_the_published_file() -> None:
    description = ww.from_huggingface(FILE)
    assert (description.head_dim, description.key_heads, description.max_length) == (128, 32, 32_768)
    assert not description.tied


@pytest.mark.parametrize("changed", [{"use_dynamic_ntk": False}, {"use_logn_attn": False}, {"rotary_pct": 0.5}])
def test_flags_and_the_fraction_are_read(changed: dict[str, Any]) -> None:
    assert ww.from_huggingface(SMALL | changed) != ww.from_huggingface(SMALL)


@pytest.mark.parametrize("length", [1, 5, 6, 7, 12, 13, 24, 25, 40])
def test_scores_are_those_of_its_formulas(length: int) -> None:
    """Theta times alpha ** (d / (d - 2)), alpha of whole powers of two; queries times log n to the base of 6."""
    (where,) = ww.from_huggingface(SMALL).wheres()
    alpha = max(2 ** ceil(log(length / 6, 2) + 1) - 1, 1)
    theta = 10_000 * alpha ** (8 / 6)
    angles = np.arange(length)[:, None] * theta ** (-np.arange(0, 8, 2) / 8)
    logs = np.array([log(n, 6) if n > 6 else 1 for n in range(1, length + 1)])
    q, k = torch.randn(2, 1, 2, length, 8, generator=torch.Generator().manual_seed(length), dtype=torch.float64)
    complexes = [(x[..., :4].numpy() + 1j * x[..., 4:].numpy()) * np.exp(1j * angles) for x in (q, k)]
    wanted = np.einsum("bhic,bhjc,i->bhij", complexes[0], complexes[1].conj(), logs).real
    made_q, made_k = where.at(length).query_key(q, k)
    np.testing.assert_allclose((made_q @ made_k.mT).numpy(), wanted, rtol=0, atol=1e-5)  # tables are float32


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seq_length": 1}, "seq_length"),
        ({"scale_attn_weights": False}, "scale_attn_weights"),
        ({"use_dynamic_ntk": 1}, "use_dynamic_ntk"),
        ({"rotary_pct": 1.5}, "rotary_pct"),
        ({"rotary_emb_base": 0}, "rotary_emb_base"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
    ],
)
def test_what_its_code_does_not_do_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ww.errors.WhatWhereError, match=message):
        ww.from_huggingface(SMALL | changed)


def test_the_trained_length_is_needed() -> None:
    config = {key: value for key, value in SMALL.items() if key != "seq_length"}
    with pytest.raises(ww.errors.WhatWhereError, match="seq_length"):
        ww.from_huggingface(config)
