"""`Sink`: a learned logit for each head in the denominator of the softmax."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.where.head_shards import OfHeads


class Sink(OfHeads):
    """Attention sinks: for each head one more logit in the softmax, which has no value.

        a_ij = exp(s_ij) / (exp(sink_h) + sum_j exp(s_ij))

    So the weights of a head sum to less than 1, and it may attend to nothing; equal to attention without a sink times
    sigmoid(l_i - sink_h), with l_i = log sum_j exp(s_ij). As in gpt-oss (`self_attn.sinks`). The logit is not scaled
    by the softmax scale, and no mask applies to it. It starts at 0.

    Args:
        num_heads: heads of the queries.
        device, dtype: of the logits.

    Raises:
        ShapeError: If num_heads is not a whole number of at least 1.

    Examples:
        >>> from whatwhere import Where
        >>> where = Where(sink=Sink(num_heads=1))
        >>> x = torch.ones(1, 1, 2, 4)
        >>> where.at(2).attention(0 * x, x, x)[0, 0, :, 0]  # one key and the sink, then two keys and the sink
        tensor([0.5000, 0.6667], grad_fn=<SelectBackward0>)
    """

    settings_in_repr = ("num_heads",)
    head_axes: ClassVar = {"weight": 0}

    def __init__(
        self, num_heads: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        require_whole("Sink", num_heads=num_heads)
        self.num_heads = num_heads
        self.weight = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    weight: Float[Tensor, " heads"]
    """The logit of each head."""

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set all logits to 0."""
        nn.init.zeros_(self.weight)
