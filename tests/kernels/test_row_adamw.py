"""The kernels of RowAdamW against exact sums: Gauss rules of skipped steps, rows, groups and their gradients."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.kernels import adamw_catch_up, backend
from whatwhere.kernels.adamw_catch_up import StepHistory, require_betas
from whatwhere.kernels.group_by_row import group, sum_by_row
from whatwhere.kernels.row_adamw import Moments, Step, catch_up, coefficients, update
from whatwhere.reference.what import adamw, skipped_motion

from .cases import ALL_BETAS, ROWS
from .inputs import THREE_DTYPES, moments, require_equal, sampled, step_history
from .inputs import learning_rates as rates

needs_library = pytest.mark.skipif(not backend.COMPILED, reason="the kernels are not compiled here")


@pytest.fixture(params=["compiled", "pytorch"])
def either(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compute with the compiled kernels, then with PyTorch's operations."""
    if request.param == "pytorch":
        with ww.pytorch_only():
            yield
    else:
        yield


def motion(numbers: np.ndarray, roots: np.ndarray, eps: float) -> np.ndarray:
    """Return the motion by a rule, for a momentum of 1."""
    nodes, weights = np.split(numbers[3:], 2)
    return (weights[:, None] / (nodes[:, None] * roots + eps)).sum(0)


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("kind", ["constant", "warm-up and cosine", "sampled", "mostly zero", "zero"])
@pytest.mark.parametrize("betas", ALL_BETAS)
def test_rules_are_the_sum(betas, kind, either):
    """For every last step and for every ratio of eps to the root of v, among them none and one far above."""
    lrs, roots, eps = rates(kind, 400), np.append(0, 10.0 ** np.arange(-13.0, 2)), 1e-8
    at_once = step_history(betas, lrs)
    since = np.array([1, 2, 7, 100, 250, 380, 391, 399])
    # After each of these steps the compiled kernel adds to the rules that it has.
    partly = step_history(betas, lrs[:399])
    coefficients(partly, since)
    partly.record(lrs[-1], betas, 0.1)
    way = np.ones(len(roots))
    rights = [skipped_motion(way, roots**2, last, lrs[last:], betas, eps, weight_decay=0.1) for last in since.tolist()]
    for made in (at_once, partly):
        for last, right, numbers in zip(since.tolist(), rights, coefficients(made, since), strict=True):
            # Three times the bound, which is for a constant rate; relative to a step of the highest rate at least.
            np.testing.assert_allclose(motion(numbers, roots, eps), right, rtol=3e-6, atol=1e-9 * 1e-3 / eps)
            kept = np.prod([1 - lr * 0.1 for lr in lrs[last:]])
            k = 400 - last
            np.testing.assert_allclose(numbers[:3], [kept, betas[0] ** k, betas[1] ** k], rtol=1e-12, atol=0)


def test_one_node_is_exact_without_eps(either):
    lrs, roots = rates("sampled", 400), 10.0 ** np.arange(-12, 2)
    numbers = coefficients(step_history((0.9, 0.95), lrs, at_zero=True), np.array([1, 200]))
    for last, row in zip((1, 200), numbers, strict=True):
        right = skipped_motion(np.ones(len(roots)), roots**2, last, lrs[last:], (0.9, 0.95), 0.0, weight_decay=0.1)
        np.testing.assert_allclose(motion(row, roots, 0.0), right, rtol=1e-8)
        assert (row[-adamw_catch_up._LIMIT :] > 0).sum() == 1


@pytest.mark.every_nth(5)
@needs_library
@pytest.mark.parametrize("betas", ALL_BETAS)
def test_rules_extended_step_by_step_are_those_made_at_once(betas, level):
    """The compiled kernel extends the rules that it has; PyTorch's operations make them anew."""
    lrs, roots = rates("warm-up and cosine", 300), 10.0 ** np.arange(-12, 2)
    step_by_step, at_once = StepHistory(0, betas), step_history(betas, lrs)
    since = np.arange(300)
    for s, lr in enumerate(lrs):
        step_by_step.record(lr, betas, 0.1)
        coefficients(step_by_step, since[: s + 1 : 1 + s // 100])
    with ww.pytorch_only():
        right = coefficients(at_once, since)
    for numbers, wanted in zip(coefficients(step_by_step, since), right, strict=True):
        np.testing.assert_allclose(motion(numbers, roots, 1e-8), motion(wanted, roots, 1e-8), rtol=1e-11)
        np.testing.assert_allclose(numbers[:3], wanted[:3], rtol=1e-14)


def test_many_steps_neither_underflow_nor_drift():
    """The product of all decays is 1e-1325, that of five hundred 2e-66."""
    made = step_history((0.9, 0.999), [0.26] * 10_000, weight_decay=1.0)
    ((kept, first, second, *_),) = coefficients(made, np.array([9_500]))
    assert kept == pytest.approx(0.74**500, rel=1e-9)
    assert first == pytest.approx(0.9**500, rel=1e-9)
    assert second == pytest.approx(0.999**500, rel=1e-9)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.95), (0.99, 0.999)])
def test_a_gap_of_thousands_of_steps(betas, either):
    """One step with a gradient and 5,000 without."""
    made, upstream, skipped = Moments.of(0.02 * sampled(3, 4)), 1e-2 * sampled(1, 4, seed=1), StepHistory(0, betas)
    zeros, start = np.zeros((1, 4)), made.weight[1:2].double().numpy()
    update(made, torch.tensor([1]), upstream, Step(1, 1e-3, betas, 1e-8, 0.1))
    for _ in range(5001):
        skipped.record(1e-3, betas, 0.1)
    catch_up(made, skipped, 1e-8, torch.tensor([1]))
    p, m, v = adamw(start, zeros, zeros, upstream.double().numpy(), 1, 1e-3, betas, weight_decay=0.1)
    right = p * (1 - 1e-4) ** 5000 - skipped_motion(m, v, 1, [1e-3] * 5000, betas, weight_decay=0.1)
    np.testing.assert_allclose(made.weight[1:2].numpy(), right, rtol=1e-7, atol=1e-8)
    assert np.abs(right - start * (1 - 1e-4) ** 5001).max() > 2e-3


@pytest.mark.parametrize(
    "betas", [(0.9, 0.81), (0.9, 0.8), (0.95, 0.95), (1.0, 0.999), (-0.1, 0.9), (0.9, 1.0), (0.0, 0.0), (0.9, 0.0)]
)
def test_betas_whose_motion_decays_too_slowly_are_refused(betas):
    with pytest.raises(ww.errors.SettingError, match=r"0 <= beta1 < sqrt\(beta2\) < 1"):
        require_betas(*betas)


def test_the_reference_is_torch_adamw():
    generator = np.random.default_rng(0)
    p = torch.tensor(generator.normal(size=6), requires_grad=True)
    optimizer = torch.optim.AdamW([p], lr=0.02, betas=(0.8, 0.99), eps=1e-3, weight_decay=0.3)
    result = (p.detach().numpy().copy(), np.zeros(6), np.zeros(6))
    for n in range(1, 6):
        g = generator.normal(size=6)
        p.grad = torch.tensor(g)
        optimizer.step()
        result = adamw(*result, g, n, 0.02, (0.8, 0.99), 1e-3, 0.3)
    np.testing.assert_allclose(result[0], p.detach().numpy(), rtol=1e-12)


# Rows.


def test_a_step_on_rows_that_are_behind_does_nothing(either):
    result, before = moments(ROWS, 8, torch.float32), moments(ROWS, 8, torch.float32)
    result.last[3] = 30
    before.last[3] = 30
    assert update(result, torch.tensor([1, 2, 3]), sampled(3, 8), Step(31, 1e-3, (0.9, 0.99), 1e-8, 0.1)) == 2
    require_equal(result, before)


@pytest.mark.parametrize("count", [1, 5, 700])
@pytest.mark.parametrize("size", [1, 50, 3000, 5_000_000])
def test_slots_are_grouped(size, count, either):
    ids = torch.randint(0, size, (count,), generator=torch.Generator().manual_seed(count))
    result = group(ids, size)
    assert result.rows.tolist() == sorted(set(ids.tolist()))
    for n, row in enumerate(result.rows.tolist()):
        begin, end = result.starts[n : n + 2].tolist()
        assert result.order[begin:end].tolist() == (ids == row).nonzero().flatten().tolist()
    assert len(result.starts) == len(result.rows) + 1
    assert int(result.starts[-1]) == count


def test_no_slots(either):
    result = group(torch.empty(0, dtype=torch.int64), 5)
    assert result.rows.tolist() == []
    assert result.starts.tolist() == [0]
    assert sum_by_row(torch.empty(0, 4), result).shape == (0, 4)


@pytest.mark.parametrize("ids", [[1, 5], [-1, 2]])
def test_ids_outside_the_table_have_no_group(ids, either):
    assert group(torch.tensor(ids), 5) is None


@pytest.mark.parametrize("dim", [33, 1100])
@pytest.mark.parametrize("dtype", THREE_DTYPES)
def test_gradients_are_summed_by_row(dtype, dim, either):
    ids = torch.tensor([3, 5, 3, 0, 5] + [5] * 20 + [3, 39])
    gradient = sampled(len(ids), dim).to(dtype)
    grouped = group(ids, ROWS)
    result = sum_by_row(gradient, grouped)
    right = torch.zeros(ROWS, dim, dtype=torch.float64).index_add(0, ids, gradient.double())[grouped.rows]
    ulp = {torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    torch.testing.assert_close(result.double(), right, rtol=ulp, atol=1e-5)


def test_many_small_gradients_are_not_lost_in_sixteen_bits(either):
    grouped = group(torch.zeros(4096, dtype=torch.int64), 2)
    assert sum_by_row(torch.ones(4096, 1, dtype=torch.bfloat16), grouped).item() == 4096


@pytest.mark.parametrize("make", [lambda x: x.mT.contiguous().mT, lambda x: x.expand(ROWS, 8).double()])
def test_tables_that_the_kernel_does_not_support_are_left_to_pytorch(make):
    """A table that is not contiguous, and one of float64."""
    weight = make(sampled(ROWS, 8)).clone(memory_format=torch.preserve_format)
    result = Moments.of(weight)
    rows, gradient = torch.tensor([1, 5]), sampled(2, 8, seed=1).to(weight.dtype)
    step = Step(1, 1e-3, (0.9, 0.99), 1e-8, 0.1)
    p, m, v = adamw(
        weight[rows].numpy(), np.zeros((2, 8)), np.zeros((2, 8)), gradient.numpy(), 1, 1e-3, (0.9, 0.99), 1e-8, 0.1
    )
    assert update(result, rows, gradient, step) == 0
    np.testing.assert_allclose(result.weight[rows].numpy(), p, rtol=1e-6)
    skipped = StepHistory(0, (0.9, 0.99), wide=weight.dtype == torch.float64)
    for _ in range(3):
        skipped.record(1e-3, (0.9, 0.99), 0.1)
    catch_up(result, skipped, 1e-8)
    right = (1 - 1e-4) ** 2 * p - skipped_motion(m, v, 1, [1e-3] * 2, (0.9, 0.99), 1e-8, 0.1)
    np.testing.assert_allclose(result.weight[rows].numpy(), right, rtol=1e-6)
