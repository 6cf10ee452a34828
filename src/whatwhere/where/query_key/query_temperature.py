"""Queries multiplied by a fixed function of their position: the temperature of attention in long text."""

from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.errors import SettingError
from whatwhere.position.positions import Positions
from whatwhere.where.base import QueryKeyMap
from whatwhere.where.query_factor import QueryFactor
from whatwhere.where.temperature import Curve


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
        then: a map of queries and keys, such as Rotary, of the same head_dim; None is none.

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
