"""Texts of models that also take pictures, video or sound, where transformers has a type of its own for the text.

Numbers are what transformers 5 takes where a key is absent.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from whatwhere.models.configuration.input_keys import (
    EmbeddingScaleKey,
    FlaggedSqrtDimScale,
    LearnedKeys,
    SinusoidalKeys,
)
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.layer_types import ByType, FromLayer, Windows
from whatwhere.models.configuration.model_type import KeyNames, ModelType
from whatwhere.models.configuration.rotary_keys import Head
from whatwhere.models.configuration.softmax_scale import ScaleKey
from whatwhere.models.configuration.theta_keys import ThetaByLayer
from whatwhere.models.registry.bert_gpt_t5 import COMMON, TIED, bert_like
from whatwhere.models.registry.llama import BY_TYPE, EMBEDDING_NORM, llama_like, rope
from whatwhere.models.registry.llama_variants import multimodal
from whatwhere.what.token_ids import FIXED_AFTER_PADDING

CROSS = "layers that attend to pictures or sound, which have no position of the text, are not built"
KOSMOS: KeyNames = {
    **COMMON,
    "dim": ("embed_dim", "hidden_size"),
    "layers": ("layers", "num_hidden_layers"),
    "num_heads": ("attention_heads", "num_attention_heads"),
    "max_length": ("max_position_embeddings",),
}
FORMULANET: KeyNames = {
    **COMMON,
    "dim": ("d_model", "hidden_size"),
    "layers": ("decoder_layers",),
    "num_heads": ("decoder_attention_heads",),
    "max_length": ("max_position_embeddings",),
}
THREE_INTERLEAVED = Head(sections=(24, 20, 20), axis_layout="interleaved")


def muse(theta: float, **others: Any) -> ModelType:
    """Return Muse, of whose layers every fourth, counted from the last, neither rotates nor has a window."""
    layers = ByType(4, rotated=("sliding_attention",), from_end=True)
    model_type = llama_like(
        windows=BY_TYPE,
        notes=("queries are multiplied by qk_scale_factor after their norm, before they are rotated", EMBEDDING_NORM),
        unread={"qk_scale_factor": ANY},
        sliding_window=2048,
        **others,
    )
    return replace(model_type, readers=(ThetaByLayer(rope(theta, layers=layers)),))


def kosmos(name: str, *notes: str, segments: int | None = None, **defaults: object) -> ModelType:
    """Return the text of Kosmos, with sinusoidal positions after the padding id."""
    return ModelType(
        (SinusoidalKeys("tensor2tensor", "padding"),),
        KOSMOS,
        {**TIED, "pad_token_id": FIXED_AFTER_PADDING[name], **defaults},
        embedding=FlaggedSqrtDimScale(default=True),
        segments=segments,
        notes=notes,
    )


IMAGE_TEXT: Mapping[str, ModelType] = {
    "blip_text_model": bert_like(
        EMBEDDING_NORM,
        CROSS,
        readers=(LearnedKeys(),),
        defaults={"is_decoder": True},
        segments=None,
    ),
    "chameleon": llama_like(max_length=4096),
    "cosmos3_edge_text": multimodal(
        THREE_INTERLEAVED, 1e8, key_heads=8, head_dim=128, max_length=131_072, padding_idx=0
    ),
    "deepseek_ocr2_text": llama_like(max_length=2048),
    "evolla": llama_like(rope(500_000.0), notes=(CROSS,), key_heads=8, max_length=8192),
    "glm4v_moe_text": multimodal(
        Head(partial=True, sections=(8, 12, 12)), fraction=0.5, key_heads=8, max_length=65_536
    ),
    "glm_ocr_text": multimodal(
        Head(interleaved=True, partial=True, sections=(8, 12, 12)), key_heads=8, max_length=131_072, tied=True
    ),
    "granite4_vision_text": llama_like(
        scale=ScaleKey(), embedding=EmbeddingScaleKey("embedding_multiplier"), max_length=2048
    ),
    "granite_docling_text": llama_like(
        scale=ScaleKey(default=0.015625),
        embedding=EmbeddingScaleKey("embedding_multiplier", 12.0),
        key_heads=4,
        max_length=32_768,
        padding_idx=100_256,
        tied=True,
    ),
    "kosmos_2_5_text_model": kosmos(
        "kosmos_2_5_text_model",
        "a table of segments (text or picture) is added to positions and not built",
        segments=2,
        max_position_embeddings=4096,
    ),
    "kosmos_2_text_model": kosmos("kosmos_2_text_model", max_position_embeddings=2048),
    "muse_glimmer_text": muse(10_000.0, key_heads=2, head_dim=128, max_length=131_072),
    "muse_spark_text": muse(500_000.0, key_heads=16, head_dim=64, max_length=1_048_576),
    "paddleocr_vl_text": multimodal(
        Head(sections=(16, 24, 24)),
        500_000.0,
        key_heads=2,
        head_dim=128,
        max_length=131_072,
        padding_idx=0,
        tied=True,
    ),
    "pp_formulanet_text": ModelType(
        (LearnedKeys(2),),
        FORMULANET,
        {"tie_word_embeddings": False, "max_position_embeddings": 2560, "pad_token_id": 1},
        embedding=FlaggedSqrtDimScale(default=True),
        unread={"encoder_layers": ANY, "encoder_attention_heads": ANY},
        notes=(EMBEDDING_NORM, "cross-attention has no position"),
    ),
    "qwen2_5_omni_text": multimodal(
        Head(sections=(16, 24, 24)),
        1e6,
        renamed={"mrope": "default"},
        windows=Windows(by=FromLayer(28), switch="use_sliding_window"),
        sliding_window=32_768,
        key_heads=4,
        max_length=32_768,
        tied=True,
    ),
    "qwen3_omni_moe_text": multimodal(THREE_INTERLEAVED, 1e6, key_heads=4, max_length=32_768),
}
"""Hugging Face's `model_type` of a text -> how its configuration is read."""
