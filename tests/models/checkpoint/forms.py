"""Tiny models in three forms: one file, shards and GGUF. Nothing here imports transformers."""

from pathlib import Path

import gguf
import torch
from torch import nn

from .samples import finish

VOCABULARY, LAYERS = 37, 4
TYPES = ["llama", "gpt2", "t5", "bloom", "gemma"]
WORDS = [f"w{n}" for n in range(VOCABULARY - 2)]  # fewer than the table has rows
FORMS = ["single", "shards", "gguf"]


def write_gguf(path: Path, model: nn.Module, model_type: str) -> None:
    """Write a model with the package of the format, its keys as the converter of llama.cpp writes them."""
    config = model.config
    writer = gguf.GGUFWriter(path, model_type)
    writer.add_embedding_length(64)
    writer.add_block_count(LAYERS)
    writer.add_head_count(4)
    writer.add_context_length(64)
    if model_type in ("llama", "gemma"):
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        writer.add_rope_dimension_count(16)
    if model_type in ("gemma", "t5"):
        writer.add_key_length(16)
    if model_type == "t5":
        writer.add_relative_attn_buckets_count(32)
        writer.add_decoder_block_count(LAYERS)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[model_type.upper()], LAYERS)
    for name, value in saved(model).items():
        other = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if other is not None:
            writer.add_tensor(other, value.numpy())
    finish(writer)


def saved(model: nn.Module) -> dict[str, torch.Tensor]:
    """Yield each parameter once."""
    return {name: value.detach() for name, value in model.named_parameters()}
