"""NTK-aware scaling."""

from dataclasses import dataclass
from typing import final

from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import require_positive
from whatwhere.errors import ShapeError
from whatwhere.where.frequencies import inverse_frequencies
from whatwhere.where.scaling.base import Device, Scaling


@final
@dataclass(frozen=True)
class NTK(Scaling):
    """Raise theta so that the slowest pair is divided by the factor and the fastest is kept.

        theta' = theta * factor ** (dim / (dim - 2))

    bloc97 2023, described in Peng et al. 2023, https://arxiv.org/abs/2309.00071, section 3.1. HunYuan calls the factor
    alpha. In practice it must be larger than the ratio of the new length to the trained one.

    Args:
        factor: the frequency of the slowest pair is divided by it.

    Examples:
        >>> NTK(4.0).frequencies(4, 10_000.0)
        tensor([1.0000, 0.0025], dtype=torch.float64)
    """

    factor: float

    def __post_init__(self) -> None:
        """Validate the factor."""
        require_positive("NTK", factor=self.factor)

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, " pairs"]:
        """Return the frequencies for the raised theta."""
        return inverse_frequencies(dim, theta * self.factor ** ntk_exponent("NTK", dim), device)


def ntk_exponent(owner: str, dim: int) -> float:
    """Return the exponent of the factor by which theta is raised, dim / (dim - 2)."""
    if dim <= 2:
        raise ShapeError(f"{owner} raises theta by dim / (dim - 2), so more than {dim} features must be rotated.")
    return dim / (dim - 2)
