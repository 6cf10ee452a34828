"""Rotary positions."""

from typing import final

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.ruler import Positions
from whatwhere.where.doors import Bound, QueryKeyMap
from whatwhere.where.frequencies import turn_tables
from whatwhere.where.rotation import between, rotate_both, rotate_first
from whatwhere.where.scaling import Frequencies, Scaling, rule


@final
class Rotary(QueryKeyMap):
    """Turn each pair of features of a query or key by an angle that grows with its position.

        (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)      angle = p w_i,  w_i = theta ** (-2i / rotary_dim)
        <R_m q, R_n k> = <q, R_(n-m) k>                           so scores depend on the distance m - n only

    Su et al. 2021, https://arxiv.org/abs/2104.09864. Which features make a pair is a convention of the weights, and
    mixing the two is a silent fault: `interleaved=True` pairs (2i, 2i+1) as the paper, GPT-J and Meta's Llama code
    do; the default pairs (i, i + rotary_dim/2) as Hugging Face and GPT-NeoX do.

    Args:
        head_dim: features of a head.
        theta: above 0; 10,000 in the paper, 500,000 in Llama 3.
        interleaved: which features make a pair.
        rotary_dim: turn only the first features, an even number up to head_dim; None turns all.
        scaling: a rule of `whatwhere.where.scaling` that changes the frequencies, such as YaRN.

    Fixed: no parameters, no state. Any length; quality beyond the trained length needs a scaling. Angles are float64,
    the rotation is done in float32 and cast back. The features that turn are multiplied by the scaling's `magnitude`,
    which is 1 for all but YaRN and LongRoPE. Used by: Llama, Qwen, Mistral, GPT-NeoX (partial), GPT-J.

    >>> rope = Rotary(head_dim=4)
    >>> q = torch.ones(1, 1, 2, 4)
    >>> rope(q, q, torch.tensor([0, 1]))[0][0, 0]
    tensor([[ 1.0000,  1.0000,  1.0000,  1.0000],
            [-0.3012,  0.9900,  1.3818,  1.0099]])
    """

    def __init__(
        self,
        head_dim: int,
        theta: float = 10_000.0,
        *,
        interleaved: bool = False,
        rotary_dim: int | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        super().__init__()
        require_whole("Rotary", head_dim=head_dim)
        if rotary_dim is None:
            require_even("Rotary", "it turns pairs of features", head_dim=head_dim)
            rotary_dim = head_dim
        require_whole("Rotary", rotary_dim=rotary_dim)
        require_even("Rotary", "it turns pairs of features", rotary_dim=rotary_dim)
        if rotary_dim > head_dim:
            raise ShapeError(f"Rotary got rotary_dim={rotary_dim}, but a head has only head_dim={head_dim} features.")
        require_positive("Rotary", theta=theta)
        if scaling is not None and not isinstance(scaling, Scaling):
            raise SettingError(
                f"Rotary got scaling={scaling!r}, but needs a scaling, such as YaRN(factor=4.0, original_length=4096)."
            )
        self.head_dim, self.theta, self.interleaved, self.rotary_dim = head_dim, theta, interleaved, rotary_dim
        self.scaling = scaling
        self.follows_length = rule(scaling).follows_length
        self.frequencies(device="cpu")  # a scaling that does not fit is told now
        self._frequencies = Frequencies()

    @property
    def inverse_frequencies(self) -> Float64[Tensor, " pairs"]:
        """How far each pair turns per position, in radians; up to the trained length where the length decides."""
        return self.frequencies()

    @property
    def magnitude(self) -> float:
        """What the features that turn are multiplied by."""
        return rule(self.scaling).magnitude

    def frequencies(
        self, lengths: Int64[Tensor, "*batch"] | None = None, device: torch.device | str | None = None
    ) -> Float64[Tensor, "*batch pairs"]:
        """Give how far each pair turns per position, in sequences of these lengths."""
        return rule(self.scaling).frequencies(self.rotary_dim, self.theta, device, lengths)

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Give cos and sin of every angle, (batch, 1, tokens, pairs): one table for all heads and layers.

        Args:
            positions: where the tokens stand.
            lengths: of each token's sequence, for a scaling that follows the length; None takes the positions' own.
        """
        index = positions.on_axes("Rotary", 1)
        scaling = rule(self.scaling)
        frequencies = self._frequencies.at(scaling, self.rotary_dim, self.theta, positions, lengths)
        return turn_tables(index, frequencies, scaling.magnitude)

    def map_query(
        self, q: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Turn queries."""
        cos, sin = bound
        return rotate_first(q, cos, sin, self.interleaved)

    def map_key(
        self, k: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Turn keys, as queries are."""
        return self.map_query(k, bound)

    def map_both(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch key_heads keys head_dim"],
        at_queries: Bound,
        at_keys: Bound,
        in_place: bool = False,
    ) -> tuple[Float[Tensor, "batch heads queries head_dim"], Float[Tensor, "batch key_heads keys head_dim"]]:
        """Turn queries and keys, at once where their tables are the same."""
        return rotate_both(q, k, at_queries, at_keys, self.interleaved, in_place)

    def rerotate(
        self, k: Float[Tensor, "batch heads tokens head_dim"], old: Bound, new: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Turn keys of a cache on, from how they were bound to how they shall be.

        Args:
            k: keys as `map_key` gave them.
            old: what they were bound to, `rope.bind(positions, lengths)`.
            new: other positions, or another length.

        >>> from whatwhere import positions
        >>> rope, p = Rotary(head_dim=4), positions(2)
        >>> k = torch.ones(1, 1, 2, 4)
        >>> here, there = rope.bind(p), rope.bind(positions(2, start=9))
        >>> torch.allclose(rope.rerotate(rope.map_key(k, here), here, there), rope.map_key(k, there), atol=1e-6)
        True
        """
        cos, sin = between(old, new, self.magnitude)
        return rotate_first(k, cos, sin, self.interleaved)

    def extra_repr(self) -> str:
        """Show the settings."""
        scaling = "" if self.scaling is None else f", scaling={self.scaling}"
        return (
            f"head_dim={self.head_dim}, theta={self.theta}, interleaved={self.interleaved}, "
            f"rotary_dim={self.rotary_dim}{scaling}"
        )
