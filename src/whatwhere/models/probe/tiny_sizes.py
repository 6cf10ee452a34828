"""Sizes of tiny models, as data: by the names that configurations of transformers give them."""

from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN, HEADS, HEAD_DIM, VOCABULARY, LENGTH, WINDOW = 64, 4, 16, 64, 64, 5
"""Features, heads, features of a head, tokens, positions of a learned table, and tokens of a window or chunk."""
MOST_LAYERS = 13
"""Layers that are kept at most, to have each type of layer once."""

LAYER_KEYS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers", "encoder_layers", "decoder_layers",
    "num_encoder_layers", "num_decoder_layers", "num_layers_per_stack",
)  # fmt: skip
"""Keys of numbers of layers."""

_SAME: Sequence[tuple[int, str]] = (
    (
        VOCABULARY,
        "vocab_size src_vocab_size tgt_vocab_size decoder_vocab_size t2u_vocab_size unit_hifi_gan_vocab_size "
        "vocab_size_per_layer_input unpadded_vocab_size entity_vocab_size codebook_vocab_size pronunciation_vocab_size "
        "shape_vocab_size padded_vocab_size text_vocab_size encoder_hash_byte_group_vocab",
    ),
    (
        HIDDEN,
        "hidden_size d_model n_embd dim emb_dim embed_dim embedding_dim word_embed_proj_dim mamba_d_ssm "
        "encoder_hidden_size pooler_hidden_size input_embedding_size output_embedding_size conv_dim lru_width "
        "moe_hidden_size d_latents true_hidden_size embedding_size",
    ),
    (128, "attention_hidden_size"),
    (
        HEADS,
        "num_attention_heads n_head n_heads num_heads attention_heads encoder_attention_heads "
        "decoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads swa_num_attention_heads "
        "mamba_n_heads n_mamba_heads linear_num_heads index_n_heads linear_num_value_heads "
        "num_cross_attention_heads num_self_attention_heads t2u_encoder_attention_heads t2u_decoder_attention_heads "
        "speech_encoder_attention_heads cross_attention_heads",
    ),
    (
        HEAD_DIM,
        "head_dim d_kv d_head dim_head swa_head_dim attention_head_size kv_channels "
        "linear_head_dim mamba_d_head index_head_dim qk_rope_head_dim q_lora_rank kv_lora_rank "
        "linear_key_head_dim linear_value_head_dim global_head_dim o_lora_rank",
    ),
    (
        32,
        "intermediate_size ffn_dim n_inner encoder_ffn_dim decoder_ffn_dim d_ff dff dim_ff hidden_dim "
        "moe_intermediate_size shared_expert_intermediate_size ffn_hidden_size expert_ffn_hidden_size d_inner "
        "intermediate_size_mlp shared_intermediate_size dense_intermediate_size shared_experts_intermediate_size "
        "moe_shared_expert_intermediate_size t2u_encoder_ffn_dim t2u_decoder_ffn_dim speech_encoder_intermediate_size "
        "feed_forward_size prompt_mid_dim hash_byte_group_vocab prompt_length attention_head_dim mamba_head_dim "
        "qk_nope_head_dim v_head_dim d_relative intra_bottleneck_size embedding_rank",
    ),
    (
        8,
        "hidden_size_per_layer_input mamba_d_state ssm_state_size state_size mamba_chunk_size chunk_size "
        "time_step_rank mamba_dt_rank rel_extent",
    ),
    (
        4,
        "num_experts num_local_experts n_routed_experts moe_num_experts d_rel index_topk laurel_rank zero_expert_num "
        "hc_sinkhorn_iters linear_num_key_heads",
    ),
    (2, "num_experts_per_tok moe_k moe_topk top_k num_experts_per_token moe_top_k experts_per_token"),
    (
        1,
        "n_group topk_group num_expert_group n_shared_experts num_shared_experts first_k_dense_replace "
        "mamba_n_groups first_k_dense",
    ),
    (
        LENGTH,
        "max_position_embeddings n_positions max_seq_len n_ctx max_source_positions max_target_positions "
        "max_2d_position_embeddings t2u_max_position_embeddings model_max_length max_encoder_position_embeddings "
        "max_decoder_position_embeddings context_length max_sequence_length",
    ),
    (WINDOW, "sliding_window attention_chunk_size sliding_window_size attention_window_size window_size"),
)
SIZES: Mapping[str, int] = {key: value for value, keys in _SAME for key in keys.split()}
"""Key -> its value in a tiny configuration."""

HEAD_COUNTS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KEY_HEAD_COUNTS = ("num_key_value_heads", "swa_num_key_value_heads", "num_kv_heads")
WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim")
KEPT = frozenset(
    key
    for value, keys in _SAME
    for key in keys.split()
    if value in (HEAD_DIM, WINDOW) or key in ("qk_nope_head_dim", "v_head_dim", "d_relative", "rel_extent", "d_rel")
) | frozenset(key for key in SIZES if "position" in key or key in ("n_ctx", "max_seq_len", "model_max_length"))
"""Keys that a model of a file keeps: features of a head, windows, and lengths."""


def _axes(*sections: int, **others: float) -> Mapping[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [*sections], **others}}


_COMPASS = _axes(4, 2, 2)["rope_parameters"]
_NOTE = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
_WIDER_LAYER = {"per_layer_config": {5: {"head_dim": 32}}}
_QWEN4 = {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 64}
_SWA = {"swa_qk_nope_head_dim": 16, "swa_v_head_dim": 16, "swa_q_lora_rank": 32, "swa_kv_lora_rank": 32}
MODEL_ONLY: Mapping[str, Mapping[str, Any]] = {
    **{key: {"rotary_dim": 8} for key in ("codegen", "gptj")},
    **dict.fromkeys(("gemma4_text", "gemma4_unified_text"), _WIDER_LAYER),
    **{key: {"head_dim": 16} for key in ("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral")},
    **{key: {"attention_window": 2 * (WINDOW - 1)} for key in ("led", "longformer")},
    **{key: {"local_attention": 2 * WINDOW} for key in ("modernbert", "modernbert-decoder")},
    **{key: {"num_codebooks": 1} for key in ("musicgen_decoder", "musicgen_melody_decoder")},
    **dict.fromkeys(("qwen3_omni_moe_text", "qwen3_vl_moe_text", "qwen3_vl_text"), _axes(4, 2, 2)),
    **dict.fromkeys(("qwen3_5_moe_text", "qwen3_5_text"), _axes(1, 1, 0, partial_rotary_factor=0.25)),
    **dict.fromkeys(
        (
            "glm4v_text", "glm_ocr_text", "paddleocr_vl_text", "qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_vl_text",
        ),
        _axes(2, 3, 3),
    ),
    "bamba": {"mamba_d_head": 32, "attn_layer_indices": [1, 3]},
    "chameleon": {"vocabulary_map": {"<image>": 4}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": _COMPASS, "sliding_attention": _COMPASS}},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10_000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 32},
    },
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense"] * 4},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32, **_WIDER_LAYER},
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "dots3_note_text": {
        "head_dim": 32, "rope_parameters": {"indexed_attention": _NOTE, "sliding_attention": _NOTE},
        "swa_num_attention_heads": 4, "swa_num_key_value_heads": 4, "swa_head_dim": 32, **_SWA,
    },
    "ernie4_5_vl_moe_text": _axes(3, 3, 2),
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "gemma3n_text": {"num_kv_shared_layers": 0, "intermediate_size": 32},
    "glm4v_moe_text": _axes(2, 1, 1, partial_rotary_factor=0.5),
    "glm5_next_text": {"index_kpool": 4, "index_topk": 64},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"mamba_d_head": 32, "layer_types": ["mamba", "attention", "mamba", "attention"]},
    "hrm_text": {"num_hidden_layers": 2, "num_layers_per_stack": None},
    "hunyuan_vl_text": {"head_dim": 16, **_axes(2, 2, 2, 2)},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    "llama4_text": {"floor_scale": 4},
    "mamba2": {"num_heads": 8},
    "mimo_v2_flash": {"head_dim": 24},
    "minimax_m3_vl_text": {"rotary_dim": 8, "partial_rotary_factor": 0.5},
    "mistral4": {"qk_nope_head_dim": 16, "head_dim": 32},
    "mllama_text_model": {"cross_attention_layers": [1]},
    "mobilebert": {"intra_bottleneck_size": 64},
    "moonshine": dict.fromkeys(
        (f"{part}_num_{what}" for part in ("encoder", "decoder") for what in ("attention_heads", "hidden_layers")), 4
    ),
    "nemotron": {"num_key_value_heads": 2},
    "pix2struct_text_model": {"initializer_range": 0.02},
    "qwen4_exp_text": {**_QWEN4, "indexer_compress_ratio": 2, **_axes(4, 2, 2)},
    "step3p5": {"sliding_window": 5},
    "t5gemma2_decoder": {"dropout_rate": 0.0},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"layers_block_type": [*["linear_attention", "hybrid"] * 3, "linear_attention"], "num_hidden_layers": 7},
    "zaya": {"num_experts_per_tok": 1},
}  # fmt: skip
"""What a type needs besides."""
