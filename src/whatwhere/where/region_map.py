"""What SelfExtend and DualChunk share: a rotary map at other coordinates for each region of pairs of query and key.

    score(i, j) = < R(a_r(p_i)) q_i, R(b_r(p_j)) k_j > * scale        r the region of the pair

A key's coordinates follow from its own position alone, so a KV cache stores rotated keys. The softmax is over all keys
of all regions at once: attention lists each key once for each region, and a mask leaves the one of the pair's region.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from whatwhere.errors import DoorError, ShapeError
from whatwhere.position.positions import Positions, common_batch
from whatwhere.tensor_checks import readable
from whatwhere.where.attention import Scores
from whatwhere.where.base import Bound, Heads, MappedHeads, QueryKeyMap
from whatwhere.where.query_key.query_factor import QueryFactor
from whatwhere.where.rotary_map import RotaryMap
from whatwhere.where.score_bias import tabulate

Region = Callable[[Tensor, Tensor, Tensor], Tensor]
"""`region(batch, query_slot, key_slot)` -> which of the regions of a map a pair belongs to, from 0 on."""


class RegionMap(QueryKeyMap):
    """Rotate queries and keys by a rotary map, at other coordinates in each region of pairs.

    Mapped queries have a group of heads for each region, in their order, and so have keys with `key_regions` > 1. So
    no attention but `Here.attention` takes them for queries and keys of the usual kind.

    A subclass sets `regions` and `key_regions`, and implements `at_queries`, `at_keys`, `region` and `one_region`.
    """

    regions: int
    """In how many regions pairs are mapped differently; mapped queries have a group of heads for each."""
    key_regions: int = 1
    """For how many of the regions keys are mapped differently: all, or 1."""
    head_axes: ClassVar = {}
    causal_only = True

    def __init__(self, then: RotaryMap) -> None:
        super().__init__()
        owner = type(self).__name__
        if not isinstance(then, RotaryMap):
            given = f"the class {then.__name__}" if isinstance(then, type) else type(then).__name__
            raise DoorError(f"{owner} rotates by a rotary map, such as Rotary(head_dim=64), but got {given}.")
        self.then, self.head_dim = then, then.head_dim
        self.scale, self.follows_length = then.scale, then.follows_length

    def attributes_of_heads(self, first: int, count: int, total: int) -> Mapping[str, object]:
        """Return the rotary map for some heads."""
        return {"then": self.then.heads(first, count, total=total)}

    @abstractmethod
    def at_queries(self, p: Int64[Tensor, "batch tokens"]) -> tuple[Int64[Tensor, "batch tokens"], ...]:
        """Return the coordinates by which queries are rotated, for each region."""

    @abstractmethod
    def at_keys(self, p: Int64[Tensor, "batch tokens"]) -> tuple[Int64[Tensor, "batch tokens"], ...]:
        """Return the coordinates by which keys are rotated, for each region, or one for all."""

    @abstractmethod
    def region(self, queries: Positions, keys: Positions) -> Region:
        """Return the region of each pair."""

    @abstractmethod
    def one_region(self, queries: Positions) -> bool:
        """Return whether all pairs are known to be in the first region, without reading a device."""

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return the tables of the rotary map for queries of each region, and then for keys."""
        p = positions.single_axis(type(self).__name__)
        tables: list[Tensor] = []
        for index in (*self.at_queries(p), *self.at_keys(p)):
            moved = Positions(index[None], positions.order, positions.segment)
            tables += self.then.bind(moved, lengths) if self.follows_length else self.then.bind(moved)
        return tuple(tables)

    def map_query(self, q: Heads, bound: Bound) -> MappedHeads:
        """Rotate queries for each region."""
        bounds = self._split(bound)[: self.regions]
        return torch.cat([self.then.map_query(q, each) for each in bounds], dim=1)

    def map_key(self, k: Heads, bound: Bound) -> MappedHeads:
        """Rotate keys for each region, or once for all."""
        bounds = self._split(bound)[self.regions :]
        return torch.cat([self.then.map_key(k, each) for each in bounds], dim=1)

    def rerotate(self, k: MappedHeads, old: Bound, new: Bound) -> MappedHeads:
        """Rotate cached keys to other positions, for each region."""
        of_keys = zip(self._split(old)[self.regions :], self._split(new)[self.regions :], strict=True)
        parts = k.chunk(self.key_regions, dim=1)
        return torch.cat(
            [self.then.rerotate(part, *bounds) for part, bounds in zip(parts, of_keys, strict=True)], dim=1
        )

    def __repr__(self) -> str:
        """Return code that makes it, in one line; nn.Module would print `then` in lines of its own."""
        return f"{type(self).__name__}({self.then}, {self.extra_repr()})"

    def _split(self, bound: Bound) -> list[Bound]:
        size = len(bound) // (self.regions + self.key_regions)
        return [bound[n : n + size] for n in range(0, len(bound), size)]


def region_map_of(scheme: QueryKeyMap | None) -> RegionMap | None:
    """Return the map that differs by region of pairs: the scheme, or the one whose queries it multiplies; else None."""
    while isinstance(scheme, QueryFactor):
        scheme = scheme.then
    return scheme if isinstance(scheme, RegionMap) else None


def by_region(
    scheme: RegionMap,
    q: Float[Tensor, "batch mapped_heads queries head_dim"],
    k: Float[Tensor, "batch mapped_key_heads keys head_dim"],
    v: Float[Tensor, "batch key_heads keys value_dim"],
    scores: Scores,
    at_queries: Positions,
    at_keys: Positions,
) -> tuple[Tensor, Tensor, Tensor, Scores]:
    """List each key once for each region, with a mask that leaves the key of the pair's region.

    The features of the regions stand side by side, and those of a key are 0 outside of its region, so that one dot
    product is that of the key's region.
    """
    of_pair, regions, rows = scheme.region(at_queries, at_keys), scheme.regions, common_batch(at_queries, at_keys)
    keys, head_dim = k.shape[2], k.shape[3]
    side_by_side = q.unflatten(1, (regions, -1)).permute(0, 2, 3, 1, 4).flatten(3)
    parts = k.chunk(regions, dim=1) if scheme.key_regions > 1 else (k,) * regions
    listed = [F.pad(part, (r * head_dim, (regions - 1 - r) * head_dim)) for r, part in enumerate(parts)]

    def inside(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return of_pair(b, i, j % keys) == j // keys

    element, allowed = scores.element, scores.allowed

    def added(dtype: torch.dtype) -> Tensor:
        own = tabulate(inside, rows, 1, q.shape[2], regions * keys, q.device)
        table = scores.added(dtype)
        if table is None:
            return own
        table = table.repeat(1, 1, 1, regions)
        return table & own if table.dtype == torch.bool else table.masked_fill(~own, -torch.inf)

    def visible(first: int, last: int) -> Tensor:
        chosen = tabulate(lambda b, h, i, j: of_pair(b, i, j), rows, 1, last - first, keys, q.device, first)
        own = torch.cat([(chosen == r).any(2)[:, 0].any(0) for r in range(regions)])
        if scores.visible is not None:
            seen = torch.zeros(keys, dtype=torch.bool, device=q.device)
            seen[scores.visible(first, last)] = True
            own = own & seen.repeat(regions)
        return own.nonzero()[:, 0] if bool(own.any()) else own.new_zeros(1, dtype=torch.long)  # it needs a key

    longer = replace(
        scores,
        element=None if element is None else lambda b, h, i, j: element(b, h, i, j % keys),
        allowed=inside if allowed is None else lambda b, h, i, j: inside(b, h, i, j) & allowed(b, h, i, j % keys),
        run=False,
        added=added,
        blocks=None,
        batch=max(scores.batch, rows),
        visible=visible if readable(at_queries.order) else None,
        reach=keys,
        block_mask=None,
        flash=None,
    )
    # PyTorch's fused kernels need values with as many features as keys.
    values = F.pad(v, (0, max(0, regions * head_dim - v.shape[3]))).repeat(1, 1, regions, 1)
    return side_by_side, torch.cat(listed, dim=2), values, longer


def products(
    scheme: QueryKeyMap,
    q: Float[Tensor, "batch mapped_heads queries mapped_dim"],
    k: Float[Tensor, "batch mapped_key_heads keys mapped_dim"],
    queries: Positions,
    keys: Positions,
) -> Float[Tensor, "batch heads queries keys"]:
    """Return the dot products of all mapped queries and keys, each in the region of its pair."""
    of_regions = region_map_of(scheme)
    if of_regions is None:
        return q @ k.mT
    heads, region = q.shape[1] // of_regions.regions, of_regions.region(queries, keys)
    repeated = k.repeat(1, of_regions.regions // of_regions.key_regions, 1, 1)
    each = (q @ repeated.mT).unflatten(1, (of_regions.regions, heads))
    sizes = (common_batch(queries, keys), 1, queries.tokens, keys.tokens, queries.device)
    chosen = tabulate(lambda b, h, i, j: region(b, i, j), *sizes)
    index = chosen[:, None].expand(len(q), 1, heads, -1, -1)
    return torch.gather(each, 1, index)[:, 0]


def of_first_region(
    scheme: RegionMap,
    q: Float[Tensor, "batch mapped_heads queries head_dim"],
    k: Float[Tensor, "batch mapped_key_heads keys head_dim"],
    v: Float[Tensor, "batch key_heads keys value_dim"],
) -> tuple[Float[Tensor, "batch heads queries head_dim"], Float[Tensor, "batch key_heads keys head_dim"]]:
    """Return queries and keys as they are mapped for the first region."""
    if q.shape[1] % scheme.regions or (v.dim() == 4 and k.shape[1] != scheme.key_regions * v.shape[1]):
        raise ShapeError(
            f"{type(scheme).__name__} maps queries to {scheme.regions} times their heads and keys to "
            f"{scheme.key_regions} times theirs, a group for each region of pairs, but q has {q.shape[1]} heads, k "
            f"{k.shape[1]} and v {v.shape[1]}.\nMap queries and keys first: q, k = here.query_key(q, k)."
        )
    return q[:, : q.shape[1] // scheme.regions], k[:, : k.shape[1] // scheme.key_regions]
