"""Every scaling of rotary equals Hugging Face transformers', within the trained length and beyond it."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama import modeling_llama as llama

import whatwhere as ww

TRAINED, EXTENDED = 256, 1024
FREQUENCY = 1e-6  # theirs are float32; a power, a ramp and a quotient round it a few times
SHORT = [1.0 + 0.01 * n for n in range(32)]
LONG = [1.0 + 0.5 * n for n in range(32)]
YARN: dict[str, Any] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED}
LONGROPE: dict[str, Any] = {**YARN, "rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG}

# What a configuration says, and what that is here; heads of 64.
CASES: dict[str, tuple[dict[str, Any], ww.scaling.Scaling]] = {
    "linear": ({"rope_type": "linear", "factor": 4.0}, ww.scaling.Linear(4.0)),
    "dynamic": ({"rope_type": "dynamic", "factor": 4.0}, ww.scaling.DynamicNTK(4.0, EXTENDED)),
    "yarn": (YARN, ww.scaling.YaRN(4.0, TRAINED)),
    "yarn, not truncated": (
        {**YARN, "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False},
        ww.scaling.YaRN(32.0, 4096, truncate=False),
    ),
    "yarn of DeepSeek": (
        {**YARN, "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 0.707},
        ww.scaling.YaRN(40.0, 4096, mscale=1.0, mscale_all_dim=0.707),
    ),
    "yarn with all settings": (
        {**YARN, "factor": 2.0, "beta_fast": 4.0, "beta_slow": 0.25, "attention_factor": 1.7},
        ww.scaling.YaRN(2.0, TRAINED, beta_fast=4.0, beta_slow=0.25, attention_factor=1.7),
    ),
    "longrope": (LONGROPE, ww.scaling.LongRoPE(SHORT, LONG, TRAINED, factor=4.0)),
    "longrope with its magnitude": (
        {**LONGROPE, "attention_factor": 1.3},
        ww.scaling.LongRoPE(SHORT, LONG, TRAINED, factor=4.0, attention_factor=1.3),
    ),
    "llama3": (
        {**YARN, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        ww.scaling.Llama3(8.0, TRAINED),
    ),
    "proportional": (
        {"rope_type": "proportional", "factor": 2.0, "partial_rotary_factor": 0.4},
        ww.scaling.Proportional(0.4, 2.0),
    ),
}
EACH = pytest.mark.parametrize("name", CASES)


def config_of(parameters: dict[str, Any], theta: float) -> LlamaConfig:
    """Return a Llama with heads of 64 whose max_position_embeddings is the extended length."""
    return LlamaConfig(
        hidden_size=128, num_attention_heads=2, head_dim=64, max_position_embeddings=EXTENDED,
        rope_parameters={"rope_theta": theta, **parameters},
    )  # fmt: skip


def assert_same_turns(ours: tuple[Tensor, ...], theirs: tuple[Tensor, Tensor], ids: Tensor, rope: ww.Rotary) -> None:
    """Compare cosines and sines, (batch, tokens, pairs), as closely as their float32 angles allow.

    A frequency is made in four roundings of float32 or less, the angle in one more: off by 5 * 6e-8 of itself.
    """
    fastest = ww.frequencies.inverse_frequencies(rope.rotary_dim, rope.theta)
    bound = rope.magnitude * (ids[..., None] * fastest * 3e-7 + 2e-7)
    for mine, wanted in zip(ours, theirs, strict=True):
        pairs = mine.shape[-1]
        assert ((mine[:, 0] - wanted[..., :pairs]).abs() <= bound).all()


@EACH
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
def test_frequencies_and_magnitude(name: str, theta: float) -> None:
    parameters, scaling = CASES[name]
    make = ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
    read = ww.from_huggingface(config_of(parameters, theta)).query_key[0]
    assert read is not None
    assert (read.settings["theta"], repr(read.build().scaling)) == (theta, repr(scaling))
    for length in (None, 17, TRAINED, TRAINED + 1, EXTENDED, EXTENDED + 1, 20_000):
        theirs, magnitude = make(config_of(parameters, theta), "cpu", seq_len=length)
        lengths = None if length is None else torch.tensor(length)
        ours = scaling.frequencies(64, theta, lengths=lengths)
        torch.testing.assert_close(ours.float(), theirs, rtol=FREQUENCY, atol=0)
        assert scaling.magnitude == pytest.approx(magnitude, rel=1e-12)


@EACH
@pytest.mark.parametrize("length", [20, TRAINED, TRAINED + 1, 3 * EXTENDED])
def test_modules(name: str, length: int) -> None:
    """The module chooses its regime by itself, from the largest position."""
    parameters, scaling = CASES[name]
    module = llama.LlamaRotaryEmbedding(config_of(parameters, 10_000.0))
    ids = torch.arange(length)[None]
    rope = ww.Rotary(64, scaling=scaling)
    assert_same_turns(rope.bind(ww.positions(length)), module(torch.zeros(1), ids), ids, rope)
    q, k = torch.randn(2, 1, 2, length, 64)
    theirs = llama.apply_rotary_pos_emb(q, k, *module(q, ids))
    for mine, wanted in zip(rope(q, k, ww.positions(length)), theirs, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=5 * rope.magnitude * (length * 4e-7 + 4e-7))
