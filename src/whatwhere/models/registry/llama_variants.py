"""Model types with Llama's keys and other rotary positions: interleaved, of part of a head, by layer, on three axes.

Numbers are what transformers 5 takes where a key is absent.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from whatwhere.models.configuration.input_keys import EmbeddingScaleKey, FlaggedSqrtDimScale, SqrtDimScale
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.layer_types import ByType, DensePrefix, FromLayer, LayerRule, NoRopeLayers, Windows
from whatwhere.models.configuration.model_type import ModelType
from whatwhere.models.configuration.rotary_keys import Head, RopeDefaults, RopeKeys
from whatwhere.models.configuration.softmax_scale import LatentAttentionScale, NoScale
from whatwhere.models.configuration.temperature import SteppedWithoutRotary
from whatwhere.models.registry.llama import (
    BY_TYPE,
    EMBEDDING_NORM,
    EVERY,
    QUERY_KEY_NORM_AFTER,
    gemma2_like,
    llama_like,
    rope,
)

INTERLEAVED = Head(interleaved=True)
PARTIAL = Head(partial=True)
LATENT_HEAD = Head(interleaved=True, interleaved_key="rope_interleave", dim_key="qk_rope_head_dim")

WINDOWED_ROTATED = ByType(4, "sliding_window_pattern", rotated=("sliding_attention",))
"""Three layers of four have a window, and only these are rotated."""
FULL_EVERY_FOURTH = ByType(4, "full_attention_interval", others="linear_attention")
SHORT_AND_LONG = {"longrope": ("short_mscale", "long_mscale")}


def rope_by_type(
    layers: LayerRule, full: RopeDefaults, sliding: RopeDefaults, reads_rope_scaling: bool = True
) -> RopeKeys:
    """Return a reader of two sets of rope parameters, one for full attention and one for sliding windows."""
    sets = {"sliding_attention": sliding, "full_attention": full}
    return RopeKeys(sets=sets, layers=layers, reads_rope_scaling=reads_rope_scaling)


def gemma3_rope(layers: LayerRule) -> RopeKeys:
    """Return a reader of Gemma 3's rope parameters: a larger theta for layers with full attention."""
    sliding = RopeDefaults(theta_key="rope_local_base_freq", scaled=False)
    return rope_by_type(layers, RopeDefaults(theta=1e6), sliding)


def latent_attention(
    head: Head,
    aliases: Mapping[str, str] | None = None,
    parameters: Mapping[str, object] | None = None,
    extra: Mapping[str, tuple[str, ...]] | None = None,
    **others: Any,
) -> ModelType:
    """Return a model type with latent attention (MLA), whose heads keep rotated and other features apart.

    Args:
        head, extra: as in RopeKeys.
        aliases: as in ModelType.
        parameters: as in RopeDefaults.
        others: as in llama_like.
    """
    model_type = llama_like(
        rope(head=head, parameters=parameters, extra=extra or {}), scale=LatentAttentionScale(), **others
    )
    return replace(model_type, head_dim_parts=("qk_nope_head_dim", "qk_rope_head_dim"), aliases=aliases or {})


def multimodal(
    head: Head,
    theta: float = 10_000.0,
    layers: LayerRule | None = None,
    fraction: float = 1.0,
    renamed: Mapping[str, str] | None = None,
    **others: Any,
) -> ModelType:
    """Return a model type whose tokens have three coordinates: time, height and width (M-RoPE)."""
    return llama_like(rope(theta, head, layers, fraction, renamed=renamed or {}), unread={"use_mrope": True}, **others)


def modernbert(half_added: int, causal: bool) -> ModelType:
    """Return ModernBERT or its decoder, which differ in the tokens that are added to half of their window."""
    return llama_like(
        rope_by_type(
            ByType(3, "global_attn_every_n_layers", first=True),
            full=RopeDefaults(theta=160_000.0, theta_key="global_rope_theta"),
            sliding=RopeDefaults(theta_key="local_rope_theta"),
        ),
        windows=Windows("local_attention", halved=half_added),
        local_attention=128,
        notes=(EMBEDDING_NORM,),
        unread={"position_embedding_type": ANY},  # published files have "absolute", which it never was
        causal=causal,
        max_length=8192,
        padding_idx=50_283,
        tied=True,
    )


phi3_like = partial(
    llama_like,
    rope(head=PARTIAL, extra=SHORT_AND_LONG, renamed={"yarn": "longrope"}),
    windows=EVERY,
    original_max_position_embeddings=4096,
)

PARTIAL_OR_INTERLEAVED: dict[str, ModelType] = {
    "cohere": llama_like(rope(500_000.0, INTERLEAVED), max_length=8192, padding_idx=0, tied=True),
    "ernie4_5": llama_like(
        rope(500_000.0, INTERLEAVED), key_heads=2, head_dim=128, max_length=131_072, padding_idx=0, tied=True
    ),
    "ernie4_5_moe": llama_like(rope(500_000.0, INTERLEAVED), key_heads=4, max_length=131_072, padding_idx=0, tied=True),
    **dict.fromkeys(
        ("glm", "glm4"),
        llama_like(
            rope(head=Head(interleaved=True, partial=True), fraction=0.5),
            key_heads=2,
            head_dim=128,
            max_length=131_072,
            padding_idx=151_329,
        ),
    ),
    "glm4_moe": llama_like(rope(head=PARTIAL, fraction=0.5), key_heads=8, max_length=131_072),
    "helium": llama_like(rope(100_000.0, INTERLEAVED), key_heads=20, head_dim=128, max_length=4096, padding_idx=3),
    "minimax_m2": llama_like(
        rope(5e6, replace(PARTIAL, rotary_dim_key="rotary_dim")),
        unread={"swa_rope_theta": -1},  # of windows, which it does not have
        key_heads=8,
        head_dim=128,
        max_length=196_608,
    ),
    "nemotron": llama_like(rope(head=PARTIAL, fraction=0.5, fails_at_null=True), max_length=4096),
    "persimmon": llama_like(rope(head=PARTIAL, fraction=0.5, fails_at_null=True), max_length=16_384),
    "phi": llama_like(rope(head=PARTIAL, fraction=0.5, fails_at_null=True), max_length=2048),
    "phi3": phi3_like(max_length=4096, padding_idx=32_000),
    "phi4_multimodal": phi3_like(key_heads=8, max_length=131_072, padding_idx=199_999),
    "stablelm": replace(
        llama_like(rope(head=PARTIAL, fraction=0.25, fails_at_null=True), key_heads=32, max_length=4096),
        head_dim_read=False,
    ),
}
"""Rotary pairs are interleaved, or only a part of each head is rotated."""

exaone4_like = partial(
    llama_like,
    rope(layers=replace(WINDOWED_ROTATED, unless="sliding_window")),
    windows=BY_TYPE,
    sliding_window=4096,
    key_heads=32,
    max_length=2048,
)

BY_LAYER: dict[str, ModelType] = {
    "afmoe": llama_like(
        rope(layers=replace(WINDOWED_ROTATED, period_key="global_attn_every_n_layers")),
        embedding=FlaggedSqrtDimScale("mup_enabled"),
        windows=BY_TYPE,
        sliding_window=1024,
        head_dim=128,
        max_length=16_384,
        global_attn_every_n_layers=4,
    ),
    "cohere2": llama_like(
        rope(head=INTERLEAVED, layers=WINDOWED_ROTATED),
        windows=BY_TYPE,
        sliding_window=4096,
        unread={"position_embedding_type": "rope_gptj"},
        max_length=8192,
        padding_idx=0,
        tied=True,
    ),
    "cohere2_moe": llama_like(
        rope(head=INTERLEAVED, layers=DensePrefix()),
        windows=BY_TYPE,
        sliding_window=4096,
        head_dim=128,
        max_length=8192,
        padding_idx=0,
        tied=True,
    ),
    "exaone4": exaone4_like(),
    "exaone_moe": exaone4_like(padding_idx=0),
    "gemma3_text": gemma2_like(
        gemma3_rope(ByType(6, "sliding_window_pattern")), windows=Windows(bidirectional=True), max_length=131_072
    ),
    "gemma3n_text": llama_like(
        gemma3_rope(ByType(5)),
        windows=BY_TYPE,
        sliding_window=512,
        scale=NoScale(),
        embedding=SqrtDimScale(rounded=True),
        notes=("each layer has a token table of its own besides, and hidden states are widened: not built",),
        key_heads=2,
        head_dim=256,
        max_length=32_768,
        padding_idx=0,
        tied=True,
    ),
    "lfm2": llama_like(
        rope(1e6, layers=ByType(1, others="conv", one_key="full_attn_idxs")),
        key_heads=8,
        max_length=128_000,
        padding_idx=0,
        tied=True,
    ),
    "llama4_text": llama_like(
        rope(500_000.0, INTERLEAVED, layers=NoRopeLayers()),
        temperature=SteppedWithoutRotary(),
        windows=Windows("attention_chunk_size", by="rotated", chunked=True),
        attention_chunk_size=8192,
        notes=(QUERY_KEY_NORM_AFTER,),
        key_heads=8,
        head_dim=128,
        max_length=131_072,
    ),
    "mellum": llama_like(
        rope_by_type(
            ByType(1),
            full=RopeDefaults(theta=500_000.0, theta_key=None),
            sliding=RopeDefaults(theta_key=None),
            reads_rope_scaling=False,
        ),
        windows=BY_TYPE,
        sliding_window=1024,
        key_heads=4,
        head_dim=128,
        max_length=131_072,
    ),
    "minimax": llama_like(
        rope(1e6, layers=ByType(2, one="linear_attention", others="full_attention")),
        windows=EVERY,
        key_heads=8,
        max_length=131_072,
    ),
    "modernbert": modernbert(half_added=1, causal=False),
    "modernbert-decoder": modernbert(half_added=0, causal=True),
    "olmo3": llama_like(
        rope_by_type(
            ByType(4), full=RopeDefaults(theta=500_000.0), sliding=RopeDefaults(theta=500_000.0, scaled=False)
        ),
        windows=BY_TYPE,
        sliding_window=4096,
        max_length=2048,
        padding_idx=1,
    ),
    "olmo_hybrid": llama_like(
        rope(layers=ByType(4, others="linear_attention")), max_length=65_536, padding_idx=100_277
    ),
    "qwen3_next": llama_like(
        rope(head=PARTIAL, fraction=0.25, layers=FULL_EVERY_FOURTH),
        key_heads=2,
        head_dim=256,
        max_length=32_768,
    ),
    "smollm3": llama_like(
        rope(2e6, layers=NoRopeLayers()),
        windows=Windows(by="unrotated", switch="use_sliding_window"),
        key_heads=4,
        max_length=32_768,
        padding_idx=128_004,
        tied=True,
    ),
}
"""Layers differ: some are not rotated, use other rope parameters, or have no attention."""

LATENT: dict[str, ModelType] = {
    "deepseek_v2": latent_attention(Head(interleaved=True, dim_key="qk_rope_head_dim"), max_length=2048),
    "deepseek_v3": latent_attention(LATENT_HEAD, key_heads=128, max_length=4096),
    "glm4_moe_lite": latent_attention(
        LATENT_HEAD,
        aliases={"head_dim": "qk_rope_head_dim"},
        key_heads=20,
        max_length=202_752,
    ),
    "minicpm3": latent_attention(
        Head(dim_key="qk_rope_head_dim"),
        embedding=EmbeddingScaleKey("scale_emb", 12.0),
        key_heads=40,
        max_length=32_768,
        tied=True,
    ),
    "youtu": latent_attention(LATENT_HEAD, key_heads=16, max_length=131_072, tied=True),
}
"""Latent attention (MLA): heads keep rotated and other features apart."""

qwen3_vl_like = partial(
    multimodal, Head(sections=(24, 20, 20), axis_layout="interleaved"), 500_000.0, max_length=128_000, tied=True
)
qwen3_5_like = partial(
    multimodal,
    Head(partial=True, sections=(11, 11, 10), axis_layout="interleaved"),
    layers=FULL_EVERY_FOURTH,
    fraction=0.25,
    head_dim=256,
    max_length=32_768,
)

_compass = llama_like(
    RopeKeys(
        Head(sections=(24, 20, 20), axis_layout="interleaved"),
        {each: RopeDefaults(theta_key=None) for each in ("full_attention", "sliding_attention")},
        ByType(1),
        reads_rope_scaling=False,
        required=True,
    ),
    windows=BY_TYPE,
    sliding_window=4096,
    max_length=8192,
    padding_idx=0,
    tied=True,
)

MULTIMODAL: dict[str, ModelType] = {
    "cohere_compass_text": replace(_compass, head_dim_read=False),
    "glm4v_text": multimodal(
        Head(interleaved=True, partial=True, sections=(8, 12, 12)),
        renamed={"mrope": "default"},
        key_heads=2,
        max_length=32_768,
        tied=True,
    ),
    **dict.fromkeys(
        ("qwen2_5_vl_text", "qwen2_vl_text"),
        multimodal(
            Head(sections=(16, 24, 24)),
            1e6,
            renamed={"mrope": "default"},
            windows=Windows(by=FromLayer(80), switch="use_sliding_window"),
            sliding_window=4096,
            key_heads=8,
            max_length=32_768,
            tied=True,
        ),
    ),
    "qwen3_5_moe_text": qwen3_5_like(key_heads=2),
    "qwen3_5_text": qwen3_5_like(key_heads=4),
    "qwen3_vl_moe_text": qwen3_vl_like(key_heads=16),
    "qwen3_vl_text": qwen3_vl_like(key_heads=32, head_dim=128),
}
"""Tokens have three coordinates: time, height and width (M-RoPE)."""

LLAMA_VARIANTS: dict[str, ModelType] = {**PARTIAL_OR_INTERLEAVED, **BY_LAYER, **LATENT, **MULTIMODAL}
