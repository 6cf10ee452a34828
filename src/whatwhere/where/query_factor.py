"""What SSMax and QueryTemperature share: queries multiplied by a factor of their position, after another map."""

from abc import abstractmethod
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from whatwhere.checks import require_whole
from whatwhere.errors import DoorError, ShapeError
from whatwhere.position.positions import Positions
from whatwhere.where.base import Bound, QueryKeyMap


class QueryFactor(QueryKeyMap):
    """Multiply each query by a factor of its position, after another map if there is one; keys have that map alone.

        q_i -> factor(h, p_i) then(q_i)        k_j -> then(k_j)

    A door takes one scheme, so the other map is nested: `then`. A subclass implements `factor`.
    """

    shown_if_set = ("then",)

    def __init__(self, head_dim: int, then: QueryKeyMap | None) -> None:
        super().__init__()
        owner = type(self).__name__
        require_whole(owner, head_dim=head_dim)
        _require_map(owner, then, head_dim)
        self.head_dim, self.then = head_dim, then
        if then is not None:
            self.scale, self.follows_length, self.causal_only = then.scale, then.follows_length, then.causal_only

    def attributes_of_heads(self, first: int, count: int, total: int) -> Mapping[str, object]:
        """Return the other map for some heads."""
        return {} if self.then is None else {"then": self.then.heads(first, count, total=total)}

    @abstractmethod
    def factor(self, positions: Positions) -> Float[Tensor, "batch heads tokens 1"]:
        """Return the factor of each query, in float32 at least.

        Raises:
            PositionError: If the positions have several axes.
        """

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return the factor of each query, (batch, heads or 1, tokens, 1), and what `then.bind` returns."""
        if self.then is None:
            return (self.factor(positions),)
        inner = self.then.bind(positions, lengths) if self.follows_length else self.then.bind(positions)
        return self.factor(positions), *inner

    def map_query(
        self, q: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch mapped_heads tokens mapped_dim"]:
        """Map queries by `then`, and multiply them: in float32 at least, and rounded once.

        Raises:
            ShapeError: If q has another number of heads than the factors.
        """
        factor, *inner = bound
        if factor.shape[1] not in (1, q.shape[1]):
            raise ShapeError(
                f"{type(self).__name__} was made for num_heads={factor.shape[1]}, but q has {q.shape[1]} heads: shape "
                f"{tuple(q.shape)}."
            )
        wide = q.to(torch.promote_types(q.dtype, torch.float32))
        mapped = wide if self.then is None else self.then.map_query(wide, tuple(inner))
        if factor.shape[1] > 1 and mapped.shape[1] > factor.shape[1]:
            factor = factor.repeat(1, mapped.shape[1] // factor.shape[1], 1, 1)  # a group of heads for each region
        return (mapped * factor).to(q.dtype)

    def map_key(
        self, k: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch mapped_heads tokens mapped_dim"]:
        """Map keys by `then`."""
        return k if self.then is None else self.then.map_key(k, bound[1:])

    def __repr__(self) -> str:
        """Return code that makes it, in one line; nn.Module would print `then` in lines of its own."""
        return f"{type(self).__name__}({self.extra_repr()})"


def _require_map(owner: str, then: object, head_dim: int) -> None:
    if then is None:
        return
    if not isinstance(then, QueryKeyMap):
        given = f"the class {then.__name__}" if isinstance(then, type) else type(then).__name__
        raise DoorError(
            f"{owner}(then=...) needs a map of queries and keys, such as Rotary(head_dim=64), but got {given}."
        )
    if then.by_content:
        raise DoorError(
            f"{owner}(then=...) needs a map by position alone, but {type(then).__name__} depends on content.\n"
            "Use it by itself: Where(query_key=...)."
        )
    if then.head_dim != head_dim:
        raise ShapeError(
            f"{owner} has head_dim={head_dim}, but {type(then).__name__} has {then.head_dim}: make both equal."
        )
