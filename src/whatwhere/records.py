"""Typed results as JSON and back: results are dataclasses, and only this file writes or reads them.

Files of ours state a format, a version and a checksum: see `Schema`.
"""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, TypeVar

import msgspec

from whatwhere.errors import ResultsError, WhatWhereError
from whatwhere.escape import quoted

Record = TypeVar("Record")
MaybeNaN = Annotated[float, "NaN where there is no value"]
"""A number of a result that may be NaN, which becomes None in JSON and null on the studio's page."""


@dataclass(frozen=True)
class Missing:
    """The reason why a part of some results is not there: a sentence without its full stop."""

    missing: str


def to_json(record: object, digits: int | None = 6) -> Any:
    """Return a dataclass, or lists and dictionaries of such, as what JSON holds.

    Arrays and tensors become lists, numbers that are not finite None.

    Args:
        digits: significant digits of the numbers; None keeps all.
    """
    return _rounded(msgspec.to_builtins(record, enc_hook=_array), digits)


def from_json(kind: type[Record], value: object, source: str) -> Record:
    """Return the dataclass of a type that JSON holds, each value checked against its type.

    Raises:
        ResultsError: If a value is missing or has another type.
    """
    try:
        return msgspec.convert(value, kind, str_keys=True)  # the keys of JSON are text, those of a mapping may be int
    except (msgspec.ValidationError, UnicodeEncodeError) as problem:
        raise ResultsError(
            f"{source} does not hold what was expected: {problem}.\n"
            "The file was changed, or written by another version. Run the command that wrote it again."
        ) from None


CHECKSUM = "checksum"  # the key of the checksum of all else in a file


@dataclass(frozen=True)
class Schema:
    """What a file of ours states of itself: a format, a version, and a checksum of its values, whatever its spaces."""

    format: str
    version: int
    way_out: str  # what a person can do where it is not read, as sentences
    unchecked: Collection[int] = ()  # earlier versions, without a checksum, which are read as this one

    def wrap(self, record: object) -> dict[str, Any]:
        """Return a record as what JSON holds, with format, version and checksum; every number keeps all its digits."""
        return with_checksum({"format": self.format, "version": self.version, **to_json(record, None)})

    def unwrap(self, content: object, source: str, error: type[WhatWhereError] = ResultsError) -> dict[str, Any]:
        """Return the content of a file without its checksum; raise `error` if that, format or version is different."""
        if not isinstance(content, Mapping):
            raise error(f"{source} holds a {type(content).__name__}, but an object is needed.\n{self.way_out}")
        stated = content.get("format")
        if stated != self.format:
            raise error(f"{source} has the format {_shown(stated)}, but {self.format!r} is needed.\n{self.way_out}")
        version = content.get("version")
        older = type(version) is int and version in self.unchecked and CHECKSUM not in content
        if version != self.version and not older:
            raise error(
                f"{source} has version {_shown(version)}, but this whatwhere reads version {self.version}.\n"
                f"{self.way_out}"
            )
        if not older and content.get(CHECKSUM) != checksum(content):
            raise error(f"{source} has another checksum than it states: it is damaged, or was changed.\n{self.way_out}")
        return {**{key: value for key, value in content.items() if key != CHECKSUM}, "version": self.version}


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what JSON holds with the checksum of it."""
    return {**content, CHECKSUM: checksum(content)}


def checksum(content: Mapping[str, Any]) -> str:
    """Return the checksum of a JSON object, of all but its own checksum: SHA-256 of its values, in their order."""
    values = {key: value for key, value in content.items() if key != CHECKSUM}
    try:
        text = json.dumps(values, separators=(",", ":"))
    except RecursionError:  # which no record is
        return ""
    return sha256(text.encode()).hexdigest()


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else str(value)[:40]


def _array(value: object) -> Any:
    # Arrays and scalars of NumPy, tensors of PyTorch: the command line imports this module, and starts without them.
    if hasattr(value, "tolist"):
        return value.tolist()
    raise NotImplementedError(f"results hold a {type(value).__name__}, which JSON cannot hold.")


def _rounded(value: Any, digits: int | None) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if digits is None else float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: _rounded(inner, digits) for key, inner in value.items()}
    return [_rounded(inner, digits) for inner in value] if isinstance(value, list | tuple) else value
