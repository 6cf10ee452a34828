"""Model types whose code is published beside their files, and is not in transformers."""

from collections.abc import Mapping
from dataclasses import replace

from whatwhere.models.configuration.model_type import ModelType
from whatwhere.models.registry.llama import llama_like
from whatwhere.models.registry.llama_variants import LATENT

REMOTE_CODE: Mapping[str, ModelType] = {
    "internlm2": llama_like(max_length=2048, padding_idx=0),
    "kimi_k2": replace(LATENT["deepseek_v3"]),
}
"""Hugging Face's `model_type` -> how its configuration is read and written. `patch` does not know their modules."""
