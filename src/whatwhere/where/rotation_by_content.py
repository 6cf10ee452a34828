"""Rotations by angles that the tokens up to a query or key add: what CARoPE and Selective RoPE share."""

from abc import ABC, abstractmethod
from typing import ClassVar, NoReturn

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere.errors import DoorError, ShapeError
from whatwhere.kernels.rotary import rotate
from whatwhere.position.positions import Positions
from whatwhere.where.base import Bound, Heads, QueryKeyMap, require_query_heads
from whatwhere.where.sums import query_slots, require_beginnings, require_no_holes, require_own_keys


class RotationByContent(QueryKeyMap, ABC):
    """Rotate each pair of features of head h by an angle that is a sum over the tokens up to this one.

    A subclass sets `head_dim`, `num_heads` and `interleaved`, and implements `increments` and `angles`. With grouped
    queries keys are repeated for all heads, because each head rotates them otherwise.
    """

    by_content: ClassVar[bool] = True
    causal_only = True
    num_heads: int
    """Heads of the queries."""
    interleaved: bool
    increment_features: tuple[int, ...] = ()
    """Sizes of the axes of increments after (batch, heads, tokens)."""

    @abstractmethod
    def increments(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens *features"]:
        """Return by what each token changes the map of later ones, to be cached beside its key."""

    @abstractmethod
    def angles(
        self, keys: Positions, increments: Float[Tensor, "batch heads keys *features"]
    ) -> Float64[Tensor, "batch heads keys pairs"]:
        """Return the angle of each pair of features at each key, up to which all tokens of its document are keys."""

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> NoReturn:
        """Refuse: positions do not suffice, and a map by content has `bind_content`.

        Raises:
            DoorError: If it is called at all.
        """
        raise DoorError(
            f"{type(self).__name__} depends on token vectors, so it needs more than positions.\n"
            "Use here = where.at(positions) and here.query_key(q, k, increments=here.increments(x))."
        )

    def bind_content(
        self, queries: Positions, keys: Positions, increments: Float[Tensor, "batch heads keys *features"]
    ) -> tuple[Bound, Bound]:
        """Return cosine and sine of every angle for queries and for keys, (batch, heads, tokens, pairs).

        Raises:
            ShapeError: If there are not the increments of each key and head.
        """
        needed = (self.num_heads, keys.tokens, *self.increment_features)
        if increments.shape[1:] != needed:
            raise ShapeError(
                f"{type(self).__name__} needs increments of shape (batch, {', '.join(map(str, needed))}), heads and "
                f"keys first, but got {tuple(increments.shape)}.\n"
                "With a KV cache, append the new ones to the cached: torch.cat([cached, here.increments(x)], dim=2)."
            )
        require_beginnings(keys)
        require_no_holes(keys)
        require_own_keys(queries, keys)
        total = self.angles(keys, increments)
        dtype = torch.promote_types(increments.dtype, torch.float32)
        at_keys = total.cos().to(dtype), total.sin().to(dtype)
        if queries is keys:
            return at_keys, at_keys
        slots = query_slots(queries, keys)[:, None, :, None]
        at_queries = total.gather(2, slots.expand(*total.shape[:2], -1, total.shape[3]))
        return (at_queries.cos().to(dtype), at_queries.sin().to(dtype)), at_keys

    def map_query(self, q: Heads, bound: Bound) -> Heads:
        """Rotate queries."""
        require_query_heads(type(self).__name__, self.num_heads, q)
        cos, sin = bound
        return rotate(q, cos, sin, self.interleaved)

    def map_key(self, k: Float[Tensor, "batch key_heads tokens head_dim"], bound: Bound) -> Heads:
        """Rotate keys, repeated for each head of the queries.

        Raises:
            ShapeError: If the heads of k do not divide those of the queries.
        """
        if k.shape[1] == 0 or self.num_heads % k.shape[1]:
            raise ShapeError(
                f"{type(self).__name__} was made for num_heads={self.num_heads}, which the heads of k "
                f"{tuple(k.shape)} do not divide."
            )
        cos, sin = bound
        return rotate(k.repeat_interleave(self.num_heads // k.shape[1], dim=1), cos, sin, self.interleaved)


def without_padding(
    x: Float[Tensor, "batch heads keys features"], keys: Positions
) -> Float[Tensor, "batch heads keys features"]:
    """Return numbers of keys with zeros at padding."""
    return x if keys.segment is None else x.masked_fill((keys.segment < 0)[:, None, :, None], 0)
