"""Architectures of GGUF: headers as llama.cpp's converter writes them, against configurations of transformers."""

from dataclasses import fields
from math import log
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import pytest

import whatwhere as ww
from whatwhere.analysis.subject import NoData, Subject
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.gguf_architectures import ARCHITECTURES, NOT_READ
from whatwhere.models.load_where import load_where

from ..tiny import config_of
from .samples import write_gguf

LAYERS, DIM, HEADS, LENGTH, ROWS, THETA = 8, 64, 4, 64, 37, 12_345.0
TABLE = np.zeros((ROWS, DIM), np.float32)
WINDOW = {"attention.sliding_window": 6}
ROPE = {"attention.head_count_kv": 2, "rope.freq_base": THETA}
HEAD = {**ROPE, "attention.key_length": 32}
FACTORS = {f"rope_factors_{name}.weight": [float(n + i) for i in range(8)] for n, name in ((1, "short"), (3, "long"))}


def write(
    path: Path, arch: str, keys: dict[str, Any], tensors: dict[str, list[float]] | None = None, tied: bool = True
) -> Path:
    sizes = {"embedding_length": DIM, "block_count": LAYERS, "attention.head_count": HEADS, "context_length": LENGTH}
    tables = {"token_embd.weight": TABLE} | ({} if tied else {"output.weight": TABLE + 1})
    more = {name: np.array(numbers, np.float32) for name, numbers in (tensors or {}).items()}
    return write_gguf(path, arch, {**sizes, **keys}, tables | more)


def described(
    folder: Path, arch: str, keys: dict[str, Any], tensors: dict[str, list[float]] | None = None, tied: bool = True
) -> Any:
    """Write a header, and return its description."""
    return Checkpoint.open(write(folder / "a.gguf", arch, keys, tensors, tied)).description


def rope(**others: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": THETA, **others}}


def by_type(full: dict[str, Any], sliding: dict[str, Any]) -> dict[str, Any]:
    return {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", **full},
            "sliding_attention": {"rope_type": "default", **sliding},
        }
    }


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
YARN_KEYS = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16}
GEMMA = {"query_pre_attn_scalar": 32, "head_dim": 32, "sliding_window": 6}
TWO_THETAS = by_type({"rope_theta": THETA}, {"rope_theta": 777.0})
SWA = {**WINDOW, "rope.freq_base_swa": 777.0}
NEXT = {"block_count": LAYERS + 1, "nextn_predict_layers": 1}
HALF_ROPE = rope(partial_rotary_factor=0.5)
THREE = ["sliding_attention"] * 3 + ["full_attention"]

SOME_KEYS = [0, 2, 0, 0, 2, 0, 2, 0]
"""Key heads of a hybrid, whose other layers have no attention."""
SOME_LAYERS = [n for n, key_heads in enumerate(SOME_KEYS) if key_heads]


def hybrid(other: str) -> list[str]:
    return ["full_attention" if layer in SOME_LAYERS else other for layer in range(LAYERS)]


GEMMA_SIZES = {"head_dim": 32, "sliding_window": 6}
LATENT = {"attention.head_count_kv": 1, "attention.key_length": 40, "attention.key_length_mla": 24,
          "rope.dimension_count": 8, "rope.freq_base": THETA}  # fmt: skip
ALL_HEADS = {
    "attention.head_count_kv": HEADS, "attention.key_length": 24, "rope.dimension_count": 8, "rope.freq_base": THETA,
}  # fmt: skip
LATENT_SIZES = {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "num_key_value_heads": HEADS}
MROPE = {"rope.dimension_count": 16, "rope.dimension_sections": [4, 2, 2, 0], "full_attention_interval": 2}
QWEN35 = {**rope(partial_rotary_factor=0.5, mrope_section=[4, 2, 2]), "head_dim": 32,
          "layer_types": ["linear_attention", "full_attention"] * 4}  # fmt: skip
BOTH_WAYS = {**ROPE, "attention.causal": False}
WIDE = [0 if n in (0, 1, 4, 6, 7) else 32 for n in range(LAYERS)]
BLOCKS = ["full_attention" if SOME_KEYS[n] else "mlp" if WIDE[n] else "linear_attention" for n in range(LAYERS)]

GEMMA4 = {
    **HEAD, **SWA, "attention.key_length_swa": 16, "rope.dimension_count": 32, "rope.dimension_count_swa": 16,
    "attention.shared_kv_layers": 2, "embedding_length_per_layer_input": 8,
    "attention.sliding_window_pattern": [True, True, True, False] * 2, "attention.head_count_kv": [2, 2, 2, 1] * 2,
}  # fmt: skip
LAGUNA = {"num_attention_heads_per_layer": [HEADS] * LAYERS, "mlp_layer_types": ["dense"] * LAYERS}
STEP = {
    **SWA, **NEXT, "attention.key_length": 32, "rope.freq_base": THETA, "attention.head_count": [4, 8] * 4 + [4],
    "attention.head_count_kv": [2] * 9,
    "attention.sliding_window_pattern": [False, True] * 4 + [False],
}  # fmt: skip
STEP_ROPE = by_type({"rope_theta": THETA, "partial_rotary_factor": 0.5}, {"rope_theta": 777.0})
STEP_SETTINGS = {
    **STEP_ROPE, "mlp_layer_types": ["dense"] * LAYERS,
    "head_dim": 32, "num_sliding_attention_heads": 8, "sliding_window": 6, "num_key_value_heads": 2,
    "layer_types": ["full_attention", "sliding_attention"] * 4,
}  # fmt: skip
GEMMA4_FACTORS = {"rope_freqs.weight": [1.0] * 4 + [1e30] * 12}

ALIKE: list[tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = [
    ({}, {}, {"bloom": "bloom", "gpt2": "gpt2"}),
    (ROPE, rope(), {
        "arcee": "arcee", "arctic": "llama", "bitnet": "bitnet", "chameleon": "chameleon", "codeshell": "llama",
        "command-r": "cohere", "ernie4_5-moe": "ernie4_5_moe", "hunyuan-dense": "hunyuan_v1_dense",
        "hunyuan-moe": "hunyuan_v1_moe", "internlm2": "llama", "olmo": "olmo", "olmo2": "olmo2", "olmoe": "olmoe",
        "orion": "llama", "pangu-embedded": "llama", "plamo": "llama", "qwen2": "qwen2", "smallthinker": "llama",
        "smollm3": "smollm3", "xverse": "llama"}),
    (ROPE, {**rope(), "head_dim": 16}, {"jais2": "jais2", "maincoder": "hunyuan_v1_dense"}),
    ({**ROPE, "rope.dimension_count": 16}, rope(), {"deepseek": "llama", "exaone": "llama"}),
    ({**ROPE, "rope.dimension_count": 8}, HALF_ROPE, {"glm4": "glm4", "nemotron": "nemotron", "phi2": "phi"}),
    ({**ROPE, "rope.dimension_count": 8, **NEXT}, HALF_ROPE, {"bailingmoe2": "glm4_moe", "glm4moe": "glm4_moe"}),
    ({**ROPE, **WINDOW}, {**rope(), "sliding_window": 6}, {"phi3": "phi3", "phimoe": "phimoe"}),
    ({**ROPE, **WINDOW}, {**rope(), "sliding_window": 6, "layer_types": THREE * 2},
     {"cohere2": "cohere2", "exaone4": "exaone4"}),
    ({**ROPE, "attention.scale": 0.5, "embedding_scale": 3.0},
     {**rope(), "attention_multiplier": 0.5, "embedding_multiplier": 3.0},
     {"granite": "granite", "granitemoe": "granitemoe"}),
    ({**ROPE, "rope.dimension_sections": [4, 2, 2, 0]}, {**rope(mrope_section=[4, 2, 2]), "head_dim": 16},
     {"paddleocr": "paddleocr_vl_text", "qwen3vl": "qwen3_vl_text", "qwen3vlmoe": "qwen3_vl_moe_text"}),
    (HEAD, {**rope(), "head_dim": 32},
     {"ernie4_5": "ernie4_5", "gemma": "gemma", "grovemoe": "qwen3_moe", "mistral3": "ministral3", "qwen3": "qwen3",
      "qwen3moe": "qwen3_moe", "seed_oss": "seed_oss"}),
    ({**HEAD, **MROPE}, QWEN35, {"qwen35": "qwen3_5_text", "qwen35moe": "qwen3_5_moe_text"}),
    (BOTH_WAYS, rope(), dict.fromkeys(
        ("dream", "eurobert", "llada", "llada-moe", "llama-embed", "neo-bert", "rnd1"), "eurobert")),
    ({"rope.freq_base": THETA, "attention.causal": False}, rope(),
     {"jina-bert-v3": "jina_embeddings_v3", "nomic-bert": "nomic_bert", "nomic-bert-moe": "nomic_bert"}),
]  # fmt: skip
"""Keys, settings of transformers with the same numbers, and the architectures -> model types that have both."""
CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    *((arch, keys, model_type, settings) for keys, settings, names in ALIKE for arch, model_type in names.items()),
    ("afmoe", {**ROPE, **WINDOW}, "afmoe",
     {**rope(), "head_dim": 16, "sliding_window": 6, "mup_enabled": True, "layer_types": THREE * 2}),
    ("apertus", {**ROPE, **YARN_KEYS}, "apertus", rope(**YARN)),
    ("baichuan", {"rope.freq_base": THETA, "block_count": 32}, "llama",
     {**rope(), "num_hidden_layers": 32, "num_key_value_heads": HEADS}),
    ("bailingmoe", {**HEAD, "rope.dimension_count": 32}, "llama", {**rope(), "head_dim": 32}),
    ("bert", {"attention.causal": False}, "bert", {}),
    ("bloom", {"attention.max_alibi_bias": 8.0}, "bloom", {}),
    ("chatglm", {**ROPE, "rope.dimension_count": 8}, "glm", {**rope(partial_rotary_factor=0.5), "head_dim": 16}),
    ("dbrx", ROPE, "dbrx", {"attn_config": {"kv_n_heads": 2, "rope_theta": THETA}, **rope(), "max_seq_len": LENGTH}),
    ("deepseek2", LATENT, "deepseek_v3", {**rope(), **LATENT_SIZES}),
    ("deepseek2", {"attention.key_length": 24, "rope.dimension_count": 8, "rope.freq_base": THETA}, "deepseek_v3",
     {**rope(), **LATENT_SIZES}),
    ("deepseek2", {**LATENT, **YARN_KEYS, "rope.scaling.yarn_log_multiplier": 0.0707}, "deepseek_v3",
     {**rope(**YARN, mscale=0.707, mscale_all_dim=0.707), **LATENT_SIZES}),
    ("deepseek2-ocr", {"attention.head_count_kv": HEADS, "rope.dimension_count": 0}, "deepseek_ocr2_text",
     {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}, "num_key_value_heads": HEADS}),
    ("dots1", {**ROPE, "attention.key_length": 16}, "dots1", {**rope(), "sliding_window": None}),
    ("falcon", {"attention.head_count_kv": 1, "rope.freq_base": THETA}, "falcon", {**rope(), "multi_query": True}),
    ("falcon", ROPE, "falcon", {**rope(), "new_decoder_architecture": True, "num_kv_heads": 2}),
    ("falcon-h1", HEAD, "falcon_h1", {**rope(), "head_dim": 32, "key_multiplier": 1.0, "embedding_multiplier": 1.0}),
    ("exaone-moe", {**ROPE, **WINDOW, "attention.sliding_window_pattern": [True, True, True, False] * 2,
                    **NEXT}, "exaone_moe", {**rope(), "sliding_window": 6, "layer_types": THREE * 2}),
    ("exaone4", ROPE, "exaone4", {**rope(), "sliding_window": None, "layer_types": ["full_attention"] * LAYERS}),
    ("gemma-embedding", {**HEAD, **SWA, "attention.causal": False}, "gemma3_text",
     {**GEMMA, **TWO_THETAS, "use_bidirectional_attention": True}),
    ("gemma2", {**HEAD, **WINDOW}, "gemma2", {**rope(), **GEMMA}),
    ("gemma2", HEAD, "gemma2", {**rope(), **GEMMA, "sliding_window": 4096}),
    ("gemma3", {**HEAD, **SWA, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}, "gemma3_text",
     {**GEMMA, **by_type({"rope_type": "linear", "factor": 8.0, "rope_theta": THETA}, {"rope_theta": 777.0})}),
    ("gemma3", {**HEAD, **SWA}, "gemma3_text", {**GEMMA, **TWO_THETAS}),
    ("gemma3", HEAD, "gemma3_text",
     {**GEMMA, **TWO_THETAS, "sliding_window": None, "layer_types": ["full_attention"] * LAYERS}),
    ("gemma3", {**HEAD, **SWA, "attention.sliding_window_pattern": 4}, "gemma3_text",
     {**GEMMA, **TWO_THETAS, "layer_types": THREE * 2}),
    ("gemma3", {**HEAD, **SWA, "attention.sliding_window_pattern": [False, True] * 4}, "gemma3_text",
     {**GEMMA, **TWO_THETAS, "layer_types": ["full_attention", "sliding_attention"] * 4}),
    ("gemma3n", {**HEAD, **SWA, "attention.shared_kv_layers": 2,
                 "embedding_length_per_layer_input": 8}, "gemma3n_text", {**TWO_THETAS, **GEMMA_SIZES}),
    ("gemma4", GEMMA4, "gemma4_text",
     {"head_dim": 16, "num_key_value_heads": 2, "sliding_window": 6, "layer_types": THREE * 2,
      "per_layer_config": {str(n): {"head_dim": 32, "num_key_value_heads": 1} for n in (3, 7)}, "rope_parameters": {
          "full_attention": {"rope_type": "proportional", "rope_theta": THETA, "partial_rotary_factor": 0.25},
          "sliding_attention": {"rope_type": "default", "rope_theta": 777.0}}}),
    ("glm-dsa", {**LATENT, **NEXT}, "glm_moe_dsa", {**rope(), **LATENT_SIZES}),
    ("gpt-oss", {**ROPE, **WINDOW, **YARN_KEYS}, "gpt_oss", {**rope(**YARN), "sliding_window": 6}),
    ("gptneox", {"rope.freq_base": THETA, "rope.dimension_count": 4}, "gpt_neox", rope(partial_rotary_factor=0.25)),
    ("granite", ROPE, "granite", {**rope(), "attention_multiplier": 0.25, "embedding_multiplier": 1.0}),
    ("granitehybrid", {"rope.freq_base": THETA, "attention.head_count_kv": SOME_KEYS, "rope.scaling.finetuned": False,
                       "attention.scale": 0.5}, "granitemoehybrid",
     {**rope(), "attention_multiplier": 0.5, "embedding_multiplier": 1.0, "num_key_value_heads": 2,
      "position_embedding_type": "nope", "layer_types": hybrid("linear_attention")}),
    ("granitehybrid", {"rope.freq_base": THETA, "attention.head_count_kv": SOME_KEYS}, "granitemoehybrid",
     {**rope(), "attention_multiplier": 0.25, "embedding_multiplier": 1.0, "num_key_value_heads": 2,
      "position_embedding_type": "rope", "layer_types": hybrid("linear_attention")}),
    ("grok", ROPE, "granite",
     {**rope(), "attention_multiplier": 0.08838834764831845, "embedding_multiplier": 78.38367176906169}),
    ("grok", {**ROPE, "embedding_scale": 3.0, "attention.output_scale": 0.5, **YARN_KEYS,
              "rope.scaling.yarn_ext_factor": 1.0, "rope.scaling.yarn_attn_factor": 1.0}, "granite",
     {**rope(**YARN, beta_fast=8.0), "attention_multiplier": 0.5, "embedding_multiplier": 3.0}),
    ("jais", {"attention.max_alibi_bias": 16.0}, "mpt",
     {"attn_config": {"alibi": True, "alibi_bias_max": 16, "softmax_scale": 1 / 16}}),
    ("jamba", {"attention.head_count_kv": SOME_KEYS}, "jamba", {"num_key_value_heads": 2}),
    ("lfm2moe", {"rope.freq_base": THETA, "attention.head_count_kv": SOME_KEYS}, "lfm2_moe",
     {**rope(), "num_key_value_heads": 2, "layer_types": hybrid("conv")}),
    ("minicpm", {**ROPE, "embedding_scale": 3.0}, "granite",
     {**rope(), "attention_multiplier": 0.25, "embedding_multiplier": 3.0}),
    ("minicpm", ROPE, "granite", {**rope(), "attention_multiplier": 0.25, "embedding_multiplier": 12.0}),
    ("lfm2", {"rope.freq_base": THETA, "attention.head_count_kv": [0, 0, 2, 0, 2, 0, 2, 0]}, "lfm2",
     {**rope(), "layer_types": ["full_attention" if n in (2, 4, 6) else "conv" for n in range(LAYERS)]}),
    ("llama", {**ROPE, "rope.scaling.type": "linear", "rope.scaling.factor": 3.0}, "llama",
     rope(rope_type="linear", factor=3.0)),
    ("llama", {**ROPE, "rope.scaling.factor": 3.0}, "llama", rope(rope_type="linear", factor=3.0)),
    ("llama", {**ROPE, "rope.scaling.type": "none", "rope.scaling.factor": 3.0}, "llama", rope()),
    ("llama4", ROPE, "llama4_text", {**rope(), "attention_chunk_size": 8192, "floor_scale": 8192}),
    ("minimax-m2", {**ROPE, "attention.key_length": 16, "rope.dimension_count": 8}, "minimax_m2",
     {**rope(partial_rotary_factor=0.5), "rotary_dim": 8}),
    ("minicpm3", ALL_HEADS, "minicpm3", {**rope(), **LATENT_SIZES, "scale_emb": 12.0}),
    ("mistral3", {**HEAD, **YARN_KEYS, "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.1},
     "ministral3", {**rope(**YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1), "head_dim": 32}),
    ("modern-bert", {**SWA, "rope.freq_base": THETA, "attention.causal": False},
     "modernbert", {**TWO_THETAS, "local_attention": 6}),
    ("modern-bert", {**SWA, "rope.freq_base": THETA, "attention.sliding_window_pattern": 3}, "modernbert",
     {**TWO_THETAS, "local_attention": 6}),
    ("mpt", {"attention.max_alibi_bias": 16.0}, "mpt", {"attn_config": {"alibi": True, "alibi_bias_max": 16}}),
    ("nemotron_h", {"attention.head_count_kv": SOME_KEYS, "feed_forward_length": WIDE, "attention.key_length": 32},
     "nemotron_h", {"layers_block_type": BLOCKS, "num_key_value_heads": 2, "head_dim": 32}),
    ("nemotron_h_moe", {"attention.head_count_kv": [*SOME_KEYS, 2], "feed_forward_length": [*WIDE, 32],
                        "attention.key_length": 32, **NEXT},
     "nemotron_h", {"layers_block_type": ["moe" if each == "mlp" else each for each in BLOCKS],
                    "num_key_value_heads": 2, "head_dim": 32}),
    ("olmo2", {**ROPE, **WINDOW, **YARN_KEYS}, "olmo3",
     {**by_type({"rope_theta": THETA, **YARN}, {"rope_theta": THETA}), "sliding_window": 6}),
    ("plamo3", {**HEAD, **SWA}, "laguna", {**LAGUNA, **TWO_THETAS, **GEMMA_SIZES,
      "layer_types": [*["sliding_attention"] * 7, "full_attention"]}),
    ("plamo3", {**HEAD, **SWA, **YARN_KEYS, "attention.sliding_window_pattern": 4},
     "laguna", {**LAGUNA, **by_type({"rope_theta": THETA, **YARN}, {"rope_theta": 777.0}), **GEMMA_SIZES,
                "layer_types": THREE * 2}),
    ("plamo3", HEAD, "laguna", {**LAGUNA, **TWO_THETAS, **GEMMA_SIZES, "layer_types": ["full_attention"] * LAYERS}),
    ("qwen", {"rope.freq_base": THETA}, "llama", {**rope(), "num_key_value_heads": HEADS}),
    ("phi3", {**ROPE, "attention.sliding_window": 0}, "phi3", {**rope(), "sliding_window": None}),
    ("qwen2moe", {**ROPE, **YARN_KEYS}, "qwen2_moe", rope(**YARN)),
    ("qwen2vl", {**ROPE, "rope.dimension_sections": [4, 2, 2, 0]}, "qwen2_vl_text", rope(mrope_section=[4, 2, 2])),
    ("qwen3", {**HEAD, "attention.causal": False}, "qwen3", {**rope(), "head_dim": 32, "is_causal": False}),
    ("gemma3", {**HEAD, "attention.causal": False}, "gemma3_text",
     {**GEMMA, **TWO_THETAS, "sliding_window": None, "layer_types": ["full_attention"] * LAYERS, "is_causal": False}),
    ("qwen3next", {**HEAD, "rope.dimension_count": 8, "full_attention_interval": 2}, "qwen3_next",
     {**rope(partial_rotary_factor=0.25), "head_dim": 32, "layer_types": ["linear_attention", "full_attention"] * 4}),
    ("plm", ALL_HEADS, "deepseek_v3", {**rope(), **LATENT_SIZES}),
    ("smallthinker", {**ROPE, "attention.sliding_window": 4096}, "cohere2",
     {**rope(), "sliding_window": 4096, "layer_types": ["full_attention", *["sliding_attention"] * 3] * 2}),
    ("stablelm", {**ROPE, "rope.dimension_count": 4}, "stablelm", rope(partial_rotary_factor=0.25)),
    ("step35", STEP, "step3p5", STEP_SETTINGS),
    ("step35", {**STEP, "attention.head_count": 4}, "step3p5", {**STEP_SETTINGS, "num_sliding_attention_heads": 4}),
    ("starcoder", {"attention.head_count_kv": 1}, "gpt_bigcode", {"multi_query": True}),
    ("starcoder", {"attention.head_count_kv": HEADS}, "gpt_bigcode", {"multi_query": False}),
    ("starcoder", {}, "gpt_bigcode", {"multi_query": False}),
    ("starcoder2", ROPE, "starcoder2", {**rope(), "sliding_window": None}),
    ("t5", {"attention.key_length": 16, "attention.relative_buckets_count": 12, "decoder_block_count": LAYERS}, "t5",
     {"relative_attention_num_buckets": 12}),
    ("t5encoder", {"attention.key_length": 16, "attention.relative_buckets_count": 12, "attention.causal": False}, "t5",
     {"relative_attention_num_buckets": 12}),
]  # fmt: skip
"""Architecture, its keys, and the model type of transformers with the same numbers in its own keys."""

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


def rotary_of(description: Any) -> list[Any]:
    """Return the settings of each layer's rotary but for the layout of pairs, which is llama.cpp's."""
    return [plan and {**plan.settings, "interleaved": None} for plan in description.query_key]


def test_every_architecture_has_a_case() -> None:
    assert {case[0] for case in CASES} == ARCHITECTURES.keys()
    assert ARCHITECTURES.keys() <= set(gguf.MODEL_ARCH_NAMES.values())


@pytest.mark.every_nth(7)
@pytest.mark.parametrize(
    ("arch", "keys", "model_type", "settings"), CASES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_header_means_what_transformers_computes(
    arch: str, keys: dict[str, Any], model_type: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    tied = arch != "dbrx"  # which transformers cannot tie
    tensors = GEMMA4_FACTORS if arch == "gemma4" else None
    result = described(tmp_path, arch, keys, tensors, tied)
    settings = {**settings, "tie_word_embeddings": tied}
    two = keys.get("attention.head_count_kv") == 2 and not any(key in settings for key in OWN_KEY_HEADS)
    right = read_of(model_type, {"num_key_value_heads": 2, **settings} if two else settings, ARCHITECTURES[arch].part)
    for field in fields(result):
        one, other = getattr(result, field.name), getattr(right, field.name)
        if field.name == "query_key":
            pairs = ARCHITECTURES[arch].pairs
            assert all(plan is None or plan.settings["interleaved"] == (pairs == "interleaved") for plan in one)
            one, other = rotary_of(result), rotary_of(right)
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
    with pytest.raises(NoData, match=reason):
        _ = Subject(checkpoint, 0, lambda _: None).description
    named = [name for names in NOT_READ.values() for name in names]
    assert len(set(named)) == len(named)
    assert set(named) == set(gguf.MODEL_ARCH_NAMES.values()) - ARCHITECTURES.keys()


# Magnitudes, and factors that a header has as tensors


@pytest.mark.parametrize("key", ["rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"])
def test_a_magnitude_that_repeats_that_of_yarn(key: str, tmp_path: Path) -> None:
    """The converter of OLMo 3 writes transformers' attention_factor, 0.1 ln 4 + 1, which is YaRN's own."""
    keys, own = {**ROPE, **WINDOW, **YARN_KEYS}, 0.1 * log(4) + 1
    plain = described(tmp_path, "olmo2", keys)
    assert all(described(tmp_path, "olmo2", {**keys, key: factor}) == plain for factor in (1.0, own))
    assert plain.wheres()[3].query_key.magnitude == pytest.approx(own)
    linear = {**HEAD, "rope.scaling.factor": 4.0, key: own}
    for arch, wrong in (("olmo2", {**keys, key: 0.1 * log(8) + 1}), ("qwen3", linear)):
        with pytest.raises(ww.errors.SettingError, match=key):
            described(tmp_path, arch, wrong)


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
    short, long = FACTORS["rope_factors_short.weight"], FACTORS["rope_factors_long.weight"]
    length = {"original_max_position_embeddings": 16} if arch == "phi3" else {}
    scaling = rope(rope_type="longrope", short_factor=short, long_factor=long, **own)
    right = read_of(arch, {**scaling, **length, "sliding_window": 6})
    assert described(tmp_path, arch, keys, FACTORS).query_key == right.query_key
    for other, tensors in ((arch, {"rope_factors_long.weight": long}), ("llama", FACTORS)):
        with pytest.raises(ww.errors.SettingError, match="rope_factors_long"):
            described(tmp_path, other, ROPE, tensors)


LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
LLAMA4 = {**LLAMA3, "high_freq_factor": 1.0}
LLAMA3_STEP = {**LLAMA3, "rope_theta": 5e6, "factor": 2.0, "high_freq_factor": 32.0,
               "original_max_position_embeddings": 131_072, "partial_rotary_factor": 0.5}  # fmt: skip
LLAMA_KEYS = {**HEAD, "rope.freq_base": 5e5, "rope.dimension_count": 32}
STEP_KEYS = {**STEP, "rope.freq_base": 5e6}


def factors_of(scaling: dict[str, Any], head_dim: int) -> list[float]:
    """Return by how much Llama 3's rule divides the frequency of each pair, as converters write it."""
    factor, length, high, theta = (scaling[name] for name in (
        "factor", "original_max_position_embeddings", "high_freq_factor", "rope_theta"))  # fmt: skip
    rule = ww.scaling.Llama3(factor, length, high_frequency_factor=high)
    plain, scaled = (ww.Rotary(head_dim, theta=theta, scaling=one).inverse_frequencies for one in (None, rule))
    return [float(each) for each in plain / scaled]


OF_LLAMA, OF_STEP = factors_of(LLAMA3, 32), factors_of(LLAMA3_STEP, 16)


@pytest.mark.parametrize(
    ("arch", "keys", "factors", "model_type", "settings"),
    [
        ("llama", LLAMA_KEYS, OF_LLAMA, "llama", {"rope_parameters": LLAMA3, "head_dim": 32}),
        # A step: pairs with less than one rotation in 8,192 tokens are divided.
        ("llama4", {**ROPE, "rope.freq_base": 5e5, "rope.dimension_count": 16},
         [8.0 if 8192 * 5e5 ** (-pair / 8) / (2 * np.pi) < 1 else 1.0 for pair in range(8)], "llama4_text",
         {"rope_parameters": LLAMA4}),
        # Half of the heads without a window, padded with 1.
        ("step35", STEP_KEYS, [*OF_STEP, *[1.0] * 8], "step3p5",
         {**STEP_SETTINGS, **by_type(LLAMA3_STEP, {"rope_theta": 777.0})}),
    ],
)  # fmt: skip
def test_scaling_of_llama3_is_recovered_from_its_factors(
    arch: str, keys: dict[str, Any], factors: list[float], model_type: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """GGUF keeps what the rule makes of each pair; the published parameters are found."""
    assert len(set(factors)) > 1
    result = described(tmp_path, arch, keys, {"rope_freqs.weight": factors})
    assert rotary_of(result) == rotary_of(read_of(model_type, settings))


@pytest.mark.parametrize(
    ("arch", "keys", "factors"),
    [
        *(("llama", LLAMA_KEYS, [by * each for each in OF_LLAMA]) for by in (1.01, np.inf)),
        ("llama", LLAMA_KEYS, OF_LLAMA[:-1]),
        *(("step35", STEP_KEYS, [*begin, *rest]) for begin, rest in (
            (OF_STEP, [2.0] * 8), (OF_STEP, []), ([3.0, *OF_STEP[1:]], [1.0] * 8))),
        ("step35", {**STEP_KEYS, "attention.key_length": 2}, [1.0]),
        *(("gemma4", GEMMA4, wrong) for wrong in ([1.0] * 8 + [4.0] * 8, [1.0] * 8, [8.0] * 16)),
    ],
)  # fmt: skip
def test_other_factors_are_refused(arch: str, keys: dict[str, Any], factors: list[float], tmp_path: Path) -> None:
    with pytest.raises(ww.errors.SettingError, match="rope_freqs"):
        described(tmp_path, arch, keys, {"rope_freqs.weight": factors})


@pytest.mark.parametrize(("layers", "divisor"), [(46, 16), (42, 32)])
def test_the_largest_gemmas_divide_by_another_number(layers: int, divisor: int, tmp_path: Path) -> None:
    """Of their 27B llama.cpp knows by the layers that scores are divided by the root of dim / heads."""
    assert described(tmp_path, "gemma2", {**HEAD, "block_count": layers}).scale == divisor**-0.5


REFUSED: list[tuple[Any, ...]] = [
    ("starcoder2", {**ROPE, **WINDOW}),
    ("qwen2", {**ROPE, "attention.sliding_window_pattern": 2}),
    ("gemma3", {**HEAD, **WINDOW, "attention.sliding_window_pattern": [True] * 1001}),
    ("gemma2", {**HEAD, "attention.causal": False}),
    ("stablelm", {**ROPE, "attention.causal": False}, "is_causal"),
    ("llama", {**ROPE, "attention.causal": 0}),
    ("falcon", {"attention.head_count_kv": 1, "rope.dimension_count": 8}),
    ("granite", {**ROPE, "rope.scaling.finetuned": False}, "granite.rope.scaling.finetuned"),
    ("baichuan", {"rope.freq_base": THETA}, "block_count"),
    ("deepseek2", {**LATENT, "attention.temperature_scale": 0.1}),
    ("deepseek2", {"attention.key_length": 24, "rope.freq_base": THETA}, "qk_nope_head_dim"),
    ("deepseek2", {**LATENT, **YARN_KEYS}, "rope.scaling.yarn_log_multiplier"),
    ("mistral3", {**HEAD, "attention.temperature_scale": 0.1}),
    ("afmoe", ROPE, "attention.sliding_window"),
    ("deepseek2-ocr", {"rope.freq_base": THETA}),
    ("deepseek2-ocr", YARN_KEYS, "rope.scaling.type"),
    ("gemma4", GEMMA4, "rope_freqs.weight"),
    ("grok", {**ROPE, "attention.temperature_length": 1024}),
    ("grok", {**ROPE, **YARN_KEYS, "rope.scaling.yarn_attn_factor": 2.0}),
    ("step35", {**STEP, "attention.sliding_window_pattern": 4, "attention.head_count": 4},
     "attention.sliding_window_pattern"),
    ("step35", {**STEP, "attention.head_count": [4, 8, 8] * 3}, "attention.head_count"),
    ("step35", {key: value for key, value in STEP.items() if key != "attention.key_length"},
     "attention.key_length"),
    ("llama-embed", ROPE, "attention.causal"),
    ("afmoe", {**ROPE, **WINDOW, "attention.sliding_window_pattern": 2}),
    ("exaone-moe", {**ROPE, **WINDOW, "attention.sliding_window_pattern": [True] * LAYERS}),
    ("smallthinker", {**ROPE, **WINDOW}),
    ("jamba", {"attention.head_count_kv": [2, 0, 0, 0, 1, 0, 0, 0]}, "num_key_value_heads"),
    ("nemotron_h", {"attention.head_count_kv": SOME_KEYS, "feed_forward_length": 32}),
    ("llama", {**ROPE, "full_attention_interval": 4}),
    ("llama", {**ROPE, "attention.key_length_mla": 8}),
    ("gemma3", {**HEAD, **WINDOW, "attention.key_length_swa": 8}),
    ("qwen3next", {**ROPE, "attention.recurrent_layers": [True] * LAYERS}),
    ("llama4", {**ROPE, "attention.sliding_window": 0}),
    ("lfm2", {"attention.head_count_kv": [0, 2, 0, 1, 0, 2, 0, 2]}, "num_key_value_heads"),
    ("gpt2", {"attention.head_count_kv": 2}),
    ("qwen2vl", {**ROPE, "rope.dimension_sections": [2, 2, 2, 2]}, "mrope_section"),
    ("modern-bert", {"rope.freq_base": THETA}, "local_attention"),
    ("llama", {**ROPE, "attention.output_scale": 2.0}),
    ("olmo2", {**ROPE, **WINDOW, "attention.sliding_window_pattern": [True] * 3}, "layer_types"),
    ("exaone4", {**ROPE, "block_count": 64}, "exaone4.attention.sliding_window"),
    ("qwen2", {**ROPE, "rope.scaling.alpha": 2.0}),
    ("bloom", {"attention.max_alibi_bias": 4.0}, "attention.max_alibi_bias"),
    *(
        (arch, {"attention.key_length": 16, key: 12.0}, key)
        for key, names in (
            ("attention.scale", ("llama", "gemma2", "bloom")),
            ("attention.max_alibi_bias", ("llama",)),
            ("embedding_scale", ("llama", "gemma")),
            ("attention.temperature_scale", ("llama",)),
        )
        for arch in names
    ),
]  # fmt: skip
"""Architecture, its keys, and which is refused, if it is not the last of them."""


@pytest.mark.parametrize(
    ("arch", "keys", "name"), [(arch, keys, *(name or list(keys)[-1:])) for arch, keys, *name in REFUSED]
)
def test_what_the_code_of_llama_cpp_does_not_read_is_refused(
    arch: str, keys: dict[str, Any], name: str, tmp_path: Path
) -> None:
    checkpoint = Checkpoint.open(write(tmp_path / "a.gguf", arch, keys))
    assert checkpoint.array("token_embd.weight").shape == (ROWS, DIM)
    with pytest.raises(
        (ww.errors.SettingError, ww.errors.ShapeError, ww.errors.CheckpointError), match=name
    ) as refused:
        _ = checkpoint.description
    assert "config.pop" not in str(refused.value)  # a header is not a configuration that one can change


@pytest.mark.parametrize(
    "arch", ["bert", "bloom", "dbrx", "falcon", "gpt2", "gptneox", "jais", "stablelm", "starcoder"]
)
def test_keys_that_disagree_are_refused_with_a_way_out_for_a_header(arch: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write(tmp_path / "a.gguf", arch, {"attention.key_length": 24}))
    with pytest.raises(ww.errors.SettingError, match=r"^head_dim is 24, but .*would be 16") as refused:
        _ = checkpoint.description
    assert "config.pop" not in str(refused.value)
    assert "head_dim is attention.key_length there" in str(refused.value)
    assert "convert the model again" in str(refused.value)
