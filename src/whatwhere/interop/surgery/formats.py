"""The same numbers in another format: all tensors as safetensors, or the token table alone for other tools."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.interop.checkpoint.checkpoint import Checkpoint
from whatwhere.interop.checkpoint.numbers import BLOCKS
from whatwhere.interop.checkpoint.projector import write_projector
from whatwhere.interop.checkpoint.safetensors import TYPES
from whatwhere.interop.checkpoint.writing import Part, computed, new_file, new_folder, require_apart, write_safetensors
from whatwhere.interop.surgery.converting import cast_parts, finished
from whatwhere.interop.surgery.report import Changed, Report, told
from whatwhere.interop.surgery.source import Told, copy_beside

Format = Literal["safetensors", "npy", "word2vec", "projector"]
FORMATS: tuple[Format, ...] = ("safetensors", "npy", "word2vec", "projector")
_ROWS = 4096


def convert_format(
    path: str | Path,
    out: str | Path,
    format: Format,
    *,
    dtype: str | None = None,
    allow_pickle: bool = False,
    force: bool = False,
    progress: Told | None = None,
) -> Report:
    """Write a checkpoint of any format that is read in another.

    `safetensors` holds every tensor, in the stored type; what GGUF quantizes becomes float32. The others hold the token
    table: `npy` all rows, `word2vec` (text) and `projector` (the TSV pair) a row for each token, with its word. Numbers
    of texts have nine digits, from which float32 is read back to the bit. Blanks in a token are written as escapes.

    Args:
        path: a file or folder.
        out: a file; for `projector` a folder; for `safetensors` a folder too, where a folder is read and the name does
            not end in .safetensors: configuration and tokenizer are copied then.
        format: one of FORMATS.
        dtype: cast to it as well, see `convert_dtype`; with `safetensors` only.
        allow_pickle: read pickles of PyTorch. Pass True only where you trust the author.
        force, progress: as in `resize_checkpoint`.
    """
    path, out = Path(path), Path(out)
    if format not in FORMATS:
        raise SettingError(f"convert got format={format!r}, but knows only: {', '.join(FORMATS)}.")
    if dtype is not None and format != "safetensors":
        raise SettingError(f"{format} has a type of number of its own.\nLeave --dtype out, or choose safetensors.")
    checkpoint = Checkpoint.open(path, allow_pickle=allow_pickle)
    require_apart(out, {path, *(entry.file for entry in checkpoint.tensors.values())}, force)
    if format == "safetensors":
        return _as_safetensors(checkpoint, path, out, dtype, force, progress)
    name = checkpoint.token_table
    if name is None:
        raise CheckpointError(f"{path} has no tensor that is known as a token table.\nUse --format safetensors.")
    words = checkpoint.words if format != "npy" else None
    rows = checkpoint.entry(name).shape[0]
    if format != "npy":
        if words is None:
            raise CheckpointError(f"{path} has no tokens as strings, which {format} names rows by.\nUse --format npy.")
        rows = min(rows, len(words))
    with new_folder(out, force) if format == "projector" else new_file(out, force) as unfinished:
        _WRITERS[format](checkpoint, name, (words or [])[:rows], unfinished, progress)
        size = sum(one.stat().st_size for one in (unfinished.iterdir() if unfinished.is_dir() else [unfinished]))
    entry = checkpoint.entry(name)
    after = told((rows, *entry.shape[1:]), "float32" if format != "npy" else "as read")
    changed = Changed(name, told(entry.shape, entry.dtype), after, f"written as {format}")
    notes = (f"{len(checkpoint.tensors) - 1:,} other tensors are not written",) if len(checkpoint.tensors) > 1 else ()
    return Report("convert", str(path), str(out), (changed,), 0, size, {"rows": rows}, notes)


def _as_safetensors(
    checkpoint: Checkpoint, path: Path, out: Path, dtype: str | None, force: bool, progress: Told | None
) -> Report:
    parts: dict[str, Part] = {}
    for entry in checkpoint.tensors.values():
        kept = entry.dtype if entry.dtype in TYPES.values() and entry.dtype not in BLOCKS else "float32"
        make = partial(checkpoint.tensor, entry.name)
        parts[entry.name] = computed(entry.name, kept, entry.shape, make)
    changed: list[Changed] = []
    measured = None
    if dtype is not None:
        cast, changed, measured = cast_parts(checkpoint, dtype)
        parts |= cast
    said = checkpoint.metadata.items()
    metadata = {key: value for key, value in said if isinstance(value, str) and len(value) < 1000}
    metadata.setdefault("format", "pt")
    beside: list[str] = []
    if path.is_dir() and out.suffix != ".safetensors":
        with new_folder(out, force) as unfinished:
            size = write_safetensors(unfinished / "model.safetensors", list(parts.values()), metadata, progress)
            beside = copy_beside(path, unfinished, {"model.safetensors"}, {})
    else:
        with new_file(out, force) as unfinished:
            size = write_safetensors(unfinished, list(parts.values()), metadata, progress)
    widened = {entry.dtype for entry in checkpoint.tensors.values()} & BLOCKS.keys()
    notes = [f"{', '.join(sorted(widened))} became float32"] if widened and dtype is None else []
    return Report(
        "convert", str(path), str(out), tuple(changed), len(parts) - len(changed), size,
        {} if measured is None else finished(measured), tuple(notes), tuple(beside),
    )  # fmt: skip


def _rows(checkpoint: Checkpoint, name: str, rows: int, progress: Told | None) -> Iterator[np.ndarray]:
    for begin in range(0, rows, _ROWS):
        yield (some := checkpoint.array(name, slice(begin, min(begin + _ROWS, rows))))
        if progress is not None:
            progress(some.nbytes)


def _write_npy(checkpoint: Checkpoint, name: str, words: list[str], out: Path, progress: Told | None) -> None:
    shape = checkpoint.entry(name).shape
    kind = checkpoint.array(name, slice(0, 1)).dtype
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    with out.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for some in _rows(checkpoint, name, shape[0], progress):
            file.write(some.tobytes())


def _write_word2vec(checkpoint: Checkpoint, name: str, words: list[str], out: Path, progress: Told | None) -> None:
    dim = checkpoint.entry(name).shape[1]
    line = " ".join(["%s", *["%.9g"] * dim]) + "\n"
    place = iter(words)
    with out.open("w", encoding="utf-8", newline="\n", errors="backslashreplace") as file:
        file.write(f"{len(words)} {dim}\n")
        for some in _rows(checkpoint, name, len(words), progress):
            file.writelines(line % (_escaped(next(place)), *row) for row in some.tolist())


def _escaped(word: str) -> str:
    """Write blanks as escapes, for they end a word; an id without a token has a word too."""
    return "".join(f"\\x{ord(sign):02x}" if sign.isspace() or sign == "\0" else sign for sign in word) or "\\x00"


def _write_projector(checkpoint: Checkpoint, name: str, words: list[str], out: Path, progress: Told | None) -> None:
    write_projector(out, checkpoint.array(name, slice(0, len(words))), words)


_WRITERS: dict[str, Callable[[Checkpoint, str, list[str], Path, Told | None], None]] = {
    "npy": _write_npy,
    "word2vec": _write_word2vec,
    "projector": _write_projector,
}
