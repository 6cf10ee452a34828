"""Tiny configurations and models of every type that can be read, and a look at what they do inside."""

import inspect
from copy import deepcopy
from operator import attrgetter
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, PreTrainedConfig
from transformers.models.auto import modeling_auto as auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import whatwhere as ww
from whatwhere.models.configuration.model_types import HEARING, HYBRID, HYBRID_SLIDING, MODEL_TYPES
from whatwhere.models.probe.record import encoded
from whatwhere.models.probe.tiny import LAYER_KEYS, MODEL_ONLY, WINDOW, class_of, quiet, shrunk, tiny_config, tiny_model

from .checkpoint.forms import LAYERS, VOCABULARY

transformers.logging.set_verbosity_error()

_SIZES: dict[str, Any] = {
    **dict.fromkeys(LAYER_KEYS, LAYERS), "vocab_size": VOCABULARY, "num_key_value_heads": 2,
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
"""What differs from the configurations that a probe is tried on."""
_PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}
_HEATED = {
    **_PLAIN, "rope_type": "yarn", "factor": 4.0, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 4,
}  # fmt: skip
_HALF = ["linear_attention", "full_attention"] * 2
_WINDOWS = ["full_attention", "sliding_attention"] * 2
_WIDER = {"global_head_dim": 32, "vocab_size_per_layer_input": VOCABULARY}
_SEAMLESS = dict.fromkeys(("speech_encoder_layers", "t2u_decoder_layers", "t2u_encoder_layers"), 1)
_INKLING = {"layer_types": ["hybrid_sliding", "hybrid"] * 2, "swa_num_attention_heads": 8, "swa_num_key_value_heads": 4,
    "swa_head_dim": 8, "sliding_window_size": 5, "rel_extent": 7, "log_scaling_n_floor": 3, "log_scaling_alpha": 0.5,
    "unpadded_vocab_size": VOCABULARY}  # fmt: skip
_OWN: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {"layer_group_size": 2, "mlp_layer_types": ["dense"] * 4},
    "chameleon": {"vq_config": {"base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1,
        "latent_channels": 32}},
    "codegen": {"rotary_dim": 4},
    "cohere_asr": {"encoder_config": {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}},
    "cohere_compass_text": {"layer_types": _WINDOWS[::-1], "sliding_window": 5,
        "rope_parameters": {"sliding_attention": {**_PLAIN, "mrope_section": [4, 2, 2]}, "full_attention": None}},
    "cosmos3_edge_text": {"rope_parameters": {**_PLAIN, "mrope_section": [4, 2, 2]}},
    "deepseek_v2": {"topk_method": "greedy"},
    "diffusion_gemma_text": {**_WIDER, "vocab_size_per_layer_input": 0},
    "dots3_note_text": {"layer_types": ["indexed_attention", "sliding_attention"] * 2, "sliding_window": 5,
        "index_topk": 16, "swa_num_attention_heads": 2, "swa_num_key_value_heads": 2, "swa_qk_nope_head_dim": 24,
        "swa_v_head_dim": 8},
    "esm": {"vocab_size": VOCABULARY, "mask_token_id": 36},
    "evolla": {"protein_encoder_config": {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 32}},
    "gemma3n_text": {"vocab_size_per_layer_input": VOCABULARY},
    "gemma4_text": _WIDER,
    "gemma4_unified_text": _WIDER,
    "git": {"vision_config": {"hidden_size": 48, "num_hidden_layers": 1, "intermediate_size": 32}},
    "glm4v_moe_text": {"rope_parameters": {**_PLAIN, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 2]}},
    "glm5_next_text": {"layer_types": ["linear_attention", "indexed_attention"] * 2, "qk_rope_head_dim": 0,
        "hc_mult": 2},
    "gptj": {"rotary_dim": 4},
    "granite_swa": {"layer_rope_theta": [1e4, 500.0, 0, 500.0], "sliding_window": 5},
    "granitemoe_swa": {"layer_rope_theta": [0, 500.0, 1e4, 500.0], "sliding_window": 5},
    "granitemoehybrid": {"layer_types": _HALF, "position_embedding_type": "rope"},
    "hrm_text": {"num_hidden_layers": 2, "L_cycles": 1},
    "hy_v4": {"hc_mult": 2},
    "inkling2_text": _INKLING,
    "inkling_text": _INKLING,
    "kimi_linear": {"layer_types": _HALF},
    "laguna": {"layer_types": _WINDOWS, "sliding_window": 5, "num_attention_heads_per_layer": [4, 2, 4, 8]},
    "lfm2": {"full_attn_idxs": [1, 3]},
    "longcat_flash": {"num_layers": 2, "head_dim": 8},
    "luke": {"entity_vocab_size": 8, "entity_emb_size": 16},
    "mamba2": {"n_groups": 1},
    "mimo_v2_flash": {"v_head_dim": 16, "sliding_window": 5},
    "minimax_m3_vl_text": {"rope_parameters": {**_PLAIN, "partial_rotary_factor": 0.5}},
    "ministral3": {"rope_parameters": _HEATED},
    "mistral4": {"head_dim": 24, "qk_nope_head_dim": 16, "rope_parameters": _HEATED},
    "mistral_large4_text": {"qk_nope_head_dim": 16, "index_topk": 64, "rope_parameters": {**_PLAIN, "rope_type": "yarn",
        "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.0}},
    "nemotron_h": {"layers_block_type": ["linear_attention", "full_attention", "mlp", "full_attention"],
        "mamba_num_heads": 4, "n_groups": 1},
    "phi4_multimodal": {"vision_config": {**dict.fromkeys(("hidden_size", "intermediate_size"), 32),
        **dict.fromkeys(("num_hidden_layers", "num_attention_heads"), 2), **dict.fromkeys(("image_size", "crop_size"),
        28)}, "audio_config": {**dict.fromkeys(("hidden_size", "intermediate_size", "ext_pw_out_channel",
        "nemo_conv_channels"), 32), **dict.fromkeys(("num_blocks", "num_attention_heads"), 2),
        "depthwise_separable_out_channel": 32}},
    "qwen3_omni_moe_text": {"head_dim": 16},
    "qwen4_exp_text": {"layer_types": ["linear_attention", "indexed_attention"] * 2},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "attention_window_size": 5},
    "rembert": {"input_embedding_size": 32, "output_embedding_size": 48},
    "roc_bert": {"concat_input": False, **dict.fromkeys(("shape_vocab_size", "pronunciation_vocab_size"), VOCABULARY),
        **dict.fromkeys(("shape_embed_dim", "pronunciation_embed_dim"), 16)},
    "rwkv": {"attention_hidden_size": 64},
    "seamless_m4t": _SEAMLESS,
    "seamless_m4t_v2": _SEAMLESS,
    "stablelm": {"head_dim": 16},
    "step3p5": {"layer_types": _WINDOWS, "num_sliding_attention_heads": 8, "rope_theta": [5e4, 1e4] * 2,
        "partial_rotary_factors": [0.5, 1.0] * 2, "share_expert_dim": 32, "mlp_layer_types": ["dense"] * 4},
    "udop": {"relative_bias_args": [{"type": "1d"}]},
    "xlstm": {"qk_dim_factor": 1.0},
    "zamba": {"layers_block_type": ["linear_attention", "linear_attention", "hybrid", "hybrid"], "n_mamba_heads": 2,
        "num_key_value_heads": 4},
    "zamba2": {"layers_block_type": ["linear_attention", "linear_attention", "hybrid", "hybrid"], "use_mem_rope": True,
        "num_key_value_heads": 4},
    "zaya": {"layer_types": ["hybrid", "hybrid_sliding"] * 2, "sliding_window": 5},
}  # fmt: skip
"""What a type needs besides, to have its windows, temperatures and kinds of layers in so few."""

ACTIVE: dict[str, dict[str, Any]] = {
    "beam": {"num_hidden_layers": 6},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 8},
    "deberta-v2": {
        "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 12, "position_buckets": 8,
        "share_att_key": True, "norm_rel_ebd": "layer_norm",
    },
    **{name: _OWN[name] for name in ("granite_swa", "granitemoe_swa", "ministral3", "udop")},
    **{name: {"log_scaling_n_floor": 3, "log_scaling_alpha": 0.5} for name in ("inkling2_text", "inkling_text")},
    "mistral4": {"rope_parameters": _HEATED},
}  # fmt: skip
"""What makes temperatures differ from 1 within so few positions, and the thetas of layers differ, in tiny_config."""


TEXT_ALONE = {
    "diffusion_gemma_text": "models.diffusion_gemma.modeling_diffusion_gemma.DiffusionGemmaEncoderTextModel",
    "emu3_text_model": "Emu3ForCausalLM",
    "mllama_text_model": "MllamaForCausalLM",
    "musicgen_decoder": "MusicgenForCausalLM",
    "musicgen_melody_decoder": "MusicgenMelodyForCausalLM",
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
    with quiet():
        sizes = {
            key: size
            for key, size in shrunk(made()).items()
            if key in known and isinstance(size, int) and not isinstance(size, bool) and size != WINDOW
        }
        own = {key: value for key, value in _SIZES.items() if key in known}
        if "kv_lora_rank" in sizes:  # all heads have keys of their own
            own.pop("num_key_value_heads", None)
        sizes |= {**MODEL_ONLY.get(model_type, {}), **own, **_OWN.get(model_type, {})}
        sizes.pop("per_layer_config", None)  # of a layer that is not there
        # A configuration keeps the dictionaries that it is given: a test that changes one must not change the next.
        return made(**deepcopy({**sizes, **settings}))


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
    with quiet():
        if config.model_type in TEXT_ALONE or (kind is AutoModel and type(config) not in transformers.MODEL_MAPPING):
            alone = TEXT_ALONE.get(config.model_type)
            made = class_of(config) if alone is None else attrgetter(alone)(transformers)
            return made._from_config(config, attn_implementation="eager").eval()
        return kind.from_config(config, attn_implementation="eager").eval()


def active_config(model_type: str, **others: Any) -> PreTrainedConfig:
    """Return the configuration that a probe is tried on, with the type's temperature, and its window if it is off."""
    settings = deepcopy(ACTIVE.get(model_type, {}))
    config = tiny_config(model_type, **settings)
    reader = MODEL_TYPES[model_type].windows if model_type in MODEL_TYPES else None
    if reader is None or reader.by in ("global_local", "both_sides") or any(ww.from_huggingface(config).windows):
        return tiny_config(model_type, **{**settings, **others})
    settings |= {reader.key: WINDOW} | ({} if reader.switch is None else {reader.switch: True})
    if reader.by == "from_layer" and reader.start_key is not None:
        settings[reader.start_key] = 2
    if reader.by != "every" and "layer_types" in vars(config):
        full = HYBRID if HYBRID in config.layer_types else "full_attention"
        windowed = HYBRID_SLIDING if full == HYBRID else reader.windowed
        settings["layer_types"] = [windowed, full] * (config.num_hidden_layers // 2)
    return tiny_config(model_type, **{**settings, **others})


def built(model_type: str, headed: bool = False, **others: Any) -> Any:
    """Return a tiny random model whose attention is far from even, without amplifying rounding errors."""
    config = active_config(model_type, **others)
    if model_type == "whisper":  # whose encoder takes sounds
        config.is_encoder_decoder = False
        model: nn.Module = transformers.WhisperForCausalLM(config).eval()
    else:
        model = model_of(config) if headed else tiny_model(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "sink" in name and parameter.dim() == 1:
                nn.init.normal_(parameter)
            elif parameter.dim() > 1 and parameter.requires_grad:
                nn.init.normal_(parameter, std=0.15) if headed else parameter.mul_(0.5)
    return model
