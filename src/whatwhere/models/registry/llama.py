"""Model types with Llama's keys, all of whose layers rotate whole heads, in the half layout.

Numbers are what transformers 5 takes where a key is absent.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from whatwhere.models.configuration.input_keys import EmbeddingScaleKey, SqrtDimScale
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.layer_types import ByType, FromLayer, LayerRule, Windows
from whatwhere.models.configuration.model_type import (
    LLAMA_KEYS,
    ByHeadDim,
    EmbeddingRule,
    ModelType,
    NoTemperature,
    NoWindows,
    ScaleRule,
    TemperatureRule,
    Unscaled,
    WindowRule,
)
from whatwhere.models.configuration.remote_keys import GteRotary, NomicRotary
from whatwhere.models.configuration.rotary_keys import Head, RopeDefaults, RopeKeys
from whatwhere.models.configuration.softmax_scale import PreAttentionScalar, ScaleKey
from whatwhere.models.configuration.temperature import SteppedInAllLayers

EMBEDDING_NORM = "a norm of the token vectors follows the token table and is not built"
SEGMENTS = "a table of segments (token_type_ids) and a norm follow the token table and are not built"
QUERY_KEY_NORM_AFTER = "queries and keys are normed after they were rotated"

EVERY = Windows(by="every")
BY_TYPE = Windows()
EVERY_SECOND = Windows(by=ByType(2))
SWITCHED = Windows(by=FromLayer(28), switch="use_sliding_window")


def llama_like(
    rope: RopeKeys | None = None,
    *,
    scale: ScaleRule | None = None,
    embedding: EmbeddingRule | None = None,
    windows: WindowRule | None = None,
    sinks: bool | Literal["windowed"] = False,
    temperature: TemperatureRule | None = None,
    notes: tuple[str, ...] = (),
    unread: Mapping[str, object] | None = None,
    segments: int | None = None,
    causal: bool = True,
    **defaults: object,
) -> ModelType:
    """Return a model type with Llama's names of keys.

    Args:
        rope: reader of its rotary positions; None is Llama's.
        scale, embedding, windows, sinks, temperature, notes, unread, segments, causal: as in ModelType.
        defaults: by fields of Description, such as key_heads, or by keys.
    """
    keys = {LLAMA_KEYS[name][0] if name in LLAMA_KEYS else name: value for name, value in defaults.items()}
    return ModelType(
        (rope or RopeKeys(),),
        defaults={"tie_word_embeddings": False, **keys},
        scale=scale or ByHeadDim(),
        embedding=embedding or Unscaled(),
        windows=windows or NoWindows(),
        sinks=sinks,
        temperature=temperature or NoTemperature(),
        notes=notes,
        unread=unread or {},
        segments=segments,
        causal=causal,
    )


def rope(
    theta: float = 10_000.0,
    head: Head | None = None,
    layers: LayerRule | None = None,
    fraction: float = 1.0,
    parameters: Mapping[str, object] | None = None,
    **others: Any,
) -> RopeKeys:
    """Return a reader of one set of rope parameters, with the defaults of a model type.

    Args:
        theta, fraction, parameters: as in RopeDefaults.
        head, layers: as in RopeKeys.
        others: further fields of RopeKeys.
    """
    defaults = RopeDefaults(theta=theta, fraction=fraction, parameters=parameters or {})
    reader = RopeKeys(head or Head(), {"": defaults}, **others)
    return reader if layers is None else replace(reader, layers=layers)


def gemma2_like(rope: RopeKeys | None = None, **others: Any) -> ModelType:
    """Return a model type with Gemma 2's softmax scale, scaled token vectors and sizes."""
    return llama_like(
        rope,
        scale=PreAttentionScalar(),
        embedding=SqrtDimScale(rounded=True),
        sliding_window=4096,
        key_heads=4,
        head_dim=256,
        padding_idx=0,
        tied=True,
        **others,
    )


LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}

LLAMA_LIKE: dict[str, ModelType] = {
    "apertus": llama_like(
        rope(12e6, parameters={**LLAMA3, "rope_theta": 12e6, "factor": 8.0, "original_max_position_embeddings": 8192}),
        max_length=65_536,
        padding_idx=3,
    ),
    "arcee": llama_like(max_length=4096),
    "aria_text": llama_like(max_length=2048, padding_idx=2),
    "bitnet": llama_like(rope(500_000.0), key_heads=5, max_length=2048),
    "cwm": llama_like(
        rope(1e6, parameters={**LLAMA3, "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 8192}),
        windows=Windows(by=ByType(4, first=True)),
        sliding_window=8192,
        key_heads=8,
        head_dim=128,
        max_length=131_072,
    ),
    "diffllama": llama_like(max_length=2048),
    "doge": llama_like(
        windows=EVERY, notes=("a learned mask of the values is added to scores and is not built",), max_length=2048
    ),
    "dots1": llama_like(windows=Windows(by=FromLayer(62)), sliding_window=4096, key_heads=32, max_length=2048),
    "eurobert": llama_like(causal=False, max_length=8192, padding_idx=128_001),
    "flex_olmo": llama_like(rope(500_000.0), max_length=4096, padding_idx=100_277),
    "gemma": llama_like(
        embedding=SqrtDimScale(rounded=True), key_heads=16, head_dim=256, max_length=8192, padding_idx=0, tied=True
    ),
    "gemma2": gemma2_like(windows=EVERY_SECOND, max_length=8192),
    "gpt_oss": llama_like(
        rope(
            150_000.0,
            parameters={
                "rope_type": "yarn",
                "factor": 32.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 4096,
            },
        ),
        windows=EVERY_SECOND,
        sinks=True,
        sliding_window=128,
        key_heads=8,
        head_dim=64,
        max_length=131_072,
    ),
    **dict.fromkeys(
        ("granite", "granitemoe", "granitemoeshared"),
        llama_like(scale=ScaleKey(), embedding=EmbeddingScaleKey("embedding_multiplier"), max_length=2048),
    ),
    "gte": replace(
        llama_like(notes=(SEGMENTS,), segments=1, causal=False, max_length=8192, padding_idx=1, tied=True),
        readers=(GteRotary(rope(160_000.0)),),
        unread={"position_embedding_type": "rope", "logn_attention_scale": False, "logn_attention_clip1": ANY},
    ),
    **dict.fromkeys(
        ("hunyuan_v1_dense", "hunyuan_v1_moe"),
        llama_like(
            rope(extra={"dynamic": ("alpha", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")}),
            notes=(QUERY_KEY_NORM_AFTER,),
            max_length=2048,
            padding_idx=0,
        ),
    ),
    "hy_v3": llama_like(rope(11_158_840.0), key_heads=8, head_dim=128, max_length=131_072),
    "hyperclovax": llama_like(
        scale=ScaleKey(default=None), embedding=EmbeddingScaleKey("embedding_multiplier"), max_length=2048
    ),
    "internlm3": llama_like(key_heads=2, head_dim=128, max_length=32_768, padding_idx=2),
    "jais2": llama_like(max_length=8192),
    "llama": llama_like(max_length=2048),
    "ministral": llama_like(
        windows=Windows(by=FromLayer(0, key=None)), sliding_window=4096, key_heads=8, max_length=131_072
    ),
    "ministral3": llama_like(
        rope(
            parameters={
                "rope_type": "yarn",
                "rope_theta": 1e6,
                "factor": 16.0,
                "original_max_position_embeddings": 16_384,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
            extra={"": ("max_position_embeddings", SteppedInAllLayers.STRENGTH)},
        ),
        windows=EVERY,
        temperature=SteppedInAllLayers(),
        key_heads=8,
        head_dim=128,
        max_length=262_144,
        padding_idx=11,
    ),
    "mistral": llama_like(windows=EVERY, sliding_window=4096, key_heads=8, max_length=131_072),
    "mixtral": llama_like(rope(1e6), windows=EVERY, key_heads=8, max_length=131_072),
    "nomic_bert": replace(
        llama_like(notes=(SEGMENTS,), segments=2, causal=False, max_length=2048, padding_idx=0, tied=True),
        readers=(NomicRotary(rope(1000.0, Head(interleaved_key="rotary_emb_interleaved"))),),
        aliases={  # of Nomic's own files
            "n_embd": "hidden_size",
            "n_head": "num_attention_heads",
            "n_layer": "num_hidden_layers",
            "rotary_emb_base": "rope_theta",
        },
        causal="causal",
    ),
    **dict.fromkeys(("olmo", "olmo2"), llama_like(max_length=2048, padding_idx=1)),
    "olmoe": llama_like(max_length=4096, padding_idx=1),
    "phimoe": llama_like(
        rope(1e6, extra={"longrope": ("short_mscale", "long_mscale")}),
        windows=EVERY,
        key_heads=8,
        max_length=131_072,
    ),
    "qwen2": llama_like(windows=SWITCHED, sliding_window=4096, key_heads=32, max_length=32_768),
    "qwen2_moe": llama_like(
        windows=Windows(by=FromLayer(28, alternating=True), switch="use_sliding_window"),
        sliding_window=4096,
        key_heads=16,
        max_length=32_768,
    ),
    "qwen3": llama_like(windows=SWITCHED, sliding_window=4096, key_heads=32, head_dim=128, max_length=32_768),
    "qwen3_moe": llama_like(
        windows=Windows(by="every", switch="use_sliding_window"), sliding_window=4096, key_heads=4, max_length=32_768
    ),
    "seed_oss": llama_like(key_heads=8, head_dim=128, max_length=524_288, padding_idx=1),
    "solar_open": llama_like(rope(1e6), key_heads=8, head_dim=128, max_length=131_072),
    "starcoder2": llama_like(windows=EVERY, key_heads=2, max_length=4096, tied=True),
    "vaultgemma": gemma2_like(windows=EVERY_SECOND, max_length=8192),
}
