"""Models of two parts: for long texts, or of two configurations.

Numbers are what transformers 5 takes where a key is absent.
"""

from collections.abc import Mapping
from dataclasses import replace

from whatwhere.models.configuration.input_keys import FlaggedSqrtDimScale, LearnedKeys
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.model_type import ModelType
from whatwhere.models.registry.bert_gpt_t5 import T5_PARTS, TIED, t5, two_parts
from whatwhere.models.registry.llama import EMBEDDING_NORM, EVERY_SECOND, gemma2_like

LOCAL = "the encoder attends within blocks and to global tokens, which is not built: only the decoder is read"
OTHER_PART = {"encoder_layers": ANY, "encoder_attention_heads": ANY, "max_source_positions": ANY}


def decoder_alone(model_type: ModelType, length_key: str | None = None, **unread: object) -> ModelType:
    """Return a model type of which the decoder is read alone.

    Args:
        model_type: of two parts.
        length_key: of the largest number of positions, if it differs from that of other types.
        unread: further keys that do not concern the decoder.
    """
    names = model_type.names if length_key is None else {**model_type.names, "max_length": (length_key,)}
    parts = {"decoder": model_type.parts["decoder"]}
    return replace(model_type, names=names, parts=parts, unread={**model_type.unread, **OTHER_PART, **unread})


_t5_decoder = replace(t5(), parts={"decoder": T5_PARTS["decoder"]})

TWO_PARTS: Mapping[str, ModelType] = {
    "led": decoder_alone(
        replace(
            two_parts(LearnedKeys(key="max_decoder_position_embeddings"), 1024, 1, False, EMBEDDING_NORM, LOCAL),
            defaults={**TIED, "max_decoder_position_embeddings": 1024, "pad_token_id": 1},
            embedding=FlaggedSqrtDimScale(),
        ),
        "max_decoder_position_embeddings",
        max_encoder_position_embeddings=ANY,
        attention_window=ANY,
    ),
    "longt5": replace(_t5_decoder, notes=(*_t5_decoder.notes, LOCAL)),
}
"""Hugging Face's `model_type` -> how its configuration is read and written."""

NESTED: Mapping[str, ModelType] = {
    "t5_gemma_module": gemma2_like(windows=replace(EVERY_SECOND, added=1, added_to="encoder"), max_length=8192),
}
"""The same for types that occur as one part of another configuration alone."""
