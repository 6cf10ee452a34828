"""Tiny configurations and models of every type that can be read, and a look at what they do inside."""

import inspect
import warnings
from copy import deepcopy
from typing import Any

import transformers
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, PreTrainedConfig
from transformers.models.auto import modeling_auto as auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.diffusion_gemma.modeling_diffusion_gemma import DiffusionGemmaEncoderTextModel

from whatwhere.models.configuration.model_types import HEARING
from whatwhere.models.probe.record import encoded
from whatwhere.models.probe.tiny import class_of

from .checkpoint.forms import LAYERS, VOCABULARY

transformers.logging.set_verbosity_error()

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers"), LAYERS),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    "num_key_value_heads": 2,
    **dict.fromkeys(("head_dim", "d_kv"), 16),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff"), 32),
    **dict.fromkeys(("dff", "hidden_dim", "moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_k"), 2),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group", "n_shared_experts", "first_k_dense_replace"), 1),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    "max_position_embeddings": 64,
    "n_positions": 64,
    "max_seq_len": 64,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
_HYBRID = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
_DEAL = {"rope_type": "default", "rope_theta": 10_000.0}
_HEATED = {
    **_DEAL,
    "rope_type": "yarn",
    "factor": 4.0,
    "llama_4_scaling_beta": 0.1,
    "original_max_position_embeddings": 4,
}
_MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 8, "mamba_expand": 2, "n_mamba_heads": 2}
_HALF = ["linear_attention", "full_attention"] * 2
MODEL_ONLY: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {"layer_group_size": 2, "num_key_value_heads": 4, "mlp_layer_types": ["dense"] * 4},
    "axk1": {"num_key_value_heads": 4},
    "axk2": {"num_key_value_heads": 4, "index_topk": 4, "index_n_heads": 2, "index_head_dim": 16},
    "bamba": {"attn_layer_indices": [1, 3], **_MAMBA},
    "chameleon": {"vocabulary_map": {"<image>": 4}, "vq_config": {"base_channels": 32, "channel_multiplier": [1, 1],
        "num_res_blocks": 1, "latent_channels": 32}},
    "codegen": {"rotary_dim": 4},
    "cohere_compass_text": {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 5,
        "rope_parameters": {"sliding_attention": {**_DEAL, "mrope_section": [4, 2, 2]}, "full_attention": None}},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 32}},
    "cosmos3_edge_text": {"rope_parameters": {**_DEAL, "mrope_section": [4, 2, 2]}},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense"] * LAYERS},
    "deepseek_v2": {"topk_method": "greedy", "num_key_value_heads": 4, "num_experts_per_tok": 2},
    "deepseek_v3": {"num_key_value_heads": 4},
    "deepseek_v32": {"num_key_value_heads": 4, "index_topk": 4, "index_n_heads": 2, "index_head_dim": 16},
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "dots3_note_text": {"layer_types": ["indexed_attention", "sliding_attention"] * 2, "num_key_value_heads": 4,
        "head_dim": 32, "sliding_window": 5, "index_topk": 16, "index_n_heads": 2, "index_head_dim": 16,
        "swa_num_attention_heads": 2, "swa_num_key_value_heads": 2, "swa_head_dim": 32, "swa_qk_nope_head_dim": 24,
        "swa_v_head_dim": 8, "swa_q_lora_rank": 16, "swa_kv_lora_rank": 16},
    "evolla": {"protein_encoder_config": {"vocab_size": 37, "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 32}},
    "falcon_h1": {**dict.fromkeys(("mamba_n_heads", "mamba_d_head", "mamba_d_state"), 8), "mamba_d_ssm": 64,
        "mamba_chunk_size": 16},
    "flaubert": {"emb_dim": 64},
    "luke": {"entity_vocab_size": 8, "entity_emb_size": 16},
    "esm": {"vocab_size": 37, "pad_token_id": 1, "mask_token_id": 36},
    "gemma3n_text": {"num_kv_shared_layers": 0, "vocab_size_per_layer_input": 37, "hidden_size_per_layer_input": 8},
    "glm4_moe_lite": {"num_key_value_heads": 4},
    "diffusion_gemma_text": {"global_head_dim": 32, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32},
    "gemma4_unified_text": {"global_head_dim": 32},
    "gemma4_text": {"global_head_dim": 32, "vocab_size_per_layer_input": 37, "hidden_size_per_layer_input": 8},
    "glm5_next_text": {"layer_types": ["linear_attention", "indexed_attention"] * 2, "num_key_value_heads": 4,
        "qk_rope_head_dim": 0, "linear_head_dim": 8, "linear_num_heads": 2, "index_n_heads": 2, "index_head_dim": 16,
        "index_kpool": 4, "index_topk": 64, "hc_mult": 2},
    "glm_moe_dsa": {"num_key_value_heads": 4, "index_topk": 4, "index_n_heads": 2, "index_head_dim": 16},
    "glm4v_moe_text": {"rope_parameters": {**_DEAL, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 2]}},
    "glm4v_text": {"rope_parameters": {**_DEAL, "mrope_section": [4, 2, 2]}},
    "glm_ocr_text": {"rope_parameters": {**_DEAL, "mrope_section": [4, 2, 2]}},
    "gpt_neo": {"attention_types": [[["global", "local"], LAYERS // 2]]},
    "gptj": {"rotary_dim": 4},
    "granite_swa": {"layer_rope_theta": [1e4, 500.0, 0, 500.0], "sliding_window": 5},
    "granitemoe_swa": {"layer_rope_theta": [0, 500.0, 1e4, 500.0], "sliding_window": 5},
    "granitemoehybrid": {"layer_types": _HALF, "position_embedding_type": "rope", **_MAMBA},
    "git": {"vision_config": {"hidden_size": 48, "num_hidden_layers": 1, "intermediate_size": 32}},
    "hrm_text": {"num_hidden_layers": 2, "L_cycles": 1},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    **{name: {"layer_types": ["hybrid_sliding", "hybrid"] * 2, "swa_num_attention_heads": 8,
        "swa_num_key_value_heads": 4, "swa_head_dim": 8, "sliding_window_size": 5, "d_rel": 4, "rel_extent": 7,
        "log_scaling_n_floor": 3, "log_scaling_alpha": 0.5,
        "unpadded_vocab_size": VOCABULARY} for name in ("inkling2_text", "inkling_text")},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8},
    "jetmoe": {"kv_channels": 16},
    "kimi_linear": {"layer_types": _HALF, "num_key_value_heads": 4, "linear_head_dim": 8, "linear_num_heads": 2},
    "kosmos_2_5_text_model": {"embed_dim": 64, "layers": LAYERS},
    "kosmos_2_text_model": {"embed_dim": 64, "layers": LAYERS},
    "laguna": {"layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 5,
        "num_attention_heads_per_layer": [4, 2, 4, 8]},
    "lfm2": {"full_attn_idxs": [1, 3]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "llama4_text": {"floor_scale": 4},
    "minicpm3": {"num_key_value_heads": 4},
    "hy_v4": {"num_key_value_heads": 4, "index_topk": 4, "index_n_heads": 2, "index_head_dim": 16, "hc_mult": 2},
    "longcat_flash": {"num_layers": 2, "head_dim": 8, "num_key_value_heads": 4, "ffn_hidden_size": 32,
        "expert_ffn_hidden_size": 32, "moe_topk": 2, "zero_expert_num": 2},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1, "state_size": 8},
    "mimo_v2_flash": {"head_dim": 24, "v_head_dim": 16, "sliding_window": 5, "num_key_value_heads": 2},
    "minimax_m3_vl_text": {"rotary_dim": 8, "rope_parameters": {**_DEAL, "partial_rotary_factor": 0.5}},
    "ministral": {"head_dim": 16},
    "ministral3": {"rope_parameters": _HEATED},
    "mistral4": {"num_key_value_heads": 4, "qk_nope_head_dim": 16, "rope_parameters": _HEATED},
    "cohere_asr": {"encoder_config": {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}},
    "moonshine": {**dict.fromkeys(("encoder_num_attention_heads", "decoder_num_attention_heads"), 4),
        **dict.fromkeys(("encoder_num_hidden_layers", "decoder_num_hidden_layers"), LAYERS)},
    "mistral_large4_text": {"num_key_value_heads": 4, "qk_nope_head_dim": 16, "index_topk": 64, "index_n_heads": 2,
        "index_head_dim": 16, "rope_parameters": {**_DEAL, "rope_type": "yarn", "factor": 4.0,
        "original_max_position_embeddings": 16, "attention_factor": 1.0}},
    "mllama_text_model": {"cross_attention_layers": [1]},
    "musicgen_decoder": {"num_codebooks": 1},
    "musicgen_melody_decoder": {"num_codebooks": 1},
    "nemotron": {"head_dim": 16, "num_key_value_heads": 2},
    "paddleocr_vl_text": {"rope_parameters": {**_DEAL, "mrope_section": [2, 3, 3]}},
    "phi4_multimodal": {"vision_config": {**dict.fromkeys(("hidden_size", "intermediate_size"), 32),
        **dict.fromkeys(("num_hidden_layers", "num_attention_heads"), 2), **dict.fromkeys(("image_size", "crop_size"),
        28)}, "audio_config": {**dict.fromkeys(("hidden_size", "intermediate_size", "ext_pw_out_channel",
        "nemo_conv_channels"), 32), **dict.fromkeys(("num_blocks", "num_attention_heads"), 2),
        "depthwise_separable_out_channel": 32}},
    "pix2struct_text_model": {"initializer_range": 0.02},
    **{name: {**dict.fromkeys(("speech_encoder_layers", "t2u_encoder_layers", "t2u_decoder_layers"), 1),
        **dict.fromkeys(("t2u_encoder_ffn_dim", "t2u_decoder_ffn_dim", "speech_encoder_intermediate_size"), 32),
        **dict.fromkeys(("speech_encoder_attention_heads", "t2u_encoder_attention_heads",
        "t2u_decoder_attention_heads"), 4)} for name in ("seamless_m4t", "seamless_m4t_v2")},
    "qwen2_5_omni_text": {"rope_parameters": {**_DEAL, "mrope_section": [2, 3, 3]}},
    "qwen2_5_vl_text": {"rope_parameters": {**_DEAL, "mrope_section": [2, 3, 3]}},
    "qwen2_vl_text": {"rope_parameters": {**_DEAL, "mrope_section": [2, 3, 3]}},
    "qwen3_5_moe_text": {"rope_parameters": {**_DEAL, "mrope_section": [1, 1, 0]}, **_HYBRID},
    "qwen3_5_text": {"rope_parameters": {**_DEAL, "mrope_section": [1, 1, 0]}, **_HYBRID},
    "nemotron_h": {"layers_block_type": ["linear_attention", "full_attention", "mlp", "full_attention"],
        "mamba_num_heads": 4, "mamba_head_dim": 32, "n_groups": 1, "ssm_state_size": 8},
    "qwen3_next": _HYBRID,
    "qwen3_omni_moe_text": {"head_dim": 16, "rope_parameters": {**_DEAL, "mrope_section": [4, 2, 2]}},
    "qwen4_exp_text": {"layer_types": ["linear_attention", "indexed_attention"] * 2, "rope_parameters": {**_DEAL,
        "mrope_section": [4, 2, 2]}, "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16,
        "indexer_budget": 64, "indexer_compress_ratio": 2, **_HYBRID},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "attention_window_size": 5, "lru_width": 64},
    "rwkv": {"attention_hidden_size": 64},
    "qwen3_vl_moe_text": {"rope_parameters": {**_DEAL, "mrope_section": [4, 2, 2]}},
    "qwen3_vl_text": {"rope_parameters": {**_DEAL, "mrope_section": [4, 2, 2]}},
    "rembert": {"input_embedding_size": 32, "output_embedding_size": 48},
    "roc_bert": {"concat_input": False, **dict.fromkeys(("shape_vocab_size", "pronunciation_vocab_size"), 37),
        **dict.fromkeys(("shape_embed_dim", "pronunciation_embed_dim"), 16)},
    "stablelm": {"head_dim": 16},
    "step3p5": {"layer_types": ["full_attention", "sliding_attention"] * 2, "num_sliding_attention_heads": 8,
        "sliding_window": 5, "rope_theta": [5e4, 1e4] * 2, "partial_rotary_factors": [0.5, 1.0] * 2,
        "share_expert_dim": 32, "mlp_layer_types": ["dense"] * 4},
    "udop": {"relative_bias_args": [{"type": "1d"}]},
    "xlm": {"emb_dim": 64},
    "xlstm": {"qk_dim_factor": 1.0},
    "xmod": {"default_language": "en_XX"},
    "xlnet": {"d_head": 16, "d_inner": 32},
    "youtu": {"num_key_value_heads": 4},
    "zamba": {"layers_block_type": ["linear_attention", "linear_attention", "hybrid", "hybrid"], **_MAMBA,
        "attention_head_dim": 32, "attention_hidden_size": 128, "num_key_value_heads": 4},
    "zamba2": {"layers_block_type": ["linear_attention", "linear_attention", "hybrid", "hybrid"], "n_mamba_heads": 4,
        "mamba_d_state": 8, "num_key_value_heads": 4, "use_mem_rope": True},
    "zaya": {"layer_types": ["hybrid", "hybrid_sliding"] * 2, "sliding_window": 5, "num_experts_per_tok": 1},
}  # fmt: skip
"""What a type needs besides, to be built so small."""


TEXT_ALONE: dict[str, Any] = {
    "diffusion_gemma_text": DiffusionGemmaEncoderTextModel,
    "emu3_text_model": transformers.Emu3ForCausalLM,
    "mllama_text_model": transformers.MllamaForCausalLM,
    "musicgen_decoder": transformers.MusicgenForCausalLM,
    "musicgen_melody_decoder": transformers.MusicgenMelodyForCausalLM,
}
"""Types of text in a model of text and images -> the class of a model of the text alone, which no automatic one is."""


def inputs_of(model: nn.Module, tokens: Tensor) -> dict[str, Any]:
    """Return what a model needs to read tokens, by the names of its arguments; of two parts both read them.

    The encoders of some take sounds instead; their decoders read random vectors in place of its outputs.
    """
    names = inspect.signature(model.forward).parameters
    if "decoder_input_ids" not in names:
        return {"input_ids": tokens}
    if model.config.model_type in HEARING:
        return {"encoder_outputs": encoded(model, len(tokens), 7), "decoder_input_ids": tokens}
    return {"input_ids": tokens, "decoder_input_ids": tokens}


def tables_of(model: nn.Module) -> tuple[nn.Module, nn.Module | None]:
    """Return the token table of a model and its output projection, of MusicGen those of its first code."""
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    tokens, head = (each[0] if isinstance(each, nn.ModuleList) else each for each in tables)
    return tokens, head


def config_of(model_type: str, **settings: Any) -> PreTrainedConfig:
    """Make a tiny configuration of a type."""
    made = CONFIG_MAPPING[model_type]
    known = {*made.default_config_fields(), *made.attribute_map.values()}
    sizes = {key: value for key, value in SIZES.items() if key in known}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # A configuration keeps the dictionaries that it is given: a test that changes one must not change the next.
        return made(**deepcopy({**sizes, **MODEL_ONLY.get(model_type, {}), **settings}))


def model_of(config: PreTrainedConfig) -> nn.Module:
    """Make a model of a configuration, at random, that computes attention step by step."""
    kinds = (
        (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, AutoModelForSeq2SeqLM),
        (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, AutoModelForCausalLM),
        (auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, AutoModelForMaskedLM),
    )
    # Encoders that can also be made to decode do what they were trained for.
    kinds = kinds[::-1] if config.model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES else kinds
    kind: Any = next((kind for names, kind in kinds if config.model_type in names), AutoModel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if config.model_type in TEXT_ALONE or (kind is AutoModel and type(config) not in transformers.MODEL_MAPPING):
            made = TEXT_ALONE.get(config.model_type) or class_of(config)
            return made._from_config(config, attn_implementation="eager").eval()
        return kind.from_config(config, attn_implementation="eager").eval()
