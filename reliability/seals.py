"""Checksums made right again after damage, so that what is damaged reaches the readers behind them."""

import json
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from whatwhere.records import CHECKSUM, checksum

Seal = Callable[[bytes], Mapping[Path, bytes]]
"""Returns the files to write, by path, for damaged content of one of them."""
_STATED = re.compile(rb'("%s": ?")[0-9a-f]{64}(")' % CHECKSUM.encode())


def of_json(path: Path) -> Seal:
    """Return the seal of a JSON file of ours, or of one behind a first line."""
    return lambda content: {path: sealed_json(content)}


def sealed_json(content: bytes) -> bytes:
    """Write the checksum of the values into JSON, whose other bytes stay; what is not a JSON object stays as it is."""
    try:
        value = json.loads(content[max(0, content.find(b"{")) :])
        return _stating(content, checksum(value)) if isinstance(value, dict) else content
    except (ValueError, RecursionError):
        return content


def of_tensors(path: Path) -> Seal:
    """Return the seal of safetensors of ours, whose header has their checksum."""

    def seal(content: bytes) -> Mapping[Path, bytes]:
        end = 8 + int.from_bytes(content[:8], "little")
        try:
            header = json.loads(content[8:end])
            header["__metadata__"].pop(CHECKSUM)
            right = sha256(json.dumps(header, sort_keys=True).encode() + content[end:]).hexdigest()
            return {path: content[:8] + _stating(content[8:end], right) + content[end:]}
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            return {path: content}

    return seal


def of_digest(path: Path, record: Path) -> Seal:
    """Return the seal of a file whose SHA-256 is in another one, a JSON file of ours."""
    old, about = sha256(path.read_bytes()).hexdigest(), record.read_bytes()

    def seal(content: bytes) -> Mapping[Path, bytes]:
        new = about.replace(old.encode(), sha256(content).hexdigest().encode())
        return {path: content, record: sealed_json(new)}

    return seal


def of_block(path: Path) -> Seal:
    """Return the seal of a block, behind which is its SHA-256."""
    return lambda content: {path: content[:-32] + sha256(content[:-32]).digest()}


def _stating(content: bytes, right: str) -> bytes:
    return _STATED.sub(rb"\g<1>" + right.encode() + rb"\g<2>", content, count=1)
