"""Stages of a pipeline: each binds the schemes of its own layers, and gradients of what stages share are summed."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

import whatwhere as ww
from whatwhere.comparison.model import Transformer, build_wheres
from whatwhere.comparison.settings import make_settings

from .processes import PYTORCH, on_ranks
from .training import loss_of, train

VOCABULARY, TOKENS, BATCH, STEPS, PARTS = 31, 12, 8, 3, 4
SCHEMES = ("sinusoidal+t5", "fox", "learned+kerple")


def model_of(scheme: str, layers: int) -> Transformer:
    """Return layers that share their schemes, and a table that is the output projection too."""
    wheres = build_wheres(scheme, 16, 2, TOKENS, layers, seed=1)
    settings = make_settings("recall", (9,), dim=16, heads=2, feedforward=32, layers=layers, tied=True)
    return Transformer(VOCABULARY, wheres, settings, torch.Generator().manual_seed(2))


class Stage(nn.Module):
    """A layer: the first one with the token table, the last one with the output projection."""

    def __init__(self, model: Transformer, number: int) -> None:
        super().__init__()
        self.number, self.table, self.block = number, model.input, model.blocks[number]
        self.norm = model.norm if number == len(model.blocks) - 1 else None
        self.where = model.wheres[number]

    def forward(self, x: Tensor) -> Tensor:
        where = self.where
        assert isinstance(where, ww.Where)
        here = where.at(x.shape[1])
        y: Tensor = self.block(x if self.number else self.table(x, here), here)
        return y if self.norm is None else self.table.tokens.readout(self.norm(y))


def batch(step: int) -> tuple[Tensor, Tensor]:
    ids = torch.randint(VOCABULARY, (BATCH, TOKENS + 1), generator=torch.Generator().manual_seed(step))
    return ids[:, :-1], ids[:, 1:]


def staged() -> dict[str, list[float]]:
    """Return the losses of each step on as many stages as processes, by scheme and schedule; those of the last."""
    rank, ranks, found = torch.distributed.get_rank(), torch.distributed.get_world_size(), {}
    for scheme in SCHEMES:
        for kind in (ScheduleGPipe, Schedule1F1B):
            stage = Stage(model_of(scheme, ranks), rank)
            runner = kind(PipelineStage(stage, rank, ranks, torch.device("cpu")), PARTS, loss_fn=loss_of)
            optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-2)
            shared = [*stage.table.parameters(), *stage.where.parameters()]
            losses: list[float] = []
            for step in range(STEPS):
                ids, targets = batch(step)
                parts: list[Tensor] = []
                last = rank == ranks - 1
                runner.step(*([ids] if rank == 0 else []), target=targets if last else None, losses=parts)
                for weights in shared:  # of which a stage may use none
                    weights.grad = torch.zeros_like(weights) if weights.grad is None else weights.grad
                    torch.distributed.all_reduce(weights.grad)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(sum(float(part) for part in parts) / PARTS)
            found[f"{scheme}, {kind.__name__}"] = losses
    return found


def alone(scheme: str, layers: int) -> list[float]:
    model = model_of(scheme, layers)

    def loss_at(step: int) -> Tensor:
        ids, targets = batch(step)
        return loss_of(model(ids), targets)

    return train(range(STEPS), [torch.optim.AdamW(model.parameters(), lr=1e-2)], loss_at)


@pytest.mark.skipif(
    PYTORCH < (2, 13),
    reason="PyTorch's own pipelines fail over gloo before 2.13",
)
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_stages_have_the_losses_of_one_process(ranks: int, tmp_path: Path) -> None:
    *_, last = on_ranks(ranks, tmp_path / "ranks", staged)
    for scheme in SCHEMES:
        wanted = alone(scheme, ranks)
        for kind in ("ScheduleGPipe", "Schedule1F1B"):
            assert last[f"{scheme}, {kind}"] == pytest.approx(wanted, abs=3e-6), (scheme, kind)
