"""RowAdamW with what training has: clipping, accumulation, mixed precision, several tables, compiled models."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import whatwhere as ww
from whatwhere import RowAdamW, TokenEmbedding

from .race import OPTIONS, D, Race, V, batches, sampled, train


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
def test_clipping_by_the_norm_of_all_gradients_and_by_value(models, kind, foreach):
    for ids in batches(30):
        norms = []
        for model in models:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=foreach is None):
                loss = model.loss(torch.cat([ids, ids[:2]]))
            loss.backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5, kind, foreach=foreach))
            assert float(nn.utils.get_total_norm([w.grad for w in model.parameters()], kind)) <= 0.5001
            nn.utils.clip_grad_value_(model.parameters(), 0.1, foreach=foreach)
            model.step()
        torch.testing.assert_close(*norms, rtol=1e-5, atol=0)
        assert norms[0] > 0.5
    same(*models)


@pytest.mark.parametrize("kind", [float("-inf"), -1.0, -2.0, 0.0, 0.5, 3.0, float("inf")])
@pytest.mark.parametrize("ids", [[], [3], range(V)], ids=["none", "one", "all"])
def test_every_norm_is_that_of_the_dense_gradient(ids, kind):
    table = TokenEmbedding.from_weight(sampled(V, D))
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
    table, other = TokenEmbedding.from_weight(sampled(V, D)), nn.Parameter(torch.ones(1))
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


def test_gradients_may_be_accumulated_and_scaled(models):
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


def test_a_closure():
    race = Race(sampled(V, D), **OPTIONS)

    def closure() -> Tensor:
        race.rows.zero_grad()
        loss = race.table(torch.tensor([1, 2])).square().sum()
        loss.backward()
        return loss.detach()

    first, second = (float(race.rows.step(closure)) for _ in range(2))
    assert second < first == pytest.approx(float(race.start[[1, 2]].square().sum()))


def test_a_step_without_a_gradient_is_none_and_one_of_zeros_is_one():
    race = Race(sampled(V, D), **OPTIONS)
    race.take(torch.tensor([1, 2]), sampled(2, D))
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
    race.table(torch.tensor([3])).backward(sampled(1, D))  # added to what zero_grad left
    assert race.table.weight.grad.to_dense().any(1).nonzero().flatten().tolist() == [3]
    ours, dense = race.errors()
    assert 0 < ours < 2 * dense


def test_several_tables_each_with_settings_of_its_own():
    starts = [sampled(V, D), sampled(7, 3, seed=1)]
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
    start = sampled(V, D)
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
    for table, optimizer in zip(tables, optimizers, strict=True):
        train(table, optimizer, [torch.cat([ids, torch.tensor([3, 3])]) for ids in batches(20)])
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
            vectors[-1].backward(sampled(2, 3, D, seed=n))
            for optimizer in all_of_it:
                optimizer.step()
                optimizer.zero_grad()
        torch.testing.assert_close(*vectors, rtol=0, atol=1e-5)


@pytest.mark.compile
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute:UserWarning"
)  # the compiler's, which looks at what it is handed
def test_a_compiled_model(models):
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
    table(torch.tensor([3, 1, 3])).backward(sampled(3, D))
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
    factors = sampled(V, D)
    torch.testing.assert_close(factors.clone().mul_(gradient.to_dense()), factors * gradient.to_dense())


def test_a_second_derivative_is_that_of_a_plain_table(models):
    ids, found = torch.tensor([[3, 1, 3], [0, 2, 1]]), []
    for tokens in (model.tokens for model in models):
        tokens.padding_idx, gain = 2, torch.arange(1.0, D + 1).requires_grad_()
        (g,) = torch.autograd.grad((tokens(ids) * gain).pow(3).sum(), tokens.weight, create_graph=True)
        second = torch.autograd.grad(g.to_dense().square().sum() + gain.sum(), [gain, tokens.weight], create_graph=True)
        (third,) = torch.autograd.grad(second[0].sum(), gain)
        found.append([x.to_dense() for x in (*second, third)])
    torch.testing.assert_close(*found)
