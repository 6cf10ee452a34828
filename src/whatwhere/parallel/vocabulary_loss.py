"""Cross entropy of logits whose tokens are spread over processes."""

from typing import Any, Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributed.tensor import DTensor, Shard

from whatwhere.checks import require_choice
from whatwhere.errors import SettingError, ShapeError, TokenError
from whatwhere.initialization import shard_offsets
from whatwhere.parallel.mesh import alike_everywhere
from whatwhere.parallel.vocabulary_shards import differing
from whatwhere.tensor_checks import require_range


def vocabulary_cross_entropy(
    logits: Float[Tensor, "*shape vocab_size"],
    targets: Integer[Tensor, "*shape"],
    ignore_index: int = -100,
    reduction: Literal["mean", "sum"] = "mean",
) -> Float[Tensor, ""]:
    """Compute the cross entropy; no process holds logits of other tokens than its own.

        loss = log sum_v exp z_v - z_target        maximum, sum and target are reduced over the processes

    Args:
        logits: of `VocabularyShards.readout`, as a DTensor sharded by tokens.
        targets: a token for each, the same on all processes: compared on the CPU, by a checksum.
        ignore_index: targets of this number do not count.
        reduction: `mean` or `sum` over the targets that count.

    Returns:
        The loss, in float32 at least; the same on all processes.

    Raises:
        SettingError: If the logits are not sharded by tokens, or the reduction is unknown.
        ShapeError: If there is not one target for each.
        TokenError: If a target is outside the vocabulary, or targets differ from those of another process.
    """
    if not isinstance(logits, DTensor) or logits.placements != (Shard(logits.dim() - 1),):
        raise SettingError(
            "vocabulary_cross_entropy needs logits that are sharded by tokens, as VocabularyShards.readout returns "
            f"them, but got a {type(logits).__name__}.\nOf whole logits, use torch.nn.functional.cross_entropy."
        )
    require_choice("vocabulary_cross_entropy", "reduction", reduction, ("mean", "sum"))
    if targets.shape != logits.shape[:-1]:
        raise ShapeError(
            f"logits of shape {tuple(logits.shape)} need targets of shape {tuple(logits.shape[:-1])}, but got "
            f"{tuple(targets.shape)}.\nPass one target for each vector."
        )
    vocab_size, flat = logits.shape[-1], targets.flatten().long()

    def outside(value: int, slot: tuple[int, ...]) -> TokenError:
        return TokenError(
            f"target {value} at {slot[0]} is outside the vocabulary, which has {vocab_size} tokens "
            f"(0..{vocab_size - 1}).\nPass tokens of this table, or ignore_index."
        )

    if not alike_everywhere(flat, logits.device_mesh):
        raise differing("targets", "has the logits of")
    counted = flat != ignore_index
    require_range(torch.where(counted, flat, 0), vocab_size, outside)
    offsets = shard_offsets(logits)
    assert offsets is not None
    group = logits.device_mesh.get_group()
    local = logits.to_local().flatten(0, -2)
    loss: Tensor = _CrossEntropy.apply(local, flat - offsets[-1], counted, group, reduction)  # type: ignore[no-untyped-call]
    return loss


class _CrossEntropy(torch.autograd.Function):
    """The loss of own logits, whose gradient is softmax - one-hot; that of the mean is divided by the count."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, counted: Tensor, group: Any, reduction: str) -> Tensor:
        reduce = torch.distributed.ReduceOp
        own = (targets >= 0) & (targets < logits.shape[1]) & counted
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        maximum = torch.cat([wide, wide.new_full((len(wide), 1), -torch.inf)], 1).amax(1)
        torch.distributed.all_reduce(maximum, reduce.MAX, group=group)
        shifted = wide - maximum[:, None]
        sums = shifted.new_zeros(2, len(shifted))
        sums[1, own] = shifted[own, targets[own]]
        softmax = shifted.exp_()
        sums[0] = softmax.sum(1)
        torch.distributed.all_reduce(sums, group=group)
        softmax /= sums[0][:, None]
        ctx.save_for_backward(softmax, targets, own, counted)
        ctx.dtype, ctx.mean = logits.dtype, reduction == "mean"
        losses: Tensor = (sums[0].log() - sums[1])[counted]
        return losses.mean() if ctx.mean else losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        softmax, targets, own, counted = ctx.saved_tensors
        share = counted * (gradients[0] / counted.sum() if ctx.mean else gradients[0])
        gradient = softmax * share[:, None]
        gradient[own, targets[own]] -= share[own]
        return gradient.to(ctx.dtype), None, None, None, None
