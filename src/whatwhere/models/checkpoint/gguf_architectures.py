"""What llama.cpp does with positions in each architecture of GGUF that is read: data.

Keys of a header are sizes and numbers; which layers rotate or have a window, and which features are a pair, is in the
code of llama.cpp alone. The facts are those of its files of models and of `llama_model_rope_type`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from whatwhere.escape import quoted

LLAMA: Mapping[str, str] = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "context_length": "max_position_embeddings",
    "rope.freq_base": "rope_theta",
}


def _without(*ends: str) -> dict[str, str]:
    """Return Llama's keys without those that contain some text."""
    return {name: key for name, key in LLAMA.items() if not any(end in name for end in ends)}


_SIZES = ("embedding_length", "block_count", "attention.head_count", "context_length")
_GPT2 = dict(zip(_SIZES, ("n_embd", "n_layer", "n_head", "n_positions"), strict=True))
_MPT = dict(zip(_SIZES, ("d_model", "n_layers", "n_heads", "max_seq_len"), strict=True))
_BLOOM = dict(zip(_SIZES[:3], ("hidden_size", "n_layer", "n_head"), strict=True))
_T5 = {
    "embedding_length": "d_model",
    "block_count": "num_layers",
    "decoder_block_count": "num_decoder_layers",
    "attention.head_count": "num_heads",
    "attention.key_length": "d_kv",
    "attention.relative_buckets_count": "relative_attention_num_buckets",
}
_BERT = _without("rope", "head_count_kv")
_FALCON = {**_without("key_length"), "attention.head_count_kv": "num_kv_heads"}
_JINA = _without("head_count_kv", "key_length")
_LATENT = {**_JINA, "rope.dimension_count": "qk_rope_head_dim"}
_UNROTATED = _without("rope.")
_BY_TYPE = _without("head_count", "rope.")
"""What is alike in all layers where thetas, and maybe heads, are those of the type of a layer."""
_HEADS = {name: key for name, key in LLAMA.items() if "head_count" in name}
_WINDOW = {"attention.sliding_window": "sliding_window"}
_THETAS = {"rope.freq_base": "global_rope_theta", "rope.freq_base_swa": "local_rope_theta"}
_LOCAL_THETA = {"rope.freq_base_swa": "rope_local_base_freq"}
_INTERVAL = {"full_attention_interval": "full_attention_interval"}
_SCALED = {"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier"}
_GROK = {"attention.output_scale": "attention_multiplier", "embedding_scale": "embedding_multiplier"}


Pairs = Literal["interleaved", "half"]


@dataclass(frozen=True)
class Architecture:
    """One architecture of GGUF."""

    model_type: str  # that of transformers with the same positions
    # Features of a query or key that are a pair in the file: llama.cpp's NORM is interleaved, NEOX half; None does not
    # rotate. Where transformers has halves and llama.cpp NORM, its converter permutes rows.
    pairs: Pairs | None
    keys: Mapping[str, str] = field(default_factory=lambda: LLAMA)  # of GGUF -> of transformers
    fraction_key: str | None = "partial_rotary_factor"  # None if `keys` has one of the rotated features themselves
    settings: Mapping[str, object] = field(default_factory=dict)  # of transformers, implied by llama.cpp's code
    pattern: bool = False  # `attention.sliding_window_pattern` tells layers with a window, else the model type
    full_first: bool = False  # a period of it begins with the layer without a window
    windowed_type: str | None = None  # model type of files that have a window, if it is another
    recurrent: str | None = None  # type of layers with 0 key heads; None if heads cannot differ, "" if types do not
    needs_window: bool = False  # llama.cpp refuses headers without a window
    causal: bool = True
    part: Literal["encoder"] | None = None  # that the file has, of a model of two


def _llama(model_type: str, pairs: Pairs, more: Mapping[str, str] | None = None, **others: Any) -> Architecture:
    return Architecture(model_type, pairs, {**LLAMA, **(more or {})}, **others)


def _windowed(model_type: str, pairs: Pairs, more: Mapping[str, str] | None = None, **others: Any) -> Architecture:
    return _llama(model_type, pairs, {**(more or {}), **_WINDOW}, pattern=True, **others)


_INTERLEAVED = {
    "arcee": "arcee", "arctic": "llama", "baichuan": "llama", "bailingmoe": "llama", "chameleon": "chameleon",
    "chatglm": "glm", "command-r": "cohere", "deepseek": "llama", "ernie4_5": "ernie4_5",
    "ernie4_5-moe": "ernie4_5_moe", "glm4": "glm4", "internlm2": "llama", "llama": "llama",
    "maincoder": "hunyuan_v1_dense", "mistral3": "ministral3", "olmo": "olmo", "xverse": "llama",
}  # fmt: skip
_HALF = {
    "apertus": "apertus", "bailingmoe2": "glm4_moe", "bitnet": "bitnet", "codeshell": "llama", "exaone": "llama",
    "gemma": "gemma", "glm4moe": "glm4_moe", "grovemoe": "qwen3_moe", "hunyuan-dense": "hunyuan_v1_dense",
    "hunyuan-moe": "hunyuan_v1_moe", "jais2": "jais2", "nemotron": "nemotron", "olmoe": "olmoe", "orion": "llama",
    "pangu-embedded": "llama", "paddleocr": "paddleocr_vl_text", "phi2": "phi", "plamo": "llama", "qwen": "llama",
    "qwen2": "qwen2", "qwen2moe": "qwen2_moe", "qwen2vl": "qwen2_vl_text", "qwen3": "qwen3", "qwen3moe": "qwen3_moe",
    "qwen3vl": "qwen3_vl_text", "qwen3vlmoe": "qwen3_vl_moe_text", "seed_oss": "seed_oss", "stablelm": "stablelm",
}  # fmt: skip
"""Architectures with Llama's keys and nothing else -> the model type, by the pairs of their files."""
_BOTH_WAYS: Mapping[str, Pairs] = {
    "dream": "half", "eurobert": "half", "llada": "interleaved", "llada-moe": "half", "llama-embed": "interleaved",
    "neo-bert": "interleaved", "rnd1": "half",
}  # fmt: skip
"""Encoders, and models of text diffusion, with the positions of Llama."""

_LISTED: Mapping[str, Architecture] = {
    **{name: _llama(model_type, "interleaved") for name, model_type in _INTERLEAVED.items()},
    **{name: _llama(model_type, "half") for name, model_type in _HALF.items()},
    **{name: _llama("eurobert", pairs, causal=False) for name, pairs in _BOTH_WAYS.items()},
    "afmoe": _llama("afmoe", "half", _WINDOW, settings={"mup_enabled": True}, needs_window=True),
    "bert": Architecture("bert", None, _BERT, causal=False),
    "bloom": Architecture("bloom", None, _BLOOM),
    "cohere2": _windowed("cohere2", "interleaved", needs_window=True),
    "dbrx": Architecture("dbrx", "half", _MPT, fraction_key=None),
    "deepseek2": Architecture("deepseek_v3", "interleaved", _LATENT, fraction_key=None),
    "deepseek2-ocr": _llama("deepseek_ocr2_text", "half", fraction_key=None),
    "dots1": _llama("dots1", "half", settings={"sliding_window": None}),
    "exaone-moe": _windowed("exaone_moe", "half", needs_window=True),
    "exaone4": _windowed("exaone4", "half"),
    "falcon": Architecture("falcon", "half", _FALCON, None, {"new_decoder_architecture": True, "alibi": False}),
    "falcon-h1": _llama("falcon_h1", "half", settings={"key_multiplier": 1.0, "embedding_multiplier": 1.0}),
    "gemma-embedding": _windowed("gemma3_text", "half", _LOCAL_THETA, causal=False, needs_window=True,
                                 settings={"use_bidirectional_attention": True}),
    "gemma2": _windowed("gemma2", "half"),
    "gemma3": _windowed("gemma3_text", "half", _LOCAL_THETA),
    "gemma3n": _windowed("gemma3n_text", "half", _LOCAL_THETA, needs_window=True),
    "gemma4": Architecture("gemma4_text", "half", {**_UNROTATED, **_WINDOW}, None, pattern=True, needs_window=True),
    "glm-dsa": Architecture("glm_moe_dsa", "interleaved", _LATENT, fraction_key=None),
    "gpt-oss": _windowed("gpt_oss", "half", needs_window=True),
    "gpt2": Architecture("gpt2", None, _GPT2),
    "gptneox": _llama("gpt_neox", "half", {"rope.freq_base": "rotary_emb_base"}, fraction_key="rotary_pct"),
    "granite": _llama("granite", "interleaved", _SCALED),
    "granitehybrid": _llama("granitemoehybrid", "interleaved", _SCALED, recurrent="linear_attention"),
    "granitemoe": _llama("granitemoe", "interleaved", _SCALED),
    "grok": _llama("granite", "half", _GROK),
    "jais": Architecture("mpt", None, _MPT),
    "jamba": Architecture("jamba", None, _UNROTATED, recurrent=""),
    "jina-bert-v3": Architecture("jina_embeddings_v3", "half", _JINA, causal=False),
    "lfm2": _llama("lfm2", "half", recurrent="conv"),
    "lfm2moe": _llama("lfm2_moe", "half", recurrent="conv"),
    "llama4": _llama("llama4_text", "interleaved",
                     settings={"attention_chunk_size": 8192, "no_rope_layer_interval": 4}),
    "minicpm": _llama("granite", "interleaved", {"embedding_scale": "embedding_multiplier"}),
    "minicpm3": Architecture("minicpm3", "half", _LATENT, fraction_key=None, settings={"scale_emb": 12.0}),
    "minimax-m2": _llama("minimax_m2", "half", {"rope.dimension_count": "rotary_dim"}, fraction_key=None),
    "modern-bert": _llama("modernbert", "half", {**_THETAS, "attention.sliding_window": "local_attention"},
                          pattern=True, full_first=True, causal=False),
    "mpt": Architecture("mpt", None, _MPT),
    "nemotron_h": Architecture("nemotron_h", None, _UNROTATED, recurrent=""),
    "nemotron_h_moe": Architecture("nemotron_h", None, _UNROTATED, recurrent=""),
    "nomic-bert": _llama("nomic_bert", "half", causal=False),
    "nomic-bert-moe": _llama("nomic_bert", "half", causal=False),
    "olmo2": _windowed("olmo2", "half", windowed_type="olmo3"),
    "phi3": _llama("phi3", "half", _WINDOW),
    "phimoe": _llama("phimoe", "half", _WINDOW),
    "plamo3": Architecture("laguna", "half", {**_BY_TYPE, **_HEADS, **_WINDOW}, None, pattern=True),
    "plm": Architecture("deepseek_v3", "interleaved", _LATENT, fraction_key=None),
    "qwen35": _llama("qwen3_5_text", "half", _INTERVAL),
    "qwen35moe": _llama("qwen3_5_moe_text", "half", _INTERVAL),
    "qwen3next": _llama("qwen3_next", "half", _INTERVAL),
    "smallthinker": _llama("llama", "half", _WINDOW, windowed_type="cohere2"),
    "smollm3": _llama("smollm3", "interleaved", settings={"no_rope_layer_interval": 4}),
    "starcoder": Architecture("gpt_bigcode", None, _GPT2),
    "starcoder2": _llama("starcoder2", "half", settings={"sliding_window": None}),
    "step35": Architecture("step3p5", "half", {**_BY_TYPE, **_WINDOW}, None, pattern=True, needs_window=True),
    "t5": Architecture("t5", None, _T5),
    "t5encoder": Architecture("t5", None, _T5, causal=False, part="encoder"),
}  # fmt: skip
ARCHITECTURES: Mapping[str, Architecture] = dict(sorted(_LISTED.items()))
"""Name of an architecture -> what llama.cpp does in it."""

NOT_READ: Mapping[str, tuple[str, ...]] = {
    "there is no attention between tokens": ("arwkv7", "mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7"),
    "they are encoders of images and sound, or their decoders": ("clip", "wavtokenizer-dec"),
    "llama.cpp has a name for it, but no code": ("gptj",),
    "its code rotates with theta 10,000, whatever the header says": ("cogvlm",),
    "it has ALiBi in both directions, which no type of transformers has": ("jina-bert-v2",),
    "it has ALiBi with one key head, which no type of transformers has": ("refact",),
    "its converter leaves out the temperature of queries, by which the model was trained": ("mistral4",),
    "its converter leaves out the window of attention, and which layers have none": ("plamo2",),
    "query and key heads differ between layers as in no type of transformers": ("deci", "openelm"),
    "which layers have sinks is said by tensors alone, and by no key": ("mimo2",),
    "it rotates nothing, and the header's number of features kept apart may be wrong": ("kimi-linear",),
    "the same type of transformers is not read either (docs/models.md)": ("hunyuan_vl",),
}
"""Reason -> architectures whose positions are not read for it."""


def why_unread(metadata: Mapping[str, object]) -> str | None:
    """Return why positions of the architecture in a header of GGUF are not read; None if they are."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name in ARCHITECTURES:
        return None
    why = next((why for why, names in NOT_READ.items() if name in names), "what llama.cpp does in it is not known")
    return f"positions of the GGUF architecture {quoted(name)} are not read: {why}"
