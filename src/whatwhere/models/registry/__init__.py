"""Registry of model types: how the configuration of each is read and written, as data, without PyTorch."""

from collections.abc import Mapping
from difflib import get_close_matches

from whatwhere.errors import CheckpointError
from whatwhere.models.configuration.input_keys import LearnedKeys, position_offset
from whatwhere.models.configuration.model_type import ModelType
from whatwhere.models.registry.bert_gpt_t5 import DECODERS, ENCODER_DECODERS, ENCODERS
from whatwhere.models.registry.llama import LLAMA_LIKE
from whatwhere.models.registry.llama_variants import LLAMA_VARIANTS

MODEL_TYPES: Mapping[str, ModelType] = dict(
    sorted({**LLAMA_LIKE, **LLAMA_VARIANTS, **ENCODERS, **DECODERS, **ENCODER_DECODERS}.items())
)
"""Hugging Face's `model_type` -> how its configuration is read and written."""

TEXT_TYPES: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "glm4v": "glm4v_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
"""Model types of text and images -> the type of their text, if `text_config` does not have one."""


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
    if name in MODEL_TYPES:
        return MODEL_TYPES[name]
    near = get_close_matches(name, MODEL_TYPES, n=1)
    hint = f"\nDid you mean {near[0]!r}?" if near else ""
    raise CheckpointError(
        f"model_type {name!r} is not one that whatwhere reads.{hint}\n"
        "No key of a configuration states which features make a pair, nor in which row of a table position 0 is: if "
        "you\nknow a type that does both alike, name it, from_huggingface(config, like='llama')."
    )


def learned_offset(config: Mapping[str, object]) -> int | None:
    """Return the row of position 0 in a learned position table, without reading the whole configuration.

    Args:
        config: of which only `model_type` and `pad_token_id` are read.

    Returns:
        The row; None if the model type is unknown, or has no such table.

    Examples:
        >>> learned_offset({"model_type": "opt"}), learned_offset({"model_type": "roberta", "pad_token_id": 1})
        (2, 2)
    """
    name = config.get("model_type")
    if not isinstance(name, str) or name not in MODEL_TYPES:
        return None
    model_type = MODEL_TYPES[name]
    reader = next((reader for reader in model_type.readers if isinstance(reader, LearnedKeys)), None)
    return None if reader is None else position_offset(reader, config, model_type.defaults)
