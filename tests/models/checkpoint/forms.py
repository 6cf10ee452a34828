"""Tiny models in three forms: one file, shards and GGUF. Nothing here imports transformers."""

from pathlib import Path

import gguf
import torch
from torch import nn

from . import samples

VOCABULARY, LAYERS = 37, 4
TYPES = ["llama", "gpt2", "t5", "bloom", "gemma"]
WORDS = [f"w{n}" for n in range(VOCABULARY - 2)]  # fewer than the table has rows
FORMS = ["single", "shards", "gguf"]


def write_gguf(path: Path, model: nn.Module, model_type: str) -> None:
    """Write a model with the keys of llama.cpp's converter."""
    config = model.config
    keys = {"embedding_length": 64, "block_count": LAYERS, "attention.head_count": 4, "context_length": 64}
    if model_type in ("llama", "gemma"):
        keys |= {"attention.head_count_kv": config.num_key_value_heads, "rope.dimension_count": 16}
        keys |= {"rope.freq_base": float(config.rope_parameters["rope_theta"])}
    if model_type in ("gemma", "t5"):
        keys |= {"attention.key_length": 16}
    if model_type == "t5":
        keys |= {"attention.relative_buckets_count": 32, "decoder_block_count": LAYERS}
    tokens = {"tokenizer.ggml.model": "gpt2", samples.GGUF_TOKENS: WORDS}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[model_type.upper()], LAYERS)
    renamed = {names.get_name(name, (".weight", ".bias")): value.numpy() for name, value in saved(model).items()}
    renamed.pop(None, None)
    samples.write_gguf(path, model_type, keys | tokens, renamed)


def saved(model: nn.Module) -> dict[str, torch.Tensor]:
    """Yield each parameter once."""
    return {name: value.detach() for name, value in model.named_parameters()}
