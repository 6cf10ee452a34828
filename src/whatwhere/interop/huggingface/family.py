"""How a model type of Hugging Face writes down what and where: the parts of which `families` makes its table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from whatwhere.errors import ShapeError
from whatwhere.interop.huggingface.description import Description, Plan
from whatwhere.interop.huggingface.keys import REQUIRED, Keys
from whatwhere.what.embedding import Scale

Names = Mapping[str, tuple[str, ...]]
"""Our word for a size -> the keys it goes by, the one that is written first."""

LLAMA: Names = {
    "vocab_size": ("vocab_size",),
    "dim": ("hidden_size",),
    "layers": ("num_hidden_layers",),
    "num_heads": ("num_attention_heads",),
    "key_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "max_length": ("max_position_embeddings",),
    "padding_id": ("pad_token_id",),
    "tied": ("tie_word_embeddings",),
}
_LAYERS = 10_000
"""More are a mistake: what is said of each layer would fill the memory."""


@dataclass(frozen=True)
class Sizes:
    """Hold the numbers that every family has; the fields are those of Description."""

    vocab_size: int
    dim: int
    token_dim: int
    num_heads: int
    key_heads: int
    head_dim: int
    layers: int
    tied: bool
    padding_id: int | None
    max_length: int | None
    part: str | None = None


@dataclass(frozen=True)
class Position:
    """Hold what one reader found; the parts of several are laid together."""

    input: Plan | None = None
    query_key: tuple[Plan | None, ...] | None = None
    score: tuple[Plan | None, ...] | None = None
    layer_types: tuple[str, ...] | None = None
    max_length: int | None = None
    notes: tuple[str, ...] = ()


@runtime_checkable
class Reader(Protocol):
    """Read what one door needs, and write it back."""

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Give what the keys say."""

    def write(self, description: Description) -> dict[str, Any]:
        """Give the keys that say it."""


@runtime_checkable
class ScaleRule(Protocol):
    """Read the softmax scale of each layer, and write it back."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Give one number for each layer."""

    def write(self, description: Description) -> dict[str, Any]:
        """Give the keys that say it."""


@runtime_checkable
class EmbeddingRule(Protocol):
    """Read what token vectors are multiplied by, and write it back."""

    def read(self, keys: Keys, sizes: Sizes) -> float | Scale | None:
        """Give the factor, or None for one."""

    def write(self, description: Description) -> dict[str, Any]:
        """Give the keys that say it."""


@runtime_checkable
class KeyHeadRule(Protocol):
    """Read how many heads keys have, and write it back."""

    def read(self, keys: Keys, num_heads: int) -> int:
        """Give the number."""

    def write(self, description: Description) -> dict[str, Any]:
        """Give the keys that say it."""


@dataclass(frozen=True)
class ByHeadDim:
    """Scale scores by 1 / sqrt(head_dim), as almost all do; no key says so."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Give the same for each layer."""
        return (sizes.head_dim**-0.5,) * sizes.layers

    def write(self, description: Description) -> dict[str, Any]:
        """Give nothing."""
        return {}


@dataclass(frozen=True)
class Unscaled:
    """Leave token vectors as they are."""

    def read(self, keys: Keys, sizes: Sizes) -> None:
        """Give None."""

    def write(self, description: Description) -> dict[str, Any]:
        """Give nothing."""
        return {}


@dataclass(frozen=True)
class Family:
    """Say how one model type is read.

    Args:
        readers: one for each door that the model uses.
        names: the keys of its sizes.
        defaults: what transformers takes where a key is absent.
        scale, embedding: the rules of softmax and token vectors.
        key_heads: how many heads keys have, where a rule of its own decides.
        token_dim: the key of the features of the token table, where they may differ from the model's.
        head_dim_parts: two keys whose sum is the head_dim (latent attention), the features that turn second.
        parts: `decoder` and `encoder` -> the names of sizes in which they differ; empty for a model that has one part.
        beside: keys that look like position and that the model's code does not read, with the one value that agrees
            with what it does, or ANY.
        notes: what stands between the parts and is not built.
    """

    readers: tuple[Reader, ...]
    names: Names = field(default_factory=lambda: LLAMA)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    scale: ScaleRule = field(default_factory=ByHeadDim)
    embedding: EmbeddingRule = field(default_factory=Unscaled)
    key_heads: KeyHeadRule | None = None
    token_dim: str | None = None
    head_dim_parts: tuple[str, str] | tuple[()] = ()
    parts: Mapping[str, Names] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def sizes_of(self, part: str | None) -> Names:
        """Give the keys of the sizes of one part."""
        return {**self.names, **self.parts.get(part or "", {})}

    def read_sizes(self, keys: Keys, part: str | None) -> tuple[Sizes, tuple[str, ...]]:
        """Read what every family has; give it with what there is to note."""
        names = self.sizes_of(part)
        dim, num_heads = keys.whole(*names["dim"]), keys.whole(*names["num_heads"])
        token_dim = dim if self.token_dim is None else keys.whole(self.token_dim, default=dim)
        padding_id, notes = _read_padding(keys, names["padding_id"])
        sizes = Sizes(
            vocab_size=keys.whole(*names["vocab_size"]),
            dim=dim,
            token_dim=token_dim,
            num_heads=num_heads,
            key_heads=self._read_key_heads(keys, names, num_heads),
            head_dim=self._read_head_dim(keys, names, dim, num_heads),
            layers=self._read_layers(keys, names),
            tied=keys.flag(*names["tied"], default=self.defaults.get(names["tied"][0], True)),
            padding_id=padding_id,
            max_length=keys.whole(*names["max_length"], default=None) if "max_length" in names else None,
            part=part,
        )
        projected = f"a projection from {token_dim} to {dim} features stands behind the token table and is not built"
        return sizes, (*notes, projected) if token_dim != dim else notes

    def write_sizes(self, description: Description) -> dict[str, Any]:
        """Write what every family has."""
        names = self.sizes_of(description.part)
        written: dict[str, Any] = {}
        for word in ("vocab_size", "dim", "layers", "num_heads", "key_heads", "head_dim", "max_length", "tied"):
            value = getattr(description, word)
            if word in names and value is not None and not (word == "head_dim" and self.head_dim_parts):
                written[names[word][0]] = value
        written[names["padding_id"][0]] = description.padding_id
        if self.token_dim is not None:
            written[self.token_dim] = description.token_dim
        if self.key_heads is not None:
            written |= self.key_heads.write(description)
        if self.head_dim_parts:
            apart, turning = self.head_dim_parts
            turns = next((plan.settings["head_dim"] for plan in description.query_key if plan is not None), 0)
            written |= {apart: description.head_dim - turns, turning: turns}
        return written

    def _read_layers(self, keys: Keys, names: Names) -> int:
        elsewhere = "layers_else" in names
        default = None if elsewhere else REQUIRED
        layers: int | None = keys.whole(*names["layers"], default=default, most=_LAYERS)
        return int(keys.whole(*names["layers_else"]) if layers is None else layers)

    def _read_key_heads(self, keys: Keys, names: Names, num_heads: int) -> int:
        if self.key_heads is not None:
            return self.key_heads.read(keys, num_heads)
        if "key_heads" not in names:
            return num_heads
        key_heads: int = keys.whole(*names["key_heads"], default=num_heads)
        if num_heads % key_heads:
            raise ShapeError(f"{num_heads} heads of queries cannot share {key_heads} heads of keys evenly.")
        return key_heads

    def _read_head_dim(self, keys: Keys, names: Names, dim: int, num_heads: int) -> int:
        if self.head_dim_parts:
            return sum(keys.whole(name) for name in self.head_dim_parts)
        if "head_dim" in names:
            given: int | None = keys.whole(*names["head_dim"], default=None)
            if given is not None:
                return given
        if dim % num_heads:
            raise ShapeError(f"{dim} features do not make {num_heads} heads of equal size.")
        return dim // num_heads


def _read_padding(keys: Keys, names: tuple[str, ...]) -> tuple[int | None, tuple[str, ...]]:
    padding_id = keys.whole(*names, default=None, least=-1)
    if padding_id == -1:
        # Early Llama files: a placeholder, which transformers takes for the last row of the table.
        return None, (f"{names[0]}=-1 is read as no padding token",)
    return padding_id, ()
