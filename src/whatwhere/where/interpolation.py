"""Interpolation of a position table to another length or grid size."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from whatwhere.checks import require_choice, require_whole
from whatwhere.errors import ShapeError

Rule = Literal["linear", "cubic"]
RULES: tuple[Rule, ...] = ("linear", "cubic")
Align = Literal["ends", "cells"]
ALIGNS: tuple[Align, ...] = ("ends", "cells")


def resized_rows(
    rows: Float[Tensor, "length dim"], length: int, rule: Rule = "linear", align: Align = "ends"
) -> Float[Tensor, "new_length dim"]:
    """Interpolate the rows of a table to another number of rows, in float32 at least.

        ends     new row n is sampled at n (L - 1) / (L' - 1)       first and last row stay: align_corners=True
        cells    new row n is sampled at (n + 1/2) L / L' - 1/2     rows are centers of cells: align_corners=False

    Args:
        rows: L rows.
        length: L', number of new rows.
        rule: `linear` between two rows, or `cubic` (Keys 1981, a = -3/4) among four; beyond the ends the
            first or last row.
        align: which points correspond.

    Raises:
        ShapeError: the length is not a positive whole number.
        SettingError: an unknown rule or alignment.

    Examples:
        >>> resized_rows(torch.tensor([[0.0], [2.0]]), 3).flatten()
        tensor([0., 1., 2.])
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

    Args:
        rows: one row for each of old[0] * old[1] cells.
        old, new: (height, width).
        rule, align: along each axis, as for `resized_rows`.
        antialias: widen the kernel where the grid shrinks, and use a = -1/2 for `cubic`, as timm does.

    Raises:
        ShapeError: the table does not have the rows of the old grid, or a size is not a positive whole number.
        SettingError: an unknown rule or alignment.

    Examples:
        >>> resized_grid(torch.tensor([[0.0], [1.0], [2.0], [3.0]]), (2, 2), (2, 3), "linear", "ends").flatten()
        tensor([0.0000, 0.5000, 1.0000, 2.0000, 2.5000, 3.0000])
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
    image = rows.to(torch.promote_types(rows.dtype, torch.float32)).unflatten(0, tuple(old))
    resized = F.interpolate(
        image.permute(2, 0, 1)[None],  # (height, width, dim) -> (1, dim, height, width)
        size=tuple(new),
        mode="bilinear" if rule == "linear" else "bicubic",
        align_corners=align == "ends",
        antialias=antialias,
    )
    return resized[0].permute(1, 2, 0).flatten(0, 1).to(rows.dtype)
