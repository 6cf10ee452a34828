"""Abstract bases of the three doors: the places at which position enters a Transformer.

    x_i         = what(token_i) + input(p_i)                                 InputEncoding
    score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale       QueryKeyMap
                  + score(h, p_i, p_j)                                       ScoreBias

A scheme is a final class derived from one of them. Variants are made by composition, never by subclassing a scheme.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn

from whatwhere.checks import require_device, require_floating, require_whole
from whatwhere.errors import DoorError, PositionError, SettingError, ShapeError
from whatwhere.kernels.blockwise_attention import ByBlocks
from whatwhere.kernels.embedding import Rows
from whatwhere.kernels.toeplitz import toeplitz
from whatwhere.position import Positions, PositionsLike, common_batch, of_queries_and_keys

Bound = tuple[Tensor, ...]
"""What a query-key map computes from positions: tables that all layers may share."""

Element = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""`element(batch, head, query_slot, key_slot)` -> the bias of that score; like a score_mod without the score."""

Curve = Callable[[Tensor, Tensor], Tensor]
"""`curve(head, distance)` -> the bias at that distance."""


class InputEncoding(nn.Module, ABC):
    """Door 1: a vector for each position, added to the token embedding.

        x_i = what(token_i) + input(p_i)

    A subclass sets `dim` and implements `forward`.
    """

    dim: int
    """Features of a vector, equal to those of the token embedding."""

    @abstractmethod
    def forward(self, positions: PositionsLike) -> Float[Tensor, "batch tokens dim"]:
        """Return the vector of each position.

        Args:
            positions: positions, or a tensor of them.

        Returns:
            Vectors of shape (batch, tokens, dim); batch is 1 where all sequences have the same positions.

        Raises:
            PositionError: the scheme is not defined at some position.
        """

    def rows(self, positions: Positions) -> Rows | None:
        """Return a table and the indices of its rows, where the vectors are rows of a table; else None.

        This lets a kernel look up and add tokens and positions in one pass. The table is neither read nor checked here.

        Args:
            positions: positions of the tokens.
        """
        return None


class QueryKeyMap(nn.Module, ABC):
    """Door 2: a map of queries and keys, each by its own position, before their dot product.

        score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale

    A subclass sets `head_dim` and implements `bind`, `map_query` and `map_key`.
    """

    head_dim: int
    """Features of a head before the map."""
    scale: float | None = None
    """The softmax scale that the scheme requires; None leaves 1 / sqrt(head_dim)."""
    follows_length: bool = False
    """True where the map depends on the length of the sequence; then `bind` gets `lengths`."""
    causal_only: bool = False
    """True where the map is not defined for keys later than the query; then attention must be causal."""

    @abstractmethod
    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Compute what depends on positions only, once for all layers.

        Args:
            positions: positions of the queries or keys.
            lengths: length of each token's sequence, or one length for all; passed only to a scheme that follows the
                length.

        Returns:
            Tensors for `map_query` and `map_key`, with an axis of heads of size 1 or more.

        Raises:
            PositionError: the map is not defined at some position.
        """

    @abstractmethod
    def map_query(
        self, q: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens mapped_dim"]:
        """Map queries at the bound positions.

        Args:
            q: queries.
            bound: what `bind` returned for their positions.

        Returns:
            Mapped queries; the number of features may differ from head_dim, equally for keys.
        """

    @abstractmethod
    def map_key(
        self, k: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens mapped_dim"]:
        """Map keys at the bound positions.

        Args:
            k: keys, with any number of heads.
            bound: what `bind` returned for their positions.

        Returns:
            Mapped keys, with as many features as mapped queries.
        """

    def forward(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch key_heads keys head_dim"],
        positions: PositionsLike | None = None,
        key_positions: PositionsLike | None = None,
        *,
        regime_length: int | None = None,
        in_place: bool = False,
    ) -> tuple[Float[Tensor, "batch heads queries mapped_dim"], Float[Tensor, "batch key_heads keys mapped_dim"]]:
        """Map queries and keys.

        Args:
            q, k: queries and keys; k may have fewer heads (grouped queries).
            positions: positions of the queries: Positions, an integer tensor, or a number of tokens from 0; None counts
                all tokens from 0, where there are as many keys as queries.
            key_positions: positions of the keys; None is those of the queries.
            regime_length: sequence length to assume, for schemes that follow the length; None is the length of each
                token's own sequence.
            in_place: write the results over q and k; only for maps that rotate pairs of features.

        Returns:
            The mapped queries and keys; in place q and k themselves.

        Raises:
            ShapeError: q or k do not match the positions or head_dim.
            PositionError: the map is not defined at some position, or positions are missing and there are other numbers
                of queries and of keys.
            SettingError: in_place=True, but the map cannot work in place.
        """
        if positions is None:
            positions = self._tokens_from_zero(q, k, key_positions)
        at_queries, at_keys = of_queries_and_keys(positions, key_positions, q.device)
        self.require_fit("q", q, at_queries)
        self.require_fit("k", k, at_keys)
        bound = for_keys = self.bind_among(at_queries, (at_queries, at_keys), regime_length)
        if at_keys is not at_queries:
            for_keys = self.bind_among(at_keys, (at_queries, at_keys), regime_length)
        return self.map_both(q, k, bound, for_keys, in_place)

    def _tokens_from_zero(self, q: Tensor, k: Tensor, key_positions: PositionsLike | None) -> int:
        """Return the number of tokens where the queries are the keys' tokens; else nothing says where they are."""
        if key_positions is None and q.dim() == k.dim() == 4 and q.shape[2] != k.shape[2]:
            raise PositionError(
                f"{type(self).__name__} got {q.shape[2]} queries and {k.shape[2]} keys without positions, and the "
                "queries may be the last tokens of the keys or another sequence.\n"
                f"For the last tokens: p = positions({k.shape[2]}), and pass p[{-q.shape[2]}:] and p."
            )
        if key_positions is not None:
            raise PositionError(
                f"{type(self).__name__} got key_positions without positions, so nothing says where the queries are.\n"
                "Pass positions of both: rope(q, k, positions, key_positions)."
            )
        return q.shape[-2] if q.dim() == 4 else 0

    def map_both(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch key_heads keys head_dim"],
        at_queries: Bound,
        at_keys: Bound,
        in_place: bool = False,
    ) -> tuple[Float[Tensor, "batch heads queries mapped_dim"], Float[Tensor, "batch key_heads keys mapped_dim"]]:
        """Map queries and keys whose positions are already bound.

        Args:
            q, k: queries and keys.
            at_queries, at_keys: what `bind` returned for their positions.
            in_place: write the results over q and k; only for maps that rotate pairs of features.

        Returns:
            The mapped queries and keys; in place q and k themselves.

        Raises:
            SettingError: in_place=True, but the map cannot work in place.
        """
        if not in_place:
            return self.map_query(q, at_queries), self.map_key(k, at_keys)
        raise SettingError(
            f"{type(self).__name__} cannot write its results over q and k: in_place=True is for maps that rotate pairs "
            "of features, Rotary, AxialRotary, MultimodalRotary and XPos.\nPass in_place=False."
        )

    def bind_among(
        self, positions: Positions, present: tuple[Positions, ...], regime_length: int | None = None
    ) -> Bound:
        """Bind positions, with the sequence lengths where the scheme follows the length.

        Args:
            positions: positions to bind.
            present: all positions of the pass, queries and keys, from which lengths are taken.
            regime_length: one length to assume in place of these.

        Returns:
            What `bind` returns.

        Raises:
            ShapeError: regime_length is not a positive whole number.
        """
        if not self.follows_length:
            return self.bind(positions)
        if regime_length is None:
            return self.bind(positions, positions.lengths(*present))
        require_whole(type(self).__name__, regime_length=regime_length)
        return self.bind(positions, regime_length)

    def require_direction(self, causal: bool) -> None:
        """Check that the scheme supports attention of this direction.

        Args:
            causal: whether attention is causal.

        Raises:
            SettingError: attention is bidirectional, but the scheme supports causal attention only.
        """
        _require_direction(self, causal, "Rotary")

    def require_fit(self, name: str, x: Tensor, positions: Positions) -> None:
        """Check the shape of queries or keys against their positions.

        Args:
            name: what x is called in messages.
            x: queries or keys.
            positions: their positions.

        Raises:
            ShapeError: x is not (batch, heads, tokens, head_dim) with the tokens of these positions.
        """
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

        score(h, i, j) += element(h, p_i, p_j)

    A subclass sets `num_heads` and implements `bind`, which returns the bias as a function of single elements. The
    dense table and FlexAttention's score_mod are both derived from it.
    """

    num_heads: int
    """Heads of the queries."""
    scale: float | None = None
    """The softmax scale that the scheme requires; None leaves 1 / sqrt(head_dim)."""
    by_content: ClassVar[bool] = False
    """True where `bind` needs q, k or gates; then layers cannot share a bias."""
    causal_only: bool = False
    """True where the formula is not defined for keys later than the query; then attention must be causal."""

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
        """Compute what depends on positions (and q, k, gates) once, and return the bias as a function of elements.

        Args:
            queries, keys: positions of the queries and keys.
            q, k: queries and keys; passed only to a bias that depends on content.
            gates: what `gates` returned for all keys.
            causal: whether attention is causal.

        Returns:
            `element(batch, head, query_slot, key_slot)`, whose arguments are integer tensors that broadcast; `head` is
            the head of the query, also with grouped queries.

        Raises:
            DoorError: content is needed, but missing.
            ShapeError: q, k or gates have the wrong shape.
            PositionError: the positions have several axes.
        """

    def gates(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens"] | None:
        """Return what a gated bias needs of each token, to be cached beside its key; None for other biases.

        Args:
            x: the vectors from which queries and keys are projected.
        """
        return None

    def forward(
        self,
        positions: PositionsLike,
        keys: PositionsLike | None = None,
        causal: bool = False,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "batch heads queries keys"]:
        """Return the bias of all pairs as a dense tensor, for the `attn_mask` of scaled_dot_product_attention.

        Args:
            positions: positions of the queries.
            keys: positions of the keys; None is those of the queries.
            causal: include the causal mask, as minus infinity.
            dtype: dtype of the result; None is that of the formula. Values below its range become its lowest finite
                number, so that softmax of a row is not NaN.

        Returns:
            The bias; batch is 1 where all sequences have the same positions.

        Raises:
            DoorError: the bias depends on queries and keys.
            SettingError: causal=False, but the scheme supports causal attention only.
        """
        self._require_no_content()
        self.require_direction(causal)
        at_queries, at_keys = of_queries_and_keys(positions, keys, device_of(self))
        element = self.bind(at_queries, at_keys, causal=causal)
        rows = common_batch(at_queries, at_keys)
        table = tabulate(element, rows, self.num_heads, at_queries.tokens, at_keys.tokens, at_queries.device)
        table = as_finite(table, dtype or table.dtype)
        return table.masked_fill(~at_queries.mask(at_keys), -torch.inf) if causal else table

    def score_mod(
        self, positions: PositionsLike, keys: PositionsLike | None = None
    ) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
        """Return the bias as a score_mod for `torch.nn.attention.flex_attention.flex_attention`.

        It masks nothing; a scheme that is `causal_only` needs a causal block mask as well.

        Args:
            positions: positions of the queries.
            keys: positions of the keys; None is those of the queries.

        Returns:
            `score_mod(score, batch, head, query_slot, key_slot)`.

        Raises:
            DoorError: the bias depends on queries and keys.
        """
        self._require_no_content()
        return as_score_mod(self.bind(*of_queries_and_keys(positions, keys, device_of(self))))

    def require_direction(self, causal: bool) -> None:
        """Check that the scheme supports attention of this direction.

        Args:
            causal: whether attention is causal.

        Raises:
            SettingError: attention is bidirectional, but the scheme supports causal attention only.
        """
        _require_direction(self, causal, "ALiBi")

    def by_blocks(self, positions: Positions, causal: bool) -> ByBlocks | None:
        """Return the bias in the form that blockwise attention reads without a dense table; None where there is none.

        Called only in eager mode, on the CPU, for positions that count up by one.

        Args:
            positions: positions of queries and keys.
            causal: whether attention is causal.
        """
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

        Args:
            device: device of the tensors that the function needs. They are created here rather than in the function,
                because FlexAttention traces it.

        Returns:
            `curve(head, distance)`, whose arguments are integer tensors that broadcast; earlier keys have positive
            distances.
        """

    def by_blocks(self, positions: Positions, causal: bool) -> ByBlocks | None:
        """Return one value for each distance, shared by all pairs at that distance."""
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
        """Return the bias as a function of elements."""
        owner = type(self).__name__
        at_query, at_key = queries.single_axis(owner), keys.single_axis(owner)
        curve = self.curve(queries.device)

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return curve(h, at_query[b % at_query.shape[0], i] - at_key[b % at_key.shape[0], j])

        return element


def device_of(*modules: nn.Module) -> torch.device | None:
    """Return the device of the first parameter that modules have; None where they have none.

    Examples:
        >>> device_of(nn.Identity(), nn.Linear(2, 2, device="meta"))
        device(type='meta')
    """
    return next((parameter.device for module in modules for parameter in module.parameters()), None)


def _require_direction(scheme: QueryKeyMap | ScoreBias, causal: bool, other: str) -> None:
    if scheme.causal_only and not causal:
        raise SettingError(
            f"{type(scheme).__name__} supports causal attention only, but got causal=False.\n"
            f"Pass causal=True, or choose a scheme that supports both directions, such as {other}."
        )


def tabulate(
    element: Element, batch: int, heads: int, queries: int, keys: int, device: torch.device, first: int = 0
) -> Shaped[Tensor, "batch heads queries keys"]:
    """Evaluate a function of elements at every (batch, head, query, key).

    Args:
        element: bias or mask as a function of elements.
        batch, heads, queries, keys: sizes of the table.
        device: device of the table.
        first: index of its first query.

    Examples:
        >>> tabulate(lambda b, h, i, j: i - j, 1, 1, 2, 2, torch.device("cpu"))
        tensor([[[[ 0, -1],
                  [ 1,  0]]]])
    """
    b, h, i, j = (torch.arange(n, device=device) for n in (batch, heads, queries, keys))
    table = element(b[:, None, None, None], h[:, None, None], i[:, None] + first, j)
    return table.expand(batch, heads, queries, keys)


def as_score_mod(element: Element) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return a function of elements in FlexAttention's form: the bias added to a score."""

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + element(b, h, i, j)

    return score_mod


def as_finite(table: Float[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """Cast to a dtype, with its lowest finite number in place of values below its range.

    The lowest number of float16 is -65504: a head of slope 1/2 is below it from distance 131,009 on, and minus infinity
    for every key would make the softmax of the row NaN.
    """
    if torch.finfo(dtype).min <= torch.finfo(table.dtype).min:
        return table.to(dtype)
    return table.clamp(min=torch.finfo(dtype).min).to(dtype)
