"""Where the tests of the GPU run: on a real one, or in Triton's interpreter on the CPU.

`pytest -m cuda` (make cuda) is for a machine with a GPU.
"""

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from whatwhere.kernels import backend

from .device import DEVICE, MISSING

PASSED = os.environ.get("WHATWHERE_TESTS_PASSED")
"""A file of the tests that passed before on this code, which `make gpu` leaves out when it runs again."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    before = set(Path(PASSED).read_text(encoding="utf-8").splitlines()) if PASSED and Path(PASSED).exists() else set()
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in before])
    items[:] = [item for item in items if item.nodeid not in before]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if PASSED and report.when == "call" and report.passed:
        with Path(f"{PASSED}.new").open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if MISSING and item.get_closest_marker("cuda") is not None:
        pytest.skip(MISSING)


@pytest.fixture
def device() -> torch.device:
    """Where the library is tested."""
    return torch.device(DEVICE)


@pytest.fixture(params=["interpreted", pytest.param("cuda", marks=pytest.mark.cuda)])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Where kernels run: compiled on a GPU, or interpreted on the CPU."""
    if find_spec("triton") is None:
        pytest.skip("needs Triton, which is not installed here")
    if request.param == "cuda":
        if DEVICE != "cuda":
            pytest.skip("compiled kernels run on a GPU only")
        return torch.device("cuda")
    for name in ("rotary", "cos_sin", "embedding", "row_adamw", "attention"):
        interpret(import_module(f"whatwhere.kernels.cuda.{name}"), monkeypatch)
    round_to_nearest(monkeypatch)
    multiply_bfloat16(monkeypatch)
    return torch.device("cpu")


@pytest.fixture
def as_gpu(target: torch.device, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A GPU, or the CPU in its role: all that asks for a GPU takes the CPU's tensors for its own."""
    if target.type == "cpu":
        monkeypatch.setattr(Tensor, "is_cuda", property(lambda x: True))
        monkeypatch.setattr(backend, "_runs_on", lambda device: True)
        monkeypatch.setattr(backend, "on_cpu", lambda name, *tensors: None)
    return target


def interpret(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace each kernel by its interpreted form.

    TRITON_INTERPRET=1 would do so for a whole process, and for PyTorch's own compiler in it, too.
    """
    import triton.language
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    def call(self: Any, *given: Any, **named: Any) -> Any:
        """Call a kernel's helper as Triton does, and then restore the language, which no kernel compiles in else."""
        scope = interpreter._patch_lang(self.fn)
        try:
            return self.rewrite()(*given, **named)
        finally:
            scope.restore()

    kernels = {name: value for name, value in vars(module).items() if isinstance(value, JITFunction)}
    assert kernels, f"{module.__name__} has no kernels"
    for name, kernel in kernels.items():
        monkeypatch.setattr(module, name, InterpretedFunction(kernel.fn))
    monkeypatch.setattr(InterpretedFunction, "__call__", call)
    for name in ("max", "min", "sum", "zeros"):  # which are written in Triton themselves
        if isinstance(given := getattr(triton.language, name), JITFunction):
            monkeypatch.setattr(triton.language, name, InterpretedFunction(given.fn))


def round_to_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round float32 to the nearest bfloat16 in the interpreter, as GPUs and PyTorch do: it truncates."""
    import triton.language as tl
    from triton.runtime import interpreter

    cut_off = interpreter._convert_float

    def convert(values: np.ndarray, given: tl.dtype, wanted: tl.dtype, mode: object) -> np.ndarray:
        if (given, wanted) != (tl.float32, tl.bfloat16):
            return cut_off(values, given, wanted, mode)
        return torch.from_numpy(np.ascontiguousarray(values)).bfloat16().view(torch.int16).numpy().view(np.uint16)

    monkeypatch.setattr(interpreter, "_convert_float", convert)


def multiply_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply matrices of bfloat16 in the interpreter, which takes their bits for whole numbers."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder

    multiply = InterpreterBuilder.create_dot

    def wide(x: Any) -> Any:
        bits = x.data.astype(np.uint32) << 16 if x.dtype == tl.bfloat16 else None
        return x if bits is None else type(x)(bits.view(np.float32), tl.float32)

    def dot(self: object, a: Any, b: Any, *others: Any) -> Any:
        return multiply(self, wide(a), wide(b), *others)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", dot)


@pytest.fixture
def equal() -> Callable[[Tensor, Tensor], None]:
    """Require two results to be equal to the bit."""

    def require_equal(result: Tensor, wanted: Tensor) -> None:
        assert result.dtype == wanted.dtype
        assert result.shape == wanted.shape
        assert wanted.isfinite().all(), "the test compares numbers"
        assert torch.equal(result, wanted), f"{(result - wanted).abs().max():.1e} apart"

    return require_equal
