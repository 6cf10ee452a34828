"""Learned positions, and their interpolation to another length or grid size."""

from typing import Literal, final

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_choice, require_positive, require_whole
from whatwhere.errors import PositionError, ShapeError
from whatwhere.kernels.embedding import Rows
from whatwhere.position.positions import Positions, PositionsLike, as_positions
from whatwhere.tensor_checks import require_range
from whatwhere.what.embedding import lookup
from whatwhere.where.base import InputEncoding, NormalInit

Rule = Literal["linear", "cubic"]
RULES: tuple[Rule, ...] = ("linear", "cubic")
Align = Literal["ends", "cells"]
ALIGNS: tuple[Align, ...] = ("ends", "cells")


@final
class Learned(NormalInit, InputEncoding):
    """Add a trained vector for each position (absolute position embedding).

        x_i += P[p_i + offset]        P: (offset + max_length, dim), initially N(0, std)

    Gehring et al. 2017, https://arxiv.org/abs/1705.03122; std 0.02 is GPT-2's. Positions beyond the table
    are an error, and rows that training never reached keep their random initial values.

    Args:
        dim: features.
        max_length: number of positions, 0..max_length-1.
        offset: unused rows before that of position 0: 2 in OPT and RoBERTa; `max_position_embeddings` of their
            configurations includes them (RoBERTa) or not (OPT).
        std: standard deviation of the initial rows.

    Learned: one parameter, `weight`. Length: max_length; `resized` and `resized_grid` return a longer table. Used by:
    GPT-2, BERT, OPT, ViT.

    Raises:
        ShapeError: If dim or max_length is not a whole number of at least 1, or offset is negative.
        SettingError: If std is not above 0.

    Examples:
        >>> Learned(dim=8, max_length=16)(torch.tensor([0, 1, 2])).shape
        torch.Size([1, 3, 8])
    """

    settings_in_repr = ("dim", "max_length", "offset", "std")
    _shown_if_set = ("offset",)

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

    def forward(self, positions: PositionsLike) -> Float[Tensor, "batch tokens dim"]:
        """Return the row of each position."""
        positions = as_positions(positions, self.weight.device, vectors=True)
        index = positions.single_axis("Learned")
        self.require_defined(positions)
        return lookup(self.weight, index + self.offset if self.offset else index)

    def rows(self, positions: Positions) -> Rows | None:
        """Return the table and the indices of its rows."""
        inside = positions.axes == 1 and positions.max_length is not None and positions.max_length <= self.max_length
        inside = inside and not (self.offset and positions.position_ids)  # which `forward` checks
        return Rows(self.weight, positions.index[0], self.offset) if inside else None

    def resized(self, max_length: int, rule: Rule = "linear", align: Align = "ends") -> "Learned":
        """Return a new Learned of another length, with interpolated rows.

        Neighboring rows become more similar, so a model needs some fine-tuning. Rows before position 0 are kept. `ends`
        keeps the first and the last row, `cells` treats rows as centers of cells, as for images.

        Raises:
            ShapeError: If max_length is not a whole number of at least 1.
            SettingError: If the rule or alignment is unknown.

        Examples:
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
        """Return a new Learned for another image size, with rows interpolated on the grid of patches.

        The defaults are those of Hugging Face's ViT; timm passes antialias=True.

        Args:
            old, new: number of patches, (height, width); positions count them row by row.
            prefix: positions before the first patch, such as 1 for [CLS]; their rows are kept.
            rule, align, antialias: see `whatwhere.where.input.learned.resized_grid`.

        Raises:
            ShapeError: If prefix is not below the number of positions, or the table does not have the rows of the old
                grid.
            SettingError: If the rule or alignment is unknown.

        Examples:
            >>> Learned(dim=4, max_length=1 + 14 * 14).resized_grid((14, 14), (16, 16), prefix=1).max_length
            257
        """
        if isinstance(prefix, bool) or not isinstance(prefix, int) or not 0 <= prefix < self.max_length:
            raise ShapeError(f"resized_grid got prefix={prefix!r}, but this table has {self.max_length} positions.")
        first = self.offset + prefix
        with torch.no_grad():
            patches = resized_grid(self.weight[first:], old, new, rule, align, antialias)
            return self._with(torch.cat([self.weight[:first], patches]), prefix + len(patches))

    def _with(self, rows: Tensor, max_length: int) -> "Learned":
        """Return a Learned with these rows."""
        # On the meta device, so that no random rows are generated only to be replaced.
        resized = Learned(self.dim, max_length, self.offset, self.std, device="meta")
        resized.weight = nn.Parameter(rows, requires_grad=self.weight.requires_grad)
        return resized.train(self.training)

    def require_defined(self, positions: Positions) -> None:
        """Raise PositionError unless there is a row for each position.

        Raises:
            PositionError: If a position is not in 0..max_length-1, or position ids count from the offset already.

        Examples:
            >>> Learned(dim=4, max_length=16).require_defined(Positions.packed([16, 9]))
        """
        index = positions.single_axis("Learned")
        positions.require_from_zero("Learned", self.offset)
        if positions.max_length is None or positions.max_length > self.max_length:
            _require_rows(index, self.max_length)


def rows_at(weight: Float[Tensor, "rows dim"], index: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
    """Look up the rows of a table of positions, as a Learned without an offset does."""
    _require_rows(index, len(weight))
    return lookup(weight, index)


def _require_rows(index: Tensor, max_length: int) -> None:
    def error(value: int, slot: tuple[int, ...]) -> PositionError:
        return PositionError(
            f"position {value} is beyond this table, which has {max_length} positions (0..{max_length - 1}).\n"
            "For longer text, choose a scheme without a table: Sinusoidal, Rotary or ALiBi; or lengthen that of a "
            f"checkpoint by whatwhere resize --positions.\nTo truncate the text, pass ids[:, :{max_length}]."
        )

    require_range(index, max_length, error)


def resized_rows(
    rows: Float[Tensor, "length dim"], length: int, rule: Rule = "linear", align: Align = "ends"
) -> Float[Tensor, "new_length dim"]:
    """Interpolate the rows of a table to another number of rows, in float64: they are rounded once.

        ends     new row n is sampled at n (L - 1) / (L' - 1)       first and last row stay: align_corners=True
        cells    new row n is sampled at (n + 1/2) L / L' - 1/2     rows are centers of cells: align_corners=False

    L rows become L'. `linear` reads between two rows, `cubic` (Keys 1981, a = -3/4) among four; beyond the ends is the
    first or last row.
    """
    require_whole("resized", length=length)
    return resized_grid(rows, (len(rows), 1), (length, 1), rule, align)


def resized_grid(
    rows: Float[Tensor, "cells dim"],
    old: tuple[int, int],
    new: tuple[int, int],
    rule: Rule = "cubic",
    align: Align = "cells",
    antialias: bool = False,
) -> Float[Tensor, "new_cells dim"]:
    """Interpolate the rows of a two-dimensional grid, the last axis fastest, to another grid size.

    `antialias` widens the kernel where the grid shrinks, and uses a = -1/2 for `cubic`, as timm does.
    """
    require_choice("resized", "rule", rule, RULES)
    require_choice("resized", "align", align, ALIGNS)
    for name, sizes in (("old", old), ("new", new)):
        if len(sizes) != 2:
            raise ShapeError(f"resized got {name}={sizes}, but a grid has two sizes, as in (14, 14).")
        require_whole("resized", **{f"{name}_height": sizes[0], f"{name}_width": sizes[1]})
    if len(rows) != old[0] * old[1]:
        raise ShapeError(f"a grid of {old[0]} x {old[1]} has {old[0] * old[1]} cells, but the table {len(rows)} rows.")
    if tuple(old) == tuple(new):
        return rows.clone()
    image = rows.double().unflatten(0, tuple(old))
    resized = F.interpolate(
        image.permute(2, 0, 1)[None],  # (height, width, dim) -> (1, dim, height, width)
        size=tuple(new),
        mode="bilinear" if rule == "linear" else "bicubic",
        align_corners=align == "ends",
        antialias=antialias,
    )
    return resized[0].permute(1, 2, 0).flatten(0, 1).to(rows.dtype)
