"""RowAdamW equals dense AdamW to less than its own rounding, also with schedules and after long runs."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim import lr_scheduler

import whatwhere as ww
from whatwhere import RowAdamW, TokenEmbedding
from whatwhere.what.row_adamw import table as row_table

from .race import D, Race, V, batches, sampled, warm_up_and_cosine


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("size", [1e-2, 1e-5, 1e-7, 1e-9])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.95), (0.95, 0.99), (0.0, 0.999)])
def test_it_is_dense_adamw(betas, size):
    race = Race(0.02 * sampled(V, D), warm_up_and_cosine, lr=1e-3, betas=betas, weight_decay=0.01)
    race.run(120, size)
    ours, dense = race.errors()
    assert race.moved() > (1e-2 if size > 1e-8 else 1e-4)
    assert 0 < ours <= dense


@pytest.mark.parametrize("module", [TokenEmbedding, nn.Embedding])
def test_every_value_that_is_read_is_that_of_dense_adamw(module):
    """Not only at the end: forward passes between steps, in training and without gradients, of new and of seen rows."""
    race = Race(0.02 * sampled(V, D), warm_up_and_cosine, module, lr=1e-3, weight_decay=0.1)
    for n, ids in enumerate(batches(60)):
        for context in (torch.no_grad(), torch.inference_mode(), nullcontext()):
            with context:
                rows = race.table(torch.cat([ids, torch.tensor([n % V])]))[:-1]
            assert float((rows.detach().double() - race.exact[ids].detach()).abs().max()) < 5e-8
        race.take(ids, 1e-2 * sampled(6, D, seed=n))


@pytest.mark.parametrize(("dtype", "step"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)])
def test_a_table_of_sixteen_bits_is_its_master_rounded(dtype, step):
    """The master is as close to dense AdamW as float32 gets; dense AdamW of sixteen bits loses most of its steps."""
    start = 0.02 * sampled(V, D).to(dtype)
    race = Race(start, warm_up_and_cosine, lr=1e-4, weight_decay=0.01)
    low = nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([low], lr=1e-4, weight_decay=0.01)
    for n, ids in enumerate(batches(200)):
        low.grad = torch.zeros_like(low).index_add(0, ids, 1e-2 * sampled(6, D, seed=n).to(dtype))
        optimizer.step()
        race.take(ids, 1e-2 * sampled(6, D, seed=n))
    ours, dense = race.errors()
    assert ours < dense
    state = race.rows.state[race.table.weight]
    assert state["exp_avg"].dtype == state["exp_avg_sq"].dtype == torch.float32
    assert torch.equal(race.table.weight, state["master"].to(dtype))
    exact, bound = race.exact.detach(), step * race.exact.detach().abs().clamp(min=2**-14)
    assert ((race.table.weight.detach().double() - exact).abs() <= 1.001 * bound).all()
    assert ((low.detach().double() - exact).abs() > 4 * bound).any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_several_lookups_and_backward_passes_are_summed(dtype):
    table, ids = TokenEmbedding(V, D, dtype=dtype), torch.tensor([3, 4, 3])
    RowAdamW(table)
    for _ in range(2):
        (table(ids).sum() + table(ids[1:]).sum()).backward()
    assert table.weight.grad.to_dense()[2:6, 0].tolist() == [0, 6, 4, 0]


def test_three_lookups_of_float16_are_rounded_once():
    table, upstream = TokenEmbedding(V, D, dtype=torch.float16), sampled(3, D).half()
    RowAdamW(table)
    sum((table(torch.tensor(3)) * each).sum() for each in upstream).backward()
    row, exact = table.weight.grad.to_dense()[3], upstream.double().sum(0).half()
    assert torch.equal(row, exact)
    assert not torch.equal(upstream[0] + upstream[1] + upstream[2], exact)


def test_a_factor_of_a_gradient_of_float16_is_not_dropped():
    table = TokenEmbedding(V, D, dtype=torch.float16)
    RowAdamW(table)
    table(torch.tensor([3])).sum().backward()
    with pytest.raises(NotImplementedError, match="Half"):
        torch.add(table.weight.grad, table.weight.grad, alpha=3)


def test_values_written_to_a_table_of_sixteen_bits_are_kept():
    table = TokenEmbedding.from_weight(sampled(V, D).bfloat16())
    optimizer = RowAdamW(table, lr=1e-6, weight_decay=0.0)
    for value in (1.0, -3.0):
        table(torch.tensor([4])).sum().backward()
        optimizer.step()
        optimizer.flush()
        with torch.no_grad():
            table.weight[4] = value
        optimizer.zero_grad()
    assert table(torch.tensor([4])).unique().item() == -3.0


def test_a_table_of_float64():
    race = Race(0.02 * sampled(V, D).double(), warm_up_and_cosine, lr=1e-3, weight_decay=0.01)
    race.run(200)
    assert race.errors()[0] < 1e-11


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_and_pytorch_train_equally_to_the_bit(dtype):
    tables = []
    for plainly in (False, True):
        with ww.pytorch_only() if plainly else nullcontext():
            race = Race(0.02 * sampled(V, D).to(dtype), warm_up_and_cosine, lr=1e-3)
            race.run(150)
            race.rows.flush()
            tables.append(race.table.weight)
    assert torch.equal(*tables)


@settings(max_examples=15, deadline=None)
@given(
    lr=st.floats(0, 0.1),
    beta1=st.floats(0, 0.95),
    beta2=st.floats(0.98, 0.9999),
    eps=st.sampled_from([0.0, 1e-15, 1e-8, 1e-3, 10.0]),
    weight_decay=st.floats(0, 1),
    size=st.sampled_from([1e-9, 1e-5, 1.0, 1e3]),
    ups=st.lists(st.floats(0, 1), min_size=4, max_size=4),
    seed=st.integers(0, 1000),
)
def test_it_equals_dense_adamw_for_all_settings(lr, beta1, beta2, eps, weight_decay, size, ups, seed):
    """To twice the error of dense float32 and a few roundings of the largest weight.

    Rates rise, fall and stay. Elements that dense AdamW makes NaN without eps are excluded.
    """
    options = {"lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": weight_decay}
    race = Race(sampled(12, 4, seed=seed), lambda o: lr_scheduler.LambdaLR(o, lambda n: ups[n // 7 % 4]), **options)
    race.run(60, size, seed)
    ours, dense = race.errors() if eps else errors_of_seen_rows(race, seed)
    assert ours <= 2 * dense + 3e-7 * float(race.exact.detach().nan_to_num().abs().max())


def errors_of_seen_rows(race: Race, seed: int) -> tuple[float, float]:
    race.rows.flush()
    first = batches(60, 12, seed)[0].unique()  # all others are 0 / 0 in the first step of dense AdamW
    exact = race.exact[first].detach()
    return tuple(float((x[first].detach().double() - exact).abs().max()) for x in (race.table.weight, race.single))


def test_without_eps_nothing_moves_where_dense_adamw_divides_zero_by_zero():
    table = TokenEmbedding.from_weight(torch.ones(4, 2))
    optimizer = RowAdamW(table, lr=0.1, eps=0.0, weight_decay=0.0)
    for _ in range(3):
        table(torch.tensor([1])).backward(torch.tensor([[1.0, 0.0]]))
        optimizer.step()
        optimizer.zero_grad()
    optimizer.flush()
    assert table.weight[[0, 2, 3]].eq(1).all()
    torch.testing.assert_close(table.weight[1].detach(), torch.tensor([0.7, 1.0]))


def test_rows_that_are_not_read_are_not_touched():
    race = Race(sampled(V, D), lr=1e-2)
    race.take(torch.tensor([1, 2]), sampled(2, D))
    before = race.table.weight.detach().clone()
    race.take(torch.tensor([3]), sampled(1, D))
    changed = (race.table.weight.detach() != before).any(1).nonzero().flatten()
    assert changed.tolist() == [3]
    race.table(torch.tensor([2]))
    changed = (race.table.weight.detach() != before).any(1).nonzero().flatten()
    assert changed.tolist() == [2, 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=60),  # of the betas too
        lambda optimizer: lr_scheduler.StepLR(optimizer, 20, gamma=0.0),
    ],
)
def test_schedules(make):
    race = Race(0.02 * sampled(V, D), make, lr=1e-3)
    race.run(60)
    ours, dense = race.errors()
    assert 0 < ours < dense


@pytest.mark.parametrize("changes", [{"eps": 1e-3}, {"eps": 0.1}, {"weight_decay": 0.9}, {"betas": (0.5, 0.9)}])
def test_settings_may_change_between_steps(changes):
    race = Race(0.02 * sampled(V, D), lr=1e-3)
    race.run(40)
    for optimizer in race.all:
        optimizer.param_groups[0].update(changes)
    race.run(40, seed=1)
    ours, dense = race.errors()
    assert 0 < ours < dense


def test_a_long_history_begins_anew(monkeypatch):
    monkeypatch.setattr(row_table, "MIN_HISTORY", 13)
    race = Race(0.02 * sampled(12, D), lr=1e-3)
    race.run(60)
    assert race.rows._tables[race.table.weight].history.count < 13
    ours, dense = race.errors()
    assert 0 < ours < dense
