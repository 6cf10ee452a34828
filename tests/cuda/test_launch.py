"""How a kernel is started: on the device of its tensors, and anew for all that Triton compiles it anew for."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from whatwhere.kernels import backend, cuda

pytest.importorskip("triton", reason="needs Triton, which is not installed here")

GPU = torch.device("cuda", 0)
LINE = torch.zeros(64)
VALUES = [
    *(LINE, LINE[1:], LINE[4:], LINE.bfloat16(), LINE.double(), LINE.long()),
    *(0, 1, 2, 15, 16, 17, -16, -1, 2**31 - 1, 2**31, 2**31 - 16, -(2**31), -(2**31) - 1, 2**40, 2**63 - 1, 2**63),
    *(0.0, 1.0, 16.0, None),
]


def test_whatever_triton_compiles_anew_for_is_another_kind():
    """Else a kernel would be run on what it was not compiled for."""
    specialize = import_module("triton._C.libtriton").native_specialize_impl
    nvidia, target = (import_module(f"triton.backends.{name}") for name in ("nvidia.compiler", "compiler"))
    backend = nvidia.CUDABackend(target.GPUTarget("cuda", 90, 32))
    for one in VALUES:
        for other in VALUES:
            if cuda._kind(one) == cuda._kind(other):
                of_triton = [specialize(backend, x, False, True, True) for x in (one, other)]
                assert of_triton[0] == of_triton[1], (one, other)
    assert len({cuda._kind(x) for x in VALUES}) < len(VALUES)


class Kernel:
    """Stands for a kernel of Triton: notes what is compiled, and what is started directly."""

    arg_names = ("x", "n", "BLOCK", "FAST")

    def __init__(self) -> None:
        self.fn, self.compiled, self.started = object(), [], []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def run(*given: object, **constants: object) -> Any:
            self.compiled.append((grid, given, constants))
            return self.Compiled(self)

        return run

    class Compiled(SimpleNamespace):
        packed_metadata = ()

        def __init__(self, of: "Kernel") -> None:
            self.of = of

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *given: self.of.started.append((grid, given))


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """The devices that are made current, while device 0 is."""
    made: list[torch.device] = []

    @contextmanager
    def current(device: torch.device) -> Iterator[None]:
        made.append(device)
        yield

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", current)
    monkeypatch.setattr(cuda, "_compiled", {})
    return made


def test_a_kernel_that_ran_before_is_started_directly(devices):
    kernel = Kernel()
    for n in (48, 64, 48):
        cuda.launch(kernel, (n, 2), GPU, LINE, n, BLOCK=8, FAST=True, num_warps=4)
    assert kernel.compiled == [
        ((48, 2), (LINE, 48), {"enable_fp_fusion": False, "BLOCK": 8, "FAST": True, "num_warps": 4})
    ]
    assert kernel.started == [((n, 2, 1), (LINE, n, 8, True)) for n in (64, 48)]
    changes = [(LINE[1:], 48), (LINE.half(), 48), (LINE, 1), (LINE, 50), (LINE, 2**40)]
    for number, given in enumerate(changes, start=2):
        cuda.launch(kernel, (1,), GPU, *given, BLOCK=8, FAST=True, num_warps=4)
        assert len(kernel.compiled) == number
    for constants in ({"BLOCK": 16}, {"FAST": False}, {"num_warps": 8}):
        cuda.launch(kernel, (1,), GPU, LINE, 48, **{"BLOCK": 8, "FAST": True, "num_warps": 4} | constants)
    assert len(kernel.compiled) == 9
    assert len(kernel.started) == 2
    cuda.launch(Kernel(), (1,), GPU, LINE, 48, BLOCK=8, FAST=True, num_warps=4)
    assert len(kernel.started) == 2
    assert not devices


def test_another_device_is_made_current(devices):
    kernel = Kernel()
    for device in (torch.device("cuda", 1), GPU, torch.device("cuda", 1), torch.device("cpu")):
        cuda.launch(kernel, (1,), device, LINE, 48, BLOCK=8, FAST=True)
    assert devices == [torch.device("cuda", 1)] * 2
    assert len(kernel.compiled) == 3, "each device loads a kernel of its own"
    assert len(kernel.started) == 1


def test_an_empty_grid_runs_nothing(devices):
    cuda.launch(Kernel(), (0, 3), torch.device("cuda", 1), LINE)
    assert not devices


def test_pytorch_computes_where_triton_starts_nothing(monkeypatch):
    """With no compiler, say, by which it makes what starts kernels."""

    class Driver:
        @property
        def active(self) -> Any:
            raise RuntimeError("Failed to find C compiler.\nAt length.")

    monkeypatch.setattr(import_module("triton").runtime, "driver", Driver())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(backend, "why_no_triton", backend.why_no_triton.__wrapped__)
    with pytest.warns(UserWarning, match=r"find C compiler\. PyTorch's own operations run.*\n.*apt install gcc"):
        assert not backend._runs_on.__wrapped__(0)
