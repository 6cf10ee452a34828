"""RowAdamW is dense AdamW, to less than its own rounding, and lives with everything that training has."""

import copy
import io
import pickle
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

import whatwhere as ww
from whatwhere import RowAdamW, TokenEmbedding
from whatwhere.reference.what import adamw
from whatwhere.what.row_adamw import table as row_table

V, D = 40, 8
OPTIONS = {"lr": 1e-2, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.1}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def batches(steps: int, vocab_size: int = V, seed: int = 0) -> list[Tensor]:
    """Ids of a text: few often, many rarely; several times in a batch."""
    generator = torch.Generator().manual_seed(seed)
    return [(vocab_size * torch.rand(6, generator=generator) ** 3).long() for _ in range(steps)]


class Race:
    """The same training by RowAdamW, and by dense AdamW in float64 and float32.

    Args:
        start: the table.
        make: what the schedule of a learning rate is made by.
        options: of all three optimizers.
    """

    def __init__(
        self,
        start: Tensor,
        make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler] | None = None,
        module: type[nn.Module] = TokenEmbedding,
        **options: object,
    ) -> None:
        self.start = start
        self.table = (
            TokenEmbedding.from_weight(start.clone())
            if module is TokenEmbedding
            else nn.Embedding(*start.shape, _weight=start.clone())
        )
        self.exact, self.single = nn.Parameter(start.double()), nn.Parameter(start.float().clone())
        self.rows = RowAdamW(self.table, **options)
        self.dense = [torch.optim.AdamW([weight], **options) for weight in (self.exact, self.single)]
        self.schedulers = [make(optimizer) for optimizer in self.all] if make else []

    @property
    def all(self) -> list[torch.optim.Optimizer]:
        return [self.rows, *self.dense]

    def take(self, ids: Tensor, upstream: Tensor) -> None:
        self.table(ids).backward(upstream.to(self.table.weight.dtype))
        gradient = self.table.weight.grad.to_dense()
        self.exact.grad, self.single.grad = gradient.double(), gradient.float()
        self.step()

    def step(self) -> None:
        for part in [*self.all, *self.schedulers]:
            part.step()
        for optimizer in self.all:
            optimizer.zero_grad()

    def run(self, steps: int, size: float = 1e-2, seed: int = 0) -> None:
        for n, ids in enumerate(batches(steps, len(self.start), seed)):
            self.take(ids, size * drawn(len(ids), self.start.shape[1], seed=seed + n))

    def errors(self) -> tuple[float, float]:
        """The largest distance from float64, ours and that of dense float32."""
        self.rows.flush()
        master = self.rows.state[self.table.weight].get("master", self.table.weight)
        exact = self.exact.detach()
        return tuple(float((x.detach().double() - exact).abs().max()) for x in (master, self.single))

    def moved(self) -> float:
        return float((self.exact.detach() - self.start.double()).abs().max())


def warm_up_and_cosine(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.LambdaLR(optimizer, lambda n: min(1, (n + 1) / 40) * (0.5 + 0.5 * np.cos(np.pi * n / 200)))


# The numbers.


@pytest.mark.parametrize("size", [1e-2, 1e-5, 1e-7, 1e-9])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.95), (0.95, 0.99), (0.0, 0.999)])
def test_it_is_dense_adamw(betas, size):
    race = Race(0.02 * drawn(V, D), warm_up_and_cosine, lr=1e-3, betas=betas, weight_decay=0.01)
    race.run(200, size)
    ours, dense = race.errors()
    assert race.moved() > (1e-2 if size > 1e-8 else 1e-4)
    assert 0 < ours <= dense


@pytest.mark.parametrize("module", [TokenEmbedding, nn.Embedding])
def test_every_value_that_is_read_is_that_of_dense_adamw(module):
    """Not only at the end: forward passes between steps, in training and without gradients, of new and of seen rows."""
    race = Race(0.02 * drawn(V, D), warm_up_and_cosine, module, lr=1e-3, weight_decay=0.1)
    for n, ids in enumerate(batches(60)):
        for context in (torch.no_grad(), torch.inference_mode(), nullcontext()):
            with context:
                rows = race.table(torch.cat([ids, torch.tensor([n % V])]))[:-1]
            assert float((rows.detach().double() - race.exact[ids].detach()).abs().max()) < 5e-8
        race.take(ids, 1e-2 * drawn(6, D, seed=n))


def test_the_first_steps():
    race = Race(drawn(V, D), lr=1e-2, weight_decay=0.1)
    for n in range(6):
        race.take(torch.tensor([n, 7]), drawn(2, D, seed=n))
        ours, dense = race.errors()
        assert ours <= max(dense, 1.2e-7)


def test_a_row_without_a_gradient_decays_and_no_more():
    race, unseen = Race(drawn(V, D), lr=1e-2, weight_decay=0.5), [1, 7, V - 1]
    for n, ids in enumerate(batches(100)):
        race.take(ids // 2 * 2, drawn(6, D, seed=n))
    race.rows.flush()
    kept = (1 - 1e-2 * 0.5) ** 100
    found, right = race.table.weight[unseen].detach(), kept * race.start[unseen].double()
    assert float((found.double() / right - 1).abs().max()) < 1.2e-7


@pytest.mark.parametrize(("dtype", "step"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)])
def test_a_table_of_sixteen_bits_is_its_master_rounded(dtype, step):
    """The master is as close to dense AdamW as float32 gets; dense AdamW of sixteen bits loses most of its steps."""
    start = 0.02 * drawn(V, D).to(dtype)
    race = Race(start, warm_up_and_cosine, lr=1e-4, weight_decay=0.01)
    low = nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([low], lr=1e-4, weight_decay=0.01)
    for n, ids in enumerate(batches(200)):
        low.grad = torch.zeros_like(low).index_add(0, ids, 1e-2 * drawn(6, D, seed=n).to(dtype))
        optimizer.step()
        race.take(ids, 1e-2 * drawn(6, D, seed=n))
    ours, dense = race.errors()
    assert ours < dense
    state = race.rows.state[race.table.weight]
    assert state["exp_avg"].dtype == state["exp_avg_sq"].dtype == torch.float32
    assert torch.equal(race.table.weight, state["master"].to(dtype))
    exact, bound = race.exact.detach(), step * race.exact.detach().abs().clamp(min=2**-14)
    assert ((race.table.weight.detach().double() - exact).abs() <= 1.001 * bound).all()
    assert ((low.detach().double() - exact).abs() > 4 * bound).any()


def test_values_written_to_a_table_of_sixteen_bits_are_kept():
    table = TokenEmbedding.from_weight(drawn(V, D).bfloat16())
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
    race = Race(0.02 * drawn(V, D).double(), warm_up_and_cosine, lr=1e-3, weight_decay=0.01)
    race.run(200)
    assert race.errors()[0] < 1e-11


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_and_pytorch_train_equally_to_the_bit(dtype):
    tables = []
    for plainly in (False, True):
        with ww.pytorch_only() if plainly else nullcontext():
            race = Race(0.02 * drawn(V, D).to(dtype), warm_up_and_cosine, lr=1e-3)
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

    Rates go up and down and stand still. What dense AdamW makes NaN without eps is left out.
    """
    options = {"lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": weight_decay}
    race = Race(drawn(12, 4, seed=seed), lambda o: lr_scheduler.LambdaLR(o, lambda n: ups[n // 7 % 4]), **options)
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


def test_it_is_the_reference():
    table = TokenEmbedding(5, 3, dtype=torch.float64)
    optimizer = RowAdamW(table, **OPTIONS)
    p, m, v = table.weight.detach().numpy().copy(), np.zeros((5, 3)), np.zeros((5, 3))
    for n, ids in enumerate(batches(10, 5), start=1):
        upstream = drawn(6, 3, seed=n).double()
        table(ids).backward(upstream)
        optimizer.step()
        optimizer.zero_grad()
        g = np.zeros((5, 3))
        np.add.at(g, ids.numpy(), upstream.numpy())
        p, m, v = adamw(p, m, v, g, n, OPTIONS["lr"], OPTIONS["betas"], OPTIONS["eps"], OPTIONS["weight_decay"])
    optimizer.flush()
    np.testing.assert_allclose(table.weight.detach().numpy(), p, rtol=1e-9)


def test_rows_that_are_not_read_are_not_touched():
    race = Race(drawn(V, D), lr=1e-2)
    race.take(torch.tensor([1, 2]), drawn(2, D))
    before = race.table.weight.detach().clone()
    race.take(torch.tensor([3]), drawn(1, D))
    changed = (race.table.weight.detach() != before).any(1).nonzero().flatten()
    assert changed.tolist() == [3]
    race.table(torch.tensor([2]))
    changed = (race.table.weight.detach() != before).any(1).nonzero().flatten()
    assert changed.tolist() == [2, 3]


# Schedules and settings that change.


@pytest.mark.parametrize(
    "make",
    [
        lambda o: lr_scheduler.OneCycleLR(o, max_lr=1e-2, total_steps=120),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=17),
        lambda o: lr_scheduler.StepLR(o, 30, gamma=0.0),
    ],
    ids=["one cycle, of beta1 too", "restarts", "down to zero"],
)
def test_schedulers(make):
    race = Race(0.02 * drawn(V, D), make, lr=1e-3)
    race.run(120)
    ours, dense = race.errors()
    assert 0 < ours < dense


@pytest.mark.parametrize("changes", [{"eps": 1e-3}, {"eps": 0.1}, {"weight_decay": 0.9}, {"betas": (0.5, 0.9)}])
def test_settings_may_change_between_steps(changes):
    race = Race(0.02 * drawn(V, D), lr=1e-3)
    race.run(40)
    for optimizer in race.all:
        optimizer.param_groups[0].update(changes)
    race.run(40, seed=1)
    ours, dense = race.errors()
    assert 0 < ours < dense


def test_a_long_history_begins_anew(monkeypatch):
    monkeypatch.setattr(row_table, "_MIN_HISTORY", 13)
    race = Race(0.02 * drawn(12, D), lr=1e-3)
    race.run(60)
    assert race.rows._tables[race.table.weight].history.count < 13
    ours, dense = race.errors()
    assert 0 < ours < dense


# What training has.


class Model(nn.Module):
    """A table, a layer, and a loss; the table's gradient is by row, or dense."""

    def __init__(self, by_row: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.tokens = TokenEmbedding.from_weight(torch.randn(V, D, generator=generator))
        self.layer = nn.Linear(D, 1)
        with torch.no_grad():
            self.layer.weight.copy_(torch.randn(1, D, generator=generator))
            self.layer.bias.zero_()
        if by_row:
            self.optimizers = [RowAdamW(self.tokens, **OPTIONS), torch.optim.AdamW(self.layer.parameters(), **OPTIONS)]
        else:
            self.optimizers = [torch.optim.AdamW(self.parameters(), **OPTIONS)]

    def loss(self, ids: Tensor) -> Tensor:
        return self.layer(self.tokens(ids)).square().sum()

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def weights(self) -> Tensor:
        for optimizer in self.optimizers:
            if isinstance(optimizer, RowAdamW):
                optimizer.flush()
        return torch.cat([weight.detach().flatten() for weight in self.parameters()])


def same(ours: Model, dense: Model) -> None:
    torch.testing.assert_close(ours.weights(), dense.weights(), rtol=0, atol=3e-6)


@pytest.fixture
def models() -> tuple[Model, Model]:
    return Model(by_row=True), Model(by_row=False)


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("kind", [1.0, 2.0, float("inf")])
def test_clipping_by_the_norm_of_all_gradients(models, kind, foreach):
    """The token that stands twice is one row of the gradient."""
    for ids in batches(30):
        norms = []
        for model in models:
            model.loss(torch.cat([ids, ids[:2]])).backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5, kind, foreach=foreach))
            assert float(nn.utils.get_total_norm([w.grad for w in model.parameters()], kind)) <= 0.5001
            model.step()
        torch.testing.assert_close(*norms, rtol=1e-5, atol=0)
        assert norms[0] > 0.5
    same(*models)


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("kind", [0.5, 1.0, 2.0, float("inf")])
@pytest.mark.parametrize("emptied", [False, True])
def test_clipping_where_no_row_has_a_gradient(models, emptied, kind, foreach):
    """A batch without tokens, and what zero_grad(set_to_none=False) leaves."""
    found = []
    for model in models:
        model.loss(torch.tensor([1, 2]) if emptied else torch.tensor([], dtype=torch.long)).backward()
        if emptied:
            for optimizer in model.optimizers:
                optimizer.zero_grad(set_to_none=False)
        assert model.tokens.weight.grad is not None
        gradients = [model.tokens.weight.grad]
        found.append(nn.utils.clip_grad_norm_(model.tokens.parameters(), 0.5, kind, foreach=foreach))
        found.append(nn.utils.get_total_norm(gradients, kind, foreach=foreach))
        nn.utils.clip_grad_value_(model.tokens.parameters(), 0.1, foreach=foreach)
        model.step()
    assert [float(norm) for norm in found] == [0.0] * 4
    same(*models)


@pytest.mark.parametrize("kind", [float("-inf"), -1.0, -2.0, 0.0, 0.5, 3.0, float("inf")])
@pytest.mark.parametrize("ids", [[], [3], range(V)], ids=["none", "one", "all"])
def test_every_norm_is_that_of_the_dense_gradient(ids, kind):
    table = TokenEmbedding.from_weight(drawn(V, D))
    optimizer = RowAdamW(table)
    table(torch.tensor(list(ids), dtype=torch.long)).pow(3).sum().backward()
    gradient = table.weight.grad
    dense = torch.linalg.vector_norm(gradient.to_dense(), kind)
    torch.testing.assert_close(torch.linalg.vector_norm(gradient, kind), dense)
    torch.testing.assert_close(torch._foreach_norm([gradient], kind)[0], dense)
    torch.testing.assert_close(gradient.norm(kind), dense)
    optimizer.release()


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("ids", [[], [1, 2]])
def test_a_gradient_that_was_scaled_by_nan_is_refused(ids, foreach):
    """Dense AdamW would make every weight NaN, of rows too that the batch did not contain."""
    table, other = TokenEmbedding.from_weight(drawn(V, D)), nn.Parameter(torch.ones(1))
    optimizer = RowAdamW(table)
    table(torch.tensor(ids, dtype=torch.long)).sum().backward()
    other.grad = torch.tensor([float("nan")])
    nn.utils.clip_grad_norm_([table.weight, other], 1.0, foreach=foreach)
    with pytest.raises(ww.errors.SettingError, match=r"scaled by NaN(.|\n)*error_if_nonfinite=True"):
        optimizer.step()
    assert table.weight.isfinite().all()
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    table(torch.tensor([1])).sum().backward()
    table.weight.grad *= 0.5
    optimizer.step()
    optimizer.flush()
    assert table.weight.isfinite().all()


@pytest.mark.parametrize("foreach", [None, True, False])
def test_clipping_by_value(models, foreach):
    for ids in batches(20):
        for model in models:
            model.loss(ids).backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.1, foreach=foreach)
            model.step()
    same(*models)


def test_gradients_may_be_accumulated_and_scaled(models):
    """Two lookups in one loss, three losses in one step, another lookup between."""
    for a, b in zip(batches(30), batches(30, seed=1), strict=True):
        for model in models:
            (model.loss(a) + model.loss(b)).backward()
            model.loss(a.flip(0)).backward()
            with torch.no_grad():
                model.loss(b)
            model.loss(b[:1]).backward()
            for weight in model.parameters():
                weight.grad /= 3
            model.step()
    same(*models)


def test_mixed_precision_leaves_out_steps_that_are_not_finite(models):
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=7) for _ in models]
    for n, ids in enumerate(batches(30)):
        for model, scaler in zip(models, scalers, strict=True):
            scale = float("inf") if n % 5 == 3 else 1.0
            scaler.scale(model.loss(ids) * scale).backward()
            for optimizer in model.optimizers:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in model.optimizers:
                scaler.step(optimizer)
                optimizer.zero_grad()
            scaler.update()
    assert scalers[0].get_scale() == scalers[1].get_scale()
    assert models[0].optimizers[0].state[models[0].tokens.weight]["step"] == 24
    same(*models)


def test_autocast(models):
    for ids in batches(10):
        for model in models:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model.loss(ids)
            loss.backward()
            model.step()
    same(*models)


def test_a_closure():
    race = Race(drawn(V, D), **OPTIONS)

    def closure() -> Tensor:
        race.rows.zero_grad()
        loss = race.table(torch.tensor([1, 2])).square().sum()
        loss.backward()
        return loss.detach()

    losses = [float(race.rows.step(closure)) for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] == pytest.approx(float(race.start[[1, 2]].square().sum()))


def test_a_step_without_a_gradient_is_none_and_one_of_zeros_is_one():
    """As in PyTorch: zero_grad(set_to_none=False) leaves a gradient, of no rows."""
    race = Race(drawn(V, D), **OPTIONS)
    race.take(torch.tensor([1, 2]), drawn(2, D))
    race.step()
    assert race.rows.state[race.table.weight]["step"] == 1
    race.table(torch.tensor([1, 3])).sum().backward()
    race.rows.zero_grad(set_to_none=False)
    for weight in (race.exact, race.single):
        weight.grad = torch.zeros_like(weight)
    for _ in range(4):
        for optimizer in race.all:
            optimizer.step()
    assert race.rows.state[race.table.weight]["step"] == 5
    race.table(torch.tensor([3])).backward(drawn(1, D))  # added to what zero_grad left
    assert race.table.weight.grad.to_dense().any(1).nonzero().flatten().tolist() == [3]
    ours, dense = race.errors()
    assert 0 < ours < 2 * dense


def test_several_tables_each_with_settings_of_its_own():
    starts = [drawn(V, D), drawn(7, 3, seed=1)]
    tables = [TokenEmbedding.from_weight(starts[0].clone()), nn.Embedding(7, 3, _weight=starts[1].clone())]
    dense = [nn.Parameter(start.clone()) for start in starts]
    own = {"lr": 0.1, "betas": (0.5, 0.9), "weight_decay": 0.0}
    rows = RowAdamW([{"params": tables[0]}, {"params": [tables[1]], **own}], lr=1e-2)
    both = torch.optim.AdamW([{"params": dense[:1]}, {"params": dense[1:], **own}], lr=1e-2)
    for n, ids in enumerate(batches(30, 7)):
        for table, weight in zip(tables, dense, strict=True):
            if n % 3 or table is tables[0]:  # a table that a step does not use takes none
                table(ids).square().sum().backward()
                F.embedding(ids, weight).square().sum().backward()
        for optimizer in (rows, both):
            optimizer.step()
            optimizer.zero_grad()
    rows.flush()
    for table, weight in zip(tables, dense, strict=True):
        torch.testing.assert_close(table.weight, weight, rtol=0, atol=2e-6)


def test_two_modules_that_share_a_table():
    start = drawn(V, D)
    first = nn.Embedding(V, D, _weight=start.clone())
    second = TokenEmbedding(V, D)
    second.weight = first.weight
    dense = nn.Parameter(start.clone())
    rows, other = RowAdamW([first, second], **OPTIONS), torch.optim.AdamW([dense], **OPTIONS)
    for a, b in zip(batches(20), batches(20, seed=1), strict=True):
        (first(a) * second(b)).sum().backward()
        (F.embedding(a, dense) * F.embedding(b, dense)).sum().backward()
        for optimizer in (rows, other):
            optimizer.step()
            optimizer.zero_grad()
    rows.flush()
    torch.testing.assert_close(first.weight, dense, rtol=0, atol=2e-6)


@pytest.mark.parametrize("module", [TokenEmbedding, nn.Embedding])
def test_the_padding_row_stays_zero(module):
    tables = [TokenEmbedding(V, D, padding_idx=3) if module is TokenEmbedding else nn.Embedding(V, D, 3) for _ in "ab"]
    tables[1].load_state_dict(tables[0].state_dict())
    optimizers = [RowAdamW(tables[0], **OPTIONS), torch.optim.AdamW(tables[1].parameters(), **OPTIONS)]
    for n, ids in enumerate(batches(20)):
        for table, optimizer in zip(tables, optimizers, strict=True):
            table(torch.cat([ids, torch.tensor([3, 3])])).backward(drawn(8, D, seed=n))
            optimizer.step()
            optimizer.zero_grad()
    optimizers[0].flush()
    assert not tables[0].weight[3].any()
    torch.testing.assert_close(tables[0].weight, tables[1].weight, rtol=0, atol=2e-6)


@pytest.mark.parametrize("scheme", [None, ww.Sinusoidal, lambda dim: ww.Learned(dim=dim, max_length=9)])
def test_an_input_layer(scheme):
    """Position and scale are added in one pass elsewhere; rows must be up to date there too."""
    layers = [ww.InputLayer(V, D, scheme and scheme(dim=D), scale="sqrt_dim") for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    others = [list(layer.where.parameters()) for layer in layers]
    optimizers = [
        [RowAdamW(layers[0].tokens, **OPTIONS), *([torch.optim.AdamW(others[0], **OPTIONS)] if others[0] else [])],
        [torch.optim.AdamW(layers[1].parameters(), **OPTIONS)],
    ]
    for n, ids in enumerate(batches(30)):
        vectors = []
        for layer, all_of_it in zip(layers, optimizers, strict=True):
            vectors.append(layer(ids.view(2, 3)))
            vectors[-1].backward(drawn(2, 3, D, seed=n))
            for optimizer in all_of_it:
                optimizer.step()
                optimizer.zero_grad()
        torch.testing.assert_close(*vectors, rtol=0, atol=1e-5)


@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # PyTorch's own, when inductor is imported
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute:UserWarning"
)  # the compiler's, which looks at what it is handed
def test_a_compiled_model(models):
    """The graph is broken at the lookup and goes on after it."""
    torch._dynamo.reset()
    ours, dense = models
    loss = torch.compile(ours.loss)
    for ids in batches(20):
        loss(ids).backward()
        dense.loss(ids).backward()
        for model in models:
            model.step()
    same(*models)


def test_a_gradient_by_row_is_a_sparse_tensor_wherever_zeros_matter():
    table = TokenEmbedding(V, D)
    RowAdamW(table)
    table(torch.tensor([3, 1, 3])).backward(drawn(3, D))
    gradient, dense = table.weight.grad, table.weight.grad.to_dense()
    assert gradient.is_sparse
    assert gradient.is_coalesced()
    assert gradient._indices().tolist() == [[1, 3]]
    assert not isinstance(dense, type(gradient))
    torch.testing.assert_close(gradient.norm(), dense.norm())
    torch.testing.assert_close((gradient * 2).to_dense(), dense * 2)
    torch.testing.assert_close(gradient.sum(), dense.sum())
    for function in (lambda g: torch.linalg.vector_norm(g, dim=1), lambda g: g.clamp_(0.1, 0.2), torch.Tensor.exp_):
        with pytest.raises((RuntimeError, NotImplementedError)):
            function(gradient)
    assert gradient.mul_(2) is gradient
    assert gradient.clamp_(-0.1, 0.1) is gradient
    torch.testing.assert_close(gradient.to_dense(), (2 * dense).clamp(-0.1, 0.1))
    factors = drawn(V, D)
    torch.testing.assert_close(factors.clone().mul_(gradient.to_dense()), factors * gradient.to_dense())


def test_a_second_derivative_of_the_table_is_refused():
    table = TokenEmbedding(V, D)
    RowAdamW(table)
    (gradient,) = torch.autograd.grad(table(torch.tensor([1])).pow(3).sum(), table.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.to_dense().sum().backward()


# Saving, loading, copying.


def test_its_state_loads_into_dense_adamw_and_back():
    """Continued by the other, and again by the first, equals what none has interrupted."""
    race, ids = Race(drawn(V, D), warm_up_and_cosine, **OPTIONS), batches(60)
    state_of_rows = state_of_dense = {}
    table, dense = TokenEmbedding.from_weight(race.start.clone()), nn.Parameter(race.start.clone())
    for begin in (0, 20, 40):
        rows, other = RowAdamW(table, **OPTIONS), torch.optim.AdamW([dense], **OPTIONS)
        if begin:
            rows.load_state_dict(state_of_dense)
            other.load_state_dict(state_of_rows)
            assert rows.param_groups[0]["lr"] == other.param_groups[0]["lr"] < OPTIONS["lr"]
        for n in range(begin, begin + 20):
            for optimizer, looked_up in ((rows, table(ids[n])), (other, F.embedding(ids[n], dense))):
                optimizer.param_groups[0]["lr"] = race.rows.param_groups[0]["lr"]
                looked_up.backward(1e-2 * drawn(6, D, seed=n))
                optimizer.step()
                optimizer.zero_grad()
            race.take(ids[n], 1e-2 * drawn(6, D, seed=n))
        state_of_rows, state_of_dense = rows.state_dict(), other.state_dict()
        rows_now = table.state_dict()["weight"].clone()
        table.load_state_dict({"weight": dense.detach().clone()})
        with torch.no_grad():
            dense.copy_(rows_now)
    for weight in (table.weight, dense):
        assert float((weight.detach().double() - race.exact.detach()).abs().max()) < 3e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_saved_training_resumes_to_the_bit(dtype):
    def begun() -> tuple[TokenEmbedding, RowAdamW]:
        table = TokenEmbedding.from_weight(0.02 * drawn(V, D).to(dtype))
        return table, RowAdamW(table, **OPTIONS)

    def take(table: TokenEmbedding, optimizer: RowAdamW, begin: int, end: int) -> None:
        for n in range(begin, end):
            table(batches(60)[n]).backward(1e-2 * drawn(6, D, seed=n).to(dtype))
            optimizer.step()
            optimizer.zero_grad()

    table, optimizer = begun()
    take(table, optimizer, 0, 30)
    file = io.BytesIO()
    torch.save({"table": table.state_dict(), "optimizer": optimizer.state_dict()}, file)
    take(table, optimizer, 30, 60)
    other, another = begun()
    file.seek(0)
    saved = torch.load(file)
    other.load_state_dict(saved["table"])
    another.load_state_dict(saved["optimizer"])
    take(other, another, 30, 60)
    assert torch.equal(table.state_dict()["weight"], other.state_dict()["weight"])
    state = another.state[other.weight]
    assert state["exp_avg"].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_a_state_before_the_first_step():
    table = TokenEmbedding(V, D)
    optimizer = RowAdamW(table, **OPTIONS)
    RowAdamW(TokenEmbedding(V, D), lr=1.0, weight_decay=0.0).load_state_dict(optimizer.state_dict())
    torch.optim.AdamW(table.parameters()).load_state_dict(optimizer.state_dict())
    optimizer.load_state_dict(torch.optim.AdamW(table.parameters(), lr=0.5).state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert "fused" not in optimizer.param_groups[0]


def test_a_state_before_the_first_step_begins_anew():
    race = Race(drawn(V, D), **OPTIONS)
    race.run(10)
    race.rows.load_state_dict(RowAdamW(TokenEmbedding(V, D), **OPTIONS).state_dict())
    race.table.load_state_dict({"weight": race.start})
    weights = [race.exact, race.single]
    for weight, optimizer in zip(weights, race.dense, strict=True):
        optimizer.state.clear()
        weight.data.copy_(race.start)
    race.run(10)
    ours, dense = race.errors()
    assert 0 < ours <= 2 * dense


def test_the_table_is_saved_with_all_rows_up_to_date():
    race = Race(drawn(V, D), **OPTIONS)
    race.run(20)
    whole = nn.ModuleDict({"a": race.table})
    saved = whole.state_dict()["a.weight"]
    torch.testing.assert_close(saved.double(), race.exact.detach(), rtol=0, atol=1e-6)


def test_a_table_that_is_loaded_is_what_was_loaded():
    """What rows have yet to move belongs to the table before."""
    race = Race(drawn(V, D), **OPTIONS)
    race.run(20)
    other = drawn(V, D, seed=9)
    race.table.load_state_dict({"weight": other})
    assert torch.equal(race.table(torch.arange(V)).detach(), other)


@pytest.mark.parametrize("module", [TokenEmbedding, nn.Embedding])
def test_a_copy_of_a_module_is_up_to_date_and_free(module):
    race = Race(drawn(V, D), module=module, **OPTIONS)
    race.run(20)
    copied = copy.deepcopy(nn.Sequential(race.table))[0]
    torch.testing.assert_close(copied.weight.double(), race.exact, rtol=0, atol=1e-6)
    copied(torch.tensor([1])).sum().backward()
    assert not copied.weight.grad.is_sparse
    race.run(5, seed=3)
    assert race.errors()[0] < 1e-6


@pytest.mark.parametrize("module", [TokenEmbedding, nn.Embedding])
def test_a_module_is_pickled_when_its_rows_are_up_to_date(module):
    race = Race(drawn(V, D), module=module, **OPTIONS)
    race.run(3)
    with pytest.raises(ww.errors.SettingError, match="flush"):
        pickle.dumps(race.table)
    race.rows.flush()
    loaded = pickle.loads(pickle.dumps(race.table))
    assert torch.equal(loaded(torch.arange(V)), race.table.weight)


def test_an_optimizer_is_not_copied():
    optimizer = RowAdamW(TokenEmbedding(V, D))
    for attempt in (copy.deepcopy, pickle.dumps):
        with pytest.raises(ww.errors.SettingError, match="state_dict"):
            attempt(optimizer)


@pytest.mark.parametrize("change", [{"amsgrad": True}, {"maximize": True}, {"decoupled_weight_decay": False}])
def test_a_state_of_something_else_is_refused(change):
    table = TokenEmbedding(V, D)
    state = torch.optim.AdamW(table.parameters()).state_dict()
    state["param_groups"][0].update(change)
    with pytest.raises(ww.errors.SettingError):
        RowAdamW(table).load_state_dict(state)


def trained(optimizer: torch.optim.Optimizer, weight: nn.Parameter) -> dict[str, Any]:
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    return optimizer.state_dict()


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(drawn(*shape))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda w: trained(torch.optim.SGD([w], momentum=0.9), w), r"RowAdamW or torch\.optim\.AdamW.*no 'betas'"),
        (lambda w: torch.optim.SGD([w]).state_dict(), "no 'betas'"),
        (lambda w: trained(torch.optim.RMSprop([w]), w), "no 'betas'"),
        (lambda w: trained(torch.optim.Adamax([w], weight_decay=0.0), w), "no 'exp_avg_sq'"),
        (lambda w: {"state": {}}, "no 'param_groups'"),
        (lambda w: trained(torch.optim.AdamW([v := parameter(V + 1, D)]), v), r"\(41, 8\).*\(40, 8\)"),
        (lambda w: trained(torch.optim.AdamW([v := parameter(D)]), v), r"\(8,\).*\(40, 8\)"),
        (lambda w: torch.optim.AdamW([w, parameter(2, 2)]).state_dict(), "1 tables in a group.* 2"),
        (lambda w: torch.optim.AdamW([{"params": [w]}, {"params": [parameter(1)]}]).state_dict(), "1 groups.* 2"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_before_anything_changes(make, words):
    race = Race(drawn(V, D), **OPTIONS)
    race.run(10)
    with pytest.raises(ww.WhatWhereError, match=words):
        race.rows.load_state_dict(make(parameter(V, D)))
    race.run(10, seed=5)
    assert race.errors()[0] < 1e-6


# Who reads the table.


def test_a_trained_readout_is_refused():
    table = TokenEmbedding(V, D)
    optimizer = RowAdamW(table)
    with pytest.raises(ww.errors.SettingError, match=r"tied.*\n.*torch.optim.AdamW\(\.\.\., fused=True\)"):
        table.readout(table(torch.tensor([1])))
    logits = F.linear(table(torch.tensor([1])), table.weight)
    logits.sum().backward()
    with pytest.raises(ww.errors.SettingError, match="dense gradient"):
        optimizer.step()


def test_a_readout_that_is_not_trained_reads_rows_that_are_up_to_date():
    race = Race(drawn(V, D), **OPTIONS)
    race.run(20)
    hidden = drawn(3, D)
    with torch.no_grad():
        logits = race.table.readout(hidden)
    torch.testing.assert_close(logits.double(), hidden.double() @ race.exact.detach().mT, rtol=0, atol=1e-5)


def test_rows_that_were_not_read_through_the_module_are_refused():
    table = TokenEmbedding(V, D)
    optimizer = RowAdamW(table)
    for ids in ([1], [2]):
        table(torch.tensor(ids)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    F.embedding(torch.tensor([1, 2]), table.weight, sparse=True).sum().backward()
    with pytest.raises(ww.errors.SettingError, match=r"1 rows have a gradient.*\n.*flush"):
        optimizer.step()
    optimizer.flush()
    optimizer.step()


def test_rows_that_another_process_has_read_are_brought_up_to_date(monkeypatch):
    """In a group of processes, each gets the gradients of the rows that any has read."""
    race = Race(drawn(V, D), **OPTIONS)
    race.run(10)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    for ids in (torch.tensor([2, 4, 39]), torch.tensor([0])):
        gradient = torch.zeros(V, D).index_add(0, ids, drawn(len(ids), D))
        race.table.weight.grad = gradient.to_sparse(1)
        race.exact.grad, race.single.grad = gradient.double(), gradient
        race.step()
    assert race.errors()[0] < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["TokenEmbedding", "Embedding"])
def test_distributed_data_parallel(tmp_path, kind):
    """Two processes, each with half of a batch: both end with the table that one process has with all of it."""
    torch.multiprocessing.spawn(train_together, (tmp_path, kind), nprocs=2)
    race = Race(drawn(V, D), **OPTIONS)
    for n, ids in enumerate(batches(20)):
        race.take(ids, drawn(6, D, seed=n) / 2)  # the mean over processes
    race.rows.flush()
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), race.table.weight.detach(), rtol=0, atol=3e-6)


def train_together(rank: int, folder: Path, kind: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    weight = drawn(V, D)
    table = (
        nn.Embedding(V, D, sparse=True, _weight=weight) if kind == "Embedding" else TokenEmbedding.from_weight(weight)
    )
    optimizer = RowAdamW(table, **OPTIONS)
    model = nn.parallel.DistributedDataParallel(table)
    mine = slice(3 * rank, 3 * rank + 3)
    for n, ids in enumerate(batches(20)):
        model(ids[mine]).backward(drawn(6, D, seed=n)[mine])
        optimizer.step()
        optimizer.zero_grad()
    optimizer.flush()
    torch.save(table.weight.detach(), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def test_what_was_computed_from_the_whole_table_has_no_gradient_once_rows_have_moved():
    race = Race(drawn(V, D), **OPTIONS)
    race.take(torch.tensor([1, 2]), drawn(2, D))
    race.take(torch.tensor([3]), drawn(1, D))
    penalty = race.table.weight.square().sum()
    race.table(torch.tensor([1]))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        penalty.backward()


def test_another_weight_put_there_for_one_call_is_read():
    race = Race(drawn(V, D), **OPTIONS)
    race.run(5)
    other = drawn(V, D, seed=5)
    found = torch.func.functional_call(race.table, {"weight": other}, (torch.tensor([1, 2]),))
    assert torch.equal(found, other[[1, 2]])
    race.run(5, seed=1)
    assert race.errors()[0] < 1e-6


@pytest.mark.parametrize("module", [TokenEmbedding, nn.Embedding])
@pytest.mark.parametrize("ids", [torch.tensor([1, V]), torch.tensor([-1])])
def test_ids_outside_the_table(ids, module):
    race = Race(drawn(V, D), module=module, **OPTIONS)
    race.run(5)
    with pytest.raises(IndexError):
        race.table(ids)


def test_ids_of_any_shape_and_type():
    race = Race(drawn(V, D), **OPTIONS)
    race.run(5)
    for ids in (torch.tensor(3), torch.tensor([[1, 2], [3, 4]]), torch.empty(2, 0, dtype=torch.int64)):
        for dtype in (torch.int64, torch.int32, torch.uint8):
            rows = race.table(ids.to(dtype))
            torch.testing.assert_close(rows.double(), F.embedding(ids, race.exact), rtol=0, atol=1e-6)
    rows.sum().backward()
    race.rows.step()


def test_the_next_optimizer_replaces_the_last():
    """With all rows up to date; the one before says that it is out."""
    race = Race(drawn(V, D), **OPTIONS)
    race.run(10)
    other = RowAdamW(race.table, **OPTIONS)
    torch.testing.assert_close(race.table.weight.double(), race.exact, rtol=0, atol=1e-6)
    race.table(torch.tensor([1])).sum().backward()
    with pytest.raises(ww.errors.SettingError, match="another optimizer"):
        race.rows.step()
    other.step()


def test_a_table_reports_its_sparse_gradient():
    table = TokenEmbedding(V, D)
    assert not table.sparse
    optimizer = RowAdamW(table)
    assert table.sparse
    assert not copy.deepcopy(table).sparse
    optimizer.release()
    assert not table.sparse


@pytest.mark.parametrize("module", [TokenEmbedding, nn.Embedding])
def test_a_module_that_is_released_is_as_before(module):
    race = Race(drawn(V, D), module=module, **OPTIONS)
    before = set(vars(race.table))
    race.run(10)
    race.rows.release()
    torch.testing.assert_close(race.table.weight.double(), race.exact, rtol=0, atol=1e-6)
    assert set(vars(race.table)) - before <= {"keeper"}
    assert race.table.keeper is None
    race.table(torch.tensor([1])).sum().backward()
    assert not race.table.weight.grad.is_sparse
    torch.optim.AdamW(race.table.parameters()).step()


@pytest.mark.parametrize("module", [TokenEmbedding, nn.Embedding])
@pytest.mark.parametrize("behind", [False, True])
def test_a_table_that_others_have_resized_is_refused(module, behind):
    """Transformers puts other values into the same parameter."""
    table = module(V, D)
    optimizer = RowAdamW(table)

    def train(*ids: int) -> None:
        table(torch.tensor(ids)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    train(*range(3 if behind else V))
    table.weight.data, table.num_embeddings = torch.zeros(2 * V, D), 2 * V
    with pytest.raises(ww.errors.ShapeError, match=r"\(80, 8\).*\(40, 8\)(.|\n)*resize"):
        train(V + 3)


def test_a_table_whose_type_was_changed_is_refused():
    race = Race(drawn(V, D), **OPTIONS)
    race.run(3)
    race.table.double()
    with pytest.raises(ww.errors.SettingError, match="before you create RowAdamW"):
        race.table(torch.tensor([1]))


# What it refuses.


class Scaled(nn.Embedding):
    """As in several models of transformers."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def patched() -> nn.Embedding:
    made = nn.Embedding(V, D)
    made.forward = lambda ids: F.embedding(ids, made.weight) * 2
    return made


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"betas": (0.9, 0.8)}, "beta1 < sqrt"),
        ({"lr": -1.0}, r"lr=-1\.0"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"eps": -1e-8}, "eps"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"lr": 2.0, "weight_decay": 0.5}, "product below 1"),
        ({"amsgrad": True}, r"amsgrad=True.*\n.*AdamW\(amsgrad=True\)"),
        ({"maximize": True}, "maximize"),
        ({"capturable": True}, "capturable"),
        ({"differentiable": True}, "differentiable"),
    ],
)
def test_settings_that_are_refused(options, words):
    with pytest.raises(ww.errors.SettingError, match=words):
        RowAdamW(TokenEmbedding(V, D), **options)
    group = {"params": [TokenEmbedding(V, D)], **options}
    with pytest.raises(ww.errors.SettingError, match=words):
        RowAdamW([group])


def test_settings_are_checked_at_each_step():
    table = TokenEmbedding(V, D)
    optimizer = RowAdamW(table)
    optimizer.param_groups[0]["lr"] = -1.0
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ww.errors.SettingError, match=r"lr=-1\.0"):
        optimizer.step()


@pytest.mark.parametrize("name", ["maximize", "amsgrad", "capturable", "differentiable"])
def test_what_it_does_not_do_is_refused_at_each_step_too(name):
    table = TokenEmbedding(V, D)
    optimizer = RowAdamW(table)
    optimizer.param_groups[0][name] = True
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ww.errors.SettingError, match=rf"{name}=True.*\n.*AdamW\({name}=True\)"):
        optimizer.step()


def test_an_unknown_option():
    with pytest.raises(TypeError, match="momentum"):
        RowAdamW(TokenEmbedding(V, D), momentum=0.9)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: nn.Linear(2, 2), "got a Linear"),
        (lambda: ww.InputLayer(V, D), r"Pass InputLayer.tokens"),
        (lambda: [TokenEmbedding(V, D).weight], "Pass the module"),
        (list, "no embedding"),
        (lambda: nn.Embedding(V, D, max_norm=1.0), "max_norm"),
        (lambda: nn.Embedding(V, D, scale_grad_by_freq=True), "scale_grad_by_freq"),
        (lambda: TokenEmbedding(V, D, device="meta"), "with values"),
        (lambda: Scaled(V, D), "Scaled has a forward of its own"),
        (patched, "a forward of its own"),
        (lambda: nn.Embedding(V, D, dtype=torch.complex64), "floating-point"),
    ],
)
@pytest.mark.usefixtures("our_own_checks")
def test_what_is_not_a_table_is_refused(given, words):
    with pytest.raises(ww.WhatWhereError, match=words):
        RowAdamW(given())


def test_the_code_of_its_page_runs():
    page = (Path(__file__).parents[2] / "docs" / "optimizer.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["saved"]["tokens.weight"].isfinite().all()
    assert names["optimizers"][0].state_dict()["state"][0]["step"] == 20


# Long runs.


@pytest.mark.slow
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.95)])
def test_a_long_training_of_a_large_table(betas):
    """Zipf's law over 20,000 rows: SparseAdam ends far from dense Adam, and we nearer than dense float32."""
    vocab_size, dim, steps = 20_000, 32, 600
    weights = 1 / torch.arange(1.0, vocab_size + 1)
    ids = weights.multinomial(steps * 256, True, generator=torch.Generator().manual_seed(0)).view(steps, 256)
    start = 0.02 * drawn(vocab_size, dim)
    race = Race(start, warm_up_and_cosine, lr=1e-3, betas=betas, weight_decay=0.0)
    naive = nn.Embedding(vocab_size, dim, sparse=True, _weight=start.clone())
    sparse = torch.optim.SparseAdam(naive.parameters(), lr=1e-3, betas=betas)
    schedule = warm_up_and_cosine(sparse)
    for n in range(steps):
        upstream = 1e-2 * drawn(256, dim, seed=n)
        race.take(ids[n], upstream)
        naive(ids[n]).backward(upstream)
        sparse.step()
        sparse.zero_grad()
        schedule.step()
    ours, dense = race.errors()
    assert 0 < ours < dense
    way = race.exact.detach() - start.double()
    assert float((naive.weight.detach().double() - race.exact.detach()).norm() / way.norm()) > 0.3
    assert float((race.table.weight.detach().double() - race.exact.detach()).norm() / way.norm()) < 1e-5
