"""Model types that turn otherwise: neighbors, a part of each head, by layer, apart, on three axes.

Numbers are what transformers 5 takes where a key is absent.
"""

from dataclasses import replace

from whatwhere.interop.huggingface.families.make import (
    EMBEDDING_NORM,
    GEMMA2,
    NEIGHBORS,
    PARTIAL,
    PARTIAL_NEIGHBORS,
    by_kind,
    family,
    latent,
    turning,
)
from whatwhere.interop.huggingface.family import Family
from whatwhere.interop.huggingface.inputs import Always, ByKey
from whatwhere.interop.huggingface.keys import ANY
from whatwhere.interop.huggingface.layers import ByKind, Listed
from whatwhere.interop.huggingface.rotary import RopeSet, Turn
from whatwhere.interop.huggingface.scales import One

SLIDING_TURN = ("sliding_attention",)

OTHERWISE: dict[str, Family] = {
    "cohere": family(turning(500_000.0, NEIGHBORS), max_length=8192, padding_id=0, tied=True),
    "ernie4_5": family(
        turning(500_000.0, NEIGHBORS), key_heads=2, head_dim=128, max_length=131_072, padding_id=0, tied=True
    ),
    "ernie4_5_moe": family(turning(500_000.0, NEIGHBORS), key_heads=4, max_length=131_072, padding_id=0, tied=True),
    "glm": family(
        turning(turn=PARTIAL_NEIGHBORS, share=0.5), key_heads=2, head_dim=128, max_length=131_072, padding_id=151_329
    ),
    "glm4": family(
        turning(turn=PARTIAL_NEIGHBORS, share=0.5), key_heads=2, head_dim=128, max_length=131_072, padding_id=151_329
    ),
    "glm4_moe": family(turning(turn=PARTIAL, share=0.5), key_heads=8, max_length=131_072),
    "helium": family(turning(100_000.0, NEIGHBORS), key_heads=20, head_dim=128, max_length=4096, padding_id=3),
    "minimax_m2": family(
        turning(5e6, replace(PARTIAL, dim_key="rotary_dim")), key_heads=8, head_dim=128, max_length=196_608
    ),
    "nemotron": family(turning(turn=PARTIAL, share=0.5), max_length=4096),
    "persimmon": family(turning(turn=PARTIAL, share=0.5), max_length=16_384),
    "phi": family(turning(turn=PARTIAL, share=0.5), max_length=2048),
    "phi3": family(
        turning(
            turn=PARTIAL, extra=("short_mscale", "long_mscale"), renamed={"yarn": "longrope"}, original_beside=True
        ),
        max_length=4096,
        original_max_position_embeddings=4096,
        padding_id=32_000,
    ),
    "stablelm": family(turning(turn=PARTIAL, share=0.25), key_heads=32, max_length=4096),
}
"""Neighbors make a pair, or a part of each head turns."""

BY_LAYER: dict[str, Family] = {
    "afmoe": family(
        turning(layers=ByKind(4, "global_attn_every_n_layers", turning=SLIDING_TURN)),
        head_dim=128,
        max_length=16_384,
        global_attn_every_n_layers=4,
    ),
    "cohere2": family(
        turning(turn=NEIGHBORS, layers=ByKind(4, "sliding_window_pattern", turning=SLIDING_TURN)),
        beside={"position_embedding_type": "rope_gptj", "rotary_pct": 1.0},
        max_length=8192,
        padding_id=0,
        tied=True,
    ),
    "exaone4": family(
        turning(layers=ByKind(4, "sliding_window_pattern", turning=SLIDING_TURN, unless="sliding_window")),
        key_heads=32,
        max_length=2048,
    ),
    "exaone_moe": family(
        turning(layers=ByKind(4, "sliding_window_pattern", turning=SLIDING_TURN, unless="sliding_window")),
        key_heads=32,
        max_length=2048,
        padding_id=0,
    ),
    "gemma3_text": family(
        by_kind(
            ByKind(6, "sliding_window_pattern"),
            full=RopeSet(theta=1e6),
            sliding=RopeSet(theta_key="rope_local_base_freq", scaled=False),
        ),
        **GEMMA2,
        max_length=131_072,
    ),
    "gemma3n_text": family(
        by_kind(
            ByKind(5),
            full=RopeSet(theta=1e6),
            sliding=RopeSet(theta_key="rope_local_base_freq", scaled=False),
        ),
        scale=One(),
        embedding=Always(rounded=True),
        notes=("each layer has a token table of its own besides, and hidden states are widened: not built",),
        key_heads=2,
        head_dim=256,
        max_length=32_768,
        padding_id=0,
        tied=True,
    ),
    "lfm2": family(
        turning(1e6, layers=ByKind(1, others="conv", marks="full_attn_idxs")),
        key_heads=8,
        max_length=128_000,
        padding_id=0,
        tied=True,
    ),
    "llama4_text": family(
        turning(500_000.0, NEIGHBORS, layers=Listed(untuned="attn_temperature_tuning")),
        beside={"attn_scale": ANY, "floor_scale": ANY},
        notes=("queries and keys are normed after they were turned",),
        key_heads=8,
        head_dim=128,
        max_length=131_072,
    ),
    "mellum": family(
        by_kind(ByKind(1), full=RopeSet(theta=500_000.0), sliding=RopeSet()),
        key_heads=4,
        head_dim=128,
        max_length=131_072,
    ),
    "minimax": family(
        turning(1e6, layers=ByKind(2, marked="linear_attention", others="full_attention")),
        key_heads=8,
        max_length=131_072,
    ),
    "modernbert": family(
        by_kind(
            ByKind(3, "global_attn_every_n_layers", leads=True),
            full=RopeSet(theta=160_000.0, theta_key="global_rope_theta"),
            sliding=RopeSet(theta_key="local_rope_theta"),
        ),
        notes=(EMBEDDING_NORM,),
        beside={"position_embedding_type": ANY},  # its published files say "absolute", which it never was
        max_length=8192,
        padding_id=50_283,
        tied=True,
    ),
    "modernbert-decoder": family(
        by_kind(
            ByKind(3, "global_attn_every_n_layers", leads=True),
            full=RopeSet(theta=160_000.0, theta_key="global_rope_theta"),
            sliding=RopeSet(theta_key="local_rope_theta"),
        ),
        notes=(EMBEDDING_NORM,),
        beside={"position_embedding_type": ANY},  # its published files say "absolute", which it never was
        max_length=8192,
        padding_id=50_283,
        tied=True,
    ),
    "olmo3": family(
        by_kind(ByKind(4), full=RopeSet(theta=500_000.0), sliding=RopeSet(theta=500_000.0, scaled=False)),
        max_length=2048,
        padding_id=1,
    ),
    "olmo_hybrid": family(turning(layers=ByKind(4, others="linear_attention")), max_length=65_536, padding_id=100_277),
    "qwen3_next": family(
        turning(turn=PARTIAL, share=0.25, layers=ByKind(4, "full_attention_interval", others="linear_attention")),
        key_heads=2,
        head_dim=256,
        max_length=32_768,
    ),
    "smollm3": family(turning(2e6, layers=Listed()), key_heads=4, max_length=32_768, padding_id=128_004, tied=True),
}
"""Layers differ: some do not turn, or turn by other parameters, or have no attention."""

LATENT: dict[str, Family] = {
    "deepseek_v2": latent(Turn(interleaved=True, part="qk_rope_head_dim"), max_length=2048),
    "deepseek_v3": latent(
        Turn(interleaved=True, interleaved_key="rope_interleave", part="qk_rope_head_dim"),
        key_heads=128,
        max_length=4096,
    ),
    "glm4_moe_lite": latent(
        Turn(interleaved=True, interleaved_key="rope_interleave", part="qk_rope_head_dim"),
        key_heads=20,
        max_length=202_752,
    ),
    "minicpm3": latent(
        Turn(part="qk_rope_head_dim"), embedding=ByKey("scale_emb", 12.0), key_heads=40, max_length=32_768, tied=True
    ),
    "youtu": latent(
        Turn(interleaved=True, interleaved_key="rope_interleave", part="qk_rope_head_dim"),
        key_heads=16,
        max_length=131_072,
        tied=True,
    ),
}
"""Latent attention: heads keep the features that turn apart."""

_MROPE = {"mrope": "default"}
AXES: dict[str, Family] = {
    "glm4v_text": family(
        turning(turn=Turn(interleaved=True, whole=False, sections=(8, 12, 12)), renamed=_MROPE),
        key_heads=2,
        max_length=32_768,
        tied=True,
    ),
    "qwen2_5_vl_text": family(
        turning(1e6, Turn(sections=(16, 24, 24)), renamed=_MROPE), key_heads=8, max_length=32_768, tied=True
    ),
    "qwen2_vl_text": family(
        turning(1e6, Turn(sections=(16, 24, 24)), renamed=_MROPE), key_heads=8, max_length=32_768, tied=True
    ),
    "qwen3_5_moe_text": family(
        turning(
            turn=Turn(whole=False, sections=(11, 11, 10), layout="interleaved"),
            share=0.25,
            layers=ByKind(4, "full_attention_interval", others="linear_attention"),
        ),
        key_heads=2,
        head_dim=256,
        max_length=32_768,
    ),
    "qwen3_5_text": family(
        turning(
            turn=Turn(whole=False, sections=(11, 11, 10), layout="interleaved"),
            share=0.25,
            layers=ByKind(4, "full_attention_interval", others="linear_attention"),
        ),
        key_heads=4,
        head_dim=256,
        max_length=32_768,
    ),
    "qwen3_vl_moe_text": family(
        turning(500_000.0, Turn(sections=(24, 20, 20), layout="interleaved")),
        key_heads=16,
        max_length=128_000,
        tied=True,
    ),
    "qwen3_vl_text": family(
        turning(500_000.0, Turn(sections=(24, 20, 20), layout="interleaved")),
        key_heads=32,
        head_dim=128,
        max_length=128_000,
        tied=True,
    ),
}
"""Tokens have three coordinates, of time, height and width (M-RoPE)."""

ROTARY: dict[str, Family] = {**OTHERWISE, **BY_LAYER, **LATENT, **AXES}
