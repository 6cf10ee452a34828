"""The processes of one training in a mesh of four axes: data, shard, context and tensor."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache

import torch
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from whatwhere.checks import require_whole
from whatwhere.errors import SettingError
from whatwhere.tensor_checks import readable

_MIXING = 0x9E3779B97F4A7C15 - (1 << 64)
"""An odd number without a pattern, 2^64 by the golden ratio, as a signed one."""


@dataclass(frozen=True)
class MeshSizes:
    """How many processes each axis has; each process belongs to one group of each axis.

    Args:
        data: replicas, each with sequences of its own.
        shard: processes with sequences of their own, of which each stores a part of the weights (`fully_shard`).
        tensor: processes with the same tokens, of which each has some heads, features and rows of the vocabulary.
        context: processes with a part of the tokens of the same sequences; they store parts of the weights too.

    Raises:
        ShapeError: If a size is not a whole number of at least 1.

    Examples:
        >>> MeshSizes(data=2, tensor=4).processes
        8
    """

    data: int = 1
    shard: int = 1
    tensor: int = 1
    context: int = 1

    def __post_init__(self) -> None:
        """Check the sizes."""
        require_whole("train", **{axis.name: getattr(self, axis.name) for axis in fields(self)})

    @property
    def processes(self) -> int:
        """The number of processes."""
        return self.data * self.shard * self.tensor * self.context

    @property
    def batches(self) -> int:
        """The number of parts that a batch of sequences has."""
        return self.data * self.shard


def fill_mesh(data: int | None, shard: int, tensor: int, context: int, processes: int) -> MeshSizes:
    """Return the mesh of all processes.

    Args:
        data: None for as many replicas as the other axes leave.
        shard, tensor, context: as in MeshSizes.
        processes: that there are.

    Raises:
        SettingError: If the mesh has another number of processes.
        ShapeError: If a size is not a whole number of at least 1.

    Examples:
        >>> fill_mesh(None, shard=1, tensor=2, context=1, processes=4)
        MeshSizes(data=2, shard=1, tensor=2, context=1)
    """
    rest = MeshSizes(1, shard, tensor, context)
    sizes = MeshSizes(max(1, processes // rest.processes) if data is None else data, shard, tensor, context)
    if sizes.processes != processes:
        axes = " x ".join(f"{axis.name} {getattr(sizes, axis.name)}" for axis in fields(sizes))
        raise SettingError(
            f"the mesh {axes} needs {sizes.processes} processes, but there {'is' if processes == 1 else 'are'} "
            f"{processes}.\nStart as many: torchrun --nproc-per-node {sizes.processes} -m whatwhere train ..., or pass "
            "other sizes; data is filled up where it is left out."
        )
    return sizes


@dataclass(frozen=True)
class Mesh:
    """A mesh of processes that are joined.

    Args:
        sizes: of its axes.
        weights: in three dimensions, data, rows and tensor: those of context share rows with those of shard.
        tokens: in three dimensions, batches, context and tensor.
    """

    sizes: MeshSizes
    weights: DeviceMesh
    tokens: DeviceMesh

    @property
    def tensor(self) -> DeviceMesh:
        """The processes with the same tokens."""
        return self.weights["tensor"]

    @property
    def context(self) -> DeviceMesh:
        """The processes with parts of the same sequences."""
        return self.tokens["context"]

    @property
    def replicas(self) -> DeviceMesh:
        """The processes that `fully_shard` spreads weights over: in one dimension, or in two with data."""
        return self.weights["data", "rows"] if self.sizes.data > 1 else self.weights["rows"]

    def rank(self, axis: str) -> int:
        """Return the number of this process among those of an axis: batches, context or tensor."""
        return int(self.tokens[axis].get_local_rank())


@cache  # groups of processes have threads, and DTensor keeps them as long as the process lives
def make_mesh(sizes: MeshSizes, device: str) -> Mesh:
    """Return the mesh of all processes, which are joined already; the same one for the same sizes.

    Args:
        sizes: whose product is their number. Neighbors are those of tensor, which send most.
        device: "cpu" or "cuda".
    """
    of_weights = (sizes.data, sizes.shard * sizes.context, sizes.tensor)
    weights = init_device_mesh(device, of_weights, mesh_dim_names=("data", "rows", "tensor"))
    of_tokens = (sizes.batches, sizes.context, sizes.tensor)
    tokens = init_device_mesh(device, of_tokens, mesh_dim_names=("batches", "context", "tensor"))
    return Mesh(sizes, weights, tokens)


def world_size() -> int:
    """Return how many processes are joined, or torchrun has started to be joined; 1 without."""
    if torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    count = os.environ.get("WORLD_SIZE", "") if "TORCHELASTIC_RUN_ID" in os.environ else ""
    return int(count) if count.isdecimal() else 1


def is_first() -> bool:
    """Return whether this is the first process, which reports for all."""
    if torch.distributed.is_initialized():
        return torch.distributed.get_rank() == 0
    return world_size() == 1 or os.environ.get("RANK") == "0"


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Join the processes of torchrun in a `with` block; one process alone, or joined already, stays as it is.

    Args:
        device: "cpu" (gloo), or "cuda" (NCCL, and gloo for what is on the CPU).
    """
    if world_size() == 1 or torch.distributed.is_initialized():
        yield
        return
    rank, processes = int(os.environ["RANK"]), world_size()
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, store=_store(processes), rank=rank, world_size=processes)
    try:
        yield
    finally:
        make_mesh.cache_clear()
        torch.distributed.destroy_process_group()


def _store(processes: int) -> Store | None:
    """Return the store of torchrun by which processes find each other; None for the default one.

    After a restart it still has the addresses of the processes before, which gloo would connect to: on one machine,
    where all processes know how often they were restarted, each attempt has names of its own.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or os.environ.get("LOCAL_WORLD_SIZE") != str(processes):
        return None
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), processes, is_master=False)
    return PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def alike_copy(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return a tensor that is alike on all processes; its gradient is the sum of theirs, alike on all again.

    Args:
        x: what each of them computes a part of the result from.
        mesh: the processes, in one dimension.
    """
    copy: Tensor = DTensor.from_local(x, mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])
    return copy


def alike_everywhere(values: Tensor, mesh: DeviceMesh) -> bool:
    """Return whether whole numbers are the same on all processes, to a checksum: 16 bytes are reduced.

    Values are read on the CPU and eagerly; elsewhere, as on GPUs, they are taken to be.

    Args:
        values: of any shape; all processes take part.
        mesh: the processes, in one dimension.
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
        mesh: the processes, in one dimension.
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
