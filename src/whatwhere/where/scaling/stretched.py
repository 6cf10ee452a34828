"""Rules of one number: every frequency divided, or theta raised."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.where.frequencies import inverse_frequencies
from whatwhere.where.scaling.rules import Device, Scaling


@final
@dataclass(frozen=True)
class Linear(Scaling):
    """Divide every frequency: position p of the longer text stands where p / factor stood.

        w'_i = w_i / factor

    Chen et al. 2023, https://arxiv.org/abs/2306.15595, and kaiokendev. Near tokens move together: a model needs some
    training to read them again.

    Args:
        factor: new length over trained length.

    >>> Linear(4.0).frequencies(4, 10_000.0)
    tensor([0.2500, 0.0025], dtype=torch.float64)
    """

    factor: float

    def __post_init__(self) -> None:
        """Check the factor."""
        require_positive("Linear", factor=self.factor)

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, " pairs"]:
        """Give w_i / factor."""
        return inverse_frequencies(dim, theta, device) / self.factor


@final
@dataclass(frozen=True)
class NTK(Scaling):
    """Raise theta, so that the slowest pair is slowed by the factor and the fastest stays.

        theta' = theta * factor ** (dim / (dim - 2))

    bloc97 2023, described in Peng et al. 2023, https://arxiv.org/abs/2309.00071, section 3.1. HunYuan calls the factor
    alpha. In practice it must be larger than the stretch of the length.

    Args:
        factor: of the slowest pair.

    >>> NTK(4.0).frequencies(4, 10_000.0)
    tensor([1.0000, 0.0025], dtype=torch.float64)
    """

    factor: float

    def __post_init__(self) -> None:
        """Check the factor."""
        require_positive("NTK", factor=self.factor)

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, " pairs"]:
        """Give the frequencies of the raised theta."""
        return inverse_frequencies(dim, theta * self.factor ** _ntk_exponent("NTK", dim), device)


@final
@dataclass(frozen=True)
class DynamicNTK(Scaling):
    """Raise theta as far as the length asks for, and not at all up to the trained length.

        theta' = theta * (factor L / L_0 - (factor - 1)) ** (dim / (dim - 2))        L = max(length, L_0)

    emozilla 2023, as Hugging Face has it. The length is that of each token's own document, or what
    `where.at(p, regime_length=...)` says; Hugging Face takes the longest of the batch, so a sequence depends on its
    neighbors there.

    What follows the length cannot make decoding equal to reading at once: a token's deeper layers have read its
    neighbors under the frequencies of the length it then had, whatever is done with the keys afterwards.

    Args:
        factor: how fast theta grows.
        original_length: L_0, the trained length; Hugging Face takes max_position_embeddings.

    >>> dynamic = DynamicNTK(factor=2.0, original_length=100)
    >>> dynamic.frequencies(4, 10_000.0, lengths=torch.tensor([50, 100, 200]))[:, 1]
    tensor([0.0100, 0.0100, 0.0033], dtype=torch.float64)
    """

    factor: float
    original_length: int

    follows_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the settings."""
        require_positive("DynamicNTK", factor=self.factor)
        if self.factor < 1:
            raise SettingError(f"DynamicNTK got factor={self.factor!r}, but needs a number of at least 1.")
        require_whole("DynamicNTK", original_length=self.original_length)

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, "*batch pairs"]:
        """Give the frequencies of each length."""
        exponent = _ntk_exponent("DynamicNTK", dim)
        if lengths is None:
            return inverse_frequencies(dim, theta, device)
        reached = lengths.to(device=device, dtype=torch.float64).clamp(min=self.original_length)
        stretch = self.factor * reached / self.original_length - (self.factor - 1)
        raised = theta * stretch**exponent
        exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=reached.device) / dim
        return raised[..., None] ** -exponents


def _ntk_exponent(owner: str, dim: int) -> float:
    if dim <= 2:
        raise ShapeError(f"{owner} raises theta by dim / (dim - 2), so more than {dim} features must turn.")
    return dim / (dim - 2)
