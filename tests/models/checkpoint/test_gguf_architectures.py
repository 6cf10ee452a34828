"""Architectures of GGUF: headers as llama.cpp's converter writes them, against configurations of transformers."""

from dataclasses import fields
from math import log
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import pytest

import whatwhere as ww
from whatwhere.analysis.subject import Absent, Subject
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.gguf_architectures import ARCHITECTURES, NOT_READ
from whatwhere.models.load_where import load_where

from ..tiny import config_of
from .gguf_headers import (
    CASES,
    DIM,
    FACTORS,
    GEMMA4,
    GEMMA4_FACTORS,
    HEAD,
    LATENT,
    LAYERS,
    ROPE,
    ROWS,
    SOME_KEYS,
    STEP,
    STEP_SETTINGS,
    THETA,
    WINDOW,
    YARN_KEYS,
    by_type,
    rope,
    write,
)

OWN_KEY_HEADS = ("num_kv_heads", "attn_config", "multi_query")
DERIVED = {"used", "assumed", "padding_idx", "notes"}


def read_of(model_type: str, settings: dict[str, Any], part: Literal["encoder"] | None = None) -> Any:
    layers = {
        name: LAYERS
        for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers")
        if hasattr(config_of(model_type), name)
    }
    tied = {"tie_word_embeddings": True}
    return ww.from_huggingface(config_of(model_type, **{**layers, **tied, **settings}), part=part)


def test_every_architecture_has_a_case() -> None:
    assert {case[0] for case in CASES} == ARCHITECTURES.keys()
    assert ARCHITECTURES.keys() <= set(gguf.MODEL_ARCH_NAMES.values())


@pytest.mark.parametrize(
    ("arch", "keys", "model_type", "settings"), CASES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_header_means_what_transformers_computes(
    arch: str, keys: dict[str, Any], model_type: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """All fields are equal but for the layout of pairs, which is llama.cpp's."""
    tied = arch != "dbrx"  # which transformers cannot tie
    tensors = GEMMA4_FACTORS if arch == "gemma4" else None
    result = Checkpoint.open(write(tmp_path / "a.gguf", arch, keys, tensors, tied=tied)).description
    settings = {**settings, "tie_word_embeddings": tied}
    two = keys.get("attention.head_count_kv") == 2 and not any(key in settings for key in OWN_KEY_HEADS)
    right = read_of(model_type, {"num_key_value_heads": 2, **settings} if two else settings, ARCHITECTURES[arch].part)
    for field in fields(result):
        one, other = getattr(result, field.name), getattr(right, field.name)
        if field.name == "query_key":
            pairs = ARCHITECTURES[arch].pairs
            assert all(plan is None or plan.settings["interleaved"] == (pairs == "interleaved") for plan in one)
            one, other = ([plan and {**plan.settings, "interleaved": 0} for plan in each] for each in (one, other))
        assert field.name in DERIVED or one == other, field.name


def test_architectures_that_are_not_read_have_their_reason(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write(tmp_path / "a.gguf", "jina-bert-v2", {}))
    assert checkpoint.config is None
    assert checkpoint.metadata["jina-bert-v2.block_count"] == LAYERS
    reason = "positions of the GGUF architecture 'jina-bert-v2' are not read: it has ALiBi in both directions"
    with pytest.raises(ww.errors.CheckpointError, match=reason):
        _ = checkpoint.description
    with pytest.raises(ww.errors.SettingError, match=reason):
        load_where(checkpoint)
    with pytest.raises(Absent, match=reason):
        _ = Subject(checkpoint, 0, lambda _: None).description
    named = [name for names in NOT_READ.values() for name in names]
    assert len(set(named)) == len(named)
    assert set(named) == set(gguf.MODEL_ARCH_NAMES.values()) - ARCHITECTURES.keys()


@pytest.mark.parametrize("key", ["rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"])
def test_a_magnitude_that_repeats_that_of_yarn(key: str, tmp_path: Path) -> None:
    """The converter of OLMo 3 writes transformers' attention_factor, 0.1 ln 4 + 1, which is YaRN's own."""
    plain = Checkpoint.open(write(tmp_path / "a.gguf", "olmo2", {**ROPE, **WINDOW, **YARN_KEYS})).description
    for factor in (1.0, 0.1 * log(4) + 1):
        keys = {**ROPE, **WINDOW, **YARN_KEYS, key: factor}
        description = Checkpoint.open(write(tmp_path / "b.gguf", "olmo2", keys)).description
        assert description == plain
    assert plain.wheres()[3].query_key.magnitude == pytest.approx(0.1 * log(4) + 1)
    with pytest.raises(ww.errors.SettingError, match=key):
        _ = Checkpoint.open(write(tmp_path / "c.gguf", "olmo2", {**keys, key: 0.1 * log(8) + 1})).description
    linear = {**ROPE, "rope.scaling.factor": 4.0, key: 0.1 * log(4) + 1}
    with pytest.raises(ww.errors.SettingError, match=key):
        _ = Checkpoint.open(write(tmp_path / "d.gguf", "qwen3", {**HEAD, **linear})).description


@pytest.mark.parametrize(
    ("arch", "own"),
    [
        ("phi3", {"attention_factor": 1.25}),
        ("phimoe", {"short_mscale": 1.25, "long_mscale": 1.25, "original_max_position_embeddings": 16}),
    ],
)
def test_longrope(arch: str, own: dict[str, Any], tmp_path: Path) -> None:
    """Phi-MoE's attention factor is that of the header, below the original length and beyond it."""
    keys = {**ROPE, "rope.scaling.original_context_length": 16, "rope.scaling.attn_factor": 1.25, **WINDOW}
    result = Checkpoint.open(write(tmp_path / "a.gguf", arch, keys, FACTORS)).description
    long, short = (FACTORS[f"rope_factors_{name}.weight"] for name in ("long", "short"))
    scaling = {"rope_type": "longrope", "short_factor": short, "long_factor": long, **own}
    length = {"original_max_position_embeddings": 16} if arch == "phi3" else {}
    assert result.query_key == read_of(arch, {**rope(**scaling), **length, "sliding_window": 6}).query_key
    one = {"rope_factors_long.weight": long}
    with pytest.raises(ww.errors.SettingError, match="rope_factors_long"):
        _ = Checkpoint.open(write(tmp_path / "b.gguf", arch, {**ROPE, **WINDOW}, one)).description


def test_llama3_of_step35_scales_half_of_the_heads_without_a_window(tmp_path: Path) -> None:
    """As its converter writes: a factor for each rotated pair, padded with 1; the published parameters are found."""
    scaling = ww.scaling.Llama3(
        factor=2.0, low_frequency_factor=1.0, high_frequency_factor=32.0, original_length=131_072
    )
    plain, scaled = (ww.Rotary(head_dim=16, theta=5e6, scaling=one).inverse_frequencies for one in (None, scaling))
    factors = [*(plain / scaled).tolist(), *[1.0] * 8]
    assert len(set(factors)) > 3
    keys = {**STEP, "rope.freq_base": 5e6}
    result = Checkpoint.open(write(tmp_path / "a.gguf", "step35", keys, {"rope_freqs.weight": factors})).description
    parameters = {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 32.0,
                  "original_max_position_embeddings": 131_072, "rope_theta": 5e6,
                  "partial_rotary_factor": 0.5}  # fmt: skip
    right = read_of("step3p5", {**STEP_SETTINGS, **by_type(parameters, {"rope_theta": 777.0})})
    assert result.query_key == right.query_key
    for wrong in ([*factors[:8], *[2.0] * 8], factors[:8], [3.0, *factors[1:]]):
        path = write(tmp_path / "b.gguf", "step35", keys, {"rope_freqs.weight": wrong})
        with pytest.raises(ww.errors.SettingError, match="rope_freqs"):
            _ = Checkpoint.open(path).description
    path = write(tmp_path / "c.gguf", "step35", {**keys, "attention.key_length": 2}, {"rope_freqs.weight": [1.0]})
    with pytest.raises(ww.errors.SettingError, match="rope_freqs"):
        _ = Checkpoint.open(path).description


@pytest.mark.parametrize("factors", [[1.0] * 8 + [4.0] * 8, [1.0] * 8, [8.0] * 16])
def test_other_factors_of_gemma4_are_refused(factors: list[float], tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", "gemma4", GEMMA4, {"rope_freqs.weight": factors})
    with pytest.raises(ww.errors.SettingError, match="rope_freqs"):
        _ = Checkpoint.open(path).description


def test_the_step_of_llama4_is_recovered(tmp_path: Path) -> None:
    """Frequency factors of 1 and 1 are a step: pairs with less than one rotation in 8,192 tokens are divided."""
    plain = ww.Rotary(head_dim=16, theta=500_000.0).inverse_frequencies
    factors = [8.0 if 8192 * float(frequency) / (2 * np.pi) < 1 else 1.0 for frequency in plain]
    keys = {**ROPE, "rope.freq_base": 500_000.0, "rope.dimension_count": 16}
    result = Checkpoint.open(write(tmp_path / "a.gguf", "llama4", keys, {"rope_freqs.weight": factors})).description
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
               "original_max_position_embeddings": 8192, "rope_theta": 500_000.0}  # fmt: skip
    assert result.query_key == read_of("llama4_text", {"rope_parameters": scaling}).query_key


@pytest.mark.parametrize(
    ("arch", "keys", "name"),
    [
        ("starcoder2", {**ROPE, **WINDOW}, "attention.sliding_window"),
        ("qwen2", {**ROPE, "attention.sliding_window_pattern": 2}, "attention.sliding_window_pattern"),
        ("gemma3", {**HEAD, **WINDOW, "attention.sliding_window_pattern": 0}, "attention.sliding_window_pattern"),
        ("gemma3", {**HEAD, **WINDOW, "attention.sliding_window_pattern": [True] * 1001},
         "attention.sliding_window_pattern"),
        ("starcoder", {"attention.head_count_kv": 2}, "attention.head_count_kv"),
        ("phi3", {**ROPE, **WINDOW, "attention.causal": False}, "attention.causal"),
        ("gemma2", {**HEAD, "attention.causal": False}, "attention.causal"),
        ("stablelm", {**ROPE, "attention.causal": False}, "is_causal"),
        ("llama", {**ROPE, "attention.causal": 0}, "attention.causal"),
        ("llama", {**ROPE, "rope.dimension_count": 8}, "partial_rotary_factor"),
        ("falcon", {"attention.head_count_kv": 1, "rope.dimension_count": 8}, "rope.dimension_count"),
        ("granite", {**ROPE, "rope.scaling.finetuned": False}, "granite.rope.scaling.finetuned"),
        ("granitehybrid", {"rope.dimension_count": 8, "attention.head_count_kv": SOME_KEYS}, "partial_rotary_factor"),
        ("baichuan", {"rope.freq_base": THETA}, "block_count"),
        ("deepseek2", {**LATENT, "attention.temperature_scale": 0.1}, "attention.temperature_scale"),
        ("deepseek2", {"attention.key_length": 24, "rope.freq_base": THETA}, "qk_nope_head_dim"),
        ("deepseek2", {**LATENT, **YARN_KEYS}, "rope.scaling.yarn_log_multiplier"),
        ("mistral3", {**HEAD, "attention.temperature_scale": 0.1}, "attention.temperature_scale"),
        ("mistral3", {**HEAD, **YARN_KEYS, "rope.scaling.yarn_log_multiplier": 0.5},
         "rope.scaling.yarn_log_multiplier"),
        ("afmoe", ROPE, "attention.sliding_window"),
        ("deepseek2-ocr", {"rope.freq_base": THETA}, "rope.freq_base"),
        ("deepseek2-ocr", YARN_KEYS, "rope.scaling.type"),
        ("deepseek2-ocr", WINDOW, "attention.sliding_window"),
        ("deepseek2-ocr", {"attention.head_count_kv": 2}, "attention.head_count_kv"),
        ("gemma4", GEMMA4, "rope_freqs.weight"),
        ("gemma4", {**GEMMA4, "attention.key_length_swa": 24}, "rope_freqs.weight"),
        ("glm-dsa", {**LATENT, **YARN_KEYS}, "rope.scaling.yarn_log_multiplier"),
        ("grok", {**ROPE, "attention.temperature_length": 1024}, "attention.temperature_length"),
        ("grok", {**ROPE, **YARN_KEYS, "rope.scaling.yarn_attn_factor": 2.0}, "rope.scaling.yarn_attn_factor"),
        ("plamo3", {**HEAD, **WINDOW, "attention.sliding_window_pattern": [True, False] * 4},
         "attention.sliding_window_pattern"),
        ("step35", {**STEP, "attention.sliding_window_pattern": 4, "attention.head_count": 4},
         "attention.sliding_window_pattern"),
        ("step35", {**STEP, "attention.head_count": [4, 8, 8] * 3}, "attention.head_count"),
        ("step35", {**STEP, "attention.head_count_kv": [2, 4] * 4 + [2]}, "attention.head_count_kv"),
        ("step35", {key: value for key, value in STEP.items() if key != "attention.key_length"},
         "attention.key_length"),
        ("step35", {**STEP, "rope.dimension_count": 16}, "rope.dimension_count"),
        ("step35", {**STEP, **YARN_KEYS}, "rope.scaling"),
        ("llama-embed", ROPE, "attention.causal"),
        ("llama-embed", {**ROPE, "attention.causal": True}, "attention.causal"),
        ("afmoe", {**ROPE, **WINDOW, "attention.sliding_window_pattern": 2}, "attention.sliding_window_pattern"),
        ("exaone-moe", {**ROPE, **WINDOW}, "attention.sliding_window_pattern"),
        ("exaone-moe", {**ROPE, **WINDOW, "attention.sliding_window_pattern": [True] * LAYERS},
         "attention.sliding_window_pattern"),
        ("smallthinker", {**ROPE, **WINDOW}, "attention.sliding_window"),
        ("gpt-oss", ROPE, "attention.sliding_window"),
        ("cohere2", ROPE, "attention.sliding_window"),
        ("jamba", {"attention.head_count_kv": [2, 0, 0, 0, 1, 0, 0, 0]}, "num_key_value_heads"),
        ("nemotron_h", {"attention.head_count_kv": SOME_KEYS, "feed_forward_length": 32}, "feed_forward_length"),
        ("nomic-bert", {"attention.causal": True}, "attention.causal"),
        ("llama", {**ROPE, "full_attention_interval": 4}, "full_attention_interval"),
        ("llama", {**ROPE, "attention.key_length_mla": 8}, "attention.key_length_mla"),
        ("gemma3", {**HEAD, **WINDOW, "attention.key_length_swa": 8}, "attention.key_length_swa"),
        ("gemma3", {**HEAD, **WINDOW, "attention.shared_kv_layers": 2}, "attention.shared_kv_layers"),
        ("qwen3next", {**ROPE, "attention.recurrent_layers": [True] * LAYERS}, "attention.recurrent_layers"),
        ("llama4", {**ROPE, "attention.sliding_window": 0}, "attention.sliding_window"),
        ("llama", {**ROPE, "attention.head_count": [4, 2] * 4}, "num_attention_heads"),
        ("lfm2", {"attention.head_count_kv": [0, 2, 0, 1, 0, 2, 0, 2]}, "num_key_value_heads"),
        ("gpt2", {"attention.head_count_kv": 2}, "attention.head_count_kv"),
        ("qwen2vl", {**ROPE, "rope.dimension_sections": [2, 2, 2, 2]}, "mrope_section"),
        ("qwen2", {**ROPE, "rope.dimension_sections": [4, 2, 2, 0]}, "rope.dimension_sections"),
        ("modern-bert", {"rope.freq_base": THETA}, "local_attention"),
        ("llama", {**ROPE, "attention.output_scale": 2.0}, "attention.output_scale"),
        ("olmo2", {**ROPE, **WINDOW, "attention.sliding_window_pattern": [True] * 3}, "layer_types"),
        ("exaone4", {**ROPE, "block_count": 64}, "exaone4.attention.sliding_window"),
        ("qwen2", {**ROPE, "rope.scaling.alpha": 2.0}, "rope.scaling.alpha"),
        ("qwen3", {**HEAD, "rope.scaling.attn_factor": 2.0}, "rope.scaling.attn_factor"),
        ("bloom", {"attention.max_alibi_bias": 4.0}, "attention.max_alibi_bias"),
        *(
            (arch, {"attention.key_length": 16, key: 12.0}, key)
            for key, names in (
                ("attention.scale", ("llama", "qwen2", "gemma2", "bloom")),
                ("attention.max_alibi_bias", ("llama", "bert")),
                ("embedding_scale", ("llama", "gemma")),
                ("attention.temperature_scale", ("llama",)),
                ("attention.temperature_length", ("llama",)),
            )
            for arch in names
        ),
    ],
)  # fmt: skip
def test_what_the_code_of_llama_cpp_does_not_read_is_refused(
    arch: str, keys: dict[str, Any], name: str, tmp_path: Path
) -> None:
    checkpoint = Checkpoint.open(write(tmp_path / "a.gguf", arch, keys))
    assert checkpoint.array("token_embd.weight").shape == (ROWS, DIM)
    with pytest.raises(
        (ww.errors.SettingError, ww.errors.ShapeError, ww.errors.CheckpointError), match=name
    ) as refused:
        _ = checkpoint.description
    assert f"config.pop('{arch}." not in str(refused.value)  # a header is not a configuration that one can change
