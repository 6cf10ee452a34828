"""Train a small Transformer under every scheme on several processes, and compare with one process.

`python -m docs.generate.scale` writes docs/scale.json; `python -m docs.generate` puts its table into docs/scale.md.
What the file has already is kept, so that an interrupted run is resumed, unless a different version of whatwhere
measured it; named schemes are measured again.
"""

import argparse
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from docs.generate.scale_page import DATA, RANKS, Cell, ScaleTable, SchemeRow, read_data
from examples import train_distributed as example
from whatwhere import __version__
from whatwhere.comparison.folder import write_json
from whatwhere.comparison.model import Transformer, build_wheres
from whatwhere.comparison.settings import make_settings
from whatwhere.position.positions import SHARD_ORDERS
from whatwhere.where.binding import Where
from whatwhere.where.catalogue import catalogue

VOCAB, DIM, HEADS, LAYERS, TOKENS, BATCH, STEPS, EXPORTED = 97, 64, 4, 2, 24, 8, 4, 4096
ATTEMPTS = 3
ORDERS = SHARD_ORDERS
SETTINGS = make_settings("expressions", (8,), dim=DIM, heads=HEADS, feedforward=DIM, layers=LAYERS, tied=True)


def main() -> None:
    """Measure the schemes that are missing, and write the file after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schemes", nargs="*", help="schemes to measure again; default: those that are missing")
    options = parser.parse_args()
    read = read_data() if DATA.exists() else None
    rows_read = read.rows if read is not None and read.whatwhere == __version__ else ()
    kept = {row.scheme: {cell.way: cell for cell in row.cells} for row in rows_read}
    missing = {name: [way for way in WAYS if name in options.schemes or way not in kept.get(name, {})]
               for name in (options.schemes if rows_read else None) or catalogue}  # fmt: skip
    missing = {name: ways for name, ways in missing.items() if ways}
    tried = Counter[str]()
    while missing:
        tried[next(iter(missing))] += 1
        if tried[next(iter(missing))] > ATTEMPTS:
            raise SystemExit(f"a process ended {ATTEMPTS} times at {next(iter(missing))}")
        for name, cells in _measured(dict(missing)):
            kept.setdefault(name, {}).update((cell.way, cell) for cell in cells)
            del missing[name]
            rows = {
                each: tuple(kept[each][way] for way in WAYS if way in kept[each]) for each in catalogue if each in kept
            }
            write_json(DATA, _table([SchemeRow(*row) for row in rows.items()]))


def _measured(missing: dict[str, list[str]]) -> Iterator[tuple[str, list[Cell]]]:
    """Yield each scheme and its cells, until all are measured or a process has ended: gloo may abort one."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        workers = [context.Process(target=_work, args=(rank, folder, missing), daemon=True) for rank in range(RANKS)]
        for worker in workers:
            worker.start()
        try:
            for number, name in enumerate(missing):
                sys.stderr.write(f"{number + 1} of {len(missing)}: {name}\n")
                if (cells := _cells(Path(folder), name, workers)) is None:
                    return
                yield name, cells
        finally:
            for worker in workers:
                worker.kill()
                worker.join()


def _table(rows: list[SchemeRow]) -> ScaleTable:
    versions = str(torch.__version__), platform.python_version(), platform.machine()
    return ScaleTable(*versions, datetime.now(UTC).date().isoformat(), __version__, tuple(rows))


def _cells(folder: Path, name: str, workers: list[Any]) -> list[Cell] | None:
    """Return what the processes wrote of a scheme: of each way the largest difference of any rank, or the error.

    None if a process has ended.
    """
    found: list[dict[str, list[Any]]] = []
    for rank in range(RANKS):
        file = folder / f"{name}.{rank}.json"
        while not file.exists():
            workers[rank].join(0.2)
            if any(worker.exitcode not in (None, 0) for worker in workers) and not file.exists():
                return None
        found.append(json.loads(file.read_text(encoding="utf-8")))
    cells = []
    for way in found[0]:
        errors = [each[way][1] for each in found if each[way][1]]
        cells.append(Cell(way, None if errors else max(each[way][0] for each in found), errors[0] if errors else ""))
    return cells


def _work(rank: int, folder: str, missing: dict[str, list[str]]) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=RANKS)
    for name, ways in missing.items():
        found = differences(name, ways)
        partly = Path(folder) / f"{name}.{rank}.partial"
        partly.write_text(json.dumps(found), encoding="utf-8")
        partly.rename(Path(folder) / f"{name}.{rank}.json")
    distributed.barrier()


def differences(name: str, ways: Sequence[str]) -> dict[str, tuple[float | None, str]]:
    """Return the largest difference from one process that this process finds of a scheme, and the error, by way.

    Args:
        name: of the scheme.
        ways: of WAYS; all processes call it with the same ones.
    """
    return {way: _tried(WAYS[way], name, distributed.get_rank()) for way in ways}


def _tried(measure: Callable[[str, int], float], name: str, rank: int) -> tuple[float | None, str]:
    try:
        return measure(name, rank), ""
    except Exception as problem:
        return None, f"{type(problem).__name__}: {str(problem).strip().splitlines()[0][:200]}"


# The model, the same on every rank


def _wheres(name: str, tokens: int = TOKENS) -> list[Where]:
    """Return the layers of a scheme; parameters that start at zero are drawn, so that none is without effect."""
    generator = torch.Generator().manual_seed(1)
    wheres = build_wheres(name, DIM, HEADS, tokens, LAYERS, seed=2)
    with torch.no_grad():
        for parameter in nn.ModuleList(wheres).parameters():
            if not bool(parameter.any()):
                parameter.normal_(std=0.3, generator=generator)
    return wheres


def _model(name: str, tokens: int = TOKENS) -> Transformer:
    return Transformer(VOCAB, _wheres(name, tokens), SETTINGS, torch.Generator().manual_seed(1))


def _ids() -> Tensor:
    return torch.randint(VOCAB, (BATCH, TOKENS), generator=torch.Generator().manual_seed(3))


def _loss(logits: Tensor, ids: Tensor) -> Tensor:
    return cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def _losses(model: nn.Module, ids: Tensor) -> Tensor:
    """Return the loss of each step of training."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        loss = _loss(model(ids), ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


def _of_ranks(losses: Tensor, name: str) -> float:
    """Return the largest difference of the mean over ranks from the losses of one process."""
    distributed.all_reduce(losses)
    return _distance(losses / distributed.get_world_size(), _losses(_model(name), _ids()))


def _distance(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max())


def _gradient_distance(found: nn.Module, wanted: nn.Module) -> float:
    """Return the largest difference of gradients, each as a share of `_unit`."""
    others, most = dict(wanted.named_parameters()), 0.0
    for key, parameter in found.named_parameters():
        other = others[key].grad
        if (parameter.grad is None) != (other is None):
            raise AssertionError(f"one of the gradients of {key} is missing")
        if parameter.grad is not None and other is not None:
            most = max(most, _distance(parameter.grad, other) / _unit(other, wanted))
    return most


def _unit(gradient: Tensor, model: nn.Module) -> float:
    """Return the largest number of a gradient, or a hundredth of the model's, which is larger.

    A softmax does not see what is added to all scores of a query; the gradients of such biases are rounding alone.
    """
    largest = max(float(each.grad.abs().max()) for each in model.parameters() if each.grad is not None)
    return max(float(gradient.abs().max()), largest / 100)


# Ways to split the work


def _replicated(name: str, rank: int) -> float:
    model = DistributedDataParallel(_model(name), find_unused_parameters=True)
    return _of_ranks(_losses(model, _own_ids(rank)), name)


def _fully_sharded(name: str, rank: int) -> float:
    model = _model(name)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return _of_ranks(_losses(model, _own_ids(rank)), name)


def _own_ids(rank: int) -> Tensor:
    return _ids()[rank :: distributed.get_world_size()]


def _on_mesh(axis: str, ring: bool, orders: tuple[str, ...], name: str, rank: int) -> float:
    """Compare loss and gradients of examples/train_distributed.py on a mesh of one axis with those of one process."""
    (loss, wanted), most = _trained(name, _alone()), 0.0
    unit = max(float(gradient.abs().max()) for (gradient,) in wanted.values()) / 100
    for order in orders:
        found, gradients = _trained(name, _processes(axis, ring, order))
        most = max(most, abs(found - loss))
        for key, (gradient,) in wanted.items():
            of_all = _joined(gradients[key], gradient)
            most = max(most, _distance(of_all, gradient) / max(float(gradient.abs().max()), unit))
    return most


# Each is made once for all schemes: a mesh starts groups of processes, whose threads stay.
@cache
def _alone() -> example.Processes:
    processes = example.Processes()
    processes.rows = processes.data = processes.tensor  # of this process
    return processes


@cache
def _processes(axis: str, ring: bool, order: str) -> example.Processes:
    return example.Processes(**{axis: distributed.get_world_size()}, ring=ring, order=order)


def _trained(name: str, processes: example.Processes) -> tuple[float, dict[str, list[Tensor]]]:
    """Return the loss of a step, and of each parameter the gradients of all processes of tensor."""
    torch.manual_seed(1)
    model = example.split(example.Decoder(VOCAB, DIM, HEADS, _wheres(name)), processes)
    (loss,) = example.train(model, [torch.cat([_ids(), _ids()[:, :1]], dim=1)], processes)
    gradients = {}
    for key, parameter in model.named_parameters():
        own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        own = (own.full_tensor() if isinstance(own, DTensor) else own).detach().contiguous()
        parts = [torch.empty_like(own) for _ in range(processes.tensor.size())]
        distributed.all_gather(parts, own, group=processes.tensor.get_group())
        gradients[key] = parts
    return loss, gradients


def _joined(parts: list[Tensor], whole: Tensor) -> Tensor:
    """Return the gradient of all processes: of those with parts of a parameter along the axis that is shorter."""
    axis = next((n for n, size in enumerate(whole.shape) if parts[0].shape[n] != size), None)
    return parts[0] if axis is None else torch.cat(parts, dim=axis)


# On each process by itself


def _checkpointed(name: str, rank: int) -> float:
    """Compare gradients with activation checkpointing of both kinds."""
    plain, ids = _model(name), _ids()
    _loss(plain(ids), ids).backward()
    most = 0.0
    for reentrant in (True, False):
        model = deepcopy(_model(name))
        for block in model.blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=reentrant)
        _loss(model(ids), ids).backward()
        most = max(most, _gradient_distance(model, plain))
    return most


def _compiled(name: str, rank: int) -> float:
    """Compare gradients of the model captured without a graph break; the tests compile by Inductor."""
    torch.compiler.reset()
    plain, model, ids = _model(name), _model(name), _ids()
    _loss(plain(ids), ids).backward()
    try:
        _loss(torch.compile(model, fullgraph=True, backend="aot_eager")(ids), ids).backward()
    except RuntimeError:  # strides that this backend, for debugging, does not restore
        torch.compiler.reset()
        model = _model(name)
        _loss(torch.compile(model, fullgraph=True)(ids), ids).backward()
    return _gradient_distance(model, plain)


def _exported(name: str, rank: int) -> float:
    """Compare logits of 4,096 tokens with those of a model that was exported by 24."""
    torch.compiler.reset()
    model = _model(name, EXPORTED).eval().requires_grad_(False)
    tokens = torch.export.Dim("tokens", min=2, max=EXPORTED)
    program = torch.export.export(model, (_ids()[:1],), dynamic_shapes=({1: tokens},))
    ids = torch.randint(VOCAB, (1, EXPORTED), generator=torch.Generator().manual_seed(4))
    return _distance(program.module()(ids), model(ids))


def _on_rank_0(measure: Callable[[str, int], float]) -> Callable[[str, int], float]:
    return lambda name, rank: measure(name, rank) if rank == 0 else 0.0


WAYS: dict[str, Callable[[str, int], float]] = {
    "DDP": _replicated,
    "FSDP2": _fully_sharded,
    "head shards": partial(_on_mesh, "tensor", False, ORDERS[:1]),
    "context, gathered": partial(_on_mesh, "context", False, ORDERS),
    "context, ring": partial(_on_mesh, "context", True, ORDERS),
    "checkpointing": _on_rank_0(_checkpointed),
    "compile": _on_rank_0(_compiled),
    "export": _on_rank_0(_exported),
}

if __name__ == "__main__":
    main()
