"""Stages of a pipeline: each binds the schemes of its own layers, and gradients of what stages share are summed."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn.functional import cross_entropy

import whatwhere as ww
from whatwhere.comparison.model import Transformer, build_wheres
from whatwhere.comparison.settings import make_settings

from .processes import on_ranks

VOCABULARY, TOKENS, BATCH, STEPS, PARTS = 31, 12, 8, 3, 4
SETTINGS = make_settings("recall", (9,), dim=16, heads=2, feedforward=32, layers=2, tied=True)
SCHEMES = ("sinusoidal+t5", "fox")


def model_of(scheme: str) -> Transformer:
    """Return two layers that share their schemes, and a table that is the output projection too."""
    wheres = build_wheres(scheme, 16, 2, TOKENS, 2, seed=1)
    return Transformer(VOCABULARY, wheres, SETTINGS, torch.Generator().manual_seed(2))


class Stage(nn.Module):
    """The first layer with the token table, or the last one with the output projection."""

    def __init__(self, model: Transformer, number: int) -> None:
        super().__init__()
        self.number, self.table, self.block = number, model.input, model.blocks[number]
        self.norm = model.norm if number else None
        self.where = model.wheres[number]

    def forward(self, x: Tensor) -> Tensor:
        """Return what the next stage takes: vectors; or logits."""
        where = self.where
        assert isinstance(where, ww.Where)
        here = where.at(x.shape[1])
        if self.norm is None:
            return self.block(self.table(x, here), here)  # type: ignore[no-any-return]
        return self.table.tokens.readout(self.norm(self.block(x, here)))


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits.mT, targets)


def batch(step: int) -> tuple[Tensor, Tensor]:
    ids = torch.randint(VOCABULARY, (BATCH, TOKENS + 1), generator=torch.Generator().manual_seed(step))
    return ids[:, :-1], ids[:, 1:]


def staged() -> dict[str, list[float]]:
    """Return the losses of each step on two stages, by scheme and schedule; those of the last stage."""
    rank, found = torch.distributed.get_rank(), {}
    for scheme in SCHEMES:
        for kind in (ScheduleGPipe, Schedule1F1B):
            stage = Stage(model_of(scheme), rank)
            runner = kind(PipelineStage(stage, rank, 2, torch.device("cpu")), PARTS, loss_fn=loss_of)
            optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-2)
            shared = [stage.table.tokens.weight, *stage.where.parameters()]
            losses: list[float] = []
            for step in range(STEPS):
                ids, targets = batch(step)
                parts: list[Tensor] = []
                runner.step(*([ids] if rank == 0 else []), target=targets if rank else None, losses=parts)
                for weights in shared:
                    torch.distributed.all_reduce(weights.grad)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(sum(float(part) for part in parts) / PARTS)
            found[f"{scheme}, {kind.__name__}"] = losses
    return found


def alone(scheme: str) -> list[float]:
    model, losses = model_of(scheme), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        ids, targets = batch(step)
        loss = loss_of(model(ids), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_two_stages_have_the_losses_of_one_process(tmp_path: Path) -> None:
    _, last = on_ranks(2, tmp_path / "ranks", staged)
    for scheme in SCHEMES:
        wanted = alone(scheme)
        for kind in ("ScheduleGPipe", "Schedule1F1B"):
            assert last[f"{scheme}, {kind}"] == pytest.approx(wanted, abs=3e-6), (scheme, kind)
