"""Train one Transformer: one scheme, one seed, one thread."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from time import perf_counter

import torch
from torch import Tensor
from torch.nn import functional as F

from whatwhere.comparison import stands
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.settings import SchemeLike, Settings, build_wheres
from whatwhere.comparison.tasks import Batch, Task
from whatwhere.errors import SettingError
from whatwhere.kernels.matmul import Route, choose

SNAPSHOTS = (0, 20, 100)
"""At which percent of the steps the token table is looked at."""

_CLIP = 1.0
_DRAWING = Lock()
_LOSSES = 50


@dataclass(frozen=True, eq=False)
class Trained:
    """Hold what training leaves behind.

    Args:
        losses: (step, loss), about fifty of them.
        looks: what `look` gave at each percent of SNAPSHOTS.
        seconds: time of the steps alone.
    """

    model: Transformer
    losses: list[tuple[int, float]]
    looks: dict[int, object]
    seconds: float


def build(scheme: SchemeLike, seed: int, task: Task, settings: Settings) -> Transformer:
    """Build the model of a run.

    The schemes are drawn from a seed of their own, so that all schemes start from the same tokens and layers. A
    learned table gets exactly the rows of the longest trained sequence: spare rows are never trained, and only imitate
    no positions at all. Where positions are drawn, training shows them all, and there is a row for each.
    """
    rows = stands.rows(settings, task)
    # PyTorch's random state is one for the whole process: runs in threads take turns, and the caller's is put back.
    with _DRAWING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(2_000_003 + seed)
        wheres = build_wheres(scheme, settings.dim, settings.heads, rows, settings.layers)
        torch.manual_seed(seed)
        return Transformer(task.vocab_size, wheres, settings).to(settings.place)


def route(task: Task, settings: Settings) -> Route:
    """Choose how the runs of a comparison multiply matrices, by trying the model's own: a twentieth of a second."""
    if settings.place != "cpu":
        return "default"
    rows = settings.batch * task.token_count(sorted(task.trained)[len(task.trained) // 2])
    dim, feedforward = settings.dim, settings.feedforward
    with one_thread():
        return choose([(rows, dim, 3 * dim), (rows, dim, dim), (rows, dim, feedforward), (rows, feedforward, dim)])


def train(
    model: Transformer,
    seed: int,
    task: Task,
    settings: Settings,
    look: Callable[[Transformer], object],
    tick: Callable[[int], None],
) -> Trained:
    """Train with AdamW, gradients clipped at norm 1; batches depend on the seed alone, not on the scheme.

    Args:
        look: called at each percent of SNAPSHOTS.
        tick: called after each step with the number of steps done; it may raise to stop.
    """
    generator = torch.Generator().manual_seed(1000 + seed)
    placing = torch.Generator().manual_seed(3_000_000 + seed)  # its own, so that the batches stay the same
    weights = list(model.parameters())  # found once, not at every step
    optimizer = torch.optim.AdamW(
        weights,
        lr=settings.learning_rate,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    at = {round(settings.steps * percent / 100): percent for percent in SNAPSHOTS}
    looks, losses, seconds = {0: look(model)}, [], 0.0
    every = loss_every(settings.steps)
    for step in range(1, settings.steps + 1):
        began = perf_counter()
        batch = moved(task.draw(settings.batch, generator), settings.place)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * _share(step, settings)
        with autocast(settings.place):
            logits = model(batch.ids, batch.at, stands.in_training(settings, batch.ids, placing))
            loss = _loss(logits, batch.targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, _CLIP)
        optimizer.step()
        seconds += perf_counter() - began
        if step % every == 0 or step in (1, settings.steps):
            require_finite(loss.detach(), f"the loss is, at step {step},", settings)
            losses.append((step, loss.item()))
        if step in at:
            for weight in weights:
                require_finite(weight.detach(), f"weights are, after step {step},", settings)
            looks[at[step]] = look(model)
        tick(step)
    return Trained(model, losses, looks, seconds)


def loss_every(steps: int) -> int:
    """Give how many steps apart losses are kept; those of the first and the last step are kept too."""
    return max(1, steps // _LOSSES)


def moved(batch: Batch, device: str) -> Batch:
    """Move a batch to a device."""
    if device == "cpu":
        return batch
    return Batch(batch.ids.to(device), batch.targets.to(device), batch.groups.to(device), batch.at)


def autocast(device: str) -> torch.autocast:
    """Compute in bfloat16 on CUDA; in float32 on the CPU, where bfloat16 saves nothing at this size."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")


def require_finite(values: Tensor, what: str, settings: Settings) -> None:
    """Raise SettingError where training went astray: such a run has nothing to show."""
    if not bool(values.isfinite().all()):
        raise SettingError(
            f"{what} not finite: training diverged at learning_rate={settings.learning_rate}.\n"
            "Pass a smaller one. Where that does not help, the scheme itself gives numbers that are not finite."
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, as every run does: the sums, and so the numbers, depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _share(step: int, settings: Settings) -> float:
    """Give the share of the learning rate at a step: up over a twelfth of the steps, then a cosine down to 5 %."""
    if settings.schedule == "constant":
        return 1.0
    warmup = max(1, settings.steps // 12)
    if step <= warmup:
        return step / warmup
    done = (step - warmup) / max(1, settings.steps - warmup)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    asked = (targets >= 0).sum().clamp(min=1)
    logits, targets = logits.float().flatten(0, -2), targets.flatten()
    return F.cross_entropy(logits, targets, ignore_index=-100, reduction="sum") / asked
