"""Functional interpolation for relative positions (FIRE)."""

from typing import Any, ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_positive, require_whole
from whatwhere.initialization import sample_uniform
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import require_generator
from whatwhere.where.score_bias import Element, ScoreBias, contract, require_known

_EPSILON = 1e-6


@final
class FIRE(ScoreBias):
    """Learn the bias as a function of the distance relative to the position of the query.

        score(h, i, j) += MLP_h( ln(|c (i - j)| + 1) / (ln(|c max(i, |m L|)| + 1) + 1e-6) )
        MLP: 1 -> width, ReLU -> H

    Li et al. 2024, https://arxiv.org/abs/2310.04418. i is the position of the query within its document, and so the
    same in packed, padded and decoded sequences. Earlier keys have ratios 0..1, at any length. Up to the threshold |m
    L| the divisor is constant, and the bias depends on the distance alone; beyond it, shifting a text changes its
    scores. c, the factor m and the MLP are learned, L is a setting. Initial values are those of
    https://github.com/mcleish7/arithmetic, whose MLP is initialized as PyTorch's linear layers are. The paper is about
    decoders: for an encoder, a later key is treated as an earlier one at the same distance, and its ratio may be above
    1.

    Args:
        num_heads: H, any positive integer.
        width: hidden features of the MLP.
        threshold: L, in positions, above 0.
        c: initial value of c, above 0.

    Learned: `c`, `threshold_factor` (m) and the two layers of the MLP. Any length. Engines: dense, sdpa, flex. Used by:
    its authors' models.

    Examples:
        >>> FIRE(num_heads=2)(torch.tensor([0, 1, 2])).shape
        torch.Size([1, 2, 3, 3])
    """

    head_axes: ClassVar = {"weight_out": 0, "bias_out": 0}
    c: Float[Tensor, "1"]
    threshold_factor: Float[Tensor, "1"]
    weight_in: Float[Tensor, " width"]
    bias_in: Float[Tensor, " width"]
    weight_out: Float[Tensor, "heads width"]
    bias_out: Float[Tensor, " heads"]

    def __init__(
        self,
        num_heads: int,
        width: int = 32,
        threshold: float = 512.0,
        c: float = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("FIRE", num_heads=num_heads, width=width)
        require_positive("FIRE", threshold=threshold, c=c)
        self.num_heads, self.width, self.threshold, self.initial_c = num_heads, width, threshold, c
        shapes: dict[str, tuple[int, ...]] = {
            "c": (1,),
            "threshold_factor": (1,),
            "weight_in": (width,),
            "bias_in": (width,),
        }
        shapes |= {"weight_out": (num_heads, width), "bias_out": (num_heads,)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize c, m and the MLP."""
        require_generator("FIRE", generator, self.weight_in)
        nn.init.constant_(self.c, self.initial_c)
        nn.init.ones_(self.threshold_factor)
        for weights, fan_in in ((self.weight_in, 1), (self.bias_in, 1), (self.weight_out, self.width)):
            sample_uniform(weights, fan_in**-0.5, generator)
        sample_uniform(self.bias_out, self.width**-0.5, generator)

    def bind(self, queries: Positions, keys: Positions, **content: Any) -> Element:
        """Return the bias as a function of elements."""
        require_known(self, content)
        at_query, at_key = queries.single_axis("FIRE"), keys.single_axis("FIRE")
        wide = torch.promote_types(self.c.dtype, torch.float32)
        c, threshold = self.c.to(wide), (self.threshold_factor.to(wide) * self.threshold).abs()
        weight_in, bias_in = self.weight_in.to(wide), self.bias_in.to(wide)
        weight_out, bias_out = self.weight_out.to(wide), self.bias_out.to(wide)

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            # FlexAttention computes gradients only of tensors indexed by tensors: c[first], not a plain c.
            query, first = at_query[b % at_query.shape[0], i], i * 0
            distance = (query - at_key[b % at_key.shape[0], j]).to(wide)
            length = torch.maximum(query.to(wide), threshold[first])
            ratio = (c[first] * distance).abs().log1p() / ((c[first] * length).abs().log1p() + _EPSILON)
            bias = bias_out[h]
            if h.shape[1:] == (1, 1) and ratio.dim() == 4 and ratio.shape[1] == 1:  # a table: products for all heads
                of_heads = weight_out[h[:, 0, 0]]
                for n in range(0, self.width, len(h)):  # so many features that they are no larger than the table
                    some = slice(n, n + len(h))
                    hidden = (weight_in[some, None, None] * ratio + bias_in[some, None, None]).relu()
                    bias = bias + contract("hn,bnij->bhij", of_heads[:, some], hidden)
                return bias
            for n in range(self.width):  # a kernel for single elements has no matrix product
                hidden = (weight_in[first + n] * ratio + bias_in[first + n]).relu()
                bias = bias + weight_out[h, first + n] * hidden
            return bias

        return element

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Read c and the factor also as numbers without a dimension, which they were: FSDP cannot spread these."""
        for name in ("c", "threshold_factor"):
            values = state_dict.get(prefix + name)
            if isinstance(values, Tensor) and values.dim() == 0:
                state_dict[prefix + name] = values[None]
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"num_heads={self.num_heads}, width={self.width}, threshold={self.threshold}, c={self.initial_c}"
