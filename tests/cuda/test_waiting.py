"""A forward and backward pass asks nothing of the device that it would have to wait for.

Tried on the meta device, which has no numbers to give: reading one there is an error. What is made on the CPU and sent
is noted. test_library.py asks a GPU itself.
"""

import traceback
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..laws.cases import each, varied
from ..laws.model import Model


class Waits(TorchFunctionMode):
    """Record the calls that copy numbers from the CPU to a device and wait for that."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: set[str] = set()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        result = function(*args, **keywords)
        if isinstance(result, Tensor) and result.device.type == "meta" and self._waits(function, args, keywords):
            line = traceback.extract_stack()[-2]
            self.lines.add(f"{line.filename}:{line.lineno}: {line.line}")
        return result

    def _waits(self, function: Any, args: Any, keywords: Any) -> bool:
        if function in (torch.tensor, torch.as_tensor):
            return True
        first = args[0] if args else None
        if not isinstance(first, Tensor):
            return False
        if function is Tensor.__getitem__:
            indices = args[1] if isinstance(args[1], tuple) else (args[1],)
            return any(isinstance(n, list) or (isinstance(n, Tensor) and n.device != first.device) for n in indices)
        return first.device.type == "cpu" and not keywords.get("non_blocking", False)


def waits(run: Any) -> set[str]:
    """Return the lines that wait."""
    with torch.device("meta"), Waits() as mode:
        run()
    return mode.lines


@each(slow=varied)
def test_a_model_does_not_wait(case):
    with torch.device("meta"):
        small, ids = Model(case), torch.zeros(2, 8, dtype=torch.int64)
    assert not waits(lambda: small(ids).sum().backward())


def test_synchronizations_are_counted():
    x, here = torch.zeros(3, device="meta"), torch.tensor([1, 2])
    for run in (lambda: torch.tensor([1.0], device="meta"), lambda: x[[0, 1]], lambda: here.to("meta")):
        assert len(waits(run)) == 1
    assert not waits(lambda: here.to("meta", non_blocking=True))
    assert not waits(lambda: x[torch.zeros(2, dtype=torch.int64)])
