"""Training of some rows: they move as under dense AdamW of these rows alone, and all others keep their bits."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import whatwhere as ww
from whatwhere.errors import SettingError, TokenError
from whatwhere.what.resizing import TrainedRows, resize

from ...models.tiny import config_of, model_of
from ..row_adamw.race import train

OPTIONS = {"lr": 0.1, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
IDS = [5, 7]


def batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(8, (2, 6), generator=generator) for _ in range(5)]


def by_hand(table: Tensor, loss: "Loss") -> Tensor:
    """Return the table after AdamW on its rows alone, which a leaf of their own holds."""
    rows = table[IDS].clone().requires_grad_()
    optimizer = torch.optim.AdamW([rows], **OPTIONS)
    for ids in batches():
        optimizer.zero_grad()
        loss(table.index_copy(0, torch.tensor(IDS), rows), ids).backward()
        optimizer.step()
    return table.index_copy(0, torch.tensor(IDS), rows.detach())


class Loss:
    """A loss of a table alone, which is its own output projection where it is tied."""

    def __init__(self, tied: bool) -> None:
        self.tied = tied

    def __call__(self, table: Tensor, ids: Tensor) -> Tensor:
        vectors = F.embedding(ids, table)
        return (vectors.tanh() @ table.T).square().mean() if self.tied else vectors.square().sin().sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_row_adamw_trains_these_rows_alone(dtype: torch.dtype) -> None:
    start = torch.randn(8, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    table = ww.TokenEmbedding.from_weight(start.clone())
    optimizer = ww.RowAdamW(table, rows=IDS, **OPTIONS)
    for ids in batches():
        optimizer.zero_grad()
        table(ids).square().sin().sum().backward()
        assert set(table.weight.grad.coalesce().indices()[0].tolist()) <= set(IDS)
        optimizer.step()
    optimizer.flush()
    torch.testing.assert_close(table.weight.detach(), by_hand(start, Loss(tied=False)), rtol=1e-6, atol=1e-6)
    others = [n for n in range(8) if n not in IDS]
    assert torch.equal(table.weight.detach()[others], start[others])


@pytest.mark.parametrize("engine", ["compiled", "pytorch"])
def test_a_row_that_is_skipped_moves_on_and_others_do_not(engine: str) -> None:
    start = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    table = ww.TokenEmbedding.from_weight(start.clone())
    with ww.pytorch_only() if engine == "pytorch" else nullcontext():
        optimizer = ww.RowAdamW(table, rows=torch.tensor(IDS), **OPTIONS)
        train(table, optimizer, map(torch.tensor, ([5, 1], [1, 2], [2, 2], [7, 1])))
        optimizer.flush()
    after = table.weight.detach()
    assert torch.equal(after[[0, 1, 2, 3, 4, 6]], start[[0, 1, 2, 3, 4, 6]])
    assert not torch.equal(after[5], start[5])
    assert not torch.equal(after[7], start[7])


def test_the_state_of_some_rows_is_saved_and_loaded() -> None:
    start = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    results = []
    for interrupted in (False, True):
        table = ww.TokenEmbedding.from_weight(start.clone())
        optimizer = ww.RowAdamW(table, rows=IDS, **OPTIONS)
        train(table, optimizer, batches()[:2])
        if interrupted:
            state = optimizer.state_dict()
            optimizer.release()
            optimizer = ww.RowAdamW(table, rows=IDS, **OPTIONS)
            optimizer.load_state_dict(state)
        train(table, optimizer, batches()[2:])
        optimizer.flush()
        results.append(table.weight.detach().clone())
    assert torch.equal(*results)
    assert torch.equal(results[0][:5], start[:5])


def test_tied_rows_are_trained_by_any_optimizer() -> None:
    start = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    table = ww.TokenEmbedding.from_weight(start.clone())
    head = nn.Linear(3, 8, bias=False)
    head.weight = table.weight
    model = nn.ModuleDict({"table": table, "head": head})
    with TrainedRows(model, IDS, head=head) as trained:
        optimizer = torch.optim.AdamW(trained.parameters(), **OPTIONS)
        assert sum(p.numel() for p in trained.parameters()) == 2 * 3
        for ids in batches():
            optimizer.zero_grad()
            head(table(ids).tanh()).square().mean().backward()
            optimizer.step()
    assert head.weight is table.weight
    assert table.weight.requires_grad
    torch.testing.assert_close(table.weight.detach(), by_hand(start, Loss(tied=True)))
    assert torch.equal(table.weight.detach()[:5], start[:5])


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "t5"])
def test_new_tokens_of_a_model_of_transformers(name: str) -> None:
    model = model_of(config_of(name))
    table = model.get_input_embeddings()
    old = table.weight.shape[0]
    resize(model, old + 2)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    ids = torch.tensor([[1, old, old + 1, 2]])
    inputs = {"input_ids": ids, "decoder_input_ids": ids} if name == "t5" else {"input_ids": ids}
    with TrainedRows(model, range(old, old + 2)) as trained:
        optimizer = torch.optim.AdamW(trained.parameters(), lr=0.1)
        outputs = model(**inputs)
        outputs[0].square().mean().backward()
        optimizer.step()
    after = model.state_dict()
    assert list(after) == list(before)
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed
    for key in changed:
        assert before[key].shape[0] == old + 2, key
        assert torch.equal(before[key][:old], after[key][:old])


def test_what_cannot_be_trained_by_row_is_refused() -> None:
    table = ww.TokenEmbedding(8, 3)
    with pytest.raises(TokenError, match="row 8 lies outside"):
        TrainedRows(table, [8])
    with pytest.raises(TokenError, match="row -1 lies outside"):
        ww.RowAdamW(table, rows=[-1])
    with pytest.raises(SettingError, match="at least one id"):
        ww.RowAdamW(table, rows=[])
    optimizer = ww.RowAdamW(table, rows=[3])
    with pytest.raises(SettingError, match=r"optimizer\.release"):
        TrainedRows(table, [3])
    with pytest.raises(SettingError, match="trains some rows alone"):
        resize(table, 9, optimizer=optimizer)
    assert table.weight.shape[0] == 8
