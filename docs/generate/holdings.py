"""Measure what `table_costs` computes: memory and bytes sent of a token table, held in each way by 4 processes.

`python -m docs.generate.holdings` writes docs/holdings.json, which `python -m docs.generate` puts into docs/scale.md.
"""

import os
import platform
import socket
import stat
import struct
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from statistics import median_low

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from docs.generate.scale_page import HOLDINGS, RANKS, Held, Holdings
from docs.generate.table_costs import TableSettings, table_costs
from whatwhere import __version__
from whatwhere.comparison.folder import write_json
from whatwhere.initialization import own_rows
from whatwhere.parallel import deal_rows, shard_vocabulary
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.what.row_adamw.optimizer import RowAdamW

ROWS, DIM, TOKENS, STEPS, WARM = 40_000, 16, 300, 12, 2
_SENT_AT = 200  # tcpi_bytes_sent of Linux's struct tcp_info, from 4.19 on


def main() -> None:
    """Measure on 4 processes, and write the file."""
    with tempfile.TemporaryDirectory() as folder:
        start_processes(_work, (folder,), nprocs=RANKS, start_method="spawn")


def _work(rank: int, folder: str) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=RANKS)
    found = held_and_sent()
    if rank == 0:
        versions = str(torch.__version__), platform.python_version(), platform.machine()
        sizes = ROWS, DIM, TOKENS, RANKS
        write_json(HOLDINGS, Holdings(*versions, datetime.now(UTC).date().isoformat(), __version__, *sizes, found))
    distributed.barrier()


def held_and_sent() -> tuple[Held, ...]:
    """Return for each way what this process holds between steps and at most, and sends to others in a step.

    All ways in float32; then what differs with half of the processes sharing the vocabulary, and in bfloat16.
    """
    ranks = distributed.get_world_size()
    half = max(1, ranks // 2)
    found: list[Held] = []
    for shards, compute_bytes in dict.fromkeys(((ranks, 4), (half, 4), (ranks, 2), (half, 2))):
        settings = TableSettings(ROWS, DIM, ranks, tokens=TOKENS, shards=shards, compute_bytes=compute_bytes)
        mesh = init_device_mesh("cpu", (ranks // shards, shards), mesh_dim_names=("groups", "shards"))
        for way in table_costs(settings):
            planned = way.kept, way.peak, way.sent
            if all((each.way, each.planned) != (way.name, planned) for each in found):
                found.append(Held(way.name, shards, compute_bytes, planned, _measured(way.name, settings, mesh)))
    return tuple(found)


def _measured(way: str, settings: TableSettings, mesh: DeviceMesh) -> tuple[int, int, int]:
    """Return what this process holds between steps and at most, and sends to others in a step."""
    share = np.arange(1.0, ROWS + 1) ** -1.0
    same = settings.shards if way == "vocabulary shards" else 1  # processes with the same text
    generator = np.random.default_rng(distributed.get_rank() // same)
    texts = [torch.from_numpy(generator.choice(ROWS, TOKENS, p=share / share.sum()))[None] for _ in range(STEPS)]
    model, optimizer = _BUILD[way](TokenEmbedding(ROWS, DIM), mesh, settings)
    before, peaks = 0, []
    for step, ids in enumerate(texts):
        before = _bytes_sent() if step == WARM else before
        kept = _bytes_kept(model, optimizer)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            optimizer.zero_grad()
            vectors = model(ids)
            vectors.backward(vectors.detach())
            del vectors
            optimizer.step()
        peaks.append(kept + _most_allocated(recorded))
    sent = round((_bytes_sent() - before) / (STEPS - WARM))
    # What threads of gloo allocate and free is not always recorded: single steps may seem to take more or less.
    return _bytes_kept(model, optimizer), median_low(peaks[WARM:]), sent


def _bytes_kept(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes of weights, dense gradients and moments."""
    total = 0
    for parameter in model.parameters():
        gradient = None if parameter.grad is None or parameter.grad.is_sparse else parameter.grad
        for each in (parameter, gradient, *optimizer.state.get(parameter, {}).values()):
            total += own_rows(each).untyped_storage().nbytes() if isinstance(each, Tensor) else 0
    return total


def _most_allocated(recorded: profile) -> int:
    """Return the most bytes that PyTorch had allocated at a time, beyond those that it had at the start."""
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(0, *accumulate(changes))


def _bytes_sent() -> int:
    """Return the bytes that all TCP connections of this process have sent, as Linux counts them."""
    total = 0
    for number in Path("/proc/self/fd").iterdir():
        try:
            if not stat.S_ISSOCK(os.fstat(int(number.name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(number.name))) as one:
                total += struct.unpack_from("Q", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), _SENT_AT)[0]
        except OSError:
            continue
    return total


Built = tuple[nn.Module, torch.optim.Optimizer]


def _replicated(tokens: TokenEmbedding, mesh: DeviceMesh, settings: TableSettings) -> Built:
    dense = nn.Sequential(nn.Embedding(*tokens.weight.shape))
    return DistributedDataParallel(dense, gradient_as_bucket_view=True), _adamw(dense)


def _gathered(tokens: TokenEmbedding, mesh: DeviceMesh, settings: TableSettings) -> Built:
    optimizer = RowAdamW(tokens)
    return DistributedDataParallel(nn.Sequential(tokens)), optimizer


def _fully_sharded(tokens: TokenEmbedding, mesh: DeviceMesh, settings: TableSettings) -> Built:
    fully_shard(tokens, mesh=_all_ranks(), mp_policy=_policy(settings))
    return tokens, _adamw(tokens)


def _vocabulary_shards(tokens: TokenEmbedding, mesh: DeviceMesh, settings: TableSettings) -> Built:
    shards = shard_vocabulary(tokens, mesh["shards"])
    if mesh["groups"].size() > 1:
        fully_shard(shards, mesh=mesh["groups"], mp_policy=_policy(settings))
    return shards, _adamw(shards)


def _owners(tokens: TokenEmbedding, mesh: DeviceMesh, settings: TableSettings) -> Built:
    owners = deal_rows(tokens, _all_ranks())
    return owners, RowAdamW(owners)


def _adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), fused=True)


def _all_ranks() -> DeviceMesh:
    return init_device_mesh("cpu", (distributed.get_world_size(),))


def _policy(settings: TableSettings) -> MixedPrecisionPolicy:
    if settings.compute_bytes == 4:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


_BUILD: dict[str, Callable[[TokenEmbedding, DeviceMesh, TableSettings], Built]] = {
    "replicated": _replicated,
    "replicated, rows gathered": _gathered,
    "FSDP": _fully_sharded,
    "vocabulary shards": _vocabulary_shards,
    "rows to their owners": _owners,
}

if __name__ == "__main__":
    main()
