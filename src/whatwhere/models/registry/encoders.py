"""Model types of BERT's kind: bidirectional encoders with learned positions, or with positions in the scores.

Numbers are what transformers 5 takes where a key is absent.
"""

from typing import Any

from whatwhere.models.configuration.input_keys import LearnedKeys
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.model_type import LLAMA_KEYS, KeyNames, ModelType
from whatwhere.models.configuration.rotary_keys import RotaryDimKeys
from whatwhere.models.configuration.score_keys import DeBERTaKeys, T5Keys
from whatwhere.models.configuration.softmax_scale import Disentangled
from whatwhere.models.registry.llama import EMBEDDING_NORM, SEGMENTS
from whatwhere.what.token_ids import FIXED_AFTER_PADDING, LEARNED_AFTER_PADDING

TIED: dict[str, Any] = {"tie_word_embeddings": True}
ENCODER: KeyNames = {name: LLAMA_KEYS[name] for name in LLAMA_KEYS if name not in ("key_heads", "head_dim")}
DISTIL: KeyNames = {
    **ENCODER,
    "dim": ("dim", "hidden_size"),
    "layers": ("n_layers", "num_hidden_layers"),
    "num_heads": ("n_heads", "num_attention_heads"),
}
SEGMENTS_ALONE = "a table of segments (token_type_ids) follows the token table and is not built"
PADDED = "positions count tokens that are not padding, from pad_token_id + 1 on; padding has row pad_token_id"
ABSOLUTE = LearnedKeys(only=("position_embedding_type", "absolute"))
AFTER_PADDING = LearnedKeys("padding", counted=True, only=("position_embedding_type", "absolute"))


def bert_like(*notes: str, segments: int | None = 2, causal: bool | str = "is_decoder", **others: Any) -> ModelType:
    """Return a model type with BERT's learned positions, counted from 0.

    Args:
        notes: what follows the token table; none is BERT's segments and norm.
        segments, causal: as in ModelType.
        others: fields of ModelType; `defaults` are added to BERT's.
    """
    defaults = {**TIED, "max_position_embeddings": 512, "pad_token_id": 0, **others.pop("defaults", {})}
    fields: dict[str, Any] = {"readers": (ABSOLUTE,), "patch": "learned", **others}
    return ModelType(
        names=ENCODER, defaults=defaults, segments=segments, causal=causal, notes=notes or (SEGMENTS,), **fields
    )


def roberta_like(padding_idx: int, *notes: str, length: int = 512, **others: Any) -> ModelType:
    """Return a model type with RoBERTa's learned positions, counted from the padding id."""
    defaults = {"max_position_embeddings": length, "pad_token_id": padding_idx}
    fields = {"readers": (AFTER_PADDING,), **others}
    return bert_like(*(notes or (SEGMENTS,)), PADDED, defaults=defaults, **fields)


def deberta_like(shared_rows: bool) -> ModelType:
    """Return a model type with DeBERTa's disentangled attention, beside learned positions or without them."""
    readers = (LearnedKeys(unless="position_biased_input"), DeBERTaKeys(shared_rows))
    return bert_like(readers=readers, scale=Disentangled(), segments=0, causal=False, patch=None)


ENCODERS: dict[str, ModelType] = {
    "albert": bert_like(token_dim="embedding_size", defaults={"embedding_size": 128}, causal=False),
    "bert": bert_like(),
    "bert-generation": bert_like(EMBEDDING_NORM, segments=None),
    "camembert": roberta_like(LEARNED_AFTER_PADDING["camembert"]),
    "data2vec-text": roberta_like(LEARNED_AFTER_PADDING["data2vec-text"]),
    "deberta": deberta_like(shared_rows=False),
    "deberta-v2": deberta_like(shared_rows=True),
    "distilbert": ModelType(
        (LearnedKeys(),),
        DISTIL,
        {**TIED, "max_position_embeddings": 512, "pad_token_id": 0},
        causal=False,
        unread={"sinusoidal_pos_embds": ANY},  # the initial values of the table, before training
        patch="learned",
        notes=(EMBEDDING_NORM,),
    ),
    "electra": bert_like(token_dim="embedding_size", defaults={"embedding_size": 128}),
    "ernie": bert_like(SEGMENTS, "a table of tasks may be added besides and is not built"),
    "megatron-bert": bert_like(SEGMENTS_ALONE),
    "mpnet": roberta_like(
        FIXED_AFTER_PADDING["mpnet"],
        EMBEDDING_NORM,
        readers=(AFTER_PADDING, T5Keys(scaled=True, bidirectional=True, buckets=32)),
        segments=None,
        causal=False,
        patch=None,
    ),
    "roberta": roberta_like(LEARNED_AFTER_PADDING["roberta"]),
    "roberta-prelayernorm": roberta_like(LEARNED_AFTER_PADDING["roberta-prelayernorm"]),
    "roformer": bert_like(
        readers=(RotaryDimKeys(None, "rotary_value"),),
        token_dim="embedding_size",
        defaults={"max_position_embeddings": 1536},
        patch=None,
    ),
    "xlm-roberta": roberta_like(LEARNED_AFTER_PADDING["xlm-roberta"]),
    "xlm-roberta-xl": roberta_like(LEARNED_AFTER_PADDING["xlm-roberta-xl"], SEGMENTS_ALONE, length=514, segments=1),
}
