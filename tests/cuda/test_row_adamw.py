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
from whatwhere.kernels.adamw_catch_up import FIRST, HALF, KEPT, RATE, ROOT, StepHistory
from whatwhere.kernels.group_by_row import GroupedSlots
from whatwhere.reference.what import skipped_motion

from ..kernels.cases import ALL_BETAS
from ..kernels.inputs import THREE_DTYPES, learning_rates, moments, moved, require_equal, sampled, step_history

kernels = pytest.importorskip("whatwhere.kernels.cuda.row_adamw", reason="needs Triton, which is not installed here")

ROWS = torch.tensor([0, 3, 7])
SLOTS = torch.tensor([0, 0, 3, 7, 7, 7])
"""Those rows as lookups give them: sorted, as often as they occur."""
STEP = row_adamw.Step(number=9, lr=2e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
SHAPES = [(8, 20), (8, 1), (8, 1030)]


@pytest.fixture(autouse=True)
def _correctly_rounded(monkeypatch):
    """A GPU and NumPy round the square root to the nearest; PyTorch's on the CPU is off by one unit in some places."""
    monkeypatch.setattr(Tensor, "sqrt", lambda x: torch.from_numpy(np.sqrt(x.numpy())))


def behind(shape: tuple[int, int], dtype: torch.dtype, since: list[int]) -> row_adamw.Moments:
    """Return a table whose ROWS were last updated at these steps."""
    table = moments(*shape, dtype)
    table.last[ROWS] = torch.tensor(since, dtype=torch.int32)
    for average in (table.exp_avg, table.exp_avg_sq):
        average[table.last == 0] = 0
    return table


def run(table: row_adamw.Moments, history: StepHistory, rows: Tensor | None, eps: float = 1e-8) -> None:
    """Bring rows up to date by the kernel."""
    steps = row_adamw._on_device(history, table.last.device)
    given = (None if rows is None else rows.to(steps.device), steps, history.base, history.count, eps)
    with np.errstate(divide="ignore", invalid="ignore"):  # without eps, where nothing moves
        kernels.adamw_catch_up(table, *given, -history.log_tail)


def step_by_step(history: StepHistory, since: list[int]) -> Tensor:
    """Return coefficients of rows last updated at these steps in which every skipped step is a node."""
    steps, now, made = history.steps, history.count, []
    for t in (step - history.base for step in since):
        past, fading = steps[now] - steps[t], steps[:, HALF] - steps[:, FIRST]
        seen = [s for s in range(t + 1, now + 1) if fading[s] <= fading[t] - history.log_tail and steps[s, RATE]]
        seen = seen if t + history.base else []
        b = [
            steps[s, RATE] * np.exp(steps[s, FIRST] - steps[t, FIRST] + steps[now, KEPT] - steps[s, KEPT]) for s in seen
        ]
        x = [steps[s, ROOT] * np.exp(steps[s, HALF] - steps[t, HALF]) for s in seen]
        empty = [1.0] * (now - len(seen))
        made.append([*np.exp(past[[KEPT, FIRST, HALF]] * [1, 1, 2]), *x, *empty, *b, *np.zeros(len(empty))])
    return torch.tensor(made, dtype=torch.float64).float()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", THREE_DTYPES)
@pytest.mark.parametrize("since", [[5, 39, 1], [0, 40, 38]], ids=["long ago", "never, and just now"])
def test_catching_up(since, dtype, shape, target):
    given, history = behind(shape, dtype, since), step_history((0.9, 0.98), learning_rates("sampled", 40))
    result = moved(given, target)
    run(result, history, SLOTS)
    late = ROWS[given.last[ROWS] < 40]
    row_adamw._catch_up_in_pytorch(given, late, step_by_step(history, given.last[late].tolist()), 1e-8)
    given.last[late] = 40
    require_equal(result, given)


@pytest.mark.parametrize("zero_eps", [False, True])
def test_catching_up_with_all_rows(zero_eps, target):
    """Frozen ones keep every bit; a history may begin later."""
    given, eps = moments(8, 20, torch.float32, zero_eps=zero_eps), 0.0 if zero_eps else 1e-8
    given.last[:] = torch.tensor([7, 8, 9, 10, 11, 26, 27, row_adamw.FIXED], dtype=torch.int32)
    history = StepHistory(7, (0.9, 0.98), at_zero=zero_eps)
    for lr in learning_rates("mostly zero", 20):
        history.record(lr, (0.9, 0.98), 0.1)
    result = moved(given, target)
    run(result, history, None, eps)
    late = torch.arange(6)
    row_adamw._catch_up_in_pytorch(given, late, step_by_step(history, given.last[late].tolist()), eps)
    given.last[late] = 27
    require_equal(result, given)


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("betas", ALL_BETAS)
def test_skipped_steps_are_those_of_dense_adamw(betas, target):
    """Steps that are left out have no weight; so many steps leave the range of float64 by their decay."""
    lrs, since = [0.26 * rate for rate in learning_rates("constant", 500)], [220, 300, 491]
    lrs[:200] = [0.99] * 200
    history = step_history(betas, lrs, weight_decay=1.0)
    given = behind((8, 20), torch.float32, since)
    given.weight.zero_()
    result = moved(given, target)
    run(result, history, SLOTS)
    for row, last in zip(ROWS.tolist(), since, strict=True):
        m, v = (x[row].double().numpy() for x in (given.exp_avg, given.exp_avg_sq))
        right = -skipped_motion(m, v, last, lrs[last:], betas, weight_decay=1.0)
        np.testing.assert_allclose(result.weight[row].cpu().numpy(), right, rtol=4e-6, atol=1e-12)


def test_new_steps_are_sent_to_the_device_once(target):
    """A history that grew is that which was sent whole, also where its memory was too small."""
    grown, lrs = StepHistory(0, (0.9, 0.98)), learning_rates("sampled", 130)
    for lr in lrs:
        grown.record(lr, (0.9, 0.98), 0.1)
        steps = row_adamw._on_device(grown, target)
    whole = row_adamw._on_device(step_history((0.9, 0.98), lrs), target)
    assert len(steps) == len(grown.steps) > 130
    assert torch.equal(steps[:131], whole[:131])
    assert row_adamw._on_device(grown, target) is steps


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", THREE_DTYPES)
@pytest.mark.parametrize("step", [STEP, replace(STEP, number=1, eps=1e-3, weight_decay=0.0)], ids=["9th", "first"])
def test_a_step(step, dtype, shape, target):
    """The gradient of a row is at its first slot."""
    given, gradient = behind(shape, dtype, [step.number - 1] * 3), sampled(6, shape[1], seed=7).to(dtype)
    gradient = torch.where(sampled(6, shape[1], seed=8) > 1, 0, gradient)
    result = moved(given, target)
    take(result, SLOTS, gradient, step)
    row_adamw._update_in_pytorch(given, ROWS, gradient[[0, 2, 3]], step)
    given.last[ROWS] = step.number
    require_equal(result, given)


def take(
    table: row_adamw.Moments, rows: Tensor, gradient: Tensor, step: row_adamw.Step = STEP, rest: Tensor | None = None
) -> None:
    """Take a step by the kernel."""
    to = table.last.device
    kernels.adamw_update(table, rows.to(to), gradient.to(to), None if rest is None else rest.to(to), step)


@pytest.mark.parametrize(
    ("last", "rest", "problem"),
    [([8, 7, 8], None, 1), ([8, 8, row_adamw.FIXED], None, 0), ([8, 8, 8], torch.nan, 2), ([8, 8, 8], 0.0, 0)],
    ids=["not up to date", "frozen", "not finite", "finite"],
)
def test_what_a_step_leaves_as_it_is(last, rest, problem, target):
    given, gradient = behind((8, 20), torch.float32, last), sampled(6, 20, seed=7)
    result = moved(given, target)
    take(result, SLOTS, gradient, rest=None if rest is None else torch.tensor(rest))
    right = torch.tensor([n for n, step in enumerate(last) if step == 8 and problem != 2], dtype=torch.int64)
    row_adamw._update_in_pytorch(given, ROWS[right], gradient[[0, 2, 3]][right], STEP)
    given.last[ROWS[right]] = 9
    given.flag[0] = problem
    require_equal(result, given)


@pytest.mark.parametrize("padding", [None, 5])
@pytest.mark.parametrize("dim", [20, 1030])
@pytest.mark.parametrize("dtype", THREE_DTYPES)
def test_sums_by_row(dtype, dim, padding, target, equal):
    """One slot, some, and more than are read ahead; in order, so that the sums equal the CPU's to the bit."""
    ids = torch.tensor([3, 5, 3, 0, 5] + [5] * 20 + [3])
    (rows, order), gradient = ids.sort(stable=True), sampled(len(ids), dim).to(dtype)
    result = kernels.sum_by_row(gradient.to(target), rows.to(target), order.to(target), padding).cpu()
    equal(result, grouping.sum_by_row(gradient, GroupedSlots(rows, None, order), padding))
    first = grouping.first_slots(rows)
    equal(result[first], grouping.sum_by_row(gradient, grouping.group(ids, 8), padding))
    assert not result[~first].any()


def test_no_rows(target):
    given = moved(moments(8, 20, torch.float32), target)
    before, none = copy.deepcopy(given), torch.empty(0, dtype=torch.int64, device=target)
    run(given, step_history((0.9, 0.98), [1e-3] * 3), none)
    take(given, none, torch.empty(0, 20, device=target))
    require_equal(given, moved(before, torch.device("cpu")))
    assert kernels.sum_by_row(torch.empty(0, 20, device=target), none, none).shape == (0, 20)


def test_a_row_outside_the_table_is_not_written(target):
    """A GPU ends the program: see test_what_ends_the_program.py."""
    if target.type == "cuda":
        pytest.skip("it would end this process")
    around = torch.full((24, 4), 7.0)
    table = row_adamw.Moments.of(around[8:16])
    table.weight.zero_()
    run(table, step_history((0.9, 0.98), [1e-3] * 3), torch.tensor([-1, 2, 8]))
    assert (torch.cat([around[:8], around[16:]]) == 7).all()
    assert table.last.tolist() == [0, 0, 3, 0, 0, 0, 0, 0]
