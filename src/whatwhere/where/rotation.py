"""Rotation of pairs of features: what every rotary scheme does once its angles are known."""

from jaxtyping import Float, Float32
from torch import Tensor

from whatwhere.checks import readable
from whatwhere.errors import SettingError
from whatwhere.kernels import rotary_ops


def rotate_first(
    x: Float[Tensor, "batch heads tokens head_dim"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
) -> Float[Tensor, "batch heads tokens head_dim"]:
    """Turn as many of the first features as there are angles for, in float32 at least, and leave the rest.

        (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)

    Args:
        x: queries or keys.
        cos, sin: of each pair's angle, perhaps with a common factor.
        interleaved: pairs are (2i, 2i+1); else (i, i + pairs).

    >>> import torch
    >>> rotate_first(torch.ones(1, 1, 1, 3), torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1), interleaved=False)
    tensor([[[[-1.,  1.,  1.]]]])
    """
    return rotary_ops.rotate(x, cos, sin, interleaved)


def rotate_both(
    q: Float[Tensor, "batch heads queries head_dim"],
    k: Float[Tensor, "batch key_heads keys head_dim"],
    at_queries: tuple[Tensor, ...],
    at_keys: tuple[Tensor, ...],
    interleaved: bool,
    in_place: bool = False,
) -> tuple[Float[Tensor, "batch heads queries head_dim"], Float[Tensor, "batch key_heads keys head_dim"]]:
    """Turn queries and keys.

    Args:
        q, k: in place, tensors that lie apart from each other.
        at_queries, at_keys: cosine and sine for each.
        interleaved: as for rotate_first.
        in_place: write over q and k, and give them back.
    """
    (cos, sin), (key_cos, key_sin) = at_queries, at_keys
    if not in_place:
        if key_cos is cos and key_sin is sin:
            return rotary_ops.rotate_both(q, k, cos, sin, interleaved)
        return rotate_first(q, cos, sin, interleaved), rotate_first(k, key_cos, key_sin, interleaved)
    if q is k or (readable(q) and q.numel() > 0 and q.data_ptr() == k.data_ptr()):
        raise SettingError(
            "in_place=True would turn the same numbers twice: q and k lie in one place.\n"
            "Pass k.clone(), or in_place=False."
        )
    return rotary_ops.rotate_(q, cos, sin, interleaved), rotary_ops.rotate_(k, key_cos, key_sin, interleaved)


def between(
    old: tuple[Tensor, ...], new: tuple[Tensor, ...], magnitude: float = 1.0
) -> tuple[Float32[Tensor, "#batch 1 tokens pairs"], Float32[Tensor, "#batch 1 tokens pairs"]]:
    """Give cosine and sine of the turn from old angles to new ones.

        cos(b - a) = cos b cos a + sin b sin a        sin(b - a) = sin b cos a - cos b sin a

    Args:
        old, new: cosines and sines, both times the magnitude.
        magnitude: what is turned has it already, so it is divided out of both.

    >>> import torch
    >>> one, zero = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1)
    >>> between((zero, one), (zero, one))
    (tensor([[[[1.]]]]), tensor([[[[0.]]]]))
    """
    (cos_old, sin_old), (cos_new, sin_new) = old, new
    share = magnitude**-2
    return (cos_new * cos_old + sin_new * sin_old) * share, (sin_new * cos_old - cos_new * sin_old) * share
