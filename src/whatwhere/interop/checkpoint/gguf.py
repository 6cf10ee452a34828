"""GGUF, versions 2 and 3: keys and values, where each tensor stands, and the tensors behind, aligned.

The layout is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The header is read here, of long lists
only the place; numbers that are quantised are widened by the package gguf, which the authors of the format write.
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from whatwhere.interop.checkpoint.contents import Contents, Entry
from whatwhere.interop.checkpoint.files import File, Stream, shown
from whatwhere.interop.checkpoint.gguf_keys import config_of
from whatwhere.interop.checkpoint.numbers import KINDS
from whatwhere.interop.checkpoint.stretches import Stretch, Stretches, check_apart, checked_size

TYPES = {
    0: "float32", 1: "float16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K",
    11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "int8", 25: "int16", 26: "int32",
    27: "int64", 28: "float64", 29: "IQ1_M", 30: "bfloat16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
    41: "Q1_0",
}  # fmt: skip
"""GGUF's number of a type -> its name here."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _LIST = 8, 9
_SHORT = 1000  # a list of numbers up to here is read with the header
_CHUNK = 1 << 20
_MOST_PARTS = 1000
_MOST_STRINGS = 1 << 24  # of a list; vocabularies have a quarter of a million
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
"""The end of the name of a part: its number, and how many there are."""
_ANEW = "It is cut off or damaged: make or download it anew."


@dataclass(frozen=True)
class Listed:
    """Say where a long list stands in the header; it is read when it is asked for.

    Args:
        type: GGUF's number of the type of its elements.
        count: of elements.
        offset: of the first.
    """

    type: int
    count: int
    offset: int


@final
class _Cursor:
    """Read a header from front to back, a chunk at a time, never beyond the file."""

    def __init__(self, file: File, stream: Stream, offset: int = 0) -> None:
        self.file, self._stream = file, stream
        self._chunk, self._begin, self._at = b"", offset, 0

    @property
    def offset(self) -> int:
        """Where the next byte stands."""
        return self._begin + self._at

    def take(self, count: int, what: str) -> bytes:
        """Give the next bytes."""
        if count > self.file.size - self.offset:
            raise self.file.wrong(
                f"{what} at byte {self.offset:,} has {count:,} bytes, but {self.file.size - self.offset:,} are left",
                _ANEW,
            )
        if self._at + count > len(self._chunk):
            self._begin, self._at = self.offset, 0
            self._chunk = self._stream.read(self._begin, min(max(count, _CHUNK), self.file.size - self._begin))
        self._at += count
        return self._chunk[self._at - count : self._at]

    def skip(self, count: int, what: str) -> None:
        """Pass over bytes without reading them."""
        if count <= len(self._chunk) - self._at:
            self._at += count
            return
        if count > self.file.size - self.offset:
            self.take(count, what)
        self._begin, self._at, self._chunk = self.offset + count, 0, b""

    def number(self, code: str, what: str) -> Any:
        """Give the next number."""
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]

    def text(self, what: str) -> bytes:
        """Give the next string."""
        return self.take(self.number("Q", what), what)


def open_gguf(path: str | Path) -> Contents:
    """Open one file, or the first of several that a model was split into."""
    file = File(path)
    metadata, stretches = _read_header(file)
    for other in _others(file, metadata):
        more = _read_header(other)[1]
        if both := stretches.keys() & more.keys():
            raise other.wrong(f"the tensor {shown(min(both))} stands in an earlier part too", _ANEW)
        stretches |= more
    entries = {name: stretch.entry for name, stretch in stretches.items()}
    reader = Stretches(stretches)

    def factors(name: str) -> list[float] | None:
        entry = entries.get(name)
        if entry is None or len(entry.shape) != 1 or entry.shape[0] > _SHORT:
            return None
        return [float(value) for value in reader.array(name, range(entry.shape[0]))]

    return Contents(
        "gguf",
        entries,
        reader,
        words=lambda: _words(file, metadata),
        config=config_of(metadata, entries, factors),
        metadata=metadata,
    )


def _read_header(file: File) -> tuple[dict[str, Any], dict[str, Stretch]]:
    with file.opened() as stream:
        cursor = _Cursor(file, stream)
        if cursor.take(4, "the magic number") != b"GGUF":
            raise file.wrong("it does not begin with the letters GGUF", "Pass a file of this format.")
        version = cursor.number("I", "the version")
        if version not in (2, 3):
            order = ", written with the most significant byte first" if version in (2 << 24, 3 << 24) else ""
            raise file.wrong(f"its version is {version}{order}, but 2 and 3 are read", "Convert the model anew.")
        tensors, keys = cursor.number("Q", "the count of tensors"), cursor.number("Q", "the count of keys")
        left = file.size - cursor.offset
        # A key takes 13 bytes at the least, a tensor 24: what cannot be there is not looked for.
        if keys * 13 + tensors * 24 > left:
            raise file.wrong(f"it claims {keys:,} keys and {tensors:,} tensors in {left:,} bytes", _ANEW)
        metadata: dict[str, Any] = {}
        for _ in range(keys):
            name = cursor.text("a key").decode("utf-8", "replace")
            if name in metadata:
                raise file.wrong(f"the key {shown(name)} stands twice in its header", _ANEW)
            metadata[name] = _value(cursor, cursor.number("I", f"the type of {shown(name)}"), name)
        said = [_tensor(cursor) for _ in range(tensors)]
        return metadata, _place(file, said, _data_begin(file, metadata, cursor.offset))


def _value(cursor: _Cursor, kind: int, name: str) -> Any:
    what = f"the value of {shown(name)}"
    if kind in _SCALARS:
        return cursor.number(_SCALARS[kind], what)
    if kind == _STRING:
        return cursor.text(what).decode("utf-8", "replace")
    if kind != _LIST:
        raise cursor.file.wrong(f"{what} has the type {kind}, which is not known", _ANEW)
    kind, count = cursor.number("I", what), cursor.number("Q", what)
    found = Listed(kind, count, cursor.offset)
    if kind == _STRING:
        if count > min(_MOST_STRINGS, (cursor.file.size - cursor.offset) // 8):
            raise cursor.file.wrong(f"{what} claims {count:,} strings, more than can be", _ANEW)
        for _ in range(count):
            cursor.skip(cursor.number("Q", what), what)
        return found
    if kind not in _SCALARS:
        raise cursor.file.wrong(f"{what} is a list of the type {kind}, which is not known or not read", _ANEW)
    size = struct.calcsize("<" + _SCALARS[kind])
    if count <= _SHORT:
        return list(struct.unpack(f"<{count}{_SCALARS[kind]}", cursor.take(count * size, what)))
    cursor.skip(count * size, what)
    return found


def _tensor(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.text("the name of a tensor").decode("utf-8", "replace")
    dimensions = cursor.number("I", f"the dimensions of {shown(name)}")
    if dimensions > 8:
        raise cursor.file.wrong(f"the tensor {shown(name)} claims {dimensions:,} dimensions", _ANEW)
    shape = struct.unpack(f"<{dimensions}Q", cursor.take(8 * dimensions, f"the shape of {shown(name)}"))
    kind, offset = struct.unpack("<IQ", cursor.take(12, f"the type of {shown(name)}"))
    return name, shape[::-1], kind, offset  # the file has the fastest dimension first


def _data_begin(file: File, metadata: Mapping[str, Any], end: int) -> int:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or isinstance(alignment, bool) or not 1 <= alignment <= 1 << 24:
        raise file.wrong(f"general.alignment is {str(alignment)[:40]}, which aligns nothing", _ANEW)
    return -(-end // alignment) * alignment


def _place(file: File, said: list[tuple[str, tuple[int, ...], int, int]], begin: int) -> dict[str, Stretch]:
    stretches: dict[str, Stretch] = {}
    for name, shape, number, offset in said:
        if name in stretches:
            raise file.wrong(f"the tensor {shown(name)} stands twice in its header", _ANEW)
        if number not in TYPES:
            raise file.wrong(
                f"the tensor {shown(name)} has the type {number}, which is not known",
                "Quantise the model another way, such as Q8_0.",
            )
        kind = KINDS[TYPES[number]]
        size = checked_size(file, name, kind, shape)
        if begin + offset + size > file.size:
            raise file.wrong(
                f"the tensor {shown(name)} ends at byte {begin + offset + size:,}, but the file at {file.size:,}",
                _ANEW,
            )
        stretches[name] = Stretch(Entry(name, shape, kind.name, size, file.path), file, begin + offset)
    check_apart(file, stretches.values())
    return stretches


def _others(file: File, metadata: Mapping[str, Any]) -> list[File]:
    """Give the other files of a model that was split, by the names that llama.cpp gives them."""
    count = metadata.get("split.count", 0)
    if not isinstance(count, int) or count < 2:
        return []
    named = PART.search(file.path.name)
    if named is None or int(named[2]) != count or int(named[1]) != 1 or count > _MOST_PARTS:
        raise file.wrong(
            f"it is one of {count:,} parts, which are found from the name of the first, such as "
            f"model-00001-of-{min(count, 99_999):05}.gguf",
            "Pass that one, or join the parts: llama-gguf-split --merge.",
        )
    stem = file.path.name[: named.start()]
    return [File(file.path.with_name(f"{stem}-{part:05}-of-{count:05}.gguf")) for part in range(2, count + 1)]


def _words(file: File, metadata: Mapping[str, Any]) -> list[str] | None:
    """Read the tokens; bytes that are not UTF-8 become U+FFFD."""
    said = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(said, Listed) or said.type != _STRING:
        return None
    with file.opened() as stream:
        cursor = _Cursor(file, stream, said.offset)
        return [cursor.text("a token").decode("utf-8", "replace") for _ in range(said.count)]


def is_gguf(head: bytes) -> bool:
    """Tell from the first bytes."""
    return head[:4] == b"GGUF"
