"""What the window tables of vision models share: one bias per head for each distance on a grid."""

from abc import abstractmethod

from jaxtyping import Float
from torch import Tensor

from whatwhere.checks import require_whole
from whatwhere.errors import ShapeError
from whatwhere.position.positions import Positions
from whatwhere.where.score_bias import Element, Gates, K, Q, ScoreBias

WindowSize = int | tuple[int, int]
"""Height and width of a window in tokens; one number is both."""


class WindowTable(ScoreBias):
    """A bias that depends on the distances along the two axes of a grid, tabulated up to the size of a window.

        score(h, i, j) += B[y_i - y_j, x_i - x_j, h]        distances beyond the window count as its largest

    A subclass sets `num_heads` and `window_size`, and implements `table`.
    """

    axes = 2
    """Number of coordinates of a token; positions with one axis, as of text, serve as both."""
    window_size: tuple[int, int]
    """Height and width of the window in tokens."""

    @abstractmethod
    def table(self) -> Float[Tensor, "rows columns heads"]:
        """Return B, in float32 at least: the distances -(height - 1) .. height - 1, and of width likewise."""

    def bind(
        self, queries: Positions, keys: Positions, *, q: Q = None, k: K = None, gates: Gates = None, causal: bool = True
    ) -> Element:
        """Return the bias as a function of elements."""
        owner = type(self).__name__
        at_query, at_key = queries.on_axes(owner, 2), keys.on_axes(owner, 2)
        table, ends = self.table(), tuple(size - 1 for size in self.window_size)

        def row(axis: int, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
            y_query, y_key = at_query[axis], at_key[axis]
            distance = y_query[b % y_query.shape[0], i] - y_key[b % y_key.shape[0], j]
            return distance.clamp(-ends[axis], ends[axis]) + ends[axis]

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return table[row(0, b, i, j), row(1, b, i, j), h]

        return element


def checked_size(owner: str, window_size: WindowSize) -> tuple[int, int]:
    """Return height and width of a window, after checking them."""
    sizes = (window_size, window_size) if isinstance(window_size, int) else tuple(window_size)
    if len(sizes) != 2:
        raise ShapeError(
            f"{owner} got window_size={window_size!r}, but needs height and width, or one number for both."
        )
    require_whole(owner, **{f"window_size[{axis}]": size for axis, size in enumerate(sizes)})
    height, width = sizes
    return height, width
