"""Products of float32 matrices, by the faster of two libraries that PyTorch carries.

PyTorch hands products of float32 matrices on the CPU to MKL or OpenBLAS. Told that bfloat16 would do, it hands them to
oneDNN, which computes in float32 all the same where the processor gains nothing by bfloat16, and may be faster there.
Whether it is float32, and whether it is faster, depends on the processor: both are tried out before it is used.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from statistics import median
from threading import Lock
from time import perf_counter
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.kernels.switch import plain

Route = Literal["default", "onednn"]
"""`default` is what PyTorch does unasked."""
Layer = tuple[int, int, int]
"""Rows, features that go in, features that come out."""

_CLOSE = 2e-6  # relative error: float32 has 2e-7 to 5e-7, TF32 and bfloat16 3e-4 and more
_FASTER = 1.25  # less is little gained, and noise could decide
_ROUNDS = 5
_MULTIPLICATIONS = 2**22  # in one product, so that trying is short
_LOCK = Lock()
_inside = 0

Pair = tuple[Tensor, Tensor]
Multiply = Callable[[Tensor, Tensor], Tensor]


def choose(layers: Sequence[Layer]) -> Route:
    """Try the products of linear layers, forward and backward, and choose the route that serves them best here.

    `onednn` is chosen where every product agrees with float64 to 2e-6 and all together take less than 1 / 1.25 of the
    time, by the median of interleaved rounds. It takes some hundredths of a second, once for each number of threads.

    Args:
        layers: rows, features in and features out of each.

    `default` too where the plain twins are asked for, where this PyTorch has no such switch, and where the program
    has set it already.

    >>> choose([(64, 16, 32)]) in ("default", "onednn")
    True
    """
    if plain() or not _is_free():
        return "default"
    return _chosen(tuple(layers), torch.get_num_threads())


@contextmanager
def routed(route: Route) -> Iterator[Route]:
    """Compute products by a route inside; give the one that is taken.

    That is `default` where another machine chose `onednn`, but here it would not be float32. The switch is one for the
    whole process: threads that compute side by side share it, and the last to leave puts it back.

    >>> with routed("default") as taken:
    ...     taken
    'default'
    """
    if route == "default" or plain() or not _enter():
        yield "default"
        return
    try:
        yield "onednn"
    finally:
        _leave()


def error(multiply: Multiply, pairs: Sequence[Pair]) -> float:
    """Give the largest relative error, |AB - exact| / |exact|, over some products; the exact ones are float64.

    >>> error(torch.mm, [(torch.ones(2, 2), torch.ones(2, 2))])
    0.0
    """

    def of(a: Tensor, b: Tensor) -> float:
        exact = a.double() @ b.double()
        return float((multiply(a, b).double() - exact).norm() / exact.norm())

    return max(of(a, b) for a, b in pairs)


def gain(first: Multiply, second: Multiply, pairs: Sequence[Pair]) -> float:
    """Give how many times faster the second way is: the median over rounds in which both take turns."""

    def seconds(multiply: Multiply) -> float:
        began = perf_counter()
        for a, b in pairs:
            multiply(a, b)
        return perf_counter() - began

    seconds(first), seconds(second)  # both prepare themselves at the first call
    return median(seconds(first) / seconds(second) for _ in range(_ROUNDS))


@cache
def _chosen(layers: tuple[Layer, ...], threads: int) -> Route:
    pairs = [pair for layer in layers for pair in _products(*layer)]
    if not _is_float32() or error(_by_onednn, pairs) > _CLOSE:
        return "default"
    return "onednn" if gain(torch.mm, _by_onednn, pairs) >= _FASTER else "default"


@cache
def _is_float32() -> bool:
    return error(_by_onednn, _products(256, 256, 256)) <= _CLOSE


def _products(
    rows: int, features_in: int, features_out: int
) -> list[tuple[Float[Tensor, "m inner"], Float[Tensor, "inner n"]]]:
    """Draw the three products of a linear layer: its output, and the gradients of its input and of its weight."""
    rows = min(rows, max(64, _MULTIPLICATIONS // (features_in * features_out)))
    generator = torch.Generator().manual_seed(0)
    x, weight, gradient = (
        torch.randn(shape, generator=generator, device="cpu", dtype=torch.float32)
        for shape in ((rows, features_in), (features_out, features_in), (rows, features_out))
    )
    return [(x, weight.T), (gradient, weight), (gradient.T, x)]


def _by_onednn(a: Tensor, b: Tensor) -> Tensor:
    _set("bf16")
    try:
        return torch.mm(a, b)
    finally:
        _set("none")


def _is_free() -> bool:
    """Tell whether there is a switch, which only newer versions have, and nobody has set it."""
    switch: Any = getattr(torch.backends.mkldnn, "matmul", None)
    return torch.backends.mkldnn.is_available() and getattr(switch, "fp32_precision", None) == "none"


def _set(precision: str) -> None:
    backend: Any = torch.backends.mkldnn
    backend.matmul.fp32_precision = precision


def _enter() -> bool:
    global _inside
    with _LOCK:
        if _inside == 0:
            if not (_is_free() and _is_float32()):
                return False
            _set("bf16")
        _inside += 1
        return True


def _leave() -> None:
    global _inside
    with _LOCK:
        _inside -= 1
        if _inside == 0:
            _set("none")
