"""What the common tests do not show of recent model types: temperatures, thetas by layer, layers without any."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import DynamicCache
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import whatwhere as ww
from whatwhere.analysis.configuration_difference import configurations
from whatwhere.models.configuration.model_types import DATA
from whatwhere.models.probe import probe
from whatwhere.models.probe.tiny import tiny_config, tiny_model

from .tiny import config_of, model_of

DBRX: dict[str, Any] = {"model_type": "dbrx", "vocab_size": 9, "d_model": 64, "n_layers": 1, "n_heads": 4}
"""As published: theta is in attn_config alone."""


def test_dbrx_rotates_by_the_theta_of_its_authors() -> None:
    """Transformers 5 leaves the key unread; what it adds beside it contradicts the file, and is refused."""
    config = {**DBRX, "attn_config": {"clip_qkv": 8, "kv_n_heads": 2, "rope_theta": 500_000}}
    description = ww.from_huggingface(config)
    assert description.query_key[0] is not None
    assert (description.query_key[0].settings["theta"], description.key_heads) == (500_000.0, 2)
    added = CONFIG_MAPPING["dbrx"](**{key: value for key, value in config.items() if key != "model_type"})
    with pytest.raises(ww.errors.SettingError, match="transformers 5 does: keep the right one"):
        ww.from_huggingface(added)


def test_a_dense_prefix_of_command_a_plus_rotates_without_a_window() -> None:
    """By the list of the model's own configuration, and by the number of layers that published files have."""
    config = config_of("cohere2_moe", num_hidden_layers=8, first_k_dense_replace=3)
    description = ww.from_huggingface(config)
    bare = {**config.to_dict(), "layer_types": None, "mlp_layer_types": None, "first_k_dense_replace": 3}
    assert replace(ww.from_huggingface(bare), used=(), assumed=()) == replace(description, used=(), assumed=())
    for own, plan, window in zip(
        model_of(config).model.layers, description.query_key, description.windows, strict=True
    ):
        has_window = own.self_attn.sliding_window is not None
        assert (plan is not None, window is not None) == (has_window or bool(own.self_attn.force_rope), has_window)


@pytest.mark.parametrize("model_type", DATA.unlike)
def test_a_type_that_no_scheme_describes_is_refused_with_its_reason(model_type: str) -> None:
    for like in (None, "llama"):
        with pytest.raises(ww.errors.CheckpointError, match=re.escape(DATA.unlike[model_type])):
            ww.from_huggingface(CONFIG_MAPPING[model_type](), like=like)


@pytest.mark.parametrize("model_type", ["musicgen", "musicgen_melody"])
def test_the_decoder_of_musicgen_is_read_from_its_whole_configuration(model_type: str) -> None:
    whole = CONFIG_MAPPING[model_type]()
    whole.decoder = config_of(f"{model_type}_decoder", num_codebooks=2)
    assert ww.from_huggingface(whole) == ww.from_huggingface(whole.decoder)


# Heads by layer

GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text", "vocab_size": 37, "hidden_size": 64, "num_hidden_layers": 7, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32, "sliding_window": 8,
}  # fmt: skip


def test_sizes_that_differ_by_layer_say_so() -> None:
    description = ww.from_huggingface(GEMMA4)
    assert (description.num_heads, description.key_heads) == (4, 2)
    with pytest.raises(ww.errors.SettingError, match=r"sizes of heads, 16, 32: see `heads\[layer\]\.head_dim`"):
        _ = description.head_dim
    wheres = description.wheres()
    assert [where.query_key.head_dim for where in wheres if where.query_key] == [16, 16, 16, 16, 16, 32, 32]


def test_heads_are_compared_layer_by_layer() -> None:
    other = {**GEMMA4, "global_head_dim": 64}
    found = configurations(ww.from_huggingface(GEMMA4), ww.from_huggingface(other))
    assert [fact.name for fact in found.facts] == ["head_dim"]


# Layers without attention, and layers that differ


@pytest.mark.parametrize("model_type", ["mamba", "rwkv"])
def test_a_model_without_attention_says_so(model_type: str) -> None:
    """The probe sees none; tokens can be built, and nothing of heads, scores or positions is made up."""
    with pytest.raises(ww.errors.CheckpointError, match="no attention was seen"):
        probe(tiny_model(tiny_config(model_type)))
    description = ww.from_huggingface(config_of(model_type))
    assert (description.heads, description.scales, description.input) == ((), (), None)
    assert description.notes[0].startswith("no layer has attention")
    for reach in (lambda: description.num_heads, lambda: description.scale, description.wheres):
        with pytest.raises(ww.errors.SettingError, match="has attention, so it has no heads"):
            reach()
    assert description.input_layer()(torch.tensor([[4, 2]])).shape == (1, 2, description.dim)


def test_layers_of_nemotron_h_are_those_of_its_list_or_text() -> None:
    """Published files have a letter for each layer; what transformers makes of them is read alike."""
    written = {"model_type": "nemotron_h", "vocab_size": 9, "hidden_size": 64, "num_attention_heads": 8}
    published = ww.from_huggingface({**written, "hybrid_override_pattern": "M-M*E"})
    config = CONFIG_MAPPING["nemotron_h"](vocab_size=9, hidden_size=64, hybrid_override_pattern="M-M*E")
    assert published.layer_types == ww.from_huggingface(config).layer_types == tuple(config.layers_block_type)
    assert published.layers == len(config.layers_block_type) == 5


def test_windows_of_mimo_in_published_files_do_not_count_the_query_s_own_token() -> None:
    config = config_of("mimo_v2_flash").to_dict()
    keys = {key: value for key, value in config.items() if key != "model_type"}
    again = CONFIG_MAPPING["mimo_v2_flash"](**{**keys, "sliding_window_size": 7})
    read = ww.from_huggingface({**config, "sliding_window_size": 7})
    assert {window.size for window in read.windows if window is not None} == {again.sliding_window} == {8}


def test_latent_heads_of_dots3_are_read_by_the_keys_of_published_files() -> None:
    config = config_of("dots3_note_text")
    description = ww.from_huggingface(config)
    assert len(set(description.heads)) == 2
    plain = {**config.to_dict(), "per_layer_config": None, "swa_num_attention_heads": 2}
    read = ww.from_huggingface({**plain, "swa_qk_nope_head_dim": 24, "swa_head_dim": 32})
    assert read.heads == description.heads
    for wrong in ({"swa_qk_rope_head_dim": 4}, {"swa_head_dim": 48}):
        with pytest.raises(ww.errors.SettingError, match="swa_"):
            ww.from_huggingface({**plain, "swa_qk_nope_head_dim": 24, **wrong})


STEP: dict[str, Any] = {
    "vocab_size": 37, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_attention_groups": 2,
    "head_dim": 16, "sliding_window": 5, "num_nextn_predict_layers": 2, "max_position_embeddings": 64,
    "layer_types": [*["full_attention", "sliding_attention"] * 2, *["full_attention"] * 2],
    "rope_theta": [5e4, 1e3, 5e4, 1e3, 7.0, 7.0], "partial_rotary_factors": [0.5, 1.0, 0.5, 1.0, 0.25, 0.25],
    "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 16,
                     "low_freq_factor": 1.0, "high_freq_factor": 32.0},
    "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 8,
                                "num_attention_groups": 2, "head_dim": 16},
}  # fmt: skip
"""In the form of published files: lists also have the layers that draft, windows have heads of their own."""


def test_step_in_the_form_of_its_files_is_what_transformers_makes_of_it() -> None:
    config = CONFIG_MAPPING["step3p5"](**STEP)
    read = ww.from_huggingface({"model_type": "step3p5", **STEP})
    assert replace(read, notes=()) == replace(ww.from_huggingface(config), notes=())
    assert [heads.num_heads for heads in read.heads] == [4, 8, 4, 8]
    assert [plan.rotary_dim for plan in read.query_key if plan is not None] == [8, 16, 8, 16]
    assert [plan is not None and plan.scaling is not None for plan in read.query_key] == [True, False, True, False]


def test_the_window_of_moshi_is_that_of_its_cache() -> None:
    """No mask reads `sliding_window`, so the description has no window; with a cache far keys are gone."""
    model, ids = model_of(config_of("moshi", sliding_window=4)), torch.arange(8)[None] + 4
    description = ww.from_huggingface(model.config)
    assert not any(description.windows)
    assert any("sliding_window limits the cache" in note for note in description.notes)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        whole = model(input_ids=ids).logits[0]
        steps = torch.cat([model(input_ids=ids[:, i : i + 1], past_key_values=cache).logits[0] for i in range(8)])
    differ = (whole - steps).abs().amax(-1) > 1e-4
    assert differ.tolist() == [False] * 4 + [True] * 4
