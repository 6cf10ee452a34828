"""Fractions of null, and the names of LongRoPE; what rotates with other settings is measured in ../test_models.py."""

from copy import deepcopy
from importlib import import_module
from math import log
from typing import Any

import pytest
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig

import whatwhere as ww

from ..tiny import config_of, model_of

LISTS = {"short_factor": [1.0 + n / 8 for n in range(8)], "long_factor": [1.0 + n for n in range(8)]}


def rotary_of(config: PreTrainedConfig) -> nn.Module:
    """Build the module of a configuration's own model that computes cos and sin."""
    package = type(config).__module__.rsplit(".", 1)[0]
    source = import_module(f"{package}.modeling_{package.rsplit('.', 1)[1]}")
    names = [name for name in vars(source) if name.endswith("RotaryEmbedding") and "Vision" not in name]
    return getattr(source, names[0])(config)


WHOLE_AT_NULL = ("glm", "glm4", "glm4_moe", "glm4v_moe_text", "moonshine", "qwen3_5_text", "qwen3_next")


@pytest.mark.parametrize("model_type", [*WHOLE_AT_NULL, "recurrent_gemma"])
def test_a_fraction_of_null_is_the_whole_head(model_type: str) -> None:
    """Absent, it has the default of the type, which is a part."""
    sections = {"glm4v_moe_text": [2, 3, 3], "qwen3_5_text": [3, 3, 2]}.get(model_type)
    rope = {} if sections is None else {"rope_parameters": {"rope_type": "default", "mrope_section": sections}}
    names = ("rope_parameters", "partial_rotary_factor")
    config = {name: value for name, value in config_of(model_type).to_dict().items() if name not in names} | rope
    theirs = rotary_of(CONFIG_MAPPING[model_type].from_dict({**deepcopy(config), "partial_rotary_factor": None}))
    plan = next(plan for plan in ww.from_huggingface({**config, "partial_rotary_factor": None}).query_key if plan)
    assert plan.rotary_dim == 2 * len(theirs.inv_freq) == plan.settings["head_dim"]


@pytest.mark.parametrize("model_type", ["nemotron", "persimmon", "phi", "stablelm", "gpt_neox"])
def test_a_fraction_of_null_with_which_transformers_fails_is_refused(model_type: str) -> None:
    key = "rotary_pct" if model_type == "gpt_neox" else "partial_rotary_factor"
    config = {name: value for name, value in config_of(model_type).to_dict().items() if name != "rope_parameters"}
    with pytest.raises((KeyError, TypeError)):
        model_of(CONFIG_MAPPING[model_type].from_dict({**config, key: None}))
    with pytest.raises(ww.errors.SettingError, match=f"{key} is null, with which transformers fails"):
        ww.from_huggingface({**config, key: None})


@pytest.mark.parametrize("name", ["su", "longrope", "yarn"])
def test_phi3_has_three_names_for_longrope(name: str) -> None:
    """Its trained length stands beside, and the factor is that of the two lengths."""
    lengths = {"max_position_embeddings": 256, "original_max_position_embeddings": 64}
    config = config_of("phi3", rope_scaling={"type": "longrope", **LISTS}, **lengths)
    older = {**config.to_dict(), "rope_parameters": None, "rope_scaling": {"type": name, **LISTS}}
    assert ww.from_huggingface(older) == ww.from_huggingface(config)
    plan = ww.from_huggingface(older).query_key[0]
    assert plan is not None
    built: Any = plan.build()
    assert built.magnitude == (1 + log(4) / log(64)) ** 0.5
