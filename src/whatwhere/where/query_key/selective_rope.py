"""Selective RoPE: each token rotates all later ones by angles that it and the three tokens before it decide."""

from typing import ClassVar, final

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.errors import ShapeError
from whatwhere.initialization import sample_uniform
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import require_generator
from whatwhere.where.frequencies import inverse_frequencies
from whatwhere.where.rotation_by_content import RotationByContent, without_padding
from whatwhere.where.score_bias import contract, require_features
from whatwhere.where.sums import in_order

_WINDOW = 4  # tokens that the convolution sees
_EPSILON = 1e-6  # added to the squared norm of each part of x


@final
class SelectiveRoPE(RotationByContent):
    """Rotate pair n of head h by the sum of the angles that the tokens up to this one add.

        (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)      angle of pair n = w_n (s_1 + ... + s_t)
        s_t = g_t (c_0 f_(t-3) + c_1 f_(t-2) + c_2 f_(t-1) + c_3 f_t)    f_t = U_hn D x_t / |x_t|
        w_n = theta ** (-2n / head_dim)        g_t = sigmoid(<v_h, x_t / |x_t|> + b_h) with a gate, else 1

    Movahedi et al. 2025, Selective Rotary Position Embedding, https://arxiv.org/abs/2511.17388, as in the authors'
    repository timurcarstensen/selective-rope with its file selective_rope.yaml. D x has `rank` features, c is of each
    pair and head, and |x| is the norm of each of num_heads equal parts of x: sqrt(sum of squares + 1e-6). x is the
    input of the query and key projections, as for FoX. Not here are that repository's other options: a projection of
    full rank, SiLU after the convolution, an added bias, frequencies that are learned or of another rule.

    `here.increments(x)` returns f of each token, and g behind it: `here.query_key(q, k, increments=...)` takes those of
    all keys, and a KV cache stores them beside the keys. Convolution and sums are of float64, in the order of the
    tokens; they begin at the start of each document and leave padding out. Attention must be causal, and all keys of a
    cache are kept. Parameters are initialized as the layers of PyTorch are: the angles are small and of either sign, so
    that little tells one position from another. The authors' language models sample them from N(0, 0.02), where
    nothing does.

    Args:
        dim: features of x, a multiple of norm_groups.
        head_dim: features of a head, an even number.
        num_heads: H, heads of the queries.
        rank: features between the two projections.
        gate: whether each token and head has a gate.
        theta: base of the frequencies, above 0.
        interleaved: whether a pair is (2i, 2i+1); else it is (i, i + head_dim/2).
        norm_groups: parts of x that are normalized one by one; None is num_heads.

    Learned: `down` (rank, dim), `up` (heads, pairs, rank), `convolution` (heads, pairs, 4); with a gate `gate_weight`
    (heads, dim) and `gate_bias` (heads). Any length. Engines: dense, sdpa, flex. Used by: the paper's language models.

    Raises:
        ShapeError: If a size is not a whole number of at least 1, head_dim is odd, or norm_groups do not divide dim.
        SettingError: If theta is out of range.

    Examples:
        >>> from whatwhere import Where
        >>> here = Where(SelectiveRoPE(dim=8, head_dim=4, num_heads=2)).at(3)
        >>> x, q = torch.ones(1, 3, 8), torch.ones(1, 2, 3, 4)
        >>> increments = here.increments(x)
        >>> q, k = here.query_key(q, q, increments=increments)
        >>> increments.shape, here.attention(q, k, q).shape
        (torch.Size([1, 2, 3, 2]), torch.Size([1, 2, 3, 4]))
    """

    settings_in_repr = ("dim", "head_dim", "num_heads", "rank", "gate", "theta", "interleaved", "norm_groups")
    head_axes: ClassVar = {"up": 0, "convolution": 0, "gate_weight": 0, "gate_bias": 0}
    down: Float[Tensor, "rank dim"]
    up: Float[Tensor, "heads pairs rank"]
    convolution: Float[Tensor, "heads pairs window"]
    gate_weight: Float[Tensor, "heads dim"] | None
    gate_bias: Float[Tensor, " heads"] | None

    def __init__(
        self,
        dim: int,
        head_dim: int,
        num_heads: int,
        rank: int = 32,
        gate: bool = False,
        theta: float = 500_000.0,
        interleaved: bool = False,
        norm_groups: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        groups = num_heads if norm_groups is None else norm_groups
        require_whole("SelectiveRoPE", dim=dim, head_dim=head_dim, num_heads=num_heads, rank=rank, norm_groups=groups)
        require_even("SelectiveRoPE", "it rotates pairs of features", head_dim=head_dim)
        require_positive("SelectiveRoPE", theta=theta)
        if dim % groups:
            raise ShapeError(
                f"SelectiveRoPE got dim={dim}, but normalizes {groups} equal parts of x, which needs a multiple.\n"
                "Pass norm_groups, a divisor of dim."
            )
        self.dim, self.head_dim, self.num_heads, self.rank = dim, head_dim, num_heads, rank
        self.gate, self.theta, self.interleaved, self.norm_groups = gate, theta, interleaved, groups
        self.increment_features = (head_dim // 2 + gate,)
        shapes = {"down": (rank, dim), "up": (num_heads, head_dim // 2, rank)}
        shapes |= {"convolution": (num_heads, head_dim // 2, _WINDOW)}
        gate_shapes = {"gate_weight": (num_heads, dim), "gate_bias": (num_heads,)}
        for name, shape in (shapes | gate_shapes).items():
            made = gate or name in shapes
            empty = nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if made else None
            self.register_parameter(name, empty)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize all parameters, each as U(-a, a) with a = 1 / sqrt(numbers that it sums over)."""
        require_generator("SelectiveRoPE", generator, self.down)
        sample_uniform(self.down, self.dim**-0.5, generator)
        sample_uniform(self.up, self.rank**-0.5, generator)
        sample_uniform(self.convolution, _WINDOW**-0.5, generator)
        for parameter in (self.gate_weight, self.gate_bias):
            if parameter is not None:
                sample_uniform(parameter, self.dim**-0.5, generator)

    def increments(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens features"]:
        """Return f of each token and pair, and the gate as the last feature if there is one, in float32 at least."""
        require_features(self, x)
        parts = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (self.norm_groups, -1))
        unit = (parts * (parts.square().sum(-1, keepdim=True) + _EPSILON).rsqrt()).flatten(-2)
        f = contract("btr,hpr->bhtp", contract("btd,rd->btr", unit, self.down), self.up)
        if self.gate_weight is None or self.gate_bias is None:
            return f
        gate = (contract("btd,hd->bht", unit, self.gate_weight) + self.gate_bias[:, None]).sigmoid()
        return torch.cat([f, gate[..., None].to(f.dtype)], dim=-1)

    def angles(
        self, keys: Positions, increments: Float[Tensor, "batch heads keys features"]
    ) -> Float64[Tensor, "batch heads keys pairs"]:
        """Return the sums of the convolved and gated f up to each key, times the frequencies."""
        x = without_padding(increments.double(), keys)
        ordered = in_order(keys)
        if ordered is not None:
            document, slots = ordered
            x, document = _of_slots(x, slots), document.gather(-1, slots)
        f = x[..., : self.head_dim // 2]
        kernel = self.convolution.double()[:, None]
        added = f * kernel[..., -1]
        for lag in range(1, _WINDOW):
            before = F.pad(f, (0, 0, lag, 0))[:, :, : keys.tokens]
            if ordered is not None:
                other = document != F.pad(document, (lag, 0))[:, : keys.tokens]
                before = before.masked_fill(other[:, None, :, None], 0)
            added = added + before * kernel[..., -1 - lag]
        if self.gate:
            added = added * x[..., -1:]
        total = added.mT.cumsum(-1).mT * inverse_frequencies(self.head_dim, self.theta, x.device)
        return total if ordered is None else _of_slots(total, slots.argsort(-1))


def _of_slots(
    x: Float[Tensor, "batch heads keys features"], slots: Int64[Tensor, "rows keys"]
) -> Float[Tensor, "batch heads keys features"]:
    return x.gather(2, slots[:, None, :, None].expand(*x.shape[:2], -1, x.shape[3]))
