"""Kernelized relative positional embedding (KERPLE)."""

from math import inf
from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_choice, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.initialization import alike, assign
from whatwhere.kernels.flash_attention import ByDistance
from whatwhere.tensor_checks import require_generator
from whatwhere.where.score_bias import Curve, DistanceBias

Kind = Literal["log", "power"]
KINDS: tuple[Kind, ...] = ("log", "power")
_FLOOR = 0.01


@final
class KERPLE(DistanceBias):
    """Learn for each head how scores decay with the distance, by a logarithm or a power.

        log      score(h, i, j) += -p_h ln(1 + a_h |i - j|)        p_h > 0,  a_h > 0
        power    score(h, i, j) += -a_h |i - j| ** p_h             a_h > 0,  0 < p_h < 2

    Chi et al. 2022, https://arxiv.org/abs/2205.09921; the letters are those of the authors' code. A power of 1 is ALiBi
    with slopes a; as p goes to 0, the logarithmic bias vanishes. Initial values are theirs: p from U(0, 2), a from U(0,
    1), at least 0.01. Their code enforces these ranges by clamping the parameters in every forward pass; here p and a
    are a softplus of unconstrained parameters, and the power's p is 2 sigmoid of one, so that they cannot leave their
    ranges and the optimizer's state stays valid. For an encoder the bias is symmetric.

    Args:
        num_heads: H, any positive integer.
        kind: `log`, which extrapolated best in the paper, or `power`.

    Learned: two numbers per head, `free_p` and `free_a`, from which `p` and `a` are computed. Any length. Engines:
    dense, sdpa, flex. Used by: its authors' models.

    Examples:
        >>> kerple = KERPLE(num_heads=2)
        >>> kerple.assign(p=torch.tensor([1.0, 2.0]), a=torch.tensor([1.0, 0.5]))
        >>> kerple(torch.tensor([0, 1, 3]))[0, 0, -1]
        tensor([-1.3863, -1.0986, -0.0000], grad_fn=<SelectBackward0>)
    """

    settings_in_repr = ("num_heads", "kind")
    head_axes: ClassVar = {"free_p": 0, "free_a": 0}
    free_p: Float[Tensor, " heads"]
    free_a: Float[Tensor, " heads"]

    def __init__(
        self,
        num_heads: int,
        kind: Kind = "log",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("KERPLE", num_heads=num_heads)
        require_choice("KERPLE", "kind", kind, KINDS)
        self.num_heads, self.kind = num_heads, kind
        self.free_p = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype))
        self.free_a = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    @property
    def p(self) -> Float[Tensor, " heads"]:
        """p_h of each head."""
        return 2 * _wide(self.free_p).sigmoid() if self.kind == "power" else F.softplus(_wide(self.free_p))

    @property
    def a(self) -> Float[Tensor, " heads"]:
        """a_h of each head."""
        return F.softplus(_wide(self.free_a))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize p and a."""
        require_generator("KERPLE", generator, self.free_p)
        # Sampled in float32 also for bfloat16 parameters: rounded to bfloat16, p might be 2, which is out of range.
        with alike(self.free_p, generator) as common:
            p, a = (torch.rand(self.num_heads, generator=common, device=self.free_p.device) for _ in range(2))
        self._store(p=(2 * p).clamp(min=_FLOOR), a=a.clamp(min=_FLOOR))

    def assign(self, p: Float[Tensor, " heads"], a: Float[Tensor, " heads"]) -> None:
        """Set p and a, for example to those of a published model.

        Args:
            p: above 0, and below 2 for the kind `power`.
            a: above 0.

        Raises:
            ShapeError: If there is not one number for each head.
            SettingError: If a number is out of range.
        """
        for name, values, end in (("p", p, 2 if self.kind == "power" else inf), ("a", a, inf)):
            if values.shape != (self.num_heads,):
                raise ShapeError(
                    f"KERPLE has {self.num_heads} heads and needs one {name} for each, but got shape "
                    f"{tuple(values.shape)}."
                )
            for head, value in enumerate(values.tolist()):
                if not 0 < value < end:
                    raise SettingError(
                        f"KERPLE got {name}={value} for head {head}, but kind={self.kind!r} needs {name} above 0"
                        f"{' and below 2' if end == 2 else ' and finite'}.\n"
                        f"For the nearest allowed number, pass {name}.clamp(0.01, {1.99 if end == 2 else 1e4})."
                    )
        self._store(p, a)

    def curve(self, device: torch.device) -> Curve:
        """Return the kernel of each head, which is 0 at distance 0 and decreases."""
        p, a = self.p, self.a
        if self.kind == "power":
            return lambda head, distance: -a[head] * distance.abs().to(a.dtype) ** p[head]
        return lambda head, distance: -p[head] * (a[head] * distance.abs().to(a.dtype)).log1p()

    def by_distance(self, most: int | None, device: torch.device) -> ByDistance:
        """Return p and a in the order of the formula."""
        numbers = (self.a, self.p) if self.kind == "power" else (self.p, self.a)
        return ByDistance(self.kind, torch.stack(numbers, dim=1))

    def _store(self, p: Tensor, a: Tensor) -> None:
        with torch.no_grad():
            assign(self.free_p, (_wide(p) / 2).logit() if self.kind == "power" else _inverse_softplus(_wide(p)))
            assign(self.free_a, _inverse_softplus(_wide(a)))


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _inverse_softplus(y: Tensor) -> Tensor:
    return y + (-torch.expm1(-y)).log()
