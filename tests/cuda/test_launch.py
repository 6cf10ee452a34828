"""How a kernel is started: on the device of its tensors, and anew for all that Triton compiles it anew for."""

from importlib import import_module

import pytest
import torch

from whatwhere.kernels import cuda

pytest.importorskip("triton", reason="needs Triton, which is not installed here")

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
