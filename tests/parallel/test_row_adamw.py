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


def test_a_table_that_is_sharded_later_is_refused(tmp_path: Path) -> None:
    for said in on_ranks(2, tmp_path / "ranks", refusal):
        assert said.startswith("the module of a table has another weight")
        assert "Create RowAdamW after the last change" in said
