"""Rotary positions."""

from typing import final

from jaxtyping import Int64
from torch import Tensor

from whatwhere.position.positions import Positions
from whatwhere.where.base import Bound
from whatwhere.where.frequencies import rotary_tables
from whatwhere.where.rotary_map import ScaledRotaryMap
from whatwhere.where.scaling import Scaling


@final
class Rotary(ScaledRotaryMap):
    """Rotate each pair of features of a query or key by an angle proportional to its position (RoPE).

        (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)      angle = p w_i,  w_i = theta ** (-2i / rotary_dim)
        <R_m q, R_n k> = <q, R_(n-m) k>                           so scores depend on the distance m - n only

    Su et al. 2021, https://arxiv.org/abs/2104.09864. Which features make a pair is a convention of the weights, and
    mixing the two is a silent error: `interleaved=True` pairs (2i, 2i+1), as the paper, GPT-J and Meta's Llama code
    do; the default, the "half" layout, pairs (i, i + rotary_dim/2), as Hugging Face (rotate_half) and GPT-NeoX do.

    Args:
        head_dim: features of a head.
        theta: base of the frequencies, above 0; 10,000 in the paper, 500,000 in Llama 3.
        interleaved: which features make a pair.
        rotary_dim: rotate only so many features, an even number up to head_dim; None rotates all.
        rotary_start: the first feature that is rotated; 0 in nearly all models, 448 of 512 in DeepSeek-V4.
        reversed: rotate by the negative angle, as nanochat does; no other model is known to.
        scaling: a RoPE scaling of `whatwhere.where.scaling`, such as YaRN.

    Fixed: no parameters, no state. Any length; quality beyond the trained length needs a scaling. Angles are float64,
    the rotation is done in float32 and cast back. The rotated features are multiplied by the scaling's `magnitude`,
    which is 1 for all but YaRN and LongRoPE. Used by: Llama, Qwen, Mistral, GPT-NeoX (partial), GPT-J.

    Raises:
        ShapeError: If head_dim, rotary_dim or rotary_start does not fit, or the scaling is not defined for it.
        SettingError: If theta is out of range, or scaling is not a scaling that is defined for it.

    Examples:
        >>> import torch
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
        rotary_start: int = 0,
        reversed: bool = False,
        scaling: Scaling | None = None,
    ) -> None:
        super().__init__(head_dim, theta, interleaved, rotary_dim, scaling, rotary_start, reversed)

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return cosine and sine of every angle, (batch, 1, tokens, pairs): tables for all heads and layers."""
        index = positions.on_axes("Rotary", 1, real=True)
        return rotary_tables(index, self._frequencies_at(positions, lengths), self.magnitude)
