"""Learned schemes that are units of fully_shard by themselves, and shared by several blocks: losses of one process."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

import whatwhere as ww

from .processes import on_ranks
from .training import said, train

HEADS, HEAD_DIM, DIM, TOKENS, STEPS = 2, 8, 16, 6, 3
SCHEMES = ("t5", "kerple", "fire", "fox", "shaw", "rotary-learned", "fope")


class Block(nn.Module):
    """Attention that has its Where, which another block may have too."""

    def __init__(self, where: ww.Where, checkpointed: bool) -> None:
        super().__init__()
        self.where, self.checkpointed, self.qkv = where, checkpointed, nn.Linear(DIM, 3 * DIM)

    def attend(self, x: Tensor) -> Tensor:
        here = self.where.at(x.shape[1])
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
        y = here.attention(*here.query_key(q, k), v, gates=here.gates(x))
        return x + y.transpose(1, 2).flatten(2)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.attend, x, use_reentrant=False) if self.checkpointed else self.attend(x)


def made(name: str, shared: bool, checkpointed: bool = False) -> Any:
    torch.manual_seed(0)
    wheres = [ww.scheme(name, DIM, HEADS, 32) for _ in range(1 if shared else 2)]
    for where in wheres:
        where.sink = ww.Sink(HEADS)
        for weights in where.parameters():
            if not bool(weights.any()):
                nn.init.normal_(weights, std=0.3)
    return nn.Sequential(*(Block(wheres[n % len(wheres)], checkpointed) for n in range(2)), nn.Linear(DIM, DIM))


def losses(model: nn.Module, own: slice) -> Tensor:
    x = torch.randn(4, TOKENS, DIM, generator=torch.Generator().manual_seed(1))
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2)]
    return torch.tensor(train(range(STEPS), optimizers, lambda _: (model(x[own]) - x[own].flip(-1)).square().mean()))


def units(model: Any, kind: str) -> list[nn.Module]:
    wheres = list(dict.fromkeys(block.where for block in model[:2]))
    if kind == "where":
        return wheres
    return [part for where in wheres for part in (where.query_key, where.score, where.sink) if part is not None]


def on_each_rank() -> dict[str, Any]:
    """Return how far the losses are from those of one process, and what is refused."""
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    found: dict[str, Any] = {}

    def compare(label: str, kind: str, *how: Any) -> None:
        make = partial(made, *how)
        wanted, model = losses(make(), slice(None)), make()
        for unit in units(model, kind):
            if any(True for _ in unit.parameters()):
                fully_shard(unit)
        for block in model[:2]:
            fully_shard(block)
        fully_shard(model)
        mean = losses(model, slice(rank, None, ranks))
        torch.distributed.all_reduce(mean)
        with torch.no_grad():
            model(torch.randn(1, TOKENS, DIM))
        saved = all(isinstance(x, DTensor) for x in model.state_dict().values())
        found[label] = (mean / ranks - wanted).abs().max().item() if saved else "parameters stayed gathered"

    for name in SCHEMES:
        compare(f"{name}, shared Where", "where", name, True)
        compare(f"{name}, parts of each block", "parts", name, False)
    compare("t5, checkpointed", "parts", "t5", True, True)
    model = made("rotary-learned", shared=False)
    for block in model[:2]:
        fully_shard(block)
    found["refused"] = said(lambda: model[0].where.at(TOKENS))
    return found


def test_schemes_that_are_units_or_shared(tmp_path: Path) -> None:
    for found in on_ranks(2, tmp_path, on_each_rank):
        assert "make it a unit of its own" in found.pop("refused")
        assert len(found) == 2 * len(SCHEMES) + 1
        for label, difference in found.items():
            assert difference < 3e-6, (label, difference)
