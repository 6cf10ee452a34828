"""What one row of model_types.json says of a model type, and what the keys of a configuration give."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from whatwhere.models.configuration.description import Heads
from whatwhere.models.configuration.plan import Plan

KeyNames = Mapping[str, tuple[str, ...]]
"""Field of Description -> its keys, the usual one first."""

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
INDEXED, BLOCK_SPARSE = "indexed_attention", "minimax_m3_sparse"
"""Layers in which a small network selects the keys, one by one or in blocks."""
HYBRID, HYBRID_SLIDING = "hybrid", "hybrid_sliding"
"""Layers with convolutions or a state space model beside attention, in all tokens or in a window."""
ATTENTION = (FULL, SLIDING, CHUNKED, INDEXED, BLOCK_SPARSE, HYBRID, HYBRID_SLIDING)

MAX_LAYERS, MAX_HEADS, MAX_FEATURES, MAX_BUCKETS = 10_000, 65_536, 1_048_576, 4096
"""Larger numbers of layers, heads, features of a head and buckets are rejected: reading them would take too much memory
or time."""


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a row of the data file, checked when it is read."""


class Rule(Row, frozen=True, array_like=True):
    """The name of a function, which a table beside it lists, and its settings: `["learned", {"offset": 2}]`."""

    name: str
    settings: dict[str, Any] = {}


class RopeSet(Row, frozen=True):
    """Defaults of one set of rope parameters, and its names in older configurations.

    Args:
        theta: if it is absent.
        theta_key: its key beside the parameters; None if only the parameters are read.
        fraction: of a head that is rotated, if it is absent.
        fraction_key: its key beside the parameters; None if only the parameters are read.
        scaled: whether `rope_scaling` applies to this set.
        parameters: those that transformers uses if there are none; None if layers with this set do not rotate then.
    """

    theta: float = 10_000.0
    theta_key: str | None = "rope_theta"
    fraction: float = 1.0
    fraction_key: str | None = FRACTION
    scaled: bool = True
    parameters: dict[str, Any] | None = {}


class Rope(Row, frozen=True):
    """How queries and keys are rotated.

    Args:
        interleaved: whether pairs are (2i, 2i+1), rather than (i, i + rotary_dim/2).
        interleaved_key: the key that overrides this, if there is one.
        partial: whether a fraction of a head can be rotated; otherwise the model's code reads no fraction.
        dim_key: key of the number of rotated features, if heads keep them apart (latent attention).
        rotary_dim_key: key of rotary_dim itself, in place of the fraction.
        rotary_dim_unread: a key of rotary_dim that the model's code does not read: the fraction must agree with it.
        fraction_of: with dim_key, a key of features, of which the fraction is those that are rotated (dots3).
        whole: with dim_key, whether the map is of the whole head, of which the last features are rotated, because a
            temperature multiplies the others too (Mistral 4).
        learned: whether the frequencies are multiplied by weights (Mistral Large 4).
        sections: number of pairs of each axis if no key has them; None if tokens have one coordinate.
        axis_layout: how pairs are assigned to axes.
        reversed: whether pairs rotate by the negative angle.
        sets: one set of parameters under the label "", or one for each layer type.
        extra: further rope parameters of this model type, by the `rope_type` that reads them; "" is for all.
        renamed: a `rope_type` of this model type -> the usual one.
        reads_rope_scaling: whether the model's code reads `rope_scaling`, the form of transformers 4.
        required: whether the model's code fails without parameters (or null) for each type of its layers.
        fails_at_null: whether the model's code fails where the fraction beside the parameters is null, rather than
            rotating whole heads.
    """

    interleaved: bool = False
    interleaved_key: str | None = None
    partial: bool = False
    dim_key: str | None = None
    rotary_dim_key: str | None = None
    rotary_dim_unread: str | None = None
    fraction_of: str | None = None
    whole: bool = False
    learned: bool = False
    sections: tuple[int, ...] | None = None
    axis_layout: Literal["chunked", "interleaved"] = "chunked"
    reversed: bool = False
    sets: dict[str, RopeSet] = msgspec.field(default_factory=lambda: {"": RopeSet()})
    extra: dict[str, tuple[str, ...]] = {}
    renamed: dict[str, str] = {}
    reads_rope_scaling: bool = True
    required: bool = False
    fails_at_null: bool = False

    @property
    def by_type(self) -> bool:
        """Whether each layer type has its own parameters."""
        return "" not in self.sets


class Layers(Row, frozen=True):
    """Which layers are of which type, and which of them rotate.

    Args:
        rule: `types` is described by the other fields; others are functions of layers.py.
        period: number of layers in a period, if no key has it.
        period_key: key of the period.
        one: type of one layer in each period.
        others: type of the other layers.
        first: whether `one` is the first layer of its period rather than the last.
        from_end: whether the last period is whole, rather than the first (Muse).
        rotated: the types that rotate.
        unless: a key with which, if it is null, every layer rotates (EXAONE 4 without a window).
        one_key: a key that lists the layers of type `one`, instead of a period; without it all have this type, or none
            if `listed_only`.
        cycle: types that are repeated, instead of a period, or where the list of one_key is absent.
        at: number of a layer -> its type in spite of the cycle; -1 is the last.
        only: a key and the value of it without which no layer rotates.
        drafts_key: key of a number of layers that draft further tokens, whose types the list may end with (Step-3.7).
    """

    rule: Literal["types", "dense_prefix", "no_rope_layers", "hybrid_if_flag", "repeated_blocks"] = "types"
    period: int = 1
    period_key: str | None = None
    one: str = FULL
    others: str = SLIDING
    first: bool = False
    from_end: bool = False
    rotated: tuple[str, ...] = ATTENTION
    unless: str | None = None
    one_key: str | None = None
    listed_only: bool = False
    cycle: tuple[str, ...] = ()
    at: dict[int, str] = {}
    only: tuple[str, str] | None = None
    drafts_key: str | None = None


class Windows(Row, frozen=True):
    """Which layers have a sliding window, and of which size.

    Args:
        key: of its size in tokens, including that of the query.
        by: which layers have it: `every` layer with attention; by the `type` that was read with the rotary positions;
            those that are `rotated` or `unrotated`, unless there are `layer_types`; by the `pattern` in `layers`; or
            those `from_layer` start on. `global_local` is GPT-Neo's lists, `both_sides` Longformer's numbers.
        layers: the pattern.
        start: number of the first layer with a window, if no key has it.
        start_key: of this number.
        alternating: every second layer before `start` has the window instead, as in Qwen2-MoE.
        switch: a flag without which no layer has it.
        halved: if the key counts both sides of a token, the number that is added to its half; otherwise None.
        added: to the size: 1 if the key counts the tokens on one side, without that of the query.
        added_to: the part of a model to whose windows it is added; None is all.
        bidirectional: whether `use_bidirectional_attention` makes the key count both sides (EmbeddingGemma).
        chunked: whether tokens attend within chunks of this size (Llama 4), rather than to the nearest tokens.
        windowed: type of the layers with the window.
        previous: a key of the size without the query's own token, which goes before the other one (MiMo-V2).
    """

    key: str = "sliding_window"
    by: Literal["every", "type", "rotated", "unrotated", "pattern", "from_layer", "global_local", "both_sides"] = "type"
    layers: Layers | None = None
    start: int = 0
    start_key: str | None = "max_window_layers"
    alternating: bool = False
    switch: str | None = None
    halved: int | None = None
    added: int = 0
    added_to: str | None = None
    bidirectional: bool = False
    chunked: bool = False
    windowed: str = SLIDING
    previous: str | None = None


class ModelType(Row, frozen=True):
    """How one model type is read.

    Args:
        positions: functions that read each door that the model uses, in positions.py.
        rope: how queries and keys are rotated, if they are.
        layers: types of the layers; None if all are alike.
        names: keys of its sizes.
        defaults: those of transformers for absent keys.
        nested: sizes that a configuration within that of a model of text and images may leave out.
        scale, embedding, temperature: functions that read the softmax scale, the factor of token vectors and the query
            temperature, in factors.py; None is 1 / sqrt(head_dim), 1, and none.
        windows: sliding windows; None if every layer attends to all tokens, and keys of windows are rejected.
        sinks: whether each head has a learned sink in the softmax, of all layers or of those with a window.
        listed: whether the number of layers is that of a list of their types.
        attentions: of each layer of the model's code; each counts as a layer here (LongCat has two).
        key_heads: function that reads the number of key heads, in sizes.py, if it has no key of its own.
        heads: function that reads the heads of each layer, in sizes.py, if they differ.
        token_dim: key of the features of the token table, if they may differ from the model's.
        output_dim: key of the features of the output projection, if they may differ from those of the token table.
        segments: rows of the table of segments if `type_vocab_size` is absent; None if the model has none.
        causal: whether attention is causal; or the flag that makes an encoder causal, or a key and its value.
        head_dim_read: whether the model's code reads `head_dim`, rather than dividing its features by the heads.
        can_tie: whether the model's code can tie the output projection to the token table; else the flag has no effect.
        head_width: heads have so many times the features that the model's features divided by its heads are.
        extra_rows: rows of the token table beyond the vocabulary, which the output projection lacks.
        head_dim_parts: two keys whose sum is the head_dim (latent attention), the rotated features second.
        parts: `decoder` and `encoder` -> the keys of sizes in which they differ; empty for a model of one part.
        aliases: a further name of a key that only this model type has -> the key.
        unread: keys with names of positions that the model's code does not read.
        fixed: such keys -> the only value that agrees with the code.
        sound: whether its encoder takes sound, and only the decoder is read.
        notes: further parts of the model, which are not built.
    """

    positions: tuple[Rule, ...] = (Rule("rope"),)
    rope: Rope | None = None
    layers: Layers | None = None
    names: dict[str, tuple[str, ...]] = msgspec.field(default_factory=lambda: LLAMA_KEYS)
    defaults: dict[str, Any] = {}
    nested: dict[str, int] = {}
    scale: Rule | None = None
    embedding: Rule | None = None
    windows: Windows | None = None
    sinks: bool | Literal["windowed"] = False
    listed: bool = False
    attentions: int = 1
    temperature: str | None = None
    key_heads: str | None = None
    heads: str | None = None
    token_dim: str | None = None
    output_dim: str | None = None
    segments: int | None = None
    causal: bool | str | tuple[str, str] = True
    head_dim_read: bool = True
    can_tie: bool = True
    head_width: int = 1
    extra_rows: int = 0
    head_dim_parts: tuple[str, str] | None = None
    parts: dict[str, dict[str, tuple[str, ...]]] = {}
    aliases: dict[str, str] = {}
    unread: tuple[str, ...] = ()
    fixed: dict[str, Any] = {}
    sound: bool = False
    notes: tuple[str, ...] = ()

    def names_of(self, part: str | None) -> KeyNames:
        """Return the keys of sizes of one part."""
        return {**self.names, **self.parts.get(part or "", {})}

    @property
    def all_names(self) -> set[str]:
        """The keys of sizes of all parts."""
        return {key for names in (self.names, *self.parts.values()) for keys in names.values() for key in keys}

    @property
    def has_attention(self) -> bool:
        """Whether layers have attention, and so heads."""
        return any("num_heads" in names for names in (self.names, *self.parts.values()))


@dataclass(frozen=True)
class Sizes:
    """Sizes that every model type has; the fields are those of Description.

    Heads that differ between layers are `by_layer`; then num_heads, key_heads and head_dim are those of most. All are 0
    without attention. `turned` is whether a key made a causal model attend in both directions.
    """

    vocab_size: int
    dim: int
    token_dim: int
    num_heads: int
    key_heads: int
    head_dim: int
    layers: int
    tied: bool
    padding_idx: int | None
    max_length: int | None
    segments: int = 0
    causal: bool = True
    turned: bool = False
    part: str | None = None
    rotary_part: int | None = None
    output_dim: int | None = None
    extra_rows: int = 0
    by_layer: tuple[Heads, ...] | None = None

    @property
    def heads(self) -> tuple[Heads, ...]:
        """The heads of each layer."""
        if not self.num_heads:
            return ()
        return self.by_layer or (Heads(self.num_heads, self.key_heads, self.head_dim),) * self.layers


@dataclass(frozen=True)
class Position:
    """The positions that one function has read; the fields are those of Description, None if others read them.

    `parameters` are the rope parameters that transformers uses where the configuration has none.
    """

    input: Plan | None = None
    query_key: tuple[Plan | None, ...] | None = None
    score: tuple[Plan | None, ...] | None = None
    layer_types: tuple[str, ...] | None = None
    max_length: int | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
