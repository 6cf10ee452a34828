"""Pickles of PyTorch (.pt, .pth, .bin), which are read only if the caller allows it.

Reading a pickle executes a program in it. `torch.load(weights_only=True)` restricts it to tensors and plain
containers, which is reliable since torch 2.6 (before, CVE-2025-32434); with `mmap=True` values stay in the file until
they are read. It does not compare the storages with sizes and checksums of the zip: this module does.
"""

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import Chosen, Contents, Entry, Reader
from whatwhere.models.checkpoint.byte_ranges import STORED_TYPES
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


def is_zip(head: bytes) -> bool:
    """Return whether a file is a zip, such as .npz and the current pickles of torch."""
    return head[:4] == b"PK\x03\x04"


def is_old_pickle(head: bytes) -> bool:
    """Return whether a file is a pickle without a zip around it."""
    return head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")


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


@final
class Pickled(Reader):
    """A reader of tensors that torch has mapped into memory.

    Args:
        file: that contains them; of several the largest.
        tensors: by name.
        stored: the size and checksum of each storage.
    """

    def __init__(self, file: File, tensors: "Mapping[str, Tensor]", stored: "Set[tuple[int, int]]") -> None:
        self._file, self._tensors, self._stored = file, tensors, stored
        self._intact: set[int] = set()

    def array(self, name: str, rows: Chosen | None) -> np.ndarray:
        """Read a copy of rows, widened."""
        import torch

        tensor = self._rows(name, rows)
        wide = STORED_TYPES[_dtype_name(tensor)].wide
        array: np.ndarray = tensor.to(getattr(torch, wide)).contiguous().numpy()
        return array.copy()

    def tensor(self, name: str, rows: Chosen | None) -> "Tensor":
        """Read a copy of rows in the stored type."""
        return self._rows(name, rows).clone()

    def _rows(self, name: str, rows: Chosen | None) -> "Tensor":
        import torch

        whole = self._tensors[name].detach()
        # With a stride of zero, a single stored value can stand for any number of them.
        if whole.nbytes > self._file.size:
            raise self._file.wrong(
                f"the tensor {quoted(name)} of shape {tuple(whole.shape)} claims more bytes than the file has",
                "Save it with .contiguous().",
            )
        self._require_intact(name, whole)
        if rows is None:
            return whole
        if isinstance(rows, range):
            return whole[rows.start : rows.stop]
        # As bytes: some versions cannot index numbers of 8 bits.
        return (whole.view(torch.uint8) if whole.itemsize == 1 else whole)[torch.from_numpy(rows)].view(whole.dtype)

    def _require_intact(self, name: str, tensor: "Tensor") -> None:
        """Raise CheckpointError unless the storage of a tensor has a checksum of the zip."""
        import torch

        storage = tensor.untyped_storage()
        if storage.data_ptr() in self._intact or not storage.nbytes():
            return
        found = zlib.crc32(torch.empty(0, dtype=torch.uint8).set_(storage).numpy().data)
        # torch writes zeros where its checksums are switched off.
        if not {(storage.nbytes(), found), (storage.nbytes(), 0)} & self._stored:
            raise self._file.wrong(f"the checksum of the tensor {quoted(name)} is another", _DAMAGED)
        self._intact.add(storage.data_ptr())


def open_pickled(path: str | Path) -> Contents:
    """Unpickle a state_dict, or a dictionary of them; values stay in the file until they are read."""
    file = File(path)
    tensors, stored = load(file)
    entries = {name: entry_of(file, name, tensor) for name, tensor in tensors.items()}
    return Contents("pickle", entries, Pickled(file, tensors, stored))


def entry_of(file: File, name: str, tensor: "Tensor") -> Entry:
    """Return the entry of a tensor that was unpickled."""
    return Entry(name, tuple(tensor.shape), _dtype_name(tensor), tensor.nbytes, file.path)


def load(file: File) -> "tuple[dict[str, Tensor], Set[tuple[int, int]]]":
    """Unpickle the tensors of a file, and no other objects; return them, and the size and checksum of each storage.

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
    return tensors, stored


def _checked_members(file: File) -> "Set[tuple[int, int]]":
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
        elif inner.layout == torch.strided and inner.device.type == "cpu" and _dtype_name(inner) in STORED_TYPES:
            yield f"{prefix}{key}", inner


def _dtype_name(tensor: "Tensor") -> str:
    return str(tensor.dtype).removeprefix("torch.")
