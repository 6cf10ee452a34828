"""Queries multiplied by a factor of their position, after another map if there is one: QueryTemperature and SSMax."""

from abc import abstractmethod
from collections.abc import Mapping
from math import lgamma
from typing import ClassVar, final

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.errors import DoorError, SettingError, ShapeError
from whatwhere.position.positions import Positions
from whatwhere.where.base import Bound, Heads, MappedHeads, QueryKeyMap
from whatwhere.where.temperature import Curve


class QueryFactor(QueryKeyMap):
    """Multiply each query by a factor of its position, after another map if there is one; keys have that map alone.

        q_i -> factor(h, p_i) then(q_i)        k_j -> then(k_j)

    A door takes one scheme, so the other map is nested: `then`. A subclass implements `factor`.
    """

    _shown_if_set = ("then",)

    def __init__(self, head_dim: int, then: QueryKeyMap | None) -> None:
        super().__init__()
        owner = type(self).__name__
        require_whole(owner, head_dim=head_dim)
        _require_map(owner, then, head_dim)
        self.head_dim, self.then = head_dim, then
        if then is not None:
            self.scale, self.follows_length, self.causal_only = then.scale, then.follows_length, then.causal_only

    def attributes_of_heads(self, first: int, count: int, total: int) -> Mapping[str, object]:
        """Return the other map for some heads."""
        return {} if self.then is None else {"then": self.then.heads(first, count, total=total)}

    @abstractmethod
    def factor(self, positions: Positions) -> Float[Tensor, "batch heads tokens 1"]:
        """Return the factor of each query, in float32 at least."""

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return the factor of each query, (batch, heads or 1, tokens, 1), and what `then.bind` returns."""
        if self.then is None:
            return (self.factor(positions),)
        inner = self.then.bind(positions, lengths) if self.follows_length else self.then.bind(positions)
        return self.factor(positions), *inner

    def map_query(self, q: Heads, bound: Bound) -> MappedHeads:
        """Map queries by `then`, and multiply them: in float32 at least, and rounded once.

        Raises:
            ShapeError: If q has another number of heads than the factors.
        """
        factor, *inner = bound
        if factor.shape[1] not in (1, q.shape[1]):
            raise ShapeError(
                f"{type(self).__name__} was made for num_heads={factor.shape[1]}, but q has {q.shape[1]} heads: shape "
                f"{tuple(q.shape)}."
            )
        wide = q.to(torch.promote_types(q.dtype, torch.float32))
        mapped = wide if self.then is None else self.then.map_query(wide, tuple(inner))
        if factor.shape[1] > 1 and mapped.shape[1] > factor.shape[1]:
            factor = factor.repeat(1, mapped.shape[1] // factor.shape[1], 1, 1)  # a group of heads for each region
        return (mapped * factor).to(q.dtype)

    def map_key(self, k: Heads, bound: Bound) -> MappedHeads:
        """Map keys by `then`."""
        return k if self.then is None else self.then.map_key(k, bound[1:])

    def rerotate(self, k: MappedHeads, old: Bound, new: Bound) -> MappedHeads:
        """Map cached keys to other positions as `then` does; without one they are the same everywhere."""
        return k if self.then is None else self.then.rerotate(k, old[1:], new[1:])

    def __repr__(self) -> str:
        """Return code that makes it, in one line; nn.Module would print `then` in lines of its own."""
        return f"{type(self).__name__}({self.extra_repr()})"


def _require_map(owner: str, then: object, head_dim: int) -> None:
    if then is None:
        return
    if not isinstance(then, QueryKeyMap):
        given = f"the class {then.__name__}" if isinstance(then, type) else type(then).__name__
        raise DoorError(
            f"{owner}(then=...) needs a map of queries and keys, such as Rotary(head_dim=64), but got {given}."
        )
    if then.by_content:
        raise DoorError(
            f"{owner}(then=...) needs a map by position alone, but {type(then).__name__} depends on content.\n"
            "Use it by itself: Where(query_key=...)."
        )
    if then.head_dim != head_dim:
        raise ShapeError(
            f"{owner} has head_dim={head_dim}, but {type(then).__name__} has {then.head_dim}: make both equal."
        )


@final
class QueryTemperature(QueryFactor):
    """Multiply each query by a fixed, growing function of its position; attention stays sharp in long text.

        q_i -> tau(p_i) q_i

    Softmax over more keys is flatter; this compensates for it, as SSMax does by a learned factor. The factor is an
    inverse temperature of the softmax: its scores are multiplied by it. The curve tau is a value, see
    `whatwhere.temperature`; models differ in it, and in where they apply it: Llama 4 and Beam in the layers without
    rotary positions, Ministral 3 and Mistral 4 in all layers, after the rotation. A score bias is not multiplied.

    It depends on the query's position alone, so decoding with a KV cache is exact. Another map of queries and keys is
    nested: `then`. It is applied first; keys are mapped by it alone.

    Args:
        head_dim: features of a head.
        curve: tau, such as `temperature.SteppedLog(alpha=0.1, period=8192)`.
        then: a map of queries and keys, such as Rotary, of the same head_dim; None for no such map.

    Fixed: no parameters, no state. Any length. Engines: dense, sdpa, flex. Used by: Llama 4, Ministral 3, Mistral 4,
    Beam, Inkling, Qwen (first generation).

    Raises:
        DoorError: If `then` is not a map of queries and keys.
        SettingError: If the curve is not one of `whatwhere.temperature`.
        ShapeError: If head_dim is not a whole number of at least 1, or `then` has another head_dim.

    Examples:
        >>> from whatwhere import temperature
        >>> scheme = QueryTemperature(head_dim=1, curve=temperature.LogN(original_length=4))
        >>> q = k = torch.ones(1, 1, 2, 1)
        >>> scheme(q, k, torch.tensor([3, 15]))[0].flatten()
        tensor([1., 2.])
    """

    settings_in_repr = ("head_dim", "curve", "then")

    head_axes: ClassVar = {}

    def __init__(self, head_dim: int, curve: Curve, then: QueryKeyMap | None = None) -> None:
        super().__init__(head_dim, then)
        if not isinstance(curve, Curve):
            given = f"the class {curve.__name__}" if isinstance(curve, type) else repr(curve)
            raise SettingError(
                f"QueryTemperature got curve={given}, but needs a curve, such as "
                "temperature.SteppedLog(alpha=0.1, period=8192)."
            )
        self.curve = curve

    def factor(self, positions: Positions) -> Float[Tensor, "batch 1 tokens 1"]:
        """Return tau(p): computed in float64, rounded once to float32."""
        return self.curve.at(positions.single_axis("QueryTemperature")).to(torch.float32)[:, None, :, None]


@final
class SSMax(QueryFactor):
    """Multiply each query by the logarithm of the number of keys it attends to; attention stays sharp in long text.

        q_i -> (s_h ln(n_i) + b_h) q_i        s_h from 1 / mean(ln 1, ..., ln original_length), b_h from 0

    Softmax over more keys is flatter; this compensates for it. Nakanishi 2025, Scalable-Softmax,
    https://arxiv.org/abs/2501.19399; s is initialized so that the mean factor over the trained length is 1, 0.168 for
    1024. Forms without parameters are curves of QueryTemperature, among them Qwen's `temperature.LogN`.

    n_i is the position plus 1, which in a causal model is the number of tokens up to and including this one. So it
    depends on the query alone, and decoding with a KV cache is exact. In an encoder every query attends to the whole
    text instead, and for positions that do not count from 0 (random, assigned) n is only the coordinate plus 1.

    A door takes one scheme, so another map of queries and keys is nested: `then`. It is applied first; keys are mapped
    by it alone.

    Args:
        head_dim: features of a head.
        num_heads: heads of the queries.
        then: a map of queries and keys, such as Rotary, of the same head_dim; None for no such map.
        original_length: the trained length, at least 2.
        bias: add a parameter b to each head's factor, as Mistral Large 4 does.

    Learned: `weight`, s of each head, and `bias`, b of each head, where there is one. Any length. Engines: dense, sdpa,
    flex. Used by: the paper's language models, Mistral Large 4.

    Raises:
        DoorError: If `then` is not a map of queries and keys.
        ShapeError: If a size is not a whole number of at least 1, original_length is 1, or `then` has another head_dim.

    Examples:
        >>> scaled = SSMax(head_dim=1, num_heads=1, original_length=4)
        >>> q = k = torch.ones(1, 1, 4, 1)
        >>> scaled(q, k)[0].flatten().detach()
        tensor([0.0000, 0.8724, 1.3827, 1.7448])
    """

    head_axes: ClassVar = {"weight": 0, "bias": 0}
    settings_in_repr = ("head_dim", "num_heads", "then", "original_length")
    weight: Float[Tensor, " heads"]
    bias: Float[Tensor, " heads"] | None

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        then: QueryKeyMap | None = None,
        original_length: int = 1024,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(head_dim, then)
        require_whole("SSMax", num_heads=num_heads, original_length=original_length)
        if original_length < 2:
            raise ShapeError("SSMax got original_length=1, but divides by its logarithm: pass the trained length.")
        self.num_heads, self.original_length = num_heads, original_length
        self.weight = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set s of every head so that the mean factor over the trained length is 1, and b to 0; `then` stays."""
        # ln 1 + ... + ln L = ln L!
        nn.init.constant_(self.weight, self.original_length / lgamma(self.original_length + 1))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def factor(self, positions: Positions) -> Float[Tensor, "batch heads tokens 1"]:
        """Return s_h ln(p + 1) + b_h."""
        growth = (positions.single_axis("SSMax").double() + 1).log()[:, None, :, None]
        wide = torch.promote_types(self.weight.dtype, torch.float32)
        factor = self.weight.double()[:, None, None] * growth
        return (factor if self.bias is None else factor + self.bias.double()[:, None, None]).to(wide)

    def extra_repr(self) -> str:
        """Return the settings."""
        return super().extra_repr() + ("" if self.bias is None else ", bias=True")
