"""Curves of the query temperature: by how much a query at each position is multiplied, in float64.

    SteppedLog     1 + alpha ln(1 + floor((p + offset) / period))      Llama 4, Ministral 3, Mistral 4
    ClampedLog     1 + alpha ln max(1, (p + 1) / length)               Inkling
    Power          (1 + (p + 1) / length) ** exponent                  Beam
    LogN           max(1, ln(p + 1) / ln original_length)              Qwen

A curve is an argument: `QueryTemperature(head_dim=64, curve=SteppedLog(alpha=0.1, period=8192))`. None of them falls,
and none is below 1.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import log
from typing import final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError


class Curve(ABC):
    """The factor of a query as a function of its position."""

    @abstractmethod
    def at(self, index: Int64[Tensor, "*batch tokens"]) -> Float64[Tensor, "*batch tokens"]:
        """Return the factor at each position."""


@final
@dataclass(frozen=True)
class SteppedLog(Curve):
    """Grow by steps: the factor changes at multiples of the period, and is 1 before the first.

        1 + alpha ln(1 + floor((p + offset) / period))

    Meta 2025, Llama 4 (`attn_scale`, `floor_scale`), in its layers without rotary positions. Ministral 3 and Mistral 4
    (`llama_4_scaling_beta`) have offset=0 and their trained length as the period, in all layers.

    Args:
        alpha: strength, above 0; 0.1 in all of these models.
        period: tokens of a step, at least 1; 8192 in Llama 4, 16,384 in Ministral 3.
        offset: 1 where positions are counted from 1, as in Llama 4; 0 in Ministral 3 and Mistral 4.

    Raises:
        SettingError: If alpha is not above 0, or offset is not 0 or 1.
        ShapeError: If period is not a whole number of at least 1.

    Examples:
        >>> SteppedLog(period=8192).at(torch.tensor([0, 8190, 8191, 100_000]))
        tensor([1.0000, 1.0000, 1.0693, 1.2565], dtype=torch.float64)
    """

    alpha: float = 0.1
    period: int = 8192
    offset: int = 1

    def __post_init__(self) -> None:
        require_positive("SteppedLog", alpha=self.alpha)
        require_whole("SteppedLog", period=self.period)
        if isinstance(self.offset, bool) or self.offset not in (0, 1):
            raise SettingError(
                f"SteppedLog got offset={self.offset!r}, but needs 1 (positions counted from 1, as in Llama 4) or 0."
            )

    def at(self, index: Int64[Tensor, "*batch tokens"]) -> Float64[Tensor, "*batch tokens"]:
        """Return the factor at each position; the step is found in whole numbers."""
        steps = torch.div(index + self.offset, self.period, rounding_mode="floor")
        return 1 + self.alpha * steps.double().log1p()


@final
@dataclass(frozen=True)
class ClampedLog(Curve):
    """Grow with the logarithm of the number of visible tokens, from a length on.

        1 + alpha ln max(1, (p + 1) / length)

    Thinking Machines 2026, Inkling (`log_scaling_alpha`, `log_scaling_n_floor`), in its layers without a window; there
    the scores' bias is multiplied too.

    Args:
        alpha: strength, above 0; 0.1 in Inkling.
        length: up to which the factor is 1, at least 1; 128,000 in Inkling 2.

    Raises:
        SettingError: If alpha is not above 0.
        ShapeError: If length is not a whole number of at least 1.

    Examples:
        >>> ClampedLog(length=1000).at(torch.tensor([0, 999, 9999]))
        tensor([1.0000, 1.0000, 1.2303], dtype=torch.float64)
    """

    alpha: float = 0.1
    length: int = 128_000

    def __post_init__(self) -> None:
        require_positive("ClampedLog", alpha=self.alpha)
        require_whole("ClampedLog", length=self.length)

    def at(self, index: Int64[Tensor, "*batch tokens"]) -> Float64[Tensor, "*batch tokens"]:
        """Return the factor at each position."""
        return 1 + self.alpha * ((index.double() + 1) / self.length).clamp(min=1).log()


@final
@dataclass(frozen=True)
class Power(Curve):
    """Grow by a power of the number of visible tokens, smoothly from the first token on.

        (1 + (p + 1) / length) ** exponent

    Reflection 2026, Beam, in its layers without rotary positions.

    Args:
        exponent: above 0; 0.1 in Beam.
        length: the scale of positions, at least 1; 2048 in Beam.

    Raises:
        SettingError: If exponent is not above 0.
        ShapeError: If length is not a whole number of at least 1.

    Examples:
        >>> Power().at(torch.tensor([0, 2047, 20_000]))
        tensor([1.0000, 1.0718, 1.2683], dtype=torch.float64)
    """

    exponent: float = 0.1
    length: int = 2048

    def __post_init__(self) -> None:
        require_positive("Power", exponent=self.exponent)
        require_whole("Power", length=self.length)

    def at(self, index: Int64[Tensor, "*batch tokens"]) -> Float64[Tensor, "*batch tokens"]:
        """Return the factor at each position."""
        return (self.exponent * ((index.double() + 1) / self.length).log1p()).exp()


@final
@dataclass(frozen=True)
class LogN(Curve):
    """Keep softmax as sharp as it was at the trained length: the logarithm of the number of visible tokens.

        max(1, ln(p + 1) / ln original_length)

    Su 2021, https://kexue.fm/archives/8823, as in Qwen (`use_logn_attn`): nothing changes within the trained length.

    Args:
        original_length: the trained length, at least 2.

    Raises:
        ShapeError: If original_length is not a whole number of at least 2.

    Examples:
        >>> LogN(original_length=10).at(torch.tensor([0, 9, 99]))
        tensor([1., 1., 2.], dtype=torch.float64)
    """

    original_length: int

    def __post_init__(self) -> None:
        require_whole("LogN", original_length=self.original_length)
        if self.original_length < 2:
            raise ShapeError("LogN got original_length=1, but divides by its logarithm: pass the trained length.")

    def at(self, index: Int64[Tensor, "*batch tokens"]) -> Float64[Tensor, "*batch tokens"]:
        """Return the factor at each position."""
        return ((index.double() + 1).log() / log(self.original_length)).clamp(min=1)
