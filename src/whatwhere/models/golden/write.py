"""Write golden vectors: the numbers of a model's positions in a neutral form, to check a port in any language.

A folder has golden.json, which describes the layers, and golden.safetensors with the numbers, in float64, for each kind
of layer. A port writes what it computes under the same names, any subset, and `verify` says which law it breaks.
"""

import json
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, Int64

from whatwhere.atomic import atomic_folder
from whatwhere.errors import CheckpointError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.configuration.description import Description
from whatwhere.models.load_where import attention_of_layers
from whatwhere.records import Schema

if TYPE_CHECKING:
    from whatwhere.where.binding import Where
    from whatwhere.where.window import Window

SCHEMA = Schema("whatwhere-golden", 2, "Write both files again by whatwhere golden.", unchecked={1})
POSITIONS = (0, 1, 4097, 131_071)
DISTANCES = (0, 1, 2, 7, 8, 63, 64, 127, 128, 4096)
RECORD, NUMBERS = "golden.json", "golden.safetensors"


@dataclass(frozen=True)
class LayerKind:
    """What some layers of a model do.

    Args:
        layers: their numbers, from 0.
        where: their schemes, as code.
        layout: "half" or "interleaved", which features make a pair; None where nothing rotates.
        names: of the numbers in golden.safetensors, without `kind.N.`.
        not_written: what these numbers leave out, and why.
    """

    layers: tuple[int, ...]
    where: str
    layout: str | None
    names: tuple[str, ...]
    not_written: tuple[str, ...] = ()


@dataclass(frozen=True)
class Golden:
    """The description of golden vectors.

    Args:
        format, version: of the folder.
        model_type, part: of the configuration.
        positions: at which cosine, sine, rotated vectors and temperatures are.
        distances: query minus key, at which biases and buckets are; of later keys, key minus query.
        kinds: of layers, in the order of their first layer.
        position_offset: row of position 0 in a learned position table.
        sha256: of golden.safetensors.
    """

    format: str
    version: int
    model_type: str
    part: str | None
    positions: tuple[int, ...]
    distances: tuple[int, ...]
    kinds: tuple[LayerKind, ...]
    position_offset: int
    sha256: str


def write_golden(source: Description | Checkpoint, out: str | Path, *, force: bool = False) -> Golden:
    """Write the golden vectors of a model.

    Args:
        source: the model, or the description of its configuration alone, which has no learned numbers: both as
            `ww.read` returns them.
        force: replace an existing folder of golden vectors.

    Returns:
        What was written.

    Raises:
        CheckpointError: If the folder exists, or cannot be written; or a learned table has the wrong shape.
    """
    from safetensors.numpy import save

    out = Path(out)
    if out.exists() and not (force and (out / RECORD).is_file()):
        raise CheckpointError(
            f"{out} exists already.\nChoose another folder{', or --force to replace golden vectors' * (not force)}."
        )
    numbers: dict[str, np.ndarray] = {}
    kinds = []
    description = source if isinstance(source, Description) else source.description
    for n, layers in enumerate(_kinds(source)):
        number, where, _ = layers[0]
        own, left = _numbers_of(layers, description.heads[number].head_dim, description.causal)
        numbers |= {f"kind.{n}.{name}": value for name, value in own.items()}
        layout = {None: None, True: "interleaved", False: "half"}[getattr(_inner(where), "interleaved", None)]
        kinds.append(LayerKind(tuple(layer[0] for layer in layers), repr(where), layout, tuple(own), left))
    if description.embedding_scale is not None:
        numbers |= _embedding_scales(description)
    content = save({name: np.array(value, order="C") for name, value in numbers.items()})
    golden = Golden(
        SCHEMA.format, SCHEMA.version, description.model_type, description.part, POSITIONS, DISTANCES, tuple(kinds),
        description.position_offset, sha256(content).hexdigest(),
    )  # fmt: skip
    try:
        with atomic_folder(out, replace=force) as folder:
            (folder / NUMBERS).write_bytes(content)
            (folder / RECORD).write_text(json.dumps(SCHEMA.sealed(golden), indent=1) + "\n", encoding="utf-8")
    except OSError as problem:
        raise CheckpointError(f"{out} cannot be written: {problem.strerror or problem}.") from None
    return golden


Layers = list[tuple[int, Any, tuple[str, ...]]]
"""Layers of a kind: their numbers, their schemes, and what is missing of their learned numbers."""


def _kinds(source: Description | Checkpoint) -> list[Layers]:
    """Return the layers by what they do: schemes, and learned numbers but for sinks and SSMax.

    The first one of a model may add an input encoding besides.
    """
    found: list[tuple[Any, tuple[str, ...]]]
    if isinstance(source, Description):
        found = [(where, ("a configuration has no weights",)) for where in source.wheres()]
    else:
        found = attention_of_layers(source)
    kinds: dict[tuple[object, ...], Layers] = {}
    for number, (where, missing) in enumerate(found):
        shown = repr((where.query_key, where.score, where.scale, where.window, where.sink))
        learned: list[Any] = [module for module in (_inner(where), where.score) if module is not None and not missing]
        values = [p.detach().double().numpy().tobytes() for module in learned for p in module.parameters()]
        kinds.setdefault((shown, bool(missing), b"".join(values)), []).append((number, where, missing))
    return list(kinds.values())


def _inner(where: "Where") -> Any:
    """Return the map that rotates, also where a temperature is applied after it; None where nothing rotates."""
    scheme: Any = where.query_key
    scheme = getattr(scheme, "then", scheme) if hasattr(scheme, "then") else scheme
    return scheme if hasattr(scheme, "inverse_frequencies") else None


def _numbers_of(layers: Layers, head_dim: int, causal: bool) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    numbers: dict[str, np.ndarray] = {}
    left: list[str] = []
    _, where, missing = layers[0]
    rotary, positions, learned = _inner(where), np.array(POSITIONS), type(where.query_key).__name__ == "SSMax"
    if rotary is not None and missing and _is_learned(rotary):
        left.append(f"the frequencies of {type(rotary).__name__}, which are weights")
    elif rotary is not None:
        numbers |= _rotation(rotary, positions)
        if rotary.follows_length:
            left.append("frequencies of sequences beyond the trained length, which this scaling changes")
        if type(rotary).__name__ not in ("Rotary", "LearnedRotary"):
            left.append("coordinates that differ by axis: all have the position")
    elif where.query_key is not None and not hasattr(where.query_key, "curve") and not learned:
        left.append(f"{type(where.query_key).__name__}, which is not a rotation")
    if learned and missing:
        left.append("the factors of queries, which are weights")
    elif learned:
        numbers["temperature"] = np.stack([_factors(layer[1].query_key) for layer in layers])
    if (curve := getattr(where.query_key, "curve", None)) is not None:
        from torch import from_numpy

        numbers["temperature"] = curve.at(from_numpy(positions)).numpy()
    scale = where.scale if where.scale is not None else head_dim**-0.5
    numbers["scale"] = np.array(scale)
    if where.window is not None:
        numbers |= _seen(where.window, causal)
    if where.score is not None:
        biases, why = _bias(where.score, bool(missing))
        numbers |= biases
        left += why
    if where.sink is not None and missing:
        left.append("the sinks' logits, which are weights")
    elif where.sink is not None:
        sinks = [layer[1].sink for layer in layers]
        numbers["sink"] = np.stack([sink.weight.detach().double().numpy() for sink in sinks if sink is not None])
    return numbers, tuple(left)


def _is_learned(scheme: Any) -> bool:
    return any(True for _ in scheme.parameters())


def _factors(scheme: Any) -> Float64[np.ndarray, "heads positions"]:
    from torch import tensor

    from whatwhere.position.positions import Positions

    factors = deepcopy(scheme).double().factor(Positions.from_coordinates(tensor(POSITIONS)))
    return np.asarray(factors.detach()[0, :, :, 0].numpy())


def _seen(window: "Window", causal: bool) -> dict[str, np.ndarray]:
    """Return the size of a window, and the first key that each position sees; in encoders also the last."""
    from torch import arange, tensor

    def seen(position: int) -> Any:
        near = window.near(tensor([[position]]), arange(position + window.size + 1)[None])[0]
        return near.nonzero()[:, 0].tolist()

    numbers = {"window": np.array(window.size)}
    numbers["first_key"] = np.array([seen(position)[0] for position in POSITIONS])
    return numbers if causal else numbers | {"last_key": np.array([seen(position)[-1] for position in POSITIONS])}


def _rotation(rotary: Any, positions: Int64[np.ndarray, " positions"]) -> dict[str, np.ndarray]:
    """Return pairs, frequencies, cosine and sine times the magnitude, and vectors before and after."""
    from whatwhere.testing.harness import sample

    half = rotary.rotary_dim // 2
    first = np.arange(half) * (2 if rotary.interleaved else 1)
    pairs = rotary.rotary_start + np.stack([first, first + (1 if rotary.interleaved else half)], axis=1)
    frequencies = rotary.inverse_frequencies.detach().numpy()
    angles = positions[:, None] * frequencies
    cos, sin = np.cos(angles) * rotary.magnitude, np.sin(angles) * rotary.magnitude
    query, key = (sample(len(positions), rotary.head_dim, seed=n).double().numpy() for n in (0, 1))
    return {
        "pairs": pairs,
        "inverse_frequencies": frequencies,
        "magnitude": np.array(rotary.magnitude),
        "cos": cos,
        "sin": sin,
        "query": query,
        "key": key,
        "rotated_query": rotated(query, pairs, cos, sin),
        "rotated_key": rotated(key, pairs, cos, sin),
    }


def rotated(
    x: Float64[np.ndarray, "positions head_dim"],
    pairs: Int64[np.ndarray, "pairs 2"],
    cos: Float64[np.ndarray, "positions pairs"],
    sin: Float64[np.ndarray, "positions pairs"],
) -> Float64[np.ndarray, "positions head_dim"]:
    """Return vectors with each pair rotated by its angle at their position."""
    a, b = x[:, pairs[:, 0]], x[:, pairs[:, 1]]
    out = x.copy()
    out[:, pairs[:, 0]], out[:, pairs[:, 1]] = a * cos - b * sin, a * sin + b * cos
    return out


def _bias(scheme: object, missing: bool) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Return T5's rows and the bias at each distance, and of later keys where they have their own; or why not."""
    import torch

    from whatwhere.where.score.t5 import T5
    from whatwhere.where.score_bias import DistanceBias

    numbers: dict[str, np.ndarray] = {}
    if not isinstance(scheme, DistanceBias):
        return numbers, (f"the bias of {type(scheme).__name__}, which does not depend on the distance alone",)
    distances, two_sided = torch.tensor(DISTANCES), isinstance(scheme, T5) and scheme.bidirectional
    if isinstance(scheme, T5):
        numbers["buckets"] = scheme.buckets(distances).numpy()
        numbers |= {"buckets_of_later_keys": scheme.buckets(-distances).numpy()} if two_sided else {}
    if missing and _is_learned(scheme):
        return numbers, (f"the bias of {type(scheme).__name__}, whose numbers are weights",)
    heads = torch.arange(scheme.num_heads)[:, None]
    with torch.no_grad():
        curve = scheme.curve(torch.device("cpu"))
        numbers["bias"] = curve(heads, distances).double().numpy()
        numbers |= {"bias_of_later_keys": curve(heads, -distances).double().numpy()} if two_sided else {}
    return numbers, ()


def _embedding_scales(description: Description) -> dict[str, np.ndarray]:
    """Return the embedding scale, and what becomes of it in a bfloat16 table that rounds it first, as Gemma's does."""
    from torch import bfloat16, tensor

    scale = description.embedding_scale
    number = float(description.token_dim) ** 0.5 if isinstance(scale, str) else float(scale or 1.0)
    numbers = {"embedding_scale": np.array(number)}
    if scale == "sqrt_dim_rounded":
        numbers["embedding_scale_in_bfloat16"] = np.array(tensor(number).to(bfloat16).item())
    return numbers
