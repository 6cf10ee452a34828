"""The three doors through which position enters a Transformer, and no fourth.

    x_i         = what(token_i) + input(p_i)                                 InputEncoding
    score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale       QueryKeyMap
                  + score(h, p_i, p_j)                                       ScoreBias

A scheme is a final class behind one of them. Variation is by composition, never by subclassing a scheme.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float, Int64, Integer, Shaped
from torch import Tensor, nn

from whatwhere.checks import require_device, require_floating, require_whole
from whatwhere.errors import DoorError, SettingError, ShapeError
from whatwhere.kernels.blocks import ByBlocks
from whatwhere.kernels.embedding import Rows
from whatwhere.kernels.toeplitz import toeplitz
from whatwhere.ruler import Positions, as_positions

PositionsLike = Positions | Integer[Tensor, "..."]
Bound = tuple[Tensor, ...]
"""What a query-key map keeps of some positions: tables that every layer may share."""

Element = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""`element(batch, head, query_slot, key_slot)` -> what is added to that score."""

Curve = Callable[[Tensor, Tensor], Tensor]
"""`curve(head, distance)` -> what is added at that distance."""


class InputEncoding(nn.Module, ABC):
    """Door 1: a vector for each position, added to the token's vector."""

    dim: int

    @abstractmethod
    def forward(self, positions: PositionsLike) -> Float[Tensor, "batch tokens dim"]:
        """Give the vector of each position; batch is 1 where all sequences stand alike."""

    def rows(self, positions: Positions) -> Rows | None:
        """Give the table and the numbers of its rows where these are all there is to the vectors; else None.

        Nothing is read or checked yet. Whoever reads does both at once, or calls the scheme after all.
        """
        return None


class QueryKeyMap(nn.Module, ABC):
    """Door 2: a map of queries and keys, each by its own position, before their inner product."""

    head_dim: int
    scale: float | None = None
    """The softmax factor that the scheme asks for; None leaves 1 / sqrt(head_dim)."""
    follows_length: bool = False
    """True where the map depends on how long the sequence is: then bind is told."""
    causal_only: bool = False
    """True where the map has no meaning for keys later than the query: then attention must be causal."""

    @abstractmethod
    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Do the work that depends on positions only, once for all layers.

        `lengths` is given to a scheme that follows the length: for each token, that of its sequence.
        """

    @abstractmethod
    def map_query(
        self, q: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens mapped_dim"]:
        """Map queries that stand at the bound positions."""

    @abstractmethod
    def map_key(
        self, k: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens mapped_dim"]:
        """Map keys that stand at the bound positions."""

    def forward(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch key_heads keys head_dim"],
        positions: PositionsLike,
        key_positions: PositionsLike | None = None,
        *,
        regime_length: int | None = None,
        in_place: bool = False,
    ) -> tuple[Float[Tensor, "batch heads queries mapped_dim"], Float[Tensor, "batch key_heads keys mapped_dim"]]:
        """Map queries and keys; keys stand where the queries do, unless key_positions says otherwise.

        `regime_length` is the length to assume for schemes that follow it; None is that of each token's own sequence.
        `in_place=True` writes over q and k, and gives them back; maps that turn pairs of features can do that.
        """
        at_queries = as_positions(positions)
        at_keys = at_queries if key_positions is None else as_positions(key_positions)
        self.require_fit("q", q, at_queries)
        self.require_fit("k", k, at_keys)
        bound = for_keys = self.bind_among(at_queries, (at_queries, at_keys), regime_length)
        if at_keys is not at_queries:
            for_keys = self.bind_among(at_keys, (at_queries, at_keys), regime_length)
        return self.map_both(q, k, bound, for_keys, in_place)

    def map_both(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch key_heads keys head_dim"],
        at_queries: Bound,
        at_keys: Bound,
        in_place: bool = False,
    ) -> tuple[Float[Tensor, "batch heads queries mapped_dim"], Float[Tensor, "batch key_heads keys mapped_dim"]]:
        """Map queries and keys; in_place=True raises SettingError unless the map turns pairs of features."""
        if not in_place:
            return self.map_query(q, at_queries), self.map_key(k, at_keys)
        raise SettingError(
            f"{type(self).__name__} cannot write its results over q and k: in_place=True is for maps that turn pairs "
            "of features, Rotary, AxialRotary, MultimodalRotary and XPos.\nPass in_place=False."
        )

    def bind_among(
        self, positions: Positions, present: tuple[Positions, ...], regime_length: int | None = None
    ) -> Bound:
        """Bind positions; a scheme that follows the length takes it from all that is present, or is told it."""
        if not self.follows_length:
            return self.bind(positions)
        if regime_length is None:
            return self.bind(positions, positions.lengths(*present))
        require_whole(type(self).__name__, regime_length=regime_length)
        return self.bind(positions, regime_length)

    def require_direction(self, causal: bool) -> None:
        """Raise SettingError where attention would look at later keys, and the scheme says nothing of them."""
        _require_direction(self, causal, "Rotary")

    def require_fit(self, name: str, x: Tensor, positions: Positions) -> None:
        """Raise ShapeError unless x is (batch, heads, tokens, head_dim) with the tokens of these positions."""
        owner, shape = type(self).__name__, x.shape
        if len(shape) != 4:
            raise ShapeError(
                f"{owner} takes (batch, heads, tokens, head_dim), but {name} has shape {tuple(x.shape)}.\n"
                "From a projection: x.unflatten(-1, (num_heads, head_dim)).transpose(1, 2)."
            )
        if not x.is_floating_point():
            require_floating(owner, **{name: x})
        if shape[3] != self.head_dim:
            raise ShapeError(f"{owner} was made for head_dim={self.head_dim}, but {name} has shape {tuple(x.shape)}.")
        _, rows, tokens = positions.index.shape
        if shape[2] != tokens:
            raise ShapeError(
                f"{name} has {x.shape[-2]} tokens, but the positions {positions.tokens}; (batch, heads, tokens, "
                f"head_dim) is expected, and {name} has shape {tuple(x.shape)}.\n"
                f"If tokens and heads are swapped, pass {name}.transpose(1, 2)."
            )
        if rows not in (1, shape[0]):
            raise ShapeError(
                f"{name} has batch {x.shape[0]}, but the positions {positions.batch}: equal or 1 is needed."
            )
        if x.device != positions.index.device:
            require_device(name, x, positions.device)


class ScoreBias(nn.Module, ABC):
    """Door 3: a number for each pair of positions, added to the scaled score.

    A scheme is written once, as a formula by element; the dense table and FlexAttention's score_mod both come from it.
    """

    num_heads: int
    scale: float | None = None
    """The softmax factor that the scheme asks for; None leaves 1 / sqrt(head_dim)."""
    by_content: ClassVar[bool] = False
    """True where bind needs q, k or gates: then each layer has scores of its own."""
    causal_only: bool = False
    """True where the formula has no meaning for keys later than the query: then attention must be causal."""

    @abstractmethod
    def bind(
        self,
        queries: Positions,
        keys: Positions,
        *,
        q: Float[Tensor, "batch heads queries head_dim"] | None = None,
        k: Float[Tensor, "batch key_heads keys head_dim"] | None = None,
        gates: Float[Tensor, "batch heads keys"] | None = None,
        causal: bool = True,
    ) -> Element:
        """Do the work that depends on positions (and q, k, gates) once; give the formula by element.

        `head` is the query's head, also under grouped queries.
        """

    def gates(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens"] | None:
        """Give what a gated bias needs of each token, to be cached beside its key; None for the others."""
        return None

    def forward(
        self,
        positions: PositionsLike,
        keys: PositionsLike | None = None,
        causal: bool = False,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "batch heads queries keys"]:
        """Give the table of all pairs; causal=True folds the mask in as minus infinity.

        Values that the dtype cannot hold become its lowest finite number, so that no row turns into NaN.
        """
        self._require_no_content()
        self.require_direction(causal)
        at_queries = as_positions(positions)
        at_keys = at_queries if keys is None else as_positions(keys)
        element = self.bind(at_queries, at_keys, causal=causal)
        rows = max(at_queries.batch, at_keys.batch)
        table = tabulate(element, rows, self.num_heads, at_queries.tokens, at_keys.tokens, at_queries.device)
        table = as_finite(table, dtype or table.dtype)
        return table.masked_fill(~at_queries.mask(at_keys), -torch.inf) if causal else table

    def score_mod(
        self, positions: PositionsLike, keys: PositionsLike | None = None
    ) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
        """Give the same numbers as a score_mod for `torch.nn.attention.flex_attention.flex_attention`.

        It masks nothing; a scheme that is `causal_only` needs a causal block mask beside it.
        """
        self._require_no_content()
        at_queries = as_positions(positions)
        element = self.bind(at_queries, at_queries if keys is None else as_positions(keys))
        return as_score_mod(element)

    def require_direction(self, causal: bool) -> None:
        """Raise SettingError where attention would look at later keys, and the scheme says nothing of them."""
        _require_direction(self, causal, "ALiBi")

    def by_blocks(self, positions: Positions, causal: bool) -> ByBlocks | None:
        """Say how attention among tokens that count on gets the bias without a table; None where it cannot.

        Called eagerly, on the CPU, for positions that `counts_on`.
        """
        return None

    def _require_no_content(self) -> None:
        if self.by_content:
            raise DoorError(
                f"{type(self).__name__} depends on queries and keys, so positions alone give no table.\n"
                "Use here = where.at(positions) and here.attention(q, k, v)."
            )


class DistanceBias(ScoreBias, ABC):
    """A bias that depends on nothing but the distance, query minus key.

    Written once, as a formula by head and distance. Where queries and keys are plain stretches the whole table is
    known from one value a distance, and attention makes use of that.
    """

    @abstractmethod
    def curve(self, device: torch.device) -> Curve:
        """Give the bias as a function of head and distance, which broadcast; the past is positive.

        Tensors that it needs are made here, on the device, and not inside the function, which kernels trace.
        """

    def by_blocks(self, positions: Positions, causal: bool) -> ByBlocks | None:
        """Give one value a distance, which stands for all pairs at that distance."""
        heads = torch.arange(self.num_heads, device=positions.device)[:, None]
        distances = torch.arange(1 - positions.tokens, positions.tokens, device=positions.device)
        return toeplitz(self.curve(positions.device)(heads, distances), causal)

    def bind(
        self,
        queries: Positions,
        keys: Positions,
        *,
        q: Tensor | None = None,
        k: Tensor | None = None,
        gates: Tensor | None = None,
        causal: bool = True,
    ) -> Element:
        """Give the bias by element."""
        owner = type(self).__name__
        at_query, at_key = queries.single_axis(owner), keys.single_axis(owner)
        curve = self.curve(queries.device)

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return curve(h, at_query[b % at_query.shape[0], i] - at_key[b % at_key.shape[0], j])

        return element


def _require_direction(scheme: QueryKeyMap | ScoreBias, causal: bool, other: str) -> None:
    if scheme.causal_only and not causal:
        raise SettingError(
            f"{type(scheme).__name__} says nothing of keys later than the query, but got causal=False.\n"
            f"Pass causal=True, or choose a scheme that looks both ways, such as {other}."
        )


def tabulate(
    element: Element, batch: int, heads: int, queries: int, keys: int, device: torch.device, first: int = 0
) -> Shaped[Tensor, "batch heads queries keys"]:
    """Evaluate a formula by element at every (batch, head, query, key), from the first query that is asked for."""
    b, h, i, j = (torch.arange(n, device=device) for n in (batch, heads, queries, keys))
    table = element(b[:, None, None, None], h[:, None, None], i[:, None] + first, j)
    return table.expand(batch, heads, queries, keys)


def as_score_mod(element: Element) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Turn a formula by element into FlexAttention's form: the score comes in and goes out."""

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + element(b, h, i, j)

    return score_mod


def as_finite(table: Float[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """Cast, with the dtype's lowest finite number in place of values below it.

    float16 ends at -65504: a head of slope 1/2 is beyond it at distance 131,009, and minus infinity for every key
    would make the row NaN.
    """
    if torch.finfo(dtype).min <= torch.finfo(table.dtype).min:
        return table.to(dtype)
    return table.clamp(min=torch.finfo(dtype).min).to(dtype)
