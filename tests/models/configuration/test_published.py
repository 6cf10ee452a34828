"""Files as they are found: with the keys of older versions, of training, and of other matters."""

from math import log
from typing import Any

import pytest

import whatwhere as ww

FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "BLOOM": (
        {
            "model_type": "bloom", "attention_softmax_in_fp32": True, "masked_softmax_fusion": True, "n_embed": 1024,
            "n_inner": None, "n_layer": 24, "num_attention_heads": 16, "offset_alibi": 100, "pretraining_tp": 1,
            "seq_length": 2048, "skip_bias_add": True, "vocab_size": 250_880,
        },
        {"dim": 1024, "num_heads": 16, "layers": 24, "tied": True},
    ),
    "T5": (
        {
            "model_type": "t5", "d_ff": 2048, "d_kv": 64, "d_model": 512, "decoder_start_token_id": 0,
            "is_encoder_decoder": True, "n_positions": 512, "num_heads": 8, "num_layers": 6, "output_past": True,
            "pad_token_id": 0, "relative_attention_num_buckets": 32, "vocab_size": 32_128,
        },
        {"head_dim": 64, "layers": 6, "scale": 1.0, "padding_idx": 0},
    ),
    "T5 1.1, whose head is its own": (
        {
            "model_type": "t5", "d_ff": 1024, "d_kv": 64, "d_model": 512, "feed_forward_proj": "gated-gelu",
            "num_decoder_layers": 8, "num_heads": 6, "num_layers": 8, "relative_attention_max_distance": 128,
            "relative_attention_num_buckets": 32, "tie_word_embeddings": False, "vocab_size": 32_128,
        },
        {"tied": False, "layers": 8},
    ),
    "GPT-J": (
        {
            "model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_inner": None, "n_layer": 28, "n_positions": 2048,
            "rotary": True, "rotary_dim": 64, "scale_attn_weights": True, "tie_word_embeddings": False,
            "vocab_size": 50_400,
        },
        {"head_dim": 256, "tied": False},
    ),
    "GPT-2": (
        {
            "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
            "summary_type": "cls_index", "vocab_size": 50_257,
        },
        {"max_length": 1024, "head_dim": 64},
    ),
    "BART": (
        {
            "model_type": "bart", "add_final_layer_norm": False, "d_model": 1024, "decoder_attention_heads": 16,
            "decoder_layers": 12, "encoder_attention_heads": 16, "encoder_layers": 12, "extra_pos_embeddings": 2,
            "max_position_embeddings": 1024, "normalize_embedding": True, "num_hidden_layers": 12, "pad_token_id": 1,
            "scale_embedding": False, "static_position_embeddings": False, "vocab_size": 50_265,
        },
        {"position_offset": 2, "max_length": 1024, "embedding_scale": None},
    ),
    "Marian": (
        {
            "model_type": "marian", "d_model": 512, "decoder_attention_heads": 8, "decoder_layers": 6,
            "encoder_attention_heads": 8, "encoder_layers": 6, "max_position_embeddings": 512, "num_hidden_layers": 6,
            "pad_token_id": 58_100, "scale_embedding": True, "static_position_embeddings": True, "vocab_size": 58_101,
        },
        {"embedding_scale": "sqrt_dim", "position_offset": 0},
    ),
    "DeBERTa v3": (
        {
            "model_type": "deberta-v2", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12,
            "max_position_embeddings": 512, "max_relative_positions": -1, "norm_rel_ebd": "layer_norm",
            "pos_att_type": "p2c|c2p", "position_biased_input": False, "position_buckets": 256,
            "relative_attention": True, "share_att_key": True, "type_vocab_size": 0, "vocab_size": 128_100,
        },
        {"input": None, "scale": (3 * 64) ** -0.5},
    ),
    "MPT": (
        {
            "model_type": "mpt", "d_model": 4096, "emb_pdrop": 0, "embedding_fraction": 1.0, "expansion_ratio": 4,
            "learned_pos_emb": True, "logit_scale": None, "max_seq_len": 2048, "n_heads": 32, "n_layers": 32,
            "no_bias": True, "vocab_size": 50_432,
            "attn_config": {
                "alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0, "clip_qkv": None,
                "attn_type": "multihead_attention", "attn_uses_sequence_id": False, "prefix_lm": False, "qk_ln": False,
                "softmax_scale": None,
            },
        },
        {"head_dim": 128, "scale": 128**-0.5},
    ),
    "Falcon RW": (
        {
            "model_type": "falcon", "alibi": True, "bias": True, "hidden_size": 2048, "multi_query": False,
            "new_decoder_architecture": False, "num_attention_heads": 32, "num_hidden_layers": 24,
            "parallel_attn": False, "vocab_size": 50_304,
        },
        {"key_heads": 32, "query_key": (None,) * 24},
    ),
    "DeepSeek V3": (
        {
            "model_type": "deepseek_v3", "hidden_size": 7168, "kv_lora_rank": 512, "max_position_embeddings": 163_840,
            "moe_layer_freq": 1, "num_attention_heads": 128, "num_hidden_layers": 61, "num_key_value_heads": 128,
            "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rope_theta": 10_000,
            "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "v_head_dim": 128, "vocab_size": 129_280,
            "rope_scaling": {
                "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 4096, "type": "yarn",
            },
        },
        {"head_dim": 192, "scale": pytest.approx(192**-0.5 * (0.1 * log(40) + 1) ** 2)},
    ),
    "Phi-3 with 128K": (
        {
            "model_type": "phi3", "hidden_size": 3072, "max_position_embeddings": 131_072, "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 32, "original_max_position_embeddings": 4096,
            "pad_token_id": 32_000, "rope_theta": 10_000.0, "sliding_window": 262_144, "vocab_size": 32_064,
            "rope_scaling": {"long_factor": [2.0] * 48, "short_factor": [1.0] * 48, "type": "su"},
        },
        {"head_dim": 96, "padding_idx": 32_000},
    ),
    "gpt-oss": (
        {
            "model_type": "gpt_oss", "head_dim": 64, "hidden_size": 2880, "initial_context_length": 4096,
            "layer_types": ["sliding_attention", "full_attention"] * 12, "max_position_embeddings": 131_072,
            "num_attention_heads": 64, "num_hidden_layers": 24, "num_key_value_heads": 8, "rope_theta": 150_000,
            "sliding_window": 128, "swiglu_limit": 7.0, "vocab_size": 201_088,
            "rope_scaling": {
                "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
                "rope_type": "yarn", "truncate": False,
            },
        },
        {"key_heads": 8, "scale": 0.125},
    ),
    "HunYuan": (
        {
            "model_type": "hunyuan_v1_dense", "head_dim": 128, "hidden_size": 4096, "max_position_embeddings": 32_768,
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_theta": 10_000.0,
            "use_cla": False, "use_qk_norm": True, "use_rotary_pos_emb": True, "vocab_size": 128_167,
            "rope_scaling": {
                "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0,
                "type": "dynamic",
            },
        },
        {"key_heads": 8},
    ),
    "Qwen2-VL, images beside": (
        {
            "model_type": "qwen2_vl", "hidden_size": 1536, "max_position_embeddings": 32_768, "max_window_layers": 28,
            "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2, "rope_theta": 1e6,
            "rope_scaling": {"mrope_section": [16, 24, 24], "type": "mrope"}, "tie_word_embeddings": True,
            "use_sliding_window": False, "vision_config": {"depth": 32, "embed_dim": 1280}, "vocab_size": 151_936,
        },
        {"model_type": "qwen2_vl_text", "head_dim": 128, "tied": True},
    ),
    "the authors' YaRN": (
        {
            "model_type": "llama", "hidden_size": 4096, "max_position_embeddings": 65_536, "num_attention_heads": 32,
            "num_hidden_layers": 32, "pad_token_id": 0, "pretraining_tp": 1, "vocab_size": 32_000,
            "rope_scaling": {
                "factor": 16.0, "finetuned": True, "original_max_position_embeddings": 4096, "type": "yarn",
            },
        },
        {"key_heads": 32, "head_dim": 128},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_as_they_are_published(name: str) -> None:
    config, facts = FILES[name]
    description = ww.from_huggingface(config)
    assert {fact: getattr(description, fact) for fact in facts} == facts
    assert ww.from_huggingface(ww.to_huggingface(description)) == description
