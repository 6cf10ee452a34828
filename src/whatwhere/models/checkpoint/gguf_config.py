"""Convert the keys of a GGUF header to a Hugging Face configuration, so that one reader serves both."""

from collections.abc import Callable, Mapping, Sequence
from math import inf, isclose, log

from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.gguf_architectures import ARCHITECTURES, Architecture
from whatwhere.models.checkpoint.gguf_factors import gemma4, llama3, longrope, step35
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
_MULTIMODAL = ("paddleocr", "qwen2vl", "qwen35", "qwen35moe", "qwen3vl", "qwen3vlmoe")
_BAICHUAN_LAYERS = 32
"""Number of layers of the Baichuan that rotates; llama.cpp takes 40 for one with ALiBi, and others for one without."""
_SMALLTHINKER_WINDOW = 4096
"""The window that llama.cpp takes for SmallThinker, whatever the header says."""
_ONLY = ("baichuan", "deepseek2-ocr", "exaone-moe", "gemma3n", "llama-embed", "mistral3", "smallthinker")
_GROK = {"embedding_scale": 6144**0.5, "attention.output_scale": 128**-0.5}
"""What llama.cpp takes if an older header of Grok has no scales: those of Grok-1."""
_GROK_YARN = ("rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor")
_GROK_BETA_FAST = 8.0
_ATTN_FACTOR = "rope.scaling.attn_factor"
_BY_TYPE = ("rope.freq_base", "rope.freq_base_swa")
_PLAMO_PERIOD = 8
"""Every how many layers of PLaMo 3 one has no window, if the header does not say."""
_DEEPSEEK_OCR: Mapping[str, object] = {"rope.freq_base": 10_000.0, "rope.scaling.type": "none"}
"""What llama.cpp takes in the architecture deepseek2-ocr."""
_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_SPLIT_KEYS = ("deepseek2", "glm-dsa")
"""Latent attention whose files have the keys of one head in `attention.key_length_mla`, and YaRN's multiplier."""
_IMPLIED_WINDOW = ("exaone4", 64)
"""Architecture and number of layers for which llama.cpp has a window even if the header has none."""
_GEMMA4 = (
    "attention.key_length_swa", "attention.shared_kv_layers", "embedding_length_per_layer_input",
    "rope.dimension_count", "rope.dimension_count_swa", "rope.freq_base", "rope.freq_base_swa",
)  # fmt: skip
_STEP35 = ("attention.head_count", "attention.head_count_kv", *_BY_TYPE)
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
        **_direction(architecture, values),
    }
    special, known = _special(name, values)
    long = longrope(name, values, entries, factors)
    read = (*known, _ATTN_FACTOR) if "rope_scaling" in long else (*known, *_neutral_magnitudes(values))
    config |= {**special, **long, **_unread(name, read, values)}
    if isinstance(padding := metadata.get("tokenizer.ggml.padding_token_id"), int):
        config["pad_token_id"] = padding
    if name in ("gemma4", "step35"):
        by_type = gemma4 if name == "gemma4" else step35
        config |= by_type(config, values, factors("rope_freqs.weight") if "rope_freqs.weight" in entries else None)
    elif "rope_freqs.weight" in entries:
        config |= llama3(config, values, factors("rope_freqs.weight"))
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
    turned = values.get("attention.causal", architecture.causal) != architecture.causal
    if turned and not _direction(ARCHITECTURES[gguf], values):
        unread[f"{gguf}.attention.causal"] = values["attention.causal"]
    if (gguf, values.get("block_count")) == _IMPLIED_WINDOW and "attention.sliding_window" not in values:
        unread[f"{gguf}.attention.sliding_window"] = "absent"
    return unread


def _direction(architecture: Architecture, values: Mapping[str, object]) -> Mapping[str, object]:
    """Return transformers' flag of both directions, but beside a window: there llama.cpp shows all later tokens."""
    windowed = values.get("attention.sliding_window") or architecture.needs_window
    both = architecture.causal and values.get("attention.causal") is False
    return {"is_causal": False} if both and not windowed and architecture.model_type != "gemma2" else {}


def _absent(name: str, names: Mapping[str, str], values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the defaults of llama.cpp, which differ from those of transformers."""
    defaults: dict[str, object] = {
        "attention.head_count_kv": values.get("attention.head_count"),
        "rope.freq_base": 10_000.0,
        "embedding_scale": _MINICPM_SCALE if name == "minicpm" else 1.0,
        **(_GROK if name == "grok" else {}),
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
    if name in (*_SPLIT_KEYS, "minicpm3", "plm"):
        return _latent(name, values)
    if name == "jais":
        softmax_scale = 1 / head_dim if isinstance(head_dim := _head_dim(values), int) and head_dim > 0 else None
        inner = {"alibi": True, "alibi_bias_max": values.get(_ALIBI), "softmax_scale": softmax_scale}
        return {"attn_config": inner}, (_ALIBI,)
    if name in _ONLY:
        return _only(name, values)
    if name == "gemma4":
        return {}, _GEMMA4
    if name == "step35":
        return {}, _STEP35
    if name == "plamo3":
        return _plamo3(values), _BY_TYPE
    if name == "grok":
        return _grok(values)
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
        if name in _SPLIT_KEYS and isinstance(multiplier, float):
            scaling = _scaling(values).get("rope_scaling", {})
            mscale = {"mscale": round(10 * multiplier, 6), "mscale_all_dim": round(10 * multiplier, 6)}
            found["rope_scaling"] = {**scaling, **mscale} if isinstance(scaling, dict) else scaling
            return found, known
        if name in _SPLIT_KEYS and _scaling(values):  # without it llama.cpp has no magnitude, and transformers one
            found[f"header.{_LOG_MULTIPLIER}"] = "absent"
        return found, known[:2] if name in _SPLIT_KEYS else known[:1]
    return {"num_key_value_heads": values.get("attention.head_count")}, known


def _only(name: str, values: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """Return what is implied where llama.cpp fixes what a header says, or refuse headers that say otherwise."""
    layers, window = values.get("block_count"), values.get("attention.sliding_window")
    count = layers if isinstance(layers, int) and 0 < layers <= MAX_LAYERS else 0
    if name == "baichuan":
        return {} if count == _BAICHUAN_LAYERS else {"header.block_count": layers}, ()
    if name == "deepseek2-ocr":  # its code rotates whole heads by theta 10,000, and asserts that the header has it
        right = {**_DEEPSEEK_OCR, "attention.head_count_kv": values.get("attention.head_count")}
        other = {key: values[key] for key, value in right.items() if values.get(key, value) != value}
        return {f"header.{key}": value for key, value in other.items()}, ("rope.dimension_count",)
    if name == "llama-embed":
        return {} if "attention.causal" in values else {"header.attention.causal": "absent"}, ()
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


def _grok(values: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """Return YaRN by the bound of Grok's own code where the header has none, and its two factors if they are 1."""
    scaling = _scaling(values).get("rope_scaling")
    if not isinstance(scaling, dict) or scaling.get("rope_type") != "yarn":
        return {}, ()
    return {"rope_scaling": {"beta_fast": _GROK_BETA_FAST, **scaling}}, ()


def _plamo3(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return thetas by the type of a layer, and the types, of which the last of each period has no window."""
    theta = {"rope_type": "default", "rope_theta": values.get("rope.freq_base", 10_000.0)}
    scaling = _scaling(values).get("rope_scaling", {})
    full = {**theta, **scaling} if isinstance(scaling, dict) else {"rope_scaling": scaling}
    sliding = {"rope_type": "default", "rope_theta": values.get("rope.freq_base_swa", 10_000.0)}
    layers, period = values.get("block_count"), values.get(_PATTERN, _PLAMO_PERIOD)
    count = layers if isinstance(layers, int) and 0 < layers <= MAX_LAYERS else 0
    if not isinstance(period, int) or period < 1:  # llama.cpp reads a number alone
        return {f"header.{_PATTERN}": period}
    windowed = bool(values.get("attention.sliding_window"))
    types = [
        "sliding_attention" if windowed and layer % period < period - 1 else "full_attention" for layer in range(count)
    ]
    rope = {"rope_scaling": None, "rope_parameters": {"full_attention": full, "sliding_attention": sliding}}
    return {"layer_types": types, **rope}


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


def _neutral_magnitudes(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return the factors of YaRN that are 1, or repeat its own magnitude, as the converter of OLMo 3 writes it."""
    factor = values.get("rope.scaling.factor")
    yarn = values.get("rope.scaling.type") == "yarn" and _LOG_MULTIPLIER not in values
    own = 0.1 * log(factor) + 1.0 if yarn and isinstance(factor, float) and 1.0 < factor < inf else 1.0
    found = []
    for key in (_ATTN_FACTOR, *_GROK_YARN):
        value = values.get(key)
        repeats = isinstance(value, float) and isclose(value, own, rel_tol=1e-6) and key != _GROK_YARN[0]
        if value == 1.0 or repeats:
            found.append(key)
    return tuple(found)


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
