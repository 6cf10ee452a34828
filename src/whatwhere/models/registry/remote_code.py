"""Model types whose code is published beside their files, and is not in transformers.

Numbers are what that code takes where a key is absent.
"""

from collections.abc import Mapping
from dataclasses import replace

from whatwhere.models.configuration.input_keys import EmbeddingScaleKey
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.model_type import LLAMA_KEYS, KeyNames, ModelType, MultiQuery
from whatwhere.models.configuration.remote_keys import (
    GLMKeyHeads,
    GLMRotary,
    GteRotary,
    InternLMRotary,
    QwenLogN,
    QwenRotary,
    RotaryOrALiBi,
)
from whatwhere.models.configuration.rotary_keys import Head, RopeDefaults, RopeKeys
from whatwhere.models.configuration.theta_keys import RotaryDimKeys
from whatwhere.models.registry.bert_gpt_t5 import DECODERS, GPT2
from whatwhere.models.registry.llama import LLAMA_LIKE, llama_like, rope
from whatwhere.models.registry.llama_variants import LATENT, LLAMA_VARIANTS

_LAYERS: KeyNames = {**LLAMA_KEYS, "layers": ("num_layers", "num_hidden_layers")}
_ONE_SIZE: KeyNames = {name: keys for name, keys in LLAMA_KEYS.items() if name != "key_heads"}

REMOTE_CODE: Mapping[str, ModelType] = {
    "Yi": llama_like(key_heads=4, max_length=4096),
    "aquila": llama_like(max_length=2048),
    "baichuan": ModelType((RotaryOrALiBi(),), _ONE_SIZE, {"tie_word_embeddings": False}),
    "bailing_moe": llama_like(rope(head=Head(partial=True, rotary_dim_unread="rotary_dim")), max_length=32_768),
    "chatglm": ModelType(
        (GLMRotary(),),
        {
            **_LAYERS,
            "vocab_size": ("padded_vocab_size", "vocab_size"),
            "head_dim": ("kv_channels",),
            "max_length": ("seq_length",),
        },
        {"tie_word_embeddings": False, "kv_channels": 128, "seq_length": 2048},
        key_heads=GLMKeyHeads(),
        # the factor of each layer is divided by again, and `original_rope` is about a buffer that is not read
        unread={"apply_query_key_layer_scaling": ANY, "original_rope": ANY},
    ),
    "deepseek": llama_like(unread={"qk_rope_head_dim": 0}, max_length=2048),
    "exaone": replace(llama_like(max_length=2048), names=_LAYERS),
    "internlm": ModelType(
        (InternLMRotary(),),
        _ONE_SIZE,
        {"tie_word_embeddings": False, "max_position_embeddings": 2048, "pad_token_id": 0},
    ),
    "internlm2": llama_like(max_length=2048, padding_idx=0),
    "kimi_k2": replace(LATENT["deepseek_v3"]),
    "mimo": replace(LLAMA_LIKE["qwen2"]),
    "minicpm": llama_like(embedding=EmbeddingScaleKey("scale_emb"), max_length=2048, tied=True),
    "new": replace(
        LLAMA_LIKE["gte"], readers=(GteRotary(),), defaults={**LLAMA_LIKE["gte"].defaults, "pad_token_id": 0}
    ),
    "orion": llama_like(max_length=4096, padding_idx=0),
    "phi-msft": ModelType(
        (RotaryDimKeys(interleaved=False),),
        {**GPT2, "key_heads": ("n_head_kv",)},
        {"tie_word_embeddings": False, "n_positions": 2048},
        unread={"flash_rotary": ANY},
    ),
    "phi3_v": replace(LLAMA_VARIANTS["phi3"]),
    "phi4mm": replace(LLAMA_VARIANTS["phi3"]),
    "qwen": ModelType(
        (QwenRotary(),),
        {**_ONE_SIZE, "head_dim": ("kv_channels",)},
        {"vocab_size": 151_936, "max_position_embeddings": 8192, "kv_channels": 128, "tie_word_embeddings": False},
        temperature=QwenLogN(),
        notes=("its code raises theta and multiplies queries in evaluation only",),
    ),
    "RefinedWeb": replace(
        DECODERS["falcon"],
        names={**DECODERS["falcon"].names, "key_heads": ("n_head_kv",)},
        defaults={"tie_word_embeddings": True},
        key_heads=None,
    ),
    "RefinedWebModel": replace(DECODERS["falcon"], defaults={"tie_word_embeddings": True}, key_heads=MultiQuery()),
    "stablelm_epoch": llama_like(
        RopeKeys(Head(partial=True), {"": RopeDefaults(fraction=0.25, fraction_key="rope_pct")}),
        max_length=4096,
    ),
    "xverse": llama_like(max_length=8192),
}
"""Hugging Face's `model_type` -> how its configuration is read. `patch` does not know their modules."""

UNREAD: Mapping[str, str] = {
    "nemotron-nas": "numbers of heads, and whether there is attention, differ between layers (block_configs)",
    "openelm": "numbers of heads differ between layers, by lists of its own",
    "phi3small": "every second layer attends to nearby tokens and to blocks of keys at a stride that differs by head",
}
"""Types that are not read -> the reason."""
