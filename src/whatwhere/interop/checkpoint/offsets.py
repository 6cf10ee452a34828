"""How many rows of a position table stand before that of position 0, without building anything.

`Description.position_offset` says the same of each model type, and a test holds both together; this serves where torch
is not to be imported.
"""

from collections.abc import Mapping
from typing import Any

_AFTER_PADDING = (
    "camembert", "data2vec-text", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl",
)  # fmt: skip
OFFSETS: Mapping[str, int | str] = {
    **dict.fromkeys(("bart", "biogpt", "mbart", "mvp", "opt", "plbart"), 2),
    **dict.fromkeys(_AFTER_PADDING, "padding"),
    **dict.fromkeys(
        ("albert", "bert", "bert-generation", "deberta", "deberta-v2", "distilbert", "electra", "ernie"), 0
    ),
    **dict.fromkeys(("blenderbot", "gpt2", "gpt_bigcode", "gpt_neo", "megatron-bert", "openai-gpt", "whisper"), 0),
}
"""Model types with a learned table of positions -> its rows before position 0; `padding` is pad_token_id + 1."""


def offset_of(config: Mapping[str, Any] | None, format: str) -> int | None:
    """Give the offset; None for a model that is not known."""
    model_type = (config or {}).get("model_type")
    if config is None or not isinstance(model_type, str):
        return None
    if format == "gguf":  # the converter leaves these rows out
        return 0
    offset = OFFSETS.get(model_type)
    if offset != "padding":
        return offset if isinstance(offset, int) else None
    padding = config.get("pad_token_id", 1)
    return padding + 1 if isinstance(padding, int) and padding >= 0 else None
