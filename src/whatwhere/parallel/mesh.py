"""Tensors that are alike on the processes of a mesh, summed over them, or gathered from them, with their gradients."""

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from whatwhere.tensor_checks import readable

_MIXING = 0x9E3779B97F4A7C15 - (1 << 64)
"""An odd number without a pattern, 2^64 by the golden ratio, as a signed one."""


def replicated(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return a tensor that is alike on all processes of a mesh of one dimension, with the sum of their gradients.

    Args:
        x: what each of them computes a part of the result from.
        mesh: the processes.
    """
    copy: Tensor = DTensor.from_local(x, mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])
    return copy


def alike_everywhere(values: Tensor, mesh: DeviceMesh) -> bool:
    """Return whether whole numbers are the same on all processes, to a checksum: 16 bytes are reduced.

    Values are read on the CPU and eagerly; elsewhere, as on GPUs, they are taken to be.
    """
    if mesh.size() == 1 or not readable(values):
        return True
    flat = values.long().flatten()
    slots = torch.arange(1, 2 * len(flat) + 1, 2)  # odd, so that each changed value changes its product
    mixed = (flat + _MIXING) * (slots * _MIXING)
    checksum = (mixed ^ (mixed >> 29)).sum() + len(flat)  # integers wrap around
    ends = torch.stack([checksum, ~checksum])
    torch.distributed.all_reduce(ends, torch.distributed.ReduceOp.MAX, group=mesh.get_group())
    return bool(ends[0] == ~ends[1])


def summed(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return the sum of a tensor over processes, alike on all; its gradient is taken to be alike on all.

    Args:
        x: the part of this process.
        mesh: the processes.
    """
    whole = DTensor.from_local(x, mesh, [Partial()], run_check=False).redistribute(placements=[Replicate()])
    total: Tensor = whole.to_local()
    return total


def gathered(x: Tensor, axis: int, mesh: DeviceMesh) -> Tensor:
    """Return the parts of all processes, in the order of ranks; the gradient of a part is the sum of all gradients.

    Args:
        x: the part of this process, of one shape on all.
        axis: along which they are parts.
        mesh: the processes, in one dimension.
    """
    parts = DTensor.from_local(x.contiguous(), mesh, [Shard(axis)], run_check=False)
    whole: Tensor = parts.full_tensor(grad_placements=[Partial()])
    return whole
