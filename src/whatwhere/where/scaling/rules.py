"""What a rule of scaling is, the one that changes nothing, and frequencies that are worked out once."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import readable
from whatwhere.ruler import Positions
from whatwhere.where.frequencies import inverse_frequencies

Device = torch.device | str | None


class Scaling(ABC):
    """Change the frequencies of rotary positions."""

    follows_length: ClassVar[bool] = False
    """True where the frequencies depend on how long the sequence is."""

    @abstractmethod
    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, "*batch pairs"]:
        """Give how far each pair turns per position, in radians.

        Args:
            dim: features that turn, even.
            theta: of the unscaled frequencies.
            device: where to compute.
            lengths: of the sequences; only a scaling that follows the length reads them, and None is the trained one.
        """

    def frequencies_at(
        self, dim: int, theta: float, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None
    ) -> Float64[Tensor, "*batch_tokens pairs"]:
        """Give the frequencies of each token, or one row for all where the length is no matter or is stated.

        Args:
            dim, theta: as for frequencies.
            positions: where the tokens stand.
            lengths: of each token's sequence, or one for all; None takes the positions' own.
        """
        if not self.follows_length:
            return self.frequencies(dim, theta, positions.device)
        if isinstance(lengths, int):
            lengths = torch.full((), lengths, device=positions.device)
        known = positions.lengths() if lengths is None else lengths.to(positions.device)
        return self.frequencies(dim, theta, positions.device, known)

    @property
    def magnitude(self) -> float:
        """What queries and keys are multiplied by besides; scores get its square."""
        return 1.0


@final
@dataclass(frozen=True)
class Unscaled(Scaling):
    """Leave every frequency as it is: what `scaling=None` means.

    >>> Unscaled().frequencies(4, 10_000.0)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, " pairs"]:
        """Give w_i."""
        return inverse_frequencies(dim, theta, device)


def rule(scaling: Scaling | None) -> Scaling:
    """Give the scaling itself, or the one that changes nothing.

    >>> rule(None).magnitude
    1.0
    """
    return _UNSCALED if scaling is None else scaling


_UNSCALED = Unscaled()


@final
class Frequencies:
    """Hold the frequencies of a scheme that no length changes: worked out when settings change, not at each binding.

    float64 on the CPU and beside the module's tensors, so that no conversion rounds them.
    """

    def __init__(self) -> None:
        self._held: tuple[tuple[Scaling, int, float], Float64[Tensor, " pairs"]] | None = None

    def at(
        self,
        scaling: Scaling,
        dim: int,
        theta: float,
        positions: Positions,
        lengths: Int64[Tensor, "batch tokens"] | int | None = None,
    ) -> Float64[Tensor, "*batch_tokens pairs"]:
        """Give the frequencies of each token, as `scaling.frequencies_at` does."""
        if scaling.follows_length or not positions.index.is_cpu or torch.compiler.is_compiling():
            return scaling.frequencies_at(dim, theta, positions, lengths)
        settings, held = (scaling, dim, theta), self._held
        if held is not None and held[0] == settings:
            return held[1]
        found = scaling.frequencies_at(dim, theta, positions)
        if readable(found):  # numbers, and nothing that stands for them in a trace
            self._held = settings, found
        return found
