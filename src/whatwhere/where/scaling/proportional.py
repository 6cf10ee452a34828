"""Proportional scaling, p-RoPE."""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import require_positive
from whatwhere.errors import SettingError
from whatwhere.where.frequencies import inverse_frequencies
from whatwhere.where.scaling.base import Device, Scaling


@final
@dataclass(frozen=True)
class Proportional(Scaling):
    """Rotate only a share of the pairs, the fastest; the others carry no position.

        w'_i = theta ** (-2i / dim) / factor        i < floor(share dim / 2)
        w'_i = 0                                    else

    Barbero et al. 2024, p-RoPE, https://arxiv.org/abs/2410.06205; the factor is Hugging Face's, for Gemma 4. Unlike
    with `rotary_dim`, the exponents run over the whole head, and the rotated pairs are (i, i + head_dim/2), not the
    first features.

    Args:
        share: share of the pairs that are rotated, above 0 and at most 1.
        factor: the frequencies are divided by it.

    Raises:
        SettingError: If share or factor is out of range.

    Examples:
        >>> Proportional(0.5).frequencies(4, 10_000.0)
        tensor([1., 0.], dtype=torch.float64)
    """

    share: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        """Validate the settings."""
        require_positive("Proportional", share=self.share, factor=self.factor)
        if self.share > 1:
            raise SettingError(f"Proportional got share={self.share}, but needs a share of at most 1.")

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, " pairs"]:
        """Return the frequencies, zero for pairs that are not rotated.

        Raises:
            SettingError: If the share of these features is less than one pair.
        """
        rotated = int(self.share * dim // 2)
        if rotated == 0:
            raise SettingError(f"Proportional(share={self.share}) of {dim} features rotates no pair: raise the share.")
        pairs = torch.arange(dim // 2, device=device)
        return torch.where(pairs < rotated, inverse_frequencies(dim, theta, device) / self.factor, 0.0)
