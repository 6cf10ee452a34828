"""Inkling's bias: each query mixes learned profiles of the distance."""

from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.initialization import sample_normal
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import readable, require_generator
from whatwhere.where.score_bias import Element, Gates, K, Q, ScoreBias, contract, distances, require_features
from whatwhere.where.sums import query_slots
from whatwhere.where.temperature import Curve


@final
class Inkling(ScoreBias):
    """Learn profiles of the distance to earlier keys, which each query mixes by numbers computed from its token.

        score(h, i, j) += tau(p_i) <r_hi, P[:, i - j]>        for 0 <= i - j < extent, else 0        r_hi = W_h x_i

    Thinking Machines 2026, Inkling (`r_proj`, `rel_logits_proj`), in place of rotary positions. x is the input of the
    query and key projections, after the norm; r of each token is its gates, `here.gates(x)`, of shape (batch, heads,
    tokens, features). Only those of queries are read: pass those of the queries, or of all keys, among which each
    query's own are looked up. Where r has a largest norm, as in Inkling 2, r is multiplied by a learned `gain` and
    shortened to that norm where it is longer. In Inkling's layers without a window a temperature multiplies queries and
    bias alike: pass the curve of the layer's QueryTemperature here too.

    Args:
        dim: features of x.
        num_heads: heads of the queries.
        features: profiles, the numbers that each query mixes (`d_rel`).
        extent: distances with a bias (`rel_extent`); in Inkling's layers with a window, the window's size.
        max_norm: largest norm of r (`rel_l2_clip_threshold`), above 0; None for no limit.
        temperature: tau, such as `temperature.ClampedLog(length=128_000)`; None is 1.
        std: standard deviation of the initial parameters, above 0.

    Learned: `weight` W (heads * features, dim) and `profiles` P (features, extent), in the layouts of Hugging Face's
    `r_proj.weight` and `rel_logits_proj.proj`; with max_norm also `gain` (heads, features), its `rel_l2_clip.scale`.
    Any length. Engines: dense, sdpa, flex. Used by: Inkling.

    Raises:
        ShapeError: If a size is not a whole number of at least 1.
        SettingError: If max_norm, temperature or std is out of range.

    Examples:
        >>> from whatwhere import Where, positions
        >>> here = Where(score=Inkling(dim=8, num_heads=2, features=4, extent=16)).at(positions(3))
        >>> x, q = torch.ones(1, 3, 8), torch.ones(1, 2, 3, 4)
        >>> here.gates(x).shape, here.attention(q, q, q, gates=here.gates(x)).shape
        (torch.Size([1, 2, 3, 4]), torch.Size([1, 2, 3, 4]))
    """

    settings_in_repr = ("dim", "num_heads", "features", "extent", "max_norm", "temperature", "std")

    head_axes: ClassVar = {"weight": 0, "gain": 0}
    by_content = True
    weight: Float[Tensor, "mixed dim"]
    profiles: Float[Tensor, "features extent"]
    gain: Float[Tensor, "heads features"] | None

    def __init__(
        self,
        dim: int,
        num_heads: int,
        features: int = 16,
        extent: int = 1024,
        *,
        max_norm: float | None = None,
        temperature: Curve | None = None,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("Inkling", dim=dim, num_heads=num_heads, features=features, extent=extent)
        require_positive("Inkling", std=std, **({} if max_norm is None else {"max_norm": max_norm}))
        if temperature is not None and not isinstance(temperature, Curve):
            raise SettingError(
                f"Inkling got temperature={temperature!r}, but needs a curve, such as "
                "temperature.ClampedLog(length=128_000), or None."
            )
        self.dim, self.num_heads, self.features, self.extent = dim, num_heads, features, extent
        self.max_norm, self.temperature, self.std = max_norm, temperature, std
        self.weight = nn.Parameter(torch.empty(num_heads * features, dim, device=device, dtype=dtype))
        self.profiles = nn.Parameter(torch.empty(features, extent, device=device, dtype=dtype))
        gain = None if max_norm is None else nn.Parameter(torch.empty(num_heads, features, device=device, dtype=dtype))
        self.register_parameter("gain", gain)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize the parameters; the gain is 1."""
        require_generator("Inkling", generator, self.weight)
        sample_normal(self.weight, self.std, generator)
        sample_normal(self.profiles, self.std, generator)
        if self.gain is not None:
            nn.init.ones_(self.gain)

    def gates(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens features"]:
        """Return r of each token, in float32 at least."""
        require_features(self, x)
        mixed = contract("btd,hfd->bhtf", x, self.weight.view(self.num_heads, self.features, self.dim))
        if self.gain is None or self.max_norm is None:
            return mixed
        mixed = mixed * self.gain[:, None]
        # As Inkling 2 computes it, with its epsilon; the norm of zeros would have no gradient without it.
        norm: Tensor = torch.linalg.vector_norm(mixed, dim=-1, keepdim=True)
        return mixed * (self.max_norm / (norm + 1e-6)).clamp(max=1.0)

    def bind(
        self, queries: Positions, keys: Positions, *, q: Q = None, k: K = None, gates: Gates = None, causal: bool = True
    ) -> Element:
        """Mix the profiles for each query; each pair selects the value at its distance."""
        mixed = contract("bhif,fn->bhin", self._of_queries(gates, queries, keys, q), self.profiles)
        if self.temperature is not None:
            tau = self.temperature.at(queries.single_axis("Inkling")).to(mixed.dtype)
            mixed = mixed * tau[:, None, :, None]
        distance, last = distances("Inkling", queries, keys), self.extent - 1

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            n = distance(b, i, j)
            value = mixed[b, h, i, n.clamp(0, last)]
            return torch.where((n >= 0) & (n <= last), value, torch.zeros_like(value))

        return element

    def _of_queries(self, gates: Tensor | None, queries: Positions, keys: Positions, q: Tensor | None) -> Tensor:
        """Return r of the queries, (batch, heads, queries, features), from those of the queries or of all keys."""
        if gates is None:
            raise SettingError(
                "Inkling needs the gates of the queries, but got none.\nPass gates=here.gates(x) to here.attention."
            )
        batch = gates.shape[0] if q is None else q.shape[0]
        sizes = (batch, self.num_heads, self.features)
        tokens = gates.shape[2] if gates.dim() == 4 else -1
        if tokens not in (queries.tokens, keys.tokens) or (*gates.shape[:2], gates.shape[3]) != sizes:
            raise ShapeError(
                f"Inkling needs gates of shape (batch, heads, tokens, features) = ({batch}, {self.num_heads}, "
                f"{queries.tokens}, {self.features}), or of all {keys.tokens} keys, but got {tuple(gates.shape)}.\n"
                "Pass gates=here.gates(x) of the tokens that queries are computed from."
            )
        if tokens == queries.tokens:
            return gates
        slots = query_slots(queries, keys)
        if readable(slots):
            order = keys.order.expand(slots.shape[0], -1).gather(1, slots)
            elsewhere = order != queries.order
            if queries.segment is not None:
                elsewhere = elsewhere & (queries.segment >= 0)
            if bool(elsewhere.any()):
                raise ShapeError(
                    "Inkling got the gates of all keys, but a query is not among the keys, so its gates are not among "
                    "these.\nPass the gates of the queries: here.gates(x) of their tokens."
                )
        return gates.gather(2, slots[:, None, :, None].expand(batch, self.num_heads, -1, self.features))
