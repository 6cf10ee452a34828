"""Rotary positions on a grid whose frequencies are learned vectors."""

from math import pi
from typing import ClassVar, final

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import ShapeError
from whatwhere.initialization import alike, assign
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import require_generator
from whatwhere.where.base import Bound
from whatwhere.where.frequencies import cos_sin
from whatwhere.where.rotary_map import RotaryMap


@final
class MixedRotary(RotaryMap):
    """Rotate each pair by both coordinates at once: its frequency is a vector, which is learned (RoPE-Mixed).

        pair i of head h: angle y u_hi + x v_hi        (u, v): the rate along rows and along columns

    So scores see distances in every direction, where AxialRotary sees them along the axes only. Heo et al. 2024,
    section 3.2, https://arxiv.org/abs/2403.13298. As in the authors' code, the pairs of a head start in two directions
    at a right angle, turned by a random angle for each head, with rates theta ** (-4 i / head_dim) in each.

    Args:
        head_dim: features of a head, a multiple of 4.
        sets: sets of frequencies, 1 for all heads, or one for each key head, which its query heads share.
        theta: base of the initial rates, above 0; 10 in the paper.
        interleaved: which features make a pair, as in Rotary; True in the authors' code.

    Learned: `weight`, (2, sets, pairs), rows first. Any length. Positions with one axis serve as both coordinates; real
    coordinates are taken too. Engines: dense, sdpa, flex. Used by: the paper's image models.

    Raises:
        ShapeError: If head_dim is not a multiple of 4, or sets is not a whole number of at least 1; when called, if
            the sets do not divide the heads.
        SettingError: If theta is out of range.

    Examples:
        >>> from whatwhere import Positions
        >>> rope, q = MixedRotary(head_dim=8, sets=2), torch.ones(1, 2, 6, 8)
        >>> rope(q, q, Positions.grid(2, 3))[0].shape
        torch.Size([1, 2, 6, 8])
    """

    settings_in_repr = ("head_dim", "sets", "theta", "interleaved")
    head_axes: ClassVar = {"weight": 1}
    axes = 2
    """Number of coordinates of a token."""
    weight: Float[Tensor, "2 sets pairs"]

    def __init__(
        self,
        head_dim: int,
        sets: int = 1,
        theta: float = 10.0,
        *,
        interleaved: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("MixedRotary", head_dim=head_dim, sets=sets)
        require_positive("MixedRotary", theta=theta)
        if head_dim % 4:
            raise ShapeError(
                f"MixedRotary got head_dim={head_dim}, but needs a multiple of 4: pairs start in two directions."
            )
        self.head_dim, self.sets, self.theta, self.interleaved = head_dim, sets, theta, interleaved
        self.weight = nn.Parameter(torch.empty(2, sets, head_dim // 2, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize the frequencies: two directions at a right angle, turned at random for each set."""
        require_generator("MixedRotary", generator, self.weight)
        turn = torch.empty(self.weight.shape[1], 1, dtype=self.weight.dtype, device=self.weight.device)
        with torch.no_grad(), alike(self.weight, generator) as common:
            turn.uniform_(0, 2 * pi, generator=common)
            steps = torch.arange(self.head_dim // 4, dtype=torch.float64, device=self.weight.device)
            rates = self.theta ** (-4 * steps / self.head_dim)
            directions = torch.cat([turn.double() + 0 * rates, turn.double() + pi / 2 + 0 * rates], dim=-1)
            assign(self.weight, torch.stack([directions.sin(), directions.cos()]) * rates.repeat(2))

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return cosine and sine of every angle, (batch, sets, tokens, pairs), in float32 at least."""
        y, x = positions.on_axes("MixedRotary", 2, real=True).double()[:, :, None, :, None]
        u, v = self.weight.double()[:, :, None]
        return cos_sin(y * u + x * v, dtype=torch.promote_types(self.weight.dtype, torch.float32))

    @property
    def _one_pass(self) -> bool:
        return self.sets == 1

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor, back: bool = False) -> Tensor:
        return super()._rotate(x, self._for_heads(cos, x), self._for_heads(sin, x), back)

    def _rotate_(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return super()._rotate_(x, self._for_heads(cos, x), self._for_heads(sin, x))

    def _for_heads(self, table: Tensor, x: Tensor) -> Tensor:
        heads = x.shape[1]
        if heads % self.sets:
            raise ShapeError(
                f"MixedRotary has {self.sets} sets of frequencies, which do not divide {heads} heads.\n"
                "Pass sets= the number of key heads, or 1."
            )
        return table if self.sets in (1, heads) else table.repeat_interleave(heads // self.sets, dim=1)
