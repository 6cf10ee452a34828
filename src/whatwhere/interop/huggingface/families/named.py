"""Model types whose keys go by names of their own. Numbers are what transformers 5 takes where a key is absent."""

from dataclasses import dataclass, replace
from typing import Any

from whatwhere.interop.huggingface.biases import ALiBiKeys, DeBERTaKeys, FalconKeys, MptKeys, T5Keys
from whatwhere.interop.huggingface.description import Description, Plan
from whatwhere.interop.huggingface.families.make import EMBEDDING_NORM, SENTENCE_KINDS
from whatwhere.interop.huggingface.family import LLAMA, Family, Names, Position, Sizes
from whatwhere.interop.huggingface.inputs import Always, IfFlagged, LearnedKeys, SinusoidalKeys
from whatwhere.interop.huggingface.keys import ANY, Keys
from whatwhere.interop.huggingface.rotary import RopeKeys, RopeSet, Turn
from whatwhere.interop.huggingface.scales import Disentangled, GPT2Scale, Multiplier, One
from whatwhere.where.query_key.rotary import Rotary

TIED: dict[str, Any] = {"tie_word_embeddings": True}
UNTIED: dict[str, Any] = {"tie_word_embeddings": False}
READOUT_SCALED = "logits are read out of hidden * dim ** -0.5 where the head is tied"

_COMMON: Names = {name: LLAMA[name] for name in ("vocab_size", "padding_id", "tied")}
GPT2: Names = {
    **_COMMON,
    "dim": ("n_embd", "hidden_size"),
    "layers": ("n_layer", "num_hidden_layers"),
    "num_heads": ("n_head", "num_attention_heads"),
    "max_length": ("n_positions", "max_position_embeddings"),
}
ENCODER: Names = {name: LLAMA[name] for name in LLAMA if name not in ("key_heads", "head_dim")}
FALCON: Names = {
    **ENCODER,
    "dim": ("hidden_size", "n_embed"),
    "layers": ("num_hidden_layers", "n_layer"),
    "num_heads": ("num_attention_heads", "n_head"),
}
BLOOM: Names = {
    **_COMMON,
    "dim": ("hidden_size", "n_embed"),
    "layers": ("n_layer", "num_hidden_layers"),
    "num_heads": ("n_head", "num_attention_heads"),
}
MPT: Names = {
    **_COMMON,
    "dim": ("d_model", "hidden_size"),
    "layers": ("n_layers", "num_hidden_layers"),
    "num_heads": ("n_heads", "num_attention_heads"),
    "max_length": ("max_seq_len",),
}
NEO: Names = {**ENCODER, "layers": ("num_layers", "num_hidden_layers"), "num_heads": ("num_heads",)}
DISTIL: Names = {
    **ENCODER,
    "dim": ("dim", "hidden_size"),
    "layers": ("n_layers", "num_hidden_layers"),
    "num_heads": ("n_heads", "num_attention_heads"),
}
XGLM: Names = {
    **ENCODER,
    "dim": ("d_model", "hidden_size"),
    "layers": ("num_layers", "num_hidden_layers"),
    "num_heads": ("attention_heads", "num_attention_heads"),
}
T5: Names = {
    **_COMMON,
    "dim": ("d_model", "hidden_size"),
    "num_heads": ("num_heads", "num_attention_heads"),
    "head_dim": ("d_kv", "head_dim"),
}
T5_PARTS: dict[str, Names] = {
    "decoder": {"layers": ("num_decoder_layers",), "layers_else": ("num_layers", "num_hidden_layers")},
    "encoder": {"layers": ("num_layers", "num_hidden_layers")},
}


@dataclass(frozen=True)
class RotaryDimKeys:
    """Read the rotary positions of GPT-J, CodeGen and RoFormer: neighbors, theta 10,000, of which no key speaks.

    Args:
        key: of the features that turn; None turns all.
        unturned: a flag that must be off, which turns values as well (RoFormer).
    """

    key: str | None = "rotary_dim"
    unturned: str | None = None

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Give the plan, one for all layers."""
        if self.unturned is not None:
            keys.require(self.unturned, False, "values that turn are no position of scores.")
        rotary_dim = None if self.key is None else keys.whole(self.key, default=None)
        settings = {
            "head_dim": sizes.head_dim,
            "theta": 10_000.0,
            "interleaved": True,
            "rotary_dim": None if rotary_dim == sizes.head_dim else rotary_dim,
            "scaling": None,
        }
        plan = Plan(Rotary, settings)
        plan.build()
        return Position(query_key=(plan,) * sizes.layers)

    def write(self, description: Description) -> dict[str, Any]:
        """Give rotary_dim."""
        if self.key is None:
            return {}
        plan = description.query_key[0]
        rotary_dim = None if plan is None else plan.settings["rotary_dim"]
        return {self.key: description.head_dim if rotary_dim is None else rotary_dim}


@dataclass(frozen=True)
class MultiQuery:
    """Read how many heads keys have where a flag says one or all.

    Args:
        grouped: another flag says that `num_kv_heads` counts, as in the later Falcons.
    """

    grouped: bool = False

    def read(self, keys: Keys, num_heads: int) -> int:
        """Give the number."""
        named: int = keys.whole("num_kv_heads", default=num_heads) if self.grouped else num_heads
        if self.grouped and keys.flag("new_decoder_architecture", default=False):
            return named
        return 1 if keys.flag("multi_query", default=True) else num_heads

    def write(self, description: Description) -> dict[str, Any]:
        """Give the flags."""
        if description.key_heads in (1, description.num_heads):
            return {"multi_query": description.key_heads == 1}
        return {"new_decoder_architecture": True, "num_kv_heads": description.key_heads}


def encoder(reader: LearnedKeys, length: int, padding_id: int | None, *notes: str, **others: Any) -> Family:
    """Make a family of BERT's kind: a learned table, and sentence kinds and a norm behind it."""
    defaults = {**TIED, "max_position_embeddings": length, "pad_token_id": padding_id, **others.pop("defaults", {})}
    return Family((reader, *others.pop("more", ())), ENCODER, defaults, notes=notes or (SENTENCE_KINDS,), **others)


def t5(reader: T5Keys | None = None, heads: int | None = None, **defaults: Any) -> Family:
    """Make a family of T5's kind, of two parts."""
    made = Family(
        (reader or T5Keys(),),
        T5,
        {**TIED, "pad_token_id": 0, "d_kv": 64, **defaults},
        scale=One(),
        parts=T5_PARTS,
        beside={"n_positions": ANY},  # the length of its training, not a limit
        notes=(READOUT_SCALED, "cross-attention has no position"),
    )
    return made if heads is None else replace(made, defaults={**made.defaults, "num_heads": heads})


ABSOLUTE = LearnedKeys(only=("position_embedding_type", "absolute"))
AFTER_PADDING = LearnedKeys("padding", counted=True, only=("position_embedding_type", "absolute"))
PADDED = "positions count tokens that are not padding, from pad_token_id + 1 on; padding has row pad_token_id"

GPTJ_BESIDE = {"rotary": True, "scale_attn_weights": True}

ENCODERS: dict[str, Family] = {
    "albert": encoder(ABSOLUTE, 512, 0, token_dim="embedding_size", defaults={"embedding_size": 128}),
    "bert": encoder(ABSOLUTE, 512, 0),
    "bert-generation": encoder(ABSOLUTE, 512, 0, EMBEDDING_NORM),
    "camembert": encoder(AFTER_PADDING, 512, 1, SENTENCE_KINDS, PADDED),
    "data2vec-text": encoder(AFTER_PADDING, 512, 1, SENTENCE_KINDS, PADDED),
    "deberta": encoder(
        LearnedKeys(unless="position_biased_input"), 512, 0, more=(DeBERTaKeys(False),), scale=Disentangled()
    ),
    "deberta-v2": encoder(
        LearnedKeys(unless="position_biased_input"), 512, 0, more=(DeBERTaKeys(True),), scale=Disentangled()
    ),
    "distilbert": Family(
        (LearnedKeys(),),
        DISTIL,
        {**TIED, "max_position_embeddings": 512, "pad_token_id": 0},
        beside={"sinusoidal_pos_embds": ANY},  # what the table is drawn from, before training
        notes=(EMBEDDING_NORM,),
    ),
    "electra": encoder(ABSOLUTE, 512, 0, token_dim="embedding_size", defaults={"embedding_size": 128}),
    "ernie": encoder(ABSOLUTE, 512, 0, SENTENCE_KINDS, "a table of tasks may be added besides and is not built"),
    "megatron-bert": encoder(ABSOLUTE, 512, 0, "a table of sentence kinds follows and is not built"),
    "mpnet": encoder(
        AFTER_PADDING,
        512,
        1,
        EMBEDDING_NORM,
        PADDED,
        more=(T5Keys(scaled=True, bidirectional=True, buckets=32),),
    ),
    "roberta": encoder(AFTER_PADDING, 512, 1, SENTENCE_KINDS, PADDED),
    "roberta-prelayernorm": encoder(AFTER_PADDING, 512, 1, SENTENCE_KINDS, PADDED),
    "roformer": Family(
        (RotaryDimKeys(None, "rotary_value"),),
        ENCODER,
        {**TIED, "max_position_embeddings": 1536, "pad_token_id": 0},
        token_dim="embedding_size",
        notes=(SENTENCE_KINDS,),
    ),
    "xlm-roberta": encoder(AFTER_PADDING, 512, 1, SENTENCE_KINDS, PADDED),
    "xlm-roberta-xl": encoder(AFTER_PADDING, 514, 1, "a table of sentence kinds follows and is not built", PADDED),
}

DECODERS: dict[str, Family] = {
    "biogpt": Family(
        (LearnedKeys(2),),
        ENCODER,
        {**TIED, "max_position_embeddings": 1024, "pad_token_id": 1},
        embedding=IfFlagged(default=True),
    ),
    "bloom": Family((ALiBiKeys(),), BLOOM, TIED, beside={"offset_alibi": ANY}, notes=(EMBEDDING_NORM,)),
    "codegen": Family((RotaryDimKeys(),), GPT2, {**UNTIED, "n_positions": 2048, "rotary_dim": 64}, beside=GPTJ_BESIDE),
    "ctrl": Family((SinusoidalKeys("halves"),), GPT2, {**TIED, "n_positions": 256}, embedding=Always()),
    "falcon": Family(
        (FalconKeys(RopeKeys()),), FALCON, {**TIED, "max_position_embeddings": 2048}, key_heads=MultiQuery(grouped=True)
    ),
    "gpt2": Family((LearnedKeys(key="n_positions"),), GPT2, {**TIED, "n_positions": 1024}, scale=GPT2Scale()),
    "gpt_bigcode": Family(
        (LearnedKeys(key="n_positions"),),
        GPT2,
        {**TIED, "n_positions": 1024},
        scale=GPT2Scale(by_layer=False),
        key_heads=MultiQuery(),
    ),
    "gpt_neo": Family((LearnedKeys(),), NEO, {**TIED, "max_position_embeddings": 2048}, scale=One()),
    "gpt_neox": Family(
        (RopeKeys(Turn(whole=False), {"": RopeSet(theta_key="rotary_emb_base", share=0.25, share_key="rotary_pct")}),),
        ENCODER,
        {**UNTIED, "max_position_embeddings": 2048},
    ),
    "gpt_neox_japanese": Family(
        (RopeKeys(Turn(whole=False), {"": RopeSet(theta_key="rotary_emb_base", share_key="rotary_pct")}),),
        ENCODER,
        {**TIED, "max_position_embeddings": 2048},
    ),
    "gptj": Family((RotaryDimKeys(),), GPT2, {**UNTIED, "n_positions": 2048, "rotary_dim": 64}, beside=GPTJ_BESIDE),
    "mpt": Family(
        (MptKeys(),), MPT, {**TIED, "max_seq_len": 2048}, scale=Multiplier("softmax_scale", None, "attn_config")
    ),
    "openai-gpt": Family((LearnedKeys(key="n_positions"),), GPT2, {**TIED, "n_positions": 512}),
    "opt": Family(
        (LearnedKeys(2, by_tokens=False),),
        ENCODER,
        {**TIED, "max_position_embeddings": 2048, "pad_token_id": 1},
        token_dim="word_embed_proj_dim",
    ),
    "xglm": Family(
        (SinusoidalKeys("tensor2tensor", 2),),
        XGLM,
        {**TIED, "max_position_embeddings": 2048, "pad_token_id": 1},
        embedding=IfFlagged(default=True),
    ),
}


def two_parts(reader: LearnedKeys | SinusoidalKeys, length: int, padding_id: int, scaled: bool, *notes: str) -> Family:
    """Make a family of BART's kind, an encoder and a decoder whose sizes have names of their own."""
    names: Names = {**_COMMON, "dim": ("d_model", "hidden_size"), "max_length": ("max_position_embeddings",)}
    parts: dict[str, Names] = {
        part: {"layers": (f"{part}_layers",), "num_heads": (f"{part}_attention_heads",)}
        for part in ("decoder", "encoder")
    }
    defaults = {**TIED, "max_position_embeddings": length, "pad_token_id": padding_id}
    return Family(
        (reader,),
        names,
        defaults,
        embedding=IfFlagged(default=scaled),
        parts=parts,
        beside={"static_position_embeddings": isinstance(reader, SinusoidalKeys), "extra_pos_embeddings": ANY},
        notes=(*notes, "cross-attention has no position"),
    )


SEQUENCE_TO_SEQUENCE: dict[str, Family] = {
    "bart": two_parts(LearnedKeys(2), 1024, 1, False, EMBEDDING_NORM),
    "blenderbot": two_parts(LearnedKeys(), 128, 0, False),
    "m2m_100": two_parts(SinusoidalKeys("tensor2tensor", "padding"), 1024, 1, True),
    "marian": two_parts(SinusoidalKeys("halves"), 1024, 58_100, False),
    "mbart": two_parts(LearnedKeys(2), 1024, 1, False, EMBEDDING_NORM),
    "mt5": t5(),
    "mvp": two_parts(LearnedKeys(2), 1024, 1, False, EMBEDDING_NORM),
    "nllb-moe": two_parts(SinusoidalKeys("tensor2tensor", "padding"), 1024, 1, True),
    "pegasus": two_parts(SinusoidalKeys("halves"), 1024, 0, False),
    "plbart": two_parts(LearnedKeys(2), 1024, 1, True, EMBEDDING_NORM),
    "switch_transformers": t5(num_decoder_layers=12),
    "t5": t5(),
    "umt5": t5(T5Keys(shared=False)),
    "whisper": replace(
        two_parts(
            LearnedKeys(key="max_target_positions"),
            448,
            50_256,
            False,
            "the encoder reads sound: only the decoder is read",
        ),
        names={**_COMMON, "dim": ("d_model", "hidden_size"), "max_length": ("max_target_positions",)},
        defaults={**TIED, "max_target_positions": 448, "pad_token_id": 50_256},
        parts={"decoder": {"layers": ("decoder_layers",), "num_heads": ("decoder_attention_heads",)}},
        beside={"max_source_positions": ANY},
    ),
}

NAMED: dict[str, Family] = {**ENCODERS, **DECODERS, **SEQUENCE_TO_SEQUENCE}
