"""Train one Transformer: one scheme, one seed, one thread."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor
from torch.nn import functional as F

from whatwhere.analysis.walkthrough import scheme_seed
from whatwhere.comparison.model import SchemeLike, Transformer, build_wheres, table_rows, training_positions
from whatwhere.comparison.own_model import BuildModel, ComparedModel, OwnModel
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Batch, Task
from whatwhere.errors import SettingError

SNAPSHOTS = (0, 20, 100)
"""The percentages of the steps at which the token table is described."""

_CLIP = 1.0
_LOSSES = 50


@dataclass(frozen=True, eq=False)
class Trained:
    """The outcome of a training.

    Args:
        model: the trained model.
        losses: (step, loss), about fifty of them.
        seconds: time of the steps alone.
    """

    model: ComparedModel
    losses: list[tuple[int, float]]
    seconds: float


def build(
    scheme: SchemeLike, seed: int, task: Task, settings: Settings, model: BuildModel | None = None
) -> ComparedModel:
    """Build the model of a run, with its initial parameters.

    Schemes are initialized from a seed of their own, so that all schemes start from the same tokens and layers. A
    learned table gets exactly the rows of the longest trained sequence: further rows would never be trained. Where
    positions are sampled, training shows all of them, and there is a row for each.

    Args:
        scheme: a name, or a pair of a name and the function that builds it.
        seed: of tokens, layers and scheme.
        task: which has the vocabulary and the trained lengths.
        settings: sizes and device.
        model: builds a model of the caller's own; None is our Transformer.
    """
    rows = table_rows(settings, task)
    if model is not None:
        return new_own_model(model, scheme, seed, task.vocab_size, rows, settings).to(settings.resolved_device)
    return new_model(scheme, seed, task.vocab_size, rows, settings).to(settings.resolved_device)


def new_own_model(
    model: BuildModel, scheme: SchemeLike, seed: int, vocab_size: int, max_length: int, settings: Settings
) -> OwnModel:
    """Build a model of the caller's own on the CPU; arguments as for `new_model`."""
    wheres = build_wheres(scheme, settings.dim, settings.heads, max_length, settings.layers, scheme_seed(seed))
    return OwnModel(vocab_size, wheres, settings, model, seed)


def new_model(scheme: SchemeLike, seed: int, vocab_size: int, max_length: int, settings: Settings) -> Transformer:
    """Build a model on the CPU, with its initial parameters.

    Args:
        scheme: a name, or a pair of a name and the function that builds it.
        seed: of tokens, layers and scheme.
        vocab_size: number of tokens in the vocabulary.
        max_length: positions that a learned table has rows for.
        settings: sizes.
    """
    wheres = build_wheres(scheme, settings.dim, settings.heads, max_length, settings.layers, scheme_seed(seed))
    return Transformer(vocab_size, wheres, settings, torch.Generator().manual_seed(seed))


def train(
    model: ComparedModel,
    seed: int,
    task: Task,
    settings: Settings,
    on_snapshot: Callable[[int, ComparedModel], None],
    on_step: Callable[[int], None],
) -> Trained:
    """Train with AdamW, gradients clipped at norm 1; batches depend on the seed alone, not on the scheme.

    Args:
        model: to train, in place.
        seed: of the batches.
        task: which samples the batches.
        settings: of the optimizer.
        on_snapshot: called with each percentage of SNAPSHOTS, and the model at that step.
        on_step: called after each step with the number of steps done; it may raise to stop.

    Raises:
        SettingError: If a loss or a weight is not finite.
    """
    generator = torch.Generator().manual_seed(1000 + seed)
    # Positions have a generator of their own, so that batches are the same wherever their tokens are.
    position_generator = torch.Generator().manual_seed(3_000_000 + seed)
    weights = [
        weight for weight in model.parameters() if weight.requires_grad
    ]  # collected once: walking the modules takes time at each step
    optimizer = torch.optim.AdamW(
        weights,
        lr=settings.learning_rate,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    at = {round(settings.steps * percent / 100): percent for percent in SNAPSHOTS}
    losses, seconds = [], 0.0
    on_snapshot(0, model)
    every = loss_every(settings.steps)
    for step in range(1, settings.steps + 1):
        began = perf_counter()
        batch = to_device(task.sample(settings.batch, generator), settings.resolved_device)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * _share(step, settings)
        with autocast(settings.resolved_device):
            logits = model(batch.ids, batch.at, training_positions(settings, batch.ids, position_generator))
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
            on_snapshot(at[step], model)
        on_step(step)
    if not settings.steps:
        on_snapshot(SNAPSHOTS[-1], model)
    return Trained(model, losses, seconds)


def loss_every(steps: int) -> int:
    """Return how many steps apart losses are kept; those of the first and the last step are kept too."""
    return max(1, steps // _LOSSES)


def to_device(batch: Batch, device: str) -> Batch:
    """Move a batch to a device."""
    if device == "cpu":
        return batch
    return Batch(batch.ids.to(device), batch.targets.to(device), batch.groups.to(device), batch.at)


def autocast(device: str) -> torch.autocast:
    """Compute in bfloat16 on CUDA; in float32 on the CPU, where bfloat16 saves nothing at this size."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")


def require_finite(values: Tensor, what: str, settings: Settings) -> None:
    """Raise SettingError where training diverged: such a run has nothing to show.

    Args:
        values: to check.
        what: their name and the verb of the message, such as "the loss is".
        settings: which name the learning rate.
    """
    if not bool(values.isfinite().all()):
        raise SettingError(
            f"{what} not finite: training diverged at learning_rate={settings.learning_rate}.\n"
            "Pass a smaller one. Where that does not help, the scheme itself computes numbers that are not finite."
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread of PyTorch inside: the order of sums, and so the numbers, depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _share(step: int, settings: Settings) -> float:
    """Compute the factor of the learning rate: linear warm-up over a twelfth of the steps, then a cosine to 5 %."""
    if settings.schedule == "constant":
        return 1.0
    warmup = max(1, settings.steps // 12)
    if step <= warmup:
        return step / warmup
    done = (step - warmup) / max(1, settings.steps - warmup)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    count = (targets >= 0).sum().clamp(min=1)
    logits, targets = logits.float().flatten(0, -2), targets.flatten()
    return F.cross_entropy(logits, targets, ignore_index=-100, reduction="sum") / count
