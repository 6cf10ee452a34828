"""Clipping of gradients by the norm of all of them, wherever they are."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from whatwhere.checks import require_positive
from whatwhere.initialization import own_rows
from whatwhere.what.row_adamw.gradient import RowGradient


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
