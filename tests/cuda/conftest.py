"""Where the tests of the GPU run: on a real one, or in Triton's interpreter on the CPU.

`pytest -m cuda` (make cuda) is for a machine with a GPU.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from .device import DEVICE, MISSING


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
    for name in ("rotary", "embedding", "row_adamw"):
        interpret(import_module(f"whatwhere.kernels.cuda.{name}"), monkeypatch)
    round_to_nearest(monkeypatch)
    return torch.device("cpu")


def interpret(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace each kernel by its interpreted form.

    TRITON_INTERPRET=1 would do so for a whole process, and for PyTorch's own compiler in it, too.
    """
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    kernels = {name: value for name, value in vars(module).items() if isinstance(value, JITFunction)}
    assert kernels, f"{module.__name__} has no kernels"
    for name, kernel in kernels.items():
        monkeypatch.setattr(module, name, InterpretedFunction(kernel.fn))


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


@pytest.fixture
def equal() -> Callable[[Tensor, Tensor], None]:
    """Require two results to be equal to the bit."""

    def require_equal(result: Tensor, wanted: Tensor) -> None:
        assert result.dtype == wanted.dtype
        assert result.shape == wanted.shape
        assert wanted.isfinite().all(), "the test compares numbers"
        assert torch.equal(result, wanted), f"{(result - wanted).abs().max():.1e} apart"

    return require_equal
