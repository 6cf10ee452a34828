"""Dynamic NTK-aware scaling."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import SettingError
from whatwhere.where.frequencies import inverse_frequencies
from whatwhere.where.scaling.base import Device, Scaling
from whatwhere.where.scaling.ntk import ntk_exponent


@final
@dataclass(frozen=True)
class DynamicNTK(Scaling):
    """Raise theta with the length of the sequence; up to the trained length nothing changes.

        theta' = theta * (factor L / L_0 - (factor - 1)) ** (dim / (dim - 2))        L = max(length, L_0)

    emozilla 2023, as in Hugging Face. The length is that of each token's own document, or the `regime_length` passed to
    `where.at`; Hugging Face takes the longest sequence of the batch, so there a result depends on the other sequences.

    Under a scaling that follows the length, cached decoding cannot match the full forward pass: the deeper layers of an
    earlier token have attended under the frequencies of a shorter sequence, whatever is done with its keys later.

    Args:
        factor: how fast theta grows with the length, at least 1.
        original_length: L_0, the trained length; Hugging Face reads it from `max_position_embeddings`.
        doubling: round L up to L_0 times a power of 2, so that theta changes in steps, as in the first Qwen, whose
            factor is 2.

    Raises:
        ShapeError: If original_length is not a whole number of at least 1.
        SettingError: If factor is below 1, or doubling is neither True nor False.

    Examples:
        >>> dynamic = DynamicNTK(factor=2.0, original_length=100)
        >>> dynamic.frequencies(4, 10_000.0, lengths=torch.tensor([50, 100, 200]))[:, 1]
        tensor([0.0100, 0.0100, 0.0033], dtype=torch.float64)
    """

    factor: float
    original_length: int
    doubling: bool = False

    follows_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate the settings."""
        require_positive("DynamicNTK", factor=self.factor)
        if self.factor < 1:
            raise SettingError(f"DynamicNTK got factor={self.factor!r}, but needs a number of at least 1.")
        require_whole("DynamicNTK", original_length=self.original_length)
        if not isinstance(self.doubling, bool):
            raise SettingError(f"DynamicNTK got doubling={self.doubling!r}, but needs True or False.")

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, "*batch pairs"]:
        """Return the frequencies for each length."""
        exponent = ntk_exponent("DynamicNTK", dim)
        if lengths is None:
            return inverse_frequencies(dim, theta, device)
        ratio = (lengths.to(device=device, dtype=torch.float64) / self.original_length).clamp(min=1)
        if self.doubling:
            ratio = ratio.log2().ceil().exp2()
        growth = self.factor * ratio - (self.factor - 1)
        raised = theta * growth**exponent
        exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=ratio.device) / dim
        return raised[..., None] ** -exponents
