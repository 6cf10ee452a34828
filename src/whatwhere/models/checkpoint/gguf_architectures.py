"""What llama.cpp does with positions in each architecture of GGUF that is read: rows of gguf_architectures.json.

Keys of a header are sizes and numbers; which layers rotate or have a window, and which features are a pair, is in the
code of llama.cpp alone. The facts are those of its files of models and of `llama_model_rope_type`. Under which keys the
sizes of a header are read is that of the model type.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from whatwhere.escape import quoted
from whatwhere.models.configuration.model_types import FULL, SLIDING, Rope, find_model_type

WINDOW = "attention.sliding_window"
_SIZES = {
    "dim": "embedding_length", "layers": "block_count", "num_heads": "attention.head_count",
    "key_heads": "attention.head_count_kv", "head_dim": "attention.key_length", "max_length": "context_length",
}  # fmt: skip
"""Size of a model type -> its key of GGUF."""
_THETAS = {"": "rope.freq_base", FULL: "rope.freq_base", SLIDING: "rope.freq_base_swa"}
"""Set of rope parameters -> its key of GGUF."""


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One architecture of GGUF."""

    type: str  # model type of transformers with the same positions
    windowed_type: str | None = None  # that of files that have a window, if it is another
    # Features of a query or key that are a pair in the file: llama.cpp's NORM is interleaved, NEOX half; None does not
    # rotate. Where transformers has halves and llama.cpp NORM, its converter permutes rows.
    pairs: Literal["interleaved", "half"] | None = None
    whole: bool = False  # heads are rotated whole, or the part of them is in no key
    keys: dict[str, str] = {}  # of GGUF -> of transformers, beside those of sizes
    read: tuple[str, ...] = ()  # further keys, which its own lines of gguf_config.py read
    settings: dict[str, Any] = {}  # of transformers, implied by llama.cpp's code
    defaults: dict[str, float] = {}  # of llama.cpp for absent keys
    only: dict[str, Any] = {}  # keys -> the only value by which its code computes, whatever the header says
    needs: tuple[str, ...] = ()  # keys without which llama.cpp refuses a header, or computes otherwise
    # Layers with a window: `by layer`, as `attention.sliding_window_pattern` tells, or else the model type.
    windows: Literal["in all layers", "by layer"] | None = None
    full_first: bool = False  # a period of the pattern begins with the layer without a window
    recurrent: str | None = None  # type of layers with 0 key heads; None if heads cannot differ, "" if types do not
    causal: bool = True
    part: Literal["encoder"] | None = None  # that the file has, of a model of two


class _Architectures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    read: dict[str, Architecture]
    unread: dict[str, tuple[str, ...]]


_DATA = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=_Architectures)
ARCHITECTURES: Mapping[str, Architecture] = _DATA.read  # name of an architecture -> what llama.cpp does in it
NOT_READ: Mapping[str, tuple[str, ...]] = _DATA.unread  # reason -> architectures whose positions are not read for it

IN_A_HEADER = (
    "It is in the header of this GGUF file, perhaps under another name: head_dim is attention.key_length there. If the "
    "header is wrong, convert the model again. Else read its config.json, with whatwhere.read, or build its positions "
    "from parts: Rotary, ALiBi, Learned, Where."
)
"""The way out where a key of a header is refused, which nobody can change as a configuration."""


def names_of(architecture: Architecture) -> tuple[dict[str, str], str | None]:
    """Return the keys of transformers for those of GGUF, and that of the fraction of a head that is rotated, if any."""
    kind = find_model_type(architecture.type)
    sizes = kind.names_of("encoder" if kind.parts else None)
    names = {key: sizes[size][0] for size, key in _SIZES.items() if size in sizes}
    names.setdefault(_SIZES["head_dim"], "head_dim")  # with which the reader of configurations compares
    number = None if kind.embedding is None else kind.embedding.number
    if number is not None and number not in architecture.settings:
        names["embedding_scale"] = number
    if architecture.pairs is None:
        return names | architecture.keys, None
    rope = kind.rope or Rope()
    names |= {_THETAS[label]: own.theta_key for label, own in rope.sets.items() if own.theta_key is not None}
    fraction = None if architecture.whole else next(iter(rope.sets.values())).fraction_key
    if rope.dim_key is not None:  # of latent attention, whose heads have two parts
        del names[_SIZES["head_dim"]]
    if (features := rope.dim_key or rope.rotary_dim_key) is not None:
        names["rope.dimension_count"], fraction = features, None
    return names | architecture.keys, fraction


def why_unread(metadata: Mapping[str, object]) -> str | None:
    """Return why positions of the architecture in a header of GGUF are not read; None if they are."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name in ARCHITECTURES:
        return None
    why = next((why for why, names in NOT_READ.items() if name in names), "what llama.cpp does in it is not known")
    return f"positions of the GGUF architecture {quoted(name)} are not read: {why}"
