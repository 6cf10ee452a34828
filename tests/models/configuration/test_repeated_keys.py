"""Keys that repeat what was read in other words are accepted, and what contradicts it is refused with both values.

The keys are those of published files, whose code does not read them.
"""

from dataclasses import replace
from typing import Any

import pytest

import whatwhere as ww

SMALL: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16,
}  # fmt: skip
GPT2: dict[str, Any] = {"model_type": "gpt2", "vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4}
MPT: dict[str, Any] = {
    "model_type": "mpt", "d_model": 64, "max_seq_len": 128, "n_heads": 8, "n_layers": 2, "vocab_size": 100,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
TABLES = (
    "big_bird", "convbert", "distilbert", "git", "ibert", "layoutlm", "luke", "mra", "nystromformer", "rembert",
    "roc_bert", "tapas", "yoso",
)  # fmt: skip


def of(model_type: str, **keys: Any) -> dict[str, Any]:
    return {**SMALL, "model_type": model_type, **keys}


def alibi(**keys: Any) -> dict[str, Any]:
    return {**MPT, "attn_config": {"alibi": True, "alibi_bias_max": 8, **keys}}


LATENT = {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8}
MIMO = of("mimo_v2_flash", num_attention_heads=8, head_dim=24, sliding_window_size=128, attention_chunk_size=128)
MOSAIC = {
    "rope_theta": 10_000, "rope_impl": "dail", "rope_dail_config": {"type": "original"},
    "rope_hf_config": {"type": "no_scaling", "factor": 1.0},
}  # fmt: skip
REPEATED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "SmolLM2": (of("llama"), {"rope_interleaved": False, "is_llama_config": True}, {"rope_interleaved": True}),
    "Command R": (of("cohere"), {"rope_interleaved": True}, {"rope_interleaved": False}),
    "Qwen": (
        of("qwen", seq_length=2048, kv_channels=16, rotary_emb_base=10_000, head_dim=None, num_key_value_heads=None),
        {"rope_theta": 10_000.0, "scale_attn_weights": True}, {"rope_theta": 1e6},
    ),
    "Gemma 2": (of("gemma2", sliding_window=4096), {"sliding_window_size": 4096}, {"sliding_window_size": 2048}),
    "LFM2": (of("lfm2", rope_theta=1e6), {"theta": 1_000_000.0}, {"theta": 10_000.0}),
    "Kimi Linear": (
        of("kimi_linear", **LATENT, head_dim=None),
        {"head_dim": 64 // 4, "mla_use_nope": True, "rope_theta": 10_000.0}, {"head_dim": 20},
    ),
    "Nemotron 3": (of("nemotron_h"), {"rope_theta": 10_000, "partial_rotary_factor": 1.0}, {"head_size": 8}),
    "MiMo-V2": (
        MIMO,
        {"swa_num_key_value_heads": 4, "swa_num_attention_heads": 8, "swa_head_dim": 24,
         "add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False,
         "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0]},
        {"swa_num_key_value_heads": 2},
    ),
    "MiMo-V2, sinks": (MIMO, {"add_full_attention_sink_bias": False}, {"add_full_attention_sink_bias": True}),
    "GPT-NeoX": (
        of("gpt_neox", rotary_pct=0.25, num_key_value_heads=None, head_dim=None),
        {"rope_theta": 10_000.0, "partial_rotary_factor": 0.25, "rotary_emb_base": 10_000}, {"rope_theta": 500.0},
    ),
    "of training": (
        of("llama"),
        {"alibi": False, "use_alibi": False, "rope_ratio": 1, "use_logn_attn": False, "use_dynamic_ntk": False,
         "position_embedding_type": "rope", "rotary_pct": 1.0, "seq_length": 2048, "rotary_emb_base": 10_000,
         "use_rope": True, "sliding_window": None, "causal": True},
        {"rope_ratio": 8},
    ),
    "of other libraries": (
        of("phi", partial_rotary_factor=0.5),
        {"rope_traditional": False, "is_neox_style": True, "rotary_dim": 8, "rope_pct": 0.5,
         "position_encoding": "rope", "rotary_scaling_factor": 1.0, "rotary_embedding_base": 10_000},
        {"rotary_dim": 16},
    ),
    "no positions": (of("llama"), {"use_rope": True}, {"use_rope": False}),
    "ALiBi": (of("llama"), {"position_embedding_type": "rotary"}, {"position_embedding_type": "alibi"}),
    "BLOOM": ({"model_type": "bloom", "vocab_size": 100, "hidden_size": 64, "n_layer": 2, "n_head": 4},
              {"alibi": True, "position_embedding_type": "alibi"}, {"alibi": False}),
    "both directions": (of("gemma"), {"use_bidirectional_attention": False}, {"use_bidirectional_attention": True}),
    "an encoder": (of("eurobert"), {"causal": False, "is_causal": False}, {"causal": True}),
    "SantaCoder": (GPT2, {"attention_head_type": "multihead"}, {"attention_head_type": "multiquery"}),
    "key heads": (GPT2, {"head_dim": 16, "multi_query": False}, {"multi_query": True}),
    "StarCoder": (
        {**GPT2, "model_type": "gpt_bigcode"}, {"attention_head_type": "multiquery"},
        {"attention_head_type": "multihead"},
    ),
    **{
        name: (of(name, num_key_value_heads=None, head_dim=None), {"position_embedding_type": "absolute"},
               {"position_embedding_type": "relative_key"})
        for name in TABLES
    },
}  # fmt: skip


@pytest.mark.parametrize("case", REPEATED)
def test_what_agrees_changes_nothing(case: str) -> None:
    config, agreeing, _ = REPEATED[case]
    assert ww.from_huggingface({**config, **agreeing}) == ww.from_huggingface(config)
    text = {"model_type": "idefics3", "text_config": {**config, **agreeing}}
    assert ww.from_huggingface(text).query_key == ww.from_huggingface(config).query_key


@pytest.mark.parametrize("case", REPEATED)
def test_what_contradicts_is_refused_with_its_value(case: str) -> None:
    config, _, contradiction = REPEATED[case]
    (name, value), *_ = contradiction.items()
    with pytest.raises(ww.errors.SettingError, match=f"{name} is {value!r}, but"):
        ww.from_huggingface({**config, **contradiction})


@pytest.mark.parametrize(
    ("keys", "key_heads"),
    [
        ({}, 8),
        ({"attn_type": "multihead_attention", "kv_n_heads": 8, "prefix_lm": False, **MOSAIC}, 8),
        ({"rope": False, "sliding_window_size": -1, **MOSAIC}, 8),
        ({"attn_type": "grouped_query_attention", "kv_n_heads": 2}, 2),
        ({"attn_type": "multiquery_attention"}, 1),
    ],
)
def test_key_heads_of_mpt(keys: dict[str, Any], key_heads: int) -> None:
    """replit-code-v1.5 is MPT with grouped queries, by MosaicML's code."""
    description = ww.from_huggingface(alibi(**keys))
    assert (description.key_heads, description.causal) == (key_heads, True)


def test_a_factor_of_vllm_is_noted() -> None:
    """DeepSeek-R1-0528-Qwen3-8B: transformers ignores `attn_factor`, 1 / (0.1 ln 4 + 1), as this does, and says so."""
    plain = ww.from_huggingface(of("qwen3", rope_scaling=YARN))
    read = ww.from_huggingface(of("qwen3", rope_scaling={**YARN, "attn_factor": 0.8782488562869419}))
    assert read.notes[0] == "attn_factor is not read, as in transformers; vLLM multiplies the magnitude by 0.878249"
    assert replace(read, notes=plain.notes) == plain
    assert ww.from_huggingface(of("qwen3", rope_scaling={**YARN, "attn_factor": 1.0})) == plain


@pytest.mark.parametrize(
    ("model_type", "key", "note"),
    [
        ("qwen2", "dual_chunk_attention_config", "long texts are in chunks in vLLM"),
        ("minicpm", "sparse_config", "in long texts its own code attends to chosen blocks"),
    ],
)
def test_attention_over_long_texts_is_noted(model_type: str, key: str, note: str) -> None:
    """Qwen2.5-1M and MiniCPM4.1: neither transformers nor this computes it, and short texts are as without it."""
    plain = ww.from_huggingface(of(model_type, **{key: None}))
    read = ww.from_huggingface(of(model_type, **{key: {"chunk_size": 64, "local_size": 8, "dense_len": 64}}))
    assert read.notes[-1].startswith(note)
    assert replace(read, notes=plain.notes) == plain
    nested = {"model_type": "llava", "text_config": of(model_type, **{key: {"chunk_size": 64}})}
    assert read.notes[-1] in ww.from_huggingface(nested).notes


@pytest.mark.parametrize("neutral", [{"factor": 1.0}, {"attention_factor": 1.0}, {"max_position_embeddings": 2048}])
def test_rope_parameters_that_change_nothing(neutral: dict[str, float]) -> None:
    plain = ww.from_huggingface(of("llama", max_position_embeddings=2048))
    rope = {"rope_type": "default", **neutral}
    assert ww.from_huggingface(of("llama", max_position_embeddings=2048, rope_scaling=rope)) == plain
    (name, value), *_ = neutral.items()
    with pytest.raises(ww.errors.SettingError, match=rf"rope_scaling\.{name} is .*, but .* would be {value}"):
        ww.from_huggingface(of("llama", max_position_embeddings=2048, rope_scaling={**rope, name: 2 * value}))
    yarn = ww.from_huggingface(of("llama", rope_scaling={**YARN, "extrapolation_factor": 1}))
    assert yarn == ww.from_huggingface(of("llama", rope_scaling=YARN))


def test_the_prompt_of_paligemma_is_noted() -> None:
    """transformers writes the flag into its text, which has no code for it; the mask is made outside."""
    text = of("gemma", use_bidirectional_attention=True)
    description = ww.from_huggingface({"model_type": "paligemma", "text_config": text})
    assert description.causal
    assert "tokens of the picture and of the prompt attend to one another in both directions" in description.notes
