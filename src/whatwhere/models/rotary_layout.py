"""The two layouts of rotary pairs, and conversion between them.

    interleaved     a pair is features (2i, 2i + 1)               the paper, GPT-J, Meta's Llama files
    half            a pair is features (i, i + rotary_dim/2)      Hugging Face (rotate_half), GPT-NeoX

A checkpoint does not record its layout, and code for the other one computes wrong scores without an error. Permuting
the output rows of the query and key projections converts a model: scores do not change, because queries and keys are
permuted alike. Value and output projections are not affected.
"""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from whatwhere.checks import require_even, require_whole
from whatwhere.errors import CheckpointError, SettingError, ShapeError

Layout = Literal["interleaved", "half"]


def to_interleaved(
    weight: Float[Tensor, "*shape"], num_heads: int, rotary_dim: int | None = None
) -> Float[Tensor, "*shape"]:
    """Convert from the half to the interleaved layout: features (i, i + rotary_dim/2) move to (2i, 2i + 1).

    Args:
        weight: of a query or key projection, (out, in); its bias or the weight of a norm over queries or keys,
            (out,); or activations, (..., heads, tokens, head_dim).
        num_heads: heads of this tensor: the number of key heads for keys with grouped heads, 1 for a norm of one head.
        rotary_dim: number of rotated features, the first of each head; only these move. None is all.

    Returns:
        A new tensor of the same shape.

    Raises:
        ShapeError: If the tensor does not divide into this number of heads, or a head has fewer features.

    Examples:
        >>> import torch
        >>> to_interleaved(torch.tensor([0.0, 1.0, 2.0, 10.0, 11.0, 12.0]), num_heads=1)
        tensor([ 0., 10.,  1., 11.,  2., 12.])
    """
    return _converted(weight, num_heads, rotary_dim, "interleaved")


def to_half(weight: Float[Tensor, "*shape"], num_heads: int, rotary_dim: int | None = None) -> Float[Tensor, "*shape"]:
    """Convert from the interleaved to the half layout: features (2i, 2i + 1) move to (i, i + rotary_dim/2).

    Args:
        weight, num_heads, rotary_dim: as for `to_interleaved`, of which this is the inverse.

    Returns:
        A new tensor of the same shape.

    Raises:
        ShapeError: If the tensor does not divide into this number of heads, or a head has fewer features.

    Examples:
        >>> import torch
        >>> to_half(torch.tensor([0.0, 10.0, 1.0, 11.0, 2.0, 12.0]), num_heads=1)
        tensor([ 0.,  1.,  2., 10., 11., 12.])
    """
    return _converted(weight, num_heads, rotary_dim, "half")


def which(
    weight: Float[Tensor, "*shape"], other: Float[Tensor, "*shape"], num_heads: int, rotary_dim: int | None = None
) -> Layout | Literal["same"]:
    """Determine the layout of a weight by comparing it with the same weight in another file.

    Args:
        weight: whose layout is to be determined.
        other: the same weight of the same model, perhaps permuted.
        num_heads, rotary_dim: as for `to_interleaved`.

    Returns:
        `interleaved` (then `other` has the half layout), `half` (then `other` is interleaved), or `same` where the two
        are equal, which does not determine the layout.

    Raises:
        CheckpointError: If neither is a permutation of the other.
        SettingError: If both layouts are possible, as with four rotated features.
        ShapeError: If the two have different shapes, or do not divide into heads.

    Examples:
        >>> import torch
        >>> w = torch.randn(2 * 8, 3)
        >>> which(w, to_half(w, num_heads=2), num_heads=2)
        'interleaved'
    """
    if weight.shape != other.shape:
        raise ShapeError(
            f"a weight has the same shape in both files, but these have {tuple(weight.shape)} and {tuple(other.shape)}."
        )
    if weight.equal(other):
        return "same"
    was_interleaved = to_half(weight, num_heads, rotary_dim).equal(other)
    was_half = to_interleaved(weight, num_heads, rotary_dim).equal(other)
    if was_interleaved and was_half:
        raise SettingError(
            "with four rotated features the permutation is its own inverse, so the two weights do not show which is "
            "which.\nCompare outputs of the model instead."
        )
    if was_interleaved or was_half:
        return "interleaved" if was_interleaved else "half"
    raise CheckpointError(
        f"the two weights are not the same: with num_heads={num_heads} and rotary_dim={rotary_dim} neither layout of "
        "one equals the other.\nFor keys with grouped heads pass the number of key heads; where only part of a head is "
        "rotated, pass rotary_dim. Both must have the same dtype."
    )


def _converted(weight: Tensor, num_heads: int, rotary_dim: int | None, layout: Layout) -> Tensor:
    by_head = _by_head(weight, num_heads)  # (heads, head_dim, in) or (..., heads, tokens, head_dim)
    axis = -2 if weight.dim() < 3 else -1
    head_dim = by_head.shape[axis]
    rotated = head_dim if rotary_dim is None else rotary_dim
    require_whole("rotary_layout", rotary_dim=rotated)
    require_even("rotary_layout", "features are rotated in pairs", rotary_dim=rotated)
    if rotated > head_dim:
        raise ShapeError(f"rotary_layout got rotary_dim={rotated}, but a head has only {head_dim} features.")
    sizes = (2, rotated // 2) if layout == "interleaved" else (rotated // 2, 2)
    converted = by_head.clone()
    pairs = by_head.narrow(axis, 0, rotated).unflatten(axis, sizes)
    converted.narrow(axis, 0, rotated).copy_(pairs.transpose(axis - 1, axis).flatten(axis - 1, axis))
    return converted.reshape(weight.shape)


def _by_head(weight: Tensor, num_heads: int) -> Tensor:
    require_whole("rotary_layout", num_heads=num_heads)
    if weight.dim() == 0:
        raise ShapeError("rotary_layout permutes the features of heads, but got a single number.")
    if weight.dim() > 2:
        if weight.shape[-3] != num_heads:
            raise ShapeError(
                f"activations have shape (..., heads, tokens, head_dim), but these {tuple(weight.shape)} and "
                f"num_heads={num_heads}.\nIf tokens and heads are swapped, pass x.transpose(-3, -2)."
            )
        return weight
    if weight.shape[0] % num_heads:
        raise ShapeError(
            f"{weight.shape[0]} rows do not divide into {num_heads} heads of equal size.\n"
            "For keys with grouped heads pass the number of key heads."
        )
    return weight.reshape(num_heads, weight.shape[0] // num_heads, -1)
