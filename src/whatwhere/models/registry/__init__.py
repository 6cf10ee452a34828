"""Registry of model types: how the configuration of each is read and written, as data, without PyTorch."""

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
from whatwhere.models.registry.remote_code import REMOTE_CODE
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
"""Hugging Face's `model_type` -> how its configuration is read and written, for all that are in transformers."""

READ_TYPES: Mapping[str, ModelType] = {
    **MODEL_TYPES,
    **NESTED,
    **{name: _always_causal(model_type) for name, model_type in REMOTE_CODE.items()},
}
"""All model types that are read: those in transformers, those of one part of others, and those whose code is published
beside their files."""

TEXT_TYPES: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "glm4v": "glm4v_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
"""Model types of text and images -> the type of their text, if `text_config` does not have one."""


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
        >>> nested_defaults("llama")["num_attention_heads"], nested_defaults("bert")
        (32, {})
    """
    if name not in NESTED_SIZES:
        return {}
    model_type = MODEL_TYPES[name]
    keys = [model_type.names[size][0] for size in ("vocab_size", "dim", "layers", "num_heads")]
    return dict(zip((*keys, *model_type.head_dim_parts), NESTED_SIZES[name], strict=True))


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
