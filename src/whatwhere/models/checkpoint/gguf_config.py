"""Convert the keys of a GGUF header to a Hugging Face configuration, so that one reader serves both."""

from collections.abc import Callable, Mapping, Sequence
from math import isclose, pi

from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.gguf_architectures import ARCHITECTURES, Architecture
from whatwhere.models.configuration.keys import Json
from whatwhere.models.configuration.model_type import MAX_LAYERS

_LARGEST_GEMMA = {"gemma2": 46, "gemma3": 62, "gemma-embedding": None}
"""Number of layers of the 27B models, which divide scores by sqrt(hidden_size / heads) rather than sqrt(head_dim)."""

_SCALING = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_READ_ELSEWHERE = ("rope.scaling.type", "rope.scaling.finetuned")
_SWITCHED = ("granite", "granitemoe")
"""Architectures that do not rotate if `rope.scaling.finetuned` is false."""
_SCALES = (
    "attention.head_count_kv", "attention.key_length_mla", "attention.key_length_swa", "attention.max_alibi_bias",
    "attention.output_scale", "attention.recurrent_layers", "attention.scale", "attention.shared_kv_layers",
    "attention.sliding_window", "attention.sliding_window_pattern", "attention.temperature_length",
    "attention.temperature_scale", "embedding_length_per_layer_input", "embedding_scale", "full_attention_interval",
)  # fmt: skip
"""Keys of heads, windows and scales, which are rejected where the architecture is not known to read them."""
_PATTERN, _SECTIONS, _ALIBI = (
    "attention.sliding_window_pattern",
    "rope.dimension_sections",
    "attention.max_alibi_bias",
)

_BLOOM_ALIBI_BIAS = 8.0
"""The value that llama.cpp uses for BLOOM without reading the key: the slopes of the paper."""
_LENGTH_OF_LLAMA3 = 8192
_LLAMA3_ENDS = ((1.0, 4.0), (1.0, 1.0))
"""Low and high frequency factors of the published models."""
_MULTIMODAL = ("qwen2vl", "qwen35", "qwen35moe", "qwen3vl", "qwen3vlmoe")
_BAICHUAN_LAYERS = 32
"""Number of layers of the Baichuan that rotates; llama.cpp takes 40 for one with ALiBi, and others for one without."""
_SMALLTHINKER_WINDOW = 4096
"""The window that llama.cpp takes for SmallThinker, whatever the header says."""
_ONLY = ("baichuan", "exaone-moe", "gemma3n", "mistral3", "smallthinker")
_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_IMPLIED_WINDOW = ("exaone4", 64)
"""Architecture and number of layers for which llama.cpp has a window even if the header has none."""
_GEMMA2_WINDOW = 4096
"""The window of Gemma 2 in llama.cpp if the header has none."""
_MINICPM_SCALE = 12.0
"""The factor of token vectors that llama.cpp takes if the header of MiniCPM, an older one, has none."""


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
    name = metadata.get("general.architecture")
    table = entries.get("token_embd.weight")
    if not isinstance(name, str) or name not in ARCHITECTURES or table is None or len(table.shape) != 2:
        return None
    architecture = ARCHITECTURES[name]
    values = {k.removeprefix(f"{name}."): v for k, v in metadata.items() if k.startswith(f"{name}.")}
    if isinstance(layers := values.get("block_count"), int) and isinstance(
        more := values.get("nextn_predict_layers"), int
    ):
        values["block_count"] = layers - more  # the last layers predict further tokens; transformers has none of them
    names = architecture.keys
    config: dict[str, object] = {
        "model_type": architecture.model_type,
        "vocab_size": table.shape[0],
        "tie_word_embeddings": "output.weight" not in entries,
        **architecture.settings,
        **_absent(name, names, values),
        **{key: values[key_of_gguf] for key_of_gguf, key in names.items() if key_of_gguf in values},
        **_scaling(values),
        **_rotary_fraction(architecture, values),
        **_softmax_scale(name, values),
        **_windows(architecture, values),
    }
    special, known = _special(name, values)
    longrope = _longrope(name, values, entries, factors)
    read = (*known, "rope.scaling.attn_factor") if "rope_scaling" in longrope else known
    config |= {**special, **longrope, **_unread(name, read, values)}
    if isinstance(padding := metadata.get("tokenizer.ggml.padding_token_id"), int):
        config["pad_token_id"] = padding
    if "rope_freqs.weight" in entries:
        config |= _llama3(config, values, factors("rope_freqs.weight"))
    return config


def _unread(gguf: str, read: Sequence[str], values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the unknown keys that affect positions, under their whole names, which the reader rejects."""
    architecture = ARCHITECTURES[gguf]
    known = {*architecture.keys, *_READ_ELSEWHERE, *read, *(f"rope.scaling.{name}" for name in _SCALING)}
    known |= {_PATTERN} if architecture.pattern else set()
    if architecture.fraction_key is not None or values.get("rope.dimension_count") == _head_dim(values):
        known.add("rope.dimension_count")
    if gguf in _SWITCHED and values.get("rope.scaling.finetuned") is False:
        known.remove("rope.scaling.finetuned")
    if values.get("attention.head_count_kv") == values.get("attention.head_count"):
        known.add("attention.head_count_kv")
    unread = {
        f"{gguf}.{name}": value
        for name, value in values.items()
        if (name.startswith("rope.") or name in _SCALES) and name not in known
    }
    if "attention.causal" in values and values["attention.causal"] != architecture.causal:
        unread[f"{gguf}.attention.causal"] = values["attention.causal"]
    if (gguf, values.get("block_count")) == _IMPLIED_WINDOW and "attention.sliding_window" not in values:
        unread[f"{gguf}.attention.sliding_window"] = "absent"
    return unread


def _absent(name: str, names: Mapping[str, str], values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the defaults of llama.cpp, which differ from those of transformers."""
    defaults: dict[str, object] = {
        "attention.head_count_kv": values.get("attention.head_count"),
        "rope.freq_base": 10_000.0,
        "embedding_scale": _MINICPM_SCALE if name == "minicpm" else 1.0,
    }
    if (head_dim := _head_dim(values)) is not None:
        defaults["attention.key_length"] = head_dim
        if isinstance(head_dim, int) and head_dim > 0:
            defaults["attention.scale"] = head_dim**-0.5
    return {names[name]: value for name, value in defaults.items() if name in names and value is not None}


def _windows(architecture: Architecture, values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the window, null for 0, and the type of each layer where the header lists or counts them."""
    key, window = architecture.keys.get("attention.sliding_window"), values.get("attention.sliding_window")
    if key is None:
        return {}
    found: dict[str, object] = {}
    if window is None and architecture.needs_window:
        return {"header.attention.sliding_window": "absent"}
    if window is None and architecture.model_type == "gemma2":
        found[key] = _GEMMA2_WINDOW
    elif not window:
        found[key] = None
    if not window and architecture.model_type == "gemma3_text":  # no layer has one
        layers = values.get("block_count")
        full = layers if isinstance(layers, int) and 0 < layers <= MAX_LAYERS else 0
        return {**found, "layer_types": ["full_attention"] * full}
    if architecture.windowed_type is not None and window:
        found["model_type"] = architecture.windowed_type
    pattern, layers = values.get(_PATTERN), values.get("block_count")
    if architecture.pattern and isinstance(pattern, list):
        found["layer_types"] = ["sliding_attention" if one else "full_attention" for one in pattern]
    elif architecture.pattern and pattern is not None:
        if not isinstance(pattern, int) or not isinstance(layers, int) or pattern < 1 or layers > MAX_LAYERS:
            return {**found, f"header.{_PATTERN}": pattern}
        full = 0 if architecture.full_first else pattern - 1
        found["layer_types"] = [
            "full_attention" if layer % pattern == full else "sliding_attention" for layer in range(layers)
        ]
    return found


def _special(name: str, values: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """Return what the keys of one architecture alone mean, and the names of these keys."""
    kv = values.get("attention.head_count_kv")
    if name == "mpt":
        bias = values.get(_ALIBI, 0.0)
        return {"attn_config": {"alibi": bool(bias), **({"alibi_bias_max": bias} if bias else {})}}, (_ALIBI,)
    if name == "starcoder" and kv in (None, 1, values.get("attention.head_count")):
        return {"multi_query": kv == 1}, ("attention.head_count_kv",)
    if name == "bloom" and values.get(_ALIBI) == _BLOOM_ALIBI_BIAS:
        return {}, (_ALIBI,)
    if name in ("deepseek2", "minicpm3", "plm"):
        return _latent(name, values)
    if name == "jais":
        softmax_scale = 1 / head_dim if isinstance(head_dim := _head_dim(values), int) and head_dim > 0 else None
        inner = {"alibi": True, "alibi_bias_max": values.get(_ALIBI), "softmax_scale": softmax_scale}
        return {"attn_config": inner}, (_ALIBI,)
    if name in _ONLY:
        return _only(name, values)
    if name == "minicpm" and isinstance(head_dim := _head_dim(values), int) and head_dim > 0:
        return {"attention_multiplier": head_dim**-0.5}, ()
    if name == "granitehybrid":
        on = values.get("rope.scaling.finetuned", True)
        return {**_recurrent(name, kv, values), "position_embedding_type": "rope" if on else None}, ()
    if name == "dbrx":
        theta = values.get("rope.freq_base", 10_000.0)
        heads = values.get("attention.head_count") if kv is None else kv
        return {"attn_config": {"kv_n_heads": heads, "rope_theta": theta}}, (
            "attention.head_count_kv",
            "rope.freq_base",
        )
    if ARCHITECTURES[name].recurrent is not None:
        return _recurrent(name, kv, values), ()
    if name in _MULTIMODAL and isinstance(sections := values.get(_SECTIONS), list) and sections[3:] in ([], [0]):
        return {"rope_scaling": {"rope_type": "default", "mrope_section": sections[:3]}}, (_SECTIONS,)
    return {}, ()


def _latent(name: str, values: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """Return the parts of latent attention; YaRN's multiplier of the logarithm is a tenth of transformers' mscale."""
    known = ("attention.head_count_kv", "attention.key_length_mla", _LOG_MULTIPLIER)
    total, rotated = values.get("attention.key_length_mla", values.get("attention.key_length")), None
    if isinstance(rotated := values.get("rope.dimension_count"), int) and isinstance(total, int):
        found: dict[str, object] = {
            "qk_nope_head_dim": total - rotated,
            "num_key_value_heads": values.get("attention.head_count"),
        }
        multiplier = values.get(_LOG_MULTIPLIER)
        if name == "deepseek2" and isinstance(multiplier, float):
            scaling = _scaling(values).get("rope_scaling", {})
            mscale = {"mscale": round(10 * multiplier, 6), "mscale_all_dim": round(10 * multiplier, 6)}
            found["rope_scaling"] = {**scaling, **mscale} if isinstance(scaling, dict) else scaling
            return found, known
        if name == "deepseek2" and _scaling(values):  # without it llama.cpp has no magnitude, and transformers one
            found[f"header.{_LOG_MULTIPLIER}"] = "absent"
        return found, known[:2] if name == "deepseek2" else known[:1]
    return {"num_key_value_heads": values.get("attention.head_count")}, known


def _only(name: str, values: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """Return what is implied where llama.cpp fixes what a header says, or refuse headers that say otherwise."""
    layers, window = values.get("block_count"), values.get("attention.sliding_window")
    count = layers if isinstance(layers, int) and 0 < layers <= MAX_LAYERS else 0
    if name == "baichuan":
        return {} if count == _BAICHUAN_LAYERS else {"header.block_count": layers}, ()
    if name == "exaone-moe":
        pattern, usual = values.get(_PATTERN), [layer % 4 != 3 for layer in range(count)]
        same = isinstance(pattern, list) and [bool(one) for one in pattern[:count]] == usual
        return {} if same else {f"header.{_PATTERN}": "absent" if pattern is None else pattern}, ()
    if name == "mistral3":
        return _ministral(values)
    if name == "gemma3n":
        return {}, ("attention.shared_kv_layers", "embedding_length_per_layer_input")
    if not window:
        return {}, ()
    types = ["sliding_attention" if layer % 4 else "full_attention" for layer in range(count)]
    return {"layer_types": types} if window == _SMALLTHINKER_WINDOW else {"header.attention.sliding_window": window}, ()


def _ministral(values: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """Return YaRN without a magnitude, and the temperature, whose period is the length that YaRN starts from."""
    scaling, strength = _scaling(values).get("rope_scaling"), values.get("attention.temperature_scale")
    if scaling is None:
        return {"rope_parameters": {"rope_type": "default", "rope_theta": values.get("rope.freq_base", 10_000.0)}}, ()
    if not isinstance(scaling, dict) or scaling.get("rope_type") != "yarn" or values.get(_LOG_MULTIPLIER) != 1.0:
        return {}, ()
    own: dict[str, object] = {"mscale": 1.0, "mscale_all_dim": 1.0}
    if isinstance(strength, float):
        own["llama_4_scaling_beta"] = round(strength, 6)
    return {"rope_scaling": {**scaling, **own}}, (_LOG_MULTIPLIER, "attention.temperature_scale")


def _recurrent(name: str, kv: object, values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the key heads, and the types of layers, of which those with 0 key heads have no attention."""
    if not isinstance(kv, list):
        return {}
    kv = kv[: layers if isinstance(layers := values.get("block_count"), int) else None]
    numbers = sorted({one for one in kv if one})
    heads: dict[str, object] = {"num_key_value_heads": numbers[0] if len(numbers) == 1 else kv}
    other = ARCHITECTURES[name].recurrent
    if ARCHITECTURES[name].model_type == "nemotron_h":  # layers with neither keys nor a feed-forward network are Mamba
        wide, network = values.get("feed_forward_length"), "moe" if name == "nemotron_h_moe" else "mlp"
        if not isinstance(wide, list) or len(wide) < len(kv):
            return {**heads, "header.feed_forward_length": wide}
        types = [
            "full_attention" if one else network if each else "linear_attention"
            for one, each in zip(kv, wide, strict=False)
        ]
        return {**heads, "layers_block_type": types}
    return {**heads, "layer_types": ["full_attention" if one else other for one in kv]} if other else heads


def _longrope(
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


def _softmax_scale(architecture: str, values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the number whose root divides scores in Gemma 2 and 3; llama.cpp infers it from the number of layers."""
    if architecture not in _LARGEST_GEMMA:
        return {}
    whole = _head_dim({name: value for name, value in values.items() if name != "attention.key_length"})
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


def _head_dim(values: Mapping[str, object]) -> object:
    """Return the features of a head, by their key or by those of hidden states; None if neither is known."""
    dim, heads = values.get("embedding_length"), values.get("attention.head_count")
    if isinstance(dim, int) and isinstance(heads, int) and heads > 0:
        return values.get("attention.key_length", dim // heads)
    return values.get("attention.key_length")


def _rotary_fraction(architecture: Architecture, values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fraction of a head's features that is rotated; all are if no key has their number."""
    key = architecture.fraction_key
    if architecture.pairs is None or key is None:
        return {}
    rotary_dim, head_dim = values.get("rope.dimension_count"), _head_dim(values)
    if not isinstance(rotary_dim, int) or not isinstance(head_dim, int) or head_dim < 1 or rotary_dim == head_dim:
        return {key: 1.0}
    exact = rotary_dim / head_dim
    return {key: exact if int(head_dim * exact) == rotary_dim else (rotary_dim + 0.5) / head_dim}


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
    largest = round(max(factors), 4) if max(factors) < float("inf") else 1.0
    if largest < 1:
        return unread
    rotations = [_LENGTH_OF_LLAMA3 / (2 * pi * theta ** (2 * pair / rotary_dim)) for pair in range(len(factors))]
    found = next((ends for ends in _LLAMA3_ENDS if _scaled_alike(factors, rotations, largest, *ends)), None)
    if found is None:
        return unread
    parameters = {"factor": largest, "low_freq_factor": found[0], "high_freq_factor": found[1]}
    return {
        "rope_scaling": {
            "rope_type": "llama3",
            **parameters,
            "original_max_position_embeddings": _LENGTH_OF_LLAMA3,
        }
    }


def _scaled_alike(
    factors: Sequence[float], rotations: Sequence[float], largest: float, low: float, high: float
) -> bool:
    """Return whether Llama 3's rule makes these factors; equal ends are a step, as in Llama 4 Scout."""
    for factor, turns in zip(factors, rotations, strict=True):
        smooth = float(turns > high) if low == high else min(max((turns - low) / (high - low), 0.0), 1.0)
        if not isclose(1 / ((1 - smooth) / largest + smooth), factor, rel_tol=1e-4):
            return False
    return True
