"""Frequency factors that GGUF stores as tensors: Llama 3's, LongRoPE's, and those of pairs that do not rotate."""

from collections.abc import Callable, Mapping, Sequence
from math import isclose, pi

from whatwhere.models.checkpoint.base import Entry

_LLAMA3_ENDS = ((1.0, 4.0, 8192), (1.0, 1.0, 8192), (1.0, 32.0, 131_072))
"""Low and high frequency factors of the published models, and the length that they were trained with."""
_STEP_HEADS = ("attention.head_count", "attention.head_count_kv")
_PATTERN = "attention.sliding_window_pattern"
_NEVER_ROTATED = 1e30
"""The factor by which frequencies are divided that the converter of Gemma 4 writes for pairs that do not rotate."""


def longrope(
    name: str,
    values: Mapping[str, object],
    entries: Mapping[str, Entry],
    factors: Callable[[str], Sequence[float] | None],
) -> Mapping[str, object]:
    """Return LongRoPE of the two tensors of factors, which are rejected in other models than Phi-3."""
    names = [one for one in ("rope_factors_long.weight", "rope_factors_short.weight") if one in entries]
    original = values.get("rope.scaling.original_context_length")
    long, short = (factors(one) for one in names) if len(names) == 2 else (None, None)
    if name not in ("phi3", "phimoe") or not long or not short or original is None:
        return dict.fromkeys(names, "a tensor")
    factor = values.get("rope.scaling.attn_factor", 1.0)
    rope: dict[str, object] = {"rope_type": "longrope", "long_factor": long, "short_factor": short}
    if name == "phimoe":
        own = {"short_mscale": factor, "long_mscale": factor, "original_max_position_embeddings": original}
        return {"rope_scaling": {**rope, **own}}
    return {
        "rope_scaling": {**rope, "attention_factor": factor},
        "original_max_position_embeddings": original,
    }


def llama3(
    config: Mapping[str, object], values: Mapping[str, object], factors: Sequence[float] | None
) -> Mapping[str, object]:
    """Return the parameters of Llama 3's scaling, whereas GGUF stores the resulting factor of each pair.

    The parameters of the published models are used if they reproduce every factor.
    """
    rotary_dim = values.get("rope.dimension_count")
    if not factors or rotary_dim != 2 * len(factors) or "rope_scaling" in config:
        return {"rope_freqs.weight": "a tensor"}
    found = _parameters(factors, values)
    return {"rope_freqs.weight": "a tensor"} if found is None else {"rope_scaling": found}


def _parameters(factors: Sequence[float], values: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the parameters of Llama 3's scaling that make a factor for each rotated pair; None if unknown ones do."""
    theta = values.get("rope.freq_base", 10_000.0)
    largest = round(max(factors), 4) if factors and max(factors) < float("inf") else 1.0
    if not factors or largest < 1 or not isinstance(theta, int | float) or not 1 <= theta < float("inf"):
        return None
    inverse_frequencies = [theta ** (-pair / len(factors)) for pair in range(len(factors))]
    for low, high, length in _LLAMA3_ENDS:
        if _scaled_alike(factors, [length * one / (2 * pi) for one in inverse_frequencies], largest, low, high):
            return {
                "rope_type": "llama3",
                "factor": largest,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": length,
            }
    return None


def _scaled_alike(
    factors: Sequence[float], rotations: Sequence[float], largest: float, low: float, high: float
) -> bool:
    """Return whether Llama 3's rule makes these factors; equal ends are a step, as in Llama 4 Scout."""
    for factor, turns in zip(factors, rotations, strict=True):
        smooth = float(turns > high) if low == high else min(max((turns - low) / (high - low), 0.0), 1.0)
        if not isclose(1 / ((1 - smooth) / largest + smooth), factor, rel_tol=1e-4):
            return False
    return True


def gemma4(
    config: Mapping[str, object], values: Mapping[str, object], factors: Sequence[float] | None
) -> Mapping[str, object]:
    """Return the heads of each layer, and its rotary; where it has no window, factors of 1e30 keep pairs from rotating.

    Such layers have heads of `attention.key_length`, those with a window heads of `attention.key_length_swa`.
    """
    types, kv = config.get("layer_types"), values.get("attention.head_count_kv")
    wide, usual = values.get("attention.key_length"), values.get("attention.key_length_swa")
    unknown = {"num_key_value_heads": None}
    if not isinstance(types, list) or not isinstance(wide, int) or not isinstance(usual, int):
        return {**unknown, "header.attention.key_length_swa": "absent" if usual is None else usual}
    heads = kv[: len(types)] if isinstance(kv, list) else [kv] * len(types)
    rotated = factors.count(1.0) if factors else 0
    if factors is None or 2 * len(factors) != wide or any(one < _NEVER_ROTATED for one in factors[rotated:]):
        return {**unknown, "rope_freqs.weight": "a tensor" if factors else "absent"}
    for key, dim in (("rope.dimension_count", wide), ("rope.dimension_count_swa", usual)):
        if values.get(key, wide) != dim:  # llama.cpp takes that of layers without a window for all
            return {**unknown, f"header.{key}": values.get(key, "absent")}
    full: dict[str, object] = {"rope_type": "proportional", "partial_rotary_factor": 2 * rotated / wide}
    return {
        "head_dim": usual,
        "num_key_value_heads": heads[0] if heads else None,
        "per_layer_config": {
            str(layer): {"head_dim": wide if each == "full_attention" else usual, "num_key_value_heads": key_heads}
            for layer, (each, key_heads) in enumerate(zip(types, heads, strict=False))
        },
        "rope_parameters": {
            "full_attention": {**full, "rope_theta": values.get("rope.freq_base", 10_000.0)},
            "sliding_attention": {"rope_type": "default", "rope_theta": values.get("rope.freq_base_swa", 10_000.0)},
        },
    }


def step35(
    config: Mapping[str, object], values: Mapping[str, object], factors: Sequence[float] | None
) -> Mapping[str, object]:
    """Return the query heads and the rotary of each type of layer.

    Layers without a window rotate half of a head, and the first factors of the tensor scale these pairs; others rotate
    whole heads.
    """
    types, dim, pattern = config.get("layer_types"), config.get("head_dim"), values.get(_PATTERN)
    found: dict[str, object] = {"num_attention_heads": 1, "num_key_value_heads": 1}  # of refused headers
    if not isinstance(types, list) or not isinstance(pattern, list):
        return {**found, f"header.{_PATTERN}": "absent" if pattern is None else pattern}
    layers = values.get("block_count")
    types = found["layer_types"] = types[: layers if isinstance(layers, int) else None]
    if not isinstance(dim, int):
        return {**found, "header.attention.key_length": values.get("attention.key_length", "absent")}
    heads, key_heads = (_by_type(values, name, types) for name in _STEP_HEADS)
    if heads is None or key_heads is None or key_heads[0] != key_heads[1]:
        key = _STEP_HEADS[int(heads is not None)]
        return {**found, f"header.{key}": values.get(key, "absent")}
    found |= {"num_attention_heads": heads[0], "num_sliding_attention_heads": heads[1]}
    found["num_key_value_heads"] = key_heads[0]
    full: Mapping[str, object] = {"rope_type": "default"}
    if factors is not None:
        scaled = _parameters(factors[: dim // 4], values) if 2 * len(factors) == dim else None
        if scaled is None or any(one != 1.0 for one in factors[dim // 4 :]):
            return {**found, "rope_freqs.weight": "a tensor"}
        full = scaled
    thetas = (values.get("rope.freq_base", 10_000.0), values.get("rope.freq_base_swa", 10_000.0))
    found["rope_parameters"] = {
        "full_attention": {**full, "rope_theta": thetas[0], "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": thetas[1], "partial_rotary_factor": 1.0},
    }
    return found


def _by_type(values: Mapping[str, object], key: str, types: Sequence[object]) -> tuple[object, object] | None:
    """Return the heads of layers without a window and with one, for those of the first where a type has no layer.

    None if layers of one type differ, or if some have no number.
    """
    heads = values.get(key, values.get("attention.head_count"))
    listed = heads if isinstance(heads, list) else [heads] * len(types)
    by_type = dict(zip(types, listed, strict=False))
    if not 0 < len(types) <= len(listed) or any(by_type[kind] != one for kind, one in zip(types, listed, strict=False)):
        return None
    usual = by_type.get("full_attention", listed[0])
    return usual, by_type.get("sliding_attention", usual)
