"""RowAdamW says so where the table of a module is replaced: it would train nothing."""

from pathlib import Path

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import whatwhere as ww

from .processes import on_ranks


def refusal() -> str:
    """Return what a step says of a table that was sharded after the optimizer was made."""
    table = ww.TokenEmbedding(16, 8)
    optimizer = ww.RowAdamW(table)
    fully_shard(table, mesh=init_device_mesh("cpu", (torch.distributed.get_world_size(),)))
    table(torch.tensor([1, 2])).sum().backward()
    try:
        optimizer.step()
    except ww.errors.SettingError as problem:
        return str(problem)
    return "trained"


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
    try:
        optimizer.step()
    except ww.errors.SettingError as problem:
        return str(problem)
    return "trained"


def both() -> tuple[str, str]:
    """Return what is said of both."""
    return refusal(), stale()


def test_what_would_train_nothing_is_refused_in_a_group_of_one(tmp_path: Path) -> None:
    """With others in the group, their rows come to all; alone, nobody else can have read them."""
    assert "were not read through the embedding" in stale()
    ((sharded, unread),) = on_ranks(1, tmp_path / "alone", both)
    assert sharded.startswith("the module of a table has another weight")
    assert "Create RowAdamW after the last change" in sharded
    assert "were not read through the embedding" in unread
