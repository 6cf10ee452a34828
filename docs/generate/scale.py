"""Train a small Transformer under every scheme on several processes, and compare with one process.

`python -m docs.generate.scale` writes docs/scale.json; `python -m docs.generate` puts its table into docs/scale.md.
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
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed.nn.functional as collective
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, linear
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from docs.generate.scale_page import DATA, RANKS, Cell, ScaleTable, SchemeRow, read_data
from whatwhere.comparison.folder import write_json
from whatwhere.comparison.model import Block, Transformer, build_wheres
from whatwhere.comparison.settings import make_settings
from whatwhere.parallel import heads_of
from whatwhere.position import Positions, positions
from whatwhere.position_slices import ShardOrder
from whatwhere.where.binding import Here, Where, bind
from whatwhere.where.catalogue import catalogue

VOCAB, DIM, HEADS, LAYERS, TOKENS, BATCH, STEPS, EXPORTED = 97, 64, 4, 2, 24, 8, 4, 4096
ATTEMPTS = 3
ORDERS: tuple[ShardOrder, ...] = ("contiguous", "zigzag", "striped")
SETTINGS = make_settings("expressions", (8,), dim=DIM, heads=HEADS, feedforward=DIM, layers=LAYERS, tied=True)


def main() -> None:
    """Measure the schemes that are missing, and write the file after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schemes", nargs="*", help="schemes to measure again; default: those that are missing")
    options = parser.parse_args()
    kept = {row.scheme: row for row in (read_data().rows if DATA.exists() else ())}
    names = options.schemes or [name for name in catalogue if name not in kept]
    tried = Counter[str]()
    while names:
        tried[names[0]] += 1
        if tried[names[0]] > ATTEMPTS:
            raise SystemExit(f"a process ended {ATTEMPTS} times at {names[0]}")
        for name, row in _measured(names):
            kept[name] = row
            names = [each for each in names if each != name]
            write_json(DATA, _table([kept[each] for each in catalogue if each in kept]))


def _measured(names: list[str]) -> Iterator[tuple[str, SchemeRow]]:
    """Yield each scheme and its row, until all are measured or a process has ended: gloo may abort one."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        workers = [context.Process(target=_work, args=(rank, folder, names), daemon=True) for rank in range(RANKS)]
        for worker in workers:
            worker.start()
        try:
            for number, name in enumerate(names):
                sys.stderr.write(f"{number + 1} of {len(names)}: {name}\n")
                if (row := _row(Path(folder), name, workers)) is None:
                    return
                yield name, row
        finally:
            for worker in workers:
                worker.kill()
                worker.join()


def _table(rows: list[SchemeRow]) -> ScaleTable:
    versions = str(torch.__version__), platform.python_version(), platform.machine()
    return ScaleTable(*versions, datetime.now(UTC).date().isoformat(), tuple(rows))


def _row(folder: Path, name: str, workers: list[Any]) -> SchemeRow | None:
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
    return SchemeRow(name, tuple(cells))


def _work(rank: int, folder: str, names: list[str]) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=RANKS)
    for name in names:
        found = {way: _tried(measure, name, rank) for way, measure in WAYS.items()}
        partly = Path(folder) / f"{name}.{rank}.partial"
        partly.write_text(json.dumps(found), encoding="utf-8")
        partly.rename(Path(folder) / f"{name}.{rank}.json")
    distributed.barrier()


def _tried(measure: Callable[[str, int], float], name: str, rank: int) -> list[Any]:
    torch.compiler.reset()
    try:
        return [measure(name, rank), ""]
    except Exception as problem:
        return [None, f"{type(problem).__name__}: {str(problem).strip().splitlines()[0][:200]}"]


# The model, the same on every rank


def _model(name: str, tokens: int = TOKENS) -> Transformer:
    """Return the model of a scheme; parameters that start at zero are drawn, so that none is without effect."""
    generator = torch.Generator().manual_seed(1)
    wheres = build_wheres(name, DIM, HEADS, tokens, LAYERS, seed=2)
    model = Transformer(VOCAB, wheres, SETTINGS, generator)
    with torch.no_grad():
        for parameter in model.wheres.parameters():
            if not bool(parameter.any()):
                parameter.normal_(std=0.3, generator=generator)
    return model


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
    return _distance(losses / RANKS, _losses(_model(name), _ids()))


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
    return _of_ranks(_losses(model, _ids()[rank::RANKS]), name)


def _fully_sharded(name: str, rank: int) -> float:
    model = _model(name)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return _of_ranks(_losses(model, _ids()[rank::RANKS]), name)


class _Copy(torch.autograd.Function):
    """Pass a tensor on to the heads of a rank; their gradients are summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return x."""
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Return the sum of the gradients."""
        total = grad.contiguous().clone()
        distributed.all_reduce(total)
        return total


class _Sum(torch.autograd.Function):
    """Sum what the heads of all ranks add; each rank goes on with the same vectors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return the sum."""
        total = x.contiguous().clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Return the gradient."""
        return grad


class _OwnHeads(nn.Module):
    """A block with the heads of one rank."""

    def __init__(self, block: Block, first: int, count: int) -> None:
        super().__init__()
        head_dim = DIM // HEADS
        own = torch.arange(first * head_dim, (first + count) * head_dim)
        rows = torch.cat([own + n * DIM for n in range(3)])
        self.whole, self.count = block, count
        self.qkv = nn.Parameter(block.qkv.weight.detach()[rows])
        self.out = nn.Parameter(block.out.weight.detach()[:, own])

    def forward(self, x: Tensor, here: Here) -> Tensor:
        """Apply the block, with gates of the own heads."""
        block = self.whole
        y = _Copy.apply(block.norm_attention(x))
        q, k, v = linear(y, self.qkv).unflatten(-1, (3, self.count, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = here.query_key(q, k, increments=here.increments(y))
        out = here.attention(q, k, v, causal=block.causal, gates=here.gates(y))
        x = x + _Sum.apply(linear(out.transpose(1, 2).flatten(-2), self.out))
        return x + block.feed(block.norm_feed(x))


def _of_heads(name: str, rank: int) -> float:
    """Compare loss and gradients of the schemes' parameters: those of own heads, and the sum of those of all."""
    model, count = _model(name), HEADS // RANKS
    wheres = heads_of([where for where in model.wheres if isinstance(where, Where)], rank * count, count, total=HEADS)
    blocks = [_OwnHeads(block, rank * count, count) for block in model.blocks if isinstance(block, Block)]
    ids, heres = _ids(), bind(wheres, TOKENS)
    x = model.input(ids, heres[0])
    for block, here in zip(blocks, heres, strict=True):
        x = block(x, here)
    loss = _loss(model.input.tokens.readout(model.norm(x)), ids)
    loss.backward()
    whole = _model(name)
    wanted = _loss(whole(ids), ids)
    wanted.backward()
    most = _distance(loss.detach(), wanted.detach())
    for where, other in zip(nn.ModuleList(wheres).modules(), whole.wheres.modules(), strict=True):
        axes = getattr(other, "head_axes", None) or {}
        for key, parameter in other.named_parameters(recurse=False):
            own = where.get_parameter(key).grad
            if own is None or parameter.grad is None:
                continue
            grad = parameter.grad
            if key in axes and getattr(other, "sets", HEADS) > 1:
                size = grad.shape[axes[key]] // HEADS
                grad = grad.narrow(axes[key], rank * count * size, count * size)
            elif not _is_input(other, whole):
                own = own.clone()
                distributed.all_reduce(own)
            most = max(most, _distance(own, grad) / _unit(parameter.grad, whole))
    return most


def _is_input(module: nn.Module, model: Transformer) -> bool:
    """Return whether a module is of the first door, which every rank computes as a whole."""
    return any(module is each for where in model.wheres if where.input is not None for each in where.input.modules())


def _of_tokens(name: str, rank: int) -> float:
    """Compare logits where each rank has a part of the tokens, in three orders; keys and gates are gathered."""
    model, ids, whole = _model(name), _ids(), positions(TOKENS)
    most = 0.0
    with torch.no_grad():
        wanted = model(ids)
        for order in ORDERS:
            slots = whole.shard_slots(RANKS, order)
            gathered = whole.take(slots.flatten())
            logits = _with_gathered_keys(model, ids[:, slots[rank]], whole.take(slots[rank]), gathered)
            most = max(most, _distance(logits, wanted[:, slots[rank]]))
    return most


def _with_gathered_keys(model: Transformer, ids: Tensor, own: Positions, gathered: Positions) -> Tensor:
    wheres = [where for where in model.wheres if isinstance(where, Where)]
    to_rotate, to_attend = (bind(wheres, *each) for each in ((own,), (own, gathered)))
    x = model.input(ids, to_rotate[0])
    for block, mapped, here in zip(model.blocks, to_rotate, to_attend, strict=True):
        assert isinstance(block, Block)
        y = block.norm_attention(x)
        q, k, v = block.qkv(y).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        increments, gates = mapped.increments(y), mapped.gates(y)
        if increments is None:
            q, k = mapped.query_key(q, k)
        k, v = _gathered(k), _gathered(v)
        if increments is not None:  # sums over all earlier tokens: keys are mapped after they are gathered
            q, k = here.query_key(q, k, increments=_gathered(increments))
        if gates is not None and here.where.score is not None and here.where.score.sums_between:
            gates = _gathered(gates)
        out = here.attention(q, k, v, causal=block.causal, gates=gates)
        x = x + block.out(out.transpose(1, 2).flatten(-2))
        x = x + block.feed(block.norm_feed(x))
    return model.input.tokens.readout(model.norm(x))


def _gathered(x: Tensor) -> Tensor:
    """Return the keys, values or gates of all ranks, in their order."""
    return torch.cat(collective.all_gather(x.contiguous()), dim=2)


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
    "head shards": _of_heads,
    "context shards": _of_tokens,
    "checkpointing": _on_rank_0(_checkpointed),
    "compile": _on_rank_0(_compiled),
    "export": _on_rank_0(_exported),
}

if __name__ == "__main__":
    main()
