"""Scalable softmax: queries multiplied by the logarithm of the number of visible keys."""

from math import lgamma, log
from typing import final

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.errors import DoorError, ShapeError
from whatwhere.position import Positions
from whatwhere.where.base import Bound, QueryKeyMap


@final
class SSMax(QueryKeyMap):
    """Multiply each query by the logarithm of the number of keys it attends to; attention stays sharp in long text.

        q_i -> s_h ln(n_i) q_i                        learned, s_h from 1 / mean(ln 1, ..., ln original_length)
        q_i -> max(1, ln n_i / ln original_length) q_i    fixed

    Softmax over more keys is flatter; this compensates for it. The learned form is Nakanishi 2025, Scalable-Softmax,
    https://arxiv.org/abs/2501.19399; s is initialized so that the mean factor over the trained length is 1, 0.168 for
    1024. The fixed form is Su 2021, https://kexue.fm/archives/8823, as in Qwen: nothing changes within the trained
    length.

    n_i is the position plus 1, which in a causal model is the number of tokens up to and including this one. So it
    depends on the query alone, and decoding with a KV cache is exact. In an encoder every query attends to the whole
    text instead, and for positions that do not count from 0 (random, assigned) n is only the coordinate plus 1.

    A door takes one scheme, so another map of queries and keys is nested: `then`. It is applied first; keys are mapped
    by it alone.

    Args:
        head_dim: features of a head.
        num_heads: heads of the queries.
        then: a map of queries and keys, such as Rotary, of the same head_dim; None is none.
        original_length: the trained length, at least 2.
        learned: which of the two forms.

    Learned: `weight`, s of each head; the fixed form has no state. Any length. Engines: dense, sdpa, flex. Used by:
    the paper's language models; the fixed form by Qwen (first generation).

    Raises:
        DoorError: If `then` is not a map of queries and keys.
        ShapeError: If a size is not a whole number of at least 1, original_length is 1, or `then` has another head_dim.

    Examples:
        >>> scaled = SSMax(head_dim=1, num_heads=1, original_length=4, learned=False)
        >>> q = k = torch.ones(1, 1, 2, 1)
        >>> scaled(q, k, torch.tensor([3, 15]))[0].flatten()
        tensor([1., 2.])
    """

    weight: Float[Tensor, " heads"] | None

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        then: QueryKeyMap | None = None,
        original_length: int = 1024,
        learned: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("SSMax", head_dim=head_dim, num_heads=num_heads, original_length=original_length)
        if original_length < 2:
            raise ShapeError("SSMax got original_length=1, but divides by its logarithm: pass the trained length.")
        _require_map(then, head_dim)
        self.head_dim, self.num_heads, self.then = head_dim, num_heads, then
        self.original_length, self.learned = original_length, learned
        if then is not None:
            self.scale, self.follows_length, self.causal_only = then.scale, then.follows_length, then.causal_only
        self.weight = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype)) if learned else None
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set s of every head so that the mean factor over the trained length is 1; `then` is not changed.

        Args:
            generator: not used; nothing is sampled.
        """
        if self.weight is not None:
            # ln 1 + ... + ln L = ln L!
            nn.init.constant_(self.weight, self.original_length / lgamma(self.original_length + 1))

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return the factor of each query, (batch, heads or 1, tokens, 1), and what `then.bind` returns."""
        growth = (positions.single_axis("SSMax").double() + 1).log()[:, None, :, None]
        if self.weight is None:
            factor = (growth / log(self.original_length)).clamp(min=1).float()
        else:
            wide = torch.promote_types(self.weight.dtype, torch.float32)
            factor = (self.weight.double()[:, None, None] * growth).to(wide)
        if self.then is None:
            return (factor,)
        return factor, *(self.then.bind(positions, lengths) if self.follows_length else self.then.bind(positions))

    def map_query(
        self, q: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens mapped_dim"]:
        """Map queries by `then`, and multiply them.

        Raises:
            ShapeError: If q has another number of heads.
        """
        if q.shape[1] != self.num_heads:
            raise ShapeError(
                f"SSMax was made for num_heads={self.num_heads}, but q has {q.shape[1]} heads: shape {tuple(q.shape)}."
            )
        factor, *inner = bound
        wide = q.to(torch.promote_types(q.dtype, torch.float32))
        mapped = wide if self.then is None else self.then.map_query(wide, tuple(inner))
        return (mapped * factor).to(q.dtype)

    def map_key(
        self, k: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens mapped_dim"]:
        """Map keys by `then`."""
        return k if self.then is None else self.then.map_key(k, bound[1:])

    def extra_repr(self) -> str:
        """Return the settings."""
        then = "" if self.then is None else f"then={self.then}, "
        return (
            f"head_dim={self.head_dim}, num_heads={self.num_heads}, {then}original_length={self.original_length}, "
            f"learned={self.learned}"
        )

    def __repr__(self) -> str:
        """Return code that makes it, in one line; nn.Module would print `then` in lines of its own."""
        return f"SSMax({self.extra_repr()})"


def _require_map(then: object, head_dim: int) -> None:
    if then is None:
        return
    if not isinstance(then, QueryKeyMap):
        given = f"the class {then.__name__}" if isinstance(then, type) else type(then).__name__
        raise DoorError(
            f"SSMax(then=...) needs a map of queries and keys, such as Rotary(head_dim=64), but got {given}."
        )
    if then.head_dim != head_dim:
        raise ShapeError(
            f"SSMax has head_dim={head_dim}, but {type(then).__name__} has {then.head_dim}: make both equal."
        )
