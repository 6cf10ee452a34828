"""What the common tests do not show of recent model types: temperatures, thetas by layer, layers without any."""

from importlib import import_module
from typing import Any

import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import whatwhere as ww
from whatwhere.models.registry import MODEL_TYPES

from .tiny import config_of, model_of


def test_beam_multiplies_queries_where_it_does_not_rotate() -> None:
    """The factor is that of the function in its module, and the layers are those that its forward passes it to."""
    source = import_module("transformers.models.beam.modeling_beam")
    config = config_of("beam", num_hidden_layers=7)
    description = ww.from_huggingface(config)
    seen: dict[int, bool] = {}
    model = model_of(config)
    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(
            lambda m, args, others: seen.__setitem__(m.layer_idx, others.get("attention_scaling") is not None),
            with_kwargs=True,
        )
    model(torch.arange(9)[None] + 4)
    heated = [curve is not None for curve in description.temperatures]
    assert heated == [seen[layer] for layer in range(7)] == [plan is None for plan in description.query_key]
    assert heated == [False, False, False, False, False, True, True]
    at = torch.tensor([0, 1, 2047, 20_000])
    scheme = description.wheres()[5].query_key
    assert isinstance(scheme, ww.QueryTemperature)
    ours = scheme.curve.at(at).float()
    torch.testing.assert_close(ours, source.compute_attention_scaling(at[None]).flatten(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("model_type", ["granite_swa", "granitemoe_swa"])
def test_a_theta_of_zero_is_no_rotation(model_type: str) -> None:
    config = config_of(model_type)
    thetas = [None if plan is None else plan.settings["theta"] for plan in ww.from_huggingface(config).query_key]
    assert thetas == [theta or None for theta in config.layer_rope_theta]
    assert None in thetas
    assert len(set(thetas)) == 3


def test_a_list_of_thetas_of_another_length_is_refused() -> None:
    config = {**config_of("granite_swa").to_dict(), "layer_rope_theta": [1e4, 0]}
    with pytest.raises(ww.errors.SettingError, match="layer_rope_theta has 2 numbers, but there are 4 layers"):
        ww.from_huggingface(config)
    with pytest.raises(ww.errors.SettingError, match="layer_rope_theta is -1, but must be"):
        ww.from_huggingface({**config, "layer_rope_theta": [1e4, 0, -1, 5.0]})


def test_granite_4_without_rope_has_none() -> None:
    """`position_embedding_type` decides it: without "rope" its attention has no positions."""
    rotated = config_of("granitemoehybrid")
    without = config_of("granitemoehybrid", position_embedding_type="nope")
    assert any(ww.from_huggingface(rotated).query_key)
    assert not any(ww.from_huggingface(without).query_key)
    assert model_of(without).model.rotary_emb is None


NO_POSITIONS = ("jamba", "kimi_linear", "zamba")


@pytest.mark.parametrize("model_type", NO_POSITIONS)
def test_attention_without_positions_has_none(model_type: str) -> None:
    """Their modules have no rotary embedding, and no table but that of tokens."""
    config = config_of(model_type)
    description = ww.from_huggingface(config)
    assert (description.input, any(description.query_key), any(description.score)) == (None, False, False)
    names = [type(module).__name__ for module in model_of(config).modules()]
    assert not [name for name in names if "Rotary" in name or "Position" in name]
    assert names.count("Embedding") == 1


CONTRADICTIONS = ("big_bird", "cohere2_moe", "esm", "longformer", "mamba", "minimax_m3_vl_text", "nemotron_h", "zamba2")


@pytest.mark.parametrize("form", ["whole", "saved"])
@pytest.mark.parametrize("model_type", CONTRADICTIONS)
def test_a_type_that_is_not_like_llama_is_not_read_as_llama(model_type: str, form: str) -> None:
    """Other layers, tables, heads and experts show in keys; what `like` cannot explain is refused, whole or saved."""
    assert model_type not in MODEL_TYPES
    config: Any = CONFIG_MAPPING[model_type]()
    keys = config.to_dict() if form == "whole" else {"model_type": model_type, **config.to_diff_dict()}
    with pytest.raises((ww.errors.SettingError, ww.errors.ShapeError, ww.errors.CheckpointError)):
        ww.from_huggingface(keys, like="llama")
