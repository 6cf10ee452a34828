"""Which implementation computes: one table of the kernels, and the conditions under which each is used.

    CPU      C++ of this folder (native.h), for plain tensors; compiled when the package is installed, if there is a
             compiler, and run on PyTorch's own threads
    GPU      Triton (cuda/), for plain tensors on one NVIDIA GPU
    else     PyTorch's own operations, with the same results: they are in each kernel's file

`pytorch_only` and the environment variable WHATWHERE_KERNELS disable the kernels.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from ctypes import c_char_p, c_double, c_float, c_int, c_int64, c_void_p
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from warnings import warn

import torch
from torch import Tensor
from torch.autograd import forward_ad

from whatwhere.errors import SettingError

CHOICES = ("auto", "pytorch", "baseline", "avx2", "avx512")
VARIABLE = "WHATWHERE_KERNELS"

LEVELS = ("baseline", "avx2", "avx512")
"""Instruction sets that the kernels are compiled for; a processor supports its own level and all before it."""

_ONLY_LOADED = 4 if sys.platform == "linux" else 0x10  # RTLD_NOLOAD

FILE = Path(__file__).with_name("_native.so")


class Library:
    """The loaded library, at one of LEVELS; None is the best that the processor supports."""

    def __init__(self, file: Path, level: str | None = None) -> None:
        self._loaded = ctypes.CDLL(str(file))
        best = self._loaded.whatwhere_level()
        self.level = LEVELS[best] if level is None or level not in LEVELS[: best + 1] else level
        self._loaded.whatwhere_sources.restype = ctypes.c_char_p
        self.sources = self._loaded.whatwhere_sources().decode()
        self._loaded.whatwhere_use_pool.argtypes = [ctypes.c_void_p]
        self._loaded.whatwhere_use_pool(_pool())

    def function(self, name: str, *arguments: type) -> Callable[..., None]:
        """Return the C++ function of this level, with the types of its arguments; it returns nothing."""
        return self.shared(f"{name}_{self.level}", *arguments)

    def shared(self, name: str, *arguments: type) -> Callable[..., None]:
        """Return a C++ function that all levels share."""
        function: Any = getattr(self._loaded, name)
        function.argtypes, function.restype = list(arguments), None
        kernel: Callable[..., None] = function
        return kernel


def requested_kernels() -> str:
    """Return the value of WHATWHERE_KERNELS: `auto`, `pytorch` for no kernels, or a level of the compiled library."""
    value = os.environ.get(VARIABLE, "auto") or "auto"
    if value not in CHOICES:
        raise SettingError(f"{VARIABLE} is {value!r}, but knows only: {', '.join(CHOICES)}.")
    return value


@cache
def library() -> Library | None:
    """Return the compiled library; None where it was not built or does not load here."""
    level = requested_kernels()
    if level == "pytorch" or not FILE.exists():
        return None
    try:
        return Library(FILE, None if level == "auto" else level)
    except OSError:  # built for another system
        return None


def _pool() -> int | None:
    """Return the address of the function that runs loops on PyTorch's threads; None where there is none."""
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if torch is None:
        return None
    home = Path(torch).parent / "lib"
    shipped = [str(path) for path in sorted(home.glob("lib*omp*")) if ".so" in path.name or path.suffix == ".dylib"]
    shared = {"linux": ["libgomp.so.1", "libiomp5.so"], "darwin": ["libomp.dylib"]}
    for name in [*shipped, *shared.get(sys.platform, [])]:
        try:
            # Only a library that this process has loaded: a second pool of threads would compete with PyTorch's.
            loaded = ctypes.CDLL(name, mode=_ONLY_LOADED)
            return ctypes.cast(loaded.GOMP_parallel, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None


class _Kernel(NamedTuple):
    """Where a kernel is implemented, beside its file's operations of PyTorch."""

    arguments: tuple[type, ...] | None
    triton: str | None = None


_TABLE = (*[c_void_p] * 5, c_int64)  # a table with its moments, as row_adamw.cpp reads it
_STEPS = (*[c_int64] * 2, c_double)
"""Number of steps in a history, the step before them, and the weight below which steps are ignored."""

KERNELS = {
    "rotate": _Kernel((c_char_p,), "rotary"),
    "cos_sin": _Kernel((c_char_p,), "cos_sin"),
    "embed": _Kernel((*[c_void_p] * 6, c_float, *[c_int] * 4, *[c_int64] * 15), "embedding"),
    "flash_attention": _Kernel(None, "attention"),
    "flash_attention_backward": _Kernel(None, "attention"),
    "group_by_row": _Kernel((c_void_p, c_int64, c_int64, *[c_void_p] * 5)),
    "sum_by_row": _Kernel((*[c_void_p] * 4, c_int64, c_int64, c_int, c_int64), "row_adamw"),
    "adamw_rules": _Kernel((c_void_p, c_int64, c_void_p, c_void_p, *_STEPS, c_void_p, c_int64)),
    "adamw_catch_up": _Kernel(
        (*_TABLE, c_void_p, c_int64, *[c_void_p] * 3, *_STEPS, c_float, *[c_void_p] * 5, c_int, c_int, c_int64),
        "row_adamw",
    ),
    "adamw_update": _Kernel(
        (*_TABLE, *[c_void_p] * 2, c_int64, c_void_p, c_int64, c_void_p, c_int, c_int64), "row_adamw"
    ),
}

COMPILED = library() is not None
"""Whether there are kernels for the CPU: a constant, since a trace cannot load the library."""

_OLDEST_GPU = (8, 0)  # compute capability with bfloat16
_FRESH = 32 << 20  # bytes from which glibc requests memory from the system for each allocation
_TENSORS = (Tensor, torch.nn.Parameter)

_disabled: ContextVar[bool] = ContextVar("disabled", default=False)
_open_contexts = 0  # number of `pytorch_only` blocks that are active, in any thread
_DISABLED_BY_ENVIRONMENT = requested_kernels() == "pytorch"


@contextmanager
def pytorch_only() -> Iterator[None]:
    """Compute with PyTorch's own operations in place of all kernels, to compare them or to rule them out.

    WHATWHERE_KERNELS=pytorch does the same for a whole program; it is read when whatwhere is imported.

    Examples:
        >>> from whatwhere import Rotary, positions
        >>> rope, q = Rotary(head_dim=64), torch.randn(1, 2, 5, 64)
        >>> fast, _ = rope(q, q, positions(5))
        >>> with pytorch_only():
        ...     slow, _ = rope(q, q, positions(5))
        >>> torch.equal(fast, slow)
        True
    """
    global _open_contexts
    token = _disabled.set(True)
    _open_contexts += 1
    try:
        yield
    finally:
        _open_contexts -= 1
        _disabled.reset(token)


def disabled() -> bool:
    """Return whether kernels are disabled; this works in a trace, too."""
    if torch.compiler.is_compiling():  # it reads no context variable, but recompiles when a number has changed
        return _DISABLED_BY_ENVIRONMENT or _open_contexts > 0
    if _DISABLED_BY_ENVIRONMENT or _disabled.get():
        return True
    # A backward pass of a GPU runs in a thread of autograd, which has no variables of the thread that called it.
    return _open_contexts > 0 and torch._C._current_graph_task_id() >= 0


def on_cpu(name: str, *tensors: Tensor) -> Callable[..., None] | None:
    """Return the compiled kernel if it can be used: plain CPU tensors, no tracing, kernels not disabled."""
    # A trace would record the result as a constant, and a dual number would lose its tangent, both silently.
    if torch.compiler.is_compiling() or torch._C._is_tracing() or forward_ad._current_level >= 0 or disabled():
        return None
    # Nor may a dispatch mode or a transform of torch.func be active.
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    # A loop, for this runs at each step of decoding: all(...) costs as much as the conditions.
    for x in tensors:
        if type(x) not in _TENSORS or not x.is_cpu or not torch._C._has_storage(x) or x.is_neg():
            return None
    return compiled(name)


def on_gpu(name: str, *tensors: Tensor) -> Callable[..., Any] | None:
    """Return the Triton kernel if it can be used: plain tensors on one GPU, no tracing, kernels not disabled."""
    if torch.compiler.is_compiling():  # first: what follows cannot be traced
        return None
    if not tensors[0].is_cuda or disabled():
        return None
    index = tensors[0].get_device()  # a number; `device` would make an object of each tensor
    if not _runs_on(index):
        return None
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    if torch._C._is_tracing() or forward_ad._current_level >= 0:
        return None
    for x in tensors:
        if type(x) not in _TENSORS or x.get_device() != index or not torch._C._has_storage(x) or x.is_neg():
            return None
    return _triton(name)


def kernel_for(name: str, *tensors: Tensor) -> Callable[..., Any] | None:
    """Return the kernel for the device of the first tensor, as `on_gpu` or `on_cpu` does."""
    return on_gpu(name, *tensors) if tensors[0].is_cuda else on_cpu(name, *tensors)


def as_operator(x: Tensor) -> bool:
    """Return whether a trace should contain a kernel: torch.compile's for the CPU; exports run without whatwhere."""
    return (
        torch.compiler.is_compiling()
        and not is_exporting()
        and x.device.type == "cpu"
        and type(x) in _TENSORS
        and not torch._C._are_functorch_transforms_active()  # a tangent would be lost
        and COMPILED
        and not disabled()
    )


def is_exporting() -> bool:
    """Return whether torch.export traces."""
    # torch.compiler.is_exporting() is true in every trace of PyTorch 2.9 and 2.11.
    exporting: bool = torch.compiler._is_exporting_flag
    return exporting


@cache
def compiled(name: str) -> Callable[..., None] | None:
    """Return the C++ function of a kernel, without checking tensors; None where the library or the kernel is absent."""
    loaded, arguments = library(), KERNELS[name].arguments
    return None if loaded is None or arguments is None else loaded.function(name, *arguments)


@cache
def _triton(name: str) -> Callable[..., Any] | None:
    module = KERNELS[name].triton
    if module is None:
        return None
    kernel: Callable[..., Any] = getattr(import_module(f"whatwhere.kernels.cuda.{module}"), name)  # loads Triton
    return kernel


@cache
def _runs_on(index: int) -> bool:
    if torch.version.hip is None and torch.cuda.get_device_capability(index) < _OLDEST_GPU:
        return False
    why = why_no_triton()
    if why and find_spec("triton"):
        what = f"{why[0]} PyTorch's own operations run, with the same results, slower.\nTo mend it: {why[1]}"
        warn(what, stacklevel=2)
    return why is None


@cache
def why_no_triton() -> tuple[str, str] | None:
    """Return why Triton starts no kernels on this machine's GPU, and what mends it; None where it does."""
    if find_spec("triton") is None:
        return "Triton is not installed, which its kernels need.", "pip install triton"
    try:
        import_module("triton").runtime.driver.active.get_current_device()
    except Exception as problem:  # of any kind: without a compiler, Python's headers, or a library of the driver
        what = f"Triton starts no kernels, for which it compiles a program in C: {str(problem).partition(chr(10))[0]}"
        return what.rstrip(".") + ".", "apt install gcc python3-dev, or what has these here"
    return None


def in_huge_pages(fresh: Tensor) -> Tensor:
    """Request huge pages for a tensor that was just allocated and has not been written; small ones stay as they are.

    The C library takes memory of this size from the system anew for each tensor, and the system fills it with zeros a
    page at a time. That takes longer than the kernel itself, and less time with huge pages.
    """
    if (size := fresh.numel() * fresh.element_size()) >= _FRESH and fresh.is_cpu:
        _huge()(fresh.data_ptr(), size)
    return fresh


@cache
def _huge() -> Callable[[int, int], None]:
    loaded = library()
    return loaded.shared("whatwhere_huge", c_void_p, c_int64) if loaded else lambda address, size: None


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Keep matrix products in the dtype of their operands, also under autocast.

    Autocast would round frequencies and positions to bfloat16, which cannot represent all whole numbers above 256.
    """
    # Devices without arithmetic, such as meta, have no autocast to disable; some versions cannot trace the question.
    if device.type == "meta" or not (torch.compiler.is_compiling() or torch.amp.is_autocast_available(device.type)):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


class _DifferentiableOnce(torch.autograd.Function):
    @staticmethod
    def forward(compute: Callable[..., Any], message: str, *tensors: Tensor | None) -> Any:
        return compute(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.message = inputs[1]

    @staticmethod
    def backward(ctx: Any, *g: Tensor | None) -> Tensor:
        raise SettingError(ctx.message)

    @staticmethod
    def vmap(info: Any, axes: tuple[int | None, ...], compute: Any, message: str, *tensors: Any) -> tuple[Any, int]:
        return _for_each(info.batch_size, compute, axes[2:], tensors), 0


def differentiable_once(
    compute: Callable[..., tuple[Tensor | None, ...]], message: str, *tensors: Any
) -> tuple[Tensor | None, ...]:
    """Compute gradients from tensors; that they have no derivative by any of these is an error, not ignored silently.

    Of several upstream gradients at once, by `is_grads_batched=True` or `torch.func.vmap`, it computes one by one.
    """
    axes = [0 if x is not None and torch._C._functorch.is_legacy_batchedtensor(x) else None for x in tensors]
    once: Callable[..., tuple[Tensor | None, ...]] = partial(_DifferentiableOnce.apply, compute, message)
    if axes.count(0) == 0:
        return once(*tensors)
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    whole = [x if at is None else torch._remove_batch_dim(x, level, 1, 0) for x, at in zip(tensors, axes, strict=True)]
    results = _for_each(len(whole[axes.index(0)]), once, axes, whole)
    return tuple(None if x is None else torch._add_batch_dim(x, 0, level) for x in results)


def _for_each(size: int, compute: Any, axes: Sequence[int | None], tensors: Sequence[Any]) -> tuple[Any, ...]:
    pairs = list(zip(tensors, axes, strict=True))
    each = [compute(*(x if at is None else x.select(at, n) for x, at in pairs)) for n in range(size)]
    return tuple(None if parts[0] is None else torch.stack(parts) for parts in zip(*each, strict=True))
