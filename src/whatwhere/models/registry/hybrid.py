"""Model types with state space models, recurrences, convolutions or selected keys: beside attention, or in its place.

Numbers are what transformers 5 takes where a key is absent.
"""

from collections.abc import Mapping
from dataclasses import replace

from whatwhere.models.configuration.head_keys import LatentHeadsInWindows, MoreKeyHeadsInWindows, OwnHeadsInWindows
from whatwhere.models.configuration.input_keys import SqrtDimScale
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.layer_lists import HybridIfFlag, LayerPattern, RepeatedBlocks
from whatwhere.models.configuration.layer_types import (
    FULL,
    HYBRID,
    HYBRID_SLIDING,
    INDEXED,
    LINEAR,
    SLIDING,
    ByType,
    Windows,
)
from whatwhere.models.configuration.model_type import LLAMA_KEYS, ModelType
from whatwhere.models.configuration.rotary_keys import Head, RopeDefaults, RopeKeys
from whatwhere.models.configuration.score_keys import ProfileKeys
from whatwhere.models.configuration.softmax_scale import HalfHeadScale, LowRankScale, NormedHeadScale
from whatwhere.models.configuration.temperature import ClampedWithoutWindow
from whatwhere.models.registry.llama import BY_TYPE, EMBEDDING_NORM, llama_like, rope
from whatwhere.models.registry.llama_variants import PARTIAL, latent_attention, multimodal
from whatwhere.models.registry.recent import INDEXER, LATENT_ALWAYS, OTHER_LAYERS, without_rotary

STATE_SPACE = "no layer has attention: state space models read the tokens in their order, and are not built"
RECURRENCE = "no layer has attention: recurrences read the tokens in their order, and are not built"


def without_attention(note: str, length_key: str | None = None, **defaults: object) -> ModelType:
    """Return a model type none of whose layers has attention, and so heads.

    Args:
        note: what its layers have.
        length_key: of the length that it was trained with, if there is one.
        defaults: by fields of Description or by keys.
    """
    names = {name: LLAMA_KEYS[name] for name in ("vocab_size", "dim", "layers", "padding_idx", "tied")}
    if length_key is not None:
        names["max_length"] = (length_key, *LLAMA_KEYS["max_length"])
    keys = {names[name][0] if name in names else name: value for name, value in defaults.items()}
    return ModelType((), names=names, defaults=keys, notes=(note,))


WITHOUT_ATTENTION: dict[str, ModelType] = {
    **dict.fromkeys(
        ("falcon_mamba", "mamba"),
        without_attention(STATE_SPACE, vocab_size=50_280, dim=768, layers=32, padding_idx=0, tied=True),
    ),
    "mamba2": without_attention(STATE_SPACE, vocab_size=32_768, dim=4096, layers=64, padding_idx=1, tied=False),
    "rwkv": without_attention(
        RECURRENCE, "context_length", vocab_size=50_277, dim=4096, layers=32, max_length=1024, tied=False
    ),
    "xlstm": replace(
        without_attention(RECURRENCE, vocab_size=50_304, dim=4096, layers=32, padding_idx=1, tied=False),
        aliases={"embedding_dim": "hidden_size", "num_blocks": "num_hidden_layers"},
        can_tie=False,
    ),
}
"""Positions have no place in the equation of these: there are no scores."""

_MIMO = ByType(6, cycle=(*(SLIDING,) * 5, FULL), at={0: FULL})
_MIMO_SET = {"rope_type": "default", "partial_rotary_factor": 0.334}
_zaya_set = {"rope_type": "default", "partial_rotary_factor": 0.5}

BESIDE_ATTENTION: dict[str, ModelType] = {
    "bailing_hybrid": replace(
        latent_attention(
            LATENT_ALWAYS,
            unread={"head_dim": ANY},
            notes=(OTHER_LAYERS,),
            key_heads=32,
            padding_idx=156_892,
            model_max_length=262_144,
            layer_group_size=6,
        ),
        readers=(rope(6e6, LATENT_ALWAYS, ByType(6, "layer_group_size", others=LINEAR)),),
        names={**LLAMA_KEYS, "max_length": ("model_max_length", "max_position_embeddings")},
        can_tie=False,
    ),
    "nemotron_h": replace(
        without_rotary(OTHER_LAYERS, key_heads=8, head_dim=128, max_length=4096, padding_idx=0),
        names={name: keys for name, keys in LLAMA_KEYS.items() if name != "layers"},
        readers=(LayerPattern(),),
        listed=LayerPattern(),
        can_tie=False,
    ),
    "recurrent_gemma": replace(
        llama_like(
            rope(head=PARTIAL, fraction=0.5, layers=RepeatedBlocks({"recurrent": LINEAR, "attention": SLIDING})),
            embedding=SqrtDimScale(rounded=True),
            windows=Windows("attention_window_size"),
            notes=(OTHER_LAYERS,),
            attention_window_size=2048,
            padding_idx=0,
            tied=True,
        ),
        aliases={"sliding_window": "attention_window_size"},
        head_dim_read=False,
    ),
    "zamba2": replace(
        llama_like(
            rope(layers=HybridIfFlag()),
            scale=HalfHeadScale(),
            notes=(OTHER_LAYERS,),
            unread={"use_long_context": False},
            key_heads=32,
            max_length=4096,
            padding_idx=0,
            tied=True,
        ),
        names={**LLAMA_KEYS, "head_dim": ("attention_head_dim", "head_dim")},
        head_width=2,
    ),
    "zaya": replace(
        llama_like(
            RopeKeys(
                PARTIAL,
                {
                    HYBRID: RopeDefaults(
                        theta=5e6, theta_key=None, fraction_key=None, parameters={**_zaya_set, "rope_theta": 5e6}
                    ),
                    HYBRID_SLIDING: RopeDefaults(
                        theta=1e4, theta_key=None, fraction_key=None, parameters={**_zaya_set, "rope_theta": 1e4}
                    ),
                },
                ByType(1, one=HYBRID),
                reads_rope_scaling=False,
            ),
            windows=Windows(windowed=HYBRID_SLIDING),
            notes=("convolutions over tokens mix queries and keys before they are rotated, and are not built",),
            key_heads=2,
            head_dim=128,
            max_length=131_072,
            padding_idx=0,
            tied=True,
        ),
    ),
}
"""Layers have something else beside attention, or in its place."""

_INKLING = ByType(1, cycle=(*(HYBRID_SLIDING,) * 5, HYBRID), one=HYBRID_SLIDING, others=HYBRID)
_inkling = replace(
    llama_like(
        windows=Windows("sliding_window_size", windowed=HYBRID_SLIDING),
        temperature=ClampedWithoutWindow(),
        key_heads=8,
        head_dim=128,
        swa_head_dim=128,
        d_rel=16,
        rel_extent=1024,
    ),
    names={**LLAMA_KEYS, "max_length": ("max_position_embeddings", "model_max_length")},
    aliases={"sliding_window": "sliding_window_size"},
    can_tie=False,
)
_CONVOLVED = "short convolutions over tokens mix keys and values before attention, and are not built"

PROFILES: dict[str, ModelType] = {
    "inkling2_text": replace(
        _inkling,
        readers=(ProfileKeys(_INKLING, "rel_l2_clip_threshold"),),
        heads=OwnHeadsInWindows(_INKLING),
        defaults={
            **_inkling.defaults,
            "swa_num_attention_heads": 48,
            "swa_num_key_value_heads": 8,
            "sliding_window_size": 1024,
            "log_scaling_n_floor": 128_000,
            "rel_l2_clip_threshold": 8.0,
            "max_position_embeddings": 1_048_576,
        },
        notes=(
            EMBEDDING_NORM,
            _CONVOLVED,
            "each query has a sink of its own, a linear map of its token (sink_proj), which is not built",
        ),
    ),
    "inkling_text": replace(
        _inkling,
        readers=(ProfileKeys(replace(_INKLING, one_key="local_layer_ids")),),
        heads=OwnHeadsInWindows(replace(_INKLING, one_key="local_layer_ids")),
        scale=NormedHeadScale(),
        defaults={
            **_inkling.defaults,
            "swa_num_attention_heads": 64,
            "swa_num_key_value_heads": 16,
            "sliding_window_size": 512,
            "max_position_embeddings": 131_072,
        },
        notes=(EMBEDDING_NORM, _CONVOLVED),
    ),
}
"""Queries mix learned profiles of the distance, in place of rotary positions (Inkling)."""

_DOTS = ByType(4, cycle=(SLIDING, INDEXED, SLIDING, SLIDING), at={0: INDEXED})
_dots_set = {"rope_type": "default", "partial_rotary_factor": 0.25}

SELECTED_OR_SINKS: dict[str, ModelType] = {
    "dots3_note_text": replace(
        latent_attention(
            LATENT_ALWAYS,
            windows=BY_TYPE,
            notes=(INDEXER,),
            sliding_window=512,
            key_heads=128,
            head_dim=256,
            max_length=524_288,
            padding_idx=151_659,
        ),
        readers=(
            RopeKeys(
                Head(interleaved=True, dim_key="qk_rope_head_dim", fraction_of="head_dim"),
                {
                    label: RopeDefaults(
                        theta=theta, theta_key=None, fraction_key=None, parameters={**_dots_set, "rope_theta": theta}
                    )
                    for label, theta in ((INDEXED, 8e7), (SLIDING, 5e4))
                },
                _DOTS,
                reads_rope_scaling=False,
            ),
        ),
        heads=LatentHeadsInWindows(_DOTS),
        unread={"head_dim": ANY},
        aliases={"sliding_window_size": "sliding_window"},
    ),
    "hy_v4": replace(
        latent_attention(
            Head(dim_key="qk_rope_head_dim"),
            unread={"layer_types": ANY},
            sinks=True,
            notes=(INDEXER,),
            max_length=262_144,
            padding_idx=120_002,
        ),
    ),
    "longcat_flash": replace(
        latent_attention(
            LATENT_ALWAYS,
            notes=("each layer of its code has two attentions, which are two layers here",),
            q_lora_rank=1536,
            max_length=131_072,
        ),
        readers=(rope(1e7, LATENT_ALWAYS),),
        names={**LLAMA_KEYS, "layers": ("num_layers",)},
        scale=LowRankScale(),
        attentions=2,
    ),
    "mimo_v2_flash": replace(
        llama_like(
            RopeKeys(
                PARTIAL,
                {
                    "full_attention": RopeDefaults(
                        theta=5e6,
                        theta_key=None,
                        fraction=0.334,
                        fraction_key=None,
                        parameters={**_MIMO_SET, "rope_theta": 5e6},
                    ),
                    "sliding_attention": RopeDefaults(
                        theta=1e4,
                        theta_key=None,
                        fraction=0.334,
                        fraction_key=None,
                        parameters={**_MIMO_SET, "rope_theta": 1e4},
                    ),
                },
                _MIMO,
                reads_rope_scaling=False,
            ),
            windows=Windows(previous="sliding_window_size"),
            sinks="windowed",
            unread={
                "attention_chunk_size": ANY,
                "partial_rotary_factor": 0.334,
                "rope_theta": 5e6,
                "swa_rope_theta": 1e4,
            },
            sliding_window=129,
            key_heads=4,
            head_dim=192,
            max_length=131_072,
        ),
        heads=MoreKeyHeadsInWindows(_MIMO),
    ),
    "minimax_m3_vl_text": replace(
        llama_like(
            rope(5e6, replace(PARTIAL, rotary_dim_unread="rotary_dim")),
            unread={"layer_types": ANY},
            notes=("in sparse layers a small network selects blocks of keys, and is not built",),
            key_heads=4,
            head_dim=128,
            max_length=524_288,
        ),
    ),
    "qwen4_exp_text": replace(
        multimodal(
            Head(partial=True, sections=(107, 11, 10), axis_layout="interleaved"),
            layers=ByType(4, "full_attention_interval", one=INDEXED, others=LINEAR),
            notes=(OTHER_LAYERS, "a small network selects the keys, and is not built"),
            key_heads=2,
            head_dim=256,
            max_length=32_768,
        ),
    ),
}
"""Keys are selected by a small network, or scores have sinks."""

HYBRIDS: Mapping[str, ModelType] = {
    **WITHOUT_ATTENTION,
    **BESIDE_ATTENTION,
    **PROFILES,
    **SELECTED_OR_SINKS,
}
