"""Model types with keys of their own that vary BERT, BART and the first decoders: further tables, sparse attention.

Numbers are what transformers 5 takes where a key is absent.
"""

from collections.abc import Mapping
from dataclasses import replace

from whatwhere.models.configuration.input_keys import (
    FlaggedSqrtDimScale,
    LearnedKeys,
    LearnedOrSinusoidalKeys,
    SinusoidalKeys,
)
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.model_type import ModelType
from whatwhere.models.configuration.score_keys import XLNetKeys
from whatwhere.models.registry.bert_gpt_t5 import COMMON, ENCODER, TIED, UNTIED, bert_like, two_parts
from whatwhere.models.registry.llama import EMBEDDING_NORM, SEGMENTS

SPARSE = (
    "attention is block sparse (attention_type) in long texts: blocks at the ends, near by and at random, which are "
    "not built"
)


def musicgen_like(*notes: str) -> ModelType:
    """Return the decoder of MusicGen, which adds the vectors of several codes of sound at each position."""
    return ModelType(
        (SinusoidalKeys("tensor2tensor", cosines_first=True),),
        ENCODER,
        {**UNTIED, "max_position_embeddings": 2048, "pad_token_id": 2048},
        extra_rows=1,
        can_tie=False,
        notes=(
            "each of num_codebooks codes has a token table and an output projection, and their vectors are added: one "
            "table is described",
            *notes,
        ),
    )


VARIANTS: Mapping[str, ModelType] = {
    "big_bird": bert_like(
        SEGMENTS,
        SPARSE,
        readers=(LearnedKeys(),),
        defaults={"max_position_embeddings": 4096},
        embedding=FlaggedSqrtDimScale("rescale_embeddings"),
    ),
    "bigbird_pegasus": two_parts(LearnedKeys(), 4096, 0, True, SPARSE),
    "blenderbot-small": two_parts(
        LearnedKeys(),
        512,
        0,
        False,
        "a norm is not built: of the sum in the encoder, but of the token vectors alone, without positions, in the "
        "decoder",
    ),
    "git": bert_like(
        EMBEDDING_NORM,
        "pictures come before the text, and their tokens attend in both directions",
        readers=(LearnedKeys(),),
        defaults={"max_position_embeddings": 1024, **UNTIED},
        segments=None,
        causal=True,
    ),
    "musicgen_decoder": musicgen_like(),
    "musicgen_melody_decoder": musicgen_like("vectors of text and melody come first, and have the first positions"),
    "rembert": bert_like(
        readers=(LearnedKeys(),),
        defaults={**UNTIED, "input_embedding_size": 256, "output_embedding_size": 1664},
        token_dim="input_embedding_size",
        output_dim="output_embedding_size",
        can_tie=False,
    ),
    "roc_bert": bert_like(
        SEGMENTS,
        "tables of shapes and of pronunciations, and a matrix that joins them with the token vectors, are not built",
        readers=(LearnedKeys(),),
    ),
    "trocr": ModelType(
        (LearnedOrSinusoidalKeys(LearnedKeys(2)),),
        {
            **COMMON,
            "dim": ("d_model", "hidden_size"),
            "layers": ("decoder_layers", "num_hidden_layers"),
            "num_heads": ("decoder_attention_heads", "num_attention_heads"),
            "max_length": ("max_position_embeddings",),
        },
        {**TIED, "max_position_embeddings": 512, "pad_token_id": 1},
        embedding=FlaggedSqrtDimScale(),
        notes=("a norm of the token vectors may follow the token table (layernorm_embedding) and is not built",),
    ),
    "xlnet": ModelType(
        (XLNetKeys(),),
        {
            **COMMON,
            "dim": ("d_model", "hidden_size"),
            "layers": ("n_layer", "num_hidden_layers"),
            "num_heads": ("n_head", "num_attention_heads"),
            "head_dim": ("d_head",),
        },
        {**TIED, "pad_token_id": 5},
        causal=("attn_type", "uni"),
        notes=("a bias by segments (token_type_ids) is not built",),
    ),
    "xlm": replace(
        bert_like(
            EMBEDDING_NORM,
            "a table of languages may be added besides and is not built",
            readers=(LearnedKeys(),),
            defaults={"pad_token_id": 2},
            segments=None,
            causal="causal",
        ),
        names={
            **ENCODER,
            "dim": ("emb_dim", "hidden_size"),
            "layers": ("n_layers", "num_hidden_layers"),
            "num_heads": ("n_heads", "num_attention_heads"),
            "vocab_size": ("vocab_size", "n_words"),
            "padding_idx": ("pad_token_id", "pad_index"),
        },
        unread={"sinusoidal_embeddings": ANY},  # the initial values of the table, before training
    ),
}
