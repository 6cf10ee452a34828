"""Learned positions."""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_positive, require_range, require_whole
from whatwhere.errors import PositionError
from whatwhere.ruler import Positions, as_positions
from whatwhere.what.embedding import lookup
from whatwhere.where.doors import InputEncoding, PositionsLike


@final
class Learned(InputEncoding):
    """Give each position a trained vector of its own.

        x_i += P[p_i]        P: (max_length, dim), drawn from N(0, std)

    Gehring et al. 2017, https://arxiv.org/abs/1705.03122; std 0.02 is GPT-2's. There is no row beyond the table, and
    a row that training never reached is noise.

    Args:
        dim: features.
        max_length: rows, for positions 0..max_length-1.
        std: spread of the initial rows.

    Learned: one parameter, `weight`. Length: max_length. Used by: GPT-2, BERT, OPT.

    >>> Learned(dim=8, max_length=16)(torch.tensor([0, 1, 2])).shape
    torch.Size([1, 3, 8])
    """

    weight: Float[Tensor, "max_length dim"]

    def __init__(
        self,
        dim: int,
        max_length: int,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("Learned", dim=dim, max_length=max_length)
        require_positive("Learned", std=std)
        self.dim, self.max_length, self.std = dim, max_length, std
        self.weight = nn.Parameter(torch.empty(max_length, dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the rows anew."""
        nn.init.normal_(self.weight, std=self.std)

    def forward(self, positions: PositionsLike) -> Float[Tensor, "batch tokens dim"]:
        """Give the row of each position."""
        where = as_positions(positions)
        index = where.single_axis("Learned")
        self._require_rows(where, index)
        return lookup(self.weight, index)

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"dim={self.dim}, max_length={self.max_length}, std={self.std}"

    def _require_rows(self, positions: Positions, index: Tensor) -> None:
        if positions.longest is not None and positions.longest <= self.max_length:
            return

        def beyond(value: int, place: tuple[int, ...]) -> PositionError:
            return PositionError(
                f"position {value} is beyond this table, which has learned {self.max_length} positions "
                f"(0..{self.max_length - 1}).\n"
                "To read longer text, choose a scheme without a table: Sinusoidal, Rotary or ALiBi.\n"
                f"To cut the text, pass ids[:, :{self.max_length}]."
            )

        require_range(index, self.max_length, beyond)
