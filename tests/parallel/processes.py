"""Run a function on several processes that are joined by gloo, and judge what each of them wrote."""

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

PYTORCH = tuple(map(int, torch.__version__.split(".")[:2]))
"""Its major and minor version."""

SECONDS = 300
_PRELOADED = [
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "whatwhere.parallel",
]
"""Imported once, by the process that the others are forks of: it has run nothing, and so has no threads."""


def on_ranks(ranks: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return what a function returned on each rank, the first rank's first.

    Args:
        ranks: processes.
        folder: for what they write; empty.
        function: of a module; called with the arguments once the processes are joined.
        arguments: of the function.

    gloo may abort a process that has written its result, so that results are judged, and exit statuses are not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    processes = [
        context.Process(target=_run, args=(rank, ranks, str(folder), function, arguments)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
        if process.is_alive():
            process.kill()
    results = []
    for rank in range(ranks):
        file = folder / f"{rank}.pickle"
        assert file.exists(), f"rank {rank} wrote no result, and ended with {processes[rank].exitcode}"
        result, problem = pickle.loads(file.read_bytes())
        assert problem is None, f"rank {rank}:\n{problem}"
        results.append(result)
    return results


def _run(rank: int, ranks: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=ranks)
    try:
        answer = function(*arguments), None
    except Exception:
        answer = None, traceback.format_exc()
    partial = Path(folder) / f"{rank}.partial"
    partial.write_bytes(pickle.dumps(answer))
    partial.rename(Path(folder) / f"{rank}.pickle")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
