"""Golden vectors: the numbers of a model's positions in a neutral form, written, and compared with those of a port.

A folder has golden.json, which describes the layers, and golden.safetensors with the numbers, in float64, for each kind
of layer. A port in any language writes what it computes under the same names, any subset; `verify` says which law it
breaks, where, and by which known mistake.
"""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial as bind
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float64, Int64

from whatwhere.atomic import atomic_folder
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.base import checked_rows
from whatwhere.models.checkpoint.files import read_json
from whatwhere.models.checkpoint.safetensors import read_header
from whatwhere.models.configuration.description import Description
from whatwhere.models.load_where import attention_of_layers
from whatwhere.position.positions import Positions
from whatwhere.records import Schema, from_json
from whatwhere.testing.harness import BFLOAT16, ROTATION, Measurement, Trial, float32_tolerance, run_all, sample
from whatwhere.testing.report import Finding, Report
from whatwhere.where.score.t5 import T5
from whatwhere.where.score_bias import DistanceBias

if TYPE_CHECKING:
    from whatwhere.where.binding import Where
    from whatwhere.where.window import Window

SCHEMA = Schema("whatwhere-golden", 2, "Write both files again by whatwhere golden.", unchecked={1})
POSITIONS = (0, 1, 4097, 131_071)
DISTANCES = (0, 1, 2, 7, 8, 63, 64, 127, 128, 4096)
RECORD, NUMBERS = "golden.json", "golden.safetensors"
_ROWS = 4  # rows of a learned position table that are written: those of the first positions
_OF_MODEL = ("embedding_scale", "embedding_scale_in_bfloat16", "position_rows")
"""Names of numbers that belong to no kind of layer."""
_MAX_BYTES = 100_000_000
_RELATIVE = {"float64": 2.0**-46, "float32": 2.0**-21}
"""Tolerance of numbers that are computed once and stored in a type, relative to the largest."""
_REAL = ("float64", "float32", "float16", "bfloat16", "int", "uint")
_COARSE = {"bfloat16": BFLOAT16, "float16": 2.0**-9}

Numbers = dict[str, np.ndarray]


@dataclass(frozen=True)
class LayerKind:
    """What some layers of a model do."""

    layers: tuple[int, ...]  # their numbers, from 0
    where: str  # their schemes, as code
    layout: str | None  # "half" or "interleaved", which features make a pair; None where nothing rotates
    names: tuple[str, ...]  # of the numbers in golden.safetensors, without `kind.N.`
    not_written: tuple[str, ...] = ()  # what these numbers leave out, and why


@dataclass(frozen=True)
class Golden:
    """The description of golden vectors."""

    format: str
    version: int
    model_type: str  # of the configuration
    part: str | None  # of the configuration
    positions: tuple[int, ...]  # at which cosine, sine, rotated vectors and temperatures are
    distances: tuple[int, ...]  # query minus key, at which biases and buckets are; of later keys, key minus query
    kinds: tuple[LayerKind, ...]  # of layers, in the order of their first layer
    position_offset: int  # row of position 0 in a learned position table
    sha256: str  # of golden.safetensors


def write_golden(source: Description | Checkpoint, out: str | Path, *, force: bool = False) -> Golden:
    """Write the golden vectors of a model, or of its description alone, without learned numbers; return what they are.

    `force` replaces an existing folder of golden vectors.
    """
    from safetensors.numpy import save

    out = Path(out)
    if out.exists() and not (force and (out / RECORD).is_file()):
        raise CheckpointError(
            f"{out} exists already.\nChoose another folder{', or --force to replace golden vectors' * (not force)}."
        )
    numbers: Numbers = {}
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
    if isinstance(source, Checkpoint) and (table := source.position_table) is not None:
        first = source.position_offset or 0
        numbers["position_rows"] = source.array(table, slice(first, first + _ROWS)).astype(np.float64)
    content = save({name: np.array(value, order="C") for name, value in numbers.items()})
    golden = Golden(
        SCHEMA.format, SCHEMA.version, description.model_type, description.part, POSITIONS, DISTANCES, tuple(kinds),
        description.position_offset, sha256(content).hexdigest(),
    )  # fmt: skip
    try:
        with atomic_folder(out, replace=force) as folder:
            (folder / NUMBERS).write_bytes(content)
            (folder / RECORD).write_text(json.dumps(SCHEMA.wrap(golden), indent=1) + "\n", encoding="utf-8")
    except OSError as problem:
        raise CheckpointError(f"{out} cannot be written: {problem.strerror or problem}.") from None
    return golden


Layers = list[tuple[int, Any, tuple[str, ...]]]
"""Layers of a kind: their numbers, their schemes, and what is missing of their learned numbers."""


def _kinds(source: Description | Checkpoint) -> list[Layers]:
    """Return the layers by what they do: schemes, and learned numbers but for sinks and SSMax."""
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
    scheme: Any = getattr(where.query_key, "then", where.query_key)
    return scheme if hasattr(scheme, "inverse_frequencies") else None


def _numbers_of(layers: Layers, head_dim: int, causal: bool) -> tuple[Numbers, tuple[str, ...]]:
    """Return the numbers of layers of one kind, and what is left out."""
    _, where, missing = layers[0]
    rotary, scheme, name = _inner(where), where.query_key, type(where.query_key).__name__
    numbers: Numbers = {}
    left: list[str] = []
    if rotary is not None and missing and _is_learned(rotary):
        left.append(f"the frequencies of {type(rotary).__name__}, which are weights")
    elif rotary is not None:
        numbers |= _rotation(rotary)
        if rotary.follows_length:
            left.append("frequencies of sequences beyond the trained length, which this scaling changes")
        if type(rotary).__name__ not in ("Rotary", "LearnedRotary"):
            left.append("coordinates that differ by axis: all have the position")
    elif scheme is not None and not hasattr(scheme, "curve") and name != "SSMax":
        left.append(f"{name}, which is not a rotation")
    if name == "SSMax" and missing:
        left.append("the factors of queries, which are weights")
    elif name == "SSMax":
        at = Positions.from_coordinates(torch.tensor(POSITIONS))
        factors = [deepcopy(where.query_key).double().factor(at)[0, :, :, 0] for _, where, _ in layers]
        numbers["temperature"] = torch.stack(factors).detach().numpy()
    elif (curve := getattr(scheme, "curve", None)) is not None:
        numbers["temperature"] = curve.at(torch.tensor(POSITIONS)).numpy()
    numbers["scale"] = np.array(head_dim**-0.5 if where.scale is None else where.scale)
    if where.window is not None:
        numbers |= _seen(where.window, causal)
    if where.score is not None:
        biases, why = _bias(where.score, bool(missing))
        numbers |= biases
        left += why
    if where.sink is not None and missing:
        left.append("the sinks' logits, which are weights")
    elif where.sink is not None:
        sinks = [where.sink.weight for _, where, _ in layers if where.sink is not None]
        numbers["sink"] = torch.stack(sinks).detach().double().numpy()
    return numbers, tuple(left)


def _is_learned(scheme: Any) -> bool:
    return any(True for _ in scheme.parameters())


def _seen(window: "Window", causal: bool) -> Numbers:
    """Return the size of a window, and the first key that each position sees; in encoders also the last."""
    keys = torch.arange(POSITIONS[-1] + window.size + 1)[None]
    near = [window.near(torch.tensor([[position]]), keys)[0].nonzero()[:, 0] for position in POSITIONS]
    last = {} if causal else {"last_key": np.array([int(seen[-1]) for seen in near])}
    return {"window": np.array(window.size), "first_key": np.array([int(seen[0]) for seen in near]), **last}


def _rotation(rotary: Any) -> Numbers:
    """Return pairs, frequencies, cosine and sine times the magnitude, and vectors before and after."""
    half = rotary.rotary_dim // 2
    first = np.arange(half) * (2 if rotary.interleaved else 1)
    pairs = rotary.rotary_start + np.stack([first, first + (1 if rotary.interleaved else half)], axis=1)
    frequencies = rotary.inverse_frequencies.detach().numpy()
    angles = np.array(POSITIONS)[:, None] * frequencies
    cos, sin = np.cos(angles) * rotary.magnitude, np.sin(angles) * rotary.magnitude
    query, key = (sample(len(POSITIONS), rotary.head_dim, seed=n).double().numpy() for n in (0, 1))
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


def _bias(scheme: object, missing: bool) -> tuple[Numbers, tuple[str, ...]]:
    """Return T5's rows and the bias at each distance, and of later keys where they have their own; or why not."""
    if not isinstance(scheme, DistanceBias):
        return {}, (f"the bias of {type(scheme).__name__}, which does not depend on the distance alone",)
    sides = {"": torch.tensor(DISTANCES)}
    if isinstance(scheme, T5) and scheme.bidirectional:
        sides["_of_later_keys"] = -sides[""]
    numbers: Numbers = {}
    if isinstance(scheme, T5):
        numbers |= {f"buckets{side}": scheme.buckets(distances).numpy() for side, distances in sides.items()}
    if missing and _is_learned(scheme):
        return numbers, (f"the bias of {type(scheme).__name__}, whose numbers are weights",)
    heads, curve = torch.arange(scheme.num_heads)[:, None], scheme.curve(torch.device("cpu"))
    values = {f"bias{side}": curve(heads, distances) for side, distances in sides.items()}
    return numbers | {name: value.detach().double().numpy() for name, value in values.items()}, ()


def _embedding_scales(description: Description) -> Numbers:
    """Return the embedding scale, and what becomes of it in a bfloat16 table that rounds it first, as Gemma's does."""
    scale = description.embedding_scale
    number = float(description.token_dim) ** 0.5 if isinstance(scale, str) else float(scale or 1.0)
    numbers = {"embedding_scale": np.array(number)}
    if scale == "sqrt_dim_rounded":
        numbers["embedding_scale_in_bfloat16"] = np.array(torch.tensor(number).to(torch.bfloat16).item())
    return numbers


# Compared with a port


def verify(
    folder: str | Path, numbers: str | Path, *, float32_angles: bool = False, partial: bool = False
) -> dict[str, Report]:
    """Compare the numbers that a port computes with golden vectors, law by law: what fails, where, by which mistake.

    `numbers` is a file of safetensors with the names of golden.safetensors, in any floating-point type; `query` and
    `key` may be left out, and with `partial` any. `float32_angles` allows angles whose error grows with the position,
    as in transformers. The reports are by kind of layer, and one for the model.
    """
    golden, right = read_golden(folder)
    given, stored = _read_numbers(Path(numbers))
    if not given:
        raise SettingError(f"{numbers} has no numbers.\nWrite some under the names of {NUMBERS}.")
    for name, value in given.items():
        if name in right and right[name].shape == () and value.shape == (1,):  # as of libraries without scalars
            given[name] = value = value.reshape(())
        if name not in right:
            raise SettingError(
                f"{numbers} has {quoted(name)}, which is not a name of these golden vectors.\nThey are: "
                f"{', '.join(list(right)[:12])}, ..."
            )
        if value.shape != right[name].shape:
            raise SettingError(f"{numbers}: {quoted(name)} has the shape {value.shape}, but needs {right[name].shape}.")

    def findings(prefix: str, names: Sequence[str]) -> tuple[Finding, ...]:
        trials: list[Trial] = []
        own = {name: right[prefix + name] for name in names}
        absent: list[Finding] = []
        for name in names:
            law, statement = name.replace("_", " "), _STATEMENTS.get(name, "the number is that of the model")
            if (full := prefix + name) in given:
                measure = bind(_measured, name, own, given[full], stored[full], float32_angles)
                trials.append(Trial(law, statement, measure))
            elif not partial and name not in ("query", "key"):
                note = f"the file has no {full}; --partial, or partial=True, compares those that are"
                absent.append(Finding(law, statement, "fails", note=note))
        return (*(run_all(trials) if trials else ()), *absent)

    reports = {}
    for n, kind in enumerate(golden.kinds):
        if found := findings(f"kind.{n}.", kind.names):
            layers = ", ".join(map(str, kind.layers[:8])) + (", ..." if len(kind.layers) > 8 else "")
            reports[f"kind {n}, layers {layers}"] = Report("verify", {"where": kind.where}, found)
    if found := findings("", [name for name in right if name in _OF_MODEL]):
        reports["model"] = Report("verify", {"model_type": golden.model_type}, found)
    return reports


def read_golden(folder: str | Path) -> tuple[Golden, Numbers]:
    """Read golden vectors, and check that their numbers are those that were written."""
    folder = Path(folder)
    if not (folder / RECORD).is_file():
        raise CheckpointError(f"{folder} has no {RECORD}.\nPass a folder that whatwhere golden has written.")
    record = SCHEMA.unwrap(read_json(folder / RECORD, _MAX_BYTES), str(folder / RECORD), CheckpointError)
    golden = from_json(Golden, record, RECORD)
    numbers, _ = _read_numbers(folder / NUMBERS)
    if sha256((folder / NUMBERS).read_bytes()).hexdigest() != golden.sha256:
        raise CheckpointError(
            f"{folder / NUMBERS} is not the file that {RECORD} describes: its hash is another.\n{SCHEMA.way_out}"
        )
    named = {f"kind.{n}.{name}" for n, kind in enumerate(golden.kinds) for name in kind.names}
    same = (golden.positions, golden.distances) == (POSITIONS, DISTANCES)
    if not same or named != numbers.keys() - set(_OF_MODEL):
        raise CheckpointError(
            f"{folder / RECORD} has other names, positions or distances than {NUMBERS}.\n{SCHEMA.way_out}"
        )
    return golden, numbers


def _read_numbers(path: Path) -> tuple[Numbers, Mapping[str, str]]:
    """Return the numbers of a file, whose header is checked before they are read, and the types that it has stored."""
    ranges, _ = read_header(path)
    types = {name: one.dtype for name, one in ranges.items()}
    if sum(one.bytes for one in ranges.values()) > _MAX_BYTES:
        raise CheckpointError(f"{path} has more than {_MAX_BYTES:,} bytes, and golden vectors have fewer.")
    for name, dtype in types.items():
        if not dtype.startswith(_REAL):
            raise SettingError(
                f"{path}: {quoted(name)} is of type {dtype}, but a whole or real one of at least 16 bits is needed."
            )
    return {name: one.array(checked_rows(one, None)) for name, one in ranges.items()}, types


_STATEMENTS = {
    "pairs": "the features that make a pair are those of the weights",
    "inverse_frequencies": "each pair rotates by its frequency per position",
    "magnitude": "rotated features are multiplied by the scaling's magnitude",
    "cos": "cosine times magnitude, of the position times the frequency",
    "sin": "sine times magnitude, of the position times the frequency",
    "query": "the query to rotate is the one that was given",
    "key": "the key to rotate is the one that was given",
    "rotated_query": "a query is rotated by its position",
    "rotated_key": "a key is rotated by its position",
    "temperature": "a query is multiplied by the temperature of its position",
    "scale": "scores are multiplied by the softmax scale",
    "window": "a query sees as many tokens as the window has",
    "first_key": "the first key that a query sees at each position",
    "last_key": "the last key that a query sees at each position",
    "sink": "the logit of each head in the denominator of the softmax, by layer",
    "bias": "the bias of each head at each distance",
    "bias_of_later_keys": "the bias of each head of keys as many tokens later",
    "buckets": "the row of the table of biases at each distance",
    "buckets_of_later_keys": "the row of the table of biases of keys as many tokens later",
    "embedding_scale": "token vectors are multiplied by the embedding scale",
    "position_rows": "the rows of the learned position table for the positions from 0 on",
    "embedding_scale_in_bfloat16": "a table in bfloat16 rounds the embedding scale first",
}


def _measured(name: str, right: Numbers, actual: np.ndarray, stored: str, float32_angles: bool) -> Measurement:
    """Return the errors of a port by position or distance, with the tolerance of the type that it has written."""
    expected, explain = right[name], bind(_explained, name, right, actual, stored)
    positions, distances = torch.tensor(POSITIONS), torch.tensor(DISTANCES)
    errors = np.abs(actual.astype(np.float64) - expected)
    size = float(np.abs(expected).max()) or 1.0
    if name in ("cos", "sin", "rotated_query", "rotated_key"):
        rows = errors.reshape(len(positions), -1).max(axis=1)
        base = [float32_tolerance(position) if float32_angles else ROTATION for position in POSITIONS]
        allowed = [max(one, _COARSE.get(stored, 0.0)) * max(1.0, size) for one in base]
        return Measurement(torch.from_numpy(rows), positions, torch.tensor(allowed, dtype=torch.float64), explain)
    relative = 0.0 if np.issubdtype(actual.dtype, np.integer) else _RELATIVE.get(stored, 2.0**-7)
    # An error of 0 is allowed of whole numbers, and divides by no tolerance of 0.
    tolerance = max(relative * size, 2.0**-60)
    if name.startswith(("bias", "buckets")):
        rows = errors.reshape(-1, len(distances)).max(axis=0)
        return Measurement(torch.from_numpy(rows), distances, tolerance, explain, unit="distance")
    if name == "position_rows":
        return Measurement(torch.from_numpy(errors.max(axis=1)), torch.arange(len(errors)), tolerance, explain)
    at = positions if name in ("first_key", "last_key") else torch.arange(errors.size)
    return Measurement(torch.from_numpy(errors.reshape(-1)), at, tolerance, explain)


def _explained(name: str, right: Numbers, actual: np.ndarray, stored: str) -> str:
    """Return the known mistake that explains wrong numbers; "" where none does."""
    if name not in ("rotated_query", "rotated_key"):
        return _explained_number(name, right, actual, 1e-2 if stored in _COARSE else 1e-5)
    x, pairs, cos, sin = (right[part] for part in (name.removeprefix("rotated_"), "pairs", "cos", "sin"))
    magnitude, rotary = float(right["magnitude"]), np.unique(pairs)
    layouts = {"interleaved": rotary.reshape(-1, 2), "half": rotary.reshape(2, -1).T}
    mistakes = {
        **{
            f"it is correct in the {layout} layout": rotated(x, other, cos, sin)
            for layout, other in layouts.items()
            if not np.array_equal(other, pairs)
        },
        "it rotates the other way: its sine has the opposite sign": rotated(x, pairs, cos, -sin),
        "nothing is rotated": x,
    }
    if magnitude != 1:
        mistakes["the scaling's magnitude is not applied"] = rotated(x, pairs, cos / magnitude, sin / magnitude)
    tolerance = 1e-2 if stored in _COARSE else 1e-4
    near = POSITIONS.index(4097)  # beyond, angles in float32 differ
    for explanation, mistake in mistakes.items():
        if np.abs(actual[: near + 1] - mistake[: near + 1]).max() <= tolerance:
            return explanation
    if np.abs(actual - right[name])[: near + 1].max() <= tolerance:
        return _ROUNDED_ANGLES
    return ""


_ROUNDED_ANGLES = "angles of large positions are rounded: compute them in float64, or pass --float32-angles to allow it"


def _explained_number(name: str, right: Numbers, actual: np.ndarray, tolerance: float) -> str:
    """Return the known mistake that explains numbers other than rotated vectors."""
    expected = right[name].astype(np.float64)
    change = actual - expected
    magnitude, moved = float(right.get("magnitude", 1.0)), {*np.unique(change).tolist()} - {0.0}
    off_by_one, rounded = moved in ({1.0}, {-1.0}), np.array([[tolerance], [tolerance], [1e-3]])  # to position 4097
    offsets = [n for n in (1, 2) if actual.ndim and n < len(actual)]  # 2 is that of OPT and RoBERTa
    moved_rows = [pair for n in offsets for pair in ((actual[:-n], expected[n:]), (actual[n:], expected[:-n]))]
    mistakes: dict[str, bool] = {
        "the scaling's magnitude is not applied": name in ("cos", "sin", "magnitude")
        and magnitude != 1
        and np.allclose(actual * magnitude, expected, 0, tolerance * magnitude),
        "it is 1 / head_dim: the square root is missing": name == "scale"
        and np.allclose(actual, expected**2, tolerance, 0),
        "scores are not scaled": name == "scale" and np.allclose(actual, 1.0, tolerance, 0),
        "it is off by one: a window counts the query itself": name in ("window", "first_key", "last_key")
        and off_by_one,
        "buckets are rounded up or to the nearest: T5 truncates them": name.startswith("buckets") and moved == {1.0},
        "it has the opposite sign": name.startswith("bias") and np.allclose(actual, -expected, 0, tolerance),
        "the rows are those of other positions, one or two later or earlier: see the offset of the table": (
            name == "position_rows" and any(np.allclose(one, other, 0, tolerance) for one, other in moved_rows)
        ),
        _ROUNDED_ANGLES: name in ("cos", "sin") and bool((np.abs(change[: len(rounded)]) <= rounded).all()),
    }
    return next((mistake for mistake, explains in mistakes.items() if explains), "")
