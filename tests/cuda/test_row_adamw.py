"""The kernels of RowAdamW on a GPU equal PyTorch's operations to the bit.

PyTorch's operations run on the CPU: on a GPU their sums by index have no fixed order.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from whatwhere.kernels import group_by_row as grouping
from whatwhere.kernels import row_adamw
from whatwhere.kernels.adamw_catch_up import StepHistory

from ..kernels.inputs import THREE_DTYPES, moments, moved, sampled

kernels = pytest.importorskip("whatwhere.kernels.cuda.row_adamw", reason="needs Triton, which is not installed here")

ROWS, STEP = torch.tensor([7, 0, 3]), row_adamw.Step(number=9, lr=2e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
SHAPES = [(8, 20), (8, 1), (8, 1030)]


@pytest.fixture(autouse=True)
def _correctly_rounded(monkeypatch):
    """A GPU and NumPy round the square root to the nearest; PyTorch's on the CPU is off by one unit in some places."""
    monkeypatch.setattr(Tensor, "sqrt", lambda x: torch.from_numpy(np.sqrt(x.numpy())))


def require_equal(result: row_adamw.Moments, wanted: row_adamw.Moments) -> None:
    for name, x in vars(wanted).items():
        if x is not None:
            assert x.isfinite().all()
            assert torch.equal(getattr(result, name).cpu(), x), name


def coefficients(since: list[int], betas: tuple[float, float] = (0.9, 0.98), eps: float = 1e-8) -> Tensor:
    """Return the coefficients of rows last updated at these steps, after 40 steps."""
    history = StepHistory(base=0, betas=betas, at_zero=eps == 0)
    for step in range(40):
        history.record(lr=1e-3 * (1 + step % 7), betas=betas, weight_decay=0.1)
    distinct, which = np.unique(np.array(since), return_inverse=True)
    return torch.from_numpy(history.coefficients(distinct)[which]).float()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", THREE_DTYPES)
@pytest.mark.parametrize("since", [[5, 39, 1], [0, 40, 38]], ids=["long ago", "never, and just now"])
def test_catching_up(since, dtype, shape, target):
    given, numbers = moments(*shape, dtype), coefficients(since)
    result = moved(given, target)
    kernels.adamw_catch_up(*result.values(), ROWS.to(target), numbers.to(target), 1e-8)
    row_adamw._catch_up_in_pytorch(given, ROWS, numbers, 1e-8)
    require_equal(result, given)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", THREE_DTYPES)
@pytest.mark.parametrize("step", [STEP, replace(STEP, number=1, eps=1e-3, weight_decay=0.0)], ids=["9th", "first"])
def test_a_step(step, dtype, shape, target):
    given, gradient = moments(*shape, dtype), sampled(3, shape[1], seed=7)
    gradient = torch.where(sampled(3, shape[1], seed=8) > 1, 0, gradient)
    result = moved(given, target)
    kernels.adamw_update(*result.values(), ROWS.to(target), gradient.to(target), step.constants())
    row_adamw._update_in_pytorch(given, ROWS, gradient, step)
    require_equal(result, given)


@pytest.mark.parametrize("dim", [20, 1030])
@pytest.mark.parametrize("dtype", THREE_DTYPES)
def test_sums_by_row(dtype, dim, target, equal):
    """One slot, some, and more than are read ahead; in order, so that the sums equal the CPU's to the bit."""
    ids = torch.tensor([3, 5, 3, 0, 5] + [5] * 20 + [3])
    slots, gradient = grouping.group(ids, 8), sampled(len(ids), dim).to(dtype)
    result = kernels.sum_by_row(gradient.to(target), slots.starts.to(target), slots.order.to(target))
    equal(result.cpu(), grouping.sum_by_row(gradient, slots))


def test_no_rows(target):
    given = moved(moments(8, 20, torch.float32), target)
    before, none = copy.deepcopy(given), torch.empty(0, dtype=torch.int64, device=target)
    kernels.adamw_catch_up(*given.values(), none, torch.empty(0, 35, device=target), 1e-8)
    kernels.adamw_update(*given.values(), none, torch.empty(0, 20, device=target), STEP.constants())
    require_equal(given, moved(before, torch.device("cpu")))
    starts = torch.zeros(1, dtype=torch.int64, device=target)
    assert kernels.sum_by_row(torch.empty(0, 20, device=target), starts, none).shape == (0, 20)
