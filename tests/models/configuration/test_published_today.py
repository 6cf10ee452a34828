"""Published files that leave sizes out, or have steps for ramps; written from memory of their well-known keys."""

from importlib import import_module
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import whatwhere as ww
from whatwhere.models.configuration.plan import CurvePlan
from whatwhere.models.registry import MODEL_TYPES, nested_defaults
from whatwhere.models.registry.llama import LLAMA_LIKE
from whatwhere.models.registry.llama_variants import LLAMA_VARIANTS
from whatwhere.models.registry.nested_sizes import NESTED_SIZES

from .test_rope_scaling import rotary_of

AT = (0, 1, 4097, 131_071)
GEMMA3: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255_999, "eoi_token_index": 256_000,
    "eos_token_id": [1, 106], "image_token_index": 262_144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
    "model_type": "gemma3", "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "vision_config": {"hidden_size": 1152, "image_size": 896, "model_type": "siglip_vision_model"},
}  # fmt: skip
GEMMA3_TEXT: dict[str, Any] = {
    "model_type": "gemma3_text", "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
}  # fmt: skip
FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Llama 4 Scout": (
        {
            "model_type": "llama4", "boi_token_index": 200_080, "tie_word_embeddings": False,
            "text_config": {
                "attention_bias": False, "attention_chunk_size": 8192, "attn_scale": 0.1,
                "attn_temperature_tuning": True, "floor_scale": 8192, "head_dim": 128, "hidden_size": 5120,
                "interleave_moe_layer_step": 1, "intermediate_size": 8192, "intermediate_size_mlp": 16_384,
                "max_position_embeddings": 10_485_760,
                "model_type": "llama4_text", "no_rope_layers": [], "num_attention_heads": 40, "num_experts_per_tok": 1,
                "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 16, "pad_token_id": 200_018,
                "rope_theta": 500_000.0, "use_qk_norm": True, "vocab_size": 202_048,
                "rope_scaling": {
                    "factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
                    "original_max_position_embeddings": 8192, "rope_type": "llama3",
                },
            },
        },
        {
            "layers": 48, "head_dim": 128, "key_heads": 8,
            "temperatures": (*(None,) * 3, CurvePlan("stepped", {"alpha": 0.1, "period": 8192, "offset": 1})) * 12,
        },
    ),
    "Kimi K2": (
        {
            "architectures": ["DeepseekV3ForCausalLM"], "auto_map": {"AutoConfig": "configuration_deepseek.Kimi"},
            "aux_loss_alpha": 0.001, "first_k_dense_replace": 1, "hidden_size": 7168, "kv_lora_rank": 512,
            "max_position_embeddings": 131_072, "model_type": "kimi_k2", "moe_layer_freq": 1, "n_group": 1,
            "n_routed_experts": 384, "num_attention_heads": 64, "num_hidden_layers": 61, "num_key_value_heads": 64,
            "num_nextn_predict_layers": 0, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "rope_theta": 50_000.0, "routed_scaling_factor": 2.827, "scoring_func": "sigmoid", "v_head_dim": 128,
            "tie_word_embeddings": False, "vocab_size": 163_840,
            "rope_scaling": {
                "beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 4096, "type": "yarn",
            },
        },
        {"model_type": "kimi_k2", "head_dim": 192, "key_heads": 64, "tied": False},
    ),
    "Gemma 3 4B": (
        {**GEMMA3, "text_config": {
            **GEMMA3_TEXT, "hidden_size": 2560, "intermediate_size": 10_240, "num_hidden_layers": 34,
        }},
        {"vocab_size": 262_208, "num_heads": 8, "key_heads": 4, "head_dim": 256, "layers": 34, "dim": 2560},
    ),
    "Gemma 3 12B": (
        {**GEMMA3, "text_config": {
            **GEMMA3_TEXT, "hidden_size": 3840, "intermediate_size": 15_360, "num_attention_heads": 16,
            "num_hidden_layers": 48, "num_key_value_heads": 8,
        }},
        {"vocab_size": 262_208, "num_heads": 16, "key_heads": 8, "head_dim": 256, "layers": 48},
    ),
    "Gemma 3 27B": (
        {**GEMMA3, "text_config": {
            **GEMMA3_TEXT, "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21_504,
            "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
        }},
        {"vocab_size": 262_208, "num_heads": 32, "head_dim": 128, "scale": 168**-0.5},
    ),
    "LLaVA 1.5": (
        {
            "architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100, "image_token_index": 32_000,
            "model_type": "llava", "pad_token_id": 32_001, "projector_hidden_act": "gelu",
            "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "vocab_size": 32_064,
            "text_config": {
                "_name_or_path": "lmsys/vicuna-7b-v1.5", "architectures": ["LlamaForCausalLM"],
                "max_position_embeddings": 4096, "model_type": "llama", "rms_norm_eps": 1e-05,
                "torch_dtype": "float16", "vocab_size": 32_064,
            },
            "vision_config": {"hidden_size": 1024, "model_type": "clip_vision_model", "num_attention_heads": 16},
        },
        {"dim": 4096, "num_heads": 32, "key_heads": 32, "layers": 32, "vocab_size": 32_064, "tied": False},
    ),
    "Pixtral 12B": (
        {
            "architectures": ["LlavaForConditionalGeneration"], "image_seq_length": 1, "image_token_index": 10,
            "model_type": "llava", "projector_hidden_act": "gelu", "vision_feature_layer": -1,
            "text_config": {
                "head_dim": 128, "hidden_size": 5120, "intermediate_size": 14_336, "is_composition": True,
                "max_position_embeddings": 1_024_000, "model_type": "mistral", "num_hidden_layers": 40,
                "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1_000_000_000.0,
                "sliding_window": None, "vocab_size": 131_072,
            },
            "vision_config": {"head_dim": 64, "model_type": "pixtral", "rope_theta": 10_000.0},
        },
        {"num_heads": 32, "head_dim": 128, "dim": 5120, "windows": (None,) * 40},
    ),
    "Ministral 3": (
        {
            "model_type": "mistral3", "image_token_index": 10, "tie_word_embeddings": True,
            "text_config": {
                "head_dim": 128, "hidden_size": 3072, "intermediate_size": 9216, "max_position_embeddings": 262_144,
                "model_type": "ministral3", "num_attention_heads": 32, "num_hidden_layers": 26,
                "num_key_value_heads": 8, "sliding_window": None, "vocab_size": 131_072,
                "rope_parameters": {
                    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
                    "mscale_all_dim": 1.0, "original_max_position_embeddings": 16_384, "rope_theta": 1e6,
                    "rope_type": "yarn", "type": "yarn",
                },
            },
        },
        {"temperatures": (CurvePlan("stepped", {"alpha": 0.1, "period": 16_384, "offset": 0}),) * 26, "tied": True},
    ),
    "InternLM2": (
        {
            "architectures": ["InternLM2ForCausalLM"], "attn_implementation": "eager", "bias": False,
            "hidden_size": 4096, "intermediate_size": 14_336, "max_position_embeddings": 32_768,
            "model_type": "internlm2", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
            "pad_token_id": 2, "rope_scaling": {"factor": 2.0, "type": "dynamic"}, "rope_theta": 1_000_000,
            "tie_word_embeddings": False, "vocab_size": 92_544,
        },
        {"key_heads": 8, "padding_idx": 2},
    ),
}  # fmt: skip
REMOTE = {"kimi_k2": "deepseek_v3", "internlm2": "llama"}
"""Types whose code is not in transformers -> the type there whose rotary module is the same."""


@pytest.mark.parametrize("name", FILES)
def test_files_of_today_are_read(name: str) -> None:
    config, facts = FILES[name]
    description = ww.from_huggingface(config)
    assert {fact: getattr(description, fact) for fact in facts} == facts
    assert ww.from_huggingface(ww.to_huggingface(description)) == description


@pytest.mark.parametrize("name", FILES)
def test_frequencies_are_those_of_their_modules(name: str) -> None:
    """Cosine and sine of every kind of layer, within what float32 rounds of frequencies and angles."""
    config = FILES[name][0]
    theirs = text_config(config)
    model, description = rotary_of(theirs), ww.from_huggingface(config)
    at = torch.tensor([AT])
    for layer, where in enumerate(description.wheres()):
        scheme = where.query_key
        scheme = scheme.then if isinstance(scheme, ww.QueryTemperature) else scheme
        if scheme is None or layer not in (0, 5, 25):
            continue
        types = getattr(theirs, "layer_types", None) or [""] * description.layers
        named = (types[layer],) if "layer_type" in signature(type(model).forward).parameters else ()
        cos, sin = called(model, at, *named)
        assert isinstance(scheme, ww.Rotary)
        length = None if not scheme.follows_length else torch.tensor(AT[-1] + 1)
        angles = torch.tensor(AT, dtype=torch.float64)[:, None] * scheme.frequencies(length)
        bound = 5e-7 * torch.tensor(AT, dtype=torch.float64)[:, None] * scheme.frequencies(length) + 4e-7
        for ours, wanted in ((angles.cos(), cos), (angles.sin(), sin)):
            pairs = ours.shape[-1]
            assert wanted.shape[-1] in (pairs, 2 * pairs)
            assert bool(((scheme.magnitude * ours - wanted[0, :, :pairs]).abs() <= bound).all())


def text_config(config: dict[str, Any]) -> PreTrainedConfig:
    """Return what transformers makes of a published file, of its text."""
    made = CONFIG_MAPPING[REMOTE.get(config["model_type"], config["model_type"])]
    kept = {key: value for key, value in config.items() if key not in ("model_type", "vision_config")}
    whole = made.from_dict(kept)
    return whole.get_text_config()


def called(model: nn.Module, at: Tensor, *named: str) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of a rotary module, of complex numbers too."""
    out = model(torch.zeros(1), at, *named)
    if isinstance(out, Tensor):
        return out.real, out.imag
    return out


# Sizes


@pytest.mark.parametrize("model_type", sorted(NESTED_SIZES))
def test_sizes_of_nested_files_are_those_of_the_classes(model_type: str) -> None:
    full = CONFIG_MAPPING[model_type]().to_dict()
    sizes = nested_defaults(model_type)
    assert sizes == {key: full[key] for key in sizes}
    assert len(sizes) == len(NESTED_SIZES[model_type])


def test_every_type_that_can_be_nested_has_sizes() -> None:
    assert set(NESTED_SIZES) == {*LLAMA_LIKE, *LLAMA_VARIANTS} <= set(MODEL_TYPES)


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
    where = ww.from_huggingface(FILES[name][0]).wheres()[3]
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
    text = FILES["Ministral 3"][0]["text_config"]
    rope = {"rope_type": "default", "rope_theta": 1e6, "llama_4_scaling_beta": 0.1}
    with pytest.raises(ww.errors.SettingError, match="original_max_position_embeddings is missing"):
        ww.from_huggingface({**text, "rope_parameters": rope})


def test_layers_share_one_temperature() -> None:
    wheres = ww.from_huggingface(FILES["Llama 4 Scout"][0]).wheres()
    assert wheres[3].query_key is wheres[7].query_key
    assert wheres[0].query_key is wheres[1].query_key is not wheres[3].query_key


def test_the_first_files_have_a_number_as_the_flag() -> None:
    text = FILES["Llama 4 Scout"][0]["text_config"]
    assert ww.from_huggingface({**text, "attn_temperature_tuning": 4}) == ww.from_huggingface(text)


def test_a_temperature_that_is_off() -> None:
    text = FILES["Llama 4 Scout"][0]["text_config"]
    for off in ({"attn_temperature_tuning": False}, {"attn_temperature_tuning": 0}, {"attn_scale": 0.0}):
        description = ww.from_huggingface({**text, **off})
        assert description.temperatures == (None,) * 48
        assert ww.from_huggingface(ww.to_huggingface(description)) == description
