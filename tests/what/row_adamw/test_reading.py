"""Tables of RowAdamW read by others: output projections, other processes, other modules, resized tables."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import whatwhere as ww
from whatwhere import RowAdamW, TokenEmbedding

from .race import OPTIONS, D, Race, V, sampled, train


def test_a_trained_output_projection_is_refused():
    table = TokenEmbedding(V, D)
    optimizer = RowAdamW(table)
    with pytest.raises(ww.errors.SettingError, match=r"tied.*\n.*torch.optim.AdamW\(\.\.\., fused=True\)"):
        table.readout(table(torch.tensor([1])))
    logits = F.linear(table(torch.tensor([1])), table.weight)
    logits.sum().backward()
    with pytest.raises(ww.errors.SettingError, match="dense gradient"):
        optimizer.step()


def test_an_output_projection_that_is_not_trained_reads_rows_that_are_up_to_date():
    race = Race(sampled(V, D), **OPTIONS)
    race.run(20)
    hidden = sampled(3, D)
    with torch.no_grad():
        logits = race.table.readout(hidden)
    torch.testing.assert_close(logits.double(), hidden.double() @ race.exact.detach().mT, rtol=0, atol=1e-5)


def test_rows_that_were_not_read_through_the_module_are_refused():
    table = TokenEmbedding(V, D)
    optimizer = RowAdamW(table)
    train(table, optimizer, map(torch.tensor, ([1], [2])))
    F.embedding(torch.tensor([1, 2]), table.weight, sparse=True).sum().backward()
    with pytest.raises(ww.errors.SettingError, match=r"1 rows have a gradient.*\n.*flush"):
        optimizer.step()
    optimizer.flush()
    optimizer.step()


def test_what_was_computed_from_the_whole_table_has_no_gradient_once_rows_have_moved():
    race = Race(sampled(V, D), **OPTIONS)
    race.take(torch.tensor([1, 2]), sampled(2, D))
    race.take(torch.tensor([3]), sampled(1, D))
    penalty = race.table.weight.square().sum()
    race.table(torch.tensor([1]))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        penalty.backward()


def test_another_weight_put_there_for_one_call_is_read():
    race = Race(sampled(V, D), **OPTIONS)
    race.run(5)
    other = sampled(V, D, seed=5)
    result = torch.func.functional_call(race.table, {"weight": other}, (torch.tensor([1, 2]),))
    assert torch.equal(result, other[[1, 2]])
    race.run(5, seed=1)
    assert race.errors()[0] < 1e-6


@pytest.mark.parametrize("module", [TokenEmbedding, nn.Embedding])
@pytest.mark.parametrize("ids", [torch.tensor([1, V]), torch.tensor([-1])])
def test_ids_outside_the_table(ids, module):
    race = Race(sampled(V, D), module=module, **OPTIONS)
    race.run(5)
    with pytest.raises(IndexError):
        race.table(ids)


def test_ids_of_any_shape_and_type():
    race = Race(sampled(V, D), **OPTIONS)
    race.run(5)
    for ids in (torch.tensor(3), torch.tensor([[1, 2], [3, 4]]), torch.empty(2, 0, dtype=torch.int64)):
        for dtype in (torch.int64, torch.int32, torch.uint8):
            rows = race.table(ids.to(dtype))
            torch.testing.assert_close(rows.double(), F.embedding(ids, race.exact), rtol=0, atol=1e-6)
    rows.sum().backward()
    race.rows.step()


def test_the_next_optimizer_replaces_the_last():
    race = Race(sampled(V, D), **OPTIONS)
    race.run(10)
    other = RowAdamW(race.table, **OPTIONS)
    torch.testing.assert_close(race.table.weight.double(), race.exact, rtol=0, atol=1e-6)
    race.table(torch.tensor([1])).sum().backward()
    with pytest.raises(ww.errors.SettingError, match="another optimizer"):
        race.rows.step()
    other.step()


@pytest.mark.parametrize("module", [TokenEmbedding, nn.Embedding])
def test_a_module_that_is_released_is_as_before(module):
    race = Race(sampled(V, D), module=module, **OPTIONS)
    before = set(vars(race.table))
    race.run(10)
    assert race.table.sparse == (module is TokenEmbedding)  # as DistributedDataParallel reads it
    race.rows.release()
    assert not race.table.sparse
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
    train(table, optimizer, [torch.arange(3 if behind else V)])
    table.weight.data, table.num_embeddings = torch.zeros(2 * V, D), 2 * V
    with pytest.raises(ww.errors.ShapeError, match=r"\(80, 8\).*\(40, 8\)(.|\n)*resize"):
        train(table, optimizer, [torch.tensor([V + 3])])


def test_a_table_whose_type_was_changed_is_refused():
    race = Race(sampled(V, D), **OPTIONS)
    race.run(3)
    race.table.double()
    with pytest.raises(ww.errors.SettingError, match="before you create RowAdamW"):
        race.table(torch.tensor([1]))
