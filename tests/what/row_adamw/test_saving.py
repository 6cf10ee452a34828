"""RowAdamW saved, loaded and copied: its state, its table, and modules with rows that are not up to date."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import whatwhere as ww
from whatwhere import RowAdamW, TokenEmbedding

from .race import OPTIONS, D, Race, V, batches, sampled, train, warm_up_and_cosine


def test_its_state_loads_into_dense_adamw_and_back():
    race, ids = Race(sampled(V, D), warm_up_and_cosine, **OPTIONS), batches(60)
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
                looked_up.backward(1e-2 * sampled(6, D, seed=n))
                optimizer.step()
                optimizer.zero_grad()
            race.take(ids[n], 1e-2 * sampled(6, D, seed=n))
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
        table = TokenEmbedding.from_weight(0.02 * sampled(V, D).to(dtype))
        return table, RowAdamW(table, **OPTIONS)

    table, optimizer = begun()
    train(table, optimizer, batches(60)[:30])
    file = io.BytesIO()
    torch.save({"table": table.state_dict(), "optimizer": optimizer.state_dict()}, file)
    train(table, optimizer, batches(60)[30:])
    other, another = begun()
    file.seek(0)
    saved = torch.load(file)
    other.load_state_dict(saved["table"])
    another.load_state_dict(saved["optimizer"])
    train(other, another, batches(60)[30:])
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
    race = Race(sampled(V, D), **OPTIONS)
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


def test_the_table_is_saved_with_all_rows_up_to_date_and_is_what_was_loaded():
    race = Race(sampled(V, D), **OPTIONS)
    race.run(20)
    saved = nn.ModuleDict({"a": race.table}).state_dict()["a.weight"]
    torch.testing.assert_close(saved.double(), race.exact.detach(), rtol=0, atol=1e-6)
    race.run(5)
    other = sampled(V, D, seed=9)
    race.table.load_state_dict({"weight": other})
    assert torch.equal(race.table(torch.arange(V)).detach(), other)


@pytest.mark.parametrize("module", [TokenEmbedding, nn.Embedding])
def test_a_copy_of_a_module_is_up_to_date_and_free(module):
    race = Race(sampled(V, D), module=module, **OPTIONS)
    race.run(20)
    copied = copy.deepcopy(nn.Sequential(race.table))[0]
    torch.testing.assert_close(copied.weight.double(), race.exact, rtol=0, atol=1e-6)
    copied(torch.tensor([1])).sum().backward()
    assert not copied.weight.grad.is_sparse
    race.run(5, seed=3)
    assert race.errors()[0] < 1e-6


@pytest.mark.parametrize("module", [TokenEmbedding, nn.Embedding])
def test_a_module_is_pickled_when_its_rows_are_up_to_date(module):
    race = Race(sampled(V, D), module=module, **OPTIONS)
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


def changed(weight: nn.Parameter, **options: object) -> dict[str, Any]:
    state = torch.optim.AdamW([weight]).state_dict()
    state["param_groups"][0].update(options)
    return state


def trained(optimizer: torch.optim.Optimizer, weight: nn.Parameter) -> dict[str, Any]:
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    return optimizer.state_dict()


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(sampled(*shape))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda w: trained(torch.optim.SGD([w], momentum=0.9), w), r"RowAdamW or torch\.optim\.AdamW.*no 'betas'"),
        (lambda w: torch.optim.SGD([w]).state_dict(), "no 'betas'"),
        (lambda w: trained(torch.optim.RMSprop([w]), w), "no 'betas'"),
        (lambda w: trained(torch.optim.Adamax([w], weight_decay=0.0), w), "no 'exp_avg_sq'"),
        (lambda w: {"state": {}}, "no 'param_groups'"),
        (lambda w: changed(w, amsgrad=True), "amsgrad=True, which it does not support"),
        (lambda w: changed(w, maximize=True), "maximize=True, which it does not support"),
        (lambda w: changed(w, decoupled_weight_decay=False), "the state of Adam, whose weight decay"),
        (lambda w: trained(torch.optim.AdamW([v := parameter(V + 1, D)]), v), r"\(41, 8\).*\(40, 8\)"),
        (lambda w: trained(torch.optim.AdamW([v := parameter(D)]), v), r"\(8,\).*\(40, 8\)"),
        (lambda w: torch.optim.AdamW([w, parameter(2, 2)]).state_dict(), "1 tables in a group.* 2"),
        (lambda w: torch.optim.AdamW([{"params": [w]}, {"params": [parameter(1)]}]).state_dict(), "1 groups.* 2"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_before_anything_changes(make, words):
    race = Race(sampled(V, D), **OPTIONS)
    race.run(10)
    with pytest.raises(ww.WhatWhereError, match=words):
        race.rows.load_state_dict(make(parameter(V, D)))
    race.run(10, seed=5)
    assert race.errors()[0] < 1e-6
