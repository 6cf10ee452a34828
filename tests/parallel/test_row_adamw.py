"""RowAdamW on several processes: what would train nothing or let them drift apart is refused, and checkpoints load."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import whatwhere as ww

from .processes import on_ranks
from .training import said


def sharded_later() -> str:
    """Return what a step says of a table that was sharded after the optimizer was made."""
    table = ww.TokenEmbedding(16, 8)
    optimizer = ww.RowAdamW(table)
    fully_shard(table, mesh=init_device_mesh("cpu", (torch.distributed.get_world_size(),)))
    table(torch.tensor([1, 2])).sum().backward()
    return said(optimizer.step)


def stale() -> str:
    """Return what a step says of a gradient of rows that no lookup has updated."""
    table = ww.TokenEmbedding(16, 8)
    optimizer = ww.RowAdamW(table)
    for ids in (torch.tensor([1]), torch.tensor([2])):
        optimizer.zero_grad()
        table(ids).sum().backward()
        optimizer.step()
    optimizer.zero_grad()
    table(torch.tensor([1])).sum().backward()
    rows = torch.sparse_coo_tensor(torch.tensor([[1, 3]]), torch.ones(2, 8), (16, 8), check_invariants=True)
    table.weight.grad = rows.coalesce()
    return said(optimizer.step)


def raw_read() -> str:
    """Return what a step says where this process has read a row of the weight itself, which is behind."""
    torch.manual_seed(0)
    model = RawReads()
    optimizer = ww.RowAdamW(model.table, lr=0.1)
    together = nn.parallel.DistributedDataParallel(model) if torch.distributed.get_world_size() > 1 else model
    for ids in (torch.tensor([1, 2]), torch.tensor([3, 4])):
        together(ids, False).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    last = torch.distributed.get_rank() == torch.distributed.get_world_size() - 1
    together(torch.tensor([1, 5]), last).sum().backward()
    return said(optimizer.step)


class RawReads(nn.Module):
    """A table that is read by lookups, or by itself."""

    def __init__(self, plain: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(16, 8, sparse=True) if plain else ww.TokenEmbedding(16, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, ids: torch.Tensor, raw: bool) -> torch.Tensor:
        rows = nn.functional.embedding(ids, self.table.weight, sparse=True) if raw else self.table(ids)
        vectors: torch.Tensor = self.head(rows)
        return vectors


def ignored(resumed: bool = False) -> str:
    """Return what a step says of a table that fully_shard ignores, from the start or resumed."""
    model = nn.Sequential(ww.TokenEmbedding(16, 8), nn.Linear(8, 16))
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    saved = saved_training()
    fully_shard(model, mesh=mesh, ignored_params={model[0].weight})
    optimizer = ww.RowAdamW(model[0])
    if resumed:
        optimizer.load_state_dict(saved)
    model(torch.tensor([torch.distributed.get_rank()])).sum().backward()
    return said(optimizer.step)


def saved_training() -> dict[str, Any]:
    table = ww.TokenEmbedding(16, 8)
    optimizer = ww.RowAdamW(table)
    table(torch.tensor([1])).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


def ignored_by_ddp(marked: bool) -> str:
    """Return what a step says of a table that DistributedDataParallel ignores."""
    model = nn.Sequential(ww.TokenEmbedding(16, 8), nn.Linear(8, 16))
    optimizer, together = ww.RowAdamW(model[0]), nn.parallel.DistributedDataParallel
    if marked:
        together._set_params_and_buffers_to_ignore_for_model(model, ["0.weight"])
    else:
        model._ddp_params_and_buffers_to_ignore = ["0.weight"]  # type: ignore[assignment]
    together(model)(torch.tensor([torch.distributed.get_rank()])).sum().backward()
    return said(optimizer.step)


def refusals() -> list[str]:
    return [sharded_later(), raw_read(), ignored(), ignored(True), ignored_by_ddp(False), ignored_by_ddp(True)]


def test_what_would_train_nothing_is_refused_in_a_group_of_one(tmp_path: Path) -> None:
    """With others in the group, their rows come to all; alone, nobody else can have read them."""
    assert "were not read through the embedding" in stale()
    ((sharded, unread, *alone),) = on_ranks(1, tmp_path / "alone", refusals)
    assert "the module of a table has another weight" in sharded
    assert "Create RowAdamW after the last change" in sharded
    assert "were not read through the embedding" in unread
    assert alone == ["nothing"] * 4


def test_copies_that_would_drift_apart_are_refused(tmp_path: Path) -> None:
    results = on_ranks(2, tmp_path / "ranks", refusals)
    for sharded, _, drifting, resumed, left_out, marked in results:
        assert "the module of a table has another weight" in sharded
        assert "fully_shard ignores the table" in drifting
        assert resumed == drifting
        assert "DistributedDataParallel ignores the table" in left_out
        assert marked == left_out
    assert results[0][1] == "nothing"  # the job ends with the error of the other
    assert "rows have a gradient on process 1 of 2, but were not read through the embedding" in results[1][1]


def accumulated(plain: bool = False) -> torch.Tensor:
    """Return a table after steps of several backward passes, which leave the rows of others in the gradient."""
    torch.manual_seed(0)
    model = RawReads(plain)
    optimizer = ww.RowAdamW(model.table, lr=0.1)
    joined = torch.distributed.is_initialized()
    ranks, rank = (torch.distributed.get_world_size(), torch.distributed.get_rank()) if joined else (1, 0)
    together: Any = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    for number in range(6):
        ids = torch.tensor([[number, 5], [2 * number, 3]])
        for part in range(2):
            own = (ids + part)[rank::ranks]
            with together.no_sync() if ranks > 1 and part == 0 and number % 2 else nullcontext():
                together(own, False).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=number % 3 > 0)
        model.head.zero_grad()
    optimizer.flush()
    return model.table.weight.detach()


def accumulated_by_both() -> list[torch.Tensor]:
    return [accumulated(plain) for plain in (False, True)]


def test_gradients_of_several_passes_are_taken_for_read(tmp_path: Path) -> None:
    alone = accumulated_by_both()
    for tables in on_ranks(2, tmp_path / "ranks", accumulated_by_both):
        torch.testing.assert_close(tables, alone, rtol=0, atol=1e-6)


def test_a_dense_gradient_of_zeros_is_a_step_without_rows() -> None:
    table = ww.TokenEmbedding(5, 3)
    optimizer = ww.RowAdamW(table, lr=0.1)
    dense = ww.TokenEmbedding.from_weight(table.weight.detach().clone())
    reference = torch.optim.AdamW(dense.parameters(), lr=0.1)
    for weight in (table.weight, dense.weight):
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    reference.step()
    optimizer.flush()
    torch.testing.assert_close(table.weight, dense.weight, rtol=1e-6, atol=1e-9)
    table.weight.grad = torch.zeros_like(table.weight)
    table.weight.grad[4, 2] = 1e-30
    with pytest.raises(ww.errors.SettingError, match="dense gradient"):
        optimizer.step()
