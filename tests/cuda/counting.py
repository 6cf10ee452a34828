"""Count what a device is given to do, and note what would wait for it, in a rehearsal on the CPU.

A launch is a kernel of the library, or an operation of PyTorch that computes or copies: not a view, not an allocation.
"""

import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from whatwhere.kernels import backend, cuda
from whatwhere.what.row_adamw.gradient import sparse_tensor

_READS = {"_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "unique_consecutive", "masked_select", "equal"}
_ALLOCATES = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_sparse_coo_tensor_unsafe",
    "_sparse_coo_tensor_with_dims_and_tensors", "_coalesced_", "lift_fresh",
}  # fmt: skip
_TO_HOST = (Tensor.cpu, Tensor.tolist, Tensor.item, Tensor.numpy)


@dataclass
class Count:
    """What happened: names of launches, and of what would wait for a device."""

    launches: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    on_host: list[Tensor] = field(default_factory=list)  # tensors that are in the memory of the host on a GPU, too


class _Operations(TorchDispatchMode):
    def __init__(self, count: Count) -> None:
        super().__init__()
        self.count = count

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.clone.default and args[0].is_sparse:
            # Autograd keeps the gradient of a lookup as it is, but copies one that a mode refers to.
            parts = args[0]._indices(), args[0]._values()
            return sparse_tensor(*parts, args[0].shape)
        schema = function._schema
        name = schema.name.removeprefix("aten::")
        views = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
        computes = function.namespace == "aten" and any("Tensor" in str(each.type) for each in schema.returns)
        if name in _READS or _reads_a_mask(name, args):
            self.count.waits.append(name)
        elif computes and not views and name not in _ALLOCATES and not self._on_host(args):
            self.count.launches.append(name)
        return function(*args, **(kwargs or {}))

    def _on_host(self, args: Any) -> bool:
        first = next((x for x in tree_leaves(args) if isinstance(x, Tensor)), None)
        if first is None or first.layout != torch.strided or first.device.type == "meta":
            return False
        return any(first.data_ptr() == x.data_ptr() for x in self.count.on_host)


class _Reads(TorchFunctionMode):
    def __init__(self, count: Count) -> None:
        super().__init__()
        self.count = count

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _TO_HOST and not any(args[0] is x for x in self.count.on_host):
            self.count.waits.append(function.__name__)
        if function is F.scaled_dot_product_attention and args[0].is_meta:  # a GPU has a kernel for it
            self.count.launches.append(function.__name__)
            return args[0].new_empty(*args[0].shape[:-1], args[2].shape[-1])
        return function(*args, **(kwargs or {}))


def _reads_a_mask(name: str, args: Any) -> bool:
    """Return whether an index of bools becomes numbers of slots; a single value is written by the mask itself."""
    if name not in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return False
    masked = any(isinstance(x, Tensor) and x.dtype == torch.bool for x in args[1])
    return masked and (name == "index" or args[2].numel() != 1)


@contextmanager
def counted(*on_host: Tensor) -> Iterator[Count]:
    """Count inside of the block; some tensors are in the memory of the host."""
    count = Count(on_host=list(on_host))
    with pytest.MonkeyPatch.context() as patch:
        for module in pkgutil.iter_modules(cuda.__path__):
            loaded = import_module(f"{cuda.__name__}.{module.name}")
            if (launch := getattr(loaded, "launch", None)) is not None:
                patch.setattr(loaded, "launch", _noted(count, launch))
        # A dispatch mode rules kernels out, but this one only looks on.
        patch.setattr(backend, "on_gpu", lambda name, *_: None if backend.disabled() else backend._triton(name))
        with _Reads(count), _Operations(count):
            yield count


def _noted(count: Count, launch: Any) -> Any:
    def run(kernel: Any, grid: tuple[int, ...], device: torch.device, *arguments: object, **constants: object) -> None:
        if 0 in grid:
            return
        count.launches.append(kernel.fn.__name__)
        if device.type != "meta":
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                launch(kernel, grid, device, *arguments, **constants)

    return run
