"""LongRoPE scaling."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import ClassVar, final

import torch

from whatwhere.checks import require_magnitude, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.where.frequencies import inverse_frequencies, to_device
from whatwhere.where.scaling.base import Device, Frequencies, Lengths, Scaling


@final
@dataclass(frozen=True)
class LongRoPE(Scaling):
    """Divide each frequency by its own searched factor: one list up to the trained length, another beyond.

        w'_i = w_i / short_i        if length <= L_0
        w'_i = w_i / long_i         if length >  L_0
        magnitude = sqrt(1 + ln(factor) / ln(L_0)) if factor > 1 else 1

    Ding et al. 2024, https://arxiv.org/abs/2402.13753, as in Phi-3; also called "su". The length is that of each
    token's own document, or the `regime_length` passed to `where.at`; Hugging Face takes the longest sequence of the
    batch. As with DynamicNTK, cached decoding across L_0 differs from the full forward pass; pass one `regime_length`
    where that matters.

    Args:
        short_factor: one number above 0 for each pair.
        long_factor: likewise, for sequences longer than L_0.
        original_length: L_0, the trained length.
        factor: new length over trained length; enters the magnitude only.
        attention_factor: the magnitude itself, in place of the formula.

    Raises:
        ShapeError: If original_length is not a whole number of at least 1.
        SettingError: If a factor is out of range, short_factor or long_factor is not a list, or original_length is 1
            without attention_factor.

    Examples:
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
        for name in ("short_factor", "long_factor"):
            factors = getattr(self, name)
            try:
                numbers = tuple(factors)
            except TypeError:
                message = f"LongRoPE got {name}={factors!r}, but needs a list of numbers, one for each pair."
                raise SettingError(message) from None
            for pair, number in enumerate(numbers):
                require_positive("LongRoPE", **{f"{name}[{pair}]": number})
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

    def frequencies(self, dim: int, theta: float, device: Device = None, lengths: Lengths = None) -> Frequencies:
        """Return the frequencies for each length."""
        if lengths is not None and device is None:
            device = lengths.device
        unscaled = inverse_frequencies(dim, theta, device)
        short, long = (to_device(f, device, torch.float64) for f in self._lists(dim))
        if lengths is None:
            return unscaled / short
        longer = lengths.to(device) > self.original_length
        return unscaled / torch.where(longer[..., None], long, short)

    @property
    def magnitude(self) -> float:
        """The factor of queries and keys, the same for both lists."""
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
