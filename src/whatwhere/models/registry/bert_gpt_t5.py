"""Model types with keys of their own: encoders such as BERT, decoders such as GPT-2, encoder-decoders such as T5.

Numbers are what transformers 5 takes where a key is absent.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from whatwhere.models.configuration.head_keys import MptKeyHeads
from whatwhere.models.configuration.input_keys import FlaggedSqrtDimScale, LearnedKeys, SinusoidalKeys, SqrtDimScale
from whatwhere.models.configuration.keys import ANY
from whatwhere.models.configuration.layer_types import GlobalLocal
from whatwhere.models.configuration.model_type import LLAMA_KEYS, KeyNames, ModelType, MultiQuery, Reader
from whatwhere.models.configuration.rotary_keys import Head, RopeDefaults, RopeKeys
from whatwhere.models.configuration.score_keys import ALiBiKeys, DeBERTaKeys, FalconKeys, MptKeys, T5Keys
from whatwhere.models.configuration.softmax_scale import DeBERTaScale, GPT2Scale, NoScale, ScaleKey
from whatwhere.models.configuration.theta_keys import RotaryDimKeys
from whatwhere.models.registry.llama import EMBEDDING_NORM, SEGMENTS
from whatwhere.what.token_ids import FIXED_AFTER_PADDING, FIXED_BEFORE_TWO, LEARNED_AFTER_PADDING

TIED: dict[str, object] = {"tie_word_embeddings": True}
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


def bert_like(
    *notes: str,
    readers: tuple[Reader, ...] = (ABSOLUTE,),
    defaults: Mapping[str, object] | None = None,
    segments: int | None = 2,
    causal: bool | str = "is_decoder",
    **others: Any,
) -> ModelType:
    """Return a model type with BERT's learned positions, counted from 0.

    Args:
        notes: what follows the token table; none is BERT's segments and norm.
        defaults: further ones, or others than BERT's.
        readers, segments, causal: as in ModelType.
        others: further fields of ModelType.
    """
    return ModelType(
        readers,
        ENCODER,
        {**TIED, "max_position_embeddings": 512, "pad_token_id": 0, **(defaults or {})},
        segments=segments,
        causal=causal,
        notes=notes or (SEGMENTS,),
        **others,
    )


def roberta_like(
    padding_idx: int, *notes: str, length: int = 512, readers: tuple[Reader, ...] = (AFTER_PADDING,), **others: Any
) -> ModelType:
    """Return a model type with RoBERTa's learned positions, which are counted from the padding id."""
    defaults = {"max_position_embeddings": length, "pad_token_id": padding_idx}
    return bert_like(*(notes or (SEGMENTS,)), PADDED, readers=readers, defaults=defaults, **others)


def deberta_like(shared_rows: bool) -> ModelType:
    """Return a model type with DeBERTa's disentangled attention, with or without learned positions."""
    readers = (LearnedKeys(unless="position_biased_input"), DeBERTaKeys(shared_rows))
    return bert_like(readers=readers, scale=DeBERTaScale(counts_none=not shared_rows), segments=0, causal=False)


ENCODERS: dict[str, ModelType] = {
    "albert": bert_like(token_dim="embedding_size", defaults={"embedding_size": 128}, causal=False),
    "bert": bert_like(),
    "bert-generation": bert_like(EMBEDDING_NORM, segments=None),
    **{
        name: roberta_like(LEARNED_AFTER_PADDING[name])
        for name in ("camembert", "data2vec-text", "roberta", "roberta-prelayernorm", "xlm-roberta")
    },
    "deberta": deberta_like(shared_rows=False),
    "deberta-v2": deberta_like(shared_rows=True),
    "distilbert": ModelType(
        (LearnedKeys(),),
        DISTIL,
        {**TIED, "max_position_embeddings": 512, "pad_token_id": 0},
        causal=False,
        unread={"sinusoidal_pos_embds": ANY},  # the initial values of the table, before training
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
    ),
    "roformer": bert_like(
        readers=(RotaryDimKeys(None, unrotated="rotary_value"),),
        token_dim="embedding_size",
        defaults={"max_position_embeddings": 1536},
    ),
    "xmod": roberta_like(LEARNED_AFTER_PADDING["xmod"]),
    "xlm-roberta-xl": roberta_like(LEARNED_AFTER_PADDING["xlm-roberta-xl"], SEGMENTS_ALONE, length=514, segments=1),
}

UNTIED: dict[str, object] = {"tie_word_embeddings": False}
OUTPUT_SCALED = "where the output projection is tied, it multiplies hidden * dim ** -0.5"

COMMON: KeyNames = {name: LLAMA_KEYS[name] for name in ("vocab_size", "padding_idx", "tied")}
GPT2: KeyNames = {
    **COMMON,
    "dim": ("n_embd", "hidden_size"),
    "layers": ("n_layer", "num_hidden_layers"),
    "num_heads": ("n_head", "num_attention_heads"),
    "max_length": ("n_positions", "max_position_embeddings"),
}
FALCON: KeyNames = {
    **ENCODER,
    "dim": ("hidden_size", "n_embed"),
    "layers": ("num_hidden_layers", "n_layer"),
    "num_heads": ("num_attention_heads", "n_head"),
}
BLOOM: KeyNames = {
    **COMMON,
    "dim": ("hidden_size", "n_embed"),
    "layers": ("n_layer", "num_hidden_layers"),
    "num_heads": ("n_head", "num_attention_heads"),
}
MPT: KeyNames = {
    **COMMON,
    "dim": ("d_model", "hidden_size"),
    "layers": ("n_layers", "num_hidden_layers"),
    "num_heads": ("n_heads", "num_attention_heads"),
    "max_length": ("max_seq_len",),
}
NEO: KeyNames = {
    **ENCODER,
    "layers": ("num_layers", "num_hidden_layers"),
    "num_heads": ("num_heads", "num_attention_heads"),
}
XGLM: KeyNames = {
    **ENCODER,
    "dim": ("d_model", "hidden_size"),
    "layers": ("num_layers", "num_hidden_layers"),
    "num_heads": ("attention_heads", "num_attention_heads"),
}
T5: KeyNames = {
    **COMMON,
    "dim": ("d_model", "hidden_size"),
    "num_heads": ("num_heads", "num_attention_heads"),
    "head_dim": ("d_kv", "head_dim"),
}
T5_PARTS: dict[str, KeyNames] = {
    "decoder": {"layers": ("num_decoder_layers",), "layers_else": ("num_layers", "num_hidden_layers")},
    "encoder": {"layers": ("num_layers", "num_hidden_layers")},
}


def t5(reader: T5Keys | None = None, **defaults: object) -> ModelType:
    """Return a model type with T5's keys, an encoder and a decoder."""
    return ModelType(
        (reader or T5Keys(),),
        T5,
        {**TIED, "pad_token_id": 0, "d_kv": 64, **defaults},
        scale=NoScale(),
        parts=T5_PARTS,
        unread={"n_positions": ANY},  # the length of its training, not a limit
        notes=(OUTPUT_SCALED, "cross-attention has no position"),
    )


DECODERS: dict[str, ModelType] = {
    "biogpt": ModelType(
        (LearnedKeys(2),),
        ENCODER,
        {**TIED, "max_position_embeddings": 1024, "pad_token_id": 1},
        embedding=FlaggedSqrtDimScale(default=True),
    ),
    "bloom": ModelType((ALiBiKeys(),), BLOOM, TIED, unread={"offset_alibi": ANY}, notes=(EMBEDDING_NORM,)),
    **dict.fromkeys(
        ("codegen", "gptj"),
        ModelType(
            (RotaryDimKeys(),),
            GPT2,
            {**UNTIED, "n_positions": 2048, "rotary_dim": 64},
        ),
    ),
    "ctrl": ModelType((SinusoidalKeys("half"),), GPT2, {**TIED, "n_positions": 256}, embedding=SqrtDimScale()),
    "falcon": ModelType(
        (FalconKeys(RopeKeys()),),
        FALCON,
        {**TIED, "max_position_embeddings": 2048},
        key_heads=MultiQuery(grouped=True),
    ),
    "gpt2": ModelType((LearnedKeys(key="n_positions"),), GPT2, {**TIED, "n_positions": 1024}, scale=GPT2Scale()),
    "gpt_bigcode": ModelType(
        (LearnedKeys(key="n_positions"),),
        GPT2,
        {**TIED, "n_positions": 1024},
        scale=GPT2Scale(by_layer=False),
        key_heads=MultiQuery(),
    ),
    "gpt_neo": ModelType(
        (LearnedKeys(),),
        NEO,
        {
            **TIED,
            "max_position_embeddings": 2048,
            "attention_types": [[["global", "local"], 12]],
            "window_size": 256,
        },
        scale=NoScale(),
        windows=GlobalLocal(),
    ),
    "gpt_neox": ModelType(
        (
            RopeKeys(
                Head(partial=True),
                {"": RopeDefaults(theta_key="rotary_emb_base", fraction=0.25, fraction_key="rotary_pct")},
                fails_at_null=True,
            ),
        ),
        ENCODER,
        {**UNTIED, "max_position_embeddings": 2048},
    ),
    "gpt_neox_japanese": ModelType(
        (RopeKeys(Head(partial=True), {"": RopeDefaults(theta_key="rotary_emb_base", fraction_key="rotary_pct")}),),
        ENCODER,
        {**TIED, "max_position_embeddings": 2048},
    ),
    "mpt": ModelType(
        (MptKeys(),),
        MPT,
        {**TIED, "max_seq_len": 2048},
        scale=ScaleKey("softmax_scale", None, "attn_config"),
        key_heads=MptKeyHeads(),
    ),
    "openai-gpt": ModelType((LearnedKeys(key="n_positions"),), GPT2, {**TIED, "n_positions": 512}),
    "opt": ModelType(
        (LearnedKeys(2, by_tokens=False),),
        ENCODER,
        {**TIED, "max_position_embeddings": 2048, "pad_token_id": 1},
        token_dim="word_embed_proj_dim",
    ),
    "xglm": ModelType(
        (SinusoidalKeys("tensor2tensor", 2),),
        XGLM,
        {**TIED, "max_position_embeddings": 2048, "pad_token_id": FIXED_BEFORE_TWO["xglm"]},
        embedding=FlaggedSqrtDimScale(default=True),
    ),
}


def two_parts(
    reader: LearnedKeys | SinusoidalKeys, length: int, padding_idx: int, scaled: bool, *notes: str
) -> ModelType:
    """Return a model type with BART's keys, which has an encoder and a decoder with sizes of their own."""
    names: KeyNames = {**COMMON, "dim": ("d_model", "hidden_size"), "max_length": ("max_position_embeddings",)}
    parts: dict[str, KeyNames] = {
        "decoder": {"layers": ("decoder_layers",), "num_heads": ("decoder_attention_heads",)},
        "encoder": {
            "layers": ("encoder_layers", "num_hidden_layers"),
            "num_heads": ("encoder_attention_heads", "num_attention_heads"),
        },
    }
    defaults = {**TIED, "max_position_embeddings": length, "pad_token_id": padding_idx}
    return ModelType(
        (reader,),
        names,
        defaults,
        embedding=FlaggedSqrtDimScale(default=scaled),
        parts=parts,
        unread={"static_position_embeddings": isinstance(reader, SinusoidalKeys), "extra_pos_embeddings": ANY},
        notes=(*notes, "cross-attention has no position"),
    )


ENCODER_DECODERS: dict[str, ModelType] = {
    **dict.fromkeys(("bart", "mbart", "mvp"), two_parts(LearnedKeys(2), 1024, 1, False, EMBEDDING_NORM)),
    "blenderbot": two_parts(LearnedKeys(), 128, 0, False),
    **{
        name: two_parts(SinusoidalKeys("tensor2tensor", "padding"), 1024, FIXED_AFTER_PADDING[name], True)
        for name in ("m2m_100", "nllb-moe")
    },
    "marian": two_parts(SinusoidalKeys("half"), 1024, 58_100, False),
    "pegasus": two_parts(SinusoidalKeys("half"), 1024, 0, False),
    "plbart": two_parts(LearnedKeys(2), 1024, 1, True, EMBEDDING_NORM),
    "switch_transformers": t5(num_decoder_layers=12),
    **dict.fromkeys(("mt5", "t5"), t5()),
    "umt5": t5(T5Keys(shared=False)),
    "whisper": replace(
        two_parts(
            LearnedKeys(key="max_target_positions"),
            448,
            50_256,
            False,
            "the encoder takes audio: only the decoder is read",
        ),
        names={**COMMON, "dim": ("d_model", "hidden_size"), "max_length": ("max_target_positions",)},
        defaults={**TIED, "max_target_positions": 448, "pad_token_id": 50_256},
        parts={"decoder": {"layers": ("decoder_layers",), "num_heads": ("decoder_attention_heads",)}},
        unread={"max_source_positions": ANY, "encoder_layers": ANY, "encoder_attention_heads": ANY},
    ),
}
