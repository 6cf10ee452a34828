"""Pickles of PyTorch (.pt, .pth, .bin), which are read only if the caller allows it.

Reading a pickle executes a program in it. `torch.load(weights_only=True)` restricts it to tensors and plain
containers, which is reliable since torch 2.6 (before, CVE-2025-32434); with `mmap=True` values stay in the file until
they are read. It does not compare the storages with sizes and checksums of the zip: this module does.
"""

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import STORED_TYPES, Chosen, InTorch
from whatwhere.models.checkpoint.files import File
from whatwhere.models.checkpoint.npy import ZIP_ERRORS

if TYPE_CHECKING:
    from torch import Tensor

_MAX_DICTIONARIES = 500
"""Maximum number of dictionaries in a pickle; no model has more."""
_BLOCK = 1 << 20
_DAMAGED = "It is truncated or damaged: save it again."
_GENSIM, _GENSIM_HEAD = re.compile(rb"gensim\.models\.[\w.]+[^A-Za-z]+([A-Za-z0-9]+)"), 256
"""The class that a pickle of gensim names at its beginning."""


def refuse(path: Path, shards: Sequence[Path] = ()) -> CheckpointError:
    """Return the error for a pickle, or the index of some, if the caller does not allow pickles.

    Raises:
        CheckpointError: If it is a pointer of Git LFS instead.
    """
    for one in (path, *shards):
        if one.is_file():
            File(one)  # a pointer of Git LFS is not a pickle
    what = "is an index of pickles" if shards else "is a pickle"
    first = shards[0] if shards else path
    then = " Convert the others likewise, and move the index away." if len(shards) > 1 else ""
    return CheckpointError(
        f"{path} {what}, as PyTorch writes .pt and .bin: a program that runs when it is read, so by default it is "
        "not.\nIf you trust its author, pass allow_pickle=True, or --allow-pickle to a command; then only tensors are "
        f"unpickled.\nTo convert it once to a format that is never a program:{then}\n"
        f"    torch_state = torch.load({str(first)!r}, weights_only=True)\n"
        "    safetensors.torch.save_file({k: v.contiguous() for k, v in torch_state.items()}, "
        f"{str(first.with_suffix('.safetensors'))!r})"
    )


def refuse_gensim(file: File) -> None:
    """Raise CheckpointError if a pickle begins as one of gensim, which has objects that are never unpickled here."""
    if (match := _GENSIM.search(file.head(_GENSIM_HEAD))) is not None:
        name = match[1].decode()
        loaded = "KeyedVectors.load(PATH)" if name.endswith("KeyedVectors") else f"{name}.load(PATH).wv"
        raise file.wrong(
            "it is a pickle of gensim, whose objects are not unpickled",
            f"Write its vectors: {loaded}.save_word2vec_format('vectors.bin', binary=True), and pass that file.",
        )


@dataclass(frozen=True, eq=False)
class Pickled(InTorch):
    """A tensor that torch has mapped into memory.

    Args:
        source: the file that contains it.
        stored: the size and checksum of each storage of the checkpoint.
        intact: the addresses of storages whose checksum was compared.
    """

    source: File
    stored: Set[tuple[int, int]]
    intact: set[int]

    def tensor(self, rows: Chosen | None) -> "Tensor":
        """Read a copy of rows in the stored type."""
        # With a stride of zero, a single stored value can stand for any number of them.
        if self.values.nbytes > self.source.size:
            raise self.source.wrong(
                f"the tensor {quoted(self.name)} of shape {self.shape} claims more bytes than the file has",
                "Save it with .contiguous().",
            )
        self._require_intact()
        return super().tensor(rows)

    def _require_intact(self) -> None:
        import torch

        storage = self.values.untyped_storage()
        if storage.data_ptr() in self.intact or not storage.nbytes():
            return
        found = zlib.crc32(torch.empty(0, dtype=torch.uint8).set_(storage).numpy().data)
        # torch writes zeros where its checksums are switched off.
        if not {(storage.nbytes(), found), (storage.nbytes(), 0)} & self.stored:
            raise self.source.wrong(f"the checksum of the tensor {quoted(self.name)} is another", _DAMAGED)
        self.intact.add(storage.data_ptr())


def load(file: File) -> dict[str, Pickled]:
    """Unpickle the tensors of a file, and no other objects; values stay in the file until they are read.

    Raises:
        CheckpointError: If torch cannot read the file, or there are no tensors, or it is damaged.
    """
    import torch

    try:
        # Not None: the file may name a device that this machine does not have.
        contents = torch.load(file.path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as problem:
        reason = str(problem).strip().partition("\n")[0][:300] or type(problem).__name__
        raise file.wrong(
            f"torch cannot unpickle tensors from it: {reason}",
            "A file from before torch 1.6, or one that holds more than tensors: open it where it was made, and save "
            "its state_dict as safetensors.",
        ) from None
    tensors = dict(_tensors(contents, "", set()))
    if not tensors:
        raise file.wrong("it holds no named tensors", "Save model.state_dict().")
    stored = _checked_members(file)
    sizes = {size for size, _ in stored}
    for name, tensor in tensors.items():
        claimed = tensor.untyped_storage().nbytes()
        if claimed and claimed not in sizes:  # torch would read beyond the end
            raise file.wrong(
                f"the values of the tensor {quoted(name)} claim {claimed:,} bytes, which no part of the file has",
                _DAMAGED,
            )
    more = {"source": file, "stored": stored, "intact": set()}
    return {name: Pickled.of(name, tensor, file.path, **more) for name, tensor in tensors.items()}


def _checked_members(file: File) -> Set[tuple[int, int]]:
    """Return the size and checksum of each storage of the zip, after comparing the checksums of its other members."""
    stored: set[tuple[int, int]] = set()
    try:
        with zipfile.ZipFile(file.path) as archive:
            for info in archive.infolist():
                if "/data/" in info.filename:
                    stored.add((info.file_size, info.CRC))
                elif info.CRC and info.file_size == info.compress_size:
                    with archive.open(info) as member:
                        while member.read(_BLOCK):
                            pass
    except ZIP_ERRORS as problem:
        raise file.wrong(f"it cannot be decompressed: {problem}", _DAMAGED) from None
    return stored


def _tensors(value: Any, prefix: str, visited: set[int]) -> "Iterator[tuple[str, Tensor]]":
    """Yield the tensors of nested dictionaries, named by their keys joined by dots; each dictionary is visited once."""
    import torch

    if not isinstance(value, Mapping) or id(value) in visited or len(visited) > _MAX_DICTIONARIES:
        return
    visited.add(id(value))
    for key, inner in value.items():
        if not isinstance(key, str):
            continue
        if not isinstance(inner, torch.Tensor):
            yield from _tensors(inner, f"{prefix}{key}.", visited)
        elif (
            inner.layout == torch.strided
            and inner.device.type == "cpu"
            and str(inner.dtype).removeprefix("torch.") in STORED_TYPES
        ):
            yield f"{prefix}{key}", inner
