"""Convert the keys of a GGUF header to a Hugging Face configuration, so that one reader serves both."""

from collections.abc import Callable, Mapping, Sequence
from math import isclose, pi

from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.configuration.keys import Json

_LLAMA = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "context_length": "max_position_embeddings",
    "rope.freq_base": "rope_theta",
}
_WINDOW = {"attention.sliding_window": "sliding_window"}
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
    "gemma2": ("gemma2", {**_LLAMA, **_WINDOW}),
    "gemma3": ("gemma3_text", {**_LLAMA, **_WINDOW, "rope.freq_base_swa": "rope_local_base_freq"}),
    "gpt2": ("gpt2", _GPT2),
    "gptneox": ("gpt_neox", {**_LLAMA, "rope.freq_base": "rotary_emb_base"}),
    "llama": ("llama", _LLAMA),
    "qwen2": ("qwen2", _LLAMA),
    "qwen3": ("qwen3", _LLAMA),
    "t5": ("t5", _T5),
}
"""GGUF's architecture -> model type of transformers, and key of GGUF -> key of transformers."""

PERMUTED = ("llama",)
"""Architectures whose query and key rows llama.cpp's converter permutes to interleaved pairs."""

_LARGEST_GEMMA = {"gemma2": 46, "gemma3": 62}
"""Number of layers of the 27B models, which divide scores by sqrt(hidden_size / heads) rather than sqrt(head_dim)."""

_SCALING = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_READ_ELSEWHERE = ("rope.dimension_count", "rope.scaling.type", "rope.scaling.finetuned")
_SCALES = (
    "attention.max_alibi_bias", "attention.scale", "attention.temperature_length", "attention.temperature_scale",
    "embedding_scale",
)  # fmt: skip
"""Keys of positions and of softmax scales that none of these architectures has."""

_BLOOM_ALIBI_BIAS = 8.0
"""The value that llama.cpp uses for BLOOM without reading the key: the slopes of the paper."""
_LENGTH_OF_LLAMA3 = 8192


def config_of(
    metadata: Mapping[str, object],
    entries: Mapping[str, Entry],
    factors: Callable[[str], Sequence[float] | None],
) -> Json | None:
    """Return the configuration that a header describes; None for an unknown architecture.

    Unknown keys of rotary positions are kept under their own names, so that the reader of configurations rejects them:
    ignoring them could change every score.

    Args:
        metadata: keys and values of the header.
        entries: the tensors.
        factors: reads a small tensor of one dimension.
    """
    architecture = metadata.get("general.architecture")
    table = entries.get("token_embd.weight")
    if not isinstance(architecture, str) or architecture not in _NAMES or table is None or len(table.shape) != 2:
        return None
    model_type, names = _NAMES[architecture]
    values = {k.removeprefix(f"{architecture}."): v for k, v in metadata.items() if k.startswith(f"{architecture}.")}
    config: dict[str, object] = {
        "model_type": model_type,
        "vocab_size": table.shape[0],
        "tie_word_embeddings": "output.weight" not in entries,
        **_absent(names, values),
        **{key: values[name] for name, key in names.items() if name in values},
        **_scaling(values),
        **_rotary_fraction(model_type, values),
        **_softmax_scale(architecture, values),
    }
    config |= _unread(architecture, names, values)
    if isinstance(padding := metadata.get("tokenizer.ggml.padding_token_id"), int):
        config["pad_token_id"] = padding
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        if name in entries:
            config[name] = "a tensor"
    if "rope_freqs.weight" in entries:
        config |= _llama3(config, values, factors("rope_freqs.weight"))
    return config


def _unread(architecture: str, names: Mapping[str, str], values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the unknown keys that affect positions."""
    known = {*names, *_READ_ELSEWHERE, *(f"rope.scaling.{name}" for name in _SCALING)}
    if architecture == "bloom" and values.get("attention.max_alibi_bias") == _BLOOM_ALIBI_BIAS:
        known.add("attention.max_alibi_bias")
    return {
        name: value
        for name, value in values.items()
        if (name.startswith("rope.") or name in _SCALES) and name not in known
    }


def _absent(names: Mapping[str, str], values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the defaults of llama.cpp, which differ from those of transformers."""
    dim, heads = values.get("embedding_length"), values.get("attention.head_count")
    defaults: dict[str, object] = {"attention.head_count_kv": heads, "rope.freq_base": 10_000.0}
    if isinstance(dim, int) and isinstance(heads, int) and heads > 0:
        defaults["attention.key_length"] = dim // heads
    return {names[name]: value for name, value in defaults.items() if name in names and value is not None}


def _softmax_scale(architecture: str, values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the number whose root divides scores in Gemma 2 and 3; llama.cpp infers it from the number of layers."""
    if architecture not in _LARGEST_GEMMA:
        return {}
    whole = _absent(_LLAMA, values).get("head_dim")
    largest = values.get("block_count") == _LARGEST_GEMMA[architecture]
    divisor = whole if largest else values.get("attention.key_length", whole)
    return {} if divisor is None else {"query_pre_attn_scalar": divisor}


def _scaling(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the RoPE scaling; a factor without a type means linear, as in llama.cpp."""
    scaling_type = values.get("rope.scaling.type", "linear" if "rope.scaling.factor" in values else "none")
    if scaling_type == "none":
        return {}
    read = {key: values[f"rope.scaling.{name}"] for name, key in _SCALING.items() if f"rope.scaling.{name}" in values}
    return {"rope_scaling": {"rope_type": scaling_type, **read}}


def _rotary_fraction(model_type: str, values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fraction of a head's features that is rotated, if it is not all."""
    rotary_dim, dim, heads = (
        values.get(n) for n in ("rope.dimension_count", "embedding_length", "attention.head_count")
    )
    key = "rotary_pct" if model_type == "gpt_neox" else "partial_rotary_factor"
    whole = {key: 1.0} if model_type == "gpt_neox" else {}
    if not isinstance(rotary_dim, int) or not isinstance(dim, int) or not isinstance(heads, int) or heads < 1:
        return whole
    head_dim = values.get("attention.key_length", dim // heads)
    if not isinstance(head_dim, int) or head_dim < 1 or rotary_dim == head_dim:
        return whole
    return {key: rotary_dim / head_dim}


def _llama3(
    config: Mapping[str, object], values: Mapping[str, object], factors: Sequence[float] | None
) -> Mapping[str, object]:
    """Return the parameters of Llama 3's scaling, whereas GGUF stores the resulting factor of each pair.

    The parameters of the published models are used if they reproduce every factor.
    """
    theta, rotary_dim = values.get("rope.freq_base", 10_000.0), values.get("rope.dimension_count")
    unread = {"rope_freqs.weight": "a tensor"}
    if not factors or not isinstance(rotary_dim, int) or rotary_dim != 2 * len(factors) or "rope_scaling" in config:
        return unread
    if not isinstance(theta, int | float) or not 1 <= theta < float("inf"):
        return unread
    largest, low, high = round(max(factors), 4) if max(factors) < float("inf") else 1.0, 1.0, 4.0
    if largest < 1:
        return unread
    for pair, factor in enumerate(factors):
        rotations = _LENGTH_OF_LLAMA3 / (2 * pi * theta ** (2 * pair / rotary_dim))
        smooth = min(max((rotations - low) / (high - low), 0.0), 1.0)
        if not isclose(1 / ((1 - smooth) / largest + smooth), factor, rel_tol=1e-4):
            return unread
    parameters = {"factor": largest, "low_freq_factor": low, "high_freq_factor": high}
    return {
        "rope_scaling": {
            "rope_type": "llama3",
            **parameters,
            "original_max_position_embeddings": _LENGTH_OF_LLAMA3,
        }
    }
