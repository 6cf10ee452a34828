"""Door 3: the abstract bases of score biases, and what biases that depend on queries and keys share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, ClassVar, final

import torch
from jaxtyping import Float, Float64, Int64, Real, Shaped
from torch import Tensor

from whatwhere.errors import DoorError, SettingError, ShapeError
from whatwhere.kernels.backend import full_precision
from whatwhere.kernels.blockwise_attention import ByBlocks
from whatwhere.kernels.flash_attention import ByDistance
from whatwhere.kernels.toeplitz import toeplitz
from whatwhere.position.positions import Positions, PositionsLike, common_batch
from whatwhere.tensor_checks import require_returned
from whatwhere.where.base import QueryKeyMap, device_of, of_queries_and_keys, require_direction
from whatwhere.where.head_shards import OfHeads

Element = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""`element(batch, head, query_slot, key_slot)` -> the bias of that score; like a score_mod without the score."""
ELEMENT = "a function element(batch, head, query_slot, key_slot)"

Curve = Callable[[Tensor, Tensor], Tensor]  # `curve(head, distance)` -> the bias at that distance

Distance = Callable[[Tensor, Tensor, Tensor], Tensor]
"""`distance(batch, query_slot, key_slot)` -> query position minus key position."""

Q = Float[Tensor, "batch heads queries head_dim"] | None
K = Float[Tensor, "batch key_heads keys head_dim"] | None
Gates = Float[Tensor, "batch heads tokens *features"] | None
"""What `bind` may be given beside positions: queries, keys, and what `gates` returned."""


class ScoreBias(OfHeads, ABC):
    """Door 3: a number for each pair of positions, added to the scaled score.

        score(h, i, j) += element(h, p_i, p_j)

    A subclass sets `num_heads` and implements `bind`, which returns the bias as a function of single elements. The
    dense table and FlexAttention's score_mod are both derived from it.
    """

    __call__: Callable[..., Tensor]  # nn.Module returns Any

    _shortcuts: ClassVar = {"by_blocks": ("bind",), "by_distance": ("bind", "curve"), "sums": ("bind",)}
    num_heads: int
    """Heads of the queries."""
    scale: float | None = None
    """The softmax scale that the scheme requires; None leaves 1 / sqrt(head_dim)."""
    causal_only: bool = False
    """True where the formula is not defined for keys later than the query; then attention must be causal."""
    by_content: ClassVar[bool] = False
    """True where `bind` needs q, k or gates; then layers cannot share a bias."""
    sums_between: ClassVar[bool] = False
    """True where the bias is a sum over the keys between query and key; then a KV cache must have all of these."""

    @abstractmethod
    def bind(
        self, queries: Positions, keys: Positions, *, q: Q = None, k: K = None, gates: Gates = None, causal: bool = True
    ) -> Element:
        """Compute what depends on positions (and q, k, gates) once, and return the bias as a function of elements.

        Args:
            q, k: queries and keys; passed only to a bias that depends on content.
            gates: what `gates` returned, for all keys; for a bias that reads those of queries, these suffice.
            causal: whether attention is causal.

        Returns:
            `element(batch, head, query_slot, key_slot)`, whose arguments are integer tensors that broadcast; `head` is
            the head of the query, also with grouped queries.

        Raises:
            DoorError: If content is needed, but missing.
            ShapeError: If q, k or gates have the wrong shape.
            PositionError: If the positions have several axes.
        """

    def gates(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens *features"] | None:
        """Return what a gated bias needs of each token, to be cached beside its key; None for other biases."""
        return None

    def sums(
        self, keys: Positions, gates: Float[Tensor, "batch heads keys"]
    ) -> Float64[Tensor, "batch heads keys"] | None:
        """Return a number for each key, where the bias is that of the query's own key minus that of the key, as FoX's.

        None for any other bias. With these numbers a query needs no key between it and another one.
        """
        return None

    @final  # type: ignore[misc]  # a variable of nn.Module
    def forward(
        self,
        positions: PositionsLike,
        keys: PositionsLike | None = None,
        causal: bool = False,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "batch heads queries keys"]:
        """Return the bias of all pairs as a dense tensor, for the `attn_mask` of scaled_dot_product_attention.

        That function needs `scale=self.scale` as well, the softmax scale that the scheme requires: 1 for T5.

        Args:
            keys: positions of the keys; None is those of the queries.
            dtype: dtype of the result; None is that of the formula. Values below its range become its lowest finite
                number, so that softmax of a row is not NaN.

        Returns:
            The bias; batch is 1 where all sequences have the same positions.

        Raises:
            DoorError: If the bias depends on queries and keys.
            SettingError: If causal=False, but the scheme supports causal attention only.
        """
        self._require_no_content()
        self.require_direction(causal)
        at_queries, at_keys = of_queries_and_keys(positions, keys, device_of(self))
        element = self.bind(at_queries, at_keys, causal=causal)
        rows = common_batch(at_queries, at_keys)
        table = tabulate(element, rows, self.num_heads, at_queries.tokens, at_keys.tokens, at_queries.device)
        table = as_finite(table, dtype)
        return table.masked_fill(~at_queries.mask(at_keys), -torch.inf) if causal else table

    @final
    def score_mod(
        self, positions: PositionsLike, keys: PositionsLike | None = None
    ) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
        """Return the bias as a score_mod for `torch.nn.attention.flex_attention.flex_attention`.

        It masks nothing; a scheme that is `causal_only` needs a causal block mask as well.

        Returns:
            `score_mod(score, batch, head, query_slot, key_slot)`.

        Raises:
            DoorError: If the bias depends on queries and keys.
        """
        self._require_no_content()
        return as_score_mod(self.bind(*of_queries_and_keys(positions, keys, device_of(self))))

    def require_direction(self, causal: bool) -> None:
        """Raise SettingError if attention is bidirectional, but the scheme supports causal attention only."""
        require_direction(self, self.causal_only, causal, "ALiBi")

    def by_blocks(self, positions: Positions, causal: bool, size: int | None = None) -> ByBlocks | None:
        """Return the bias in the form that blockwise attention reads without a dense table; None where there is none.

        Called only in eager mode, on the CPU, for positions that count up by one. The result must mask what is outside
        of a sliding window of this size.
        """
        return None

    def by_distance(self, most: int | None, device: torch.device) -> ByDistance | None:
        """Return the bias by distance, up to `most` where that is known, as the kernel `flash` reads it; else None."""
        return None

    def _require_no_content(self) -> None:
        if self.by_content:
            raise DoorError(
                f"{type(self).__name__} depends on queries and keys, so it needs more than positions.\n"
                "Use here = where.at(positions) and here.attention(q, k, v)."
            )


class DistanceBias(ScoreBias, ABC):
    """A bias that depends on the distance alone, query minus key.

    A subclass sets `num_heads` and implements `curve`. For queries and keys that count up by one the table is Toeplitz,
    one value for each distance, which blockwise attention makes use of.
    """

    @abstractmethod
    def curve(self, device: torch.device) -> Curve:
        """Return the bias as a function of head and distance.

        Its arguments are integer tensors that broadcast; earlier keys have positive distances. Tensors that it needs
        are created here, on the device, rather than in the function, because FlexAttention traces it.
        """

    def by_blocks(self, positions: Positions, causal: bool, size: int | None = None) -> ByBlocks | None:
        """Return one value for each distance, shared by all pairs at that distance."""
        distances = torch.arange(1 - positions.tokens, positions.tokens, device=positions.device)
        return toeplitz(self._line(distances), causal, size)

    def by_distance(self, most: int | None, device: torch.device) -> ByDistance | None:
        """Return one number for each distance."""
        if most is None or most > 2**20:  # a line of more is memory that no kernel should need
            return None
        rows = torch.arange(2 * most + 1, device=device)
        return ByDistance("rows", self._line(rows - most), rows, -most)

    def bind(self, queries: Positions, keys: Positions, **content: Any) -> Element:
        """Return the bias as a function of elements."""
        require_known(self, content)
        distance, curve = distances(type(self).__name__, queries, keys), self._curve(queries.device)
        return lambda b, h, i, j: curve(h, distance(b, i, j))

    def _curve(self, device: torch.device) -> Curve:
        owner, needed = f"{type(self).__name__}.curve", "a function of head and distance: of integers that broadcast"
        curve = require_returned(owner, self.curve(device), needed)
        return lambda head, distance: _as_real(require_returned(f"the function of {owner}", curve(head, distance)))

    def _line(self, distances: Int64[Tensor, " distances"]) -> Float[Tensor, "heads distances"]:
        """Return the bias of each head at each distance, also where the curve reads one of them alone, or none."""
        heads = torch.arange(self.num_heads, device=distances.device)[:, None]
        return self._curve(distances.device)(heads, distances).expand(self.num_heads, len(distances))


def tabulate(
    element: Element, batch: int, heads: int, queries: int, keys: int, device: torch.device, first: int = 0
) -> Shaped[Tensor, "batch heads queries keys"]:
    """Evaluate a function of elements at every (batch, head, query, key)."""
    b, h, i, j = (torch.arange(n, device=device) for n in (batch, heads, queries, keys))
    of = require_returned("the bind of a bias", element, ELEMENT)
    table = of(b[:, None, None, None], h[:, None, None], i[:, None] + first, j)
    return require_returned("the function of a bias", table).expand(batch, heads, queries, keys)


def as_score_mod(element: Element) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return a function of elements in FlexAttention's form: the bias added to a score."""

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + element(b, h, i, j)

    return score_mod


def _as_real(values: Real[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return values of a formula that may count in integers, as floating-point numbers."""
    return values if values.is_floating_point() else values.float()


def as_finite(table: Real[Tensor, "*shape"], dtype: torch.dtype | None) -> Float[Tensor, "*shape"]:
    """Cast to a dtype, with its lowest finite number in place of values below its range.

    The lowest number of float16 is -65504: a head of slope 1/2 is below it from distance 131,009 on, and minus infinity
    for every key would make the softmax of the row NaN.
    """
    table = _as_real(table)
    dtype = dtype or table.dtype
    if torch.finfo(dtype).min <= torch.finfo(table.dtype).min:
        return table.to(dtype)
    return table.clamp(min=torch.finfo(dtype).min).to(dtype)


def require_known(scheme: ScoreBias, content: Mapping[str, object]) -> None:
    """Raise SettingError for a keyword that no `bind` has, in that of a bias that reads none of them."""
    if unknown := sorted(content.keys() - {"q", "k", "gates", "causal"}):
        raise SettingError(
            f"{type(scheme).__name__} depends on positions alone, so nothing would read {', '.join(unknown)}.\n"
            "bind takes the positions of queries and keys, q, k, gates and causal."
        )


def require_content(
    owner: str, name: str, x: Float[Tensor, "batch heads tokens features"] | None, head_dim: int
) -> Float[Tensor, "batch heads tokens features"]:
    """Return queries or keys unchanged, after checking that they are there and have head_dim features."""
    if x is None:
        raise DoorError(
            f"{owner} depends on queries and keys, so it needs more than positions: {name} is missing.\n"
            "Use here = where.at(positions) and here.attention(q, k, v)."
        )
    if x.shape[-1] != head_dim:
        raise ShapeError(f"{owner} was made for head_dim={head_dim}, but {name} has shape {tuple(x.shape)}.")
    return x


def for_each_head(
    k: Float[Tensor, "batch key_heads keys head_dim"], num_heads: int
) -> Float[Tensor, "batch heads keys head_dim"]:
    """Repeat each key head for its group of query heads."""
    return k.repeat_interleave(num_heads // k.shape[1], dim=1)


def require_features(scheme: QueryKeyMap | ScoreBias, x: Float[Tensor, "batch tokens features"]) -> None:
    """Raise ShapeError unless token vectors have as many features as the scheme was made for."""
    if x.shape[-1] != scheme.dim:
        raise ShapeError(
            f"{type(scheme).__name__} was made for dim={scheme.dim}, but the token vectors have shape {tuple(x.shape)}."
        )


def contract(equation: str, *factors: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Evaluate torch.einsum in float32 at least, also under autocast."""
    wide = reduce(torch.promote_types, (factor.dtype for factor in factors), torch.float32)
    with full_precision(factors[0].device):
        return torch.einsum(equation, *(factor.to(wide) for factor in factors))


def distances(owner: str, queries: Positions, keys: Positions) -> Distance:
    """Return the distance of each pair as a function of elements; positions of batch 1 broadcast over the batch."""
    at_query, at_key = queries.single_axis(owner), keys.single_axis(owner)

    def distance(b: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return at_query[b % at_query.shape[0], i] - at_key[b % at_key.shape[0], j]

    return distance
