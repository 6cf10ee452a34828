"""Model types that turn heads whole, features half a head apart, all layers alike: Llama's kind.

Numbers are what transformers 5 takes where a key is absent.
"""

from typing import Any

from whatwhere.interop.huggingface.families.make import (
    GEMMA2,
    QUERY_KEY_NORM_AFTER,
    SENTENCE_KINDS,
    family,
    turning,
)
from whatwhere.interop.huggingface.family import Family
from whatwhere.interop.huggingface.inputs import Always, ByKey
from whatwhere.interop.huggingface.scales import Multiplier

LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
HUNYUAN_BESIDE = {"use_rotary_pos_emb": True, "position_embedding_xdrope": False}
HUNYUAN = ("alpha", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
GRANITE: dict[str, Any] = {
    "scale": Multiplier(),
    "embedding": ByKey("embedding_multiplier"),
    "max_length": 2048,
}

WHOLE: dict[str, Family] = {
    "apertus": family(
        turning(
            12e6, parameters={**LLAMA3, "rope_theta": 12e6, "factor": 8.0, "original_max_position_embeddings": 8192}
        ),
        max_length=65_536,
        padding_id=3,
    ),
    "arcee": family(max_length=4096),
    "aria_text": family(max_length=2048, padding_id=2),
    "bitnet": family(turning(500_000.0), key_heads=5, max_length=2048),
    "cwm": family(
        turning(
            1e6, parameters={**LLAMA3, "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 8192}
        ),
        key_heads=8,
        head_dim=128,
        max_length=131_072,
    ),
    "diffllama": family(max_length=2048),
    "doge": family(max_length=2048),
    "dots1": family(key_heads=32, max_length=2048),
    "eurobert": family(max_length=8192, padding_id=128_001),
    "flex_olmo": family(turning(500_000.0), max_length=4096, padding_id=100_277),
    "gemma": family(
        embedding=Always(rounded=True), key_heads=16, head_dim=256, max_length=8192, padding_id=0, tied=True
    ),
    "gemma2": family(**GEMMA2, max_length=8192),
    "gpt_oss": family(
        turning(
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
        notes=("each head has a learned sink beside the keys, which is not built",),
        key_heads=8,
        head_dim=64,
        max_length=131_072,
    ),
    "granite": family(**GRANITE),
    "granitemoe": family(**GRANITE),
    "granitemoeshared": family(**GRANITE),
    "gte": family(turning(160_000.0), notes=(SENTENCE_KINDS,), max_length=8192, padding_id=1, tied=True),
    "hunyuan_v1_dense": family(
        turning(extra=HUNYUAN), notes=(QUERY_KEY_NORM_AFTER,), beside=HUNYUAN_BESIDE, max_length=2048, padding_id=0
    ),
    "hunyuan_v1_moe": family(
        turning(extra=HUNYUAN), notes=(QUERY_KEY_NORM_AFTER,), beside=HUNYUAN_BESIDE, max_length=2048, padding_id=0
    ),
    "hy_v3": family(turning(11_158_840.0), key_heads=8, head_dim=128, max_length=131_072),
    "hyperclovax": family(scale=Multiplier(default=None), embedding=ByKey("embedding_multiplier"), max_length=2048),
    "internlm3": family(key_heads=2, head_dim=128, max_length=32_768, padding_id=2),
    "jais2": family(max_length=8192),
    "llama": family(max_length=2048),
    "ministral": family(key_heads=8, max_length=131_072),
    "ministral3": family(
        turning(
            1e6,
            parameters={
                "rope_type": "yarn",
                "factor": 16.0,
                "original_max_position_embeddings": 16_384,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
            extra=("max_position_embeddings",),
            refused={"llama_4_scaling_beta": "multiplies queries by a step of their position"},
        ),
        key_heads=8,
        head_dim=128,
        max_length=262_144,
        padding_id=11,
    ),
    "mistral": family(key_heads=8, max_length=131_072),
    "mixtral": family(turning(1e6), key_heads=8, max_length=131_072),
    "nomic_bert": family(turning(1000.0), notes=(SENTENCE_KINDS,), max_length=2048, padding_id=0, tied=True),
    "olmo": family(max_length=2048, padding_id=1),
    "olmo2": family(max_length=2048, padding_id=1),
    "olmoe": family(max_length=4096, padding_id=1),
    "phimoe": family(turning(1e6, extra=("short_mscale", "long_mscale")), key_heads=8, max_length=131_072),
    "qwen2": family(key_heads=32, max_length=32_768),
    "qwen2_moe": family(key_heads=16, max_length=32_768),
    "qwen3": family(key_heads=32, head_dim=128, max_length=32_768),
    "qwen3_moe": family(key_heads=4, max_length=32_768),
    "seed_oss": family(key_heads=8, head_dim=128, max_length=524_288, padding_id=1),
    "solar_open": family(turning(1e6), key_heads=8, head_dim=128, max_length=131_072),
    "starcoder2": family(key_heads=2, max_length=4096, tied=True),
    "vaultgemma": family(**GEMMA2, max_length=8192),
}
