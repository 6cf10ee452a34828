"""Attention whose keys travel around a ring of processes: losses and gradients of one process, in three orders."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint

import whatwhere as ww
from whatwhere.errors import SettingError
from whatwhere.parallel import ring_attention
from whatwhere.parallel.mesh import gathered
from whatwhere.parallel.ring import _Ring
from whatwhere.position.positions import SHARD_ORDERS, ShardOrder
from whatwhere.where.binding import Here, bind

from ..attention import LargestTensor
from .processes import on_ranks

DIM, HEADS, HEAD_DIM, TOKENS, STEPS, LAYERS = 16, 2, 8, 16, 2, 2
Case = tuple[Callable[[], ww.Where], Callable[[], ww.Positions]]
CASES: dict[str, Case] = {
    "none": (ww.Where, lambda: ww.positions(TOKENS)),
    "sinusoidal, rotary, padding": (
        lambda: ww.Where(ww.Sinusoidal(DIM), ww.Rotary(HEAD_DIM)),
        lambda: ww.Positions.from_mask(torch.arange(TOKENS) >= torch.tensor([[0], [5]])),
    ),
    "dynamic NTK": (
        lambda: ww.scheme("rotary-dynamic-ntk", DIM, HEADS, TOKENS // 2),
        lambda: ww.positions(TOKENS),
    ),
    "self-extend": (lambda: ww.scheme("rotary-self-extend", DIM, HEADS, TOKENS), lambda: ww.positions(TOKENS)),
    "T5, window, sink, documents": (
        lambda: ww.Where(ww.T5(HEADS), window=ww.Window(4, first=1), sink=ww.Sink(HEADS)),
        lambda: ww.Positions.packed([9, 7]),
    ),
    "FIRE, not causal": (lambda: ww.Where(ww.FIRE(HEADS)), lambda: ww.positions(TOKENS)),
    "by content": (lambda: ww.scheme("deberta", DIM, HEADS, TOKENS), lambda: ww.Positions.packed([9, 7])),
    "gates of queries": (lambda: ww.scheme("inkling", DIM, HEADS, TOKENS), lambda: ww.positions(TOKENS)),
    "FoX, window, documents": (lambda: ww.Where(ww.FoX(DIM, HEADS), window=5), lambda: ww.Positions.packed([9, 7])),
    "FoX, padding": (
        lambda: ww.Where(ww.FoX(DIM, HEADS), sink=ww.Sink(HEADS)),
        lambda: ww.Positions.from_mask(torch.arange(TOKENS) >= torch.tensor([[0], [5]])),
    ),
    "CARoPE": (lambda: ww.scheme("carope", DIM, HEADS, TOKENS), lambda: ww.positions(TOKENS)),
    "selective RoPE": (lambda: ww.scheme("selective-rope", DIM, HEADS, TOKENS), lambda: ww.Positions.packed([9, 7])),
    "KERPLE, grouped keys, chunks, documents": (
        lambda: ww.Where(ww.Rotary(HEAD_DIM), ww.KERPLE(HEADS), window=ww.Window(6, chunked=True)),
        lambda: ww.Positions.packed([9, 7]),
    ),
    "T5, recomputed, reentrant": (
        lambda: ww.Where(ww.T5(HEADS), window=ww.Window(3, first=2), sink=ww.Sink(HEADS)),
        lambda: ww.positions(TOKENS),
    ),
    "FIRE, recomputed, grouped keys, chunks": (
        lambda: ww.Where(ww.FIRE(HEADS), window=ww.Window(5, chunked=True), sink=ww.Sink(HEADS)),
        lambda: ww.Positions.from_mask(torch.arange(TOKENS) >= torch.tensor([[0], [5]])),
    ),
}
OF_FOUR = (
    "KERPLE, grouped keys, chunks, documents",
    "T5, recomputed, reentrant",
    "sinusoidal, rotary, padding",
    "FIRE, not causal",
    "FoX, padding",
    "selective RoPE",
)


class Model(nn.Module):
    """Two layers of attention over given vectors, which share a Where; the name of a case says how they compute."""

    def __init__(self, where: ww.Where, name: str) -> None:
        super().__init__()
        self.key_heads = 1 if "grouped keys" in name else HEADS
        self.recomputed, self.reentrant = "recomputed" in name, "reentrant" in name
        generator = torch.Generator().manual_seed(1)
        self.where = where
        weights = torch.randn(LAYERS, DIM, 3 * DIM, generator=generator) * DIM**-0.5
        self.projections = nn.Parameter(weights)
        self.double()
        for weights in where.parameters():
            if not bool(weights.any()):
                nn.init.normal_(weights, std=0.3, generator=generator)

    def forward(
        self, x: Tensor, here: Here, attend: Callable[..., Tensor], gather: Callable[[Tensor], Tensor] = lambda x: x
    ) -> Tensor:
        def attended(x: Tensor, layer: int) -> Tensor:
            q, k, v = (x @ self.projections[layer]).unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
            k, v = k[:, : self.key_heads], v[:, : self.key_heads]
            increments = here.increments(x)
            q, k = here.query_key(q, k, increments=None if increments is None else gather(increments))
            return x + attend(layer, q, k, v, here.gates(x)).transpose(1, 2).flatten(2)

        x = here.input(x)
        for layer in range(LAYERS):
            if self.recomputed:
                x = checkpoint(attended, x.requires_grad_(), layer, use_reentrant=self.reentrant)
            else:
                x = attended(x, layer)
        return x


def losses(name: str, order: ShardOrder | None, group: Any = None) -> list[float]:
    """Return the loss of each step of training, on one process or on a ring."""
    torch.manual_seed(0)
    make_where, make_positions = CASES[name]
    model, p, causal = Model(make_where(), name), make_positions(), "not causal" not in name
    x, target = torch.randn(2, 2, TOKENS, DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    optimizer, found = torch.optim.AdamW(model.parameters(), lr=3e-2), []
    for _ in range(STEPS):
        if order is None:
            here = model.where.at(p)
            y = model(x, here, lambda _, *qkv, here=here: here.attention(*qkv[:3], causal=causal, gates=qkv[3]))
            loss = (y - target).square().mean()
        else:
            rank, ranks = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
            slots, shards = p.shard_slots(ranks, order)[rank], p.shards(ranks, order)
            of_ranks = [bind([model.where] * LAYERS, shards[rank], each) for each in shards]

            def attend(layer: int, q: Tensor, k: Tensor, v: Tensor, gates: Any, of_ranks: Any = of_ranks) -> Tensor:
                heres = [heres[layer] for heres in of_ranks]
                return ring_attention(heres, q, k, v, causal=causal, gates=gates, group=group)

            # With increments, of all tokens, keys are mapped as the new rows of a cache are.
            by_content = model.where.query_key is not None and model.where.query_key.by_content
            slots_of_all = p.shard_slots(ranks, order).flatten()
            here = model.where.at(shards[rank], p.take(slots_of_all)) if by_content else of_ranks[rank][0]
            gather = partial(gathered, axis=2, mesh=init_device_mesh("cpu", (ranks,))) if by_content else lambda x: x
            y = model(x[:, slots], here, attend, gather)
            loss = (y - target[:, slots]).square().sum() / target.numel()
        loss.backward()
        if order is not None:
            for weights in model.parameters():
                if weights.grad is not None:
                    torch.distributed.all_reduce(weights.grad, group=group)
            torch.distributed.all_reduce(loss := loss.detach(), group=group)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def on_each_rank() -> dict[str, Any]:
    """Return how far losses of rings are from those of one process, and what else is judged."""
    found: dict[str, Any] = {}
    ranks = torch.distributed.get_world_size()
    for name in CASES if ranks == 2 else OF_FOUR:
        wanted = losses(name, None)
        for order in SHARD_ORDERS:
            found[f"{name}, {order}"] = max(abs(a - b) for a, b in zip(losses(name, order), wanted, strict=True))
    if ranks == 4:
        groups = [torch.distributed.new_group(each) for each in ([2, 3], [1, 0])]
        group = groups[torch.distributed.get_rank() // 2 == 0]
        found["a part of the processes"] = abs(losses("none", "zigzag", group)[-1] - losses("none", None)[-1])
    return {"differences": found, "refused": refused(), **of_a_large_ring()}


def refused() -> list[str]:
    """Return the errors of what all ranks refuse, none of which waits for another."""
    p, ranks = ww.positions(TOKENS), torch.distributed.get_world_size()
    shards, messages = p.shards(ranks), []
    own = shards[torch.distributed.get_rank()]
    q, k, v = torch.randn(3, 1, HEADS, own.tokens, HEAD_DIM)
    hooked = ww.Where(ww.T5(HEADS))
    hooked.score.weight.register_hook(lambda g: g)
    cope, fox = ww.scheme("cope", DIM, HEADS, TOKENS), ww.Where(ww.FoX(DIM, HEADS))
    for where, n in ((cope, ranks), (fox, ranks), (ww.Where(), 1), (hooked, ranks)):
        try:
            ring_attention([where.at(own, each) for each in shards][:n], q, k, v)
        except SettingError as problem:
            messages.append(str(problem))
    return messages


def of_a_large_ring() -> dict[str, Any]:
    """Return the bytes that a pass forward and back sends in bfloat16, and the largest tensor of both."""
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    where, shards = ww.Where(ww.ALiBi(HEADS)), ww.positions(64 * ranks).shards(ranks)
    heres = [where.at(shards[rank], each) for each in shards]
    q, k, v = (torch.randn(1, HEADS, 64, 256, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    sent, send = [], _Ring.send
    _Ring.send = lambda self, block: sent.append(block.nbytes) or send(self, block)  # type: ignore[method-assign]
    try:
        with LargestTensor() as largest:
            y = ring_attention(heres, q, k, v)
            forward = sum(sent)
            y.float().square().sum().backward()
    finally:
        _Ring.send = send  # type: ignore[method-assign]
    return {"forward": forward, "backward": sum(sent) - forward, "largest": largest.numbers, "block": k.numel()}


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_a_ring_of_processes_is_one_process(ranks: int, tmp_path: Path) -> None:
    for found in on_ranks(ranks, tmp_path, on_each_rank):
        for name, difference in found["differences"].items():
            assert difference < 1e-11, (name, difference)
        for message, expected in zip(
            found["refused"], ("CoPE counts", "FoX needs the gates", f"ring of {ranks}", "a hook"), strict=True
        ):
            assert expected in message
        block = 2 * found["block"]  # keys and values
        assert found["forward"] == (ranks - 1) * block * 2  # two bytes a number
        assert found["backward"] == (ranks - 1) * block * 2 + ranks * block * 4  # gradients are summed in float32
        assert found["largest"] <= 1.01 * block, "no process has more than a block of keys and values in one tensor"
