"""The scaling of Llama 3.1."""

from dataclasses import dataclass
from math import pi
from typing import final

from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import SettingError
from whatwhere.where.frequencies import inverse_frequencies
from whatwhere.where.scaling.base import Device, Scaling


@final
@dataclass(frozen=True)
class Llama3(Scaling):
    """Keep short wavelengths, divide the frequencies of long ones, interpolate between.

        w'_i = w_i                              wavelength 2 pi / w_i < L_0 / high_frequency_factor
        w'_i = w_i / factor                     wavelength            > L_0 / low_frequency_factor
        w'_i = (1 - t) w_i / factor + t w_i     between,  t = (L_0 / wavelength - low) / (high - low)

    Llama 3.1, Dubey et al. 2024, https://arxiv.org/abs/2407.21783; the formula is in Meta's code. With equal factors,
    as in Llama 4 Scout, nothing is between: the weight is a step.

    Args:
        factor: the frequencies of long wavelengths are divided by it.
        original_length: L_0, the trained length; `max_position_embeddings` of a configuration is the extended length.
        low_frequency_factor, high_frequency_factor: full rotations within L_0 at the two bounds.

    Raises:
        ShapeError: If original_length is not a whole number of at least 1.
        SettingError: If a factor is out of range, or high_frequency_factor is below low_frequency_factor.

    Examples:
        >>> Llama3().frequencies(64, 500_000.0)[[0, -1]]
        tensor([1.0000e+00, 3.7673e-07], dtype=torch.float64)
    """

    factor: float = 8.0
    original_length: int = 8192
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def __post_init__(self) -> None:
        """Validate the settings."""
        low, high = self.low_frequency_factor, self.high_frequency_factor
        require_positive("Llama3", factor=self.factor, low_frequency_factor=low, high_frequency_factor=high)
        require_whole("Llama3", original_length=self.original_length)
        if high < low:
            raise SettingError(
                f"Llama3 got low_frequency_factor={low} and high_frequency_factor={high}, but the second must not be "
                "smaller. Llama 3.1 uses 1 and 4, Llama 4 Scout 1 and 1."
            )

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, " pairs"]:
        """Return the frequencies, kept, divided or interpolated."""
        kept = inverse_frequencies(dim, theta, device)
        rotations = self.original_length * kept / (2 * pi)
        low, high = self.low_frequency_factor, self.high_frequency_factor
        weight = (rotations >= low).double() if low == high else ((rotations - low) / (high - low)).clamp(0, 1)
        return (1 - weight) * kept / self.factor + weight * kept
