"""Model types of 2025 and 2026: rotary positions in some layers, sinks, hybrids with layers that have no attention.

Numbers are what transformers 5 takes where a key is absent.
"""

from collections.abc import Mapping
from dataclasses import replace

from whatwhere.models.configuration.head_keys import (
    CausalText,
    NestedKeyHeads,
    QueryHeadsByLayer,
    QueryHeadsInWindows,
    WiderInFullAttention,
)
from whatwhere.models.configuration.input_keys import EmbeddingScaleKey, SqrtDimScale
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.layer_types import (
    CONVOLUTION,
    CROSS,
    FULL,
    LINEAR,
    SLIDING,
    ByType,
    NoRopeLayers,
    Windows,
)
from whatwhere.models.configuration.model_type import LLAMA_KEYS, ModelType
from whatwhere.models.configuration.rotary_keys import Head, RopeDefaults, RopeKeys
from whatwhere.models.configuration.softmax_scale import (
    HalfHeadScale,
    KeyMultiplier,
    NoScale,
    PreAttentionScalar,
    ScaleKey,
)
from whatwhere.models.configuration.temperature import LearnedInAllLayers, PowerWithoutRotary, SteppedInAllLayers
from whatwhere.models.configuration.theta_keys import ListsByLayer, NestedTheta, ThetaByLayer
from whatwhere.models.registry.bert_gpt_t5 import MPT
from whatwhere.models.registry.llama import BY_TYPE, EMBEDDING_NORM, QUERY_KEY_NORM_AFTER, llama_like, rope
from whatwhere.models.registry.llama_variants import (
    LATENT_HEAD,
    PARTIAL,
    WINDOWED_ROTATED,
    latent_attention,
    rope_by_type,
)

INDEXER = "a lightning indexer with rotary positions of its own selects the keys, and is not built"
SELECTED = "an indexer without positions selects the keys, and is not built"
OTHER_LAYERS = "some layers have no attention (Mamba, convolution or linear attention) and are not built"
LATENT_ALWAYS = Head(interleaved=True, dim_key="qk_rope_head_dim")
LISTED_ATTENTION = ByType(1, others=LINEAR, one_key="attn_layer_indices", listed_only=True)


def without_rotary(*notes: str, names: Mapping[str, tuple[str, ...]] | None = None, **others: object) -> ModelType:
    """Return a model type with Llama's keys whose attention has no positions.

    Args:
        notes: as in ModelType.
        names: of keys, where they differ from Llama's.
        others: defaults, by fields of Description or by keys.
    """
    model_type = llama_like(notes=notes, **others)  # type: ignore[arg-type]
    names = {**model_type.names, **(names or {})}
    return replace(model_type, readers=(), names=names)


def granite_swa(**others: object) -> ModelType:
    """Return Granite with windows, sinks and a theta for each layer."""
    model_type = llama_like(
        scale=ScaleKey(),
        embedding=EmbeddingScaleKey("embedding_multiplier"),
        windows=Windows(by=ByType(4, first=True)),
        sinks=True,
        sliding_window=128,
        **others,  # type: ignore[arg-type]
    )
    return replace(model_type, readers=(ThetaByLayer(),))


WHOLE_MODELS: dict[str, ModelType] = {
    "dbrx": replace(
        llama_like(unread={"num_key_value_heads": ANY}, max_seq_len=2048),
        names={**MPT, "padding_idx": ("pad_token_id",), "max_length": ("max_seq_len", "max_position_embeddings")},
        readers=(NestedTheta(),),
        key_heads=NestedKeyHeads(),
        can_tie=False,
    ),
    "emu3_text_model": llama_like(rope(1e6), key_heads=8, max_length=9216, padding_idx=151_643),
    "iquestcoder": llama_like(key_heads=8, head_dim=128, max_length=131_072),
    "jetmoe": replace(
        llama_like(key_heads=16, kv_channels=128, max_length=4096, tied=True),
        names={**LLAMA_KEYS, "head_dim": ("kv_channels", "head_dim")},
    ),
    "hrm_text": replace(
        llama_like(
            embedding=EmbeddingScaleKey("embedding_scale", 50.0),
            notes=(
                "layers are those of two stacks, each as often as it is applied",
                "a prefix may attend in both directions (prefix_lm, token_type_ids)",
            ),
            head_dim=128,
            max_length=2048,
        ),
    ),
    "nanochat": replace(
        llama_like(
            rope(head=Head(reversed=True)),
            notes=(EMBEDDING_NORM, QUERY_KEY_NORM_AFTER),
            key_heads=6,
            max_length=2048,
            padding_idx=1,
        ),
    ),
    "mllama_text_model": replace(
        llama_like(
            rope(
                500_000.0,
                layers=ByType(1, one=CROSS, others=FULL, one_key="cross_attention_layers", listed_only=True),
            ),
            notes=("layers of the type cross_attention attend to pictures alone, and have no positions",),
            key_heads=8,
            max_length=131_072,
            padding_idx=128_004,
            cross_attention_layers=[3, 8, 13, 18, 23, 28, 33, 38],
        ),
        extra_rows=8,
        can_tie=False,
    ),
    "moshi": replace(
        llama_like(
            unread={"sliding_window": ANY},
            notes=(
                "sliding_window limits the cache of transformers alone: earlier keys are seen in a whole pass, and "
                "dropped where it generates",
                "a small decoder of codes of sound, without positions, follows each token and is not built",
            ),
            max_length=3000,
        ),
        extra_rows=1,
        can_tie=False,
    ),
}
"""All layers rotate alike."""

STEP_LAYERS = ByType(1, cycle=(FULL,), drafts_key="num_nextn_predict_layers")
GEMMA4_LAYERS = ByType(6, cycle=(*(SLIDING,) * 5, FULL), at={-1: FULL})
_gemma4 = llama_like(
    rope_by_type(
        GEMMA4_LAYERS,
        full=RopeDefaults(
            theta=1e6,
            theta_key=None,
            parameters={"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        ),
        sliding=RopeDefaults(theta_key=None),
        reads_rope_scaling=False,
    ),
    scale=NoScale(),
    embedding=SqrtDimScale(rounded=True),
    windows=BY_TYPE,
    sliding_window=512,
    key_heads=4,
    head_dim=256,
    max_length=131_072,
    padding_idx=0,
    tied=True,
)


def gemma4_like(*notes: str, **defaults: object) -> ModelType:
    """Return Gemma 4 with other notes and defaults."""
    return replace(
        _gemma4,
        readers=(*_gemma4.readers, CausalText()),
        heads=WiderInFullAttention(GEMMA4_LAYERS),
        notes=notes,
        defaults={**_gemma4.defaults, **defaults},
    )


BY_LAYER_HEADS: dict[str, ModelType] = {
    "diffusion_gemma_text": replace(
        gemma4_like("a decoder with these layers denoises tokens that attend to one another in both directions"),
    ),
    "gemma4_text": gemma4_like("each layer has a token table of its own besides: not built"),
    "gemma4_unified_text": replace(gemma4_like(sliding_window=1024, max_position_embeddings=262_144)),
    "step3p5": replace(
        llama_like(
            scale=PreAttentionScalar(default=None),
            windows=BY_TYPE,
            key_heads=8,
            head_dim=128,
            max_length=128_000,
            padding_idx=1,
            unread={
                "use_bidirectional_attention": False,
                "use_rope_layers": [],
                "yarn_only_types": [FULL],
            },
        ),
        readers=(
            ListsByLayer(
                RopeKeys(
                    PARTIAL,
                    dict.fromkeys((FULL, SLIDING), RopeDefaults(theta_key=None, fraction_key=None)),
                    STEP_LAYERS,
                    reads_rope_scaling=False,
                    required=True,
                ),
                STEP_LAYERS,
            ),
        ),
        names={**LLAMA_KEYS, "key_heads": ("num_key_value_heads", "num_attention_groups")},
        heads=QueryHeadsInWindows(STEP_LAYERS),
    ),
    "laguna": replace(
        llama_like(
            RopeKeys(
                PARTIAL,
                {
                    "sliding_attention": RopeDefaults(theta_key=None, fraction_key=None),
                    "full_attention": RopeDefaults(
                        theta=500_000.0,
                        theta_key=None,
                        fraction_key=None,
                        parameters={"rope_type": "default", "rope_theta": 500_000.0, "partial_rotary_factor": 0.5},
                    ),
                },
                ByType(1, cycle=(FULL,)),
                reads_rope_scaling=False,
            ),
            windows=BY_TYPE,
            sliding_window=512,
            key_heads=8,
            head_dim=128,
            max_length=131_072,
        ),
        heads=QueryHeadsByLayer(),
    ),
}
"""Heads differ between layers."""

WINDOWS_AND_NONE: dict[str, ModelType] = {
    "beam": llama_like(
        rope_by_type(
            ByType(6, cycle=(*(SLIDING,) * 5, FULL), at={-1: FULL}),
            full=RopeDefaults(theta_key=None, parameters=None),
            sliding=RopeDefaults(theta_key=None),
            reads_rope_scaling=False,
        ),
        temperature=PowerWithoutRotary(),
        windows=BY_TYPE,
        sliding_window=512,
        key_heads=8,
        head_dim=128,
        max_length=8192,
    ),
    "flint": llama_like(
        rope(layers=ByType(4, rotated=(SLIDING,), cycle=(SLIDING, FULL, SLIDING, SLIDING), at={0: FULL, -1: FULL})),
        windows=BY_TYPE,
        sinks=True,
        sliding_window=513,
        key_heads=4,
        head_dim=128,
        max_length=262_144,
    ),
    "granite_swa": granite_swa(key_heads=4, max_length=8192, tied=True),
    "granitemoe_swa": granite_swa(max_length=2048),
    "kolibri1": llama_like(
        rope(layers=replace(WINDOWED_ROTATED, period=5, period_key=None, unless="sliding_window")),
        windows=BY_TYPE,
        sliding_window=513,
        key_heads=4,
        head_dim=128,
        max_length=262_144,
    ),
}
"""Layers with windows rotate, others do not or have a theta of their own."""

HYBRID: dict[str, ModelType] = {
    "bamba": llama_like(
        RopeKeys(PARTIAL, {"": RopeDefaults(fraction=0.5, fraction_key=None)}, LISTED_ATTENTION),
        unread={"attn_rotary_emb": ANY, "layers_block_type": ANY},
        notes=(OTHER_LAYERS,),
        key_heads=8,
        max_length=262_144,
        padding_idx=0,
    ),
    "falcon_h1": llama_like(
        scale=KeyMultiplier(),
        embedding=EmbeddingScaleKey("embedding_multiplier"),
        notes=("each layer has Mamba beside its attention, which is not built",),
        key_heads=8,
        max_length=8192,
        padding_idx=0,
    ),
    "granitemoehybrid": llama_like(
        rope(layers=ByType(1, cycle=(LINEAR,), only=("position_embedding_type", "rope"))),
        scale=ScaleKey(),
        embedding=EmbeddingScaleKey("embedding_multiplier"),
        notes=(OTHER_LAYERS,),
        max_length=2048,
    ),
    "jamba": without_rotary(OTHER_LAYERS, key_heads=8, max_length=262_144, padding_idx=0),
    "lfm2_moe": llama_like(
        rope(1e6, layers=ByType(1, others=CONVOLUTION)),
        notes=(OTHER_LAYERS,),
        key_heads=8,
        max_length=128_000,
        padding_idx=0,
        tied=True,
    ),
    "lfm3": llama_like(
        rope_by_type(
            ByType(4, cycle=(SLIDING, CONVOLUTION, FULL, CONVOLUTION), at={0: CONVOLUTION}),
            full=RopeDefaults(
                theta=1e6,
                theta_key=None,
                parameters={"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
            ),
            sliding=RopeDefaults(theta_key=None),
            reads_rope_scaling=False,
        ),
        windows=BY_TYPE,
        notes=(OTHER_LAYERS,),
        sliding_window=256,
        key_heads=4,
        head_dim=128,
        max_length=128_000,
        padding_idx=124_893,
        tied=True,
    ),
    "zamba": replace(
        without_rotary(
            OTHER_LAYERS,
            names={"head_dim": ("attention_head_dim", "head_dim")},
            key_heads=16,
            max_length=4096,
            padding_idx=0,
            tied=True,
        ),
        scale=HalfHeadScale(),
        head_width=2,
    ),
}
"""Some layers have no attention, or Mamba beside it."""

RECENT_LATENT: dict[str, ModelType] = {
    "axk1": latent_attention(LATENT_HEAD, key_heads=64, max_length=32_768),
    "axk2": latent_attention(
        LATENT_ALWAYS, unread={"layer_types": ANY}, notes=(INDEXER,), key_heads=32, max_length=131_072
    ),
    "deepseek_v32": latent_attention(
        LATENT_ALWAYS, unread={"layer_types": ANY}, notes=(INDEXER,), key_heads=128, max_length=163_840
    ),
    "glm5_next_text": replace(
        without_rotary(
            OTHER_LAYERS,
            SELECTED,
            names={"head_dim": ("qk_nope_head_dim",)},
            key_heads=64,
            qk_nope_head_dim=256,
            max_length=1_048_576,
            padding_idx=154_820,
        ),
        unread={"head_dim": ANY, "layer_types": ANY, "qk_rope_head_dim": 0},
    ),
    "glm_moe_dsa": latent_attention(
        LATENT_ALWAYS, unread={"layer_types": ANY}, notes=(INDEXER,), key_heads=64, max_length=202_752
    ),
    "mistral4": latent_attention(
        Head(interleaved=True, interleaved_key="rope_interleave", dim_key="qk_rope_head_dim", whole=True),
        parameters={
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 128.0,
            "original_max_position_embeddings": 8192,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale_all_dim": 1.0,
            "mscale": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
        extra={"": ("max_position_embeddings", SteppedInAllLayers.STRENGTH)},
        temperature=SteppedInAllLayers(),
        key_heads=32,
        max_length=1_048_576,
        padding_idx=11,
    ),
    "mistral_large4_text": replace(
        latent_attention(
            LATENT_ALWAYS,
            unread={"layer_types": ANY},
            temperature=LearnedInAllLayers(),
            notes=(INDEXER, "layers may take keys and values of an earlier layer (kv_source_layers)"),
            key_heads=64,
            max_length=1_048_576,
        ),
        readers=(
            rope(
                head=Head(interleaved=True, dim_key="qk_rope_head_dim", whole=True, learned=True),
                layers=NoRopeLayers(),
                parameters={
                    "rope_type": "yarn",
                    "rope_theta": 10_000.0,
                    "factor": 2048.0,
                    "original_max_position_embeddings": 512,
                    "beta_fast": 32.0,
                    "beta_slow": 1.0,
                    "attention_factor": 1.0,
                },
            ),
        ),
    ),
    "kimi_linear": replace(
        without_rotary(
            OTHER_LAYERS,
            names={"max_length": ("model_max_length", "max_position_embeddings")},
            key_heads=32,
            model_max_length=1_048_576,
            padding_idx=163_839,
        ),
        can_tie=False,
        head_dim_parts=("qk_nope_head_dim", "qk_rope_head_dim"),
        unread={"layer_types": ANY, "mla_use_nope": True},
    ),
}
"""Latent attention (MLA)."""

RECENT: Mapping[str, ModelType] = {**WHOLE_MODELS, **BY_LAYER_HEADS, **WINDOWS_AND_NONE, **HYBRID, **RECENT_LATENT}
