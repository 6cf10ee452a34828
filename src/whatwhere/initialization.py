"""Initial values from a generator, and the one lock around PyTorch's global random state.

All random numbers of this library come from a `torch.Generator`, so that they depend on the seed alone. A user's own
code may know the global state only: it runs inside of `seeded`, one thread at a time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from math import prod, sqrt
from threading import RLock

import torch
from torch import Tensor, nn

from whatwhere.errors import SettingError

_BLOCK = 1 << 20  # numbers that a process samples at a time of a parameter that is spread over several
_GLOBAL_STATE = RLock()  # reentrant: a scheme that is built within another one seeds again


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's global random state within a block, one thread at a time; restore it afterwards."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with _GLOBAL_STATE, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def reset(module: nn.Module, generator: torch.Generator | None = None) -> None:
    """Sample all parameters of a module anew, by the `reset_parameters` of each part that has some, from a generator.

    Parts come before what they are in; one without parameters of its own that has `reset_parameters` resets its parts
    by that. One whose `reset_parameters` takes no generator samples with the global state, seeded from this one.
    """
    reset_parameters = getattr(module, "reset_parameters", None)
    owns = next(module.parameters(recurse=False), None) is not None
    if owns or reset_parameters is None:
        for part in module.children():
            reset(part, generator)
    if reset_parameters is None:
        if owns:
            raise SettingError(
                f"{type(module).__name__} has parameters, but no reset_parameters, so they cannot be sampled anew.\n"
                "Write one: def reset_parameters(self, generator=None)."
            )
    elif generator is None:
        reset_parameters()
    elif "generator" in signature(reset_parameters).parameters:
        reset_parameters(generator=generator)
    else:
        with seeded(int(torch.randint(1 << 62, (), generator=generator, device=generator.device))):
            reset_parameters()


def sample_normal(parameter: Tensor, std: float, generator: torch.Generator | None = None) -> None:
    """Sample a parameter from N(0, std).

    A DTensor is filled by all processes together, with the numbers of the whole, from a generator alike on all.
    """
    _sample(parameter, lambda x, g: nn.init.normal_(x, std=std, generator=g), generator)


def sample_uniform(parameter: Tensor, bound: float, generator: torch.Generator | None = None) -> None:
    """Sample a parameter from U(-bound, bound); otherwise as `sample_normal`."""
    _sample(parameter, lambda x, g: nn.init.uniform_(x, -bound, bound, generator=g), generator)


def sample_rows(
    weight: Tensor, init: str | float, shape: tuple[int, int], generator: torch.Generator | None = None
) -> None:
    """Sample rows of a table, all or a block of them, as `init` of TokenEmbedding describes for its shape."""
    rows, dim = shape
    if not isinstance(init, str):
        sample_normal(weight, init, generator)
    elif init in ("glorot_uniform", "fan_in_uniform"):
        sample_uniform(weight, sqrt(6 / (rows + dim) if init == "glorot_uniform" else 1 / dim), generator)
    else:
        stds = {"normal": 0.02, "glorot_normal": sqrt(2 / (rows + dim)), "torch": 1.0}
        sample_normal(weight, stds[init], generator)


def assign(parameter: Tensor, values: Tensor) -> None:
    """Copy values into a parameter; into a shard, its part of them."""
    with torch.no_grad():
        if (offsets := shard_offsets(parameter)) is None:
            parameter.copy_(values)
        else:
            local = parameter.to_local()  # type: ignore[attr-defined]  # of a DTensor
            local.copy_(values[tuple(slice(at, at + n) for at, n in zip(offsets, local.shape, strict=True))])


def zero_row(weight: Tensor, row: int) -> None:
    """Set a row of a table to zero, on the process that has it."""
    with torch.no_grad():
        offsets = shard_offsets(weight)
        local = weight if offsets is None else weight.to_local()  # type: ignore[attr-defined]
        at = row - (0 if offsets is None else offsets[0])
        if 0 <= at < local.shape[0]:
            local[at].zero_()


def shard_offsets(parameter: Tensor) -> tuple[int, ...] | None:
    """Return where the shard of this process begins in a parameter, by dimension; None of one that is not a DTensor."""
    if not torch.distributed.is_available() or not hasattr(parameter, "placements"):
        return None
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh, placements = parameter.device_mesh, parameter.placements  # type: ignore[attr-defined]
    _, offsets = compute_local_shape_and_global_offset(parameter.shape, mesh, placements)
    return tuple(offsets)


def own_rows(table: Tensor) -> Tensor:
    """Return the part of this process of a DTensor, which shares its memory; any other tensor as it is."""
    local: Tensor = getattr(table, "_local_tensor", table)
    return local


@contextmanager
def alike(parameter: Tensor, generator: torch.Generator | None) -> Iterator[torch.Generator | None]:
    """Yield a generator with one state on all processes that have a part of a parameter; the caller's goes on."""
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is None:
        yield generator
        return
    state = torch.get_rng_state() if generator is None else generator.get_state()
    shared = state.to(mesh.device_type)
    for axis in reversed(range(mesh.ndim)):
        torch.distributed.broadcast(shared, group=mesh.get_group(axis), group_src=0)
    common = torch.Generator("cpu" if generator is None else generator.device)
    common.set_state(shared.cpu())
    yield common
    if generator is None:
        torch.set_rng_state(common.get_state())
    else:
        generator.set_state(common.get_state())


def _sample(
    parameter: Tensor, draw: Callable[[Tensor, torch.Generator | None], Tensor], generator: torch.Generator | None
) -> None:
    offsets = shard_offsets(parameter)
    if offsets is None:
        draw(parameter, generator)
        return
    with torch.no_grad(), alike(parameter, generator) as common:
        local = parameter.to_local()  # type: ignore[attr-defined]
        first, last = offsets[0], offsets[0] + local.shape[0]
        others = tuple(slice(at, at + n) for at, n in zip(offsets[1:], local.shape[1:], strict=True))
        device = None if common is None else common.device
        begin = 0
        for rows in row_blocks(parameter.shape[0], prod(parameter.shape[1:])):
            block = torch.empty(rows, *parameter.shape[1:], dtype=parameter.dtype, device=device)
            draw(block, common)
            low, high = max(first, begin), min(last, begin + rows)
            if low < high:
                local[low - first : high - first] = block[(slice(low - begin, high - begin), *others)].to(local.device)
            begin += rows


def row_blocks(rows: int, width: int) -> Iterator[int]:
    """Return the rows of each block, so that blocks give what one call gives on the CPU.

    PyTorch samples 16 numbers at a time, and the last 16 of a call anew: blocks of 16 rows, and no last one of fewer
    numbers, keep to that.
    """
    size = max(16, _BLOCK // max(width, 1) // 16 * 16)
    while rows >= 2 * size:
        yield size
        rows -= size
    yield rows


def reset_linear(layer: nn.Linear, generator: torch.Generator | None = None) -> None:
    """Sample a linear layer anew, as PyTorch does: weight and bias from U(-a, a), a = 1 / sqrt(in_features)."""
    _sample(layer.weight, lambda x, g: nn.init.kaiming_uniform_(x, a=sqrt(5), generator=g), generator)
    if layer.bias is not None:
        sample_uniform(layer.bias, layer.in_features**-0.5, generator)
