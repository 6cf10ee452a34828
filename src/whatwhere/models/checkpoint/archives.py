"""Files of NumPy and of PyTorch: arrays (.npy), zips of them (.npz), and pickles (.pt, .pth, .bin).

NumPy reads the headers of arrays, of limited size and without evaluating them as code; what they claim is compared with
the size of the file before anything is allocated, and objects, which are pickles, are refused.

Reading a pickle executes a program in it, so that is done only if the caller allows it. `torch.load(weights_only=True)`
restricts it to tensors and plain containers, which is reliable since torch 2.6 (before, CVE-2025-32434); with
`mmap=True` values stay in the file until they are read, but those from before torch 1.6, which is not a zip. It does
not compare the storages with sizes and checksums of the zip: this module does.
"""

import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import BytesIO
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import STORED_TYPES, ByteRange, Chosen, Computed, Contents, InTorch, checked_size
from whatwhere.models.checkpoint.files import File

if TYPE_CHECKING:
    from torch import Tensor

_MAX_HEADER_BYTES = 10_000  # NumPy has the same limit
_MAX_COMPRESSION = 100
_MAX_MEMBERS, _MEMBER = 100_000, 1200  # members that are read, and the bytes of memory of each
_MAX_TAIL = 22 + 2**16 + 76  # bytes at the end of a zip: its last record, a comment, and the larger form of that record
_BLOCK = 1 << 16
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,  # in UTF-8, for names of fields, which plain numbers do not have
}
_ZIP_ERRORS = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError,
    ValueError, LookupError, OverflowError, OSError,
)  # fmt: skip
"""Exceptions of the module zipfile for files that it cannot read."""


def open_npy(file: File) -> Contents:
    """Read the header of an array, whose name is that of the file."""
    name = file.path.stem
    header = _read_array_header(file, name, file.head(_MAX_HEADER_BYTES), file.size)
    if header.fortran_order or header.dtype != header.dtype.newbyteorder("<"):
        return Contents("npy", {name: _entry(file, name, header, partial(_read_array, file, header))})
    size = file.size - header.end
    return Contents("npy", {name: ByteRange(name, header.shape, header.dtype.name, size, file.path, file, header.end)})


def _read_array(file: File, header: "_Header") -> np.ndarray:
    with file.stream() as stream:
        whole = stream.read_into(header.end, np.empty(prod(header.shape), header.dtype))
    return whole.reshape(header.shape, order="F" if header.fortran_order else "C")


def open_npz(file: File) -> Contents:
    """Read the headers of a zip of arrays, each of which is read as a whole, with its checksum; text is its words."""
    arrays: dict[str, Computed] = {}
    texts: dict[str, Computed] = {}
    stated = _stated_members(file)
    with _own_errors(file), zipfile.ZipFile(file.path) as archive:
        listed = archive.infolist()
        if len(listed) != stated:
            raise file.damaged(f"{len(listed):,} arrays are found in it, but it says that it has {stated:,}")
        if len(listed) > _MAX_MEMBERS:
            raise file.damaged(f"it holds {len(listed):,} arrays, but at most {_MAX_MEMBERS:,} are read")
        for info in listed:
            name = _checked_name(file, info, {**arrays, **texts})
            with archive.open(info) as opened:
                header = _read_array_header(file, name, opened.read(_MAX_HEADER_BYTES), info.file_size, True)
            of_kind = texts if header.dtype.kind == "U" else arrays
            of_kind[name] = _entry(file, name, header, partial(_read_member, file, info, header))
    rows = {entry.shape[0] for entry in arrays.values() if len(entry.shape) == 2}
    fitting = [text for text in texts.values() if text.shape[0] in rows]  # of several, nothing says which are the words
    return Contents("npz", arrays, lambda: _texts(fitting[0].array(None)) if len(fitting) == 1 else None)


def _texts(array: np.ndarray) -> list[str]:
    codes = array.view(np.uint32).reshape(len(array), array.itemsize // 4).astype("<u4")  # NumPy does not check them
    return [row.tobytes().decode("utf-32-le", "replace").rstrip("\0") for row in codes]


def _read_member(file: File, info: zipfile.ZipInfo, header: "_Header") -> np.ndarray:
    whole = np.empty(prod(header.shape), header.dtype)
    content = whole.view(np.uint8)
    with zipfile.ZipFile(file.path) as archive, archive.open(info) as opened:
        opened.read(header.end)
        for begin in range(0, len(content), _BLOCK):
            part = content[begin : begin + _BLOCK]
            block = opened.read(len(part))
            if len(block) < len(part):  # zipfile does not compare the size that the zip states
                raise EOFError("it ends before its last number")
            part[:] = np.frombuffer(block, np.uint8)
        opened.read()  # at the end of which its checksum is compared
    return whole.reshape(header.shape, order="F" if header.fortran_order else "C")


def _entry(file: File, name: str, header: "_Header", read: Callable[[], np.ndarray]) -> Computed:
    dtype = np.dtype(np.float32) if header.dtype.name == "float16" else header.dtype.newbyteorder("=")

    def array(rows: Chosen | None) -> np.ndarray:
        with _own_errors(file):
            whole = read()
            chosen = whole if rows is None else whole[slice(rows.start, rows.stop) if isinstance(rows, range) else rows]
            return chosen.astype(dtype, copy=chosen.size < whole.size)  # a view would keep all rows in memory

    return Computed(name, header.shape, header.dtype.name, prod(header.shape) * header.dtype.itemsize, file.path, array)


def _stated_members(file: File) -> int:
    """Return how many members a zip states; raise CheckpointError if their list alone would take too much memory."""
    tail = file.read(begin := max(0, file.size - _MAX_TAIL), file.size - begin)
    at = tail.rfind(b"PK\5\6", 0, max(0, len(tail) - 18))
    count, size = struct.unpack_from("<HI", tail, at + 10) if at >= 0 else (0, 0)
    if at >= 76 and tail[at - 20 : at - 16] == b"PK\6\7":  # of a zip of more than 4 GB, or of 65,535 members
        count, size = struct.unpack_from("<QQ", tail, at - 76 + 32)
    members = min(size, file.size) // 46
    file.require_memory(members * _MEMBER, f"its list of up to {members:,} arrays")
    return int(count)


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype
    fortran_order: bool
    end: int


def _read_array_header(file: File, name: str, head: bytes, size: int, beside: bool = False) -> _Header:
    """Return the header of an array that ends with `size`, which may be of text if it is `beside` others."""
    stream = BytesIO(head)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers of Python 2, and of what is not a header
            read_header = _READERS[np.lib.format.read_magic(stream)]
            shape, fortran, dtype = read_header(stream, max_header_size=_MAX_HEADER_BYTES)
    except Exception as problem:  # whatever NumPy and Python's parser raise of a header that may be anything
        reason = quoted(str(problem).strip().partition("\n")[0], 160)
        raise file.damaged(f"the array {quoted(name)} has no header that NumPy reads: {reason}") from None
    is_text = beside and dtype.kind == "U" and dtype.itemsize > 0 and len(shape) == 1
    if dtype.name not in STORED_TYPES and not is_text:
        objects = "; objects are pickles, which can run code" if dtype.hasobject else ""
        raise file.wrong(
            f"the array {quoted(name)} has the type {quoted(str(dtype))}{objects}, but plain numbers are read",
            "Save numbers alone: numpy.save(path, array.astype('float32')).",
        )
    if any(isinstance(n, bool) or n < 0 for n in shape):
        raise file.damaged(f"the array {quoted(name)} has the shape {quoted(str(shape))}")
    needed = prod(shape) * dtype.itemsize if is_text else checked_size(file, name, dtype.name, shape)
    left = size - stream.tell()
    if needed != left:
        raise file.damaged(f"the array {quoted(name)} of shape {shape} needs {needed:,} bytes, but {left:,} follow")
    return _Header(shape, dtype, fortran, stream.tell())


def _checked_name(file: File, info: zipfile.ZipInfo, known: Container[str]) -> str:
    """Return the name of an array; raise CheckpointError for members that numpy.savez does not write, and zip bombs."""
    name = info.filename.removesuffix(".npy")
    if name == info.filename:
        raise file.wrong(
            f"it holds {quoted(name)}, which is not an array",
            "Pass a zip of numpy.savez; for a model of PyTorch, pass allow_pickle=True or --allow-pickle.",
        )
    if name in known:
        raise file.damaged(f"it holds the array {quoted(name)} twice")
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise file.damaged(f"the array {quoted(name)} is encrypted, or compressed in a way that NumPy does not use")
    if info.compress_size > file.size or info.file_size > _MAX_COMPRESSION * info.compress_size + (1 << 20):
        raise file.wrong(
            f"the array {quoted(name)} claims {info.file_size:,} bytes, compressed to {info.compress_size:,} of "
            f"{file.size:,}; a ratio above {_MAX_COMPRESSION} is not decompressed",
            "If you trust it, save it uncompressed: numpy.savez(path, **numpy.load(path)).",
        )
    return name


@contextmanager
def _own_errors(file: File) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except MemoryError:
        raise file.wrong("it needs more memory than is free", "Of a .npy file some rows can be read.") from None
    except _ZIP_ERRORS as problem:
        raise file.damaged(f"it cannot be read: {str(problem) or type(problem).__name__}") from None


# Pickles

_MAX_DICTIONARIES = 500  # maximum number of dictionaries in a pickle; no model has more
_STATES = ("state_dict", "model_state_dict", "model", "module")  # keys of the state_dict in a checkpoint of training
_NOT_ALLOWED = re.compile(r"GLOBAL (\S+) was not an allowed")
_GENSIM, _GENSIM_HEAD = re.compile(rb"gensim\.models\.[\w.]+[^A-Za-z]+([A-Za-z0-9]+)"), 256
"""The class that a pickle of gensim names at its beginning."""


def refuse_pickle(path: Path, shards: Sequence[Path] = ()) -> CheckpointError:
    """Return the error for a pickle, or the index of some; raise that of a pointer of Git LFS."""
    for one in (path, *shards):
        if one.is_file():
            File(one)  # a pointer of Git LFS is not a pickle
    what = "is an index of pickles" if shards else "is a pickle"
    first = shards[0] if shards else path
    then = " Convert the others likewise, and move the index away." if len(shards) > 1 else ""
    return CheckpointError(
        f"{path} {what}, as PyTorch writes .pt and .bin: a program that runs when it is read, so by default it is "
        "not.\nIf you trust its author, pass allow_pickle=True, or --allow-pickle to a command; then only tensors are "
        "unpickled.\nTo convert it once to a format that is never a program, with weights_only=False if torch refuses "
        f"some class:{then}\n{_conversion(first, True)}"
    )


def _conversion(path: Path, weights_only: bool) -> str:
    """Return a program that writes the tensors of a pickle as safetensors, those of the model where it holds more."""
    return (
        f"    loaded = torch.load({str(path)!r}, 'cpu', weights_only={weights_only})\n"
        f"    state = next((loaded[key] for key in {_STATES} if key in loaded), loaded)\n"
        "    state = {k: v.clone().contiguous() for k, v in state.items() if torch.is_tensor(v)}  # tied ones apart\n"
        f"    safetensors.torch.save_file(state, {str(path.with_suffix('.safetensors'))!r})"
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


def load_pickle(file: File) -> dict[str, InTorch]:
    """Unpickle the tensors of a file, and no other objects; values stay in the file until they are read."""
    import torch

    storages: set[tuple[int, int]] = set()
    zipped, left = file.head(4) == b"PK\3\4", file.size

    def limited(storage: Any, _: str) -> Any:
        # Of a file from before torch 1.6 memory is reserved before it is compared with the file, but not yet written.
        nonlocal left
        storages.add((storage.nbytes(), 0))
        if (left := left - storage.nbytes()) < 0:
            raise ValueError("their values claim more bytes than the file has")
        return storage.fill_(0)  # else it would show memory where the file has no values for it

    try:
        # Not None: the file may name a device that this machine does not have.
        contents = torch.load(file.path, "cpu" if zipped else limited, weights_only=True, mmap=zipped)
    except Exception as problem:
        if (refused := _NOT_ALLOWED.search(str(problem))) is not None:
            raise file.wrong(
                f"it also holds {quoted(refused[1])}, but only tensors and plain containers are unpickled",
                f"If you trust its author, convert it once, where its code can run:\n{_conversion(file.path, False)}",
            ) from None
        reason = str(problem).strip().partition("\n")[0].partition(". ")[0][:300] or type(problem).__name__
        raise file.wrong(
            f"torch cannot unpickle tensors from it: {reason}",
            "If it holds more than tensors, open it where it was made, and save its state_dict as safetensors.",
        ) from None
    tensors = list(_tensors(contents, "", set()))
    if not tensors:
        raise file.wrong("it holds no named tensors", "Save model.state_dict().")
    stored = _checked_members(file) if zipped else storages
    sizes = {size for size, _ in stored}
    intact: set[int] = set()

    def require_intact(name: str, values: "Tensor") -> None:
        # With a stride of zero, a single stored value can stand for any number of them.
        if values.nbytes > file.size:
            raise file.wrong(
                f"the tensor {quoted(name)} of shape {tuple(values.shape)} claims more bytes than the file has",
                "Save it with .contiguous().",
            )
        storage = values.untyped_storage()
        if storage.data_ptr() in intact or not storage.nbytes():
            return
        found = zlib.crc32(torch.empty(0, dtype=torch.uint8).set_(storage).numpy().data)
        # torch writes zeros where its checksums are switched off, and none before 1.6.
        if not {(storage.nbytes(), found), (storage.nbytes(), 0)} & stored:
            raise file.damaged(f"the checksum of the tensor {quoted(name)} is another")
        intact.add(storage.data_ptr())

    entries: dict[str, InTorch] = {}
    shared: set[tuple[int, int]] = set()
    for name, tensor, learned in tensors:
        claimed = tensor.untyped_storage().nbytes()
        if claimed and claimed not in sizes:  # torch would read beyond the end
            what = f"the values of the tensor {quoted(name)} claim {claimed:,} bytes, which no part of the file has"
            raise file.damaged(what)
        entry, place = InTorch.of(name, tensor, file.path, partial(require_intact, name, tensor)), tensor.data_ptr()
        own = 0 if (place, tensor.nbytes) in shared else entry.bytes
        entries[name] = replace(entry, bytes=own, parameters=None if learned else 0)
        shared.add((place, tensor.nbytes))
    return entries


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
    except _ZIP_ERRORS as problem:
        raise file.damaged(f"it cannot be read: {problem}") from None
    return stored


def _tensors(value: Any, prefix: str, visited: set[int]) -> "Iterator[tuple[str, Tensor, bool]]":
    """Yield the tensors of nested dictionaries, named by their keys joined by dots, and whether they are a model's."""
    import torch

    if not isinstance(value, Mapping) or id(value) in visited or len(visited) > _MAX_DICTIONARIES:
        return
    visited.add(id(value))  # each dictionary once
    model = not {"state", "param_groups"} <= value.keys()  # of an optimizer
    nested = any(isinstance(inner, Mapping) for inner in value.values())
    for key, inner in value.items():
        if not isinstance(key, str):
            continue
        if not isinstance(inner, torch.Tensor):
            yield from ((name, one, own and model) for name, one, own in _tensors(inner, f"{prefix}{key}.", visited))
        elif inner.layout == torch.strided and inner.device.type == "cpu" and str(inner.dtype)[6:] in STORED_TYPES:
            yield f"{prefix}{key}", inner, model and not (nested and inner.ndim == 0)  # such as a loss beside a model
