"""Configurations that are refused: each with what the message names."""

from types import SimpleNamespace
from typing import Any

import pytest

import whatwhere as ww
from whatwhere.models.configuration.model_types import MODEL_TYPES

from ..tiny import config_of
from .small import GPT2, LLAMA, LLAMA3, SU, YARN, of

MPT: dict[str, Any] = {"model_type": "mpt", "vocab_size": 9, "d_model": 64, "n_layers": 1, "n_heads": 4}
MT5: dict[str, Any] = {"model_type": "mt5", "vocab_size": 9, "d_model": 64, "num_heads": 4, "num_layers": 1}
ORIGINAL = {"original_max_position_embeddings": 16}
REFUSED: list[tuple[dict[str, Any], str]] = [
    # Names
    (of("llama", head_dims=32), r"almost 'head_dim'.*\nDid you mean 'head_dim'"),
    (of("llama", Head_Dim=32), "Did you mean 'head_dim'"),
    (of("llama", num_key_value_head=1), "num_key_value_head=1 is not a key .*almost 'num_key_value_heads'"),
    (of("cohere2", layer_type=["full_attention"] * 4), "almost 'layer_types'"),
    (of("cohere2", sliding_windows_pattern=2), "Did you mean 'sliding_window_pattern'"),
    (of("granite", attention_multiplyer=0.5), "Did you mean 'attention_multiplier'"),
    (of("falcon", new_decoder_architectur=True, num_kv_heads=2), "almost 'new_decoder_architecture'"),
    (of("roberta", pad_tokn_id=3), "almost 'pad_token_id'"),
    (of("deepseek_v3", qk_nope_head_dim=8, qk_rope_head_dim=8, rope_interleaved=False), "rope_interleaved is F"),
    (of("deberta-v2", position_biased_inputs=False), "Did you mean 'position_biased_input'"),
    (of("llama", use_rope=False), "use_rope is False, but"),
    (of("llama", rope_percentage=0), "rope_percentage=0 is not a key"),
    (of("bloom", alibi=False), "alibi is False, but .* would be True"),
    (of("qwen2_vl_text", head_dim=128, use_mrope=False), "use_mrope is False"),
    ({**LLAMA, 7: 8}, "has the key 7, but keys are strings"),
    ({"model_type": "llava", "text_config": LLAMA, "tie_word_embedding": True}, "almost 'tie_word_embeddings'"),
    # Keys that contradict, miss or are of a different model
    (of("llama", rope_thetha=5e5), r"rope_thetha=500000\.0 is not .*\nDid you mean 'rope_theta'"),
    (of("llama", alibi=True), r"remove it: config\.pop\('alibi'\)"),
    (of("llama", attn_scale=2.0), "attn_scale"),
    (of("llama", rope_scaling={**YARN, "beta_fst": 32}), "Did you mean 'beta_fast'"),
    (of("llama", rope_scaling={**YARN, "low_freq_factor": 1.0}), "low_freq_factor"),
    (of("llama", rope_scaling={"type": "yarnn", "factor": 2.0}), "Did you mean 'yarn'"),
    (of("llama", rope_parameters={"rope_type": "axial"}), "'axial', but whatwhere reads only"),
    (of("llama", rope_scaling={"type": "linear", "rope_type": "yarn", "factor": 2.0}), "keep one"),
    (of("llama", rope_theta=1e4, rope_parameters={"rope_theta": 2e4}), "keep one of them"),
    (of("llama", rope_parameters={"rope_theta": 2e4}, rope_scaling={"type": "linear", "factor": 2.0}),
     "are both given, and differ"),
    (of("llama", rope_scaling=YARN, original_max_position_embeddings=2048), "1024 and original.*s is 2048: keep one"),
    ({**GPT2, "hidden_size": 32}, "n_embd=64, hidden_size=32"),
    (of("llama", rope_scaling="linear"), "must be a dictionary or null"),
    (of("llama", rope_scaling={"type": "linear"}), r"no rope_scaling\.factor"),
    (of("llama", rope_scaling={"type": "linear", "factor": "two"}), "finite number above 0"),
    (of("llama", rope_scaling={"type": "linear", "factor": -2}), "finite number above 0"),
    (of("llama", rope_scaling={"type": "su", "short_factor": [1.0], "long_factor": [1.0], "factor": 2.0,
        "original_max_position_embeddings": 8}), "short_factor has 1 numbers, but 16 rotated features are 8 pairs"),
    (of("phimoe", rope_scaling={"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [1.0] * 8,
        "short_mscale": 1.1, "long_mscale": 1.2, "original_max_position_embeddings": 8}),
     "LongRoPE has one magnitude for both"),
    (of("llama", rope_scaling={**YARN, "mscale": 0.5}), "mscale is 0.5, "),
    (of("mistral", partial_rotary_factor=0.5), "heads of 'mistral' are rotated whole"),
    (of("phi", partial_rotary_factor=1.5), "at most 1"),
    (of("phi", partial_rotary_factor=0.2), "rotary_dim=3 of head_dim=16, but needs an even number"),
    (of("gemma3_text", rope_parameters={"rope_type": "default"}), "one set for each layer type"),
    (of("llama", rope_parameters={"full_attention": {"rope_theta": 1e4}}), r"rope_parameters\.full_attention"),
    (of("cohere2", layer_types=["sliding_atention"] * 4), r"layer_types\[0\] is 'sliding_atention', but must be"),
    (of("cohere2", layer_types=["full_attention"]), "4 layers, but has 1"),
    (of("gemma3_text", layer_types=["chunked_attention"] * 4), "'chunked_attention', for which 'gemma3_text' has no"),
    (of("smollm3", no_rope_layers="1010"), "list of one entry for each of 4 layers"),
    (of("smollm3", no_rope_layers=[1, 2, 0, 1]), r"no_rope_layers\[1\] is 2"),
    (of("qwen2_vl", rope_scaling={"mrope_section": [2, 2, 2]}), "8 pairs"),
    (of("qwen2_vl", rope_scaling={"mrope_interleaved": True}), "'qwen2_vl_text' has chunked ones"),
    (of("bert", position_embedding_type="relative_key"), "with 'absolute' only"),
    (of("roformer", rotary_value=True), "rotary_value is True"),
    ({**GPT2, "model_type": "gptj", "rotary_dim": 4, "rotary": False}, "rotary is False, but"),
    ({**MPT, "attn_config": {"alibi": False}}, r"attn_config\.alibi is False"),
    ({**MPT, "attn_config": {"rope": True}}, r"attn_config\.rope is True, but"),
    (of("deberta", relative_attention=True, pos_att_type="c2p|p2p"), "'p2p', but whatwhere knows"),
    (of("bert", max_position_embeddings=None), "max_position_embeddings is missing"),
    (of("roberta", max_position_embeddings=2), "of which 2 rows come before 0"),
    (of("roberta", pad_token_id=None), "positions start at the row after it"),
    (of("llama", max_position_embeddings=4096.5), "whole number of at least 1"),
    ({**MPT, "attn_config": "flash"}, "attn_config is 'flash', but must be a dictionary"),
    (of("deberta", relative_attention=True, position_biased_input=False, pos_att_type="c2p",
        max_position_embeddings=None), "the distance at which rows are clipped"),
    (of("llama", max_position_embeddings="4k"), "whole number of at least 1"),
    (of("llama", tie_word_embeddings="no"), "must be true or false"),
    (of("llama", rope_scaling={"type": "dynamic", "factor": 2.0}, max_position_embeddings=None),
     "dynamic scaling starts beyond it"),
    (of("llama", rope_scaling={"type": "yarn", "factor": 2.0}, max_position_embeddings=None), "that was trained"),
    (of("llama", per_layer_config={0: {"head_dim": 8}}), "per_layer_config"),
    # Values of a different kind, and what transformers does not read
    (of("llama", rope_parameters={"rope_type": ["yarn"]}), r"rope_type is \['yarn'\]"),
    (of("llama", rope_scaling={"type": {"a": 1}}), r"rope_scaling\.type is \{'a': 1\}"),
    (of("gemma3_text", rope_parameters={"full_attention": [1]}), r"rope_parameters\.full_attention is \[1\]"),
    (of("llama", rope_scaling={**YARN, "beta_fast": "16"}), r"rope_scaling\.beta_fast is '16'"),
    (of("llama", rope_scaling={**YARN, "beta_slow": True}), r"rope_scaling\.beta_slow is True"),
    (of("llama", rope_scaling={**YARN, "beta_slow": [1]}), r"rope_scaling\.beta_slow is \[1\]"),
    (of("llama", rope_scaling={**SU, "short_factor": "12345678"}), "short_factor is '12345678', but must be a list"),
    (of("llama", rope_scaling={**SU, "long_factor": 2}), "long_factor is 2, but must be a"),
    (of("llama", rope_scaling={**SU, "long_factor": ["1"] * 8}), r"long_factor\[0\] is '1', but must be a finite"),
    (of("qwen2_vl_text", rope_parameters={"mrope_section": 8}), "mrope_section is 8, but must be a list"),
    (of("qwen2_vl_text", rope_parameters={"mrope_section": [2, "3", 3]}), r"mrope_section\[1\] is '3'"),
    (of("qwen2_vl_text", rope_parameters={"mrope_section": [10**12, 0, 0]}), r"mrope_section\[0\] is 10"),
    (of("llama", head_dim=1e300), "head_dim is .*at most 1,048,576 are read"),
    (of("llama", hidden_size=1e300), "hidden_size is .*are read"),
    (of("llama", rope_theta=1e300), "rope_theta is 1e.300, but only numbers from"),
    (of("llama", head_dim=float("nan")), "head_dim is nan, but must be a whole number"),
    (of("llama", rope_theta=float("nan")), "rope_theta is nan, but must be a finite"),
    (of("llama", rope_scaling=False), "rope_scaling is False, but must be a dictionary or null"),
    (of("llama", rope_parameters=[]), r"rope_parameters is \[\], but must be a dict"),
    (of("gptj", rotary=1, rotary_dim=8), "rotary is 1, but .* would be True"),
    ({"text_config": LLAMA, "model_type": "x", "tie_word_embeddings": "no"}, "must be true or fal"),
    ({"text_config": [1], "model_type": "x"}, r"text_config is \[1\], but must be a dictionary"),
    (of("lfm2", full_attn_idxs="12"), "full_attn_idxs is '12', but must be a list"),
    (of("lfm2", full_attn_idxs=[4]), r"full_attn_idxs\[0\] is 4, but must be the number"),
    (of("deberta", relative_attention=True, pos_att_type=[1]), r"pos_att_type\[0\] is 1"),
    (of("deberta", relative_attention=True, pos_att_type=3), "pos_att_type is 3"),
    (of("smollm3", no_rope_layers=[True] * 4), r"no_rope_layers\[0\] is True"),
    (of("phimoe", rope_scaling={"type": "linear", "factor": 2.0, "short_mscale": 1.2}), "short_mscale=1.2 is not a"),
    (of("llama", rope_scaling={**SU, "short_mscale": 1.2}), "short_mscale=1.2 is no"),
    (of("hunyuan_v1_dense", rope_scaling={"type": "linear", "factor": 2.0, "alpha": 3.0}), "alpha=3.0 is not a key"),
    (of("llama", rope_scaling={**LLAMA3, "low_freq_factor": 4.5}),
     r"rope_scaling\.low_freq_factor=4\.5 and rope_scaling\.high_freq_factor=4\.0"),
    (of("gemma3_text", head_dim=16, rope_scaling={"type": "linear", "factor": 8.0}), "write rope_type='linear'"),
    (of("mellum", head_dim=16, rope_theta=1e4), "rope_theta is 10000.0, but .* 500000"),
    (of("mellum", head_dim=16, rope_scaling={"rope_type": "linear", "factor": 2.0}), "reads rope_parameters only"),
    (of("stablelm", head_dim=32), "head_dim is 32, but the code of 'stablelm' does not"),
    (of("deepseek_v3", qk_nope_head_dim=8, qk_rope_head_dim=8, head_dim=32), "would be 8 or 16"),
    ({"model_type": "bart", "vocab_size": 9, "d_model": 64, "encoder_layers": 1, "encoder_attention_heads": 4,
      "num_attention_heads": 8}, "encoder_attention_heads=4, num_attention_heads=8"),
    (of("gpt_neo", num_layers=4, num_heads=2), "num_heads=2, num_attention_heads=4"),
    (of("glm4_moe_lite", qk_nope_head_dim=8, qk_rope_head_dim=8, head_dim=4), "qk_rope_head_dim=8, head_dim=4"),
    # Settings that no constructor takes
    ({**LLAMA, "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "beta_slow": 64.0, **ORIGINAL}},
     "beta_fast is 32.0 and beta_slow 64.0"),
    ({**LLAMA, "rope_theta": 1.0, "rope_scaling": {"type": "yarn", "factor": 2.0, **ORIGINAL}},
     "rope_theta is 1.0, but YaRN needs one above 1"),
    ({**LLAMA, "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1e19, **ORIGINAL}},
     r"attention_factor is 1e\+19, but must be from 1e-18"),
    ({**LLAMA, "rope_parameters": {"rope_type": "dynamic", "factor": 0.5}}, "factor is 0.5, but dynamic"),
    ({**LLAMA, "head_dim": 2, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "more than 2 feat"),
    ({**LLAMA, "head_dim": 3}, "rotary_dim=3 of head_dim=3"),
    ({**LLAMA, "head_dim": 1}, "rotary_dim=1 of head_dim=1"),
    ({**LLAMA, "rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.01}}, "rotates no pair"),
    ({**LLAMA, "rope_parameters": {"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0] * 8,
      "long_factor": [1.0] * 8, "original_max_position_embeddings": 1}}, "must be at least 2"),
    ({**LLAMA, "model_type": "qwen3_vl_text", "head_dim": 16, "rope_parameters": {"mrope_section": [0, 0, 8]}},
     "interleaved axis 2 has one pair in 3"),
    ({**LLAMA, "model_type": "gptj", "rotary_dim": 32}, "rotary_dim=32 of head_dim=16"),
    ({**MT5, "relative_attention_num_buckets": 1}, "relative_attention_num_buckets is 1"),
    ({**MT5, "relative_attention_max_distance": 16}, "must be above 16"),
    ({**MT5, "relative_attention_num_buckets": 2**40}, "at most 4,096 are read"),
    ({**LLAMA, "model_type": "deberta-v2", "relative_attention": True, "pos_att_type": "c2p",
      "position_buckets": 64, "max_relative_positions": 33}, "must be above 33"),
    ({"model_type": "ctrl", "vocab_size": 9, "n_embd": 15, "n_head": 5, "n_layer": 1},
     "15 features cannot hold sinusoidal positions"),
    ({**MPT, "attn_config": {"alibi_bias_max": 1e6}}, "slopes of 0"),
    (of("llama", num_hidden_layers=10**9), "num_hidden_layers is 1,000,000,000, but at most 10,000 are read"),
    (of("llama", num_attention_heads=5, num_key_value_heads=5), "64 features do not divide into 5"),
    (of("llama", num_key_value_heads=3), "cannot share 3"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_refused(config: dict[str, Any], message: str) -> None:
    part = "encoder" if config["model_type"] == "bart" else None
    with pytest.raises((ww.errors.SettingError, ww.errors.CheckpointError, ww.errors.ShapeError), match=message):
        ww.from_huggingface(config, part=part)


@pytest.mark.usefixtures("our_own_checks")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "has no model_type"),
        ({**LLAMA, "model_type": 7}, "has no model_type"),
        (7, "has the type int"),
        (SimpleNamespace(config=LLAMA), r"Of a model pass model\.config"),
        ({**LLAMA, "hidden_size": None}, "has no hidden_size"),
        ({"hiden_size" if key == "hidden_size" else key: v for key, v in LLAMA.items()}, "Did you mean 'hiden_size'"),
    ],
)
def test_what_is_no_configuration(config: Any, message: str) -> None:
    with pytest.raises((ww.errors.CheckpointError, ww.errors.SettingError), match=message):
        ww.from_huggingface(config)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_type_refuses_a_key_of_position_that_it_does_not_know(model_type: str) -> None:
    config = {**config_of(model_type).to_dict(), "rope_wavelength": 7}
    with pytest.raises(ww.errors.SettingError, match="rope_wavelength=7 is not a key"):
        ww.from_huggingface(config)
