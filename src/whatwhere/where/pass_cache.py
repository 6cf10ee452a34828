"""The cache of one forward pass: tables that its layers share, each computed once, and masks combined."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from whatwhere.coordinates import Allowed
from whatwhere.errors import ShapeError
from whatwhere.kernels.blockwise_attention import ByBlocks
from whatwhere.position import Positions, common_batch
from whatwhere.where.attention import Scores, join
from whatwhere.where.base import Bound, InputEncoding, QueryKeyMap
from whatwhere.where.score_bias import Element, ScoreBias, tabulate


class PassCache:
    """The tables of one forward pass, which its layers share; each is computed when it is first needed."""

    def __init__(self, queries: Positions, keys: Positions, regime_length: int | None = None) -> None:
        self.queries, self.keys, self.regime_length = queries, keys, regime_length
        self.run = keys is queries and queries.run
        self._values: dict[tuple[Any, ...], Any] = {}

    def encoding(self, scheme: InputEncoding) -> Tensor:
        """Return the vectors that are added to those of the tokens."""
        vectors: Tensor = self._once(("encoding", scheme), lambda: scheme(self.queries))
        return vectors

    def mapped(self, scheme: QueryKeyMap, positions: Positions) -> Bound:
        """Return a map, bound to the positions of the queries or of the keys."""
        key = "mapped", scheme, positions is self.queries
        bound: Bound | None = self._values.get(key)
        if bound is None:
            bound = self._values[key] = scheme.bind_among(positions, (self.queries, self.keys), self.regime_length)
        return bound

    def allowed(self, causal: bool) -> Allowed | None:
        """Return the mask as a formula by element; None where every query may attend to every key."""
        return self.queries.allowed(self.keys, causal)

    def mask(self, causal: bool) -> Tensor | None:
        """Return the mask as a table."""
        if self.allowed(causal) is None:
            return None
        mask: Tensor = self._once(("mask", causal), lambda: self.queries.mask(self.keys, causal))
        return mask

    def element(self, scheme: ScoreBias | None, causal: bool) -> Element | None:
        """Return a bias that does not depend on queries and keys, as a formula by element."""
        if scheme is None:
            return None
        element: Element = self._once(
            ("element", scheme, causal), lambda: scheme.bind(self.queries, self.keys, causal=causal)
        )
        return element

    def by_blocks(self, scheme: ScoreBias | None, causal: bool) -> ByBlocks | None:
        """Return a bias by blocks of query rows, where the scheme has such a form and the positions are consecutive."""
        consecutive = self._once(("consecutive",), lambda: self.run and self.queries.is_consecutive())
        if scheme is None or not consecutive:
            return None
        bias: ByBlocks | None = self._once(("blocks", scheme, causal), lambda: scheme.by_blocks(self.queries, causal))
        return bias

    def table(self, scheme: ScoreBias | None, causal: bool) -> Tensor | None:
        """Return a bias as a table."""
        element = self.element(scheme, causal)
        if scheme is None or element is None:
            return None
        rows = common_batch(self.queries, self.keys)
        sizes = (rows, scheme.num_heads, self.queries.tokens, self.keys.tokens, self.queries.device)
        table: Tensor = self._once(("table", scheme, causal), lambda: tabulate(element, *sizes))
        return table

    def added(self, scheme: ScoreBias | None, causal: bool, dtype: torch.dtype) -> Tensor | None:
        """Return bias plus mask as one table."""
        added: Tensor | None = self._once(
            ("added", scheme, causal, dtype), lambda: join(self.table(scheme, causal), self.mask(causal), dtype)
        )
        return added

    def scores(
        self,
        scheme: ScoreBias | None,
        q: Tensor,
        k: Tensor,
        causal: bool,
        mask: Tensor | None,
        gates: Tensor | None,
    ) -> Scores:
        """Return bias and mask of the scores, from the tables of the pass where they do not depend on q and k."""
        rule = self.allowed(causal)
        if scheme is not None and scheme.by_content:
            element = scheme.bind(self.queries, self.keys, q=q, k=k, gates=gates, causal=causal)
            sizes = (q.shape[0], scheme.num_heads, q.shape[2], k.shape[2], q.device)

            def added(dtype: torch.dtype) -> Tensor | None:
                return join(tabulate(element, *sizes), _both(self.mask(causal), mask), dtype)

            run = causal and self.run and mask is None
            return Scores(element, _both_rules(rule, mask), run, added, batch=q.shape[0])
        rows = common_batch(self.queries, self.keys)
        if mask is None:
            run = causal and self.run
            return Scores(
                self.element(scheme, causal),
                rule,
                run,
                lambda dtype: self.added(scheme, causal, dtype),
                lambda: self.by_blocks(scheme, causal),
                rows,
            )

        def added_too(dtype: torch.dtype) -> Tensor | None:
            return join(self.table(scheme, causal), _both(self.mask(causal), mask), dtype)

        rows = rows if mask.shape[0] == 1 else mask.shape[0]
        return Scores(self.element(scheme, causal), _both_rules(rule, mask), False, added_too, batch=rows)

    def _once(self, key: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        if key not in self._values:
            self._values[key] = compute()
        return self._values[key]


def require_mask(mask: Tensor, q: Tensor, k: Tensor) -> None:
    """Raise ShapeError unless a mask has the shape and dtype of one for these queries and keys."""
    sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    fits = mask.dim() == 4 and mask.shape[2:] == sizes[2:]
    if fits and mask.dtype == torch.bool and mask.shape[0] in (1, sizes[0]) and mask.shape[1] in (1, sizes[1]):
        return
    raise ShapeError(
        f"mask has shape {tuple(mask.shape)} and dtype {mask.dtype}, but needs bool and {sizes}, where batch and heads "
        "may be 1; True is where a query may attend to a key.\n"
        "For padding, (batch, keys), make positions of it instead: where.at(Positions.from_mask(mask))."
    )


def _both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Return the mask of the pairs that two masks allow; None allows all."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _both_rules(rule: Allowed | None, mask: Tensor | None) -> Allowed | None:
    """Return the mask of the pairs that a formula and a table allow, as a formula; None allows all."""
    if mask is None:
        return rule

    def allowed_by_both(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        allowed = mask[b % mask.shape[0], h % mask.shape[1], i, j]
        return allowed if rule is None else allowed & rule(b, h, i, j)

    return allowed_by_both
