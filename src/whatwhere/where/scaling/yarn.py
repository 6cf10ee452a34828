"""YaRN scaling."""

from dataclasses import dataclass
from math import ceil, floor, isclose, log, pi
from typing import final

import torch

from whatwhere.checks import require_magnitude, require_positive, require_whole
from whatwhere.errors import SettingError
from whatwhere.where.frequencies import inverse_frequencies
from whatwhere.where.scaling.base import Device, Frequencies, Lengths, Scaling


@final
@dataclass(frozen=True)
class YaRN(Scaling):
    """Keep the frequencies of fast pairs, divide those of slow pairs, interpolate between; and scale the scores up.

        w'_i = w_i (1 - r_i) + w_i / factor r_i        r_i = clip((i - low) / (high - low), 0, 1)
        low, high = c(beta_fast), c(beta_slow)         c(n) = dim ln(L_0 / (2 pi n)) / (2 ln theta): the pair with n
                                                       full rotations within the trained length L_0
        magnitude = 0.1 ln(factor) + 1                 queries and keys are multiplied by it

    Peng et al. 2023, https://arxiv.org/abs/2309.00071, equations 17 to 22. The ramp is linear in the index of the
    pair, as in the authors' code and Hugging Face, not in the number of rotations, as in the paper's equation 18.

    Args:
        factor: new length over trained length.
        original_length: L_0, the trained length.
        beta_fast: pairs with more full rotations than this within the trained length are kept.
        beta_slow: pairs with fewer full rotations than this are divided by the factor.
        attention_factor: the magnitude itself, in place of the formula; 1.0 disables it.
        mscale, mscale_all_dim: DeepSeek's form, g(mscale) / g(mscale_all_dim) with g(m) = 0.1 m ln(factor) + 1; pass
            both or neither, where 0 counts as not passed, unless one alone makes the magnitude above.
        truncate: round low down and high up to whole pairs, as all models but gpt-oss do.

    Raises:
        ShapeError: If original_length is not a whole number of at least 1.
        SettingError: If a parameter is out of range, or one of mscale and mscale_all_dim is passed alone
            and changes the magnitude.

    Examples:
        >>> YaRN(factor=4.0, original_length=4096).magnitude
        1.138629436111989
    """

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        require_positive("YaRN", factor=self.factor, beta_fast=self.beta_fast, beta_slow=self.beta_slow)
        require_whole("YaRN", original_length=self.original_length)
        if not isinstance(self.truncate, bool):
            raise SettingError(f"YaRN got truncate={self.truncate!r}, but needs True or False.")
        if self.beta_fast < self.beta_slow:
            raise SettingError(
                f"YaRN got beta_fast={self.beta_fast} and beta_slow={self.beta_slow}, but fast pairs "
                "rotate more often: beta_fast must not be smaller. The authors use 32 and 1, Kimi K2 1 and 1."
            )
        if self.attention_factor is not None:
            require_magnitude("YaRN", attention_factor=self.attention_factor)
        for name in ("mscale", "mscale_all_dim"):
            if getattr(self, name):
                require_positive("YaRN", **{name: getattr(self, name)})
        if self.attention_factor is None and bool(self.mscale) != bool(self.mscale_all_dim):
            # where one is not passed DeepSeek's code takes 1 and 0
            first = 1.0 if self.mscale is None else self.mscale
            deepseek = self._magnitude(first) / self._magnitude(self.mscale_all_dim or 0.0)
            if not isclose(deepseek, self.magnitude):
                raise SettingError(
                    f"YaRN got mscale={self.mscale} and mscale_all_dim={self.mscale_all_dim}, but needs both or "
                    f"neither: Hugging Face ignores one alone, which makes the magnitude {self.magnitude:.6g}, and "
                    f"DeepSeek's own code {deepseek:.6g}.\nPass the intended one itself: YaRN(..., "
                    f"attention_factor={deepseek:.6g})."
                )

    def frequencies(self, dim: int, theta: float, device: Device = None, lengths: Lengths = None) -> Frequencies:
        """Return the frequencies, kept, divided or interpolated.

        Raises:
            SettingError: If theta is at most 1.
        """
        if theta <= 1:
            raise SettingError(
                f"YaRN got theta={theta}, but needs a value above 1: the pairs must have different frequencies."
            )
        low, high = (
            dim * log(self.original_length / (n * 2 * pi)) / (2 * log(theta)) for n in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            low, high = floor(low), ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        # low can equal high, as for small heads or equal betas; the ramp is then a step, as in the authors' code.
        width = high - low if high != low else 0.001
        pairs = torch.arange(dim // 2, dtype=torch.float64, device=device)
        ramp = ((pairs - low) / width).clamp(0, 1)
        kept = inverse_frequencies(dim, theta, device)
        return kept / self.factor * ramp + kept * (1 - ramp)

    @property
    def magnitude(self) -> float:
        """The factor of queries and keys, also called the attention factor."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._magnitude(self.mscale) / self._magnitude(self.mscale_all_dim)
        return self._magnitude(1.0)

    def _magnitude(self, mscale: float) -> float:
        return 1.0 if self.factor <= 1 else 0.1 * mscale * log(self.factor) + 1.0
