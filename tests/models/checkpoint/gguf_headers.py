"""Headers of GGUF as llama.cpp's converter writes them, and the same numbers as configurations of transformers."""

from pathlib import Path
from typing import Any

import numpy as np

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
GEMMA_ROPE = by_type({"rope_theta": THETA}, {"rope_theta": 777.0})
THREE = ["sliding_attention"] * 3 + ["full_attention"]

SOME_KEYS = [0, 2, 0, 0, 2, 0, 2, 0]
"""Key heads of a hybrid, whose other layers have no attention."""
SOME_LAYERS = [n for n, key_heads in enumerate(SOME_KEYS) if key_heads]


def hybrid(other: str) -> list[str]:
    return ["full_attention" if layer in SOME_LAYERS else other for layer in range(LAYERS)]


GEMMA_SIZES = {"head_dim": 32, "sliding_window": 6}
LATENT = {"attention.head_count_kv": 1, "attention.key_length": 40, "attention.key_length_mla": 24,
          "rope.dimension_count": 8, "rope.freq_base": THETA}  # fmt: skip
LATENT_SIZES = {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "num_key_value_heads": HEADS}
MROPE = {"rope.dimension_count": 16, "rope.dimension_sections": [4, 2, 2, 0], "full_attention_interval": 2}
QWEN35 = {**rope(partial_rotary_factor=0.5, mrope_section=[4, 2, 2]), "head_dim": 32,
          "layer_types": ["linear_attention", "full_attention"] * 4}  # fmt: skip
BOTH_WAYS = {**ROPE, "attention.causal": False}
WIDE = [0 if n in (0, 1, 4, 6, 7) else 32 for n in range(LAYERS)]
BLOCKS = ["full_attention" if SOME_KEYS[n] else "mlp" if WIDE[n] else "linear_attention" for n in range(LAYERS)]

GEMMA4 = {
    **HEAD, **WINDOW, "attention.key_length_swa": 16, "rope.dimension_count": 32, "rope.dimension_count_swa": 16,
    "rope.freq_base_swa": 777.0, "attention.shared_kv_layers": 2, "embedding_length_per_layer_input": 8,
    "attention.sliding_window_pattern": [True, True, True, False] * 2, "attention.head_count_kv": [2, 2, 2, 1] * 2,
}  # fmt: skip
LAGUNA = {"num_attention_heads_per_layer": [HEADS] * LAYERS, "mlp_layer_types": ["dense"] * LAYERS}
STEP = {
    **WINDOW, "block_count": LAYERS + 1, "nextn_predict_layers": 1, "attention.key_length": 32, "rope.freq_base": THETA,
    "attention.head_count": [4, 8] * 4 + [4], "attention.head_count_kv": [2] * 9, "rope.freq_base_swa": 777.0,
    "attention.sliding_window_pattern": [False, True] * 4 + [False],
}  # fmt: skip
STEP_ROPE = by_type({"rope_theta": THETA, "partial_rotary_factor": 0.5}, {"rope_theta": 777.0})
STEP_SETTINGS = {
    **STEP_ROPE, "mlp_layer_types": ["dense"] * LAYERS,
    "head_dim": 32, "num_sliding_attention_heads": 8, "sliding_window": 6, "num_key_value_heads": 2,
    "layer_types": ["full_attention", "sliding_attention"] * 4,
}  # fmt: skip
GEMMA4_FACTORS = {"rope_freqs.weight": [1.0] * 4 + [1e30] * 12}

PLAIN = {
    "arcee": "arcee", "arctic": "llama", "bitnet": "bitnet", "chameleon": "chameleon", "codeshell": "llama",
    "command-r": "cohere", "ernie4_5-moe": "ernie4_5_moe", "hunyuan-dense": "hunyuan_v1_dense", "hunyuan-moe":
    "hunyuan_v1_moe", "internlm2": "llama", "olmo": "olmo", "olmo2": "olmo2", "olmoe": "olmoe", "orion": "llama",
    "pangu-embedded": "llama", "plamo": "llama", "qwen2": "qwen2", "smallthinker": "llama", "smollm3": "smollm3",
    "xverse": "llama",
}  # fmt: skip
"""Architectures with Llama's keys alone -> the model type."""
CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    *((name, ROPE, model_type, rope()) for name, model_type in PLAIN.items()),
    *((name, BOTH_WAYS, "eurobert", rope())
      for name in ("dream", "eurobert", "llada", "llada-moe", "llama-embed", "neo-bert", "rnd1")),
    ("afmoe", {**ROPE, **WINDOW}, "afmoe",
     {**rope(), "head_dim": 16, "sliding_window": 6, "mup_enabled": True, "layer_types": THREE * 2}),
    ("apertus", {**ROPE, **YARN_KEYS}, "apertus", rope(**YARN)),
    ("baichuan", {"rope.freq_base": THETA, "block_count": 32}, "llama",
     {**rope(), "num_hidden_layers": 32, "num_key_value_heads": HEADS}),
    ("bailingmoe", {**HEAD, "rope.dimension_count": 32}, "llama", {**rope(), "head_dim": 32}),
    ("bailingmoe2", {**ROPE, "rope.dimension_count": 8, "block_count": LAYERS + 1, "nextn_predict_layers": 1},
     "glm4_moe", rope(partial_rotary_factor=0.5)),
    ("bert", {"attention.causal": False}, "bert", {}),
    ("bloom", {}, "bloom", {}),
    ("bloom", {"attention.max_alibi_bias": 8.0}, "bloom", {}),
    ("chatglm", {**ROPE, "rope.dimension_count": 8}, "glm", {**rope(partial_rotary_factor=0.5), "head_dim": 16}),
    ("cohere2", {**ROPE, **WINDOW}, "cohere2", {**rope(), "sliding_window": 6, "layer_types": THREE * 2}),
    ("dbrx", ROPE, "dbrx",
     {"attn_config": {"kv_n_heads": 2, "rope_theta": THETA}, **rope(), "max_seq_len": LENGTH}),
    ("deepseek", {**ROPE, "rope.dimension_count": 16}, "llama", rope()),
    ("deepseek2", LATENT, "deepseek_v3", {**rope(), **LATENT_SIZES}),
    ("deepseek2", {"attention.key_length": 24, "rope.dimension_count": 8, "rope.freq_base": THETA}, "deepseek_v3",
     {**rope(), **LATENT_SIZES}),
    ("deepseek2", {**LATENT, **YARN_KEYS, "rope.scaling.yarn_log_multiplier": 0.0707}, "deepseek_v3",
     {**rope(**YARN, mscale=0.707, mscale_all_dim=0.707), **LATENT_SIZES}),
    ("deepseek2-ocr", {"attention.head_count_kv": HEADS, "rope.dimension_count": 0}, "deepseek_ocr2_text",
     {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}, "num_key_value_heads": HEADS}),
    ("dots1", {**ROPE, "attention.key_length": 16}, "dots1", {**rope(), "sliding_window": None}),
    ("ernie4_5", HEAD, "ernie4_5", {**rope(), "head_dim": 32}),
    ("exaone", {**ROPE, "rope.dimension_count": 16}, "llama", rope()),
    ("falcon", {"attention.head_count_kv": 1, "rope.freq_base": THETA}, "falcon", {**rope(), "multi_query": True}),
    ("falcon", ROPE, "falcon", {**rope(), "new_decoder_architecture": True, "num_kv_heads": 2}),
    ("falcon-h1", HEAD, "falcon_h1",
     {**rope(), "head_dim": 32, "key_multiplier": 1.0, "embedding_multiplier": 1.0}),
    ("exaone-moe", {**ROPE, **WINDOW, "attention.sliding_window_pattern": [True, True, True, False] * 2,
                    "block_count": LAYERS + 1, "nextn_predict_layers": 1}, "exaone_moe",
     {**rope(), "sliding_window": 6, "layer_types": THREE * 2}),
    ("exaone4", {**ROPE, **WINDOW}, "exaone4", {**rope(), "sliding_window": 6, "layer_types": THREE * 2}),
    ("exaone4", ROPE, "exaone4",
     {**rope(), "sliding_window": None, "layer_types": ["full_attention"] * LAYERS}),
    ("gemma", HEAD, "gemma", {**rope(), "head_dim": 32}),
    ("gemma-embedding", {**HEAD, **WINDOW, "rope.freq_base_swa": 777.0, "attention.causal": False}, "gemma3_text",
     {**GEMMA, **GEMMA_ROPE, "use_bidirectional_attention": True}),
    ("gemma2", {**HEAD, **WINDOW}, "gemma2", {**rope(), **GEMMA}),
    ("gemma2", HEAD, "gemma2", {**rope(), **GEMMA, "sliding_window": 4096}),
    ("gemma3", {**HEAD, **WINDOW, "rope.freq_base_swa": 777.0, "rope.scaling.type": "linear",
                "rope.scaling.factor": 8.0}, "gemma3_text",
     {**GEMMA, **by_type({"rope_type": "linear", "factor": 8.0, "rope_theta": THETA}, {"rope_theta": 777.0})}),
    ("gemma3", {**HEAD, **WINDOW, "rope.freq_base_swa": 777.0}, "gemma3_text", {**GEMMA, **GEMMA_ROPE}),
    ("gemma3", HEAD, "gemma3_text",
     {**GEMMA, **GEMMA_ROPE, "sliding_window": None, "layer_types": ["full_attention"] * LAYERS}),
    ("gemma3", {**HEAD, **WINDOW, "rope.freq_base_swa": 777.0, "attention.sliding_window_pattern": 4}, "gemma3_text",
     {**GEMMA, **GEMMA_ROPE, "layer_types": THREE * 2}),
    ("gemma3", {**HEAD, **WINDOW, "rope.freq_base_swa": 777.0,
                "attention.sliding_window_pattern": [False, True] * 4}, "gemma3_text",
     {**GEMMA, **GEMMA_ROPE, "layer_types": ["full_attention", "sliding_attention"] * 4}),
    ("gemma3n", {**HEAD, **WINDOW, "rope.freq_base_swa": 777.0, "attention.shared_kv_layers": 2,
                 "embedding_length_per_layer_input": 8}, "gemma3n_text", {**GEMMA_ROPE, **GEMMA_SIZES}),
    ("gemma3n", {**HEAD, **WINDOW, "rope.freq_base_swa": 777.0,
                 "attention.sliding_window_pattern": [True, False] * 4}, "gemma3n_text",
     {**GEMMA_ROPE, **GEMMA_SIZES, "layer_types": ["sliding_attention", "full_attention"] * 4}),
    ("gemma4", GEMMA4, "gemma4_text",
     {"head_dim": 16, "num_key_value_heads": 2, "sliding_window": 6, "layer_types": THREE * 2,
      "per_layer_config": {str(n): {"head_dim": 32, "num_key_value_heads": 1} for n in (3, 7)},
      "rope_parameters": {
          "full_attention": {"rope_type": "proportional", "rope_theta": THETA, "partial_rotary_factor": 0.25},
          "sliding_attention": {"rope_type": "default", "rope_theta": 777.0}}}),
    ("glm-dsa", {**LATENT, "block_count": LAYERS + 1, "nextn_predict_layers": 1}, "glm_moe_dsa",
     {**rope(), **LATENT_SIZES}),
    ("glm-dsa", {**LATENT, **YARN_KEYS, "rope.scaling.yarn_log_multiplier": 0.1}, "glm_moe_dsa",
     {**rope(**YARN, mscale=1.0, mscale_all_dim=1.0), **LATENT_SIZES}),
    ("glm4", {**ROPE, "rope.dimension_count": 8}, "glm4", rope(partial_rotary_factor=0.5)),
    ("glm4moe", {**ROPE, "rope.dimension_count": 8, "block_count": LAYERS + 1, "nextn_predict_layers": 1},
     "glm4_moe", rope(partial_rotary_factor=0.5)),
    ("gpt-oss", {**ROPE, **WINDOW, **YARN_KEYS}, "gpt_oss", {**rope(**YARN), "sliding_window": 6}),
    ("gpt2", {}, "gpt2", {}),
    ("gptneox", {"rope.freq_base": THETA, "rope.dimension_count": 4}, "gpt_neox", rope(partial_rotary_factor=0.25)),
    ("granite", {**ROPE, "attention.scale": 0.5, "embedding_scale": 3.0}, "granite",
     {**rope(), "attention_multiplier": 0.5, "embedding_multiplier": 3.0}),
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
    ("grovemoe", HEAD, "qwen3_moe", {**rope(), "head_dim": 32}),
    ("granitemoe", {**ROPE, "attention.scale": 0.5, "embedding_scale": 3.0}, "granitemoe",
     {**rope(), "attention_multiplier": 0.5, "embedding_multiplier": 3.0}),
    ("jais", {"attention.max_alibi_bias": 16.0}, "mpt",
     {"attn_config": {"alibi": True, "alibi_bias_max": 16, "softmax_scale": 1 / 16}}),
    ("jais2", ROPE, "jais2", {**rope(), "head_dim": 16}),
    ("jamba", {"attention.head_count_kv": SOME_KEYS}, "jamba", {"num_key_value_heads": 2}),
    ("jina-bert-v3", {"rope.freq_base": THETA, "attention.causal": False}, "jina_embeddings_v3", rope()),
    ("lfm2moe", {"rope.freq_base": THETA, "attention.head_count_kv": SOME_KEYS}, "lfm2_moe",
     {**rope(), "num_key_value_heads": 2, "layer_types": hybrid("conv")}),
    ("maincoder", ROPE, "hunyuan_v1_dense", {**rope(), "head_dim": 16}),
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
    ("minicpm3", {"attention.head_count_kv": HEADS, "attention.key_length": 24, "rope.dimension_count": 8,
                  "rope.freq_base": THETA}, "minicpm3", {**rope(), **LATENT_SIZES, "scale_emb": 12.0}),
    ("mistral3", {**HEAD, **YARN_KEYS, "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.1},
     "ministral3", {**rope(**YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1), "head_dim": 32}),
    ("mistral3", HEAD, "ministral3", {**rope(), "head_dim": 32}),
    ("modern-bert", {**WINDOW, "rope.freq_base": THETA, "rope.freq_base_swa": 777.0, "attention.causal": False},
     "modernbert", {**by_type({"rope_theta": THETA}, {"rope_theta": 777.0}), "local_attention": 6}),
    ("modern-bert", {**WINDOW, "rope.freq_base": THETA, "rope.freq_base_swa": 777.0,
                     "attention.sliding_window_pattern": 3}, "modernbert",
     {**by_type({"rope_theta": THETA}, {"rope_theta": 777.0}), "local_attention": 6}),
    ("mpt", {"attention.max_alibi_bias": 16.0}, "mpt", {"attn_config": {"alibi": True, "alibi_bias_max": 16}}),
    ("nemotron", {**ROPE, "rope.dimension_count": 8}, "nemotron", rope(partial_rotary_factor=0.5)),
    ("nemotron_h", {"attention.head_count_kv": SOME_KEYS, "feed_forward_length": WIDE, "attention.key_length": 32},
     "nemotron_h", {"layers_block_type": BLOCKS, "num_key_value_heads": 2, "head_dim": 32}),
    ("nemotron_h_moe", {"attention.head_count_kv": [*SOME_KEYS, 2], "feed_forward_length": [*WIDE, 32],
                        "attention.key_length": 32, "block_count": LAYERS + 1, "nextn_predict_layers": 1},
     "nemotron_h", {"layers_block_type": ["moe" if each == "mlp" else each for each in BLOCKS],
                    "num_key_value_heads": 2, "head_dim": 32}),
    ("nomic-bert-moe", {"rope.freq_base": THETA, "attention.causal": False}, "nomic_bert", rope()),
    ("nomic-bert", {"rope.freq_base": THETA, "attention.causal": False}, "nomic_bert", rope()),
    ("olmo2", {**ROPE, **WINDOW, **YARN_KEYS}, "olmo3",
     {**by_type({"rope_theta": THETA, **YARN}, {"rope_theta": THETA}), "sliding_window": 6}),
    ("paddleocr", {**ROPE, "rope.dimension_sections": [4, 2, 2, 0]}, "paddleocr_vl_text",
     {**rope(mrope_section=[4, 2, 2]), "head_dim": 16}),
    ("phimoe", {**ROPE, **WINDOW}, "phimoe", {**rope(), "sliding_window": 6}),
    ("plamo3", {**HEAD, **WINDOW, "rope.freq_base_swa": 777.0}, "laguna",
     {**LAGUNA, **by_type({"rope_theta": THETA}, {"rope_theta": 777.0}), **GEMMA_SIZES,
      "layer_types": [*["sliding_attention"] * 7, "full_attention"]}),
    ("plamo3", {**HEAD, **WINDOW, **YARN_KEYS, "rope.freq_base_swa": 777.0, "attention.sliding_window_pattern": 4},
     "laguna", {**LAGUNA, **by_type({"rope_theta": THETA, **YARN}, {"rope_theta": 777.0}), **GEMMA_SIZES,
                "layer_types": THREE * 2}),
    ("plamo3", HEAD, "laguna",
     {**LAGUNA, **by_type({"rope_theta": THETA}, {"rope_theta": 777.0}), **GEMMA_SIZES,
      "layer_types": ["full_attention"] * LAYERS}),
    ("qwen", {"rope.freq_base": THETA}, "llama", {**rope(), "num_key_value_heads": HEADS}),
    ("phi2", {**ROPE, "rope.dimension_count": 8}, "phi", rope(partial_rotary_factor=0.5)),
    ("phi3", {**ROPE, **WINDOW}, "phi3", {**rope(), "sliding_window": 6}),
    ("phi3", {**ROPE, "attention.sliding_window": 0}, "phi3", {**rope(), "sliding_window": None}),
    ("qwen2moe", {**ROPE, **YARN_KEYS}, "qwen2_moe", rope(**YARN)),
    ("qwen2vl", {**ROPE, "rope.dimension_sections": [4, 2, 2, 0]}, "qwen2_vl_text", rope(mrope_section=[4, 2, 2])),
    ("qwen3", HEAD, "qwen3", {**rope(), "head_dim": 32}),
    ("qwen3", {**HEAD, "attention.causal": False}, "qwen3", {**rope(), "head_dim": 32, "is_causal": False}),
    ("gemma3", {**HEAD, "attention.causal": False}, "gemma3_text",
     {**GEMMA, **GEMMA_ROPE, "sliding_window": None, "layer_types": ["full_attention"] * LAYERS, "is_causal": False}),
    ("qwen3moe", HEAD, "qwen3_moe", {**rope(), "head_dim": 32}),
    ("qwen3next", {**HEAD, "rope.dimension_count": 8, "full_attention_interval": 2}, "qwen3_next",
     {**rope(partial_rotary_factor=0.25), "head_dim": 32,
      "layer_types": ["linear_attention", "full_attention"] * 4}),
    ("plm", {"attention.head_count_kv": HEADS, "attention.key_length": 24, "rope.dimension_count": 8,
             "rope.freq_base": THETA}, "deepseek_v3", {**rope(), **LATENT_SIZES}),
    ("qwen35", {**HEAD, **MROPE}, "qwen3_5_text", QWEN35),
    ("qwen35moe", {**HEAD, **MROPE}, "qwen3_5_moe_text", QWEN35),
    ("qwen3vl", {**ROPE, "rope.dimension_sections": [4, 2, 2, 0]}, "qwen3_vl_text",
     {**rope(mrope_section=[4, 2, 2]), "head_dim": 16}),
    ("qwen3vlmoe", {**ROPE, "rope.dimension_sections": [4, 2, 2, 0]}, "qwen3_vl_moe_text",
     {**rope(mrope_section=[4, 2, 2]), "head_dim": 16}),
    ("seed_oss", HEAD, "seed_oss", {**rope(), "head_dim": 32}),
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
