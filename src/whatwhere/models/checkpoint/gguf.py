"""GGUF, versions 2 and 3: keys and values, the offset of each tensor, and the aligned tensors.

The format is documented at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. This module reads the header, and
of long lists only the offset; quantized tensors are dequantized by the package gguf of the format's authors.
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import GGUF_TYPES, ByteRange, Contents, checked_size, require_adjacent
from whatwhere.models.checkpoint.files import File, Stream
from whatwhere.models.checkpoint.gguf_config import config_of
from whatwhere.models.checkpoint.tokenizer_files import tokenizer_beside

TYPES = {
    0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16",
    **{number: name for number, (name, _, _) in GGUF_TYPES.items()},
}  # fmt: skip
"""GGUF's number of a type -> its name in STORED_TYPES."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _LIST = 8, 9
_SHORT_LIST = 1000  # shorter lists of numbers are read with the header
_CHUNK = 1 << 20
_KEY, _TENSOR, _TEXT, _NUMBER = 400, 800, 72, 48  # bytes of memory of each in the header
_MAX_PARTS = 1000
_MAX_STRINGS = 1 << 24  # of a list; vocabularies have a quarter of a million
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
"""The end of the file name of a part: its number, and the number of parts."""


@dataclass(frozen=True)
class LongList:
    """A long list in the header: GGUF's number of the type of its elements, and the offset of the first one."""

    type: int
    count: int
    offset: int


Value = int | float | bool | str | list[int | float | bool] | LongList  # the value of a key in the header


@final
class _Cursor:
    """A position in a header, which is read sequentially, in chunks, and never beyond the end of the file."""

    def __init__(self, file: File, stream: Stream, offset: int = 0) -> None:
        self.file, self._stream, self._spent = file, stream, 0
        self._chunk, self._begin, self._at = b"", offset, 0

    @property
    def offset(self) -> int:
        return self._begin + self._at

    def spend(self, memory: int) -> None:
        """Count what entries of the header take in memory, which must not be much more than they take in the file."""
        self._spent += memory
        self.file.require_memory(self._spent, "its header")

    def take(self, count: int, what: str) -> bytes:
        if count > self.file.size - self.offset:
            raise self.file.damaged(
                f"{what} at byte {self.offset:,} has {count:,} bytes, but {self.file.size - self.offset:,} are left"
            )
        if self._at + count > len(self._chunk):
            self._begin, self._at = self.offset, 0
            self._chunk = self._stream.read(self._begin, min(max(count, _CHUNK), self.file.size - self._begin))
        self._at += count
        return self._chunk[self._at - count : self._at]

    def skip(self, count: int, what: str) -> None:
        if count <= len(self._chunk) - self._at:
            self._at += count
            return
        if count > self.file.size - self.offset:
            self.take(count, what)
        self._begin, self._at, self._chunk = self.offset + count, 0, b""

    def number(self, code: str, what: str) -> Any:
        """Return the next number, of the type that `code` has in the module struct."""
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]

    def text(self, what: str) -> bytes:
        return self.take(self.number("Q", what), what)


def open_gguf(path: str | Path) -> Contents:
    """Read the header of a file, or of all files of a split model, given its first."""
    file = File(path)
    metadata, ranges = _read_header(file)
    for other in _others(file, metadata):
        more = _read_header(other)[1]
        if both := ranges.keys() & more.keys():
            raise other.damaged(f"the tensor {quoted(min(both))} is in an earlier part too")
        ranges |= more

    return Contents(
        "gguf",
        ranges,
        words=lambda: _tokens(file, metadata),
        config=config_of(metadata, ranges),
        metadata=metadata,
        tokenizer=lambda: tokenizer_beside(file.path, _tokens(file, metadata) or []),
    )


def _read_header(file: File) -> tuple[dict[str, Value], dict[str, ByteRange]]:
    with file.stream() as stream:
        cursor = _Cursor(file, stream)
        if cursor.take(4, "the magic number") != b"GGUF":
            raise file.wrong("it does not begin with the letters GGUF", "Pass a GGUF file.")
        version = cursor.number("I", "the version")
        if version not in (2, 3):
            order = ", written with the most significant byte first" if version in (2 << 24, 3 << 24) else ""
            raise file.wrong(f"its version is {version}{order}, but 2 and 3 are read", "Convert the model again.")
        tensors, keys = cursor.number("Q", "the count of tensors"), cursor.number("Q", "the count of keys")
        left = file.size - cursor.offset
        # A key takes at least 13 bytes, and a tensor 24.
        if keys * 13 + tensors * 24 > left:
            raise file.damaged(f"it claims {keys:,} keys and {tensors:,} tensors in {left:,} bytes")
        cursor.spend(keys * _KEY + tensors * _TENSOR)
        metadata: dict[str, Value] = {}
        for _ in range(keys):
            name = cursor.text("a key").decode("utf-8", "replace")
            if name in metadata:
                raise file.damaged(f"the key {quoted(name)} occurs twice in its header")
            metadata[name] = _value(cursor, cursor.number("I", f"the type of {quoted(name)}"), name)
        described = [_tensor(cursor) for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or isinstance(alignment, bool) or not 1 <= alignment <= 1 << 24:
            raise file.damaged(f"general.alignment is {str(alignment)[:40]}, which is not an alignment")
        begin = -(-cursor.offset // alignment) * alignment
        ranges: dict[str, ByteRange] = {}
        for name, shape, dtype, offset in described:
            if name in ranges:
                raise file.damaged(f"the tensor {quoted(name)} occurs twice in its header")
            size = checked_size(file, name, dtype, shape)
            ranges[name] = ByteRange(name, shape, dtype, size, file.path, file, begin + offset)
        require_adjacent(file, ranges.values(), begin, alignment)
        return metadata, ranges


def _value(cursor: _Cursor, kind: int, name: str) -> Value:
    what = f"the value of {quoted(name)}"
    if kind in _SCALARS:
        number: int | float | bool = cursor.number(_SCALARS[kind], what)
        return number
    if kind == _STRING:
        return cursor.text(what).decode("utf-8", "replace")
    if kind != _LIST:
        raise cursor.file.damaged(f"{what} has the type {kind}, which is not known")
    kind, count = cursor.number("I", what), cursor.number("Q", what)
    long_list = LongList(kind, count, cursor.offset)
    if kind == _STRING:
        if count > min(_MAX_STRINGS, (cursor.file.size - cursor.offset) // 8):
            raise cursor.file.damaged(f"{what} claims {count:,} strings, more than can be")
        cursor.spend(count * _TEXT)
        for _ in range(count):
            cursor.skip(cursor.number("Q", what), what)
        return long_list
    if kind not in _SCALARS:
        raise cursor.file.damaged(f"{what} is a list of the type {kind}, which is not known or not read")
    size = struct.calcsize("<" + _SCALARS[kind])
    if count <= _SHORT_LIST:
        cursor.spend(count * _NUMBER)
        return list(struct.unpack(f"<{count}{_SCALARS[kind]}", cursor.take(count * size, what)))
    cursor.skip(count * size, what)
    return long_list


def _tensor(cursor: _Cursor) -> tuple[str, tuple[int, ...], str, int]:
    name = cursor.text("the name of a tensor").decode("utf-8", "replace")
    dimensions = cursor.number("I", f"the dimensions of {quoted(name)}")
    if dimensions > 8:
        raise cursor.file.damaged(f"the tensor {quoted(name)} claims {dimensions:,} dimensions")
    shape = struct.unpack(f"<{dimensions}Q", cursor.take(8 * dimensions, f"the shape of {quoted(name)}"))
    kind, offset = struct.unpack("<IQ", cursor.take(12, f"the type of {quoted(name)}"))
    if kind not in TYPES:
        raise cursor.file.wrong(
            f"the tensor {quoted(name)} has the type {kind}, which is not known",
            "Quantize the model another way, such as Q8_0.",
        )
    return name, shape[::-1], TYPES[kind], offset  # the file has the contiguous dimension first


def _others(file: File, metadata: Mapping[str, Value]) -> list[File]:
    """Return the other files of a split model, which llama.cpp numbers."""
    count = metadata.get("split.count", 0)
    if not isinstance(count, int) or count < 2:
        return []
    match = PART.search(file.path.name)
    if match is None or int(match[2]) != count or int(match[1]) != 1 or count > _MAX_PARTS:
        raise file.wrong(
            f"it is one of {count:,} parts, whose names follow from that of the first, such as "
            f"model-00001-of-{min(count, 99_999):05}.gguf",
            "Pass that one, or join the parts: llama-gguf-split --merge.",
        )
    stem = file.path.name[: match.start()]
    return [File(file.path.with_name(f"{stem}-{part:05}-of-{count:05}.gguf")) for part in range(2, count + 1)]


def _tokens(file: File, metadata: Mapping[str, Value]) -> list[str] | None:
    """Read the tokens; bytes that are not UTF-8 become U+FFFD."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, LongList) or tokens.type != _STRING:
        return None
    with file.stream() as stream:
        cursor = _Cursor(file, stream, tokens.offset)
        return [cursor.text("a token").decode("utf-8", "replace") for _ in range(tokens.count)]
