"""Linear scaling, also called position interpolation."""

from dataclasses import dataclass
from typing import final

from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import require_positive
from whatwhere.where.frequencies import inverse_frequencies
from whatwhere.where.scaling.base import Device, Scaling


@final
@dataclass(frozen=True)
class Linear(Scaling):
    """Divide every frequency by one factor, so that position p is rotated as p / factor was before.

        w'_i = w_i / factor

    Chen et al. 2023, https://arxiv.org/abs/2306.15595, and kaiokendev, also called position interpolation.
    Neighboring positions become harder to distinguish, so a model needs some fine-tuning.

    Args:
        factor: new length over trained length.

    Examples:
        >>> Linear(4.0).frequencies(4, 10_000.0)
        tensor([0.2500, 0.0025], dtype=torch.float64)
    """

    factor: float

    def __post_init__(self) -> None:
        """Validate the factor."""
        require_positive("Linear", factor=self.factor)

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, " pairs"]:
        """Return w_i / factor."""
        return inverse_frequencies(dim, theta, device) / self.factor
