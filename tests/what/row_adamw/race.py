"""RowAdamW beside dense AdamW: the same steps on two copies of a table, and how far they differ."""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from whatwhere import RowAdamW, TokenEmbedding

V, D = 40, 8
OPTIONS = {"lr": 1e-2, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.1}


def sampled(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def batches(steps: int, vocab_size: int = V, seed: int = 0) -> list[Tensor]:
    """Ids of a text: few often, many rarely; several times in a batch."""
    generator = torch.Generator().manual_seed(seed)
    return [(vocab_size * torch.rand(6, generator=generator) ** 3).long() for _ in range(steps)]


def train(table: nn.Module, optimizer: torch.optim.Optimizer, steps: Iterable[Tensor]) -> None:
    """Take a step a batch, by the squares of what is read."""
    for ids in steps:
        table(ids).float().square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


class Race:
    """The same training of a table by RowAdamW, and by dense AdamW in float64 and float32, by a schedule or none."""

    def __init__(
        self,
        start: Tensor,
        make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler] | None = None,
        module: type[nn.Module] = TokenEmbedding,
        **options: object,
    ) -> None:
        self.start = start
        self.table = (
            TokenEmbedding.from_weight(start.clone())
            if module is TokenEmbedding
            else nn.Embedding(*start.shape, _weight=start.clone())
        )
        self.exact, self.single = nn.Parameter(start.double()), nn.Parameter(start.float().clone())
        self.rows = RowAdamW(self.table, **options)
        self.dense = [torch.optim.AdamW([weight], **options) for weight in (self.exact, self.single)]
        self.schedulers = [make(optimizer) for optimizer in self.all] if make else []

    @property
    def all(self) -> list[torch.optim.Optimizer]:
        return [self.rows, *self.dense]

    def take(self, ids: Tensor, upstream: Tensor) -> None:
        self.table(ids).backward(upstream.to(self.table.weight.dtype))
        gradient = self.table.weight.grad.to_dense()
        self.exact.grad, self.single.grad = gradient.double(), gradient.float()
        self.step()

    def step(self) -> None:
        for part in [*self.all, *self.schedulers]:
            part.step()
        for optimizer in self.all:
            optimizer.zero_grad()

    def run(self, steps: int, size: float = 1e-2, seed: int = 0) -> None:
        for n, ids in enumerate(batches(steps, len(self.start), seed)):
            self.take(ids, size * sampled(len(ids), self.start.shape[1], seed=seed + n))

    def errors(self) -> tuple[float, float]:
        """The largest distance from float64, ours and that of dense float32."""
        self.rows.flush()
        master = self.rows.state[self.table.weight].get("master", self.table.weight)
        exact = self.exact.detach()
        return tuple(float((x.detach().double() - exact).abs().max()) for x in (master, self.single))

    def moved(self) -> float:
        return float((self.exact.detach() - self.start.double()).abs().max())


def warm_up_and_cosine(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.LambdaLR(optimizer, lambda n: min(1, (n + 1) / 40) * (0.5 + 0.5 * np.cos(np.pi * n / 200)))
