"""What a benchmark is made of: works, their cases, and the candidates that do the same work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.kernels.switch import plain_kernels

Run = Callable[[], Any]
"""Does the work once; what it gives back is dropped within the time that is taken."""

ON_CPU = ("fresh", "pooled")
"""The regimes of allocation on a CPU: the C library's default, and freed memory kept for the next tensor."""
ON_CUDA = ("caching",)
"""On CUDA PyTorch's own allocator keeps freed memory."""


class Absent(Exception):
    """A candidate cannot be had here; the message says why, and stands in its row."""


@dataclass(frozen=True)
class Scale:
    """Say how large the works are.

    Args:
        quick: small shapes, a few rounds.
        device: `cpu` or `cuda`.
        threads: of PyTorch.
        compiled: try the candidates that need torch.compile.
    """

    quick: bool = False
    device: str = "cpu"
    threads: int = 2
    compiled: bool = True


@dataclass(frozen=True)
class Candidate:
    """Name one way to do the work of a case.

    Args:
        make: gives what is timed; it raises Absent where the candidate cannot be had.
        error: takes what is timed and gives its error; None where there is nothing to compare.
        compiled: it needs torch.compile.
    """

    name: str
    make: Callable[[], Run]
    error: Callable[[Run], float] | None = None
    compiled: bool = False

    @property
    def ours(self) -> bool:
        """Tell whether it is a part of whatwhere."""
        return "whatwhere" in self.name


@dataclass(frozen=True)
class Case:
    """Name the work at one size, dtype and pass.

    Args:
        name: dtype, layout, pass.
        limit: what the others are divided by: the first candidate.
        prepare: makes the inputs and gives the candidates, the limit first.
        error: what the candidates' errors mean; empty where none has any.
        unit: bytes that peaks are compared with, such as those of q and k.
        steps: how often a run does the work; times are of one.
    """

    name: str
    limit: str
    prepare: Callable[[], Sequence[Candidate]]
    error: str = ""
    unit: int = 0
    steps: int = 1


@dataclass(frozen=True)
class Work:
    """Name what is timed, and give its cases.

    Args:
        title: one line for the reader.
        about: what is the same for all candidates, and what the limit is.
        cases: gives them at a scale.
        regimes: of allocation, on the CPU.
        devices: where the work makes sense.
    """

    name: str
    title: str
    about: str
    cases: Callable[[Scale], list[Case]]
    regimes: tuple[str, ...] = ON_CPU
    devices: tuple[str, ...] = ("cpu", "cuda")

    def regimes_on(self, device: str) -> tuple[str, ...]:
        """Give the regimes that are measured on a device."""
        return self.regimes if device == "cpu" else ON_CUDA


def plainly(run: Run) -> Run:
    """Do the same work with the plain twins of all fast paths."""

    def run_plainly() -> Any:
        with plain_kernels():
            return run()

    return run_plainly


def farthest(found: Any, truth: Sequence[Tensor]) -> float:
    """Give the largest distance of any number from the truth, over all tensors; only as many rows as the truth has.

    >>> farthest(torch.tensor([1.0, 2.5, 9.0]), [torch.tensor([1.0, 2.0], dtype=torch.float64)])
    0.5
    """
    return max(distance for distance, _ in _distances(found, truth))


def farthest_relative(found: Any, truth: Sequence[Tensor]) -> float:
    """Give the largest distance of any tensor from the truth, as a share of the largest number in that tensor.

    >>> farthest_relative([torch.tensor([1.0, 2.5])], [torch.tensor([1.0, 2.0], dtype=torch.float64)])
    0.25
    """
    return max(distance / largest for distance, largest in _distances(found, truth))


def _distances(found: Any, truth: Sequence[Tensor]) -> list[tuple[float, float]]:
    parts = [found] if isinstance(found, Tensor) else list(found)
    pairs = []
    for part, true in zip(parts, truth, strict=True):
        # A shape that differs is an error of its own: broadcasting would hide it.
        rows = part.detach()[: len(true)] if true.dim() else part.detach()
        away = rows.cpu().double().view(true.shape) - true
        pairs.append((float(away.abs().max()), float(true.abs().max())))
    return pairs


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Float[Tensor, "*shape"]:
    """Draw from N(0, 1), the same on every device.

    >>> torch.equal(drawn(3, seed=1), drawn(3, seed=1))
    True
    """
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    return values.to(device=device, dtype=dtype)
