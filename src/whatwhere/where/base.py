"""Abstract bases of the doors, where position enters a Transformer: the first two here, the third in score_bias.py.

    x_i         = what(token_i) + input(p_i)                                 InputEncoding
    score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale       QueryKeyMap
                  + score(h, p_i, p_j)                                       ScoreBias

A scheme is a final class derived from one of them. Variants are made by composition, never by subclassing a scheme.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, final

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.errors import PositionError, SettingError, ShapeError
from whatwhere.initialization import sample_normal
from whatwhere.kernels.embedding import Rows
from whatwhere.position.positions import Positions, PositionsLike, as_positions, is_number, require_one_numbering
from whatwhere.tensor_checks import (
    readable,
    require_device,
    require_floating,
    require_generator,
    require_range,
    require_tensors,
)
from whatwhere.where.head_shards import OfHeads, WithSettings

Bound = tuple[Tensor, ...]  # what a query-key map computes from positions: tables that all layers may share
Heads = Float[Tensor, "batch heads tokens head_dim"]  # queries, or keys with any number of heads
MappedHeads = Float[Tensor, "batch mapped_heads tokens mapped_dim"]
"""The same after a map, which may change the numbers of heads and of features, equally for queries and keys."""


class InputEncoding(WithSettings, ABC):
    """Door 1: a vector for each position, added to the token embedding.

        x_i = what(token_i) + input(p_i)

    A subclass sets `dim` and implements `forward`.
    """

    __call__: Callable[..., Tensor]  # nn.Module returns Any

    _shortcuts: ClassVar = {"rows": ("forward",)}
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
            PositionError: If the scheme is not defined at some position.
        """

    def rows(self, positions: Positions) -> Rows | None:
        """Return a table and the indices of its rows, where the vectors are rows of a table; else None.

        This lets a kernel look up and add tokens and positions in one pass. The table is neither read nor checked here.
        """
        return None

    def require_defined(self, positions: Positions) -> None:
        """Raise PositionError unless there is a vector for each position, as a call does of positions on the CPU.

        On a GPU a call cannot read the positions without a wait, and one without a row ends the program: ask here
        first, with positions on the CPU. A subclass with a table that ends overrides it.

        Raises:
            PositionError: If the scheme is not defined at some position.
        """


class QueryKeyMap(OfHeads, ABC):
    """Door 2: a map of queries and keys, each by its own position, before their dot product.

        score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale

    A subclass sets `head_dim` and implements `bind`, `map_query` and `map_key`.
    """

    __call__: Callable[..., tuple[Tensor, Tensor]]  # nn.Module returns Any

    _shortcuts: ClassVar = {"map_both": ("map_query", "map_key"), "rerotate": ("map_key",)}
    head_dim: int
    """Features of a head before the map."""
    scale: float | None = None
    """The softmax scale that the scheme requires; None leaves 1 / sqrt(head_dim)."""
    causal_only: bool = False
    """True where the map is not defined for keys later than the query; then attention must be causal."""
    follows_length: bool = False
    """True where the map depends on the length of the sequence; then `bind` gets `lengths`."""
    by_content: ClassVar[bool] = False
    """True for a RotationByContent, which needs increments computed from token vectors; then layers share no tables."""

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
            PositionError: If the map is not defined at some position.
        """

    @abstractmethod
    def map_query(self, q: Heads, bound: Bound) -> MappedHeads:
        """Map queries at the positions that `bind` was given; they may get other features than head_dim, as keys do."""

    @abstractmethod
    def map_key(self, k: Heads, bound: Bound) -> MappedHeads:
        """Map keys, with any number of heads, at the positions that `bind` was given."""

    def rerotate(self, k: MappedHeads, old: Bound, new: Bound) -> MappedHeads:
        """Map cached keys, as `map_key` returned them, from what they were bound to, to other positions or lengths.

        Raises:
            SettingError: If the map cannot: it does not override this.
        """
        raise _without_rerotate(self)

    @final  # type: ignore[misc]  # a variable of nn.Module
    def forward(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch key_heads keys head_dim"],
        positions: PositionsLike | None = None,
        key_positions: PositionsLike | None = None,
        *,
        regime_length: int | None = None,
        in_place: bool = False,
    ) -> tuple[
        Float[Tensor, "batch mapped_heads queries mapped_dim"], Float[Tensor, "batch mapped_key_heads keys mapped_dim"]
    ]:
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
            ShapeError: If q or k do not match the positions or head_dim.
            PositionError: If the map is not defined at some position, or positions are missing and there are other
                numbers of queries and of keys.
            SettingError: If in_place=True, but the map cannot work in place.
        """
        require_tensors(q=q, k=k)
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
        """Return the number of tokens where queries and keys are the same tokens, else raise PositionError."""
        if key_positions is None and q.dim() == k.dim() == 4 and q.shape[2] != k.shape[2]:
            raise PositionError(
                f"{type(self).__name__} got {q.shape[2]} queries and {k.shape[2]} keys without positions, and the "
                "queries may be the last tokens of the keys or another sequence.\n"
                f"For the last tokens: p = positions({k.shape[2]}), and pass p[{-q.shape[2]}:] and p."
            )
        if key_positions is not None:
            raise PositionError(
                f"{type(self).__name__} got key_positions without positions, so those of the queries are not known.\n"
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
    ) -> tuple[
        Float[Tensor, "batch mapped_heads queries mapped_dim"], Float[Tensor, "batch mapped_key_heads keys mapped_dim"]
    ]:
        """Map queries and keys whose positions are already bound: `at_queries`, `at_keys` are what `bind` returned.

        In place the results are q and k themselves; only maps that rotate pairs of features can.

        Raises:
            SettingError: If in_place=True, but the map cannot work in place.
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
        """Bind positions, with the sequence lengths where the scheme follows the length."""
        if not self.follows_length:
            return self.bind(positions)
        if regime_length is None:
            lengths, whole = positions.lengths(*present), positions.whole_lengths(*present)
            bound = self.bind(positions, lengths)
            if whole is not None and not (readable(lengths) and torch.equal(lengths, whole)):
                self._require_one_regime(bound, self.bind(positions, whole), lengths, whole)
            return bound
        require_whole(type(self).__name__, regime_length=regime_length)
        return self.bind(positions, regime_length)

    def _require_one_regime(self, so_far: Bound, of_whole: Bound, lengths: Tensor, whole: Tensor) -> None:
        """Raise PositionError where the length of a slice and that of the text it is of differ in what is bound."""

        def differing(_: int, at: tuple[int, ...]) -> PositionError:
            slot = int((lengths != whole).flatten().nonzero()[0])
            return PositionError(
                f"{type(self).__name__} follows the length of the text, and these positions are a slice p[a:b]: up to "
                f"there it has {int(lengths.flatten()[slot])} tokens, as a whole {int(whole.flatten()[slot])}.\n"
                "For a part of the whole: p.shards(n) or p.take(slots). For a text so far, pass "
                "where.at(queries, keys, regime_length=...), or go on by p.next() and p.append(1)."
            )

        differ = torch.stack([(a != b).any() for a, b in zip(so_far, of_whole, strict=True)])
        require_range(differ.long(), 1, differing)

    def require_direction(self, causal: bool) -> None:
        """Raise SettingError if attention is bidirectional, but the scheme supports causal attention only."""
        require_direction(self, self.causal_only, causal, "Rotary")

    def require_fit(self, name: str, x: Tensor, positions: Positions) -> None:
        """Check the shape of queries or keys against their positions.

        Raises:
            ShapeError: If x is not (batch, heads, tokens, head_dim) with the tokens of these positions.
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


def _without_rerotate(scheme: QueryKeyMap) -> SettingError:
    return SettingError(
        f"{type(scheme).__name__} has no rerotate, so keys that it has mapped stay at their positions.\n"
        "Compute them again from their hidden vectors; or, in a map of your own, override rerotate."
    )


class NormalInit(nn.Module):
    """A scheme whose own parameters are all sampled from N(0, std)."""

    std: float
    """Standard deviation of the parameters before training."""

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Sample all parameters anew; SettingError if the generator is on another device."""
        for parameter in self.parameters(recurse=False):
            require_generator(type(self).__name__, generator, parameter)
            sample_normal(parameter, self.std, generator)


def of_queries_and_keys(
    queries: PositionsLike, keys: PositionsLike | None = None, device: torch.device | str | None = None
) -> tuple[Positions, Positions]:
    """Return the positions of queries and those of keys, one object where they are the same."""
    at_queries = as_positions(queries, device)
    if keys is None or keys is queries or (is_number(queries) and is_number(keys) and queries == keys):
        return at_queries, at_queries
    at_keys = as_positions(keys, device)
    require_one_numbering(at_queries, at_keys)
    if is_number(queries) and at_queries.tokens != at_keys.tokens:
        raise PositionError(
            f"{at_queries.tokens} queries and {at_keys.tokens} keys do not say whether the queries are the last tokens "
            "of the keys or another sequence.\n"
            f"For the last tokens: p = positions({at_keys.tokens}), and p[{-at_queries.tokens}:] for the queries; for "
            f"another sequence positions({at_queries.tokens})."
        )
    return at_queries, at_keys


def device_of(*modules: nn.Module) -> torch.device | None:
    """Return the device of the first parameter that modules have; None where they have none."""
    return next((parameter.device for module in modules for parameter in module.parameters()), None)


def require_query_heads(owner: str, num_heads: int, q: Heads) -> None:
    """Raise ShapeError where queries have other heads than a map was made for."""
    if q.shape[1] != num_heads:
        raise ShapeError(
            f"{owner} was made for num_heads={num_heads}, but q has {q.shape[1]} heads: shape {tuple(q.shape)}."
        )


def require_direction(scheme: nn.Module, causal_only: bool, causal: bool, other: str) -> None:
    """Raise SettingError where a scheme supports causal attention only, but attention is bidirectional."""
    if causal_only and not causal:
        raise SettingError(
            f"{type(scheme).__name__} supports causal attention only, but got causal=False.\n"
            f"Pass causal=True, or choose a scheme that supports both directions, such as {other}."
        )
