"""Rotary positions whose frequencies are learned."""

from typing import final

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from whatwhere.position.positions import Positions
from whatwhere.where.base import Bound
from whatwhere.where.frequencies import angles, cos_sin
from whatwhere.where.rotary_map import ScaledRotaryMap
from whatwhere.where.scaling import Scaling


@final
class LearnedRotary(ScaledRotaryMap):
    """Rotate each pair as Rotary does, by frequencies that are trained: each is multiplied by the exponential of a
    parameter.

        angle = p w_i exp(alpha_i)        w_i = theta ** (-2i / rotary_dim), or that of a scaling

    Mistral Large 4 (LeRoPE), over YaRN; alpha is a tensor of its checkpoint (`rotary_emb.alpha`). It starts at 0, which
    is Rotary. One set of frequencies serves all heads, so scores depend on the distance only. For frequencies v of
    another source, set alpha to ln(v / w).

    The gradient of alpha is exact: angles are float64 here, and so is the way back to alpha. It grows with the
    position, as the angle does: sum over tokens of p w_i exp(alpha_i) times the torque of the pair.

    Args:
        head_dim: features of a head.
        theta: base of the frequencies, above 0.
        interleaved: which features make a pair, as in Rotary.
        rotary_dim, rotary_start: rotate only so many features, from this one on, as in Rotary.
        scaling: a RoPE scaling, as in Rotary.

    Learned: `alpha`, one for each pair, for all heads. Keep it in float32 where the model is bfloat16, whose rounding
    of alpha moves an angle by up to its |alpha_i| / 512th part. Any length. Engines: dense, sdpa, flex. Used by:
    Mistral Large 4.

    Raises:
        ShapeError: If head_dim, rotary_dim or rotary_start does not fit, or the scaling is not defined for it.
        SettingError: If theta is out of range, or scaling is not a scaling that is defined for it.

    Examples:
        >>> rope = LearnedRotary(head_dim=4)
        >>> rope.inverse_frequencies.detach()
        tensor([1.0000, 0.0100], dtype=torch.float64)
        >>> _ = nn.init.constant_(rope.alpha, 0.6931472)
        >>> rope.inverse_frequencies.detach()
        tensor([2.0000, 0.0200], dtype=torch.float64)
    """

    alpha: Float[Tensor, " pairs"]

    def __init__(
        self,
        head_dim: int,
        theta: float = 10_000.0,
        *,
        interleaved: bool = False,
        rotary_dim: int | None = None,
        rotary_start: int = 0,
        scaling: Scaling | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(head_dim, theta, interleaved, rotary_dim, scaling, rotary_start)
        self.alpha = nn.Parameter(torch.empty(self.rotary_dim // 2, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set alpha to 0, where it is Rotary."""
        nn.init.zeros_(self.alpha)

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return cosine and sine of every angle, (batch, 1, tokens, pairs), in float32 at least."""
        index = positions.single_axis("LearnedRotary", real=True)
        wide = torch.promote_types(self.alpha.dtype, torch.float32)
        cos, sin = cos_sin(angles(index, self._frequencies_at(positions, lengths)), self.magnitude, wide)
        return cos[:, None], sin[:, None]

    def _from_scaled(self, scaled: Float64[Tensor, "*batch pairs"]) -> Float64[Tensor, "*batch pairs"]:
        return scaled * self.alpha.to(scaled.device, torch.float64).exp()
