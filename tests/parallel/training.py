"""A model, its training and its refusals, as tests on several processes share them."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import cross_entropy

import whatwhere as ww
from whatwhere.parallel import vocabulary_cross_entropy


class Model(nn.Module):
    """A token table, a layer with rotary positions, and the table or another one as output projection."""

    def __init__(self, rows: int, dim: int, padding_idx: int | None, tied: bool) -> None:
        super().__init__()
        self.tokens = ww.TokenEmbedding(rows, dim, padding_idx, scale="sqrt_dim")
        self.where = ww.Where(ww.Rotary(dim))
        self.qkv = nn.Linear(dim, 3 * dim)
        self.head = None if tied else nn.Linear(dim, rows, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        here = self.where.at(ids.shape[1])
        x = here.embed(self.tokens, ids)
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        hidden = x + here.attention(*here.query_key(q, k), v)[:, 0]
        logits: Tensor = self.tokens.readout(hidden) if self.head is None else self.head(hidden)
        return logits


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of (batch, tokens, rows), whole or in shards of the vocabulary."""
    if hasattr(logits, "placements"):
        return vocabulary_cross_entropy(logits, targets)
    return cross_entropy(logits.mT, targets)


def train(
    steps: Iterable[int],
    optimizers: Iterable[torch.optim.Optimizer],
    loss_at: Callable[[int], Tensor],
    before_update: Callable[[], object] = lambda: None,
) -> list[float]:
    """Return the loss of each step."""
    losses = []
    for step in steps:
        loss = loss_at(step)
        loss.backward()
        before_update()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def mesh_of_all() -> Any:
    return init_device_mesh("cpu", (torch.distributed.get_world_size(),))


def said(function: Callable[..., object], *arguments: object) -> str:
    """Return the error that a call raises, its type first, or 'nothing'."""
    try:
        function(*arguments)
    except (ww.WhatWhereError, CheckpointException) as problem:
        return f"{type(problem).__name__}: {problem}"
    return "nothing"
