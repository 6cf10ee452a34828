"""Rules that treat fast pairs and slow ones differently: kept, divided, or not turned at all."""

from dataclasses import dataclass
from math import ceil, floor, log, pi
from typing import final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import require_magnitude, require_positive, require_whole
from whatwhere.errors import SettingError
from whatwhere.where.frequencies import inverse_frequencies
from whatwhere.where.scaling.rules import Device, Scaling


@final
@dataclass(frozen=True)
class YaRN(Scaling):
    """Keep the fast pairs, divide the slow ones, blend between; and raise the temperature's inverse a little.

        w'_i = w_i (1 - r_i) + w_i / factor r_i        r_i = clip((i - low) / (high - low), 0, 1)
        low, high = c(beta_fast), c(beta_slow)         c(n) = dim ln(L_0 / (2 pi n)) / (2 ln theta): the pair that
                                                       turns n times within the trained length L_0
        magnitude = 0.1 ln(factor) + 1                 queries and keys are multiplied by it

    Peng et al. 2023, https://arxiv.org/abs/2309.00071, equations 17 to 22. The ramp runs over the pair's number, as in
    the authors' code and Hugging Face, not over the turns, as in the paper's equation 18.

    Args:
        factor: new length over trained length.
        original_length: L_0, the trained length.
        beta_fast: pairs that turn more often than this are kept.
        beta_slow: pairs that turn less often than this are divided.
        attention_factor: the magnitude itself, in place of the formula; 1.0 turns it off.
        mscale, mscale_all_dim: DeepSeek's form, g(mscale) / g(mscale_all_dim) with g(m) = 0.1 m ln(factor) + 1; both
            or none, where 0 is none.
        truncate: round low down and high up to whole pairs, as all but gpt-oss do.

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
        """Check the settings."""
        require_positive("YaRN", factor=self.factor, beta_fast=self.beta_fast, beta_slow=self.beta_slow)
        require_whole("YaRN", original_length=self.original_length)
        if not isinstance(self.truncate, bool):
            raise SettingError(f"YaRN got truncate={self.truncate!r}, but needs True or False.")
        if self.beta_fast <= self.beta_slow:
            raise SettingError(
                f"YaRN got beta_fast={self.beta_fast} and beta_slow={self.beta_slow}, but fast pairs turn more often: "
                "beta_fast must be larger. The authors take 32 and 1."
            )
        if self.attention_factor is not None:
            require_magnitude("YaRN", attention_factor=self.attention_factor)
        for name in ("mscale", "mscale_all_dim"):
            if getattr(self, name):
                require_positive("YaRN", **{name: getattr(self, name)})
        if self.attention_factor is None and bool(self.mscale) != bool(self.mscale_all_dim):
            raise SettingError(
                f"YaRN got mscale={self.mscale} and mscale_all_dim={self.mscale_all_dim}, but takes both or none: "
                "Hugging Face ignores one alone, DeepSeek's own code does not.\n"
                "Pass the magnitude that you mean: YaRN(..., attention_factor=1.0)."
            )

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, " pairs"]:
        """Give the blended frequencies."""
        if theta <= 1:
            raise SettingError(f"YaRN got theta={theta}, but needs one above 1: pairs must turn at different speeds.")
        low, high = (self._pair_that_turns(n, dim, theta) for n in (self.beta_fast, self.beta_slow))
        if self.truncate:
            low, high = floor(low), ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        # Both may meet where the head is small: the ramp is then a step.
        width = high - low if high != low else 0.001
        pairs = torch.arange(dim // 2, dtype=torch.float64, device=device)
        ramp = ((pairs - low) / width).clamp(0, 1)
        kept = inverse_frequencies(dim, theta, device)
        return kept / self.factor * ramp + kept * (1 - ramp)

    @property
    def magnitude(self) -> float:
        """Give the factor of queries and keys, also called the attention factor."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._gain(self.mscale) / self._gain(self.mscale_all_dim)
        return self._gain(1.0)

    def _gain(self, mscale: float) -> float:
        return 1.0 if self.factor <= 1 else 0.1 * mscale * log(self.factor) + 1.0

    def _pair_that_turns(self, times: float, dim: int, theta: float) -> float:
        return dim * log(self.original_length / (times * 2 * pi)) / (2 * log(theta))


@final
@dataclass(frozen=True)
class Llama3(Scaling):
    """Keep short wavelengths, divide long ones, go over smoothly.

        w'_i = w_i                              wavelength 2 pi / w_i < L_0 / high_frequency_factor
        w'_i = w_i / factor                     wavelength            > L_0 / low_frequency_factor
        w'_i = (1 - t) w_i / factor + t w_i     between,  t = (L_0 / wavelength - low) / (high - low)

    Llama 3.1, Dubey et al. 2024, https://arxiv.org/abs/2407.21783; the formula is in Meta's code.

    Args:
        factor: of the long wavelengths.
        original_length: L_0, the trained length; in a configuration max_position_embeddings is the extended one.
        low_frequency_factor, high_frequency_factor: how often a pair turns within L_0 at the two bounds.

    >>> Llama3().frequencies(64, 500_000.0)[[0, -1]]
    tensor([1.0000e+00, 3.7673e-07], dtype=torch.float64)
    """

    factor: float = 8.0
    original_length: int = 8192
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def __post_init__(self) -> None:
        """Check the settings."""
        low, high = self.low_frequency_factor, self.high_frequency_factor
        require_positive("Llama3", factor=self.factor, low_frequency_factor=low, high_frequency_factor=high)
        require_whole("Llama3", original_length=self.original_length)
        if high <= low:
            raise SettingError(
                f"Llama3 got low_frequency_factor={low} and high_frequency_factor={high}, but the second must be "
                "larger. Llama 3.1 takes 1 and 4."
            )

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, " pairs"]:
        """Give the frequencies, kept, divided or between."""
        kept = inverse_frequencies(dim, theta, device)
        turns = self.original_length * kept / (2 * pi)
        share = (turns - self.low_frequency_factor) / (self.high_frequency_factor - self.low_frequency_factor)
        share = share.clamp(0, 1)
        return (1 - share) * kept / self.factor + share * kept


@final
@dataclass(frozen=True)
class Proportional(Scaling):
    """Turn only the fastest share of the pairs; the others hold no position at all.

        w'_i = theta ** (-2i / dim) / factor        i < floor(share dim / 2)
        w'_i = 0                                    else

    Barbero et al. 2024, p-RoPE, https://arxiv.org/abs/2410.06205; the factor is Hugging Face's, for Gemma 4. Unlike a
    rotary_dim, exponents run over the whole head and the pairs that turn are (i, i + head_dim/2), not the first
    features.

    Args:
        share: of the pairs that turn, above 0 and at most 1.
        factor: the frequencies are divided by it.

    >>> Proportional(0.5).frequencies(4, 10_000.0)
    tensor([1., 0.], dtype=torch.float64)
    """

    share: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        """Check the settings."""
        require_positive("Proportional", share=self.share, factor=self.factor)
        if self.share > 1:
            raise SettingError(f"Proportional got share={self.share}, but a share is at most 1.")

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, " pairs"]:
        """Give the frequencies, zero for pairs that do not turn."""
        turning = int(self.share * dim // 2)
        if turning == 0:
            raise SettingError(f"Proportional(share={self.share}) of {dim} features turns no pair: raise the share.")
        pairs = torch.arange(dim // 2, device=device)
        return torch.where(pairs < turning, inverse_frequencies(dim, theta, device) / self.factor, 0.0)
