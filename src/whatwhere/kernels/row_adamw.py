"""AdamW on the rows of a batch: rows brought up to date and looked up, and the step.

Each function has an implementation in PyTorch's operations, for every device and dtype; the kernels return the same
numbers to the bit, except for the rules of adamw_catch_up.py: they agree to the rounding of float64 on a CPU, and a GPU
adds up the steps themselves.
"""

from collections.abc import Callable
from ctypes import byref, c_int64
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int32, Int64, Integer
from torch import Tensor
from torch.nn import functional as F

from whatwhere.kernels import backend
from whatwhere.kernels.adamw_catch_up import PRODUCTS, StepHistory
from whatwhere.kernels.group_by_row import TYPES, GroupedSlots, first_slots

_STREAM = 8 << 20  # bytes from which looked-up rows are written past the caches
_ROWS = 4096  # rows that PyTorch's operations bring up to date at once
FIXED = 2**31 - 1  # the step up to which fixed rows are up to date, after every other


@dataclass
class Moments:
    """A table and its optimizer state."""

    weight: Float[Tensor, "vocab_size dim"]
    # Float32 values of a 16-bit table; an element is valid while it rounds to the number in the table.
    master: Float[Tensor, "vocab_size dim"] | None
    # The moving averages of gradients and of their squares are of float32 at least, at the step in `last`.
    exp_avg: Float[Tensor, "vocab_size dim"]
    exp_avg_sq: Float[Tensor, "vocab_size dim"]
    last: Int32[Tensor, " vocab_size"]  # the step up to which each row is up to date
    # What a step on a GPU refused, in memory that both sides can use, so that nothing waits for it.
    flag: Int32[Tensor, "1"] = field(default_factory=lambda: torch.zeros(1, dtype=torch.int32))

    @classmethod
    def of(cls, weight: Float[Tensor, "vocab_size dim"]) -> "Moments":
        """Return the state before the first step: moments of zero."""
        wide = torch.promote_types(weight.dtype, torch.float32)
        exp_avg, exp_avg_sq = (
            backend.in_huge_pages(torch.zeros(weight.shape, dtype=wide, device=weight.device)) for _ in range(2)
        )
        master = weight.detach().to(wide).contiguous() if wide != weight.dtype else None
        last = torch.zeros(len(weight), dtype=torch.int32, device=weight.device)
        flag = torch.zeros(1, dtype=torch.int32, pin_memory=weight.device.type == "cuda")
        return cls(weight, master, exp_avg, exp_avg_sq, last, flag)

    def refused(self) -> int:
        """Return what a step on a GPU has refused, as cuda/row_adamw.py numbers it, once it is known; 0 is nothing."""
        return int(self.flag.numpy()[0])

    def all(self) -> tuple[Tensor, ...]:
        """Return the tensors, without a master where there is none."""
        tensors = (self.weight, self.exp_avg, self.exp_avg_sq, self.last)
        return tensors if self.master is None else (*tensors, self.master)


@dataclass(frozen=True)
class Step:
    """The number of a step, n, from 1, and its settings of AdamW."""

    number: int
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float

    def constants(self) -> tuple[float, ...]:
        """Return the constants of the kernel: beta1, 1 - beta1, beta2, 1 - beta2, kept, rate, root, eps."""
        beta1, beta2 = self.betas
        rate, root = self.lr / (1 - beta1**self.number), 1 / sqrt(1 - beta2**self.number)
        return beta1, 1 - beta1, beta2, 1 - beta2, 1 - self.lr * self.weight_decay, rate, root, self.eps


def coefficients(history: StepHistory, since: Int64[np.ndarray, " rows"]) -> Float64[np.ndarray, "rows columns"]:
    """Return the coefficients that bring rows last updated at these steps up to date; see StepHistory.coefficients."""
    kernel = None if history.wide else backend.on_cpu("adamw_rules")
    if kernel is None:
        return history.coefficients(since)
    slots = np.ascontiguousarray(since - history.base, dtype=np.int64)
    out = np.empty((len(slots), 3 + 2 * history.most))
    steps, rules = (x.ctypes.data for x in (history.steps, history.rules))
    numbers = (history.count, history.base, history.log_tail)
    kernel(slots.ctypes.data, len(slots), steps, rules, *numbers, out.ctypes.data, torch.get_num_threads())
    return out


def catch_up(table: Moments, history: StepHistory, eps: float, rows: Int64[Tensor, " rows"] | None = None) -> bool:
    """Bring rows up to date, all if none are given; return whether any was behind (on a GPU True, unread).

    p <- D p - m sum_i w_i / (x_i sqrt(v) + eps), m <- M m, v <- V v
    """
    if (kernel := _kernel(backend.on_cpu, "adamw_catch_up", table)) is not None:
        return _catch_up_on_cpu(kernel, table, history, eps, rows, None, None)
    if (on_gpu := _kernel(backend.on_gpu, "adamw_catch_up", table)) is not None:
        steps, ascending = _on_device(history, table.last.device), None if rows is None else rows.contiguous()
        on_gpu(table, ascending, steps, history.base, history.count, eps, -history.log_tail)
        return True
    rows = rows if rows is None or not rows.is_cuda else rows[first_slots(rows)]
    behind = torch.nonzero((table.last if rows is None else table.last[rows]) < history.now)[:, 0]
    behind = behind if rows is None else rows[behind]
    for some in behind.split(_ROWS):
        since, which = table.last[some].unique(return_inverse=True)
        by_step = torch.from_numpy(coefficients(history, since.cpu().numpy().astype(np.int64)))
        _catch_up_in_pytorch(table, some, by_step.to(table.exp_avg)[which], eps)
        table.last[some] = history.now
    return len(behind) > 0


def look_up(
    table: Moments, history: StepHistory, eps: float, ids: Integer[Tensor, "*shape"], slots: GroupedSlots
) -> tuple[Float[Tensor, "*shape dim"], bool]:
    """Bring the rows of some ids up to date; return them, and whether any was behind, as `catch_up` does."""
    if slots.starts is not None and (kernel := _kernel(backend.on_cpu, "adamw_catch_up", table)) is not None:
        out = backend.in_huge_pages(table.weight.new_empty(*ids.shape, table.weight.shape[1]))
        return out, _catch_up_on_cpu(kernel, table, history, eps, slots.rows, slots, out)
    changed = catch_up(table, history, eps, slots.rows)
    return F.embedding(ids, table.weight.detach()), changed


def update(
    table: Moments,
    rows: Int64[Tensor, " rows"],
    gradient: Float[Tensor, "rows dim"],
    step: Step,
    rest: Tensor | None = None,
) -> int:
    """Update rows that are up to date by one step; where some are not, return their number and do nothing.

        m <- beta1 m + (1 - beta1) g        v <- beta2 v + (1 - beta2) g^2
        p <- (1 - lr weight_decay) p - lr / (1 - beta1^n) m / (sqrt(v) / sqrt(1 - beta2^n) + eps)

    Where `updates_on_gpu`, nothing waits: the number is 0, all rows but those are updated, none where `rest`, the
    gradient of all other rows, is not zero, and `Moments.refused` returns in time what was refused.
    """
    same_dtype = gradient.dtype == table.weight.dtype
    if same_dtype and (kernel := _kernel(backend.on_cpu, "adamw_update", table, rows, gradient)) is not None:
        constants, behind = np.array(step.constants(), np.float32), c_int64()
        rows, gradient = rows.contiguous(), gradient.contiguous()
        tensors = (rows.data_ptr(), gradient.data_ptr())
        numbers = (len(rows), constants.ctypes.data, step.number, byref(behind))
        kernel(*_pointers(table), *tensors, *numbers, TYPES[table.weight.dtype], torch.get_num_threads())
        return behind.value
    if (on_gpu := updates_on_gpu(table, rows, gradient)) is not None:
        on_gpu(table, rows.contiguous(), gradient, rest, step)
        return 0
    if rows.is_cuda:
        once = first_slots(rows) & (table.last[rows] != FIXED)
        rows, gradient = rows[once], gradient[once]
    if outdated := int((table.last[rows] != step.number - 1).sum()):
        return outdated
    _update_in_pytorch(table, rows, gradient.to(table.exp_avg.dtype), step)
    table.last[rows] = step.number
    return 0


def updates_on_gpu(table: Moments, rows: Tensor, gradient: Tensor) -> Callable[..., Any] | None:
    """Return the kernel of a step on a GPU, which is not waited for; None where there is none."""
    return _kernel(backend.on_gpu, "adamw_update", table, rows, gradient) if gradient.dtype in TYPES else None


def _on_device(history: StepHistory, device: torch.device) -> Float64[Tensor, "capacity columns"]:
    """Return the steps as kernels on a GPU read them. New ones are sent there, which nothing waits for."""
    steps, sent = history.sent or (None, 0)
    if steps is None or len(steps) < len(history.steps) or steps.device != device:
        steps, sent = torch.empty(len(history.steps), PRODUCTS, dtype=torch.float64, device=device), 0
    if sent <= history.count:
        steps[sent : history.count + 1].copy_(torch.from_numpy(history.products(sent)), non_blocking=True)
        history.sent = (steps, history.count + 1)
    return steps


def _kernel(
    find: Callable[..., Callable[..., Any] | None], name: str, table: Moments, *others: Tensor
) -> Callable[..., Any] | None:
    """Return a kernel for a table, as backend.on_cpu or backend.on_gpu finds it; None where there is none."""
    tensors = table.all()
    if table.weight.dtype not in TYPES or not all(x.is_contiguous() for x in tensors):
        return None
    return find(name, *tensors, *others)


def _catch_up_in_pytorch(table: Moments, rows: Tensor, numbers: Float[Tensor, "rows columns"], eps: float) -> None:
    most = (numbers.shape[1] - 3) // 2
    kept, decay1, decay2 = numbers[:, :3, None].unbind(1)
    nodes, weights = numbers[:, 3 : 3 + most, None], numbers[:, 3 + most :, None]
    used = int((weights != 0).any(2).any(0).sum())
    first, second = table.exp_avg[rows], table.exp_avg_sq[rows]
    root, total = _root(second), torch.zeros_like(second)
    for i in range(used):
        total += weights[:, i] / (nodes[:, i] * root + eps)
    change = torch.where(first == 0, 0, first * total)
    _store(table, rows, _whole(table, rows) * kept - change)
    table.exp_avg[rows], table.exp_avg_sq[rows] = first * decay1, second * decay2


def _update_in_pytorch(table: Moments, rows: Tensor, gradient: Tensor, step: Step) -> None:
    beta1, rest1, beta2, rest2, kept, rate, root, eps = step.constants()
    gradient = gradient.to(table.exp_avg.dtype)
    first = table.exp_avg[rows] * beta1 + gradient * rest1
    second = table.exp_avg_sq[rows] * beta2 + gradient * rest2 * gradient
    change = first / (_root(second) * root + eps) * rate
    _store(table, rows, _whole(table, rows) * kept - torch.where(first == 0, 0, change))
    table.exp_avg[rows], table.exp_avg_sq[rows] = first, second


def _root(x: Tensor) -> Tensor:
    """Return the square root, rounded to nearest: PyTorch's own on the CPU is off by a bit in one number of 200."""
    return x.double().sqrt().to(x.dtype) if x.device.type == "cpu" else x.sqrt()


def _whole(table: Moments, rows: Tensor) -> Tensor:
    """Return rows in full precision: the master, wherever it rounds to the number in the table."""
    weight = table.weight.detach()[rows]
    if table.master is None:
        return weight
    master = table.master[rows]
    return torch.where(master.to(weight.dtype).view(torch.int16) == weight.view(torch.int16), master, weight.float())


def _store(table: Moments, rows: Tensor, values: Tensor) -> None:
    table.weight.detach()[rows] = values.to(table.weight.dtype)
    if table.master is not None:
        table.master[rows] = values


def _catch_up_on_cpu(
    kernel: Callable[..., Any],
    table: Moments,
    history: StepHistory,
    eps: float,
    rows: Tensor | None,
    slots: GroupedSlots | None,
    out: Tensor | None,
) -> bool:
    changed, steps = c_int64(), np.empty(history.count + 1, np.int64)
    size = table.weight.shape[1] * table.weight.element_size()
    stream = out is not None and not (out.data_ptr() % 64 or size % 64) and out.nbytes >= _STREAM
    looked_up = (None, None) if slots is None else (slots.starts, slots.order)
    kernel(
        *_pointers(table),
        *(None if rows is None else rows.data_ptr(), len(table.last) if rows is None else len(rows)),
        *(x.ctypes.data for x in (history.steps, history.rules, history.cached)),
        *(history.count, history.base, history.log_tail, eps, steps.ctypes.data),
        *(None if x is None else x.data_ptr() for x in (*looked_up, out)),
        *(byref(changed), TYPES[table.weight.dtype], stream, torch.get_num_threads()),
    )
    return changed.value > 0


def _pointers(table: Moments) -> tuple[Any, ...]:
    master = None if table.master is None else table.master.data_ptr()
    moments = (x.data_ptr() for x in (table.exp_avg, table.exp_avg_sq, table.last))
    return table.weight.data_ptr(), master, *moments, table.weight.shape[1]
