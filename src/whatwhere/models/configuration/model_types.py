"""The one list of model types, which model_types.json holds: what its rows say, and how one is found.

`python -m docs.generate.families` writes the file again: defaults are those of transformers' classes.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import msgspec

from whatwhere.errors import CheckpointError

LLAMA_KEYS: dict[str, tuple[str, ...]] = {
    "vocab_size": ("vocab_size",),
    "dim": ("hidden_size",),
    "layers": ("num_hidden_layers",),
    "num_heads": ("num_attention_heads",),
    "key_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "max_length": ("max_position_embeddings",),
    "padding_idx": ("pad_token_id",),
    "tied": ("tie_word_embeddings",),
}
DIRECTION = "is_causal"
FRACTION = "partial_rotary_factor"
FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
INDEXED, BLOCK_SPARSE = "indexed_attention", "minimax_m3_sparse"  # a small network selects keys, one by one or blocks
HYBRID, HYBRID_SLIDING = "hybrid", "hybrid_sliding"  # convolutions or a state space model are beside attention
ATTENTION = (FULL, SLIDING, CHUNKED, INDEXED, BLOCK_SPARSE, HYBRID, HYBRID_SLIDING)
LINEAR, CONVOLUTION, MLP, MOE = "linear_attention", "conv", "mlp", "moe"  # without attention
LAYER_TYPES = (*ATTENTION, LINEAR, CONVOLUTION, MLP, MOE)

# Larger numbers are refused: reading them would take too much memory or time.
MAX_LAYERS, MAX_HEADS, MAX_FEATURES, MAX_BUCKETS = 10_000, 65_536, 1_048_576, 4096


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a row of the data file, checked when it is read."""


class Rule(Row, frozen=True, array_like=True):
    """The name of a function, which a table beside it lists, and its settings: `["learned", {"offset": 2}]`."""

    name: str
    settings: dict[str, Any] = {}


class RopeSet(Row, frozen=True):
    """Defaults of one set of rope parameters, and its names in older configurations."""

    theta: float = 10_000.0
    theta_key: str | None = "rope_theta"  # beside the parameters; None if only these are read
    fraction: float = 1.0  # of a head that is rotated
    fraction_key: str | None = FRACTION  # beside the parameters; None if only these are read
    scaled: bool = True  # whether `rope_scaling` applies to this set
    parameters: dict[str, Any] | None = {}  # of transformers if there are none; None: its layers do not rotate then


class Rope(Row, frozen=True):
    """How queries and keys are rotated."""

    interleaved: bool = False  # pairs are (2i, 2i+1), rather than (i, i + rotary_dim/2)
    interleaved_key: str | None = None  # which overrides this
    partial: bool = False  # a fraction of a head can be rotated; otherwise the model's code reads none
    dim_key: str | None = None  # of the number of rotated features, if heads keep them apart (latent attention)
    rotary_dim_key: str | None = None  # of rotary_dim itself, in place of the fraction
    fraction_of: str | None = None  # with dim_key, of the features whose fraction it must be; "" is the whole head
    # With dim_key, the map is of the whole head, of which the last features are rotated, because a temperature
    # multiplies the others too (Mistral 4).
    whole: bool = False
    learned: bool = False  # the frequencies are multiplied by weights (Mistral Large 4)
    sections: tuple[int, ...] | None = None  # pairs of each axis if no key has them; None: tokens have one coordinate
    axis_layout: Literal["chunked", "interleaved"] = "chunked"  # how pairs are assigned to axes
    reversed: bool = False  # pairs rotate by the negative angle
    # One set under the label "", or one for each layer type.
    sets: dict[str, RopeSet] = msgspec.field(default_factory=lambda: {"": RopeSet()})
    extra: dict[str, tuple[str, ...]] = {}  # the `rope_type` that reads them, "" for all -> further parameters
    renamed: dict[str, str] = {}  # a `rope_type` of this model type -> the usual one
    reads_rope_scaling: bool = True  # the form of transformers 4
    fails_at_null: bool = False  # where the fraction beside the parameters is null, rather than rotating whole heads
    required: bool = False  # the model's code fails without parameters (or null) for each type of its layers

    @property
    def by_type(self) -> bool:
        """Whether each layer type has its own parameters."""
        return "" not in self.sets


class Embedding(Row, frozen=True):
    """The factor of token vectors."""

    factor: float | Literal["sqrt_dim", "sqrt_dim_rounded"] = "sqrt_dim"
    flag: str | None = None  # without which it is 1
    number: str | None = None  # the key of a factor, in place of both
    default: bool | float = False  # of the flag or of the number, which is 1 without it


class Layers(Row, frozen=True):
    """Which layers are of which type, and which of them rotate."""

    # `types` is described by the other fields; others are functions of layers.py.
    rule: Literal["types", "dense_prefix", "no_rope_layers", "hybrid_if_flag", "repeated_blocks"] = "types"
    period: int = 1  # number of layers, if no key has it
    period_key: str | None = None
    one: str = FULL  # type of one layer in each period
    others: str = SLIDING  # type of the other layers
    first: bool = False  # `one` is the first layer of its period rather than the last
    from_end: bool = False  # the last period is whole, rather than the first (Muse)
    rotated: tuple[str, ...] = ATTENTION  # the types that rotate
    unless: str | None = None  # a key with which, if it is null, every layer rotates (EXAONE 4 without a window)
    # Lists the layers of type `one`, instead of a period; without it the period counts, or `listed_only` has none.
    one_key: str | None = None
    listed_only: bool = False
    cycle: tuple[str, ...] = ()  # all types of a period, where more than one layer of it is not of type `others`
    at: dict[int, str] = {}  # number of a layer, -1 for the last -> its type in spite of the period
    only: tuple[str, str] | None = None  # a key and the value of it without which no layer rotates


class Windows(Row, frozen=True):
    """Which layers have a sliding window, and of which size."""

    key: str = "sliding_window"  # of its size in tokens, including that of the query
    # `every` layer with attention; by the `type` that was read with the rotary positions; those that are `rotated` or
    # `unrotated`, unless there are `layer_types`; by the `pattern` in `layers`; or those `from_layer` start on.
    # `global_local` is GPT-Neo's lists, `both_sides` Longformer's numbers.
    by: Literal["every", "type", "rotated", "unrotated", "pattern", "from_layer", "global_local", "both_sides"] = "type"
    layers: Layers | None = None  # the pattern
    start: int = 0  # number of the first layer with a window, if no key has it
    start_key: str | None = "max_window_layers"
    alternating: bool = False  # every second layer before `start` has the window instead, as in Qwen2-MoE
    switch: str | None = None  # a flag without which no layer has it
    halved: bool = False  # the key counts both sides of a token
    bidirectional: bool = False  # `use_bidirectional_attention` makes the key count both sides (EmbeddingGemma)
    chunked: bool = False  # tokens attend within chunks of this size (Llama 4), rather than to the nearest tokens
    windowed: str = SLIDING  # type of the layers with the window
    previous: str | None = None  # a key of the size without the query's own token, which goes first (MiMo-V2)


class ModelType(Row, frozen=True):
    """How one model type is read."""

    positions: tuple[Rule, ...] = (Rule("rope"),)  # functions of positions.py that read the doors that it uses
    rope: Rope | None = None
    layers: Layers | None = None  # None if all are alike
    names: dict[str, tuple[str, ...]] = msgspec.field(default_factory=lambda: LLAMA_KEYS)  # size -> keys, usual first
    defaults: dict[str, Any] = {}  # those of transformers for absent keys
    nested: dict[str, int] = {}  # sizes that a configuration within that of a model of text and images may leave out
    scale: Rule = Rule("heads")  # function of scores.py for the softmax scale, usually 1 / sqrt(head_dim)
    embedding: Embedding | None = None  # None is 1
    windows: Windows | None = None  # None if every layer attends to all tokens, and keys of windows are refused
    sinks: bool | Literal["windowed"] = False  # each head has a learned sink in the softmax, of all or windowed layers
    listed: bool = False  # the number of layers is that of a list of their types
    attentions: int = 1  # of each layer of the model's code; each counts as a layer here (LongCat has two)
    temperature: str | None = None  # function of scores.py
    key_heads: str | None = None  # function of sizes.py, if the number of key heads has no key of its own
    heads: Rule | None = None  # function of sizes.py, if heads differ between layers
    token_dim: str | None = None  # key of the features of the token table, if they may differ from the model's
    output_dim: str | None = None  # key of those of the output projection, if they may differ from the token table's
    segments: int | None = None  # rows of their table if `type_vocab_size` is absent; None if the model has none
    causal: bool | str | tuple[str, str] = True  # or the flag that makes an encoder causal, or a key and its value
    can_tie: bool = True  # the model's code can tie the output projection; else the flag has no effect
    head_width: int = 1  # heads have so many times the features that the model's features divided by its heads are
    extra_rows: int = 0  # of the token table beyond the vocabulary, which the output projection lacks
    head_dim_parts: tuple[str, str] | None = None  # keys whose sum is the head_dim (latent), rotated features second
    # `decoder` and `encoder` -> the keys of sizes in which they differ; empty for a model of one part.
    parts: dict[str, dict[str, tuple[str, ...]]] = {}
    aliases: dict[str, str] = {}  # a further name of a key that only this model type has -> the key
    unread: tuple[str, ...] = ()  # keys with names of positions that the model's code does not read
    fixed: dict[str, Any] = {}  # such keys -> the only value that agrees with the code
    sound: bool = False  # its encoder takes sound, and only the decoder is read
    notes: tuple[str, ...] = ()  # further parts of the model, which are not built

    def names_of(self, part: str | None) -> Mapping[str, tuple[str, ...]]:
        """Return the keys of sizes of one part."""
        return {**self.names, **self.parts.get(part or "", {})}

    @property
    def has_attention(self) -> bool:
        """Whether layers have attention, and so heads."""
        return any("num_heads" in names for names in (self.names, *self.parts.values()))


class ModelTypes(Row, frozen=True):
    """The data file."""

    transformers: str  # version, whose defaults these are
    types: dict[str, ModelType]  # `model_type` in transformers -> how its configuration is read
    parts: dict[str, ModelType]  # the same for types that occur as one part of a different configuration alone
    remote: dict[str, ModelType]  # the same for types whose code is beside their files: `patch` does not know them
    unlike: dict[str, str]  # types that no scheme here describes, or whose keys do not show it -> what they compute
    unread: dict[str, str]  # types with code of their own that are not read -> the reason
    texts: dict[str, tuple[str, ...]]  # type of a text -> types of models whose text it is, if it has no type there
    classes: dict[str, str]  # classes of LLaVA's authors, with the keys of the text beside others -> type of the text
    # Types made of other configurations -> part of the model -> keys that lead to its configuration; "" where one part
    # alone is of text. The first is the default.
    inner: dict[str, dict[str, tuple[str, ...]]]
    spread: dict[str, tuple[str, ...]]  # types -> keys that lead to those of the text, which are read as if beside
    otherwise: dict[str, tuple[str, Any, str]]  # types -> a key, and its value with which it is a different type's code
    of_others: dict[str, tuple[str, ...]]  # types -> keys beside their `text_config` that do not concern the text
    outer_notes: dict[str, str]  # types with a text like that of others -> what differs outside of it
    outer_unread: dict[str, tuple[str, ...]]  # types -> keys of their text that concern what differs
    long_text_notes: dict[str, str]  # keys of attention over long texts alone (Qwen2.5-1M, MiniCPM4) -> what they do


FILE = Path(__file__).with_suffix(".json")
DATA = msgspec.json.decode(FILE.read_bytes(), type=ModelTypes)
MODEL_TYPES: Mapping[str, ModelType] = DATA.types
READ_TYPES: Mapping[str, ModelType] = {**DATA.types, **DATA.parts, **DATA.remote}  # all model types that are read

HEARING = frozenset(name for name, kind in MODEL_TYPES.items() if kind.sound)  # types whose encoder takes sound

_SUFFIX = re.compile("_text(_model)?$")
TEXT_TYPES: Mapping[str, str] = {
    **{_SUFFIX.sub("", name): name for name in (*READ_TYPES, *DATA.unlike) if _SUFFIX.search(name)},
    **{whole: text for text, wholes in DATA.texts.items() for whole in wholes},
}
"""Model types of text and images or sound -> the type of their text, if its configuration does not have one."""

TEXT_KEYS = ("text_config", "llm_config", "language_config", "llm_cfg")
"""Keys of the configuration of a text within that of a model of text and images, the usual one first."""


def find_model_type(name: str) -> ModelType:
    """Return how a model type is read; raise CheckpointError with a similar one if it is not."""
    if name in READ_TYPES:
        return READ_TYPES[name]
    require_readable(name, "is not one that whatwhere reads")
    near = get_close_matches(name, READ_TYPES, n=1)
    hint = f"\nDid you mean {near[0]!r}?" if near else ""
    raise CheckpointError(
        f"model_type {name!r} is not one that whatwhere reads.{hint}\n"
        "No key of a configuration states which features make a pair, nor in which row of a table position 0 is: if "
        "you\nknow a type that does both alike, name it, from_huggingface(config, like='llama')."
    )


def require_readable(name: str, read: str) -> None:
    """Raise CheckpointError, "model_type ... cannot be read" and why, if it is known that none can be read so."""
    if name in DATA.unlike:
        raise CheckpointError(
            f"model_type {name!r} {read}: {DATA.unlike[name]}.\nTo see what its attention does with positions: "
            f"whatwhere probe {name}."
        )
    if name in DATA.unread:
        raise CheckpointError(f"model_type {name!r} {read}: {DATA.unread[name]}.")


def suggest_model_type(architectures: object) -> str:
    """Return the model type of the first name in `architectures`, as code; without one, how to write it."""
    first = architectures[0] if isinstance(architectures, list | tuple) and architectures else None
    stem = re.sub("(For[A-Z].*|LMHead.*|DoubleHeads.*|PreTrained.*|Text)?(Model)?$", "", str(first or ""), count=1)
    plain = {re.sub("[-_]", "", name): name for name in (*READ_TYPES, *TEXT_TYPES, *DATA.inner)}
    near = get_close_matches(stem.lower(), plain, n=1, cutoff=0.85)
    return repr(plain[near[0]]) if near else "'...'"


def nested_text(config: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return the key and the configuration of the text in that of a model of text and images; empty without one."""
    return next(((key, text) for key in TEXT_KEYS if isinstance(text := config.get(key), Mapping)), ("", {}))


def module_of(config: Mapping[str, object], part: str | None) -> str:
    """Return the module of a model whose configuration is read, such as `thinker`; "" where it is the whole model."""
    parts = DATA.inner.get(str(config.get("model_type")), {"": ()})
    return next(iter(parts.get(part or next(iter(parts)), ())), "").removesuffix("_config")


def first_row(offset: int | Literal["padding"], padding_idx: int | None) -> int | None:
    """Return the row of position 0, for `padding` that behind the padding token's (RoBERTa), or None without one."""
    if offset != "padding":
        return offset
    return None if padding_idx is None else padding_idx + 1


def learned_offset(config: Mapping[str, object]) -> int | None:
    """Return the row of position 0 in a learned position table, by `model_type` and `pad_token_id`; None if unknown."""
    kind = READ_TYPES.get(str(config.get("model_type")))
    rule = next((each for each in kind.positions if each.name.startswith("learned")), None) if kind else None
    if kind is None or rule is None:
        return None
    padding_idx = config.get("pad_token_id", kind.defaults.get("pad_token_id"))
    if not isinstance(padding_idx, int) or isinstance(padding_idx, bool) or padding_idx < 0:
        padding_idx = None
    return first_row(rule.settings.get("offset", 0), padding_idx)
