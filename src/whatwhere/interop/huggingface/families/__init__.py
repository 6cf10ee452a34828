"""The table of model types that can be read: model_type -> Family."""

from difflib import get_close_matches

from whatwhere.errors import CheckpointError
from whatwhere.interop.huggingface.families.named import NAMED
from whatwhere.interop.huggingface.families.rotary import ROTARY
from whatwhere.interop.huggingface.families.whole import WHOLE
from whatwhere.interop.huggingface.family import Family

FAMILIES: dict[str, Family] = dict(sorted({**WHOLE, **ROTARY, **NAMED}.items()))

OUTER = {
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
"""Models of text and images -> the type of their text, if its own dictionary does not name it."""


def family_of(model_type: str) -> Family:
    """Give the family of a model type, or raise CheckpointError with a near name.

    >>> family_of("lama")
    Traceback (most recent call last):
    whatwhere.errors.CheckpointError: model_type 'lama' is not one that whatwhere reads.
    Did you mean 'llama'?
    A configuration does not say which features make a pair, nor how far table and positions are apart: if you know a
    type that does all of this alike, say so, from_huggingface(config, like='llama').
    """
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    near = get_close_matches(model_type, FAMILIES, n=1)
    hint = f"\nDid you mean {near[0]!r}?" if near else ""
    raise CheckpointError(
        f"model_type {model_type!r} is not one that whatwhere reads.{hint}\n"
        "A configuration does not say which features make a pair, nor how far table and positions are apart: if you "
        "know a\ntype that does all of this alike, say so, from_huggingface(config, like='llama')."
    )
