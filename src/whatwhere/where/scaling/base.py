"""The abstract base of RoPE scaling rules, the rule that changes nothing, and a cache of computed frequencies."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import readable
from whatwhere.where.frequencies import inverse_frequencies

Device = torch.device | str | None
Lengths = Int64[Tensor, "*batch"] | None
Frequencies = Float64[Tensor, "*batch pairs"]
"""One for each pair, or for each length and pair where a scaling follows the length."""


class Scaling(ABC):
    """Change the frequencies of rotary positions."""

    follows_length: ClassVar[bool] = False
    """True where the frequencies depend on the length of the sequence."""

    @abstractmethod
    def frequencies(self, dim: int, theta: float, device: Device = None, lengths: Lengths = None) -> Frequencies:
        """Return the angle by which each pair is rotated per position, in radians.

        Args:
            lengths: sequence lengths; read only by scalings that follow the length. None is the trained length.

        Returns:
            One frequency for each pair, or for each length and pair where the scaling follows the length.

        Raises:
            ShapeError: If the rule is not defined for this number of features.
            SettingError: If the rule is not defined for this theta.
        """

    def frequencies_at(
        self, dim: int, theta: float, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None
    ) -> Float64[Tensor, "*batch_tokens pairs"]:
        """Return the frequencies of each token, or one row for all where they do not depend on the sequence."""
        if not self.follows_length:
            return self.frequencies(dim, theta, positions.device)
        if isinstance(lengths, int):
            lengths = torch.full((), lengths, device=positions.device)
        known = positions.lengths() if lengths is None else lengths.to(positions.device)
        return self.frequencies(dim, theta, positions.device, known)

    @property
    def magnitude(self) -> float:
        """The factor by which queries and keys are multiplied, also called attention factor; scores get its square."""
        return 1.0


@final
@dataclass(frozen=True)
class Unscaled(Scaling):
    """Leave every frequency as it is: what `scaling=None` means.

    Examples:
        >>> Unscaled().frequencies(4, 10_000.0)
        tensor([1.0000, 0.0100], dtype=torch.float64)
    """

    def frequencies(self, dim: int, theta: float, device: Device = None, lengths: Lengths = None) -> Frequencies:
        """Return w_i."""
        return inverse_frequencies(dim, theta, device)


def or_unscaled(scaling: Scaling | None) -> Scaling:
    """Return the scaling itself, or `Unscaled` for None."""
    return _UNSCALED if scaling is None else scaling


_UNSCALED = Unscaled()


@final
class FrequencyCache:
    """Frequencies that do not depend on the length, computed when settings change rather than at every call of bind.

    They are float64 on the device of the positions, and no buffers of the module, so that no conversion of its dtype
    rounds them. A copy, and what is loaded from a file, starts without any.
    """

    def __init__(self) -> None:
        self._cached: tuple[tuple[Any, ...], Float64[Tensor, " pairs"]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return FrequencyCache, ()

    def at(
        self,
        scaling: Scaling,
        dim: int,
        theta: float,
        positions: Positions,
        lengths: Int64[Tensor, "batch tokens"] | int | None = None,
    ) -> Float64[Tensor, "*batch_tokens pairs"]:
        """Return the frequencies of each token, as `scaling.frequencies_at` does."""
        index = positions.index
        on_gpu = index.device.type == "cuda" and type(index) is Tensor and not torch.compiler.is_compiling()
        # A CUDA graph reads its own memory only: what is kept here may be freed before it is replayed.
        kept = index.is_cpu or (on_gpu and not torch.cuda.is_current_stream_capturing())
        if scaling.follows_length or torch.compiler.is_compiling() or not kept:
            return scaling.frequencies_at(dim, theta, positions, lengths)
        # Another stream does not wait for the one that computes them.
        settings: tuple[Any, ...] = scaling, dim, theta, torch.cuda.current_stream(index.device) if on_gpu else None
        cached = self._cached
        if cached is not None and cached[0] == settings:
            return cached[1]
        frequencies = scaling.frequencies_at(dim, theta, positions)
        if readable(frequencies) or (on_gpu and type(frequencies) is Tensor):  # a traced one must not outlive its trace
            self._cached = settings, frequencies
        return frequencies
