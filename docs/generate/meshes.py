"""Train one model under every scheme on meshes of 4 processes, by `train_one`, and compare with one process.

`python -m docs.generate.meshes` writes docs/meshes.json; `python -m docs.generate` puts its table into docs/scale.md.
Schemes that the file has already are kept, so that an interrupted run is resumed; named ones are measured again.
"""

import argparse
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from docs.generate.meshes_table import DATA, MESHES, MeshCell, MeshScheme, MeshTable, read_meshes
from docs.generate.scale_page import RANKS
from whatwhere.comparison.folder import write_json
from whatwhere.comparison.train_one import TrainedModel, train_one
from whatwhere.errors import WhatWhereError
from whatwhere.where.catalogue import catalogue

SIZES = {"dim": 64, "heads": 4, "feedforward": 256}
SETTINGS: dict[str, Any] = SIZES | {"steps": 6, "batch": 4, "trained": (32,), "test_sequences": 2, "every": 6}
ATTEMPTS = 3


def main() -> None:
    """Measure the schemes that are missing, and write the file after each few."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schemes", nargs="*", help="schemes to measure again; default: those that are missing")
    kept = {row.scheme: row for row in (read_meshes().rows if DATA.exists() else ())}
    names = parser.parse_args().schemes or [name for name in catalogue if name not in kept]
    for _ in range(ATTEMPTS):  # gloo may abort a process
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            context = multiprocessing.get_context("spawn")
            workers = [context.Process(target=_work, args=(rank, folder, names)) for rank in range(RANKS)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            for name in list(names):
                if (found := Path(folder) / f"{name}.json").exists():
                    kept[name] = _row(name, json.loads(found.read_text(encoding="utf-8")), folder)
                    names.remove(name)
        rows = tuple(kept[name] for name in catalogue if name in kept)
        versions = str(torch.__version__), platform.python_version(), platform.machine()
        write_json(DATA, MeshTable(*versions, datetime.now(UTC).date().isoformat(), rows))
        if not names:
            return
    raise SystemExit(f"processes ended {ATTEMPTS} times before {', '.join(names)}")


def _work(rank: int, folder: str, names: list[str]) -> None:
    """Train under each scheme on each mesh; the first process writes what was found."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=RANKS)
    for number, name in enumerate(names):
        found: dict[str, Any] = {}
        for mesh, options in MESHES.items():
            try:
                trained = _trained(name, Path(folder) / f"{name} {mesh}", **options)
            except WhatWhereError as problem:
                found[mesh] = [[], 0, str(problem).splitlines()[0]]
            else:
                found[mesh] = None if trained is None else [_losses(trained), max(trained.bytes_of_processes), ""]
        if rank == 0:
            sys.stderr.write(f"{number + 1} of {len(names)}: {name}\n")
            partly = Path(folder) / f"{name}.partial"
            partly.write_text(json.dumps(found), encoding="utf-8")
            partly.rename(Path(folder) / f"{name}.json")
    distributed.barrier()
    distributed.destroy_process_group()


def _row(name: str, found: dict[str, Any], folder: str) -> MeshScheme:
    torch.set_num_threads(1)
    alone = _trained(name, Path(folder) / f"{name} alone")
    assert alone is not None
    wanted, cells = _losses(alone), []
    for mesh, (losses, held, error) in found.items():
        pairs = zip(losses, wanted, strict=not error)
        cells.append(MeshCell(mesh, max((abs(a - b) for a, b in pairs), default=None), held, error))
    return MeshScheme(name, wanted[0], wanted[-1], alone.bytes_of_processes[0], tuple(cells))


def _trained(name: str, out: Path, **options: Any) -> TrainedModel | None:
    return train_one(name, "text", [32], out=out, progress=False, **SETTINGS | options)


def _losses(trained: TrainedModel) -> list[float]:
    return [loss for _, loss in trained.losses]


if __name__ == "__main__":
    main()
