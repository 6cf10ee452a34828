"""Typed results as JSON and back: results are dataclasses, and only this file writes or reads them."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from whatwhere.errors import ResultsError

Record = TypeVar("Record")
MaybeNaN = Annotated[float, "NaN where there is no value"]
"""A number of a result that may be NaN, which becomes None in JSON and null on the studio's page."""


@dataclass(frozen=True)
class Missing:
    """The reason why a part of some results is not there.

    Args:
        missing: the reason, a sentence without its full stop.
    """

    missing: str


def to_json(record: object, digits: int | None = 6) -> Any:
    """Return a dataclass as what JSON holds: arrays and tensors become lists, numbers that are not finite None.

    Args:
        record: a dataclass, or lists and dictionaries of such.
        digits: significant digits of the numbers; None keeps all.

    Examples:
        >>> to_json(Missing("there is no tokenizer"))
        {'missing': 'there is no tokenizer'}
        >>> import numpy as np
        >>> to_json({"share": 1 / 3, "norms": (np.array([1.0, np.nan]),)})
        {'share': 0.333333, 'norms': [[1.0, None]]}
    """
    return _rounded(msgspec.to_builtins(record, enc_hook=_array), digits)


def from_json(kind: type[Record], value: object, source: str) -> Record:
    """Return the record that JSON holds, each value checked against its type.

    Args:
        kind: a dataclass, or a type of such.
        value: what `json.loads` returned.
        source: what was read, for the message.

    Raises:
        ResultsError: If a value is missing or has another type.

    Examples:
        >>> from_json(Missing, {"missing": "no tokenizer"}, "results.json")
        Missing(missing='no tokenizer')
    """
    try:
        return msgspec.convert(value, kind, str_keys=True)  # the keys of JSON are text, those of a mapping may be int
    except (msgspec.ValidationError, UnicodeEncodeError) as problem:
        raise ResultsError(
            f"{source} does not hold what was expected: {problem}.\n"
            "The file was changed, or written by another version. Run the command that wrote it again."
        ) from None


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
