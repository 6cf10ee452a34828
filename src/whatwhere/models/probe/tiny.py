"""The model that is probed: tiny and random, shrunk from the configuration of a type or file, or with its weights."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from whatwhere.errors import CheckpointError, MissingExtra, SettingError
from whatwhere.initialization import seeded
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.combined import MERGE
from whatwhere.models.checkpoint.files import File
from whatwhere.models.checkpoint.hub import locate, ranges_folder, why_not_found
from whatwhere.models.checkpoint.tokenizer_files import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_LEAST_LAYERS = 4
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


def model_to_probe(
    name_or_path: str, *, weights: bool = False, trust_remote_code: bool = False
) -> tuple["PreTrainedModel", "PreTrainedConfig"]:
    """Return the model of a type or of a file, local or at huggingface.co, and the configuration that it was made of.

    Of a file the heads keep their features, so that frequencies are those of the file; of a type they are tiny too.
    `weights` loads those of the folder, from safetensors alone. `trust_remote_code` runs code that lies in the folder.
    """
    try:
        from transformers import AutoConfig, AutoModel
    except ModuleNotFoundError:
        raise MissingExtra(
            "a probe runs models of transformers, which is not installed: pip install transformers."
        ) from None
    path = _path_of(name_or_path)
    if path is None:
        if weights:
            raise SettingError(
                f"--weights needs a folder, but {name_or_path!r} is none: pass a folder with a config.json."
            )
        config = tiny_config(name_or_path)
        return tiny_model(config), config
    if not (path / "config.json").exists() and (path / "adapter_config.json").is_file():
        base = Checkpoint.open(path).base  # whose positions an adapter keeps
        if weights or base is None:
            raise SettingError(f"{path} is an adapter: without --weights its base is probed, if it is here.\n{MERGE}")
        path = base
    with quiet():
        text = _read(AutoConfig, path, trust_remote_code).get_text_config()
        if not weights:
            return tiny_model(_tiny_like(text), trust_remote_code=trust_remote_code), text
        for file in path.glob("*.safetensors"):
            File(file).require_local()
        return _read(AutoModel, path, trust_remote_code, use_safetensors=True), text


def _path_of(name_or_path: str) -> Path | None:
    """Return the path of a file, a folder, or a model's name; None of a model type, known or not."""
    from transformers import CONFIG_MAPPING

    path = Path(name_or_path)
    if path.exists():
        return path
    if name_or_path in CONFIG_MAPPING:
        return None
    path = locate(name_or_path)
    if path.exists():
        return path
    if "/" in name_or_path:
        way = why_not_found(name_or_path) or "Pass a model type, a config.json, or a folder with one."
        raise CheckpointError(f"{name_or_path} does not exist.\n{way}")
    return None


def _read(made_by: Any, path: Path, trust: bool, **options: Any) -> Any:
    """Return what a class of transformers reads from a path, of local files alone."""
    try:
        return made_by.from_pretrained(str(path), trust_remote_code=trust, local_files_only=True, **options)
    except Exception as problem:
        text = " ".join(str(problem).split())
        if "trust_remote_code" not in text and not trust:
            way = "Pass a folder with a config.json whose model_type the installed transformers knows."
        elif path.is_relative_to(ranges_folder()):
            way = "Its own code is not downloaded: run hf download, and pass the folder that is printed."
        elif trust:
            way = "Its own code failed, or is not in the folder: download the whole model by hf download."
        else:
            way = "The folder has code of its own: read it, and if you trust it pass --trust-remote-code."
        raise CheckpointError(f"transformers cannot read {path}: {text[:300]}\n{way}") from problem


def tiny_config(model_type: str, **settings: Any) -> "PreTrainedConfig":
    """Return a tiny configuration of a model type, with the layer pattern of its default one."""
    from transformers import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        raise SettingError(
            f"the installed transformers has no model type {model_type!r}: upgrade it, or pass a folder."
        )
    made = CONFIG_MAPPING[model_type]
    with quiet():
        try:
            return made(**{**shrunk(made()), **settings})
        except Exception as problem:
            raise SettingError(
                f"a tiny configuration of {model_type!r} was refused by transformers: {problem}.\n"
                "Probe a loaded model of this type instead."
            ) from problem


def shrunk(config: "PreTrainedConfig") -> dict[str, Any]:
    """Return keyword arguments of a configuration like this one, and like those in it, but tiny."""
    values = {key: value for key, value in vars(config).items() if not key.startswith("_")}
    keep = _kept_layers(values)
    made: dict[str, Any] = {}
    for key, value in values.items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            made[key] = {**shrunk(value), "model_type": value.model_type}
        elif key in SIZES and isinstance(value, int) and not isinstance(value, bool) and value > 0:
            made[key] = SIZES[key]
        elif key in LAYER_KEYS and isinstance(value, int):
            made[key] = min(value, keep)
        elif isinstance(value, list | tuple) and len(value) == _layers(values) and keep < len(value):
            made[key] = list(value)[:keep]
        elif key.endswith(("token_id", "token_index")) and isinstance(value, int):
            made[key] = value % 60 if value >= 60 else value
    heads = next((values[key] for key in HEAD_COUNTS if key in values), 0)
    for key in KEY_HEAD_COUNTS:
        if isinstance(values.get(key), int):
            made[key] = HEADS if values[key] == heads else min(values[key], 2)
    return {**made, **_sections(values), **MODEL_ONLY.get(config.model_type, {})}


def _tiny_like(config: "PreTrainedConfig") -> "PreTrainedConfig":
    """Return a configuration with few layers, heads and tokens, and with the positions and windows of another one."""
    values = config.to_dict()
    heads = next((values[key] for key in HEAD_COUNTS if isinstance(values.get(key), int)), 1)
    width = next((values[key] for key in WIDTHS if isinstance(values.get(key), int)), 64)
    named = values.get("head_dim")
    head_dim: int = named if isinstance(named, int) else width // max(heads, 1)
    made = {key: value for key, value in shrunk(config).items() if key not in KEPT}
    made |= {key: 2 * max(head_dim, 32) for key in made if key in WIDTHS}
    made |= {key: 2 for key in made if key in (*HEAD_COUNTS, *KEY_HEAD_COUNTS) and made[key] > 1}
    kept = {key: value for key, value in values.items() if key not in ("model_type", "architectures", "auto_map")}
    try:
        return type(config)(**{**kept, **made})
    except Exception as problem:
        raise SettingError(
            f"a smaller configuration of {config.model_type!r} was refused by transformers: {problem}.\n"
            "Probe the model with its weights instead."
        ) from problem


def _sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return rope parameters whose sections for several axes fit a tiny head."""
    made = {}
    for key in ("rope_parameters", "rope_scaling"):
        given = values.get(key)
        if isinstance(given, dict) and isinstance(sections := given.get("mrope_section"), list):
            fraction = given.get("partial_rotary_factor", values.get("partial_rotary_factor", 1.0))
            pairs = int(HEAD_DIM * (fraction or 1.0)) // 2
            tiny = [pairs * section // sum(sections) for section in sections]
            tiny[0] += pairs - sum(tiny)
            made[key] = {**given, "mrope_section": tiny}
    return made


def _layers(values: Mapping[str, Any]) -> int:
    return max((values[key] for key in LAYER_KEYS if isinstance(values.get(key), int)), default=0)


def _kept_layers(values: Mapping[str, Any]) -> int:
    """Return the number of layers that has each kind of layer once, as the lists by layer have them."""
    layers = _layers(values)
    keep = min(layers, _LEAST_LAYERS)
    for value in values.values():
        if isinstance(value, list | tuple) and len(value) == layers:
            first = {str(each): index for index, each in reversed(list(enumerate(value)))}
            if len(first) <= layers // 2:
                keep = max(keep, 1 + max(first.values()))
    return min(keep, MOST_LAYERS)


def tiny_model(config: "PreTrainedConfig", seed: int = 0, *, trust_remote_code: bool = False) -> "PreTrainedModel":
    """Return a random model of a tiny configuration, without a head where transformers has such a class."""
    from transformers import AutoModel, AutoModelForCausalLM

    own = getattr(config, "auto_map", None) or {}
    with quiet(), seeded(seed):
        try:
            if trust_remote_code and own:
                made: Any = AutoModel if "AutoModel" in own else AutoModelForCausalLM
                model = made.from_config(config, attn_implementation="eager", trust_remote_code=True)
            else:
                model = class_of(config)._from_config(config, attn_implementation="eager")
        except Exception as problem:
            raise CheckpointError(
                f"a tiny model of the type {config.model_type!r} could not be built: "
                f"{type(problem).__name__}: {problem}.\nProbe a loaded model of this type instead."
            ) from problem
        for module in model.modules():
            if isinstance(module, nn.Embedding) and "Sinusoid" in type(module).__name__:
                module.requires_grad_(False)  # a table of fixed values, which FSMT keeps as a parameter
        for parameter in model.parameters():
            if parameter.dim() > 1 and parameter.requires_grad:
                nn.init.normal_(parameter, std=0.3)
            elif parameter.requires_grad:  # the features of a plain LayerNorm sum to 0, which leaves maps undetermined
                parameter.data += 0.03 * torch.randn_like(parameter)
    result: PreTrainedModel = model.train(False).float()
    return result


def class_of(config: "PreTrainedConfig") -> Any:
    """Return the class of a configuration's model: the plain model, or the first one with a head."""
    from transformers import PreTrainedModel
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    with suppress(ValueError):  # a name that its module lacks
        if type(config) in MODEL_MAPPING:
            made = MODEL_MAPPING[type(config)]
            return made[0] if isinstance(made, tuple) else made
    package = type(config).__module__.rpartition(".")[0]
    files = sorted(Path(str(import_module(package).__file__)).parent.glob("modeling_*.py"))
    found = [
        each
        for file in files
        for _, each in inspect.getmembers(import_module(f"{package}.{file.stem}"), inspect.isclass)
        if issubclass(each, PreTrainedModel)
        and each.config_class is type(config)
        and each.__module__ == f"{package}.{file.stem}"
        and not each.__name__.endswith("PreTrainedModel")
    ]
    found.sort(key=lambda each: (not each.__name__.endswith("Model"), "CausalLM" not in each.__name__, each.__name__))
    if not found:
        raise CheckpointError(f"transformers has no model class for {type(config).__name__}.")
    return found[0]
