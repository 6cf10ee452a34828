"""Two layouts of rotary pairs, and the way between them.

    interleaved     a pair is features (2i, 2i + 1)               the paper, GPT-J, Meta's Llama files
    half-split      a pair is features (i, i + rotary_dim/2)      Hugging Face, GPT-NeoX

A checkpoint does not say which it was trained in, and the wrong one runs without complaint. Moving the output rows of
the query and key projections moves a model from one to the other: scores stay the same, for both sides of the inner
product are permuted alike. Values and the output projection are not touched.
"""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from whatwhere.checks import require_even, require_whole
from whatwhere.errors import CheckpointError, SettingError, ShapeError

Layout = Literal["interleaved", "half_split"]


def to_interleaved(
    weight: Float[Tensor, "*shape"], num_heads: int, rotary_dim: int | None = None
) -> Float[Tensor, "*shape"]:
    """Move pairs (i, i + rotary_dim/2) next to one another, (2i, 2i + 1), in each head.

    Args:
        weight: of a query or key projection, (out, in); its bias or the weight of a norm over queries or keys,
            (out,); or activations, (..., heads, tokens, head_dim).
        num_heads: heads of this tensor: for keys with grouped heads the number of key heads, for a norm of one head 1.
        rotary_dim: only the first features of each head turn, and only they move; None is all.

    >>> import torch
    >>> to_interleaved(torch.tensor([0.0, 1.0, 2.0, 10.0, 11.0, 12.0]), num_heads=1)
    tensor([ 0., 10.,  1., 11.,  2., 12.])
    """
    return _moved(weight, num_heads, rotary_dim, "interleaved")


def to_half_split(
    weight: Float[Tensor, "*shape"], num_heads: int, rotary_dim: int | None = None
) -> Float[Tensor, "*shape"]:
    """Move pairs (2i, 2i + 1) apart, (i, i + rotary_dim/2), in each head; the inverse of `to_interleaved`.

    Args:
        weight, num_heads, rotary_dim: as there.

    >>> import torch
    >>> to_half_split(torch.tensor([0.0, 10.0, 1.0, 11.0, 2.0, 12.0]), num_heads=1)
    tensor([ 0.,  1.,  2., 10., 11., 12.])
    """
    return _moved(weight, num_heads, rotary_dim, "half_split")


def which(
    weight: Float[Tensor, "*shape"], twin: Float[Tensor, "*shape"], num_heads: int, rotary_dim: int | None = None
) -> Layout | Literal["same"]:
    """Tell the layout of a weight from its twin, the same weight of the same model in another file.

    Args:
        weight: the one that is asked about.
        twin: the other; it must hold the same numbers, perhaps permuted.
        num_heads, rotary_dim: as in `to_interleaved`.

    Gives `interleaved` (then the twin is half-split), `half_split` (the twin is interleaved), or `same`: equal as they
    stand, which tells no layout.

    >>> import torch
    >>> w = torch.randn(2 * 8, 3)
    >>> which(w, to_half_split(w, num_heads=2), num_heads=2)
    'interleaved'
    """
    if weight.shape != twin.shape:
        raise ShapeError(f"twins have one shape, but these have {tuple(weight.shape)} and {tuple(twin.shape)}.")
    if weight.equal(twin):
        return "same"
    was_interleaved = to_half_split(weight, num_heads, rotary_dim).equal(twin)
    was_half_split = to_interleaved(weight, num_heads, rotary_dim).equal(twin)
    if was_interleaved and was_half_split:
        raise SettingError(
            "with four features that turn, the permutation is its own inverse, so twins do not tell which is which.\n"
            "Compare outputs of the model instead."
        )
    if was_interleaved or was_half_split:
        return "interleaved" if was_interleaved else "half_split"
    raise CheckpointError(
        f"the two are no twins: with num_heads={num_heads} and rotary_dim={rotary_dim} no permutation makes them "
        "equal.\nFor keys with grouped heads pass the number of key heads; where only part of a head turns, pass "
        "rotary_dim. Both must have one dtype."
    )


def _moved(weight: Tensor, num_heads: int, rotary_dim: int | None, layout: Layout) -> Tensor:
    by_head = _by_head(weight, num_heads)  # (heads, head_dim, in) or (..., heads, tokens, head_dim)
    axis = -2 if weight.dim() < 3 else -1
    head_dim = by_head.shape[axis]
    turning = head_dim if rotary_dim is None else rotary_dim
    require_whole("layout", rotary_dim=turning)
    require_even("layout", "features turn in pairs", rotary_dim=turning)
    if turning > head_dim:
        raise ShapeError(f"layout got rotary_dim={turning}, but a head has only {head_dim} features.")
    sizes = (2, turning // 2) if layout == "interleaved" else (turning // 2, 2)
    moved = by_head.clone()
    pairs = by_head.narrow(axis, 0, turning).unflatten(axis, sizes)
    moved.narrow(axis, 0, turning).copy_(pairs.transpose(axis - 1, axis).flatten(axis - 1, axis))
    return moved.reshape(weight.shape)


def _by_head(weight: Tensor, num_heads: int) -> Tensor:
    require_whole("layout", num_heads=num_heads)
    if weight.dim() == 0:
        raise ShapeError("layout moves the features of heads, but got a single number.")
    if weight.dim() > 2:
        if weight.shape[-3] != num_heads:
            raise ShapeError(
                f"activations have shape (..., heads, tokens, head_dim), but these {tuple(weight.shape)} and "
                f"num_heads={num_heads}.\nIf tokens and heads are swapped, pass x.transpose(-3, -2)."
            )
        return weight
    if weight.shape[0] % num_heads:
        raise ShapeError(
            f"{weight.shape[0]} rows do not make {num_heads} heads of equal size.\n"
            "For keys with grouped heads pass the number of key heads."
        )
    return weight.reshape(num_heads, weight.shape[0] // num_heads, -1)
