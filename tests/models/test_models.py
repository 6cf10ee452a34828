"""Every model type that can be read: what is read is what transformers' own model does, built tiny and at random."""

import json
from typing import Any

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import whatwhere as ww
from docs.generate.models_page import DIFFERENCES
from whatwhere.models.configuration.model_types import MODEL_TYPES, find_model_type, learned_offset
from whatwhere.models.probe import probe
from whatwhere.models.probe.differences import differences_of_parts
from whatwhere.models.probe.tiny import tiny_config, tiny_model

from .tiny import active_config, config_of

# What a default configuration of transformers holds that cannot be read, and what is put in its place.
UNREADABLE: dict[str, dict[str, Any]] = {
    "esm": {"vocab_size": 33, "pad_token_id": 1},  # theirs has no tokens
    "glm4_moe": {"head_dim": 128},  # 4096 features do not make 96 heads; theirs are cut to 42
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_theta": 10_000.0}}},  # theirs fail: no set
    "glm4v_moe_text": {"head_dim": 128, "rope_parameters": {"partial_rotary_factor": 0.5}},  # as that of glm4_moe
    "glm4v_text": {"rope_parameters": {"mrope_section": [16, 24, 24]}},  # theirs fail: 32 pairs for 64
    "glm_ocr_text": {"rope_parameters": {"mrope_section": [8, 12, 12]}},
    "qwen3_omni_moe_text": {"head_dim": 128},  # 2048 features do not make 28 heads; theirs, of 73, do not make pairs
    # theirs rotate whole heads, in spite of their rotary_dim
    "minimax_m3_vl_text": {"rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 0.5}},
}

UNSEEN = ("longformer", "mra", "yoso")
"""Types whose attention is computed by functions that a probe does not watch; longformer is in test_parts."""


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_absent_keys_have_the_defaults_of_transformers(model_type: str) -> None:
    full = {**CONFIG_MAPPING[model_type]().to_dict(), **UNREADABLE.get(model_type, {})}
    family = find_model_type(model_type)
    names = family.names_of("decoder" if family.parts else None)
    needed = [names[word][0] for word in ("vocab_size", "dim", "layers", "num_heads") if word in names]
    needed += [*(family.head_dim_parts or ()), *UNREADABLE.get(model_type, {})]
    bare = {"model_type": model_type, **{key: full[key] for key in needed}}
    assert ww.from_huggingface(bare) == ww.from_huggingface(full)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_saved_file_has_the_same_description(model_type: str) -> None:
    """What transformers writes leaves some keys out; the row of position 0 is known without a description too."""
    config = config_of(model_type)
    description = ww.from_huggingface(config)
    assert ww.from_huggingface(json.loads(config.to_json_string())) == description
    has_table = description.input is not None and description.input.scheme == "learned"
    assert learned_offset(config.to_dict()) == (description.position_offset if has_table else None)


@pytest.mark.every_nth(13)
@pytest.mark.parametrize(
    "model_type", [name for name, kind in MODEL_TYPES.items() if kind.has_attention and name not in UNSEEN]
)
def test_what_is_read_is_what_the_probe_measures(model_type: str) -> None:
    """Heads, pairs, frequencies, temperature, scale, bias, window, mask and sinks of each layer, and the input."""
    config = active_config(model_type)
    found = probe(tiny_model(config))
    listed = differences_of_parts(found, lambda part: ww.from_huggingface(config, part=part))
    assert bool(listed) == (model_type in DIFFERENCES)


_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
_LONG = {**_YARN, "rope_type": "longrope", "short_factor": [1.0 + n / 8 for n in range(8)],
         "long_factor": [1.0 + n for n in range(8)]}  # fmt: skip
_ALPHA = {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "mscale": 1.0}
_TERMS = {"relative_attention": True, "max_relative_positions": 12}
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("afmoe", {"mup_enabled": True}),
    ("afmoe", {"mup_enabled": False}),
    ("bert", {"is_decoder": True}),
    ("bert", {"is_decoder": True, "is_causal": False}),
    ("deberta", {**_TERMS, "pos_att_type": ["none"]}),  # which it counts as a term in its scale
    ("deberta", {**_TERMS, "pos_att_type": None}),
    ("deberta", {"relative_attention": False, "pos_att_type": ["c2p", "p2c"]}),
    ("deberta-v2", {**_TERMS, "pos_att_type": ["none"]}),
    ("deepseek_v3", {"rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    ("esm", {"position_embedding_type": "absolute"}),
    ("esm", {"position_embedding_type": "rotary", "token_dropout": True}),  # which scales tokens
    ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 4}),  # which rotates in every layer then
    ("falcon", {"multi_query": False}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ("gemma3_text", {"sliding_window": 6, "use_bidirectional_attention": True}),
    ("gemma4_text", {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "global_head_dim": 32}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    ("gpt2", {"scale_attn_weights": False}),
    ("granite", {"attention_multiplier": 0.2}),
    ("granitemoehybrid", {"position_embedding_type": "nope"}),
    ("hunyuan_v1_dense", {"rope_parameters": _ALPHA}),  # a fixed rise of theta, in spite of its name
    ("llama", {"rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.0}}),
    ("llama", {"rope_parameters": {**_YARN, "mscale": 0.5, "mscale_all_dim": 0.0, "attention_factor": 1.25}}),
    ("mpt", {"attn_config": {"softmax_scale": 0.2}}),
    ("phi3", {"rope_parameters": _LONG, "original_max_position_embeddings": 16}),
    (
        "phimoe",
        {
            "rope_parameters": {
                **_LONG,
                "original_max_position_embeddings": 20_001,
                "short_mscale": 1.25,
                "long_mscale": 1.25,
            }
        },
    ),
    ("recurrent_gemma", {"num_hidden_layers": 5}),
    ("smollm3", {"no_rope_layers": [1, 1, 0, 1]}),
    ("trocr", {"use_learned_position_embeddings": False}),
    ("xlm", {"causal": True}),
    ("xlnet", {"attn_type": "uni"}),
    ("zamba2", {"use_mem_rope": False}),
    ("zamba2", {"use_mem_rope": True}),
]
"""Model types, and settings that change what their attention does with positions."""


@pytest.mark.parametrize(("model_type", "settings"), SETTINGS, ids=lambda one: one if isinstance(one, str) else "")
def test_settings_are_read_as_the_probe_measures_them(model_type: str, settings: dict[str, Any]) -> None:
    config = tiny_config(model_type, **settings)
    assert not differences_of_parts(probe(tiny_model(config)), lambda part: ww.from_huggingface(config, part=part))
