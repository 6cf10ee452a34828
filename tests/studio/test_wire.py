"""Answers on the wire: what goes in comes out, at the places that JavaScript can read from."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whatwhere.studio.wire import pack, unpack

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text('aä東\u202e"\\\n\0'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc"), PLAIN, max_size=4), st.lists(st.floats(width=32, allow_nan=False), max_size=9))
def test_what_goes_in_comes_out(plain: dict, numbers: list[float]) -> None:
    sent = plain | {"array": np.array(numbers, np.float32), "double": np.array(numbers)}
    result = unpack(pack(sent))
    for name, dtype in (("array", np.float32), ("double", np.float64)):
        back = result.pop(name)
        assert back.dtype == dtype
        np.testing.assert_array_equal(back, sent.pop(name))
    assert result == sent


def test_the_bytes_are_those_that_are_said() -> None:
    message = pack({"a": np.array([1.5, -2.0], np.float32), "b": [np.array([[7]], np.uint8)]})
    (size,) = struct.unpack_from("<I", message)
    header = json.loads(message[4 : 4 + size])
    assert header["answer"] == {"a": {"$array": 0}, "b": [{"$array": 1}]}
    assert header["arrays"] == [{"dtype": "f4", "shape": [2], "at": 0}, {"dtype": "u1", "shape": [1, 1], "at": 8}]
    assert (4 + size) % 8 == 0
    assert struct.unpack_from("<2f", message, 4 + size) == (1.5, -2.0)
    assert message[4 + size + 8] == 7
    assert len(message) == 4 + size + 16


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.array([2**31 - 1, -(2**31)]), np.int32),
        (np.array([2**31]), np.float64),
        (np.array([True, False]), np.uint8),
        (np.array([1, 2], ">f4"), np.float32),
        (np.array([1.0], np.float16), np.float32),
        (np.array([], np.int64), np.int32),
        (np.array([3], np.int16), np.int32),
        (np.arange(6.0).reshape(2, 3).T, np.float64),
    ],
)
def test_types_that_javascript_lacks_become_others_of_the_same_numbers(array: np.ndarray, dtype: type) -> None:
    result = unpack(pack({"x": array}))["x"]
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, array)


def test_numbers_that_json_cannot_say_are_null() -> None:
    assert unpack(pack({"x": [float("nan"), np.float32("inf"), 1.0]})) == {"x": [None, None, 1.0]}


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([1j]), {1, 2}])
def test_what_has_no_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="no form on the wire"):
        pack({"x": value})
