"""Verify the numbers of a port against golden vectors: which law fails, where, and which known mistake explains it."""

from collections.abc import Mapping, Sequence
from functools import partial as bind
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import checked_rows
from whatwhere.models.checkpoint.files import read_json
from whatwhere.models.checkpoint.safetensors import read_header
from whatwhere.models.golden.write import DISTANCES, NUMBERS, POSITIONS, RECORD, SCHEMA, Golden, rotated
from whatwhere.records import from_json
from whatwhere.testing.harness import BFLOAT16, ROTATION, Law, Measurement, Trial, float32_tolerance, run_all
from whatwhere.testing.report import Finding, Report

_MAX_BYTES = 100_000_000
_RELATIVE = {"float64": 2.0**-46, "float32": 2.0**-21}
"""Tolerance of numbers that are computed once and stored in a type, relative to the largest."""

_REAL = ("float64", "float32", "float16", "bfloat16", "int", "uint")
_COARSE = {"bfloat16": BFLOAT16, "float16": 2.0**-9}

Numbers = Mapping[str, np.ndarray]


def verify(
    folder: str | Path, numbers: str | Path, *, float32_angles: bool = False, partial: bool = False
) -> dict[str, Report]:
    """Compare the numbers that a port computes with golden vectors.

    Args:
        folder: of golden vectors, as `write_golden` writes it.
        numbers: a file of safetensors with the names of golden.safetensors, in any type of floating point; `query` and
            `key` may be left out.
        float32_angles: allow angles that are computed in float32, as in transformers: their error grows with the
            position.
        partial: compare the names that are there; otherwise the law of a name that is not there fails.

    Returns:
        For each kind of layer, and for the model, a report: law by law what passes, what fails, where, and by which
        known mistake it is explained.

    Raises:
        CheckpointError: If a file cannot be read, or the golden vectors were changed.
        SettingError: If a name or a shape is not one of the golden vectors'.
    """
    golden, right = read_golden(folder)
    given, stored = _read_numbers(Path(numbers))
    if not given:
        raise SettingError(f"{numbers} has no numbers.\nWrite some under the names of {NUMBERS}.")
    for name, value in given.items():
        if name not in right:
            raise SettingError(
                f"{numbers} has {quoted(name)}, which is not a name of these golden vectors.\nThey are: "
                f"{', '.join(list(right)[:12])}, ..."
            )
        if value.shape != right[name].shape:
            raise SettingError(
                f"{numbers}: {quoted(name)} has the shape {value.shape}, but {right[name].shape} is needed."
            )

    def findings(prefix: str, names: Sequence[str]) -> tuple[Finding, ...]:
        """Return what is found of these numbers, law by law; the law of one that the port has not written fails."""
        trials: list[Trial] = []
        absent: list[Finding] = []
        for name in names:
            law = Law(name.replace("_", " "), _STATEMENTS.get(name, "the number is that of the model"))
            if (own := prefix + name) in given:
                trials.append((law, bind(_measured, prefix, name, right, given[own], stored[own], float32_angles)))
            elif not partial and name not in ("query", "key"):
                note = f"{own} is not in the file; --partial, or partial=True, compares those that are"
                absent.append(Finding(law.name, law.statement, "fails", note=note))
        return (*(run_all(trials) if trials else ()), *absent)

    reports = {}
    for n, kind in enumerate(golden.kinds):
        if found := findings(f"kind.{n}.", kind.names):
            layers = ", ".join(map(str, kind.layers[:8])) + (", ..." if len(kind.layers) > 8 else "")
            reports[f"kind {n}, layers {layers}"] = Report("verify", {"where": kind.where}, found)
    if found := findings("", [name for name in right if name.startswith("embedding_scale")]):
        reports["model"] = Report("verify", {"model_type": golden.model_type}, found)
    return reports


def read_golden(folder: str | Path) -> tuple[Golden, Numbers]:
    """Read golden vectors, and check that their numbers are those that were written.

    Raises:
        CheckpointError: If it cannot be read, has another format or version, or was changed.
        SettingError: If a number is of no type that can be compared.
    """
    folder = Path(folder)
    if not (folder / RECORD).is_file():
        raise CheckpointError(f"{folder} has no {RECORD}.\nPass a folder that whatwhere golden has written.")
    record = SCHEMA.opened(read_json(folder / RECORD, _MAX_BYTES), str(folder / RECORD), CheckpointError)
    golden = from_json(Golden, record, RECORD)
    numbers, _ = _read_numbers(folder / NUMBERS)
    if sha256((folder / NUMBERS).read_bytes()).hexdigest() != golden.sha256:
        raise CheckpointError(
            f"{folder / NUMBERS} is not the file that {RECORD} describes: its hash is another.\nWrite both again by "
            "whatwhere golden."
        )
    named = {f"kind.{n}.{name}" for n, kind in enumerate(golden.kinds) for name in kind.names}
    same = (golden.positions, golden.distances) == (POSITIONS, DISTANCES)
    if not same or named != {name for name in numbers if not name.startswith("embedding_scale")}:
        raise CheckpointError(
            f"{folder / RECORD} has other names, positions or distances than {NUMBERS}.\nWrite both again by whatwhere "
            "golden."
        )
    return golden, numbers


def _read_numbers(path: Path) -> tuple[Numbers, Mapping[str, str]]:
    """Return the numbers of a file, whose header is checked before they are read, and the types that it has stored."""
    ranges, _ = read_header(path)
    if sum(one.bytes for one in ranges.values()) > _MAX_BYTES:
        raise CheckpointError(f"{path} has more than {_MAX_BYTES:,} bytes, and golden vectors have fewer.")
    for name, one in ranges.items():
        if not one.dtype.startswith(_REAL):
            raise SettingError(
                f"{path}: {quoted(name)} is of type {one.dtype}, but a real type of at least 16 bits, or a whole one, "
                "is needed."
            )
    numbers = {name: one.array(checked_rows(one, None)) for name, one in ranges.items()}
    return numbers, {name: one.dtype for name, one in ranges.items()}


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
    "embedding_scale_in_bfloat16": "a table in bfloat16 rounds the embedding scale first",
}


def _measured(
    prefix: str, name: str, right: Numbers, actual: np.ndarray, stored: str, float32_angles: bool
) -> Measurement:
    """Return the errors of a port by position or distance, with the tolerance of the type that it has written."""
    expected = right[prefix + name]
    explain = bind(_explained, name, expected, actual, stored, right, prefix)
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
    at = positions if name in ("first_key", "last_key") else torch.arange(errors.size)
    return Measurement(torch.from_numpy(errors.reshape(-1)), at, tolerance, explain)


def _explained(name: str, expected: np.ndarray, actual: np.ndarray, stored: str, right: Numbers, prefix: str) -> str:
    """Return the known mistake that explains wrong rotated vectors; "" where none does."""
    if name not in ("rotated_query", "rotated_key"):
        return ""
    x = right[prefix + name.removeprefix("rotated_")]
    pairs, cos, sin = (right[prefix + part] for part in ("pairs", "cos", "sin"))
    magnitude, rotary = float(right[prefix + "magnitude"]), np.unique(pairs)
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
    good = np.abs(actual - expected).max(axis=1) <= tolerance
    if good[: near + 1].all():
        return "angles of large positions are rounded: compute them in float64, or pass --float32-angles to allow it"
    return ""
