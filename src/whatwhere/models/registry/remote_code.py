"""Model types whose code is published beside their files, and is not in transformers."""

from collections.abc import Mapping
from dataclasses import replace

from whatwhere.models.configuration.model_type import LLAMA_KEYS, ModelType
from whatwhere.models.configuration.qwen_keys import QwenLogN, QwenRotary
from whatwhere.models.registry.llama import llama_like
from whatwhere.models.registry.llama_variants import LATENT

REMOTE_CODE: Mapping[str, ModelType] = {
    "internlm2": llama_like(max_length=2048, padding_idx=0),
    "kimi_k2": replace(LATENT["deepseek_v3"]),
    "qwen": ModelType(
        (QwenRotary(),),
        {name: keys for name, keys in LLAMA_KEYS.items() if name != "key_heads"} | {"head_dim": ("kv_channels",)},
        {"vocab_size": 151_936, "max_position_embeddings": 8192, "kv_channels": 128, "tie_word_embeddings": False},
        temperature=QwenLogN(),
        notes=("its code raises theta and multiplies queries in evaluation only",),
    ),
}
"""Hugging Face's `model_type` -> how its configuration is read and written. `patch` does not know their modules."""
