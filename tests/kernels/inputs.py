"""Inputs for kernels: every layout in memory, numbers at the borders of a format, and moments of many sizes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from whatwhere.kernels.adamw_catch_up import StepHistory
from whatwhere.kernels.embedding import Rows
from whatwhere.kernels.row_adamw import Moments

Layout = Callable[[Tensor], Tensor]
"""Lays a tensor out in memory in another way; its numbers may change, its shape stays."""

CPU = torch.device("cpu")
SIXTEEN_BITS = [torch.bfloat16, torch.float16]
THREE_DTYPES = [torch.float32, *SIXTEEN_BITS]

LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda x: x,
    "heads behind tokens": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "a slice of a wider projection": lambda x: torch.cat([x, -x, x], -1)[..., x.shape[-1] : 2 * x.shape[-1]],
    "every second token": lambda x: x.repeat_interleave(2, dim=2)[:, :, ::2],
    "every second feature": lambda x: torch.stack([x, -x], -1).flatten(-2)[..., ::2],
    "features behind tokens": lambda x: x.mT.contiguous().mT,
    "not on a border": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "one row for all heads": lambda x: x[:, :1].expand(-1, x.shape[1], -1, -1),
}
"""Of (batch, heads, tokens, features)."""
NOT_SHARED = {name: layout for name, layout in LAYOUTS.items() if name != "one row for all heads"}
"""Layouts in which no two numbers share memory, so that the tensor can be overwritten."""


def sampled(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, device: torch.device = CPU) -> Tensor:
    """Return normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def of_all_sizes(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Return numbers of all sizes; some are zeros, the smallest and largest of the format, infinite or NaN."""
    generator = torch.Generator().manual_seed(seed)
    x = sampled(*shape, seed=seed) * torch.exp2(torch.randint(-20, 20, shape, generator=generator))
    small, large = torch.finfo(dtype).tiny, torch.finfo(dtype).max
    border = torch.tensor([0.0, -0.0, small, -small / 4, large, -large, torch.inf, -torch.inf, torch.nan])
    some = torch.rand(shape, generator=generator) < 0.1
    x[some] = border[torch.randint(len(border), (int(some.sum()),), generator=generator)]
    return x.to(dtype)


def ids_below(
    rows: int, *shape: int, seed: int = 3, dtype: torch.dtype = torch.int64, device: torch.device = CPU
) -> Tensor:
    """Return sampled row numbers."""
    return torch.randint(rows, shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).to(device)


# Rotation.


def rotary_tables(*shape: int, seed: int = 1, device: torch.device = CPU) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of sampled angles, (1 or batch, 1 or heads, tokens, pairs)."""
    angles = 100 * sampled(*shape, seed=seed, device=device)
    return angles.cos(), angles.sin()


# Token table.

VOCAB_SIZE, BATCH, TOKENS = 23, 3, 5
ADDED = ["nothing", "vectors", "vectors for each", "rows", "rows for each"]
"""What is added to token vectors: vectors as they are or rows of a table, for all sequences alike or for each."""


def added(kind: str, dim: int, sample: Callable[..., Tensor]) -> Rows | None:
    """Return what is added to the vectors of (BATCH, TOKENS) ids."""
    if kind == "nothing":
        return None
    rows = BATCH if "each" in kind else 1
    if "vectors" in kind:
        return Rows(sample(rows, TOKENS, dim, seed=1))
    table = sample(13, dim, seed=1)
    return Rows(table, ids_below(11, rows, TOKENS, device=table.device), 2)


# RowAdamW.


def moments(rows: int, dim: int, dtype: torch.dtype, zero_eps: bool = False) -> Moments:
    """Return a table whose rows were last updated at steps 0 to 29, with moments of many sizes, zeros among them.

    Some numbers of the master no longer round to the table's, as after somebody else wrote to the table."""
    made = Moments.of(sampled(rows, dim).to(dtype))
    sizes = torch.randint(-9, 1, (rows, dim), generator=torch.Generator().manual_seed(1))
    first = sampled(rows, dim, seed=2) * 10.0**sizes
    made.exp_avg.copy_(torch.where(sampled(rows, dim, seed=3) > 1, 0, first))
    made.exp_avg_sq.copy_(torch.where(sampled(rows, dim, seed=3) > 2, 0, first**2 / 2))
    made.last.copy_(torch.arange(1, rows + 1) % 30)
    made.exp_avg[made.last == 0] = made.exp_avg_sq[made.last == 0] = 0
    if zero_eps:
        made.exp_avg[made.exp_avg_sq == 0] = 0
    if made.master is not None:
        made.master.mul_(1 + 2**-12 * sampled(rows, dim, seed=5)).add_(sampled(rows, dim, seed=6) > 1)
    return made


def require_equal(result: Moments, wanted: Moments) -> None:
    """Raise AssertionError unless a table, on any device, has all bits of another, which are finite."""
    for name, x in vars(wanted).items():
        if x is not None:
            assert x.isfinite().all(), name
            assert torch.equal(getattr(result, name).cpu(), x), name


def moved(table: Moments, device: torch.device) -> Moments:
    """Return a copy of a table on a device."""
    return replace(table, **{name: x if x is None else x.to(device, copy=True) for name, x in vars(table).items()})


def learning_rates(kind: str, steps: int) -> list[float]:
    """Return the learning rate of each step: `constant`, `sampled`, `warm-up and cosine`, `mostly zero` or `zero`."""
    random = np.random.default_rng(0).random(steps)
    return {
        "constant": [1e-3] * steps,
        "warm-up and cosine": [
            1e-3 * min(1, s / 50) * (0.5 + 0.5 * np.cos(np.pi * s / steps)) for s in range(1, steps + 1)
        ],
        "sampled": (1e-3 * random).tolist(),
        "mostly zero": np.where(random < 0.1, 1e-3, 0).tolist(),
        "zero": [0.0] * steps,
    }[kind]


def step_history(
    betas: tuple[float, float], lrs: list[float], weight_decay: float = 0.1, **options: bool
) -> StepHistory:
    """Return the history of steps with these learning rates, from step 1."""
    history = StepHistory(0, betas, **options)
    for lr in lrs:
        history.record(lr, betas, weight_decay)
    return history
