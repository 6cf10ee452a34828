"""Damage a file, read what is left, and see that nothing but one clear error comes of it."""

import io
import json
import re
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from whatwhere.errors import CheckpointError, WhatWhereError
from whatwhere.models.checkpoint import Checkpoint

from .samples import Sample

NUMBERS = (0, 1, -1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 1_500_000_000_000)
WORDS = (b"NaN", b"-5", b"1e400", b"null", b"true", b'"x"', b"[]", b"{}", b"[" * 3000, b"1" * 5000, b'"\\ud800"')
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 7, 2**31, 2**63, 2**64, -(2**63), 10**40, 0.5, -1e308, float("nan"), float("inf"), "", "x",
    "\ud800", "\0", "../x", "/dev/zero", "a/b", "0" * 64, "none", "float32", [], {}, [[]], [0], ["x"], {"x": 0}, [1, 2],
)  # fmt: skip
DIGITS = re.compile(rb"\d+")
ALLOWANCE = 3 << 20
"""Bytes that reading may take whatever the size of the file: a chunk of text, and what Python makes of an error."""
TIMES = 100
"""Bytes that one byte of a file may become: a short string in a list."""


def flip(content: bytes, at: int, value: int) -> bytes:
    at %= len(content)
    return content[:at] + bytes([content[at] ^ (value % 255 + 1)]) + content[at + 1 :]


def cut(content: bytes, at: int, value: int) -> bytes:
    return content[: at % len(content)]


def insert(content: bytes, at: int, value: int) -> bytes:
    at %= len(content) + 1
    return content[:at] + struct.pack("<q", value - 2**40)[: value % 8 + 1] + content[at:]


def splice(content: bytes, at: int, value: int) -> bytes:
    start, length = value % len(content), value // 7 % 64 + 1
    at %= len(content) + 1
    return content[:at] + content[start : start + length] + content[at:]


def remove(content: bytes, at: int, value: int) -> bytes:
    at %= len(content)
    return content[:at] + content[at + value % 64 + 1 :]


def overwrite(content: bytes, at: int, value: int) -> bytes:
    """Write a number that no length should have, of 2, 4 or 8 bytes."""
    size = (2, 4, 8)[value % 3]
    number = NUMBERS[value // 3 % len(NUMBERS)] % (1 << 8 * size)
    at %= max(1, len(content) - size)
    return content[:at] + number.to_bytes(size, "little") + content[at + size :]


def renumber(content: bytes, at: int, value: int) -> bytes:
    result = list(DIGITS.finditer(content[:100_000]))
    if not result:
        return content
    entry = result[at % len(result)]
    choice = value % (len(NUMBERS) + len(WORDS))
    new = str(NUMBERS[choice]).encode() if choice < len(NUMBERS) else WORDS[choice - len(NUMBERS)]
    return content[: entry.start()] + new + content[entry.end() :]


def revalue(content: bytes, at: int, value: int) -> bytes:
    """Replace a value of JSON by another one, of its type or of any, or leave it out."""
    begin = content.find(b"{")
    try:
        whole, end = json.JSONDecoder().raw_decode(content[max(0, begin) :].decode("latin-1"))
    except (ValueError, RecursionError):
        return renumber(content, at, value)
    slots = [(each, key) for each in _parts(whole) for key in (each if isinstance(each, dict) else range(len(each)))]
    if begin < 0 or not slots:
        return content
    owner, key = slots[at % len(slots)]
    alike = [each for each in VALUES if type(each) is type(owner[key])] or list(VALUES)
    if value % 7 == 0:
        del owner[key]
    else:
        choices = alike if value % 7 < 4 else VALUES
        owner[key] = choices[value // 7 % len(choices)]
    return content[:begin] + json.dumps(whole).encode() + content[begin + end :]


def _parts(value: Any) -> Iterator[Any]:
    """Yield the lists and objects of what JSON holds."""
    if isinstance(value, list | dict):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _parts(each)


def inside(content: bytes, at: int, value: int) -> bytes:
    """Damage what a length or a checksum stands guard over, and make these right again."""
    edit = (flip, renumber, splice, remove, overwrite, revalue)[value % 6]
    if content[:4] == b"PK\x03\x04":
        return _inside_zip(content, at, value, edit)
    code, first = ("<H", 8) if content[:6] == b"\x93NUMPY" else ("<Q", 0)
    begin = first + struct.calcsize(code)
    if len(content) <= begin + 1:
        return content
    end = begin + struct.unpack_from(code, content, first)[0]
    if content[begin : begin + 1] != b"{" or end > len(content) or end <= begin:
        return renumber(content, at, value)
    header = edit(content[begin:end], at, value)
    return content[:first] + struct.pack(code, len(header) % 2**16) + header + content[end:]


def _inside_zip(content: bytes, at: int, value: int, edit: "Edit") -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
    except Exception:  # it has been damaged before
        return content
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number, (info, kept) in enumerate(members):
            changed = edit(kept, at, value) if number == at % len(members) and kept else kept
            archive.writestr(info, changed, info.compress_type)
    return out.getvalue()


Edit = Callable[[bytes, int, int], bytes]
EDITS: tuple[Edit, ...] = (flip, cut, insert, splice, remove, overwrite, renumber, inside, inside, revalue)


def damaged(content: bytes, edits: list[tuple[int, int, int]]) -> bytes:
    """Apply edits: which, where, and a number that each understands in its own way."""
    for which, at, value in edits:
        content = EDITS[which % len(EDITS)](content, at, value) or b"\0"
    return content


def read_all(path: Path) -> dict[str, Any]:
    """Read everything that there is to read."""
    checkpoint = Checkpoint.open(path, allow_pickle=True)
    result: dict[str, Any] = {"names": checkpoint.names, "tied": checkpoint.tied, "offset": checkpoint.position_offset}
    for name, entry in checkpoint.tensors.items():
        for rows in (None, slice(1, 3)) if entry.shape else (None,):
            try:
                array = checkpoint.array(name, rows)
            except CheckpointError:
                continue
            assert array.ndim == len(entry.shape)
            assert rows is not None or array.shape == entry.shape
    result["words"] = checkpoint.words
    result["tokenizer"] = checkpoint.tokenizer
    with suppress(WhatWhereError):  # settings that do not fit together are errors
        result["description"] = checkpoint.description
    return result


def withstands(sample: Sample, content: bytes, folder: Path) -> bool:
    """Write a sample with damaged content and read it; return whether it was refused by CheckpointError."""
    path = sample.write(folder, content)
    size = sum(len(kept) for name, kept in sample.files.items() if name != sample.damaged) + len(content)
    return refuses_or_reads(lambda: read_all(path), size, CheckpointError)


def refuses_or_reads(read: Callable[[], object], size: int, error: type[WhatWhereError] = WhatWhereError) -> bool:
    """Read damaged files; return whether they were refused. Anything but one error passes through, and so fails.

    What Python and NumPy allocate is measured, and must follow the size of the files, not what they claim. It is
    measured again where it does not: a table of Python's own, such as that of its names, grows at any time, but once.
    """
    most = ALLOWANCE + TIMES * size
    message, peak = _tried(read, error)
    if peak >= most:
        message, peak = _tried(read, error)
    PEAKS[:] = [max([*PEAKS, (size, peak)], key=lambda each: each[1] - 4 * each[0])]
    assert peak < most, f"{peak:,} bytes were allocated, but for these files at most {most:,} are right"
    assert message is None or "\n" in message, f"an error states the way out in a line of its own: {message}"
    return message is not None


def refused(path: Path, *words: str, read: Callable[..., object] = Checkpoint.open, **options: bool) -> None:
    """Read a path; see that the error names it, says some words, and states the way out, for little memory."""
    text, peak = _tried(lambda: read(path, **options), CheckpointError)
    assert text is not None, "it was read"
    assert text.startswith(str(path))
    assert "\n" in text
    assert not [each for each in words if each not in text], text
    assert peak < 2 * sum(file.stat().st_size for file in (path, *path.rglob("*"))) + 4_000_000


PEAKS: list[tuple[int, int]] = []
"""The size of the files, and the bytes at the peak, of that reading which took most beyond four times the size."""


def _tried(read: Callable[[], object], error: type[WhatWhereError]) -> tuple[str | None, int]:
    """Return the message of the error, if there was one, and the peak of memory in bytes."""
    message = None
    tracemalloc.start()
    try:
        read()
    except error as problem:
        message = str(problem)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return message, peak
