"""Self-Extend and dual chunk attention: rotary maps at other coordinates in each region of pairs."""

from typing import final

from jaxtyping import Int64
from torch import Tensor

from whatwhere.checks import require_whole
from whatwhere.errors import ShapeError
from whatwhere.position.positions import Positions
from whatwhere.where.region_map import Region, RegionMap
from whatwhere.where.rotary_map import RotaryMap
from whatwhere.where.score_bias import distances


@final
class SelfExtend(RegionMap):
    """Rotate near pairs by their distance and far ones by a distance of groups, so that a model reads longer text.

        distance(i, j) = p_i - p_j                    where p_i - p_j < W
                         p_i // G - p_j // G + W - W // G        beyond

    Jin et al. 2024, Self-Extend, https://arxiv.org/abs/2401.01325. A model trained to length L reads up to about
    (L - W) G + W tokens without training, and no distance is above L. Queries and keys are rotated twice, at p and at
    p // G. Where G does not divide W, the authors' code has W - W / G in one place and W - W // G in another; the paper
    and this class have the latter. Attention must be causal. Windows and other masks are as ever.

    Attention runs over a list that has each key twice, with masks: several times the cost of plain attention. Texts up
    to W cost and compute what `then` alone does. A KV cache stores each key twice. Score biases that read queries and
    keys get the near ones.

    Args:
        then: the rotary map, such as Rotary(head_dim=64).
        window: W, the distances that stay as they are; 512 to 1,024 in the paper.
        group_size: G, positions in a group; 1 changes nothing.

    Fixed, unless `then` is learned. Any length. Engines: dense, sdpa, flex. Used by: the paper's language models,
    without training.

    Raises:
        DoorError: If `then` is not a rotary map.
        ShapeError: If a size is not a whole number of at least 1.

    Examples:
        >>> import torch
        >>> from whatwhere import Rotary, Where
        >>> where = Where(SelfExtend(Rotary(head_dim=4), window=512, group_size=8))
        >>> here, q = where.at(3), torch.ones(1, 2, 3, 4)
        >>> here(q, q, q).shape
        torch.Size([1, 2, 3, 4])
    """

    settings_in_repr = ("window", "group_size")
    regions = 2
    key_regions = 2

    def __init__(self, then: RotaryMap, window: int, group_size: int) -> None:
        super().__init__(then)
        require_whole("SelfExtend", window=window, group_size=group_size)
        self.window, self.group_size = window, group_size

    def at_queries(self, p: Int64[Tensor, "batch tokens"]) -> tuple[Int64[Tensor, "batch tokens"], ...]:
        """Return p, and p // G + W - W // G."""
        return p, p // self.group_size + (self.window - self.window // self.group_size)

    def at_keys(self, p: Int64[Tensor, "batch tokens"]) -> tuple[Int64[Tensor, "batch tokens"], ...]:
        """Return p, and p // G."""
        return p, p // self.group_size

    def region(self, queries: Positions, keys: Positions) -> Region:
        """Return 0 for pairs at a distance below W, else 1."""
        distance = distances("SelfExtend", queries, keys)
        return lambda b, i, j: (distance(b, i, j) >= self.window).long()

    def one_region(self, queries: Positions) -> bool:
        """Return whether all queries are known to be before position W, so that no distance is W."""
        return queries.max_length is not None and queries.max_length <= self.window


@final
class DualChunk(RegionMap):
    """Rotate keys by their position in a chunk, and queries by one that depends on how far the key's chunk is.

        distance(i, j) = p_i mod s - p_j mod s               in one chunk of s positions (intra)
                         min(p_i mod s + s, M) - p_j mod s       of a key in the chunk before (successive)
                         M - p_j mod s                           of a key in a chunk before that (inter)

    An et al. 2024, Training-Free Long-Context Scaling of Large Language Models, https://arxiv.org/abs/2402.17463. No
    distance is above M, so a model trained to length M + 1 reads any text without training; the distances of at least
    the nearest M - s + 1 keys stay exact. The paper has M = L - 1 for the trained length L. The authors' code and vLLM,
    for Qwen2.5-1M, have M = chunk_size and s = chunk_size - local_size in their words. Attention must be causal.

    Attention runs over a list that has each key three times, with masks: several times the cost of plain attention.
    Texts up to s cost and compute what `then` alone does. A KV cache stores each key once. Score biases that read
    queries and keys get those of the first region.

    Args:
        then: the rotary map, such as Rotary(head_dim=64).
        chunk_size: s, positions in a chunk; 3/4 of the trained length in the paper.
        max_distance: M, at least s.

    Fixed, unless `then` is learned. Any length. Engines: dense, sdpa, flex. Used by: the paper's language models,
    without training.

    Raises:
        DoorError: If `then` is not a rotary map.
        ShapeError: If a size is not a whole number of at least 1, or max_distance is below chunk_size.

    Examples:
        >>> import torch
        >>> from whatwhere import Rotary, Where
        >>> where = Where(DualChunk(Rotary(head_dim=4), chunk_size=3072, max_distance=4095))
        >>> here, q = where.at(3), torch.ones(1, 2, 3, 4)
        >>> here(q, q, q).shape
        torch.Size([1, 2, 3, 4])
    """

    settings_in_repr = ("chunk_size", "max_distance")
    regions = 3

    def __init__(self, then: RotaryMap, chunk_size: int, max_distance: int) -> None:
        super().__init__(then)
        require_whole("DualChunk", chunk_size=chunk_size, max_distance=max_distance)
        if max_distance < chunk_size:
            raise ShapeError(
                f"DualChunk got chunk_size={chunk_size} and max_distance={max_distance}, but the distance of a key one "
                "chunk before must fit: max_distance needs to be at least chunk_size."
            )
        self.chunk_size, self.max_distance = chunk_size, max_distance

    def at_queries(self, p: Int64[Tensor, "batch tokens"]) -> tuple[Int64[Tensor, "batch tokens"], ...]:
        """Return p mod s, min(p mod s + s, M), and M."""
        inside = p % self.chunk_size
        successive = (inside + self.chunk_size).clamp(max=self.max_distance)
        return inside, successive, inside.new_full((), self.max_distance).expand_as(inside)

    def at_keys(self, p: Int64[Tensor, "batch tokens"]) -> tuple[Int64[Tensor, "batch tokens"], ...]:
        """Return p mod s, for all regions."""
        return (p % self.chunk_size,)

    def region(self, queries: Positions, keys: Positions) -> Region:
        """Return by how many chunks the key is before the query, at most 2."""
        at_query, at_key = (p.single_axis("DualChunk") // self.chunk_size for p in (queries, keys))

        def of_pair(b: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (at_query[b % at_query.shape[0], i] - at_key[b % at_key.shape[0], j]).clamp(0, 2)

        return of_pair

    def one_region(self, queries: Positions) -> bool:
        """Return whether all queries are known to be in the first chunk, so that no key is in one before."""
        return queries.max_length is not None and queries.max_length <= self.chunk_size
