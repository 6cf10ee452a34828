"""Published files that leave sizes out, or multiply queries by a function of their position."""

from importlib import import_module

import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import whatwhere as ww
from whatwhere.models.configuration.model_types import MODEL_TYPES

from .test_published import ALL

FILES = {
    "Llama 4 Scout": ALL["meta-llama/Llama-4-Scout-17B-16E"].config,
    "Ministral 3": ALL["mistralai/Ministral-3-3B-Instruct-2512"].config,
}


# Sizes


NESTED = {name for name, kind in MODEL_TYPES.items() if kind.nested}


@pytest.mark.parametrize("model_type", sorted(NESTED))
def test_sizes_of_nested_files_are_those_of_the_classes(model_type: str) -> None:
    full, sizes = CONFIG_MAPPING[model_type]().to_dict(), MODEL_TYPES[model_type].nested
    assert sizes == {key: full[key] for key in sizes}
    names = MODEL_TYPES[model_type].names
    needed = {names[size][0] for size in ("vocab_size", "dim", "layers", "num_heads")}
    assert set(sizes) == {*needed, *(MODEL_TYPES[model_type].head_dim_parts or ())}


def test_every_text_of_llava_and_its_like_has_sizes() -> None:
    assert {
        "bert",
        "gemma3_text",
        "gpt2",
        "llama",
        "mistral",
        "opt",
        "phi3",
        "qwen2",
        "qwen2_vl_text",
        "qwen3",
    } <= NESTED
    assert len(NESTED) >= 87


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3"])
def test_other_defaults_of_nested_files_are_those_of_the_classes(model_type: str) -> None:
    """A text of which nothing is written but its type has all sizes of its class."""
    outer = {"model_type": "llava", "text_config": {"model_type": model_type}}
    assert ww.from_huggingface(outer) == ww.from_huggingface(CONFIG_MAPPING[model_type]())


def test_a_file_that_is_not_nested_needs_its_sizes() -> None:
    with pytest.raises(ww.errors.CheckpointError, match="has no hidden_size, which has no default"):
        ww.from_huggingface({"model_type": "llama", "vocab_size": 9})


# Temperature


@pytest.mark.parametrize("name", ["Llama 4 Scout", "Ministral 3"])
def test_the_temperature_is_that_of_the_model(name: str) -> None:
    """By the formulas that stand in their modules, at positions around steps."""
    at = torch.tensor([0, 8190, 8191, 16_383, 16_384, 131_071])
    where = ww.from_huggingface(FILES[name]).wheres()[3]
    scheme = where.query_key
    assert isinstance(scheme, ww.QueryTemperature)
    q = torch.ones(1, 1, len(at), scheme.head_dim)
    ours = (scheme(q, q, at)[0].norm(dim=-1) / scheme.head_dim**0.5)[0, 0]
    if name == "Llama 4 Scout":
        assert scheme.then is None
        theirs = torch.log1p(torch.floor((at.float() + 1.0) / 8192)) * 0.1 + 1.0
    else:
        source = import_module("transformers.models.ministral3.modeling_ministral3")
        theirs = source.get_llama_4_attn_scale(at[None], 0.1, 16_384).flatten()
        assert isinstance(scheme.then, ww.Rotary)
        theirs = theirs * scheme.then.magnitude
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
    assert len(set(ours.tolist())) > 2


def test_a_temperature_without_a_period_is_refused() -> None:
    text = FILES["Ministral 3"]["text_config"]
    rope = {"rope_type": "default", "rope_theta": 1e6, "llama_4_scaling_beta": 0.1}
    with pytest.raises(ww.errors.SettingError, match="original_max_position_embeddings is missing"):
        ww.from_huggingface({**text, "rope_parameters": rope})


def test_layers_share_one_temperature() -> None:
    wheres = ww.from_huggingface(FILES["Llama 4 Scout"]).wheres()
    assert wheres[3].query_key is wheres[7].query_key
    assert wheres[0].query_key is wheres[1].query_key is not wheres[3].query_key


def test_the_first_files_have_a_number_as_the_flag() -> None:
    text = FILES["Llama 4 Scout"]["text_config"]
    assert ww.from_huggingface({**text, "attn_temperature_tuning": 4}) == ww.from_huggingface(text)


def test_a_temperature_that_is_off() -> None:
    text = FILES["Llama 4 Scout"]["text_config"]
    for off in ({"attn_temperature_tuning": False}, {"attn_temperature_tuning": 0}, {"attn_scale": 0.0}):
        description = ww.from_huggingface({**text, **off})
        assert description.temperatures == (None,) * 48
