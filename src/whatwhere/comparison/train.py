"""Train one Transformer: one scheme and one seed."""

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import torch
from torch import Tensor
from torch.nn import functional as F

from whatwhere.comparison.model import SchemeLike, Transformer, build_wheres, table_rows, training_positions
from whatwhere.comparison.own_model import BuildModel, ComparedModel, OwnModel
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Batch, Task
from whatwhere.errors import SettingError
from whatwhere.where.catalogue import scheme_seed

SNAPSHOTS = (0, 20, 100)
"""The percentages of the steps at which the token table is described."""

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


class Training:
    """A training between two steps: the model, its optimizer, random numbers, steps done and losses."""

    def __init__(self, model: ComparedModel, seed: int, task: Task, settings: Settings) -> None:
        self.model, self.task, self.settings = model, task, settings
        self.generator = torch.Generator().manual_seed(1000 + seed)
        # Positions have a generator of their own, so that batches are the same wherever their tokens are.
        self.position_generator = torch.Generator().manual_seed(3_000_000 + seed)
        # Collected once: walking the modules takes time at each step.
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.weights,
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.done = 0
        self.losses: list[tuple[int, float]] = []
        self.seconds = 0.0
        self._every = loss_every(settings.steps)

    def step(self) -> None:
        """Do one step of AdamW, with gradients clipped at norm 1."""
        began = perf_counter()
        settings, step = self.settings, self.done + 1
        batch = to_device(self.task.sample(settings.batch, self.generator), settings.resolved_device)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * _share(step, settings)
        p = training_positions(settings, batch.ids, self.position_generator)
        with autocast(settings.resolved_device):
            logits = self.model(batch.ids, batch.at, p).float().flatten(0, -2)
            losses = F.cross_entropy(logits, batch.targets.flatten(), ignore_index=-100, reduction="sum")
            loss = losses / (batch.targets >= 0).sum().clamp(min=1)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = _clip(self.weights)
        is_kept = step % self._every == 0 or step in (1, settings.steps)
        if (is_kept or norm.device.type == "cpu") and not _are_finite(norm, loss.detach() if is_kept else norm):
            self.require_finite_weights()
            raise diverged(self._first_not_finite(step, loss), settings)
        self.optimizer.step()
        self.seconds += perf_counter() - began
        if is_kept:
            self.losses.append((step, loss.item()))
        self.done = step

    def require_finite_weights(self) -> None:
        """Raise SettingError if a weight is not finite; it names the first."""
        for name, weight in self.model.named_parameters():
            if not _are_finite(weight):
                raise diverged(f"the weight {name} is, after step {self.done}, not finite", self.settings)

    def _first_not_finite(self, step: int, loss: Tensor) -> str:
        """Return what is not finite in a step whose weights are."""
        if not _are_finite(loss):
            return f"the loss is, at step {step}, not finite"
        for name, weight in self.model.named_parameters():
            if weight.grad is not None and not _are_finite(weight.grad):
                return f"the gradient of {name} is, at step {step}, not finite"
        return f"the norm of all gradients is, at step {step}, not finite"


def train(
    model: ComparedModel,
    seed: int,
    task: Task,
    settings: Settings,
    on_snapshot: Callable[[int, ComparedModel], None] = lambda percent, model: None,
    on_step: Callable[[int], None] = lambda step: None,
) -> Training:
    """Train a model in place; batches depend on the seed alone, not on the scheme."""
    training = Training(model, seed, task, settings)
    at = {round(settings.steps * percent / 100): percent for percent in SNAPSHOTS}
    on_snapshot(0, model)
    for step in range(1, settings.steps + 1):
        training.step()
        if step in at:
            training.require_finite_weights()
            on_snapshot(at[step], model)
        on_step(step)
    if not settings.steps:
        on_snapshot(SNAPSHOTS[-1], model)
    return training


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


def require_finite(values: Tensor, what: str, settings: Settings) -> None:
    """Raise SettingError where training diverged: such a run has nothing to show."""
    if not _are_finite(values):
        raise diverged(f"{what} not finite", settings)


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
