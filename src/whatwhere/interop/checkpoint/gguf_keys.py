"""The keys of a GGUF header in the words of a Hugging Face configuration, so that one reader serves both."""

from collections.abc import Callable, Mapping, Sequence
from math import isclose, pi
from typing import Any

from whatwhere.interop.checkpoint.contents import Entry

_LLAMA = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "context_length": "max_position_embeddings",
    "rope.freq_base": "rope_theta",
}
_BERT = {name: key for name, key in _LLAMA.items() if "rope" not in name and name != "attention.head_count_kv"}
_GPT2 = {
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "attention.head_count": "n_head",
    "context_length": "n_positions",
}
_T5 = {
    "embedding_length": "d_model",
    "block_count": "num_layers",
    "decoder_block_count": "num_decoder_layers",
    "attention.head_count": "num_heads",
    "attention.key_length": "d_kv",
    "attention.relative_buckets_count": "relative_attention_num_buckets",
}
_NAMES: dict[str, tuple[str, Mapping[str, str]]] = {
    "bert": ("bert", _BERT),
    "bloom": ("bloom", {"embedding_length": "hidden_size", "block_count": "n_layer", "attention.head_count": "n_head"}),
    "gemma": ("gemma", _LLAMA),
    "gemma2": ("gemma2", _LLAMA),
    "gemma3": ("gemma3_text", {**_LLAMA, "rope.freq_base_swa": "rope_local_base_freq"}),
    "gpt2": ("gpt2", _GPT2),
    "gptneox": ("gpt_neox", {**_LLAMA, "rope.freq_base": "rotary_emb_base"}),
    "llama": ("llama", _LLAMA),
    "qwen2": ("qwen2", _LLAMA),
    "qwen3": ("qwen3", _LLAMA),
    "t5": ("t5", _T5),
}
"""GGUF's architecture -> the model type of transformers that it is, and its keys."""

PERMUTED = ("llama",)
"""Architectures whose rows of queries and keys the converter sorts anew, so that neighbors make a pair."""

_LARGEST_GEMMA = {"gemma2": 46, "gemma3": 62}
"""Layers of the 27B models, which divide by the features of a head as if heads made up the model."""

_SCALING = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_READ_ELSEWHERE = ("rope.dimension_count", "rope.scaling.type", "rope.scaling.finetuned")
_LENGTH_OF_LLAMA3 = 8192


def config_of(
    metadata: Mapping[str, Any],
    entries: Mapping[str, Entry],
    factors: Callable[[str], Sequence[float] | None],
) -> dict[str, Any] | None:
    """Give the configuration that a header means; None for an architecture that is not known here.

    What is said of rotary positions and not understood is handed on under its own name, so that the reader of
    configurations refuses it: passed over, it could change every score.

    Args:
        metadata: keys and values.
        entries: the tensors.
        factors: reads a small tensor of one dimension.
    """
    architecture = metadata.get("general.architecture")
    table = entries.get("token_embd.weight")
    if not isinstance(architecture, str) or architecture not in _NAMES or table is None or len(table.shape) != 2:
        return None
    model_type, names = _NAMES[architecture]
    said = {k.removeprefix(f"{architecture}."): v for k, v in metadata.items() if k.startswith(f"{architecture}.")}
    config: dict[str, Any] = {
        "model_type": model_type,
        "vocab_size": table.shape[0],
        "tie_word_embeddings": "output.weight" not in entries,
        **_absent(names, said),
        **{key: said[name] for name, key in names.items() if name in said},
        **_scaling(said),
        **_share(model_type, said),
        **_softmax(architecture, said),
    }
    known = {*names, *_READ_ELSEWHERE, *(f"rope.scaling.{name}" for name in _SCALING)}
    config |= {name: value for name, value in said.items() if name.startswith("rope.") and name not in known}
    if isinstance(padding := metadata.get("tokenizer.ggml.padding_token_id"), int):
        config["pad_token_id"] = padding
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        if name in entries:
            config[name] = "a tensor"
    if "rope_freqs.weight" in entries:
        config |= _llama3(config, said, factors("rope_freqs.weight"))
    return config


def _absent(names: Mapping[str, str], said: Mapping[str, Any]) -> dict[str, Any]:
    """Give what llama.cpp takes where a key is absent, which differs from what transformers takes."""
    dim, heads = said.get("embedding_length"), said.get("attention.head_count")
    taken: dict[str, Any] = {"attention.head_count_kv": heads, "rope.freq_base": 10_000.0}
    if isinstance(dim, int) and isinstance(heads, int) and heads > 0:
        taken["attention.key_length"] = dim // heads
    return {names[name]: value for name, value in taken.items() if name in names and value is not None}


def _softmax(architecture: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Give the number whose root divides scores in Gemma 2 and 3, which llama.cpp knows by the count of layers."""
    if architecture not in _LARGEST_GEMMA:
        return {}
    whole = _absent(_LLAMA, said).get("head_dim")
    largest = said.get("block_count") == _LARGEST_GEMMA[architecture]
    divisor = whole if largest else said.get("attention.key_length", whole)
    return {} if divisor is None else {"query_pre_attn_scalar": divisor}


def _scaling(said: Mapping[str, Any]) -> dict[str, Any]:
    kind = said.get("rope.scaling.type", "none")
    if kind == "none":
        return {}
    read = {key: said[f"rope.scaling.{name}"] for name, key in _SCALING.items() if f"rope.scaling.{name}" in said}
    return {"rope_scaling": {"rope_type": kind, **read}}


def _share(model_type: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Say which share of a head turns, if it is not the whole."""
    turned, dim, heads = (said.get(n) for n in ("rope.dimension_count", "embedding_length", "attention.head_count"))
    key = "rotary_pct" if model_type == "gpt_neox" else "partial_rotary_factor"
    whole = {key: 1.0} if model_type == "gpt_neox" else {}
    if not isinstance(turned, int) or not isinstance(dim, int) or not isinstance(heads, int) or heads < 1:
        return whole
    head_dim = said.get("attention.key_length", dim // heads)
    if not isinstance(head_dim, int) or head_dim < 1 or turned == head_dim:
        return whole
    return {key: turned / head_dim}


def _llama3(config: Mapping[str, Any], said: Mapping[str, Any], factors: Sequence[float] | None) -> dict[str, Any]:
    """Give the parameters of Llama 3's scaling, of which GGUF keeps only what they make of each pair.

    The file does not say them; those that the published models have are tried, and taken if they give every factor.
    """
    theta, turned = said.get("rope.freq_base", 10_000.0), said.get("rope.dimension_count")
    unread = {"rope_freqs.weight": "a tensor"}
    if not factors or not isinstance(turned, int) or turned != 2 * len(factors) or "rope_scaling" in config:
        return unread
    if not isinstance(theta, int | float) or not 1 <= theta < float("inf"):
        return unread
    most, low, high = round(max(factors), 4) if max(factors) < float("inf") else 1.0, 1.0, 4.0
    if most < 1:
        return unread
    for pair, factor in enumerate(factors):
        turns = _LENGTH_OF_LLAMA3 / (2 * pi * theta ** (2 * pair / turned))
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        if not isclose(1 / ((1 - smooth) / most + smooth), factor, rel_tol=1e-4):
            return unread
    parameters = {"factor": most, "low_freq_factor": low, "high_freq_factor": high}
    return {
        "rope_scaling": {
            "rope_type": "llama3",
            **parameters,
            "original_max_position_embeddings": _LENGTH_OF_LLAMA3,
        }
    }
