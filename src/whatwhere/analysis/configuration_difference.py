"""The difference between two configurations: changed keys, and rotary positions compared by distance."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.rotary import layers_of, rotary_agreement
from whatwhere.analysis.subject import NoData, reason_of
from whatwhere.errors import WhatWhereError
from whatwhere.models.checkpoint import Checkpoint

if TYPE_CHECKING:
    from whatwhere.models.configuration.description import Description, Plan

Value = str | int | float | bool | None

_FACTS = (
    "model_type", "vocab_size", "dim", "token_dim", "layers", "input",
    "embedding_scale", "tied", "padding_idx", "max_length", "scales",
)  # fmt: skip
_IGNORED = ("_name_or_path", "transformers_version")
_DISTANCES = (1, 10, 100, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000)
_TOLERANCE = 1e-9  # relative, of a frequency: two ways of writing the same formula differ by less


@dataclass(frozen=True)
class ChangedValue:
    """A setting that differs, and both values; nested keys are joined by dots."""

    name: str
    first: Value
    second: Value


@dataclass(frozen=True, eq=False)
class RotaryDifference:
    """Two rotary embeddings compared."""

    pairs: int  # of features that are rotated
    differing: int  # pairs whose frequencies differ
    length: int  # that the frequencies hold for, where they follow the length
    frequencies: tuple[Float[np.ndarray, " pairs"], Float[np.ndarray, " pairs"]]  # of both, radians per position
    ratio: Float[np.ndarray, " pairs"]  # of the frequencies, second / first; NaN where the first is 0
    magnitudes: tuple[float, float]  # factors of queries and keys
    interleaved: tuple[bool, bool]
    distances: Sequence[int]
    cosine: Sequence[float]  # of a vector rotated by the one and by the other, at each distance between two tokens

    @property
    def rotates_alike(self) -> bool:
        """Whether frequencies and magnitudes are equal, so that the layout of pairs alone may differ."""
        return not self.differing and self.magnitudes[0] == self.magnitudes[1]


@dataclass(frozen=True, eq=False)
class LayerDifference:
    """The schemes of some layers, which differ, as code; None for none. Two rotary ones are compared."""

    layers: Sequence[int]
    first: str | None
    second: str | None
    rotary: RotaryDifference | None = None


@dataclass(frozen=True, eq=False)
class ConfigurationDifference:
    """The difference between two configurations."""

    keys: Sequence[ChangedValue] = ()  # that differ, where both are Hugging Face's own
    facts: Sequence[ChangedValue] = ()  # that differ in this library's terms, where no key has the same name and values
    query_key: Sequence[LayerDifference] = ()  # layers whose maps of queries and keys differ
    score: Sequence[LayerDifference] = ()  # layers whose biases differ
    not_understood: str | None = None  # why keys alone are compared; None where both are understood


def configurations(first: "Checkpoint | Description", second: "Checkpoint | Description") -> ConfigurationDifference:
    """Compare two configurations: the keys, and what they mean for each layer; layers that differ alike are grouped."""
    keys = _keys(first, second)
    if keys == []:
        return ConfigurationDifference()  # one configuration: no need to interpret it
    try:
        one, other = (side.description if isinstance(side, Checkpoint) else side for side in (first, second))
    except (WhatWhereError, NotImplementedError) as problem:
        if all(isinstance(side, Checkpoint) and side.config is None and not side.metadata for side in (first, second)):
            raise NoData("neither has a configuration") from None
        if keys is None:
            raise NoData(f"a configuration is not understood: {reason_of(problem)}") from None
        return ConfigurationDifference(keys, not_understood=reason_of(problem))
    length = max((side.max_length or 0 for side in (one, other)), default=0) or _DISTANCES[-1]
    facts = [
        ChangedValue(name, _value(getattr(one, name)), _value(getattr(other, name)))
        for name in _FACTS
        if getattr(one, name) != getattr(other, name)
    ]
    for name in ("num_heads", "key_heads", "head_dim"):
        values = [_value(tuple(getattr(heads, name) for heads in side.heads) or None) for side in (one, other)]
        if values[0] != values[1]:
            facts.append(ChangedValue(name, *values))
    if keys is None and one.windows != other.windows:  # else the keys of the windows are listed
        facts.append(ChangedValue("windows", _windows(one), _windows(other)))
    if keys is None and one.temperatures != other.temperatures:
        facts.append(ChangedValue("temperatures", _value(one.temperatures), _value(other.temperatures)))
    return ConfigurationDifference(
        keys=keys or [], facts=[fact for fact in facts if fact not in (keys or ())],
        query_key=_layers(one.query_key, other.query_key, length), score=_layers(one.score, other.score, length),
    )  # fmt: skip


def _layers(first: "tuple[Plan | None, ...]", second: "tuple[Plan | None, ...]", length: int) -> list[LayerDifference]:
    found = []
    for (a, b), layers in layers_of([*zip(first, second, strict=False)]):
        if a != b:
            one, other = (None if plan is None else repr(plan) for plan in (a, b))
            found.append(LayerDifference(layers, one, other, _rotary(a, b, length)))
    return found


def _keys(first: "Checkpoint | Description", second: "Checkpoint | Description") -> list[ChangedValue] | None:
    """Compare the keys of two configurations of Hugging Face; None where one is made from something else."""
    both = (first, second)
    sides = [side.config for side in both if isinstance(side, Checkpoint) and side.format != "gguf"]
    if len(sides) < 2 or None in sides:
        return None
    one, other = (dict(_flat(side or {})) for side in sides)
    names = [name for name in {**one, **other} if name.split(".")[-1] not in _IGNORED]
    absent = object()
    return [
        ChangedValue(name, _value(one.get(name)), _value(other.get(name)))
        for name in names
        if one.get(name, absent) != other.get(name, absent)
    ]


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _value(value: object) -> Value:
    """Return a value that JSON holds, else its code; a tuple of equal values as one."""
    if isinstance(value, tuple) and len(set(map(repr, value))) == 1:
        value = value[0]
    return value if value is None or isinstance(value, str | int | float) else repr(value)


def _windows(description: "Description") -> str:
    """Return which layers have which window, such as "16 tokens: layers 0, 2"."""
    texts = []
    for window, layers in layers_of(description.windows):
        which = "every layer" if len(layers) == description.layers else f"layers {', '.join(map(str, layers))}"
        texts.append(f"{'chunks of ' * window.chunked}{window.size} tokens: {which}")
    return "; ".join(texts) or "none"


def _rotary(first: "Plan | None", second: "Plan | None", length: int) -> RotaryDifference | None:
    """Compare two rotary embeddings; None where one is none, or they differ in their number of pairs."""
    if first is None or second is None:
        return None
    schemes: list[Any] = [plan.build() for plan in (first, second)]
    if not all(hasattr(scheme, "follows_length") and hasattr(scheme, "rotary_dim") for scheme in schemes):
        return None
    one, other = schemes
    if one.rotary_dim != other.rotary_dim:
        return None
    a, b = (_frequencies(scheme, length) for scheme in schemes)
    distances = [n for n in _DISTANCES if n < length] + [length]
    # Where frequencies follow the length, each distance is compared in a text that is just long enough for it.
    cosine = [float(rotary_agreement(_frequencies(one, d + 1), _frequencies(other, d + 1), [d])[0]) for d in distances]
    return RotaryDifference(
        pairs=len(a), differing=int((np.abs(b - a) > _TOLERANCE * np.maximum(a, b)).sum()), length=length,
        frequencies=(a, b), ratio=np.divide(b, a, out=np.full(len(a), np.nan), where=a > 0),
        magnitudes=(float(one.magnitude), float(other.magnitude)), interleaved=(one.interleaved, other.interleaved),
        distances=distances, cosine=cosine,
    )  # fmt: skip


def _frequencies(scheme: Any, length: int) -> Float[np.ndarray, " pairs"]:
    """Return the frequencies for a text of some length."""
    from torch import tensor

    return np.asarray(scheme.frequencies(tensor(length) if scheme.follows_length else None).numpy())
