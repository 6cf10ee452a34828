"""Models of two parts: for long texts, or of two configurations.

Numbers are what transformers 5 takes where a key is absent.
"""

from collections.abc import Mapping
from dataclasses import replace

from whatwhere.models.configuration.input_keys import FlaggedSqrtDimScale, LearnedKeys, SinusoidalKeys
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.model_type import LLAMA_KEYS, ModelType
from whatwhere.models.configuration.rotary_keys import Head
from whatwhere.models.configuration.score_keys import T5Keys
from whatwhere.models.configuration.softmax_scale import NoScale
from whatwhere.models.registry.bert_gpt_t5 import COMMON, T5, T5_PARTS, TIED, t5, two_parts
from whatwhere.models.registry.llama import EMBEDDING_NORM, EVERY_SECOND, gemma2_like, llama_like, rope

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

SPEECH = (
    "left_max_position_embeddings", "max_source_positions", "num_conv_pos_embedding_groups", "num_conv_pos_embeddings",
    "position_embeddings_type", "right_max_position_embeddings", "rotary_embedding_base",
    *(f"speech_encoder_{name}" for name in ("attention_heads", "chunk_size", "layers", "left_chunk_num")),
    *(f"t2u_{name}" for name in ("decoder_attention_heads", "decoder_layers", "encoder_attention_heads",
                                 "encoder_layers", "max_position_embeddings", "pad_token_id", "vocab_size")),
)  # fmt: skip
"""Keys of the other encoder and decoder of SeamlessM4T, of speech and of units."""


def seamless(length: int) -> ModelType:
    """Return SeamlessM4T, of which text is read.

    Args:
        length: number of positions, if the key is absent.
    """
    model_type = two_parts(
        SinusoidalKeys("tensor2tensor", "padding"),
        length,
        0,
        True,
        "text alone is read: its speech encoder and its decoder of units have positions of their own",
    )
    names = {**COMMON, "dim": ("hidden_size",), "max_length": ("max_position_embeddings",)}
    return replace(model_type, names=names, unread=dict.fromkeys(SPEECH, ANY))


SOUND = "its encoder takes sound: only the decoder is read"
_moonshine = llama_like(
    rope(head=Head(interleaved=True, partial=True), fraction=0.9), notes=(SOUND,), max_length=512, tied=True
)
_DECODER_KEYS = {
    name: (f"decoder_{LLAMA_KEYS[name][0]}", *LLAMA_KEYS[name]) for name in ("layers", "num_heads", "key_heads")
}

HEARING: Mapping[str, ModelType] = {
    "cohere_asr": ModelType(
        (LearnedKeys(),),
        {name: LLAMA_KEYS[name] for name in LLAMA_KEYS if name not in ("layers", "num_heads", "key_heads")}
        | {"max_length": ("max_position_embeddings", "max_sequence_length")},
        {"tie_word_embeddings": False, "max_position_embeddings": 1024, "pad_token_id": 2},
        parts={
            "decoder": {name: LLAMA_KEYS[name] for name in ("num_heads", "key_heads")}
            | {"layers": ("num_hidden_layers", "num_layers")}
        },
        unread={"learn_positional_encodings": ANY},  # its table is in the file, learned or not
        notes=(SOUND, EMBEDDING_NORM, "cross-attention has no position"),
    ),
    "moonshine": replace(
        _moonshine,
        names={name: LLAMA_KEYS[name] for name in LLAMA_KEYS if name not in _DECODER_KEYS},
        parts={"decoder": _DECODER_KEYS},
        unread={
            **dict.fromkeys(("encoder_num_attention_heads", "encoder_num_hidden_layers"), ANY),
            "encoder_num_key_value_heads": ANY,
        },
    ),
    "speech_to_text": decoder_alone(
        replace(
            two_parts(SinusoidalKeys("tensor2tensor", "padding"), 1024, 1, True, SOUND),
            defaults={**TIED, "max_target_positions": 1024, "pad_token_id": 1},
        ),
        "max_target_positions",
    ),
}
"""Types whose encoder takes sound."""

TWO_PARTS: Mapping[str, ModelType] = {
    **HEARING,
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
    "pegasus_x": decoder_alone(two_parts(SinusoidalKeys("tensor2tensor"), 16_384, 0, True, LOCAL)),
    "pix2struct_text_model": ModelType(
        (T5Keys(bidirectional=False),),
        {**T5, "dim": ("hidden_size",), "layers": ("num_layers", "num_hidden_layers")},
        {"tie_word_embeddings": False, "pad_token_id": 0, "d_kv": 64},
        scale=NoScale(),
        notes=("cross-attention has no position",),
    ),
    "pop2piano": replace(t5(), notes=(*t5().notes, "its encoder takes sounds in place of tokens"), can_tie=False),
    "seamless_m4t": seamless(1024),
    "seamless_m4t_v2": seamless(4096),
    "udop": replace(
        _t5_decoder,
        unread={**_t5_decoder.unread, "max_2d_position_embeddings": ANY, "relative_bias_args": ANY},
        notes=(*_t5_decoder.notes, "the encoder adds biases of places on a page: only the decoder is read"),
    ),
}
"""Hugging Face's `model_type` -> how its configuration is read."""

NESTED: Mapping[str, ModelType] = {
    "dia_encoder": replace(
        llama_like(scale=NoScale(), causal=False, key_heads=16, head_dim=128, max_length=1024), can_tie=False
    ),
    "t5_gemma_module": gemma2_like(windows=replace(EVERY_SECOND, added=1, added_to="encoder"), max_length=8192),
}
"""The same for types that occur as one part of another configuration alone."""
