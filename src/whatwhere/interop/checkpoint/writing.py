"""Safetensors written as a stream, and files and folders that appear whole or not at all.

Tensors are handed over a chunk at a time, so that a checkpoint of any size is copied in the memory of one tensor.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp, mkstemp
from typing import TYPE_CHECKING, Any

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint.files import shown
from whatwhere.interop.checkpoint.numbers import KINDS
from whatwhere.interop.checkpoint.safetensors import TYPES
from whatwhere.interop.checkpoint.stretches import Stretch

if TYPE_CHECKING:
    from torch import Tensor

_CHUNK = 1 << 22
_CODES = {ours: code for code, ours in TYPES.items()}
Chunk = bytes | memoryview


@dataclass(frozen=True)
class Part:
    """Say what one tensor of a new file is.

    Args:
        name: in the file.
        dtype: the stored type, as torch calls it.
        shape: rows first.
        chunks: gives its bytes, in pieces; called once, when its turn comes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[Chunk]]

    @property
    def bytes(self) -> int:
        """How many it takes."""
        size = KINDS[self.dtype].size(self.shape) if self.dtype in _CODES else None
        if size is None:
            raise CheckpointError(
                f"the tensor {shown(self.name)} is stored as {self.dtype}, which safetensors do not hold.\n"
                "Give another type: --dtype bfloat16."
            )
        return size


def copied(stretch: Stretch) -> Part:
    """Copy a tensor byte for byte."""
    entry = stretch.entry

    def chunks() -> Iterator[Chunk]:
        with stretch.file.opened() as stream:
            for begin in range(0, entry.bytes, _CHUNK):
                yield stream.read(stretch.offset + begin, min(_CHUNK, entry.bytes - begin))

    return Part(entry.name, entry.dtype, entry.shape, chunks)


def computed(name: str, dtype: str, shape: tuple[int, ...], make: "Callable[[], Tensor]") -> Part:
    """Write a tensor that is made when its turn comes."""

    def chunks() -> Iterator[Chunk]:
        import torch

        tensor = make().detach().cpu().contiguous()
        if (tuple(tensor.shape), str(tensor.dtype)) != (shape, f"torch.{dtype}"):
            raise AssertionError(f"{name} became {tuple(tensor.shape)} {tensor.dtype}, not {shape} {dtype}")
        if tensor.numel():
            yield _bytes(tensor.reshape(-1).view(torch.uint8).numpy())

    return Part(name, dtype, shape, chunks)


def _bytes(array: np.ndarray) -> memoryview:
    return memoryview(array.data).cast("B")


def write_safetensors(
    path: Path, parts: Sequence[Part], metadata: Mapping[str, Any], told: Callable[[int], None] | None = None
) -> int:
    """Write a file, and give its size.

    Args:
        path: of a new file, which nobody reads yet.
        parts: in this order, but wider types first, so that each is aligned.
        metadata: of the header; none is written if it is empty.
        told: called with the number of bytes of each chunk.
    """
    ordered = sorted(parts, key=lambda part: -KINDS[part.dtype].bytes)
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for part in ordered:
        begin, end = end, end + part.bytes
        header[part.name] = {"dtype": _CODES[part.dtype], "shape": list(part.shape), "data_offsets": [begin, end]}
    if len(header) < len(ordered) + bool(metadata):
        raise CheckpointError(f"{path.name} would hold two tensors of one name.\nGive each a name of its own.")
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for part in ordered:
            before = out.tell()
            for chunk in part.chunks():
                out.write(chunk)
                if told is not None:
                    told(len(chunk))
            if out.tell() - before != part.bytes:
                raise CheckpointError(f"{shown(part.name)} has other bytes than were announced: was its file changed?")
        return out.tell()


def require_apart(out: Path, sources: Iterable[Path], force: bool) -> None:
    """Raise CheckpointError unless a path may be written without harm to what is read.

    Args:
        out: to be written.
        sources: files that are read; none of them may be `out`, by whatever name, or lie in it.
        force: what is there may be replaced, if it is no source.
    """
    try:
        goal = out.resolve()
        for source in sources:
            same = out.exists() and source.exists() and out.samefile(source)
            if (
                same
                or goal == source.resolve()
                or goal in source.resolve().parents
                or goal in source.absolute().parents
            ):
                raise CheckpointError(
                    f"{out} is where this reads from ({source.name}), and an input is never overwritten.\n"
                    "Give another path to write to."
                )
        if os.path.lexists(out) and not force:
            raise CheckpointError(f"{out} is there already.\nGive another path, or --force to replace it.")
        if not out.parent.is_dir():
            raise CheckpointError(f"{out.parent} is no folder, so {out.name} cannot be written there.\nMake it first.")
    except OSError as problem:
        raise _refused(out, problem) from None


@contextmanager
def new_file(out: Path, force: bool = False) -> Iterator[Path]:
    """Give a path to write to, beside the final one; at the end it takes that name, complete, in one step.

    Whatever ends it before, an error or an interruption, leaves nothing under the final name, or what was there.
    """
    out = out.resolve() if force else out  # what a link leads to is replaced, not the link
    path: Path | None = None
    try:
        number, name = mkstemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent)
        os.close(number)
        path = Path(name)
        path.chmod(0o666 & ~_umask())
        yield path
        _synced(path)
        if force:
            path.replace(out)
        else:
            _named(path, out)
        _synced(out.parent)
    except OSError as problem:
        raise _refused(out, problem) from None
    finally:
        if path is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)


@contextmanager
def new_folder(out: Path, force: bool = False) -> Iterator[Path]:
    """Give a folder to write into, beside the final one; at the end it takes that name, complete.

    With `force`, a folder that holds weights or nothing is put aside, and removed when the new one stands.
    """
    path: Path | None = None
    try:
        if force and os.path.lexists(out):
            _require_replaceable(out)
        path = Path(mkdtemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent))
        path.chmod(0o777 & ~_umask())
        yield path
        for inside in path.rglob("*"):
            _synced(inside)
        _synced(path)
        if force and os.path.lexists(out):
            aside = Path(mkdtemp(prefix=f".{out.name}.", suffix=".old", dir=out.parent)) / out.name
            out.rename(aside)
            try:
                path.rename(out)
            except BaseException:
                aside.rename(out)
                raise
            finally:
                shutil.rmtree(aside.parent, ignore_errors=True)
        else:
            path.rename(out)
        _synced(out.parent)
    except OSError as problem:
        raise _refused(out, problem) from None
    finally:
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)


def _require_replaceable(out: Path) -> None:
    """Raise CheckpointError unless what is there is a folder of a model, rather than one that holds much else."""
    inside = list(out.iterdir()) if out.is_dir() and not out.is_symlink() else None
    if inside is None or (inside and not any(path.suffix == ".safetensors" for path in inside)):
        raise CheckpointError(
            f"{out} is no folder of a model, and --force replaces nothing else.\nGive another path, or remove it first."
        )


def _named(path: Path, out: Path) -> None:
    """Give a file its final name, unless somebody else has taken it meanwhile."""
    try:
        os.link(path, out)
    except FileExistsError:
        raise CheckpointError(f"{out} has appeared meanwhile.\nGive another path, or --force to replace it.") from None
    except OSError:  # a file system without hard links
        if os.path.lexists(out):
            raise CheckpointError(f"{out} has appeared meanwhile.\nGive another path, or --force.") from None
        path.rename(out)


def _synced(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk; not every system opens folders."""
    try:
        number = os.open(path, os.O_RDONLY)
    except OSError:
        if path.is_dir():
            return
        raise
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _refused(out: Path, problem: OSError) -> CheckpointError:
    return CheckpointError(
        f"{out} cannot be written: {problem.strerror or problem}.\n"
        "Nothing half-written stands under that name, and what was there stays."
    )
