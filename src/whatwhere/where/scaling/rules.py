"""Scalings by a rule of each pair or of theta: Linear, NTK, DynamicNTK, Proportional and Llama3."""

from dataclasses import dataclass
from math import pi
from typing import ClassVar, final

import torch

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.where.frequencies import inverse_frequencies
from whatwhere.where.scaling.base import Device, Frequencies, Lengths, Scaling


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
        require_positive("Linear", factor=self.factor)

    def frequencies(self, dim: int, theta: float, device: Device = None, lengths: Lengths = None) -> Frequencies:
        """Return w_i / factor."""
        return inverse_frequencies(dim, theta, device) / self.factor


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
        require_positive("NTK", factor=self.factor)

    def frequencies(self, dim: int, theta: float, device: Device = None, lengths: Lengths = None) -> Frequencies:
        """Return the frequencies for the raised theta."""
        return inverse_frequencies(dim, theta * self.factor ** ntk_exponent("NTK", dim), device)


def ntk_exponent(owner: str, dim: int) -> float:
    """Return the exponent of the factor by which theta is raised, dim / (dim - 2)."""
    if dim <= 2:
        raise ShapeError(f"{owner} raises theta by dim / (dim - 2), so more than {dim} features must be rotated.")
    return dim / (dim - 2)


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
        require_positive("DynamicNTK", factor=self.factor)
        if self.factor < 1:
            raise SettingError(f"DynamicNTK got factor={self.factor!r}, but needs a number of at least 1.")
        require_whole("DynamicNTK", original_length=self.original_length)
        if not isinstance(self.doubling, bool):
            raise SettingError(f"DynamicNTK got doubling={self.doubling!r}, but needs True or False.")

    def frequencies(self, dim: int, theta: float, device: Device = None, lengths: Lengths = None) -> Frequencies:
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
        require_positive("Proportional", share=self.share, factor=self.factor)
        if self.share > 1:
            raise SettingError(f"Proportional got share={self.share}, but needs a share of at most 1.")

    def frequencies(self, dim: int, theta: float, device: Device = None, lengths: Lengths = None) -> Frequencies:
        """Return the frequencies, zero for pairs that are not rotated.

        Raises:
            SettingError: If the share of these features is less than one pair.
        """
        rotated = int(self.share * dim // 2)
        if rotated == 0:
            raise SettingError(f"Proportional(share={self.share}) of {dim} features rotates no pair: raise the share.")
        pairs = torch.arange(dim // 2, device=device)
        return torch.where(pairs < rotated, inverse_frequencies(dim, theta, device) / self.factor, 0.0)


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
        low, high = self.low_frequency_factor, self.high_frequency_factor
        require_positive("Llama3", factor=self.factor, low_frequency_factor=low, high_frequency_factor=high)
        require_whole("Llama3", original_length=self.original_length)
        if high < low:
            raise SettingError(
                f"Llama3 got low_frequency_factor={low} and high_frequency_factor={high}, but the second must not be "
                "smaller. Llama 3.1 uses 1 and 4, Llama 4 Scout 1 and 1."
            )

    def frequencies(self, dim: int, theta: float, device: Device = None, lengths: Lengths = None) -> Frequencies:
        """Return the frequencies, kept, divided or interpolated."""
        kept = inverse_frequencies(dim, theta, device)
        rotations = self.original_length * kept / (2 * pi)
        low, high = self.low_frequency_factor, self.high_frequency_factor
        weight = (rotations >= low).double() if low == high else ((rotations - low) / (high - low)).clamp(0, 1)
        return (1 - weight) * kept / self.factor + weight * kept
