"""Convert the keys of a GGUF header to a Hugging Face configuration, so that one reader serves both.

What llama.cpp does not read, or takes whatever the header says, becomes a key that the reader of configurations
refuses: under its whole name. Ignoring it could change every score.
"""

from collections.abc import Mapping, Sequence
from math import inf, isclose, log, pi
from typing import Any

from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.gguf_architectures import ARCHITECTURES, WINDOW, names_of
from whatwhere.models.configuration.keys import Json
from whatwhere.models.configuration.model_types import MAX_LAYERS, find_model_type

Settings = dict[str, Any]

_HEADS, _KV, _KEY_LENGTH = "attention.head_count", "attention.head_count_kv", "attention.key_length"
_MLA, _SWA, _SHARED = "attention.key_length_mla", "attention.key_length_swa", "attention.shared_kv_layers"
_PATTERN = "attention.sliding_window_pattern"
_ALIBI, _CAUSAL, _SCALE = "attention.max_alibi_bias", "attention.causal", "attention.scale"
_THETA, _THETA_SWA, _ROTARY_DIM = "rope.freq_base", "rope.freq_base_swa", "rope.dimension_count"
_ATTN_FACTOR, _LOG_MULTIPLIER = "rope.scaling.attn_factor", "rope.scaling.yarn_log_multiplier"
_YARN_FACTORS = ("rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor")
_SECTIONS, _STRENGTH = "rope.dimension_sections", "attention.temperature_scale"
_FINETUNED = "rope.scaling.finetuned"
_PER_LAYER, _FREQUENCIES = "embedding_length_per_layer_input", "rope_freqs.weight"
_SCALING = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_NOT_IGNORED = (
    _KV, _MLA, _SWA, _ALIBI, "attention.output_scale", "attention.recurrent_layers", _SCALE, _SHARED, WINDOW,
    _PATTERN, "attention.temperature_length", _STRENGTH, _PER_LAYER, "embedding_scale",
    "full_attention_interval",
)  # fmt: skip
"""Keys of heads, windows and scales, which are refused, as those of rotary positions, where they are not read."""


class Header:
    """The keys of a header that belong to its architecture, without its name, and what most rules ask of them."""

    def __init__(self, name: str, metadata: Mapping[str, object]) -> None:
        self.name, self.architecture = name, ARCHITECTURES[name]
        self.names, self.fraction_key = names_of(self.architecture)
        self.values: Settings = {k.removeprefix(f"{name}."): v for k, v in metadata.items() if k.startswith(f"{name}.")}
        layers, more = self.get("block_count"), self.get("nextn_predict_layers")
        if isinstance(layers, int) and isinstance(more, int):
            # The last layers predict further tokens; transformers has none of them.
            self.values["block_count"] = layers = layers - more
        self.layers: int = layers if isinstance(layers, int) and 0 < layers <= MAX_LAYERS else 0
        dim, heads, own = self.get("embedding_length"), self.get(_HEADS), self.get(_KEY_LENGTH)
        whole = dim // heads if isinstance(dim, int) and isinstance(heads, int) and heads > 0 else 0
        self.whole_head_dim: int | None = whole or None
        self.head_dim = self.whole_head_dim if own is None else own if isinstance(own, int) and own > 0 else None

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key."""
        return self.values.get(key, default)

    def theta(self, key: str = _THETA) -> Any:
        """Return the base of rotary frequencies, or llama.cpp's default."""
        return self.get(key, 10_000.0)

    def refused(self, *keys: str) -> Settings:
        """Return keys under their whole names, which the reader of configurations refuses."""
        return {f"{self.name}.{key}": self.get(key, "absent") for key in keys}

    def refused_if_present(self, *keys: str) -> Settings:
        """Return likewise those of some keys that the header has."""
        return self.refused(*(key for key in keys if key in self.values))

    def scaling(self) -> Settings:
        """Return the RoPE scaling; a factor without a type means linear, as in llama.cpp."""
        kind = self.get("rope.scaling.type", "linear" if "rope.scaling.factor" in self.values else "none")
        if kind == "none":
            return {}
        stated = {key: self.get(f"rope.scaling.{name}") for name, key in _SCALING.items()}
        return {"rope_type": kind, **{key: value for key, value in stated.items() if value is not None}}


def config_of(metadata: Mapping[str, object], entries: Mapping[str, Entry]) -> Json | None:
    """Return the configuration that a header and its short tensors describe; None for an unknown architecture."""
    name, table = metadata.get("general.architecture"), entries.get("token_embd.weight")
    if not isinstance(name, str) or name not in ARCHITECTURES or table is None or len(table.shape) != 2:
        return None
    header = Header(name, metadata)
    architecture = header.architecture
    config: Settings = {
        "model_type": architecture.type,
        "vocab_size": table.shape[0],
        "tie_word_embeddings": "output.weight" not in entries,
        **architecture.settings,
        **_absent(header),
        **{key: header.get(name) for name, key in header.names.items() if name in header.values},
        **({"rope_scaling": scaling} if (scaling := header.scaling()) else {}),
        **_rotary_fraction(header),
        **_softmax_scale(header),
        **_windows(header),
        **_direction(header),
        **_required(header),
    }
    frequencies = _factors(entries, _FREQUENCIES)
    special, long = _special(header, config, frequencies), _longrope(header, entries)
    known = (_ATTN_FACTOR,) if "rope_scaling" in long else _neutral_magnitudes(header)
    config |= {**special, **long, **_unread(header, known)}
    if isinstance(padding := metadata.get("tokenizer.ggml.padding_token_id"), int):
        config["pad_token_id"] = padding
    if _FREQUENCIES in entries and name not in ("gemma4", "step35"):
        config |= _llama3(header, config, frequencies)
    return config


def _unread(header: Header, read: Sequence[str]) -> Settings:
    """Return the keys that affect positions and are not read."""
    architecture, name = header.architecture, header.name
    known = {*header.names, *architecture.read, *architecture.only, *read, "rope.scaling.type"}
    known |= {f"rope.scaling.{key}" for key in _SCALING}
    known |= {WINDOW} if architecture.windows is not None else set()
    known |= {_PATTERN} if architecture.windows == "by layer" else set()
    if architecture.pairs is None or header.fraction_key is not None or header.get(_ROTARY_DIM) == header.head_dim:
        known.add(_ROTARY_DIM)
    if name not in ("granite", "granitemoe") or header.get(_FINETUNED) is not False:  # those do not rotate then
        known.add(_FINETUNED)
    if header.get(_KV) == header.get(_HEADS):
        known.add(_KV)
    unread = [key for key in header.values if (key.startswith("rope.") or key in _NOT_IGNORED) and key not in known]
    if header.get(_CAUSAL, architecture.causal) != architecture.causal and not _direction(header):
        unread.append(_CAUSAL)
    if name == "exaone4" and header.get("block_count") == 64 and WINDOW not in header.values:
        unread.append(WINDOW)  # of its 32B, to which llama.cpp gives one
    return header.refused(*unread)


def _direction(header: Header) -> Settings:
    """Return transformers' flag of both directions, but beside a window: there llama.cpp shows all later tokens."""
    architecture = header.architecture
    windowed = header.get(WINDOW) or WINDOW in architecture.needs or architecture.type == "gemma2"
    both = architecture.causal and header.get(_CAUSAL) is False
    return {"is_causal": False} if both and not windowed else {}


def _absent(header: Header) -> Settings:
    """Return the defaults of llama.cpp, which differ from those of transformers."""
    defaults = {
        _KV: header.get(_HEADS),
        _THETA: 10_000.0,
        "embedding_scale": 1.0,
        _KEY_LENGTH: header.head_dim,
        _SCALE: None if header.head_dim is None else header.head_dim**-0.5,
        **header.architecture.defaults,
    }
    return {header.names[name]: value for name, value in defaults.items() if name in header.names and value is not None}


def _required(header: Header) -> Settings:
    """Return, to be refused, the keys that a header lacks, and those of which llama.cpp takes a different value."""
    wrong = [key for key, value in header.architecture.only.items() if header.get(key, value) != value]
    absent = [key for key in header.architecture.needs if key not in header.values]
    return header.refused(*wrong, *absent)


def _windows(header: Header) -> Settings:
    """Return the window, null for 0, and the type of each layer where the header lists or counts them."""
    architecture, window, pattern = header.architecture, header.get(WINDOW), header.get(_PATTERN)
    if architecture.windows is None or (window is None and WINDOW in architecture.needs):
        return {}
    windows = find_model_type(architecture.windowed_type or architecture.type).windows
    found: Settings = {} if windows is None else {windows.key: window or None}
    if window is None and architecture.type == "gemma2":
        found["sliding_window"] = 4096
    if window and architecture.windowed_type is not None:
        found["model_type"] = architecture.windowed_type
    if not window and architecture.type == "gemma3_text":  # no layer has one
        return {**found, "layer_types": ["full_attention"] * header.layers}
    if architecture.windows != "by layer" or pattern is None:
        return found
    if isinstance(pattern, list):
        return {**found, "layer_types": _types(pattern)}
    if not isinstance(pattern, int) or pattern < 1 or not header.layers:
        return {**found, **header.refused(_PATTERN)}
    full = 0 if architecture.full_first else pattern - 1
    return {**found, "layer_types": _types(layer % pattern != full for layer in range(header.layers))}


def _types(windowed: Any) -> list[str]:
    return ["sliding_attention" if one else "full_attention" for one in windowed]


def _softmax_scale(header: Header) -> Settings:
    """Return the number whose root divides scores in Gemma 2 and 3; llama.cpp infers it from the number of layers."""
    largest = {"gemma2": 46, "gemma3": 62, "gemma-embedding": None}  # layers of the 27B models
    if header.name not in largest:
        return {}
    is_largest = header.get("block_count") == largest[header.name]
    divisor = header.whole_head_dim if is_largest else header.head_dim
    return {} if divisor is None else {"query_pre_attn_scalar": divisor}


def _neutral_magnitudes(header: Header) -> tuple[str, ...]:
    """Return the factors of YaRN that are 1, or repeat its own magnitude, as the converter of OLMo 3 writes it."""
    factor = header.get("rope.scaling.factor")
    yarn = header.get("rope.scaling.type") == "yarn" and _LOG_MULTIPLIER not in header.values
    own = 0.1 * log(factor) + 1.0 if yarn and isinstance(factor, float) and 1.0 < factor < inf else 1.0
    values = {key: header.get(key) for key in (_ATTN_FACTOR, *_YARN_FACTORS)}
    return tuple(
        key
        for key, value in values.items()
        if value == 1.0 or (isinstance(value, float) and isclose(value, own, rel_tol=1e-6) and key != _YARN_FACTORS[0])
    )


def _rotary_fraction(header: Header) -> Settings:
    """Return the fraction of a head's features that is rotated; all are if no key has their number."""
    key, rotary_dim, head_dim = header.fraction_key, header.get(_ROTARY_DIM), header.head_dim
    if key is None:
        return {}
    if not isinstance(rotary_dim, int) or head_dim is None or rotary_dim == head_dim:
        return {key: 1.0}
    exact = rotary_dim / head_dim
    return {key: exact if int(head_dim * exact) == rotary_dim else (rotary_dim + 0.5) / head_dim}


# What the keys of one architecture alone mean


def _special(header: Header, config: Settings, frequencies: Sequence[float] | None) -> Settings:
    kv, bias, heads = header.get(_KV), header.get(_ALIBI), header.get(_HEADS)
    match header.name:
        case "mpt":
            return {"attn_config": {"alibi": bool(bias), **({"alibi_bias_max": bias} if bias else {})}}
        case "jais":
            scale = None if header.head_dim is None else 1 / header.head_dim
            return {"attn_config": {"alibi": True, "alibi_bias_max": bias, "softmax_scale": scale}}
        case "starcoder":
            return {"multi_query": kv == 1} if kv in (None, 1, heads) else header.refused(_KV)
        case "dbrx":
            return {"attn_config": {"kv_n_heads": heads if kv is None else kv, "rope_theta": header.theta()}}
        case "minicpm":
            return {} if header.head_dim is None else {"attention_multiplier": header.head_dim**-0.5}
        case "grok":  # the bound of its own code where the header has none
            yarn = header.scaling().get("rope_type") == "yarn"
            return {"rope_scaling": {"beta_fast": 8.0, **header.scaling()}} if yarn else {}
        case "deepseek2-ocr":  # its code rotates whole heads, and asserts that each has keys of its own
            return {} if kv in (None, heads) else header.refused(_KV)
        case "exaone-moe":
            pattern = header.get(_PATTERN)
            usual = [layer % 4 != 3 for layer in range(header.layers)]
            same = isinstance(pattern, list) and [bool(one) for one in pattern[: header.layers]] == usual
            return {} if same else header.refused(_PATTERN)
        case "smallthinker" if window := header.get(WINDOW):  # llama.cpp takes this one, whatever the header says
            types = _types(layer % 4 for layer in range(header.layers))
            return {"layer_types": types} if window == 4096 else header.refused(WINDOW)
        case "granitehybrid":
            on = header.get(_FINETUNED, True)
            return {**_recurrent(header), "position_embedding_type": "rope" if on else None}
        case "mistral3":
            return _ministral(header)
        case "plamo3":
            return _plamo3(header)
        case "gemma4":
            return _gemma4(header, config, frequencies)
        case "step35":
            return _step35(header, config, frequencies)
        case "deepseek2" | "glm-dsa" | "minicpm3" | "plm":
            return _latent(header)
    if _SECTIONS in header.architecture.read and (sections := header.get(_SECTIONS)) is not None:
        if not isinstance(sections, list) or sections[3:] not in ([], [0]):
            return header.refused(_SECTIONS)
        return {"rope_scaling": {"rope_type": "default", "mrope_section": sections[:3]}}
    return {} if header.architecture.recurrent is None else _recurrent(header)


def _latent(header: Header) -> Settings:
    """Return the parts of latent attention; YaRN's multiplier of the logarithm is a tenth of transformers' mscale."""
    found: Settings = {"num_key_value_heads": header.get(_HEADS)}
    total, rotated = header.get(_MLA, header.get(_KEY_LENGTH)), header.get(_ROTARY_DIM)
    if not isinstance(rotated, int) or not isinstance(total, int):
        return found
    found["qk_nope_head_dim"] = total - rotated
    if _LOG_MULTIPLIER not in header.architecture.read:
        return found
    if isinstance(multiplier := header.get(_LOG_MULTIPLIER), float):
        mscale = round(10 * multiplier, 6)
        return {**found, "rope_scaling": {**header.scaling(), "mscale": mscale, "mscale_all_dim": mscale}}
    # Without it llama.cpp has no magnitude, and transformers one.
    wrong = header.refused if header.scaling() else header.refused_if_present
    return {**found, **wrong(_LOG_MULTIPLIER)}


def _plamo3(header: Header) -> Settings:
    """Return thetas by the type of a layer, and the types, of which the last of each period has no window."""
    period = header.get(_PATTERN, 8)
    if not isinstance(period, int) or period < 1:  # llama.cpp reads a number alone
        return header.refused(_PATTERN)
    windowed = bool(header.get(WINDOW))
    return {
        "layer_types": _types(windowed and layer % period < period - 1 for layer in range(header.layers)),
        "rope_scaling": None,
        **_by_type(header, header.scaling()),
    }


def _ministral(header: Header) -> Settings:
    """Return YaRN without a magnitude, and the temperature, whose period is the length that YaRN starts from."""
    scaling, strength = header.scaling(), header.get(_STRENGTH)
    plain = {} if scaling else {"rope_parameters": {"rope_type": "default", "rope_theta": header.theta()}}
    if scaling.get("rope_type") != "yarn" or header.get(_LOG_MULTIPLIER) != 1.0:
        return {**plain, **header.refused_if_present(_LOG_MULTIPLIER, _STRENGTH)}
    own: Settings = {"mscale": 1.0, "mscale_all_dim": 1.0}
    if isinstance(strength, float):
        own["llama_4_scaling_beta"] = round(strength, 6)
    return {"rope_scaling": {**scaling, **own}}


def _recurrent(header: Header) -> Settings:
    """Return the key heads, and the types of layers, of which those with 0 key heads have no attention."""
    kv, other = header.get(_KV), header.architecture.recurrent
    if not isinstance(kv, list):
        return {}
    kv = kv[: header.layers]
    numbers = sorted({one for one in kv if one})
    heads: Settings = {"num_key_value_heads": numbers[0] if len(numbers) == 1 else kv}
    if header.architecture.type == "nemotron_h":  # layers with neither keys nor a feed-forward network are Mamba
        wide, network = header.get("feed_forward_length"), "moe" if header.name == "nemotron_h_moe" else "mlp"
        if not isinstance(wide, list) or len(wide) < len(kv):
            return {**heads, **header.refused("feed_forward_length")}
        layers = zip(kv, wide, strict=False)
        types = ["full_attention" if one else network if each else "linear_attention" for one, each in layers]
        return {**heads, "layers_block_type": types}
    return {**heads, "layer_types": ["full_attention" if one else other for one in kv]} if other else heads


# Frequency factors that GGUF stores as tensors


def _factors(entries: Mapping[str, Entry], name: str) -> list[float] | None:
    one = entries.get(name)
    short = one is not None and len(one.shape) == 1 and one.shape[0] <= MAX_LAYERS
    return [float(value) for value in one.array(range(one.shape[0]))] if one is not None and short else None


def _longrope(header: Header, entries: Mapping[str, Entry]) -> Settings:
    """Return LongRoPE of the two tensors of factors, which are refused in other models than Phi-3."""
    names = [name for name in ("rope_factors_long.weight", "rope_factors_short.weight") if name in entries]
    original = header.get("rope.scaling.original_context_length")
    long, short = (_factors(entries, name) for name in names) if len(names) == 2 else (None, None)
    if header.name not in ("phi3", "phimoe") or not long or not short or original is None:
        return dict.fromkeys(names, "a tensor")
    factor, length = header.get(_ATTN_FACTOR, 1.0), {"original_max_position_embeddings": original}
    rope = {"rope_type": "longrope", "long_factor": long, "short_factor": short}
    if header.name == "phimoe":
        return {"rope_scaling": {**rope, "short_mscale": factor, "long_mscale": factor, **length}}
    return {"rope_scaling": {**rope, "attention_factor": factor}, **length}


def _by_type(header: Header, full: Settings, **sliding: Any) -> Settings:
    """Return the rotary of layers without a window, and with one."""
    default: Settings = {"rope_type": "default"}
    return {
        "rope_parameters": {
            "full_attention": {**default, "rope_theta": header.theta(), **full},
            "sliding_attention": {**default, "rope_theta": header.theta(_THETA_SWA), **sliding},
        }
    }


def _llama3(header: Header, config: Settings, factors: Sequence[float] | None) -> Settings:
    fits = factors and header.get(_ROTARY_DIM) == 2 * len(factors) and "rope_scaling" not in config
    found = _parameters(factors, header) if factors and fits else None
    return {_FREQUENCIES: "a tensor"} if found is None else {"rope_scaling": found}


def _parameters(factors: Sequence[float], header: Header) -> Settings | None:
    """Return the parameters of Llama 3's scaling, of the published models, that make a factor for each rotated pair."""
    theta = header.theta()
    largest = round(max(factors), 4) if factors and max(factors) < inf else 1.0
    if not factors or largest < 1 or not isinstance(theta, int | float) or not 1 <= theta < inf:
        return None
    for low, high, length in ((1.0, 4.0, 8192), (1.0, 1.0, 8192), (1.0, 32.0, 131_072)):
        for pair, factor in enumerate(factors):
            turns = length * theta ** (-pair / len(factors)) / (2 * pi)
            # Equal ends are a step, as in Llama 4 Scout.
            smooth = float(turns > high) if low == high else min(max((turns - low) / (high - low), 0.0), 1.0)
            if not isclose(1 / ((1 - smooth) / largest + smooth), factor, rel_tol=1e-4):
                break
        else:
            ends = {"low_freq_factor": low, "high_freq_factor": high, "original_max_position_embeddings": length}
            return {"rope_type": "llama3", "factor": largest, **ends}
    return None


def _gemma4(header: Header, config: Settings, factors: Sequence[float] | None) -> Settings:
    """Return the heads of each layer, and its rotary; where it has no window, a factor of 1e30 keeps a pair from it."""
    types, kv = config.get("layer_types"), header.get(_KV)
    wide, usual = header.get(_KEY_LENGTH), header.get(_SWA)
    unknown = {"num_key_value_heads": None}
    if not isinstance(types, list) or not isinstance(wide, int) or not isinstance(usual, int):
        return {**unknown, **header.refused(_SWA)}
    heads = kv[: len(types)] if isinstance(kv, list) else [kv] * len(types)
    rotated = factors.count(1.0) if factors else 0
    if factors is None or 2 * len(factors) != wide or any(one < 1e30 for one in factors[rotated:]):
        return {**unknown, _FREQUENCIES: "a tensor" if factors else "absent"}
    for key, dim in ((_ROTARY_DIM, wide), ("rope.dimension_count_swa", usual)):
        if header.get(key, wide) != dim:  # llama.cpp takes that of layers without a window for all
            return {**unknown, **header.refused(key)}
    return {
        "head_dim": usual,
        "num_key_value_heads": heads[0] if heads else None,
        "per_layer_config": {
            str(layer): {"head_dim": wide if each == "full_attention" else usual, "num_key_value_heads": key_heads}
            for layer, (each, key_heads) in enumerate(zip(types, heads, strict=False))
        },
        **_by_type(header, {"rope_type": "proportional", "partial_rotary_factor": 2 * rotated / wide}),
    }


def _step35(header: Header, config: Settings, factors: Sequence[float] | None) -> Settings:
    """Return the query heads and the rotary by type: without a window half of a head, scaled by the first factors."""
    types, dim = config.get("layer_types"), config.get("head_dim")
    found: Settings = {"num_attention_heads": 1, "num_key_value_heads": 1}  # of refused headers
    if not isinstance(types, list) or not isinstance(header.get(_PATTERN), list):
        return {**found, **header.refused(_PATTERN)}
    types = found["layer_types"] = types[: header.layers]
    if not isinstance(dim, int):
        return {**found, **header.refused(_KEY_LENGTH)}
    heads, key_heads = (_heads_by_type(header, key, types) for key in (_HEADS, _KV))
    if heads is None or key_heads is None or key_heads[0] != key_heads[1]:
        return {**found, **header.refused(_HEADS if heads is None else _KV)}
    found["num_attention_heads"], found["num_sliding_attention_heads"] = heads
    found["num_key_value_heads"] = key_heads[0]
    full: Settings | None = {}
    if factors is not None:
        full = _parameters(factors[: dim // 4], header) if 2 * len(factors) == dim else None
        if full is None or any(one != 1.0 for one in factors[dim // 4 :]):
            return {**found, _FREQUENCIES: "a tensor"}
    return {**found, **_by_type(header, {**(full or {}), "partial_rotary_factor": 0.5}, partial_rotary_factor=1.0)}


def _heads_by_type(header: Header, key: str, types: Sequence[object]) -> tuple[object, object] | None:
    """Return the heads of layers without a window and with one; None if those of one type differ or are missing."""
    heads = header.get(key, header.get(_HEADS))
    listed = heads if isinstance(heads, list) else [heads] * len(types)
    by_type = dict(zip(types, listed, strict=False))
    if not 0 < len(types) <= len(listed) or any(by_type[kind] != one for kind, one in zip(types, listed, strict=False)):
        return None
    usual = by_type.get("full_attention", listed[0])
    return usual, by_type.get("sliding_attention", usual)
