"""Registry of model types: how the configuration of each is read, as data, without PyTorch."""

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from whatwhere.errors import CheckpointError
from whatwhere.models.configuration.input_keys import LearnedKeys, LearnedOrSinusoidalKeys, position_offset
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.model_type import DIRECTION, ModelType
from whatwhere.models.configuration.theta_keys import LearnedOrRotary
from whatwhere.models.registry.bert_bart_variants import VARIANTS
from whatwhere.models.registry.bert_gpt_t5 import DECODERS, ENCODER_DECODERS, ENCODERS
from whatwhere.models.registry.hybrid import HYBRIDS
from whatwhere.models.registry.image_text import IMAGE_TEXT
from whatwhere.models.registry.llama import LLAMA_LIKE
from whatwhere.models.registry.llama_variants import LLAMA_VARIANTS
from whatwhere.models.registry.masked import MASKED
from whatwhere.models.registry.nested_sizes import NESTED_SIZES
from whatwhere.models.registry.recent import RECENT
from whatwhere.models.registry.remote_code import REMOTE_CODE, UNREAD
from whatwhere.models.registry.two_parts import NESTED, TWO_PARTS
from whatwhere.models.registry.unread import UNLIKE

_ALWAYS_CAUSAL = (
    "diffusion_gemma_text", "falcon_mamba", "flaubert", "glm5_next_text", "gpt_neo", "kosmos_2_text_model", "mamba",
    "mamba2", "moonshine", "mpt", "nemotron", "openai-gpt", "pix2struct_text_model", "rwkv", "stablelm", "xlm", "xlnet",
    "xlstm",
)  # fmt: skip
"""Model types that make their masks themselves or have none, that fail where `is_causal` is false, or that read it with
`eager` attention and not with `sdpa`."""


def _always_causal(model_type: ModelType) -> ModelType:
    return replace(model_type, unread={**model_type.unread, DIRECTION: ANY})


MODEL_TYPES: Mapping[str, ModelType] = {
    name: _always_causal(model_type) if name in _ALWAYS_CAUSAL else model_type
    for name, model_type in sorted(
        {
            **LLAMA_LIKE,
            **LLAMA_VARIANTS,
            **RECENT,
            **HYBRIDS,
            **ENCODERS,
            **DECODERS,
            **ENCODER_DECODERS,
            **VARIANTS,
            **MASKED,
            **IMAGE_TEXT,
            **TWO_PARTS,
        }.items()
    )
}
"""Hugging Face's `model_type` -> how its configuration is read, for all that are in transformers."""

READ_TYPES: Mapping[str, ModelType] = {
    **MODEL_TYPES,
    **NESTED,
    **{name: _always_causal(model_type) for name, model_type in REMOTE_CODE.items()},
}
"""All model types that are read: those in transformers, those of one part of others, and those whose code is published
beside their files."""

_TEXTS: Mapping[str, str] = {
    "bart": "florence2",
    "bert": "encoder-decoder speech-encoder-decoder vision-encoder-decoder",
    "cohere2": "aya_vision cohere2_vision",
    "deepseek_v2": "deepseek_vl_v2",
    "deepseek_v3": "kimi_k25 kimi_vl",
    "dia_encoder": "dia",
    "exaone4": "exaone4_5",
    "gemma": "paligemma",
    "gemma3_text": "shieldgemma2",
    "gemma4_text": "gemma4_assistant",
    "gemma4_unified_text": "gemma4_unified_assistant",
    "glm4v_text": "glm46v glmga",
    "granite": "granite_speech granite_speech_plus",
    "hyperclovax": "hyperclovax_vision_v2",
    "inkling_text": "inkling_mm_model",
    "kosmos_2_5_text_model": "kosmos-2.5",
    "kosmos_2_text_model": "kosmos-2",
    "lfm2": "lfm2_vl",
    "lfm3": "lfm3_vl",
    "llama": "deepseek_vl deepseek_vl_hybrid glmasr idefics3 janus llava llava_llama llava_next llava_next_video "
    "multi_modality perception_lm smolvlm video_llava vipllava voxtral",
    "mistral": "idefics2 llava_mistral mistral3",
    "modernbert": "modernvbert pe_audio pe_audio_video pe_video",
    "mpt": "llava_mpt",
    "musicgen_decoder": "musicgen",
    "musicgen_melody_decoder": "musicgen_melody",
    "nemotron_h": "nemo_speechlm nemotron_h_omni",
    "opt": "blip-2 instructblip instructblipvideo",
    "persimmon": "fuyu",
    "qwen2": "audioflamingo3 fast_vlm got_ocr2 internvl internvl_chat llava_onevision llava_qwen minicpmo minicpmv "
    "musicflamingo ovis2 pp_chart2table qwen2_audio vibevoice vibevoice_asr video_llama_3",
    "qwen2_5_omni_text": "qwen2_5_omni_thinker",
    "qwen2_5_omni_thinker": "qwen2_5_omni",
    "qwen3": "fun_asr_nano lighton_ocr moss_transcribe_diarize qianfan_ocr qwen3_asr",
    "qwen3_5_text": "jev minicpm_ocr minicpmv4_6 minicpmv4_7",
    "qwen3_omni_moe_text": "qwen3_omni_moe_thinker",
    "qwen3_omni_moe_thinker": "qwen3_omni_moe",
    "qwen3_vl_text": "cosmos3_omni",
    "step3p5": "step3p7",
    "t5_gemma_module": "t5gemma",
    "ultrabert": "ultravbert",
}
_SUFFIX = re.compile("_text(_model)?$")
TEXT_TYPES: Mapping[str, str] = {
    **{_SUFFIX.sub("", name): name for name in (*READ_TYPES, *UNLIKE) if _SUFFIX.search(name)},
    **{whole: text for text, listed in _TEXTS.items() for whole in listed.split()},
}
"""Model types of text and images or sound -> the type of their text, if its configuration does not have one."""

TEXT_KEYS = ("text_config", "llm_config", "language_config", "llm_cfg")
"""Keys of the configuration of a text within that of a model of text and images, the usual one first."""

TEXT_OF_CLASS: Mapping[str, str] = {
    "LlavaMistralForCausalLM": "mistral",
    "LlavaMptForCausalLM": "mpt",
    "LlavaQwenForCausalLM": "qwen2",
}
"""Classes of LLaVA's authors, whose files have the keys of the text beside others -> the type of the text."""


_DECODERS: Mapping[str, tuple[str, ...]] = {"decoder": ("decoder",)}
_BOTH: Mapping[str, tuple[str, ...]] = {**_DECODERS, "encoder": ("encoder",)}
INNER: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "canary": {"decoder": ("decoder_config",)},
    "dia": {"encoder": ("encoder_config",)},
    "encoder-decoder": _BOTH,
    **{name: {"": ("decoder",)} for name in ("musicgen", "musicgen_melody")},
    "qwen2_5_omni": {"": ("thinker_config",)},
    "qwen3_omni_moe": {"": ("thinker_config",)},
    "speech-encoder-decoder": _DECODERS,
    "t5gemma": _BOTH,
    "vision-encoder-decoder": _DECODERS,
}
"""Model types made of other configurations -> part of the model -> keys that lead to its configuration; \"\" where one
part alone is of text. The first is the default."""

SPREAD: Mapping[str, tuple[str, ...]] = {"cohere_asr": ("transf_decoder", "config_dict")}
"""Model types -> keys that lead, in the files of their authors, to those of the text, which are read as if beside."""

OTHERWISE: Mapping[str, tuple[str, object, str]] = {"deepseek_v2": ("use_mla", False, "deepseek")}
"""Model types -> a key, and the value of it with which the code of their authors is that of a different type."""

OF_OTHERS: Mapping[str, frozenset[str]] = {
    "musicflamingo": frozenset({"max_position_embeddings", "rope_parameters"}),
    "qwen2_5_omni_thinker": frozenset({"position_id_per_seconds", "seconds_per_chunk"}),
    "qwen3_omni_moe_thinker": frozenset({"position_id_per_seconds"}),
}
"""Model types -> keys beside their `text_config` that concern sounds and video, or coordinates, but not the text."""


_DRAFT = "it drafts for another model, whose keys and values it reads: only its queries are its own"
OUTER_NOTES: Mapping[str, str] = {
    "gemma4_assistant": _DRAFT,
    "gemma4_unified_assistant": _DRAFT,
    "paligemma": "tokens of the picture and of the prompt attend to one another in both directions",
}
"""Model types with a text like that of others -> what differs outside of the text's configuration."""

LONG_TEXT_NOTES: Mapping[str, str] = {
    "dual_chunk_attention_config": "long texts are in chunks in vLLM (DualChunk), by a key that transformers ignores",
    "sparse_config": "in long texts its own code attends to chosen blocks of keys, which is not built",
}
"""Keys of attention over long texts alone (Qwen2.5-1M, MiniCPM4) -> what they do."""

OUTER_UNREAD: Mapping[str, Mapping[str, object]] = {"paligemma": {"use_bidirectional_attention": ANY}}
"""Model types -> keys of their text that concern what differs, as `unread` of ModelType."""


def require_likeness(name: str) -> None:
    """Raise CheckpointError if a model type may not be read as another one.

    Args:
        name: the `model_type` of a configuration.

    Examples:
        >>> require_likeness("funnel")
        Traceback (most recent call last):
        whatwhere.errors.CheckpointError: model_type 'funnel' cannot be read as another type: its layers shorten the
        text by pooling, so that positions of later layers are those of groups of tokens.
        To see what its attention does with positions: whatwhere probe funnel.
    """
    if name in UNLIKE:
        raise CheckpointError(
            f"model_type {name!r} cannot be read as another type: {UNLIKE[name]}.\nTo see what its attention does with "
            f"positions: whatwhere probe {name}."
        )
    if name in UNREAD:
        raise CheckpointError(f"model_type {name!r} cannot be read as a different type: {UNREAD[name]}.")


def find_model_type(name: str) -> ModelType:
    """Return the registry's entry for a model type.

    Args:
        name: the `model_type` of a configuration.

    Returns:
        Its entry of the registry.

    Raises:
        CheckpointError: If there is none; the message suggests a similar one.

    Examples:
        >>> find_model_type("lama")
        Traceback (most recent call last):
        whatwhere.errors.CheckpointError: model_type 'lama' is not one that whatwhere reads.
        Did you mean 'llama'?
        No key of a configuration states which features make a pair, nor in which row of a table position 0 is: if you
        know a type that does both alike, name it, from_huggingface(config, like='llama').
    """
    if name in READ_TYPES:
        return READ_TYPES[name]
    if name in UNLIKE:
        raise CheckpointError(
            f"model_type {name!r} is not one that whatwhere reads: {UNLIKE[name]}.\nTo see what its attention does "
            f"with positions: whatwhere probe {name}."
        )
    if name in UNREAD:
        raise CheckpointError(f"model_type {name!r} is not one that whatwhere reads: {UNREAD[name]}.")
    near = get_close_matches(name, READ_TYPES, n=1)
    hint = f"\nDid you mean {near[0]!r}?" if near else ""
    raise CheckpointError(
        f"model_type {name!r} is not one that whatwhere reads.{hint}\n"
        "No key of a configuration states which features make a pair, nor in which row of a table position 0 is: if "
        "you\nknow a type that does both alike, name it, from_huggingface(config, like='llama')."
    )


def suggest_model_type(architectures: object) -> str:
    """Return the model type of the first name in `architectures`, as code; without one, how to write it.

    Examples:
        >>> suggest_model_type(["GPT2LMHeadModel"]), suggest_model_type(["LlamaForCausalLM"]), suggest_model_type(None)
        ("'gpt2'", "'llama'", "'...'")
    """
    first = architectures[0] if isinstance(architectures, list | tuple) and architectures else None
    stem = (
        re.sub("(For[A-Z].*|LMHead.*|DoubleHeads.*|PreTrained.*|Text)?(Model)?$", "", first, count=1)
        if isinstance(first, str)
        else ""
    )
    plain = {re.sub("[-_]", "", name): name for name in (*READ_TYPES, *TEXT_TYPES, *INNER)}
    near = get_close_matches(stem.lower(), plain, n=1, cutoff=0.85)
    return repr(plain[near[0]]) if near else "'...'"


def nested_defaults(name: str) -> Mapping[str, object]:
    """Return the sizes that a configuration nested in that of a model of text and images may leave out.

    Args:
        name: the `model_type` of the text.

    Returns:
        Keys and values; none for a type that is not known to be nested.

    Examples:
        >>> nested_defaults("llama")["num_attention_heads"], nested_defaults("t5")
        (32, {})
    """
    if name not in NESTED_SIZES:
        return {}
    model_type = MODEL_TYPES[name]
    keys = [model_type.names[size][0] for size in ("vocab_size", "dim", "layers", "num_heads")]
    return dict(zip((*keys, *model_type.head_dim_parts), NESTED_SIZES[name], strict=True))


def nested_text(config: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return the key of the text in a configuration of a model of text and images, and the text's own configuration.

    Args:
        config: of any model.

    Returns:
        Both; "" and an empty dictionary where there is none.

    Examples:
        >>> nested_text({"llm_config": {"vocab_size": 8}}), nested_text({"vocab_size": 8})
        (('llm_config', {'vocab_size': 8}), ('', {}))
    """
    for key in TEXT_KEYS:
        if isinstance(text := config.get(key), Mapping):
            return key, text
    return "", {}


def learned_offset(config: Mapping[str, object]) -> int | None:
    """Return the row of position 0 in a learned position table, without reading the whole configuration.

    Args:
        config: of which only `model_type` and `pad_token_id` are read.

    Returns:
        The row; None if the model type is unknown, or has no such table.

    Examples:
        >>> [learned_offset({"model_type": name}) for name in ("opt", "roberta", "trocr", "llama")]
        [2, 2, 2, None]
    """
    name = config.get("model_type")
    if not isinstance(name, str) or name not in READ_TYPES:
        return None
    model_type = READ_TYPES[name]
    choices = (LearnedOrSinusoidalKeys, LearnedOrRotary)
    readers = [each.learned if isinstance(each, choices) else each for each in model_type.readers]
    reader = next((reader for reader in readers if isinstance(reader, LearnedKeys)), None)
    return None if reader is None else position_offset(reader, config, model_type.defaults)
