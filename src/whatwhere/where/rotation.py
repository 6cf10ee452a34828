"""Rotation of pairs of features: what every rotary scheme does once its angles are known."""

import torch
from jaxtyping import Float, Float32
from torch import Tensor


def rotate(
    x: Float[Tensor, "batch heads tokens features"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
) -> Float[Tensor, "batch heads tokens features"]:
    """Turn pairs of features, in float32 at least, and cast back.

        (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)

    Args:
        x: queries or keys.
        cos, sin: of each pair's angle, perhaps with a common factor.
        interleaved: pairs are (2i, 2i+1); else (i, i + features/2).

    >>> one = torch.tensor([[[[1.0, 0.0]]]])
    >>> rotate(one, torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1), interleaved=True)
    tensor([[[[0., 1.]]]])
    """
    # bfloat16 arithmetic would double the error of the result: 2.7e-3 against the format's own 1.7e-3.
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if interleaved:
        a, b = wide.unflatten(-1, (-1, 2)).unbind(-1)  # (..., features) -> 2 x (..., pairs)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2).to(x.dtype)
    a, b = wide.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


def rotate_first(
    x: Float[Tensor, "batch heads tokens head_dim"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
) -> Float[Tensor, "batch heads tokens head_dim"]:
    """Turn as many of the first features as there are angles for, and leave the rest.

    >>> rotate_first(torch.ones(1, 1, 1, 3), torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1), interleaved=False)
    tensor([[[[-1.,  1.,  1.]]]])
    """
    turning = 2 * cos.shape[-1]
    if turning == x.shape[-1]:
        return rotate(x, cos, sin, interleaved)
    return torch.cat([rotate(x[..., :turning], cos, sin, interleaved), x[..., turning:]], dim=-1)


def between(
    old: tuple[Tensor, ...], new: tuple[Tensor, ...], magnitude: float = 1.0
) -> tuple[Float32[Tensor, "#batch 1 tokens pairs"], Float32[Tensor, "#batch 1 tokens pairs"]]:
    """Give cosine and sine of the turn from old angles to new ones.

        cos(b - a) = cos b cos a + sin b sin a        sin(b - a) = sin b cos a - cos b sin a

    Args:
        old, new: cosines and sines, both times the magnitude.
        magnitude: what is turned has it already, so it is divided out of both.

    >>> one, zero = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1)
    >>> between((zero, one), (zero, one))
    (tensor([[[[1.]]]]), tensor([[[[0.]]]]))
    """
    (cos_old, sin_old), (cos_new, sin_new) = old, new
    share = magnitude**-2
    return (cos_new * cos_old + sin_new * sin_old) * share, (sin_new * cos_old - cos_new * sin_old) * share
