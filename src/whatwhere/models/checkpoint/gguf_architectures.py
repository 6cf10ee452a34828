"""What llama.cpp does with positions in each architecture of GGUF that is read: data.

Keys of a header are sizes and numbers; which layers rotate or have a window, and which features are a pair, is in the
code of llama.cpp alone. The facts are those of its files of models and of `llama_model_rope_type`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

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
_BERT = {name: key for name, key in LLAMA.items() if "rope" not in name and name != "attention.head_count_kv"}
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
_MPT = {
    "embedding_length": "d_model",
    "block_count": "n_layers",
    "attention.head_count": "n_heads",
    "context_length": "max_seq_len",
}
_FALCON = {name: key for name, key in LLAMA.items() if name != "attention.key_length"}
_JINA = {name: key for name, key in LLAMA.items() if name not in ("attention.head_count_kv", "attention.key_length")}
_UNROTATED = {name: key for name, key in LLAMA.items() if not name.startswith("rope.")}
_HEADS = {name: key for name, key in LLAMA.items() if "head_count" in name}
_BY_TYPE = {name: key for name, key in LLAMA.items() if "head_count" not in name and not name.startswith("rope.")}
"""What is alike in all layers where thetas, and maybe heads, are those of the type of a layer."""
_WINDOW = {"attention.sliding_window": "sliding_window"}
_THETAS = {"rope.freq_base": "global_rope_theta", "rope.freq_base_swa": "local_rope_theta"}


@dataclass(frozen=True)
class Architecture:
    """One architecture of GGUF.

    Args:
        model_type: that of transformers with the same positions.
        pairs: which features of a query or key are a pair in the file: llama.cpp's NORM is interleaved, NEOX half;
            None without rotation. Where transformers has halves and llama.cpp NORM, its converter permutes rows.
        keys: key of GGUF -> key of transformers.
        fraction_key: key of the part of a head that is rotated; None if `keys` has one of the features themselves.
        settings: keys of transformers whose values the code of llama.cpp implies.
        pattern: whether layers have a window or not by `attention.sliding_window_pattern`, else by the model type.
        full_first: whether a period of `attention.sliding_window_pattern` begins with the layer without a window.
        windowed_type: model type of files that have a window, if it is another.
        recurrent: type of layers that have 0 key heads, in place of attention; None if heads cannot differ, "" if the
            description does not tell layers apart.
        needs_window: whether llama.cpp refuses headers without a window.
        causal: whether tokens attend to earlier ones only.
        part: the part of a model of two parts that the file has.
    """

    model_type: str
    pairs: Literal["interleaved", "half"] | None
    keys: Mapping[str, str] = field(default_factory=lambda: LLAMA)
    fraction_key: str | None = "partial_rotary_factor"
    settings: Mapping[str, object] = field(default_factory=dict)
    pattern: bool = False
    full_first: bool = False
    windowed_type: str | None = None
    recurrent: str | None = None
    needs_window: bool = False
    causal: bool = True
    part: Literal["encoder"] | None = None


def _norm(model_type: str, settings: Mapping[str, object] | None = None) -> Architecture:
    return Architecture(model_type, "interleaved", settings=settings or {})


def _neox(model_type: str, settings: Mapping[str, object] | None = None, **keys: str) -> Architecture:
    return Architecture(model_type, "half", _with(keys), settings=settings or {})


def _with(keys: Mapping[str, str]) -> Mapping[str, str]:
    """Return Llama's keys and further ones, in whose names `__` stands for a dot."""
    return {**LLAMA, **{name.replace("__", "."): key for name, key in keys.items()}}


def _windowed(model_type: str, pairs: Literal["interleaved", "half"], **others: str) -> Architecture:
    return Architecture(model_type, pairs, {**_with(others), **_WINDOW}, pattern=True)


def _both_ways(pairs: Literal["interleaved", "half"]) -> Architecture:
    """Return Llama's positions in an encoder, or in a model of text diffusion."""
    return Architecture("eurobert", pairs, causal=False)


_SCALED = {**LLAMA, "attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier"}
_NO_WINDOW = {"sliding_window": None}

_LATENT = {
    **{name: key for name, key in LLAMA.items() if name not in ("attention.key_length", "attention.head_count_kv")},
    "rope.dimension_count": "qk_rope_head_dim",
}

ARCHITECTURES: Mapping[str, Architecture] = {
    "afmoe": Architecture("afmoe", "half", {**LLAMA, **_WINDOW}, settings={"mup_enabled": True}, needs_window=True),
    "apertus": _neox("apertus"),
    "arcee": _norm("arcee"),
    "arctic": _norm("llama"),
    "baichuan": _norm("llama"),
    "bailingmoe": _norm("llama"),
    "bailingmoe2": _neox("glm4_moe"),
    "bert": Architecture("bert", None, _BERT, causal=False),
    "bitnet": _neox("bitnet"),
    "bloom": Architecture(
        "bloom", None, {"embedding_length": "hidden_size", "block_count": "n_layer", "attention.head_count": "n_head"}
    ),
    "chameleon": _norm("chameleon"),
    "chatglm": _norm("glm"),
    "codeshell": _neox("llama"),
    "cohere2": replace(_windowed("cohere2", "interleaved"), needs_window=True),
    "command-r": _norm("cohere"),
    "dbrx": Architecture("dbrx", "half", _MPT, fraction_key=None),
    "deepseek": _norm("llama"),
    "deepseek2": Architecture("deepseek_v3", "interleaved", _LATENT, fraction_key=None),
    "deepseek2-ocr": replace(_neox("deepseek_ocr2_text"), fraction_key=None),
    "dots1": _neox("dots1", _NO_WINDOW),
    "dream": _both_ways("half"),
    "ernie4_5": _norm("ernie4_5"),
    "ernie4_5-moe": _norm("ernie4_5_moe"),
    "eurobert": _both_ways("half"),
    "exaone": _neox("llama"),
    "exaone-moe": replace(_windowed("exaone_moe", "half"), needs_window=True),
    "exaone4": _windowed("exaone4", "half"),
    "falcon": Architecture(
        "falcon",
        "half",
        {**_FALCON, "attention.head_count_kv": "num_kv_heads"},
        fraction_key=None,
        settings={"new_decoder_architecture": True, "alibi": False},
    ),
    "falcon-h1": _neox("falcon_h1", {"key_multiplier": 1.0, "embedding_multiplier": 1.0}),
    "gemma": _neox("gemma"),
    "gemma-embedding": replace(
        _windowed("gemma3_text", "half", rope__freq_base_swa="rope_local_base_freq"),
        settings={"use_bidirectional_attention": True},
        needs_window=True,
        causal=False,
    ),
    "gemma2": _windowed("gemma2", "half"),
    "gemma3": _windowed("gemma3_text", "half", rope__freq_base_swa="rope_local_base_freq"),
    "gemma3n": replace(
        _windowed("gemma3n_text", "half", rope__freq_base_swa="rope_local_base_freq"), needs_window=True
    ),
    "gemma4": Architecture("gemma4_text", "half", {**_UNROTATED, **_WINDOW}, None, pattern=True, needs_window=True),
    "glm-dsa": Architecture("glm_moe_dsa", "interleaved", _LATENT, fraction_key=None),
    "glm4": _norm("glm4"),
    "glm4moe": _neox("glm4_moe"),
    "gpt-oss": replace(_windowed("gpt_oss", "half"), needs_window=True),
    "gpt2": Architecture("gpt2", None, _GPT2),
    "gptneox": Architecture(
        "gpt_neox", "half", {**LLAMA, "rope.freq_base": "rotary_emb_base"}, fraction_key="rotary_pct"
    ),
    "granite": Architecture("granite", "interleaved", _SCALED),
    "granitehybrid": Architecture("granitemoehybrid", "interleaved", _SCALED, recurrent="linear_attention"),
    "granitemoe": Architecture("granitemoe", "interleaved", _SCALED),
    "grok": _neox("granite", attention__output_scale="attention_multiplier", embedding_scale="embedding_multiplier"),
    "grovemoe": _neox("qwen3_moe"),
    "hunyuan-dense": _neox("hunyuan_v1_dense"),
    "hunyuan-moe": _neox("hunyuan_v1_moe"),
    "internlm2": _norm("llama"),
    "jais": Architecture("mpt", None, _MPT),
    "jais2": _neox("jais2"),
    "jamba": Architecture("jamba", None, _UNROTATED, recurrent=""),
    "jina-bert-v3": Architecture("jina_embeddings_v3", "half", _JINA, causal=False),
    "lfm2": replace(_neox("lfm2"), recurrent="conv"),
    "lfm2moe": replace(_neox("lfm2_moe"), recurrent="conv"),
    "llada": _both_ways("interleaved"),
    "llada-moe": _both_ways("half"),
    "llama": _norm("llama"),
    "llama-embed": _both_ways("interleaved"),
    "llama4": _norm("llama4_text", {"attention_chunk_size": 8192, "no_rope_layer_interval": 4}),
    "maincoder": _norm("hunyuan_v1_dense"),
    "minicpm": Architecture("granite", "interleaved", {**LLAMA, "embedding_scale": "embedding_multiplier"}),
    "minimax-m2": replace(_neox("minimax_m2", rope__dimension_count="rotary_dim"), fraction_key=None),
    "minicpm3": Architecture("minicpm3", "half", _LATENT, fraction_key=None, settings={"scale_emb": 12.0}),
    "mistral3": _norm("ministral3"),
    "modern-bert": Architecture(
        "modernbert",
        "half",
        {**LLAMA, **_THETAS, "attention.sliding_window": "local_attention"},
        pattern=True,
        full_first=True,
        causal=False,
    ),
    "mpt": Architecture("mpt", None, _MPT),
    "nemotron": _neox("nemotron"),
    **dict.fromkeys(("nemotron_h", "nemotron_h_moe"), Architecture("nemotron_h", None, _UNROTATED, recurrent="")),
    "neo-bert": _both_ways("interleaved"),
    **dict.fromkeys(("nomic-bert", "nomic-bert-moe"), replace(_neox("nomic_bert"), causal=False)),
    "olmo": _norm("olmo"),
    "olmo2": replace(_windowed("olmo2", "half"), windowed_type="olmo3"),
    "olmoe": _neox("olmoe"),
    "orion": _neox("llama"),
    "pangu-embedded": _neox("llama"),
    "paddleocr": _neox("paddleocr_vl_text"),
    "phi2": _neox("phi"),
    "phi3": _neox("phi3", attention__sliding_window="sliding_window"),
    "phimoe": _neox("phimoe", attention__sliding_window="sliding_window"),
    "plamo": _neox("llama"),
    "plamo3": Architecture("laguna", "half", {**_BY_TYPE, **_HEADS, **_WINDOW}, None, pattern=True),
    "plm": Architecture("deepseek_v3", "interleaved", _LATENT, fraction_key=None),
    "qwen": _neox("llama"),
    "qwen2": _neox("qwen2"),
    "qwen2moe": _neox("qwen2_moe"),
    "qwen2vl": _neox("qwen2_vl_text"),
    "qwen3": _neox("qwen3"),
    "qwen35": _neox("qwen3_5_text", full_attention_interval="full_attention_interval"),
    "qwen35moe": _neox("qwen3_5_moe_text", full_attention_interval="full_attention_interval"),
    "qwen3moe": _neox("qwen3_moe"),
    "qwen3next": _neox("qwen3_next", full_attention_interval="full_attention_interval"),
    "qwen3vl": _neox("qwen3_vl_text"),
    "qwen3vlmoe": _neox("qwen3_vl_moe_text"),
    "rnd1": _both_ways("half"),
    "seed_oss": _neox("seed_oss"),
    "smallthinker": Architecture("llama", "half", {**LLAMA, **_WINDOW}, windowed_type="cohere2"),
    "smollm3": _norm("smollm3", {"no_rope_layer_interval": 4}),
    "stablelm": _neox("stablelm"),
    "step35": Architecture("step3p5", "half", {**_BY_TYPE, **_WINDOW}, None, pattern=True, needs_window=True),
    "starcoder": Architecture("gpt_bigcode", None, _GPT2),
    "starcoder2": _neox("starcoder2", _NO_WINDOW),
    "t5": Architecture("t5", None, _T5),
    "t5encoder": Architecture("t5", None, _T5, causal=False, part="encoder"),
    "xverse": _norm("llama"),
}
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
    """Return why positions are not read of the architecture in a header of GGUF; None if they are, or of other files.

    Examples:
        >>> why_unread({"general.architecture": "gptj"})
        "positions of the GGUF architecture 'gptj' are not read: llama.cpp has a name for it, but no code"
    """
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name in ARCHITECTURES:
        return None
    why = next((why for why, names in NOT_READ.items() if name in names), "what llama.cpp does in it is not known")
    return f"positions of the GGUF architecture {quoted(name)} are not read: {why}"
