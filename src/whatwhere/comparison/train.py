"""Train one Transformer: one scheme and one seed."""

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.comparison.model import (
    ComparedModel,
    SchemeLike,
    Transformer,
    build_wheres,
    table_rows,
    training_positions,
)
from whatwhere.comparison.own_model import BuildModel, OwnModel
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Batch, Task
from whatwhere.errors import SettingError
from whatwhere.initialization import seeded
from whatwhere.where.catalogue import is_own, scheme_seed

_CLIP = 1.0
_LOSSES = 50
_LOCK, _WANTED = threading.Lock(), list[bool]()
"""PyTorch's switch before it was set, and one entry for each thread that wants it: it is one for the whole process."""


def build(
    scheme: SchemeLike, seed: int, task: Task, settings: Settings, model: BuildModel | None = None
) -> ComparedModel:
    """Build the model of a run, with its initial parameters.

    Schemes are initialized from a seed of their own, so that all schemes start from the same tokens and layers. A
    learned table gets exactly the rows of the longest trained sequence: further rows would never be trained. Where
    positions are sampled, training shows all of them, and there is a row for each.
    """
    built = new_model(scheme, seed, task.vocab_size, table_rows(settings, task), settings, model)
    return built.to(settings.resolved_device)


def new_model(
    scheme: SchemeLike, seed: int, vocab_size: int, max_length: int, settings: Settings, model: BuildModel | None = None
) -> ComparedModel:
    """Build our Transformer, or a model of the caller's own, on the CPU with its initial parameters."""
    wheres = build_wheres(scheme, settings.dim, settings.heads, max_length, settings.layers, scheme_seed(seed))
    if model is not None:
        return OwnModel(vocab_size, wheres, settings, model, seed)
    return Transformer(vocab_size, wheres, settings, torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Trained:
    """Losses by step, about fifty of them, and the seconds of all steps."""

    losses: tuple[tuple[int, float], ...]
    seconds: float


def train(
    model: ComparedModel,
    seed: int,
    task: Task,
    settings: Settings,
    on_step: Callable[[int], None] = lambda step: None,
    losses: list[tuple[int, float]] | None = None,
) -> Trained:
    """Train a model in place, by AdamW with gradients clipped at norm 1; batches depend on the seed alone.

    `on_step` gets the number of steps that are done, the first time 0; `losses` gets the losses as they come.
    """
    generator = torch.Generator().manual_seed(1000 + seed)
    # Positions have a generator of their own, so that batches are the same wherever their tokens are.
    position_generator = torch.Generator().manual_seed(3_000_000 + seed)
    # Collected once: walking the modules takes time at each step.
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    # Code of the caller's own may sample, as by dropout: with the global state alone. Ours does not.
    samples = isinstance(model, OwnModel) or any(is_own(type(part).__module__) for part in model.modules())
    optimizer = torch.optim.AdamW(weights, betas=settings.betas, weight_decay=settings.weight_decay, fused=True)
    losses = [] if losses is None else losses
    seconds, device = 0.0, settings.resolved_device
    on_step(0)
    for step in range(1, settings.steps + 1):
        began = perf_counter()
        batch = to_device(task.sample(settings.batch, generator), device)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * _share(step, settings)
        p = training_positions(settings, batch.ids, position_generator)
        with autocast(device), seeded(1_000_003 * seed + step) if samples else nullcontext():
            logits = model(batch.ids, batch.at, p).float().flatten(0, -2)
            loss = F.cross_entropy(logits, batch.targets.flatten(), ignore_index=-100, reduction="sum")
            loss = loss / (batch.targets >= 0).sum().clamp(min=1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = _clip(weights)
        is_kept = step % loss_every(settings.steps) == 0 or step in (1, settings.steps)
        if (is_kept or device == "cpu") and not _are_finite(norm, loss.detach() if is_kept else norm):
            require_finite_weights(model, step - 1, settings)
            raise diverged(f"{_first_not_finite(model, loss)} is, at step {step}, not finite", settings)
        optimizer.step()
        seconds += perf_counter() - began
        if is_kept:
            losses.append((step, loss.item()))
        on_step(step)
    return Trained(tuple(losses), seconds)


def require_finite_weights(model: nn.Module, done: int, settings: Settings) -> None:
    """Raise SettingError if a weight is not finite after so many steps; it names the first."""
    for name, weight in model.named_parameters():
        if not _are_finite(weight):
            raise diverged(f"the weight {name} is, after step {done}, not finite", settings)


def _first_not_finite(model: nn.Module, loss: Tensor) -> str:
    """Return what is not finite in a step whose weights are."""
    if not _are_finite(loss):
        return "the loss"
    gradients = ((name, weight.grad) for name, weight in model.named_parameters())
    names = (f"the gradient of {name}" for name, each in gradients if each is not None and not _are_finite(each))
    return next(names, "the norm of all gradients")


def _clip(weights: Sequence[Tensor]) -> Tensor:
    """Scale the gradients so that the norm of all of them is at most 1, and return their norm before."""
    norm = torch.nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])
    if norm.device.type != "cpu" or bool(norm.isfinite()):  # else scaling would make NaN of all gradients
        torch.nn.utils.clip_grads_with_norm_(weights, _CLIP, norm)
    return norm


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


def diverged(what: str, settings: Settings) -> SettingError:
    """Return the error of a training that diverged."""
    return SettingError(
        f"{what}: training diverged at learning_rate={settings.learning_rate}.\n"
        "Pass a smaller one (--set learning_rate=...). Where that does not help, the scheme itself computes numbers "
        "that are not finite."
    )


def _are_finite(*values: Tensor) -> bool:
    return all(bool(each.isfinite().all()) for each in values)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread of PyTorch inside: the order of sums, and so the numbers, depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Use one thread of PyTorch, and deterministic algorithms alone while any thread of Python wants them."""
    if not wanted:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first product on CUDA is computed
    with _LOCK:
        if not _WANTED:
            _WANTED.append(torch.are_deterministic_algorithms_enabled())
        _WANTED.append(True)
        torch.use_deterministic_algorithms(True)
    try:
        with one_thread():
            yield
    except RuntimeError as problem:
        if "deterministic" not in str(problem):
            raise
        raise SettingError(
            f"the run is not deterministic: {str(problem).splitlines()[0]}\nLeave out --deterministic, or choose a "
            "scheme or model without that operation; on the CPU (--device cpu) there is none."
        ) from problem
    finally:
        with _LOCK:
            _WANTED.pop()
            if len(_WANTED) == 1:
                torch.use_deterministic_algorithms(_WANTED.pop())


def _share(step: int, settings: Settings) -> float:
    """Compute the factor of the learning rate: linear warm-up over a twelfth of the steps, then a cosine to 5 %."""
    if settings.schedule == "constant":
        return 1.0
    warmup = max(1, settings.steps // 12)
    if step <= warmup:
        return step / warmup
    done = (step - warmup) / max(1, settings.steps - warmup)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))
