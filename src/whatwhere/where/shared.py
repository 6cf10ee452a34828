"""What all layers of one forward pass share, and masks that meet."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from whatwhere.attention import join
from whatwhere.errors import ShapeError
from whatwhere.kernels.blocks import ByBlocks
from whatwhere.ruler import Allowed, Positions
from whatwhere.where.doors import Bound, Element, InputEncoding, QueryKeyMap, ScoreBias, tabulate


class Shared:
    """Hold what all layers of one forward pass share; each table is made when it is first asked for."""

    def __init__(self, queries: Positions, keys: Positions, regime_length: int | None = None) -> None:
        self.queries, self.keys, self.regime_length = queries, keys, regime_length
        self.run = keys is queries and queries.run
        self._made: dict[tuple[Any, ...], Any] = {}

    def encoding(self, scheme: InputEncoding) -> Tensor:
        """Give what is added to the token vectors."""
        vectors: Tensor = self._once(("encoding", scheme), lambda: scheme(self.queries))
        return vectors

    def mapped(self, scheme: QueryKeyMap, positions: Positions) -> Bound:
        """Bind a map to where queries or keys stand."""
        key = "mapped", scheme, positions is self.queries
        bound: Bound | None = self._made.get(key)
        if bound is None:
            bound = self._made[key] = scheme.bind_among(positions, (self.queries, self.keys), self.regime_length)
        return bound

    def allowed(self, causal: bool) -> Allowed | None:
        """Give the rule of which keys a query may look at; None allows all."""
        return self.queries.allowed(self.keys, causal)

    def mask(self, causal: bool) -> Tensor | None:
        """Give the same as a table."""
        if self.allowed(causal) is None:
            return None
        mask: Tensor = self._once(("mask", causal), lambda: self.queries.mask(self.keys, causal))
        return mask

    def element(self, scheme: ScoreBias | None, causal: bool) -> Element | None:
        """Bind a bias that does not read the content."""
        if scheme is None:
            return None
        element: Element = self._once(
            ("element", scheme, causal), lambda: scheme.bind(self.queries, self.keys, causal=causal)
        )
        return element

    def by_blocks(self, scheme: ScoreBias | None, causal: bool) -> ByBlocks | None:
        """Give a bias that is told by blocks of query rows, where it is and the positions just count."""
        counted = self._once(("counted",), lambda: self.run and self.queries.counts_on())
        if scheme is None or not counted:
            return None
        bias: ByBlocks | None = self._once(("blocks", scheme, causal), lambda: scheme.by_blocks(self.queries, causal))
        return bias

    def table(self, scheme: ScoreBias | None, causal: bool) -> Tensor | None:
        """Give a bias as a table."""
        element = self.element(scheme, causal)
        if scheme is None or element is None:
            return None
        rows = max(self.queries.batch, self.keys.batch)
        sizes = (rows, scheme.num_heads, self.queries.tokens, self.keys.tokens, self.queries.device)
        table: Tensor = self._once(("table", scheme, causal), lambda: tabulate(element, *sizes))
        return table

    def added(self, scheme: ScoreBias | None, causal: bool, dtype: torch.dtype) -> Tensor | None:
        """Give bias and mask as one table."""
        added: Tensor | None = self._once(
            ("added", scheme, causal, dtype), lambda: join(self.table(scheme, causal), self.mask(causal), dtype)
        )
        return added

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def require_mask(mask: Tensor, q: Tensor, k: Tensor) -> None:
    """Raise ShapeError unless a mask is one of these queries and keys."""
    sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    fits = mask.dim() == 4 and mask.shape[2:] == sizes[2:]
    if fits and mask.dtype == torch.bool and mask.shape[0] in (1, sizes[0]) and mask.shape[1] in (1, sizes[1]):
        return
    raise ShapeError(
        f"mask has shape {tuple(mask.shape)} and dtype {mask.dtype}, but needs bool and {sizes}, where batch and heads "
        "may be 1; True is where attention may look.\n"
        "For padding, (batch, keys), make positions of it instead: where.at(whatwhere.from_mask(mask))."
    )


def both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Give the mask of what two masks allow; None allows everything."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


def both_rules(rule: Allowed | None, mask: Tensor | None) -> Allowed | None:
    """Give the same by element: what a rule and a mask allow."""
    if mask is None:
        return rule

    def allowed_by_both(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        allowed = mask[b % mask.shape[0], h % mask.shape[1], i, j]
        return allowed if rule is None else allowed & rule(b, h, i, j)

    return allowed_by_both
