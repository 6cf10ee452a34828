"""Architectures of GGUF: headers as llama.cpp's converter writes them, against configurations of transformers."""

from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import pytest

import whatwhere as ww
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.gguf_architectures import ARCHITECTURES, NOT_READ

from ..tiny import config_of

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
    writer = gguf.GGUFWriter(path, arch)
    for name, value in {**sizes, **keys}.items():
        kinds = {
            bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32,
            str: writer.add_string, list: writer.add_array,
        }  # fmt: skip
        kinds[type(value)](f"{arch}.{name}", value)
    writer.add_tensor("token_embd.weight", TABLE)
    if not tied:
        writer.add_tensor("output.weight", TABLE + 1)
    for name, numbers in (tensors or {}).items():
        writer.add_tensor(name, np.array(numbers, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


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

CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("afmoe", {**ROPE, **WINDOW}, "afmoe",
     {**rope(), "head_dim": 16, "sliding_window": 6, "mup_enabled": True, "layer_types": THREE * 2}),
    ("apertus", {**ROPE, **YARN_KEYS}, "apertus", rope(**YARN)),
    ("arcee", ROPE, "arcee", rope()),
    ("arctic", ROPE, "llama", rope()),
    ("baichuan", {"rope.freq_base": THETA, "block_count": 32}, "llama",
     {**rope(), "num_hidden_layers": 32, "num_key_value_heads": HEADS}),
    ("bailingmoe", {**HEAD, "rope.dimension_count": 32}, "llama", {**rope(), "head_dim": 32}),
    ("bailingmoe2", {**ROPE, "rope.dimension_count": 8, "block_count": LAYERS + 1, "nextn_predict_layers": 1},
     "glm4_moe", rope(partial_rotary_factor=0.5)),
    ("bitnet", ROPE, "bitnet", rope()),
    ("bert", {"attention.causal": False}, "bert", {}),
    ("bloom", {}, "bloom", {}),
    ("chameleon", ROPE, "chameleon", rope()),
    ("chatglm", {**ROPE, "rope.dimension_count": 8}, "glm", {**rope(partial_rotary_factor=0.5), "head_dim": 16}),
    ("codeshell", ROPE, "llama", rope()),
    ("cohere2", {**ROPE, **WINDOW}, "cohere2", {**rope(), "sliding_window": 6, "layer_types": THREE * 2}),
    ("command-r", ROPE, "cohere", rope()),
    ("dbrx", ROPE, "dbrx",
     {"attn_config": {"kv_n_heads": 2, "rope_theta": THETA}, **rope(), "max_seq_len": LENGTH}),
    ("deepseek", {**ROPE, "rope.dimension_count": 16}, "llama", rope()),
    ("deepseek2", LATENT, "deepseek_v3", {**rope(), **LATENT_SIZES}),
    ("deepseek2", {"attention.key_length": 24, "rope.dimension_count": 8, "rope.freq_base": THETA}, "deepseek_v3",
     {**rope(), **LATENT_SIZES}),
    ("deepseek2", {**LATENT, **YARN_KEYS, "rope.scaling.yarn_log_multiplier": 0.0707}, "deepseek_v3",
     {**rope(**YARN, mscale=0.707, mscale_all_dim=0.707), **LATENT_SIZES}),
    ("dream", BOTH_WAYS, "eurobert", rope()),
    ("dots1", {**ROPE, "attention.key_length": 16}, "dots1", {**rope(), "sliding_window": None}),
    ("ernie4_5", HEAD, "ernie4_5", {**rope(), "head_dim": 32}),
    ("ernie4_5-moe", ROPE, "ernie4_5_moe", rope()),
    ("eurobert", BOTH_WAYS, "eurobert", rope()),
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
    ("grovemoe", HEAD, "qwen3_moe", {**rope(), "head_dim": 32}),
    ("granitemoe", {**ROPE, "attention.scale": 0.5, "embedding_scale": 3.0}, "granitemoe",
     {**rope(), "attention_multiplier": 0.5, "embedding_multiplier": 3.0}),
    ("hunyuan-dense", ROPE, "hunyuan_v1_dense", rope()),
    ("hunyuan-moe", ROPE, "hunyuan_v1_moe", rope()),
    ("internlm2", ROPE, "llama", rope()),
    ("jais", {"attention.max_alibi_bias": 16.0}, "mpt",
     {"attn_config": {"alibi": True, "alibi_bias_max": 16, "softmax_scale": 1 / 16}}),
    ("jais2", ROPE, "jais2", {**rope(), "head_dim": 16}),
    ("jamba", {"attention.head_count_kv": SOME_KEYS}, "jamba", {"num_key_value_heads": 2}),
    ("jina-bert-v3", {"rope.freq_base": THETA, "attention.causal": False}, "jina_embeddings_v3", rope()),
    ("lfm2moe", {"rope.freq_base": THETA, "attention.head_count_kv": SOME_KEYS}, "lfm2_moe",
     {**rope(), "num_key_value_heads": 2, "layer_types": hybrid("conv")}),
    ("llada", BOTH_WAYS, "eurobert", rope()),
    ("llada-moe", BOTH_WAYS, "eurobert", rope()),
    ("maincoder", ROPE, "hunyuan_v1_dense", {**rope(), "head_dim": 16}),
    ("minicpm", {**ROPE, "embedding_scale": 3.0}, "granite",
     {**rope(), "attention_multiplier": 0.25, "embedding_multiplier": 3.0}),
    ("minicpm", ROPE, "granite", {**rope(), "attention_multiplier": 0.25, "embedding_multiplier": 12.0}),
    ("lfm2", {"rope.freq_base": THETA, "attention.head_count_kv": [0, 0, 2, 0, 2, 0, 2, 0]}, "lfm2",
     {**rope(), "layer_types": ["full_attention" if n in (2, 4, 6) else "conv" for n in range(LAYERS)]}),
    ("llama", {**ROPE, "rope.scaling.type": "linear", "rope.scaling.factor": 3.0}, "llama",
     rope(rope_type="linear", factor=3.0)),
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
    ("neo-bert", BOTH_WAYS, "eurobert", rope()),
    ("nomic-bert-moe", {"rope.freq_base": THETA, "attention.causal": False}, "nomic_bert", rope()),
    ("nomic-bert", {"rope.freq_base": THETA, "attention.causal": False}, "nomic_bert", rope()),
    ("olmo", ROPE, "olmo", rope()),
    ("olmo2", ROPE, "olmo2", rope()),
    ("olmo2", {**ROPE, **WINDOW, **YARN_KEYS}, "olmo3",
     {**by_type({"rope_theta": THETA, **YARN}, {"rope_theta": THETA}), "sliding_window": 6}),
    ("olmoe", ROPE, "olmoe", rope()),
    ("orion", ROPE, "llama", rope()),
    ("pangu-embedded", ROPE, "llama", rope()),
    ("phimoe", {**ROPE, **WINDOW}, "phimoe", {**rope(), "sliding_window": 6}),
    ("plamo", ROPE, "llama", rope()),
    ("qwen", {"rope.freq_base": THETA}, "llama", {**rope(), "num_key_value_heads": HEADS}),
    ("rnd1", BOTH_WAYS, "eurobert", rope()),
    ("phi2", {**ROPE, "rope.dimension_count": 8}, "phi", rope(partial_rotary_factor=0.5)),
    ("phi3", {**ROPE, **WINDOW}, "phi3", {**rope(), "sliding_window": 6}),
    ("phi3", {**ROPE, "attention.sliding_window": 0}, "phi3", {**rope(), "sliding_window": None}),
    ("qwen2", ROPE, "qwen2", rope()),
    ("qwen2moe", {**ROPE, **YARN_KEYS}, "qwen2_moe", rope(**YARN)),
    ("qwen2vl", {**ROPE, "rope.dimension_sections": [4, 2, 2, 0]}, "qwen2_vl_text", rope(mrope_section=[4, 2, 2])),
    ("qwen3", HEAD, "qwen3", {**rope(), "head_dim": 32}),
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
    ("smallthinker", ROPE, "llama", rope()),
    ("smallthinker", {**ROPE, "attention.sliding_window": 4096}, "cohere2",
     {**rope(), "sliding_window": 4096, "layer_types": ["full_attention", *["sliding_attention"] * 3] * 2}),
    ("smollm3", ROPE, "smollm3", rope()),
    ("stablelm", {**ROPE, "rope.dimension_count": 4}, "stablelm", rope(partial_rotary_factor=0.25)),
    ("starcoder", {"attention.head_count_kv": 1}, "gpt_bigcode", {"multi_query": True}),
    ("starcoder", {"attention.head_count_kv": HEADS}, "gpt_bigcode", {"multi_query": False}),
    ("starcoder", {}, "gpt_bigcode", {"multi_query": False}),
    ("starcoder2", ROPE, "starcoder2", {**rope(), "sliding_window": None}),
    ("t5", {"attention.key_length": 16, "attention.relative_buckets_count": 12, "decoder_block_count": LAYERS}, "t5",
     {"relative_attention_num_buckets": 12}),
    ("t5encoder", {"attention.key_length": 16, "attention.relative_buckets_count": 12, "attention.causal": False}, "t5",
     {"relative_attention_num_buckets": 12}),
    ("xverse", ROPE, "llama", rope()),
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


def test_every_architecture_has_a_case() -> None:
    assert {case[0] for case in CASES} == ARCHITECTURES.keys()
    assert ARCHITECTURES.keys() <= set(gguf.MODEL_ARCH_NAMES.values())


@pytest.mark.parametrize(
    ("arch", "keys", "model_type", "settings"), CASES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_header_means_what_transformers_computes(
    arch: str, keys: dict[str, Any], model_type: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """All fields are equal but for the layout of pairs, which is llama.cpp's."""
    tied = arch != "dbrx"  # which transformers cannot tie
    result = Checkpoint.open(write(tmp_path / "a.gguf", arch, keys, tied=tied)).description
    settings = {**settings, "tie_word_embeddings": tied}
    two = keys.get("attention.head_count_kv") == 2 and not any(key in settings for key in OWN_KEY_HEADS)
    right = read_of(model_type, {"num_key_value_heads": 2, **settings} if two else settings, ARCHITECTURES[arch].part)
    for field in fields(result):
        one, other = getattr(result, field.name), getattr(right, field.name)
        if field.name == "query_key":
            pairs = ARCHITECTURES[arch].pairs
            assert all(plan is None or plan.settings["interleaved"] == (pairs == "interleaved") for plan in one)
            one, other = ([plan and {**plan.settings, "interleaved": 0} for plan in each] for each in (one, other))
        assert field.name in DERIVED or one == other, field.name


def test_architectures_that_are_not_read_have_their_reason(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write(tmp_path / "a.gguf", "jina-bert-v2", {}))
    with pytest.raises(ww.errors.CheckpointError, match="of 'jina-bert-v2', it has ALiBi in both directions"):
        _ = checkpoint.description
    named = [name for names in NOT_READ.values() for name in names]
    assert len(set(named)) == len(named)
    assert set(named) <= set(gguf.MODEL_ARCH_NAMES.values()) - ARCHITECTURES.keys()


def test_longrope_of_phimoe(tmp_path: Path) -> None:
    """Its attention factor is that of the header, below the original length and beyond it."""
    keys = {**ROPE, "rope.scaling.original_context_length": 16, "rope.scaling.attn_factor": 1.25, **WINDOW}
    result = Checkpoint.open(write(tmp_path / "a.gguf", "phimoe", keys, FACTORS)).description
    scaling = {"rope_type": "longrope", "short_factor": FACTORS["rope_factors_short.weight"],
               "long_factor": FACTORS["rope_factors_long.weight"], "short_mscale": 1.25, "long_mscale": 1.25,
               "original_max_position_embeddings": 16}  # fmt: skip
    assert result.query_key == read_of("phimoe", {**rope(**scaling), "sliding_window": 6}).query_key


def test_longrope_of_phi3(tmp_path: Path) -> None:
    keys = {**ROPE, "rope.scaling.original_context_length": 16, "rope.scaling.attn_factor": 1.25, **WINDOW}
    result = Checkpoint.open(write(tmp_path / "a.gguf", "phi3", keys, FACTORS)).description
    scaling = {"rope_type": "longrope", "short_factor": FACTORS["rope_factors_short.weight"],
               "long_factor": FACTORS["rope_factors_long.weight"], "attention_factor": 1.25}  # fmt: skip
    settings = {**rope(**scaling), "original_max_position_embeddings": 16, "sliding_window": 6}
    assert result.query_key == read_of("phi3", settings).query_key
    one = {"rope_factors_long.weight": FACTORS["rope_factors_long.weight"]}
    with pytest.raises(ww.errors.SettingError, match="rope_factors_long"):
        _ = Checkpoint.open(write(tmp_path / "b.gguf", "phi3", {**ROPE, **WINDOW}, one)).description


def test_the_step_of_llama4_is_recovered(tmp_path: Path) -> None:
    """Frequency factors of 1 and 1 are a step: pairs with less than one rotation in 8,192 tokens are divided."""
    plain = ww.Rotary(head_dim=16, theta=500_000.0).inverse_frequencies
    factors = [8.0 if 8192 * float(frequency) / (2 * np.pi) < 1 else 1.0 for frequency in plain]
    keys = {**ROPE, "rope.freq_base": 500_000.0, "rope.dimension_count": 16}
    result = Checkpoint.open(write(tmp_path / "a.gguf", "llama4", keys, {"rope_freqs.weight": factors})).description
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
               "original_max_position_embeddings": 8192, "rope_theta": 500_000.0}  # fmt: skip
    assert result.query_key == read_of("llama4_text", {"rope_parameters": scaling}).query_key


@pytest.mark.parametrize(
    ("arch", "keys", "name"),
    [
        ("starcoder2", {**ROPE, **WINDOW}, "attention.sliding_window"),
        ("qwen2", {**ROPE, "attention.sliding_window_pattern": 2}, "attention.sliding_window_pattern"),
        ("gemma3", {**HEAD, **WINDOW, "attention.sliding_window_pattern": 0}, "attention.sliding_window_pattern"),
        ("gemma3", {**HEAD, **WINDOW, "attention.sliding_window_pattern": [True] * 1001},
         "attention.sliding_window_pattern"),
        ("starcoder", {"attention.head_count_kv": 2}, "attention.head_count_kv"),
        ("llama", {**ROPE, "attention.causal": False}, "attention.causal"),
        ("llama", {**ROPE, "rope.dimension_count": 8}, "partial_rotary_factor"),
        ("falcon", {"attention.head_count_kv": 1, "rope.dimension_count": 8}, "rope.dimension_count"),
        ("granite", {**ROPE, "rope.scaling.finetuned": False}, "granite.rope.scaling.finetuned"),
        ("granitehybrid", {"rope.dimension_count": 8, "attention.head_count_kv": SOME_KEYS}, "partial_rotary_factor"),
        ("baichuan", {"rope.freq_base": THETA}, "block_count"),
        ("deepseek2", {**LATENT, "attention.temperature_scale": 0.1}, "attention.temperature_scale"),
        ("deepseek2", {"attention.key_length": 24, "rope.freq_base": THETA}, "qk_nope_head_dim"),
        ("deepseek2", {**LATENT, **YARN_KEYS}, "rope.scaling.yarn_log_multiplier"),
        ("mistral3", {**HEAD, "attention.temperature_scale": 0.1}, "attention.temperature_scale"),
        ("mistral3", {**HEAD, **YARN_KEYS, "rope.scaling.yarn_log_multiplier": 0.5},
         "rope.scaling.yarn_log_multiplier"),
        ("afmoe", ROPE, "attention.sliding_window"),
        ("afmoe", {**ROPE, **WINDOW, "attention.sliding_window_pattern": 2}, "attention.sliding_window_pattern"),
        ("exaone-moe", {**ROPE, **WINDOW}, "attention.sliding_window_pattern"),
        ("exaone-moe", {**ROPE, **WINDOW, "attention.sliding_window_pattern": [True] * LAYERS},
         "attention.sliding_window_pattern"),
        ("smallthinker", {**ROPE, **WINDOW}, "attention.sliding_window"),
        ("gpt-oss", ROPE, "attention.sliding_window"),
        ("cohere2", ROPE, "attention.sliding_window"),
        ("jamba", {"attention.head_count_kv": [2, 0, 0, 0, 1, 0, 0, 0]}, "num_key_value_heads"),
        ("nemotron_h", {"attention.head_count_kv": SOME_KEYS, "feed_forward_length": 32}, "feed_forward_length"),
        ("nomic-bert", {"attention.causal": True}, "attention.causal"),
        ("llama", {**ROPE, "full_attention_interval": 4}, "full_attention_interval"),
        ("llama", {**ROPE, "attention.key_length_mla": 8}, "attention.key_length_mla"),
        ("gemma3", {**HEAD, **WINDOW, "attention.key_length_swa": 8}, "attention.key_length_swa"),
        ("gemma3", {**HEAD, **WINDOW, "attention.shared_kv_layers": 2}, "attention.shared_kv_layers"),
        ("qwen3next", {**ROPE, "attention.recurrent_layers": [True] * LAYERS}, "attention.recurrent_layers"),
        ("llama4", {**ROPE, "attention.sliding_window": 0}, "attention.sliding_window"),
        ("llama", {**ROPE, "attention.head_count": [4, 2] * 4}, "num_attention_heads"),
        ("lfm2", {"attention.head_count_kv": [0, 2, 0, 1, 0, 2, 0, 2]}, "num_key_value_heads"),
        ("gpt2", {"attention.head_count_kv": 2}, "attention.head_count_kv"),
        ("qwen2vl", {**ROPE, "rope.dimension_sections": [2, 2, 2, 2]}, "mrope_section"),
        ("qwen2", {**ROPE, "rope.dimension_sections": [4, 2, 2, 0]}, "rope.dimension_sections"),
        ("modern-bert", {"rope.freq_base": THETA}, "local_attention"),
        ("llama", {**ROPE, "attention.output_scale": 2.0}, "attention.output_scale"),
        ("olmo2", {**ROPE, **WINDOW, "attention.sliding_window_pattern": [True] * 3}, "layer_types"),
        ("exaone4", {**ROPE, "block_count": 64}, "exaone4.attention.sliding_window"),
    ],
)  # fmt: skip
def test_what_the_code_of_llama_cpp_does_not_read_is_refused(
    arch: str, keys: dict[str, Any], name: str, tmp_path: Path
) -> None:
    checkpoint = Checkpoint.open(write(tmp_path / "a.gguf", arch, keys))
    assert checkpoint.array("token_embd.weight").shape == (ROWS, DIM)
    with pytest.raises((ww.errors.SettingError, ww.errors.ShapeError, ww.errors.CheckpointError), match=name):
        _ = checkpoint.description
