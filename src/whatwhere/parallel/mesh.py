"""Tensors that are alike on the processes of a mesh, summed over them, or gathered; clipping by the norm of all."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from whatwhere.checks import require_positive
from whatwhere.initialization import own_rows
from whatwhere.tensor_checks import readable
from whatwhere.what.row_adamw.gradient import RowGradient

_MIXING = 0x9E3779B97F4A7C15 - (1 << 64)  # an odd number without a pattern, 2^64 by the golden ratio, as a signed one


def replicated(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return a tensor that is alike on all processes of a mesh of one dimension, with the sum of their gradients."""
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
    """Return the sum of a tensor over processes, alike on all; its gradient is taken to be alike on all."""
    whole = DTensor.from_local(x, mesh, [Partial()], run_check=False).redistribute(placements=[Replicate()])
    total: Tensor = whole.to_local()
    return total


def gathered(x: Tensor, axis: int, mesh: DeviceMesh) -> Tensor:
    """Return the parts of all processes, in the order of ranks; the gradient of a part is the sum of all gradients.

    They are parts along an axis, of one shape on all, and the mesh has one dimension.
    """
    parts = DTensor.from_local(x.contiguous(), mesh, [Shard(axis)], run_check=False)
    whole: Tensor = parts.full_tensor(grad_placements=[Partial()])
    return whole


@torch.no_grad()
def clip_gradient_norm(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients so that their Euclidean norm is at most a number, and return their norm before.

    As `torch.nn.utils.clip_grad_norm_`, also where some are DTensors and others not, or rows of RowAdamW. Gradients of
    plain parameters are taken to be alike on all processes, as DistributedDataParallel leaves them.

    Args:
        parameters: of the model, in the same order on all processes, those without a gradient too.
        max_norm: above 0.

    Returns:
        The norm, the same on all processes.

    Raises:
        SettingError: If max_norm is not a number above 0.
    """
    require_positive("clip_gradient_norm", max_norm=max_norm)
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    # One sum for all gradients that are spread over the same processes.
    sums: dict[tuple[Any, ...], Tensor] = {}
    for parameter in trained:
        groups = _spread_over(parameter)
        sums[groups] = sums.get(groups, torch.zeros((), device=parameter.device)) + _square(parameter)
    for groups, total in sums.items():
        for group in groups:
            torch.distributed.all_reduce(total, group=group)
    norm = torch.stack([torch.zeros(()), *(total.cpu() for total in sums.values())]).sum().sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for parameter in trained:
        if isinstance(gradient := parameter.grad, RowGradient):
            gradient.mul_(factor.to(gradient))
        elif gradient is not None:
            own_rows(gradient).mul_(factor.to(gradient.device))
    return norm


def _spread_over(parameter: Tensor) -> tuple[Any, ...]:
    """Return the groups of processes that have parts of a parameter; none of a plain one."""
    if not isinstance(parameter, DTensor):
        return ()
    mesh = parameter.device_mesh
    return tuple(mesh.get_group(n) for n, placement in enumerate(parameter.placements) if not placement.is_replicate())


def _square(parameter: Tensor) -> Tensor:
    """Return the sum of squares of the gradient that this process has, in float32 at least."""
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros((), device=parameter.device)
    values = gradient._values() if isinstance(gradient, RowGradient) else own_rows(gradient)
    return values.to(torch.promote_types(values.dtype, torch.float32)).square().sum()
