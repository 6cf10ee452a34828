"""The kernels of the row-wise AdamW give the numbers of PyTorch's operations, to the bit.

The twins run on the CPU: PyTorch's sums by index on a GPU are in no order.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from whatwhere.kernels import group_by_row as grouping
from whatwhere.kernels import row_adamw as twins
from whatwhere.kernels.adamw_catch_up import StepHistory

kernels = pytest.importorskip("whatwhere.kernels.cuda.row_adamw", reason="needs Triton, which is not installed here")

ROWS, STEP = torch.tensor([7, 0, 3]), twins.Step(number=9, lr=2e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
SHAPES = [(8, 20), (8, 1), (8, 1030)]
TYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _correctly_rounded(monkeypatch):
    """A GPU and NumPy round the square root to the nearest; PyTorch's on the CPU is off by one unit in some places."""
    monkeypatch.setattr(Tensor, "sqrt", lambda x: torch.from_numpy(np.sqrt(x.numpy())))


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def table(shape: tuple[int, int], dtype: torch.dtype) -> twins.Moments:
    """Moments of many sizes, and zeros; of a master, some numbers that no longer stand for the table's."""
    made = twins.Moments.of(drawn(*shape).to(dtype))
    sizes = torch.randint(-9, 1, shape, generator=torch.Generator().manual_seed(1))
    first = drawn(*shape, seed=2) * 10.0**sizes
    made.exp_avg.copy_(torch.where(drawn(*shape, seed=3) > 1, 0, first))
    made.exp_avg_sq.copy_(torch.where(drawn(*shape, seed=3) > 2, 0, first**2 / 2))
    if made.master is not None:
        made.master.mul_(1 + 2**-12 * drawn(*shape, seed=5)).add_(drawn(*shape, seed=6) > 1)
    return made


def on(place: torch.device, given: twins.Moments) -> twins.Moments:
    moved = {name: x if x is None else x.to(place, copy=True) for name, x in vars(given).items()}
    return replace(given, **moved)


def require_equal(found: twins.Moments, wanted: twins.Moments) -> None:
    for name, x in vars(wanted).items():
        if x is not None:
            assert x.isfinite().all()
            assert torch.equal(getattr(found, name).cpu(), x), name


def coefficients(since: list[int], betas: tuple[float, float] = (0.9, 0.98), eps: float = 1e-8) -> Tensor:
    """Of rows that stand at these steps, after 40 steps."""
    history = StepHistory(base=0, betas=betas, at_zero=eps == 0)
    for step in range(40):
        history.record(lr=1e-3 * (1 + step % 7), betas=betas, weight_decay=0.1)
    distinct, which = np.unique(np.array(since), return_inverse=True)
    return torch.from_numpy(history.coefficients(distinct)[which]).float()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("since", [[5, 39, 1], [0, 40, 38]], ids=["long ago", "never, and just now"])
def test_catching_up(since, dtype, shape, place):
    given, numbers = table(shape, dtype), coefficients(since)
    found = on(place, given)
    kernels.adamw_catch_up(*found.values(), ROWS.to(place), numbers.to(place), 1e-8)
    twins._catch_up_in_pytorch(given, ROWS, numbers, 1e-8)
    require_equal(found, given)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("step", [STEP, replace(STEP, number=1, eps=1e-3, weight_decay=0.0)], ids=["9th", "first"])
def test_a_step(step, dtype, shape, place):
    given, gradient = table(shape, dtype), drawn(3, shape[1], seed=7)
    gradient = torch.where(drawn(3, shape[1], seed=8) > 1, 0, gradient)
    found = on(place, given)
    kernels.adamw_update(*found.values(), ROWS.to(place), gradient.to(place), step.constants())
    twins._update_in_pytorch(given, ROWS, gradient, step)
    require_equal(found, given)


@pytest.mark.parametrize("dim", [20, 1030])
@pytest.mark.parametrize("dtype", TYPES)
def test_sums_by_row(dtype, dim, place, equal):
    """One place, some, and more than are read ahead; in order, so that the sums are the CPU's to the bit."""
    ids = torch.tensor([3, 5, 3, 0, 5] + [5] * 20 + [3])
    places, gradient = grouping.group(ids, 8), drawn(len(ids), dim).to(dtype)
    found = kernels.sum_by_row(gradient.to(place), places.starts.to(place), places.order.to(place))
    equal(found.cpu(), grouping.sum_by_row(gradient, places))


def test_no_rows(place):
    given = on(place, table((8, 20), torch.float32))
    before, none = copy.deepcopy(given), torch.empty(0, dtype=torch.int64, device=place)
    kernels.adamw_catch_up(*given.values(), none, torch.empty(0, 35, device=place), 1e-8)
    kernels.adamw_update(*given.values(), none, torch.empty(0, 20, device=place), STEP.constants())
    require_equal(given, on(torch.device("cpu"), before))
    starts = torch.zeros(1, dtype=torch.int64, device=place)
    assert kernels.sum_by_row(torch.empty(0, 20, device=place), starts, none).shape == (0, 20)
