"""What a benchmark is made of: cases, their variants, and the candidates that compute the same.

Nothing here imports torch: a worker reads it before the regime of allocation is set.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Run = Callable[[], Any]
"""Computes the result once; what it returns is freed within the time that is measured."""

ON_CPU = ("fresh", "pooled")
"""The regimes of allocation on a CPU: the C library's default, and freed memory kept for the next tensor."""
ON_CUDA = ("caching",)
"""On CUDA PyTorch's own allocator keeps freed memory."""


class Absent(Exception):
    """A candidate is not available here; the message is the reason, which its row shows."""


@dataclass(frozen=True)
class Scale:
    """How large the inputs are.

    Args:
        quick: small shapes, a few rounds.
        device: `cpu` or `cuda`.
        threads: number of PyTorch's threads.
        compiled: include the candidates that need torch.compile.
    """

    quick: bool = False
    device: str = "cpu"
    threads: int = 2
    compiled: bool = True


@dataclass(frozen=True)
class Candidate:
    """One implementation of a variant.

    Args:
        name: unique among the candidates of a variant.
        make: returns what is timed; raises Absent where the candidate is not available.
        error: takes what is timed and returns its error; None where there is nothing to compare.
        compiled: it needs torch.compile.
    """

    name: str
    make: Callable[[], Run]
    error: Callable[[Run], float] | None = None
    compiled: bool = False

    @property
    def ours(self) -> bool:
        """Whether it is a part of whatwhere."""
        return "whatwhere" in self.name


@dataclass(frozen=True)
class Variant:
    """A case at one size, dtype and pass.

    Args:
        name: dtype, layout, pass.
        limit: what the others are divided by: the first candidate.
        prepare: makes the inputs and returns the candidates, the limit first.
        error: what the candidates' errors mean; empty where none has any.
        unit: bytes that peaks are compared with, such as those of q and k.
        steps: how often a run computes the result; times are of one.
    """

    name: str
    limit: str
    prepare: Callable[[], Sequence[Candidate]]
    error: str = ""
    unit: int = 0
    steps: int = 1


@dataclass(frozen=True)
class Case:
    """What is timed: one operation, in several variants.

    Args:
        name: as the command line takes it.
        title: one line for the reader.
        about: what is the same for all candidates, and what the limit is.
        variants: returns them at a scale.
        regimes: of allocation, on the CPU.
        devices: where the case makes sense.
    """

    name: str
    title: str
    about: str
    variants: Callable[[Scale], list[Variant]]
    regimes: tuple[str, ...] = ON_CPU
    devices: tuple[str, ...] = ("cpu", "cuda")

    def regimes_on(self, device: str) -> tuple[str, ...]:
        """Return the regimes that are measured on a device.

        Args:
            device: `cpu` or `cuda`.

        Returns:
            Names, those of ON_CPU or ON_CUDA.
        """
        return self.regimes if device == "cpu" else ON_CUDA
