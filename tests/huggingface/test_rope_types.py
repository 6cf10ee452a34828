"""Rope types of ours in models of transformers: frequencies, round trip, patch."""

from typing import Any

import pytest
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import whatwhere as ww
from whatwhere.huggingface.rope_types import ROPE_TYPES, frequencies, register_rope_types
from whatwhere.models.configuration.description import Plan

from ..models.tiny import config_of, model_of

NTK: dict[str, Any] = {"rope_type": "ntk", "factor": 4.0, "rope_theta": 10_000.0}


def test_types_of_transformers_are_not_replaced() -> None:
    before = {name: made for name, made in ROPE_INIT_FUNCTIONS.items() if name not in ROPE_TYPES}
    assert register_rope_types() == ("ntk",)
    assert {name: made for name, made in ROPE_INIT_FUNCTIONS.items() if name not in ROPE_TYPES} == before


def test_a_model_has_the_frequencies_of_ours_and_the_same_logits_patched() -> None:
    register_rope_types()
    torch.manual_seed(0)
    config = config_of("llama", rope_parameters=NTK)
    model = model_of(config)
    description = ww.from_huggingface(config)
    plan = description.query_key[0]
    assert plan is not None
    assert plan.scaling == Plan("rotary-ntk", {"factor": 4.0})
    wanted = ww.Rotary(16, scaling=ww.scaling.NTK(4.0)).frequencies().float()
    assert torch.equal(model.model.rotary_emb.inv_freq, wanted)
    ids = torch.arange(12)[None] + 4
    with torch.no_grad():
        before = model(ids).logits
        plain = model_of(config_of("llama"))
        plain.load_state_dict(model.state_dict())
        assert not torch.allclose(plain(ids).logits, before, atol=1e-4)
        with ww.patch(model):
            torch.testing.assert_close(model(ids).logits, before, rtol=0, atol=2e-5)


@pytest.mark.parametrize("rope_type", ["linear", "yarn", "llama3"])
def test_they_are_those_of_transformers_where_both_exist(rope_type: str) -> None:
    """Its own are computed in float32: equal to its rounding."""
    numbers = {"factor": 4.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    needed = {"linear": 1, "yarn": 2, "llama3": 4}[rope_type]
    parameters = {"rope_type": rope_type, "rope_theta": 10_000.0, **dict([*numbers.items()][:needed])}
    config = config_of("llama", rope_parameters=parameters)
    ours, factor = frequencies(config)
    theirs, theirs_factor = ROPE_INIT_FUNCTIONS[rope_type](config, "cpu")
    torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=0)
    assert factor == pytest.approx(theirs_factor, rel=1e-7)


def test_layers_of_a_type_without_rotation_are_refused() -> None:
    config = config_of("llama", rope_parameters=NTK)
    with pytest.raises(ww.errors.SettingError, match="no layer of the type 'other'"):
        frequencies(config, layer_type="other")
