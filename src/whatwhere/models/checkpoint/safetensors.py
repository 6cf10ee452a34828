"""Read and write safetensors: the length of the header in 8 bytes, the header in JSON, then the tensors.

The rules are those of the format's own reader (https://huggingface.co/docs/safetensors): the header has at most
100,000,000 bytes, tensors follow one another without gaps, and the last one ends with the file. That reader maps the
file, so that one which shrinks kills the process; without torch it has no bfloat16 and no float8, and it reads no rows
in any order, and nothing at a server. Tensors are written in chunks: copying a checkpoint takes the memory of one.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whatwhere.atomic import atomic_file, atomic_folder
from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import STORED_TYPES, ByteRange, checked_size, require_adjacent
from whatwhere.models.checkpoint.files import BASE, TIMES, File, is_whole_number, parse_json
from whatwhere.models.configuration.keys import Json
from whatwhere.records import CHECKSUM, Schema

if TYPE_CHECKING:
    from torch import Tensor

MAX_HEADER_BYTES = 100_000_000
TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu", "F4": "float4_e2m1", "F6_E2M3": "float6_e2m3",
    "F6_E3M2": "float6_e3m2",
}  # fmt: skip
"""Name of a type in the format -> in torch."""

_CHUNK = 1 << 22
_CODES = {name: code for code, name in TYPES.items()}
Chunk = bytes | memoryview


def is_safetensors(head: bytes) -> bool:
    """Return whether a file begins with a length and the opening brace of a header."""
    return len(head) > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= MAX_HEADER_BYTES


def read_header(path: str | Path) -> tuple[dict[str, ByteRange], Json]:
    """Read the header: the byte range of each tensor by name, and the metadata."""
    file = File(path)
    header, metadata, begin = _read_header(file)
    header.pop("__metadata__", None)
    # What has been read of the header is dropped, so that a tensor is not described twice in memory.
    ranges = {name: _byte_range(file, name, header.pop(name), begin) for name in list(header)}
    require_adjacent(file, ranges.values(), begin)
    return ranges, metadata


def _read_header(file: File) -> tuple[dict[str, Any], Json, int]:
    """Return the header, its metadata, and where the tensors begin."""
    if file.size < 8:
        raise file.damaged(f"it has {file.size} bytes, but safetensors begin with a length of 8")
    length = int.from_bytes(file.head(8), "little")
    if length > MAX_HEADER_BYTES or length > file.size - 8:
        raise file.damaged(
            f"its header claims {length:,} bytes, of a file of {file.size:,} (at most {MAX_HEADER_BYTES:,} are read)"
        )
    header = dict(parse_json(file.read(8, length), f"{file.path}: the header", TIMES * file.size + BASE))
    metadata = {} if (stated := header.get("__metadata__")) is None else stated  # MLX writes null
    if not isinstance(metadata, dict):
        raise file.damaged("__metadata__ in its header is not an object")
    return header, metadata, 8 + length


def _byte_range(file: File, name: str, fields: Any, begin: int) -> ByteRange:
    """Return the byte range of a tensor, after checking its fields of the header, behind which data `begin`."""
    if not isinstance(fields, dict) or not {"dtype", "shape", "data_offsets"} <= fields.keys():
        raise file.damaged(f"its header lacks dtype, shape or data_offsets of the tensor {quoted(name)}")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in TYPES:
        given = quoted(dtype) if isinstance(dtype, str) else "no string"
        raise file.wrong(
            f"the tensor {quoted(name)} has the type {given}, which is not known", f"Known are: {', '.join(TYPES)}."
        )
    lists = isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2
    if not lists or not all(map(is_whole_number, [*shape, *offsets])):
        raise file.damaged(f"shape or data_offsets of the tensor {quoted(name)} are not whole numbers of bytes")
    size = checked_size(file, name, TYPES[dtype], tuple(shape))
    first, last = offsets
    if last - first != size:
        raise file.damaged(
            f"the tensor {quoted(name)} of shape {quoted(str(shape))} and type {dtype} needs {size:,} bytes, but its "
            f"data_offsets are {first:,} to {last:,}"
        )
    return ByteRange(name, tuple(shape), TYPES[dtype], size, file.path, file, begin + first)


# Writing


@dataclass(frozen=True)
class Part:
    """One tensor of a new file: its name, stored type as torch names it, shape, and its bytes in pieces, made once."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[Chunk]]

    @property
    def bytes(self) -> int:
        """Its size in the file; raise CheckpointError for a type that safetensors cannot store."""
        size = STORED_TYPES[self.dtype].size(self.shape) if self.dtype in _CODES else None
        if size is None:
            raise CheckpointError(
                f"the tensor {quoted(self.name)} is stored as {self.dtype}, which safetensors cannot store.\n"
                "Pass another type: --dtype bfloat16."
            )
        return size


def copied(stored: ByteRange) -> Part:
    """Return the part of a new file that is a copy of a tensor, byte for byte."""

    def chunks() -> Iterator[Chunk]:
        with stored.source.stream() as stream:
            for begin in range(0, stored.bytes, _CHUNK):
                yield stream.read(stored.offset + begin, min(_CHUNK, stored.bytes - begin))

    return Part(stored.name, stored.dtype, stored.shape, chunks)


def computed(name: str, dtype: str, shape: tuple[int, ...], make: "Callable[[], Tensor]") -> Part:
    """Return the part of a new file that `make` computes when it is written."""

    def chunks() -> Iterator[Chunk]:
        import torch

        tensor = make().detach().cpu().contiguous()
        if (tuple(tensor.shape), str(tensor.dtype)) != (shape, f"torch.{dtype}"):
            raise AssertionError(f"{name} became {tuple(tensor.shape)} {tensor.dtype}, not {shape} {dtype}")
        if tensor.numel():
            yield memoryview(tensor.reshape(-1).view(torch.uint8).numpy().data)

    return Part(name, dtype, shape, chunks)


def require_checksum(path: Path, schema: Schema) -> None:
    """Raise CheckpointError unless a file of ours has the checksum that it states; an earlier version has none."""
    file = File(path)
    header, metadata, begin = _read_header(file)
    if CHECKSUM not in metadata and metadata.get("version") != str(schema.version):
        return
    with file.stream() as stream:
        chunks = (stream.read(at, min(_CHUNK, file.size - at)) for at in range(begin, file.size, _CHUNK))
        found = _checksum(header, chunks)
    if found != metadata.get(CHECKSUM):
        raise file.wrong(f"it has another {CHECKSUM} than it states: it is damaged, or was changed", schema.way_out)


def _checksum(header: Json, chunks: Iterable[Chunk]) -> str:
    """Return the checksum of a file: SHA-256 of its header, without the checksum, and of its tensors."""
    own = {key: value for key, value in header["__metadata__"].items() if key != CHECKSUM}
    digest = sha256(json.dumps({**header, "__metadata__": own}, sort_keys=True).encode())
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def write_safetensors(
    path: Path,
    parts: Sequence[Part],
    metadata: Json,
    progress: Callable[[int], None] | None = None,
    schema: Schema | None = None,
) -> int:
    """Write a file of safetensors, and return its size; wider types come first, so that all are aligned."""
    # `progress` is called with the bytes of each chunk; the version of a `schema` and a checksum become metadata.
    ordered = sorted(parts, key=lambda part: -STORED_TYPES[part.dtype].bytes)
    metadata = dict(metadata) if schema is None else {**metadata, "version": str(schema.version)}
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for part in ordered:
        begin, end = end, end + part.bytes
        header[part.name] = {"dtype": _CODES[part.dtype], "shape": list(part.shape), "data_offsets": [begin, end]}
    if len(header) < len(ordered) + bool(metadata):
        raise CheckpointError(f"{path.name} would contain two tensors with the same name.\nRename one of them.")
    if schema is not None:
        own = {CHECKSUM: _checksum(header, (chunk for part in ordered for chunk in part.chunks()))}
        header["__metadata__"] = dict(sorted({**metadata, **own}.items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for part in ordered:
            before = out.tell()
            for chunk in part.chunks():
                out.write(chunk)
                if progress is not None:
                    progress(len(chunk))
            if out.tell() - before != part.bytes:
                raise CheckpointError(
                    f"{quoted(part.name)} has {out.tell() - before:,} bytes rather than {part.bytes:,}.\n"
                    "Its file has changed meanwhile: run the command again."
                )
        return out.tell()


def require_writable_output(out: Path, sources: Iterable[Path], force: bool) -> None:
    """Raise CheckpointError if an output is or contains an input, under any name, or exists without `force`."""
    try:
        target = Path(os.path.realpath(out))
        for source in sources:
            same = out.exists() and source.exists() and out.samefile(source)
            inside = target in source.resolve().parents or target in source.absolute().parents
            if same or target == Path(os.path.realpath(source)) or inside:
                raise CheckpointError(
                    f"{out} is an input of this command ({source.name}), and an input is never overwritten.\n"
                    "Choose another output path."
                )
        if os.path.lexists(out) and not force:
            raise CheckpointError(f"{out} exists already.\nChoose another path, or pass --force to replace it.")
        if not out.parent.is_dir():
            raise CheckpointError(
                f"{out.parent} is not a folder, so {out.name} cannot be written there.\nCreate the folder first."
            )
    except OSError as problem:
        raise _not_writable(out, problem) from None


@contextmanager
def new_file(out: Path, force: bool = False) -> Iterator[Path]:
    """Write a file atomically, as `atomic_file` does; raise CheckpointError if it cannot be written."""
    with _own_errors(out), atomic_file(out, replace=force) as path:
        yield path


@contextmanager
def new_folder(out: Path, force: bool = False) -> Iterator[Path]:
    """Write a folder atomically, as `atomic_folder` does; `force` replaces one that is empty, or of a model."""
    with _own_errors(out):
        if force and os.path.lexists(out):
            files = list(out.iterdir()) if out.is_dir() and not out.is_symlink() else None
            if files is None or (files and not any(path.suffix == ".safetensors" for path in files)):
                raise CheckpointError(
                    f"{out} is not the folder of a model, and --force replaces nothing else.\n"
                    "Choose another path, or remove it first."
                )
        with atomic_folder(out, replace=force) as path:
            yield path


@contextmanager
def _own_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise CheckpointError(
            f"{out} was created meanwhile.\nChoose another path, or pass --force to replace it."
        ) from None
    except OSError as problem:
        raise _not_writable(out, problem) from None


def _not_writable(out: Path, problem: OSError) -> CheckpointError:
    return CheckpointError(
        f"{out} cannot be written: {problem.strerror or problem}.\n"
        "No partial output was left, and an existing file was kept."
    )
