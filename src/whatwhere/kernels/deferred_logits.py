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
_POWERS = {"__mul__": 1, "__rmul__": 1, "mul": 1, "__truediv__": -1, "div": -1}
"""Operations by a number, and the power of it in the result."""


class DeferredLogits(Tensor):
    """Logits of an output projection, computed by the first operation that reads a value.

    A factor, tanh and a cast are kept for later, so that the loss knows Gemma's softcap and Granite's scale: they are
    the softcap of `scale` times the product with the head, as in linear_cross_entropy.
    """

    @staticmethod
    def __new__(cls, hidden: Tensor, head: nn.Linear, dtype: torch.dtype, how: Any = None) -> "DeferredLogits":
        shape = (*hidden.shape[:-1], len(head.weight))
        return Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=hidden.device)

    def __init__(self, hidden: Tensor, head: nn.Linear, dtype: torch.dtype, how: Any = (1.0, None, ())) -> None:
        self.hidden, self.head, self.weight, self.version = hidden, head, head.weight, head.weight._version
        self.scale, self.softcap, self.steps = how
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
                for function, args in self.steps:
                    self.logits = function(self.logits, *args)
        return self.logits

    def _after(self, function: Any, args: tuple[Any, ...]) -> "DeferredLogits | None":
        """Return the logits after an operation that the loss knows; None for any other."""
        name, scale, softcap, dtype = getattr(function, "__name__", ""), self.scale, self.softcap, self.dtype
        if name in _POWERS and len(args) == 1 and isinstance(args[0], int | float) and args[0]:
            factor = float(args[0]) ** _POWERS[name]
            scale, softcap = scale * factor, softcap and softcap * factor
        elif name == "tanh" and not args and softcap is None:
            softcap = 1.0
        elif name == "float" and not args:
            dtype = torch.float32
        else:
            return None
        if softcap is not None and not softcap > 0:
            return None
        return DeferredLogits(self.hidden, self.head, dtype, (scale, softcap, (*self.steps, (function, args))))

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _FACTS:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **kwargs or {})
        known = args and isinstance(args[0], cls) and args[0].logits is None and not kwargs
        if known and (later := args[0]._after(function, args[1:])) is not None:
            return later
        args, kwargs = tree_map(lambda x: x.computed() if isinstance(x, cls) else x, (args, kwargs or {}))
        return function(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = tree_map(lambda x: x.computed().detach() if isinstance(x, cls) else x, (args, kwargs or {}))
        return function(*args, **kwargs)


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
