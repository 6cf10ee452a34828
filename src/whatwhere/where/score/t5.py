"""T5's relative position biases."""

from bisect import bisect_left
from typing import ClassVar, final

import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor, nn

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.errors import SettingError
from whatwhere.kernels.flash_attention import ByDistance
from whatwhere.where.base import NormalInit, require_direction
from whatwhere.where.frequencies import to_device
from whatwhere.where.score_bias import Curve, DistanceBias


@final
class T5(NormalInit, DistanceBias):
    """Learn one bias per head for each bucket of distances; buckets widen with the distance.

        score(h, i, j) += W[bucket(i - j), h]        W: (num_buckets, heads), initially N(0, std)

        bucket(n) = n                                                  n < E,  E = B // 2
                    min(E + floor((B - E) ln(n / E) / ln(D / E)), B - 1)    else

    with B = num_buckets and D = max_distance. Raffel et al. 2020, https://arxiv.org/abs/1910.10683, as in the code
    of Mesh TensorFlow and Hugging Face. If bidirectional, B is half of num_buckets, and the second half of the table is
    for later keys; else attention must be causal, because later keys would share bucket 0. Bucket edges are computed
    with integers, so they are the same on every device; Hugging Face's float32 logarithm gives the same buckets, unless
    an edge is exactly an integer and rounding misses it, as with 17 buckets up to 27.

    T5 does not divide scores by sqrt(head_dim), hence the softmax scale of 1. In T5 all layers share one
    table: pass the same object to the Where of each layer, and `bind` evaluates it once.

    Args:
        num_heads: heads of the attention.
        num_buckets: rows of the table, at least 2; if bidirectional even and at least 4.
        max_distance: all distances from here on share the last bucket; above half the buckets of one direction.
        bidirectional: use separate buckets for later keys, as an encoder needs.
        scale: the softmax scale to require; None leaves 1 / sqrt(head_dim).
        std: standard deviation of the initial table; 1 / sqrt(dim of the model) in Hugging Face.

    Learned: one parameter, `weight`, in the layout of Hugging Face's `relative_attention_bias`. Any length. Engines:
    dense, sdpa, flex. Used by: T5, mT5, UMT5.

    Examples:
        >>> T5(num_heads=4).buckets(torch.tensor([0, 15, 16, 40, 127, 5000, -3]))
        tensor([ 0, 15, 16, 23, 31, 31,  0])
    """

    settings_in_repr = ("num_heads", "num_buckets", "max_distance", "bidirectional", "scale", "std")
    head_axes: ClassVar = {"weight": 1}
    weight: Float[Tensor, "num_buckets heads"]

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = False,
        *,
        scale: float | None = 1.0,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("T5", num_heads=num_heads, num_buckets=num_buckets, max_distance=max_distance)
        require_positive("T5", std=std)
        if scale is not None:
            require_positive("T5", scale=scale)
        if bidirectional:
            require_even("T5", "half of the buckets are for later keys", num_buckets=num_buckets)
        self.num_heads, self.num_buckets, self.max_distance = num_heads, num_buckets, max_distance
        self.bidirectional, self.causal_only = bidirectional, not bidirectional
        self.scale, self.std = scale, std
        self._side = num_buckets // 2 if bidirectional else num_buckets
        self._require_buckets()
        self._edges = edges(self._side, max_distance)
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    def buckets(self, distance: Integer[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
        """Return the bucket of each distance, query minus key."""
        n = distance.long()
        far = n.abs() if self.bidirectional else n.clamp(min=0)
        begins = to_device(self._edges, n.device, torch.int64)
        exact = self._side // 2
        bucket = torch.where(far < exact, far, exact + torch.bucketize(far, begins, right=True))
        return bucket + self._side * (n < 0) if self.bidirectional else bucket

    def curve(self, device: torch.device) -> Curve:
        """Return W at the bucket of a distance."""
        last = self.max_distance
        buckets = self.buckets(torch.arange(-last, last + 1, device=device))
        # Cast before indexing, so that gradients of a row that many pairs share are summed in float32.
        values = self.weight.to(torch.promote_types(self.weight.dtype, torch.float32))[buckets]
        return lambda head, distance: values[distance.clamp(-last, last) + last, head]

    def by_distance(self, most: int | None, device: torch.device) -> ByDistance:
        """Return W and the bucket of each distance."""
        last = self.max_distance
        return ByDistance("rows", self.weight.mT, self.buckets(torch.arange(-last, last + 1, device=device)), -last)

    def require_direction(self, causal: bool) -> None:
        """Raise SettingError if attention is bidirectional, but the buckets are not."""
        require_direction(self, self.causal_only, causal, f"T5(num_heads={self.num_heads}, bidirectional=True)")

    def _require_buckets(self) -> None:
        exact = self._side // 2
        if exact < 1:
            raise SettingError(
                f"T5 got num_buckets={self.num_buckets}, but each direction needs a bucket for near and one for far "
                f"keys: at least {4 if self.bidirectional else 2}."
            )
        if self.max_distance <= exact:
            raise SettingError(
                f"T5 got max_distance={self.max_distance}, but distances up to {exact - 1} have their own buckets, and "
                f"the others need some too: pass max_distance={exact + 1} or more, or fewer buckets."
            )


def edges(buckets: int, max_distance: int) -> tuple[int, ...]:
    """Return the distances at which the wider buckets begin, without the first of them.

        bucket E + m begins at the first n with (n / E) ** (B - E) >= (D / E) ** m        m = 1 .. B - E - 1

    Compared as integers, so that no rounding can move an edge. The last one begins at D, `max_distance`, at the latest.
    """
    exact = buckets // 2
    wide = buckets - exact
    bounds = (max_distance**m * exact ** (wide - m) for m in range(1, wide))
    return tuple(bisect_left(range(max_distance), bound, key=lambda n: n**wide) for bound in bounds)
