"""The checks of functions that know no PyTorch: of NumPy, of any array that DLPack reads, and of C."""

from typing import Any

import numpy as np
import torch

from whatwhere.testing import check_bias, check_input_encoding, check_rotary, of_arrays

DIM = 8


def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    angles = positions[:, None] * 10_000.0 ** (-np.arange(0, DIM, 2) / DIM)
    a, b = np.split(x.astype(np.float64), 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1).astype(x.dtype)


class Foreign:
    """An array of another library, which only DLPack reads."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = torch.from_numpy(values.copy())

    def __dlpack__(self, **settings: Any) -> Any:
        return self.values.__dlpack__(**settings)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


def test_functions_of_numpy_pass() -> None:
    report = check_rotary(of_arrays(rotate), DIM)
    report.require()
    applied = [finding.law for finding in report.findings if finding.outcome == "passes"]
    assert {"formula", "layout", "far"} <= set(applied)
    slopes = 2.0 ** -np.arange(2, 9, 2)
    check_bias(
        of_arrays(lambda q, k: (-slopes[:, None, None] * np.abs(q[:, None] - k)).astype(np.float32)), 4,
        expected="alibi",
    ).require()  # fmt: skip

    def encode(positions: np.ndarray) -> np.ndarray:
        angles = positions[:, None] * 10_000.0 ** (-np.arange(0, DIM, 2) / DIM)
        return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(positions), DIM).astype(np.float32)

    check_input_encoding(of_arrays(encode), DIM).require()


def test_a_mistake_is_found_and_explained() -> None:
    report = check_rotary(of_arrays(lambda x, positions: rotate(x, -positions)), DIM)
    assert not report.passed
    assert "rotates the other way" in str(report)


def test_arrays_of_another_library_are_made_and_read() -> None:
    made: list[type] = []

    def foreign(x: Foreign, positions: Foreign) -> Foreign:
        made.append(type(x))
        return Foreign(rotate(x.values.numpy(), positions.values.numpy()))

    check_rotary(of_arrays(foreign, Foreign), DIM).require()
    assert set(made) == {Foreign}


def test_what_is_no_array_is_named() -> None:
    report = check_rotary(of_arrays(lambda x, positions: None), DIM)
    assert "returned a NoneType" in str(report)
