"""An answer on its way to the page: a header in JSON, then arrays as they are in memory, little-endian.

    bytes 0-3          length of the header, unsigned
    then               the header, padded with blanks so that what follows starts at a multiple of 8
    then               the arrays, each at a multiple of 8

The header is {"answer": ..., "arrays": [{"dtype", "shape", "at"}]}; an array of the answer is replaced by
{"$array": its number}.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

MEDIA_TYPE = "application/vnd.whatwhere.answer"

_ALIGN = 8
_DTYPES = {"f4": "<f4", "f8": "<f8", "i4": "<i4", "u4": "<u4", "u2": "<u2", "u1": "|u1"}
"""What JavaScript has typed arrays for; its 64-bit integers are not numbers."""


def pack(answer: object) -> bytes:
    """Write an answer as bytes.

    Numbers that are not finite become null, outside of arrays: JSON has no such numbers. Integers of 64 bits become
    int32 where they fit, else float64, which is exact below 2^53.

    Examples:
        >>> unpack(pack({"norms": np.array([1.0, 2.0], np.float32), "k": 3}))
        {'norms': array([1., 2.], dtype=float32), 'k': 3}
    """
    arrays: list[np.ndarray] = []
    encoded = _to_json(answer, arrays)
    at, headers = 0, []
    for array in arrays:
        headers.append({"dtype": _code(array), "shape": list(array.shape), "at": at})
        at += array.nbytes + -array.nbytes % _ALIGN
    header = json.dumps({"answer": encoded, "arrays": headers}, allow_nan=False, separators=(",", ":")).encode()
    header += b" " * (-(4 + len(header)) % _ALIGN)
    body = [len(header).to_bytes(4, "little"), header]
    for array in arrays:
        body += [array.tobytes(), b"\0" * (-array.nbytes % _ALIGN)]
    return b"".join(body)


def unpack(message: bytes) -> dict[str, Any]:
    """Read what `pack` wrote: the page's own reader, in Python."""
    size = int.from_bytes(message[:4], "little")
    header = json.loads(message[4 : 4 + size])
    arrays = []
    for entry in header["arrays"]:
        dtype, count = np.dtype(_DTYPES[entry["dtype"]]), math.prod(entry["shape"])
        flat = np.frombuffer(message, dtype, count, 4 + size + entry["at"])
        arrays.append(flat.reshape(entry["shape"]))
    answer: dict[str, Any] = _with_arrays(header["answer"], arrays)
    return answer


def _to_json(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return a value as JSON can hold it, its arrays moved to a list."""
    if hasattr(value, "detach"):  # a tensor of PyTorch
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        arrays.append(_narrow(value))
        return {"$array": len(arrays) - 1}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if is_dataclass(value):
        return {field.name: _to_json(getattr(value, field.name), arrays) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _to_json(inner, arrays) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_to_json(inner, arrays) for inner in value]
    raise TypeError(f"an answer holds a {type(value).__name__}, which has no form on the wire.")


def _narrow(array: np.ndarray) -> np.ndarray:
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "b":
        target = "u1"
    elif kind in "iu" and f"{kind}{size}" not in _DTYPES:
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        target = "i4" if low >= -(1 << 31) and high < 1 << 31 else "f8"
    elif kind == "f":
        target = "f8" if size > 4 else "f4"
    elif kind in "iu":
        target = f"{kind}{size}"
    else:
        raise TypeError(f"an answer holds an array of {array.dtype}, which has no form on the wire.")
    return np.ascontiguousarray(array, _DTYPES[target]).reshape(array.shape)  # a single number keeps its shape


def _code(array: np.ndarray) -> str:
    return f"{array.dtype.kind}{array.dtype.itemsize}"


def _with_arrays(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$array"}:
            return arrays[value["$array"]]
        return {key: _with_arrays(inner, arrays) for key, inner in value.items()}
    return [_with_arrays(inner, arrays) for inner in value] if isinstance(value, list) else value
