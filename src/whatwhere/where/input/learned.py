"""Learned positions."""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_positive, require_range, require_whole
from whatwhere.errors import PositionError, ShapeError
from whatwhere.kernels.embedding import Rows
from whatwhere.ruler import Positions, as_positions
from whatwhere.what.embedding import lookup
from whatwhere.where.doors import InputEncoding, PositionsLike
from whatwhere.where.interpolation import Align, Rule, resized_grid, resized_rows


@final
class Learned(InputEncoding):
    """Give each position a trained vector of its own.

        x_i += P[p_i + offset]        P: (offset + max_length, dim), drawn from N(0, std)

    Gehring et al. 2017, https://arxiv.org/abs/1705.03122; std 0.02 is GPT-2's. There is no row beyond the table, and
    a row that training never reached is noise.

    Args:
        dim: features.
        max_length: rows for positions 0..max_length-1.
        offset: rows before that of position 0, which no position reads: 2 in OPT and RoBERTa, whose configurations
            count them in (RoBERTa) or not (OPT) in max_position_embeddings.
        std: spread of the initial rows.

    Learned: one parameter, `weight`. Length: max_length; `resized` and `resized_grid` give a longer table. Used by:
    GPT-2, BERT, OPT, ViT.

    >>> Learned(dim=8, max_length=16)(torch.tensor([0, 1, 2])).shape
    torch.Size([1, 3, 8])
    """

    weight: Float[Tensor, "rows dim"]

    def __init__(
        self,
        dim: int,
        max_length: int,
        offset: int = 0,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("Learned", dim=dim, max_length=max_length)
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise ShapeError(f"Learned got offset={offset!r}, but needs a whole number of rows, 0 or more.")
        require_positive("Learned", std=std)
        self.dim, self.max_length, self.offset, self.std = dim, max_length, offset, std
        self.weight = nn.Parameter(torch.empty(offset + max_length, dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the rows anew."""
        nn.init.normal_(self.weight, std=self.std)

    def forward(self, positions: PositionsLike) -> Float[Tensor, "batch tokens dim"]:
        """Give the row of each position."""
        where = as_positions(positions)
        index = where.single_axis("Learned")
        self._require_rows(where, index)
        return lookup(self.weight, index + self.offset if self.offset else index)

    def rows(self, positions: Positions) -> Rows | None:
        """Give the table and the numbers of its rows."""
        inside = positions.axes == 1 and positions.longest is not None and positions.longest <= self.max_length
        return Rows(self.weight, positions.index[0], self.offset) if inside else None

    def resized(self, max_length: int, rule: Rule = "linear", align: Align = "ends") -> "Learned":
        """Give a new Learned of another length, its rows interpolated along the position.

        A model needs some training to read them: near tokens have moved together. Rows before position 0 are kept.

        Args:
            max_length: rows for positions 0..max_length-1.
            rule: `linear` or `cubic`.
            align: `ends` keeps the first and the last row, `cells` takes rows for cells, as images do.

        >>> short = Learned(dim=4, max_length=16)
        >>> long = short.resized(31)
        >>> torch.equal(long.weight[::2], short.weight)
        True
        """
        with torch.no_grad():
            before, rows = self.weight[: self.offset], self.weight[self.offset :]
            return self._with(torch.cat([before, resized_rows(rows, max_length, rule, align)]), max_length)

    def resized_grid(
        self,
        old: tuple[int, int],
        new: tuple[int, int],
        prefix: int = 0,
        rule: Rule = "cubic",
        align: Align = "cells",
        antialias: bool = False,
    ) -> "Learned":
        """Give a new Learned for an image of other sizes, its rows interpolated on the grid of patches.

        The default is what Hugging Face's ViT does; timm passes antialias=True.

        Args:
            old, new: patches, (height, width); positions count them row by row.
            prefix: positions before the first patch, such as 1 for [CLS]; their rows are kept.
            rule, align, antialias: see `whatwhere.where.interpolation`.

        >>> Learned(dim=4, max_length=1 + 14 * 14).resized_grid((14, 14), (16, 16), prefix=1).max_length
        257
        """
        if isinstance(prefix, bool) or not isinstance(prefix, int) or not 0 <= prefix < self.max_length:
            raise ShapeError(f"resized_grid got prefix={prefix!r}, but this table has {self.max_length} positions.")
        first = self.offset + prefix
        with torch.no_grad():
            patches = resized_grid(self.weight[first:], old, new, rule, align, antialias)
            return self._with(torch.cat([self.weight[:first], patches]), prefix + len(patches))

    def extra_repr(self) -> str:
        """Show the settings."""
        offset = f", offset={self.offset}" if self.offset else ""
        return f"dim={self.dim}, max_length={self.max_length}{offset}, std={self.std}"

    def _with(self, rows: Tensor, max_length: int) -> "Learned":
        """Make a Learned of these rows; on the meta device nothing is drawn for them in vain."""
        made = Learned(self.dim, max_length, self.offset, self.std, device="meta")
        made.weight = nn.Parameter(rows, requires_grad=self.weight.requires_grad)
        return made.train(self.training)

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
