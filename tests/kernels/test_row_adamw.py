"""The kernels behind RowAdamW: rules against the sum that they stand for, rows against their twins to the bit."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.kernels import adamw_catch_up, backend, row_adamw
from whatwhere.kernels.adamw_catch_up import StepHistory, gauss_rules, require_betas, rule_sizes
from whatwhere.kernels.group_by_row import group, sum_by_row
from whatwhere.kernels.row_adamw import Moments, Step, catch_up, coefficients, look_up, update
from whatwhere.reference.what import adamw, skipped_motion

BETAS = [(0.9, 0.999), (0.9, 0.95), (0.95, 0.99), (0.0, 0.999), (0.8, 0.9), (0.99, 0.999)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ROWS = 40

needs_library = pytest.mark.skipif(not backend.COMPILED, reason="the kernels are not compiled here")


@pytest.fixture(params=["compiled", "plain"])
def either(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compute with the compiled kernels, then with their twins."""
    if request.param == "plain":
        with ww.pytorch_only():
            yield
    else:
        yield


def rates(kind: str, steps: int) -> list[float]:
    generator = np.random.default_rng(0)
    drawn = generator.random(steps)
    return {
        "constant": [1e-3] * steps,
        "warm-up and cosine": [
            1e-3 * min(1, s / 50) * (0.5 + 0.5 * np.cos(np.pi * s / steps)) for s in range(1, steps + 1)
        ],
        "drawn": (1e-3 * drawn).tolist(),
        "mostly zero": np.where(drawn < 0.1, 1e-3, 0).tolist(),
        "zero": [0.0] * steps,
    }[kind]


def history(betas: tuple[float, float], lrs: list[float], weight_decay: float = 0.1, **options: bool) -> StepHistory:
    made = StepHistory(0, betas, **options)
    for lr in lrs:
        made.record(lr, betas, weight_decay)
    return made


def motion(numbers: np.ndarray, roots: np.ndarray, eps: float) -> np.ndarray:
    """What a rule says, for a momentum of 1."""
    nodes, weights = np.split(numbers[3:], 2)
    return (weights[:, None] / (nodes[:, None] * roots + eps)).sum(0)


@pytest.mark.parametrize("kind", ["constant", "warm-up and cosine", "drawn", "mostly zero", "zero"])
@pytest.mark.parametrize("betas", BETAS)
def test_rules_are_the_sum(betas, kind, either):
    """For every last step and for every ratio of eps to the root of v, among them none and one far above."""
    lrs, roots, eps = rates(kind, 400), np.append(0, 10.0 ** np.arange(-13.0, 2)), 1e-8
    told = history(betas, lrs)
    since = np.array([1, 2, 7, 100, 250, 380, 391, 399])
    # After each of these steps the compiled kernel adds to the rules that it has.
    partly = history(betas, lrs[:399])
    coefficients(partly, since)
    partly.record(lrs[-1], betas, 0.1)
    way = np.ones(len(roots))
    rights = [skipped_motion(way, roots**2, last, lrs[last:], betas, eps, weight_decay=0.1) for last in since.tolist()]
    for made in (told, partly):
        for last, right, numbers in zip(since.tolist(), rights, coefficients(made, since), strict=True):
            # Three times the bound, which is for a constant rate; relative to a step of the highest rate at least.
            np.testing.assert_allclose(motion(numbers, roots, eps), right, rtol=3e-6, atol=1e-9 * 1e-3 / eps)
            kept = np.prod([1 - lr * 0.1 for lr in lrs[last:]])
            k = 400 - last
            np.testing.assert_allclose(numbers[:3], [kept, betas[0] ** k, betas[1] ** k], rtol=1e-12, atol=0)


def test_rules_are_exact_for_as_few_steps_as_they_have_nodes(either):
    lrs, roots = rates("drawn", 400), 10.0 ** np.arange(-12, 2)
    numbers = coefficients(history((0.9, 0.95), lrs), np.array([393, 399]))
    for last, row in zip((393, 399), numbers, strict=True):
        right = skipped_motion(np.ones(len(roots)), roots**2, last, lrs[last:], (0.9, 0.95), 1e-8, weight_decay=0.1)
        np.testing.assert_allclose(motion(row, roots, 1e-8), right, rtol=1e-12)


def test_one_node_is_exact_without_eps(either):
    lrs, roots = rates("drawn", 400), 10.0 ** np.arange(-12, 2)
    numbers = coefficients(history((0.9, 0.95), lrs, at_zero=True), np.array([1, 200]))
    for last, row in zip((1, 200), numbers, strict=True):
        right = skipped_motion(np.ones(len(roots)), roots**2, last, lrs[last:], (0.9, 0.95), 0.0, weight_decay=0.1)
        np.testing.assert_allclose(motion(row, roots, 0.0), right, rtol=1e-8)
        assert (row[-adamw_catch_up._LIMIT :] > 0).sum() == 1


@needs_library
@pytest.mark.parametrize("betas", BETAS)
def test_compiled_rules_are_those_of_the_twin(betas, level):
    """Brought up to date step by step, and made at once."""
    lrs, roots = rates("warm-up and cosine", 300), 10.0 ** np.arange(-12, 2)
    step_by_step, at_once = StepHistory(0, betas), history(betas, lrs)
    since = np.arange(300)
    for s, lr in enumerate(lrs):
        step_by_step.record(lr, betas, 0.1)
        coefficients(step_by_step, since[: s + 1 : 1 + s // 100])
    with ww.pytorch_only():
        right = coefficients(at_once, since)
    for numbers, wanted in zip(coefficients(step_by_step, since), right, strict=True):
        np.testing.assert_allclose(motion(numbers, roots, 1e-8), motion(wanted, roots, 1e-8), rtol=1e-11)
        np.testing.assert_allclose(numbers[:3], wanted[:3], rtol=1e-14)


def test_twin_and_kernel_go_on_from_each_other():
    lrs, roots = rates("constant", 300), 10.0 ** np.arange(-12, 2)
    mixed, since = StepHistory(0, (0.9, 0.95)), np.array([1, 40, 90, 140])
    for s, lr in enumerate(lrs):
        mixed.record(lr, (0.9, 0.95), 0.1)
        if s >= 140 and s % 7 == 0:
            with ww.pytorch_only():
                coefficients(mixed, since)
        elif s >= 140:
            coefficients(mixed, since)
    for last, numbers in zip(since.tolist(), coefficients(mixed, since), strict=True):
        right = skipped_motion(np.ones(len(roots)), roots**2, last, lrs[last:], (0.9, 0.95), 1e-8, weight_decay=0.1)
        np.testing.assert_allclose(motion(numbers, roots, 1e-8), right, rtol=3e-6)


def test_many_steps_neither_underflow_nor_drift():
    """The product of all decays is 1e-1325, that of five hundred 2e-66."""
    made = history((0.9, 0.999), [0.26] * 10_000, weight_decay=1.0)
    ((kept, first, second, *_),) = coefficients(made, np.array([9_500]))
    assert kept == pytest.approx(0.74**500, rel=1e-9)
    assert first == pytest.approx(0.9**500, rel=1e-9)
    assert second == pytest.approx(0.999**500, rel=1e-9)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.95), (0.99, 0.999)])
def test_a_gap_of_thousands_of_steps(betas, either):
    """One step with a gradient and 5,000 without."""
    made, upstream, told = Moments.of(0.02 * drawn(3, 4)), 1e-2 * drawn(1, 4, seed=1), StepHistory(0, betas)
    zeros, start = np.zeros((1, 4)), made.weight[1:2].double().numpy()
    update(made, torch.tensor([1]), upstream, Step(1, 1e-3, betas, 1e-8, 0.1))
    for _ in range(5001):
        told.record(1e-3, betas, 0.1)
    catch_up(made, told, 1e-8, torch.tensor([1]))
    p, m, v = adamw(start, zeros, zeros, upstream.double().numpy(), 1, 1e-3, betas, weight_decay=0.1)
    right = p * (1 - 1e-4) ** 5000 - skipped_motion(m, v, 1, [1e-3] * 5000, betas, weight_decay=0.1)
    np.testing.assert_allclose(made.weight[1:2].numpy(), right, rtol=1e-7, atol=1e-8)
    assert np.abs(right - start * (1 - 1e-4) ** 5001).max() > 2e-3


@pytest.mark.parametrize("betas", BETAS)
def test_the_nodes_asked_for_are_the_fewest(betas):
    """With one less, the bound is missed for some ratio, right after step 1."""
    sizes = rule_sizes(*betas)
    assert list(sizes) == sorted(sizes, reverse=True)
    if betas[0] == 0:
        return
    lrs, ratios = [1e-3] * 2000, 10.0 ** np.linspace(-12, 4, 200)
    j = np.arange(1, 2000)
    masses = np.array(lrs[1:]) / (1 - betas[0] ** (1.0 + j)) * betas[0] ** (1.0 * j)
    spots = betas[1] ** (j / 2) / np.sqrt(1 - betas[1] ** (1.0 + j))
    seen = masses > 1e-9 * masses[0] * spots / spots[0]
    right = (masses / (spots + ratios[:, None])).sum(1)
    worst = []
    for size in (sizes[0], sizes[0] - 1):
        nodes, weights = gauss_rules(spots[None, seen], masses[None, seen], np.array([size]), most=16)
        worst.append(np.abs((weights / (nodes + ratios[:, None])).sum(1) / right - 1).max())
    assert worst[0] < 1.1e-6 < worst[1] * 1.2


@pytest.mark.parametrize(
    "betas", [(0.9, 0.81), (0.9, 0.8), (0.95, 0.95), (1.0, 0.999), (-0.1, 0.9), (0.9, 1.0), (0.0, 0.0), (0.9, 0.0)]
)
def test_betas_whose_motion_hardly_dies_away_are_refused(betas):
    with pytest.raises(ww.errors.SettingError, match=r"0 <= beta1 < sqrt\(beta2\) < 1"):
        require_betas(*betas)


def test_the_reference_without_gradient_goes_the_skipped_way():
    """Decay in closed form and the sum over steps, against the steps themselves."""
    generator = np.random.default_rng(0)
    p, m = generator.normal(size=(2, 5))
    v = generator.random(5) * 1e-3
    stepped = (p, m, v)
    lrs = rates("drawn", 12)
    for n, lr in enumerate(lrs, start=8):
        stepped = adamw(*stepped, np.zeros(5), n, lr, weight_decay=0.3)
    kept = np.prod([1 - lr * 0.3 for lr in lrs])
    np.testing.assert_allclose(stepped[0], kept * p - skipped_motion(m, v, 7, lrs, weight_decay=0.3), rtol=1e-12)
    np.testing.assert_allclose(stepped[1], 0.9**12 * m, rtol=1e-12)
    np.testing.assert_allclose(stepped[2], 0.999**12 * v, rtol=1e-12)


def test_the_reference_is_torch_adamw():
    generator = np.random.default_rng(0)
    p = torch.tensor(generator.normal(size=6), requires_grad=True)
    optimizer = torch.optim.AdamW([p], lr=0.02, betas=(0.8, 0.99), eps=1e-3, weight_decay=0.3)
    found = (p.detach().numpy().copy(), np.zeros(6), np.zeros(6))
    for n in range(1, 6):
        g = generator.normal(size=6)
        p.grad = torch.tensor(g)
        optimizer.step()
        found = adamw(*found, g, n, 0.02, (0.8, 0.99), 1e-3, 0.3)
    np.testing.assert_allclose(found[0], p.detach().numpy(), rtol=1e-12)


# Rows.


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def table(dim: int, dtype: torch.dtype) -> Moments:
    """Moments of many sizes, zeros among them; a master that somebody else has written past, here and there."""
    made = Moments.of(drawn(ROWS, dim).to(dtype))
    sizes = torch.randint(-9, 1, (ROWS, dim), generator=torch.Generator().manual_seed(1))
    first = drawn(ROWS, dim, seed=2) * 10.0**sizes
    made.exp_avg.copy_(torch.where(drawn(ROWS, dim, seed=3) > 1, 0, first))
    made.exp_avg_sq.copy_(torch.where(drawn(ROWS, dim, seed=3) > 2, 0, first**2 / 2))
    made.last.copy_(torch.arange(ROWS) % 30)
    made.exp_avg[made.last == 0] = made.exp_avg_sq[made.last == 0] = 0
    if made.master is not None:
        made.master.mul_(1 + 2**-13 * drawn(ROWS, dim, seed=5)).add_(drawn(ROWS, dim, seed=6) > 1)
    return made


def require_equal(found: Moments, wanted: Moments) -> None:
    for name, x in vars(wanted).items():
        if x is not None:
            assert x.isfinite().all(), name
            assert torch.equal(getattr(found, name), x), name


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@needs_library
@pytest.mark.parametrize("dim", [1, 515])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("eps", [1e-8, 0.0])
def test_rows_are_brought_up_to_date_as_by_the_twin(eps, dtype, dim, level, threads):
    lrs, betas = rates("drawn", 30), (0.9, 0.98)
    options = {"at_zero": eps == 0}
    for rows in (torch.tensor([2, 3, 17, 29, 30, 39]), None):
        found, wanted = table(dim, dtype), table(dim, dtype)
        if eps == 0:  # where v is zero and m is not, the way is infinite in both
            for made in (found, wanted):
                made.exp_avg[made.exp_avg_sq == 0] = 0
        assert catch_up(found, history(betas, lrs, **options), eps, rows)
        with ww.pytorch_only():
            assert catch_up(wanted, history(betas, lrs, **options), eps, rows)
        require_equal(found, wanted)
        assert not catch_up(found, history(betas, lrs, **options), eps, rows)
        require_equal(found, wanted)


@needs_library
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dim", [33, 64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_looked_up_as_by_the_twin(dtype, dim, stream, level, threads, monkeypatch):
    monkeypatch.setattr(row_adamw, "_STREAM", 0 if stream else 1 << 40)
    ids = torch.randint(0, ROWS, (5, 20), generator=torch.Generator().manual_seed(0))
    found, wanted, told = table(dim, dtype), table(dim, dtype), history((0.9, 0.98), rates("drawn", 30))
    grouped = group(ids.reshape(-1), ROWS)
    rows, moved = look_up(found, told, 1e-8, ids, grouped)
    with ww.pytorch_only():
        right, also = look_up(wanted, told, 1e-8, ids, grouped)
    assert moved
    assert also
    assert torch.equal(rows, right)
    require_equal(found, wanted)
    again, moved = look_up(found, told, 1e-8, ids, grouped)
    assert not moved
    assert torch.equal(again, right)


@needs_library
@pytest.mark.parametrize("eps", [1e-8, 0.0])
@pytest.mark.parametrize("dim", [1, 515])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_step_is_that_of_the_twin(dtype, dim, eps, level, threads):
    rows = torch.tensor([0, 3, 12, 39])
    gradient = torch.where(drawn(4, dim, seed=8) > 1, 0, drawn(4, dim, seed=7)).to(dtype)
    step = Step(number=31, lr=2e-3, betas=(0.9, 0.98), eps=eps, weight_decay=0.1)
    found, wanted = table(dim, dtype), table(dim, dtype)
    for made in (found, wanted):
        made.exp_avg[made.exp_avg_sq == 0] = 0
        made.last[rows] = 30
    assert update(found, rows, gradient, step) == 0
    with ww.pytorch_only():
        assert update(wanted, rows, gradient, step) == 0
    require_equal(found, wanted)
    assert found.last[rows].tolist() == [31] * 4


def test_a_step_on_rows_that_are_behind_does_nothing(either):
    found, before = table(8, torch.float32), table(8, torch.float32)
    found.last[3] = 30
    before.last[3] = 30
    assert update(found, torch.tensor([1, 2, 3]), drawn(3, 8), Step(31, 1e-3, (0.9, 0.99), 1e-8, 0.1)) == 2
    require_equal(found, before)


@pytest.mark.parametrize("count", [1, 5, 700])
@pytest.mark.parametrize("size", [1, 50, 3000, 5_000_000])
def test_places_are_grouped(size, count, either):
    ids = torch.randint(0, size, (count,), generator=torch.Generator().manual_seed(count))
    found = group(ids, size)
    assert found.rows.tolist() == sorted(set(ids.tolist()))
    for n, row in enumerate(found.rows.tolist()):
        begin, end = found.starts[n : n + 2].tolist()
        assert found.order[begin:end].tolist() == (ids == row).nonzero().flatten().tolist()
    assert len(found.starts) == len(found.rows) + 1
    assert int(found.starts[-1]) == count


def test_no_places(either):
    found = group(torch.empty(0, dtype=torch.int64), 5)
    assert found.rows.tolist() == []
    assert found.starts.tolist() == [0]
    assert sum_by_row(torch.empty(0, 4), found).shape == (0, 4)


@pytest.mark.parametrize("ids", [[1, 5], [-1, 2]])
def test_places_outside_the_table_have_no_group(ids, either):
    assert group(torch.tensor(ids), 5) is None


@needs_library
@pytest.mark.parametrize("dim", [33, 1100])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_are_summed_as_by_the_twin(dtype, dim, level, threads):
    ids = torch.tensor([3, 5, 3, 0, 5] + [5] * 20 + [3, 39])
    gradient = drawn(len(ids), dim).to(dtype)
    grouped = group(ids, ROWS)
    found = sum_by_row(gradient, grouped)
    with ww.pytorch_only():
        assert torch.equal(found, sum_by_row(gradient, grouped))
    right = torch.zeros(ROWS, dim, dtype=torch.float64).index_add(0, ids, gradient.double())[grouped.rows]
    ulp = {torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    torch.testing.assert_close(found.double(), right, rtol=ulp, atol=1e-5)


def test_many_small_gradients_are_not_lost_in_sixteen_bits(either):
    grouped = group(torch.zeros(4096, dtype=torch.int64), 2)
    assert sum_by_row(torch.ones(4096, 1, dtype=torch.bfloat16), grouped).item() == 4096


@pytest.mark.parametrize("make", [lambda x: x.mT.contiguous().mT, lambda x: x.expand(ROWS, 8).double()])
def test_what_the_kernel_does_not_take_its_twin_does(make):
    """A table that is not contiguous, and one of float64."""
    weight = make(drawn(ROWS, 8)).clone(memory_format=torch.preserve_format)
    found = Moments.of(weight)
    rows, gradient = torch.tensor([1, 5]), drawn(2, 8, seed=1).to(weight.dtype)
    step = Step(1, 1e-3, (0.9, 0.99), 1e-8, 0.1)
    p, m, v = adamw(
        weight[rows].numpy(), np.zeros((2, 8)), np.zeros((2, 8)), gradient.numpy(), 1, 1e-3, (0.9, 0.99), 1e-8, 0.1
    )
    assert update(found, rows, gradient, step) == 0
    np.testing.assert_allclose(found.weight[rows].numpy(), p, rtol=1e-6)
    told = StepHistory(0, (0.9, 0.99), wide=weight.dtype == torch.float64)
    for _ in range(3):
        told.record(1e-3, (0.9, 0.99), 0.1)
    catch_up(found, told, 1e-8)
    right = (1 - 1e-4) ** 2 * p - skipped_motion(m, v, 1, [1e-3] * 2, (0.9, 0.99), 1e-8, 0.1)
    np.testing.assert_allclose(found.weight[rows].numpy(), right, rtol=1e-6)
