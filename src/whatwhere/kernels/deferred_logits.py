"""Logits of an output projection that are computed when they are first read."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from whatwhere.errors import SettingError
from whatwhere.kernels.backend import full_precision

_FACTS = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "layout", "requires_grad")),
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point),
}
"""What is known of logits that are not computed; `requires_grad` is False until they are."""
_SCALES = {"__mul__": 1, "__rmul__": 1, "mul": 1, "__truediv__": -1, "div": -1}
"""Operations by a number, and the power of it in the result."""


class DeferredLogits(Tensor):
    """Logits of an output projection, computed by the first operation that reads a value.

    A factor, tanh and a cast are kept for later, so that the loss knows Gemma's softcap and Granite's scale.
    """

    @staticmethod
    def __new__(cls, hidden: Tensor, head: nn.Linear, dtype: torch.dtype, steps: Any = ()) -> "DeferredLogits":
        shape = (*hidden.shape[:-1], len(head.weight))
        return Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=hidden.device)

    def __init__(self, hidden: Tensor, head: nn.Linear, dtype: torch.dtype, steps: Any = ()) -> None:
        self.hidden, self.head, self.steps = hidden, head, steps
        self.weight, self.version = head.weight, head.weight._version
        self.logits: Tensor | None = None

    def computed(self) -> Tensor:
        """Return the logits, with gradients; SettingError if the output projection has been changed meanwhile."""
        if self.logits is None:
            if self.head.weight is not self.weight or self.weight._version != self.version:
                raise SettingError(
                    "the logits of this output were to be read after its model has been changed, as by a step of an "
                    "optimizer.\nRead `logits` before, or patch without linear_cross_entropy=True."
                )
            with full_precision(self.hidden.device):
                parts = (each if each is None else each.to(self.hidden.dtype) for each in (self.weight, self.head.bias))
                self.logits = F.linear(self.hidden, *parts)
                for function, args, kwargs in self.steps:
                    self.logits = function(self.logits, *args, **kwargs)
        return self.logits

    def scale_and_softcap(self) -> tuple[float, float | None] | None:
        """Return the factor of logits and their softcap, b tanh(a z): (a b, b); None for any other operations."""
        factors, after = [1.0, 1.0], 0
        for function, args, _ in self.steps:
            name = function.__name__
            if name in _SCALES:
                factors[after] *= float(args[0]) ** _SCALES[name]
            elif name == "tanh" and not after:
                after = 1
            elif name == "tanh":
                return None
        if after and not factors[1] > 0:
            return None
        return (factors[0] * factors[1], factors[1]) if after else (factors[0], None)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, first, name = kwargs or {}, args[0] if args else None, getattr(function, "__name__", "")
        if function in _FACTS:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **kwargs)
        if isinstance(first, cls) and first.logits is None:
            by_number = name in _SCALES and len(args) == 2 and isinstance(args[1], int | float) and not kwargs
            to_float = name == "float" and len(args) == 1
            if by_number or to_float or (name == "tanh" and len(args) == 1 and not kwargs):
                dtype = torch.float32 if to_float else first.dtype
                return cls(first.hidden, first.head, dtype, (*first.steps, (function, args[1:], kwargs)))
        args, kwargs = tree_map(lambda x: x.computed() if isinstance(x, cls) else x, (args, kwargs))
        return function(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = tree_map(lambda x: x.computed().detach() if isinstance(x, cls) else x, (args, kwargs or {}))
        return function(*given[0], **given[1])


def deferring_head(self: Any, input: Tensor) -> Tensor:
    """Return logits in place of nn.Linear, deferred if the model was called with labels."""
    weight, kind = self.weight, input.device.type
    if torch.compiler.is_compiling() or not vars(self).get("deferring", False):
        return F.linear(input, weight, self.bias)
    plain = type(weight) is nn.Parameter and type(weight.data) is type(input) is Tensor and not weight.is_inference()
    if not plain or hasattr(self, "_get_fsdp_state") or torch._C._are_functorch_transforms_active():
        return F.linear(input, weight, self.bias)
    if torch.is_autocast_enabled(kind) and input.dtype != torch.float64:
        input = input.to(torch.get_autocast_dtype(kind))
    return DeferredLogits(input, self, input.dtype)
