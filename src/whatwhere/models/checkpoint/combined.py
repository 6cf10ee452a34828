"""Tensors that a file stores in parts, each shown as the one that the model has; its rows are computed when read.

Parts are codes and their scales (quantized.py), a base and what an adapter adds to it (adapters.py), or the shared rows
and the mapping of model2vec.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, final

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.models.checkpoint.base import Chosen, Combined, Contents, Entry, Reader, new_rows

if TYPE_CHECKING:
    from torch import Tensor

MERGE = "Pass the base, or merge the two: model.merge_and_unload().save_pretrained(FOLDER)."
_BLOCK = 1 << 18
"""Numbers that are computed at once."""
_MOST = 1 << 30
"""Numbers of a table behind a mapping, of which a small file could claim any number."""


class Unread(Exception):
    """The rows are not known; the message says why, as `Combined.why`."""


def with_combined(contents: Contents, found: Mapping[str, Combined]) -> Contents:
    """Return contents in which combined tensors stand for their parts."""
    if not found:
        return contents
    whole = {part: name for name, one in found.items() for part in one.parts}
    entries: dict[str, Entry] = {}
    for name, entry in contents.entries.items():
        entry = found[whole[name]].entry if name in whole else entry
        entries.setdefault(entry.name, entry)
    combined = {**contents.combined, **found}
    return replace(contents, entries=entries, reader=CombinedReader(contents.reader, found), combined=combined)


def entry_of(contents: Contents, name: str, shape: tuple[int, ...], dtype: str, parts: tuple[str, ...]) -> Entry:
    """Return the entry of a combined tensor, in the file of its first part."""
    entries = [contents.entries[part] for part in parts]
    return Entry(name, shape, dtype, sum(entry.bytes for entry in entries), entries[0].file)


@final
class CombinedReader(Reader):
    """A reader of combined tensors, and of all others as they are stored.

    Args:
        reader: of the stored tensors.
        found: the combined tensors, by name.
    """

    def __init__(self, reader: Reader, found: Mapping[str, Combined]) -> None:
        self._reader, self._found = reader, found

    def array(self, name: str, rows: Chosen | None) -> np.ndarray:
        """Read a tensor, or compute its rows, block by block."""
        if name not in self._found:
            return self._reader.array(name, rows)
        one = self._found[name]
        if one.rows is None or rows is None:
            raise one.refused()
        dim = one.entry.shape[1]
        step = max(_BLOCK // max(dim, 1), 1)
        with np.errstate(all="ignore"):  # an infinite scale times zero is NaN, which is kept
            first = one.rows(rows[:step])
            out = new_rows(one.entry, (len(rows), dim), first.dtype)
            out[:step] = first
            for start in range(step, len(rows), step):
                out[start : start + step] = one.rows(rows[start : start + step])
        return out

    def tensor(self, name: str, rows: Chosen | None) -> "Tensor":
        """Read a tensor in its stored type, or compute its rows."""
        return super().tensor(name, rows) if name in self._found else self._reader.tensor(name, rows)


def model2vec(contents: Contents) -> Contents:
    """Return contents in which the table of model2vec has a row for each token: embeddings[mapping[i]] * weights[i].

    Its numbers of 8 bits are the numbers that the model averages, without a scale.
    """
    table, mapping, weights = (contents.entries.get(name) for name in ("embeddings", "mapping", "weights"))
    config = contents.config or {}
    ours = config.get("model_type") == "model2vec" or mapping is not None
    if not ours or table is None or len(table.shape) != 2 or (mapping is weights is None and table.dtype != "int8"):
        return contents
    rows = (mapping or weights or table).shape[0] if (mapping or weights or table).shape else 0
    sides = [entry for entry in (mapping, weights) if entry is not None]
    if any(entry.shape != (rows,) for entry in sides) or (mapping is None and rows != table.shape[0]):
        shapes = ", ".join(f"{entry.name} {entry.shape}" for entry in (table, *sides))
        raise CheckpointError(
            f"{table.file}: the shapes of model2vec's tensors contradict each other: {shapes}.\n"
            "`mapping` and `weights` have a number for each token: save the model again."
        )
    if mapping is not None and ("int" not in mapping.dtype or rows * table.shape[1] > _MOST):
        raise CheckpointError(
            f"{table.file}: `mapping` has the type {mapping.dtype} and {rows:,} rows of {table.shape[1]:,} numbers; "
            f"whole numbers are needed, and at most {_MOST:,} numbers are read.\nSave the model again."
        )
    reader = contents.reader

    def read(chosen: Chosen) -> np.ndarray:
        numbers = np.asarray(chosen)
        if mapping is not None:
            numbers = reader.array("mapping", chosen).astype(np.int64)
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < table.shape[0]:
                raise CheckpointError(
                    f"{table.file}: `mapping` names a row outside the {table.shape[0]:,} of `embeddings`.\n"
                    "The file is damaged: save the model again."
                )
        own, back = np.unique(numbers, return_inverse=True)
        values = reader.array("embeddings", own)[back]
        values = values.astype(np.float32) if values.dtype.kind in "iu" else values
        return values if weights is None else values * reader.array("weights", chosen).astype(values.dtype)[:, None]

    parts = tuple(entry.name for entry in (table, *sides))
    label = table.dtype if mapping is None else f"{table.dtype}, shared by tokens"
    entry = entry_of(contents, table.name, (rows, table.shape[1]), f"{label}{', weighted' if weights else ''}", parts)
    why = f"is stored in {len(parts)} tensors of model2vec ({', '.join(parts)}), which are not changed together"
    learned = prod(table.shape) + (rows if weights else 0)
    way_out = "Distill the model again with the tokens it needs."
    return with_combined(contents, {table.name: Combined(entry, parts, read, why, way_out, learned)})
