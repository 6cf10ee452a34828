"""Rules that change rotary frequencies so that longer sequences stay within what training showed.

    w_i = theta ** (-2i / dim)                                        what rotary turns by, per position, unscaled

    Linear         w_i / s                                            every pair alike
    NTK            (theta s^(dim / (dim-2))) ** (-2i / dim)           the fastest pair kept, the slowest divided by s
    DynamicNTK     NTK with s that grows with the length
    YaRN           w_i for fast pairs, w_i / s for slow ones, a ramp between; and a magnitude
    LongRoPE       w_i / f_i with searched factors, one list up to the trained length and one beyond; and a magnitude
    Llama3         w_i for short wavelengths, w_i / s for long ones, smooth between
    Proportional   w_i / s for a share of the pairs, none for the rest

A scaling is a value: `Rotary(head_dim=64, scaling=YaRN(factor=4.0, original_length=4096))`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log, pi, sqrt
from typing import ClassVar, final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import readable, require_magnitude, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.ruler import Positions
from whatwhere.where.frequencies import inverse_frequencies, sent

Device = torch.device | str | None


class Scaling(ABC):
    """Change the frequencies of rotary positions."""

    follows_length: ClassVar[bool] = False
    """True where the frequencies depend on how long the sequence is."""

    @abstractmethod
    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, "*batch pairs"]:
        """Give how far each pair turns per position, in radians.

        Args:
            dim: features that turn, even.
            theta: of the unscaled frequencies.
            device: where to compute.
            lengths: of the sequences; only a scaling that follows the length reads them, and None is the trained one.
        """

    def frequencies_at(
        self, dim: int, theta: float, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None
    ) -> Float64[Tensor, "*batch_tokens pairs"]:
        """Give the frequencies of each token, or one row for all where the length is no matter or is stated.

        Args:
            dim, theta: as for frequencies.
            positions: where the tokens stand.
            lengths: of each token's sequence, or one for all; None takes the positions' own.
        """
        if not self.follows_length:
            return self.frequencies(dim, theta, positions.device)
        if isinstance(lengths, int):
            lengths = torch.full((), lengths, device=positions.device)
        known = positions.lengths() if lengths is None else lengths.to(positions.device)
        return self.frequencies(dim, theta, positions.device, known)

    @property
    def magnitude(self) -> float:
        """What queries and keys are multiplied by besides; scores get its square."""
        return 1.0


@final
@dataclass(frozen=True)
class Unscaled(Scaling):
    """Leave every frequency as it is: what `scaling=None` means.

    >>> Unscaled().frequencies(4, 10_000.0)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, " pairs"]:
        """Give w_i."""
        return inverse_frequencies(dim, theta, device)


def rule(scaling: Scaling | None) -> Scaling:
    """Give the scaling itself, or the one that changes nothing.

    >>> rule(None).magnitude
    1.0
    """
    return _UNSCALED if scaling is None else scaling


_UNSCALED = Unscaled()


@final
class Frequencies:
    """Hold the frequencies of a scheme that no length changes: worked out when settings change, not at each binding.

    float64 on the CPU and beside the module's tensors, so that no conversion rounds them.
    """

    def __init__(self) -> None:
        self._held: tuple[tuple[Scaling, int, float], Float64[Tensor, " pairs"]] | None = None

    def at(
        self,
        scaling: Scaling,
        dim: int,
        theta: float,
        positions: Positions,
        lengths: Int64[Tensor, "batch tokens"] | int | None = None,
    ) -> Float64[Tensor, "*batch_tokens pairs"]:
        """Give the frequencies of each token, as `scaling.frequencies_at` does."""
        if scaling.follows_length or not positions.index.is_cpu or torch.compiler.is_compiling():
            return scaling.frequencies_at(dim, theta, positions, lengths)
        settings, held = (scaling, dim, theta), self._held
        if held is not None and held[0] == settings:
            return held[1]
        found = scaling.frequencies_at(dim, theta, positions)
        if readable(found):  # numbers, and nothing that stands for them in a trace
            self._held = settings, found
        return found


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
class LongRoPE(Scaling):
    """Divide each frequency by a searched factor of its own: one list up to the trained length, one beyond.

        w'_i = w_i / short_i        if length <= L_0
        w'_i = w_i / long_i         if length >  L_0
        magnitude = sqrt(1 + ln(factor) / ln(L_0)) if factor > 1 else 1

    Ding et al. 2024, https://arxiv.org/abs/2402.13753, as Phi-3 has it; also called "su". The length is that of each
    token's own document, or what `where.at(p, regime_length=...)` says; Hugging Face takes the longest of the batch.
    As with DynamicNTK, decoding across L_0 differs from reading at once; state one regime where that matters.

    Args:
        short_factor: one number above 0 for each pair.
        long_factor: likewise.
        original_length: L_0, the trained length.
        factor: new length over trained length, for the magnitude.
        attention_factor: the magnitude itself, in place of the formula.

    >>> scaling = LongRoPE((1.0, 1.0), (1.0, 8.0), original_length=100, factor=8.0)
    >>> scaling.frequencies(4, 10_000.0, lengths=torch.tensor([100, 101]))[:, 1]
    tensor([0.0100, 0.0013], dtype=torch.float64)
    """

    short_factor: Sequence[float]
    long_factor: Sequence[float]
    original_length: int
    factor: float = 1.0
    attention_factor: float | None = None

    follows_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the settings; lists become tuples."""
        for name in ("short_factor", "long_factor"):
            given = getattr(self, name)
            try:
                numbers = tuple(given)
            except TypeError:
                message = f"LongRoPE got {name}={given!r}, but needs a list of numbers, one for each pair."
                raise SettingError(message) from None
            for place, number in enumerate(numbers):
                require_positive("LongRoPE", **{f"{name}[{place}]": number})
            object.__setattr__(self, name, numbers)
        require_whole("LongRoPE", original_length=self.original_length)
        require_positive("LongRoPE", factor=self.factor)
        if self.attention_factor is not None:
            require_magnitude("LongRoPE", attention_factor=self.attention_factor)
        if self.original_length == 1 and self.factor > 1 and self.attention_factor is None:
            raise SettingError(
                "LongRoPE divides by the logarithm of original_length, so it must be at least 2, not 1; or pass the "
                "magnitude itself as attention_factor."
            )

    def frequencies(
        self, dim: int, theta: float, device: Device = None, lengths: Int64[Tensor, "*batch"] | None = None
    ) -> Float64[Tensor, "*batch pairs"]:
        """Give the frequencies of each length."""
        if lengths is not None and device is None:
            device = lengths.device
        plain = inverse_frequencies(dim, theta, device)
        short, long = (sent(f, device, torch.float64) for f in self._lists(dim))
        if lengths is None:
            return plain / short
        beyond = lengths.to(device) > self.original_length
        return plain / torch.where(beyond[..., None], long, short)

    @property
    def magnitude(self) -> float:
        """Give the factor of queries and keys; the same in both regimes."""
        if self.attention_factor is not None:
            return self.attention_factor
        return 1.0 if self.factor <= 1 else sqrt(1 + log(self.factor) / log(self.original_length))

    def _lists(self, dim: int) -> tuple[Sequence[float], Sequence[float]]:
        for name in ("short_factor", "long_factor"):
            if len(getattr(self, name)) != dim // 2:
                raise ShapeError(
                    f"LongRoPE got {len(getattr(self, name))} numbers as {name}, but {dim} features are {dim // 2} "
                    "pairs, and each needs its own."
                )
        return self.short_factor, self.long_factor


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


def _ntk_exponent(owner: str, dim: int) -> float:
    if dim <= 2:
        raise ShapeError(f"{owner} raises theta by dim / (dim - 2), so more than {dim} features must turn.")
    return dim / (dim - 2)
