"""The checks of functions that know no PyTorch: of NumPy, of any array that DLPack reads, and of C."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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


def test_a_function_of_c(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "rotate.c").write_text(
        "#include <math.h>\n"
        "typedef long long whole;\n"
        "void rotate(const float* x, const whole* p, float* y, whole heads, whole tokens, whole dim) {\n"
        "  for (whole h = 0; h < heads; h++) for (whole t = 0; t < tokens; t++)\n"
        "    for (whole i = 0; i < dim / 2; i++) {\n"
        "      double a = p[t] * pow(10000.0, -2.0 * i / dim);\n"
        "      whole at = (h * tokens + t) * dim + i;\n"
        "      y[at] = x[at] * cos(a) - x[at + dim / 2] * sin(a);\n"
        "      y[at + dim / 2] = x[at] * sin(a) + x[at + dim / 2] * cos(a);\n"
        "    }\n"
        "}\n"
    )
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "rotate.c", "-o", "rotate.so", "-lm"], cwd=tmp_path, check=True
    )
    library = ctypes.CDLL(str(tmp_path / "rotate.so"))

    def in_c(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        if x.dtype != np.float32:
            raise NotImplementedError("float32 alone")
        x, out = np.ascontiguousarray(x), np.empty_like(x)
        pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (x, np.ascontiguousarray(positions), out))
        sizes = (ctypes.c_longlong(n) for n in (int(np.prod(x.shape[:-2])), x.shape[-2], x.shape[-1]))
        library.rotate(*pointers, *sizes)
        return out

    check_rotary(of_arrays(in_c), DIM).require()
