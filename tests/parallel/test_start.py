"""Initial values do not depend on the number of processes, and the padding row is zero on the process that has it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import whatwhere as ww
from whatwhere.initialization import reset, reset_linear, row_blocks, sample_normal, sample_uniform
from whatwhere.where.catalogue import catalogue

from .processes import on_ranks
from .training import mesh_of_all

VOCABULARY, DIM, HEADS, TOKENS = 97, 32, 4, 12
LEARNED = [name for name, entry in catalogue.items() if entry.learned]


def tables() -> dict[str, ww.TokenEmbedding]:
    kinds: dict[str, Any] = {
        "normal": {"init": 0.5},
        "glorot": {"init": "glorot_uniform"},
        "fan in": {"init": "fan_in_uniform", "padding_idx": 3},
        "last row": {"padding_idx": VOCABULARY - 1},
        "bfloat16": {"dtype": torch.bfloat16, "padding_idx": 90},
    }
    return {name: ww.TokenEmbedding(VOCABULARY, DIM, device="meta", **options) for name, options in kinds.items()}


def schemes() -> dict[str, nn.Module]:
    with torch.device("meta"):
        return {name: ww.scheme(name, DIM, HEADS, TOKENS) for name in LEARNED}


def started(sharded: bool, seed: int | None) -> dict[str, Tensor]:
    """Return all initial values, made after the modules have left the meta device."""
    modules: dict[str, nn.Module] = {**tables(), "linear": nn.Linear(DIM, 7, device="meta"), **schemes()}
    mesh = mesh_of_all() if sharded else None
    torch.manual_seed(11)
    found = {}
    for name, module in modules.items():
        if mesh is not None:
            fully_shard(module, mesh=mesh)
        module.to_empty(device="cpu")
        if isinstance(module, nn.Linear):
            reset_linear(module, None if seed is None else torch.Generator().manual_seed(seed))
        else:
            reset(module, None if seed is None else torch.Generator().manual_seed(seed))
        for key, parameter in module.named_parameters():
            whole: Any = parameter
            found[f"{name}: {key}"] = (whole.full_tensor() if hasattr(whole, "full_tensor") else whole).detach().clone()
    return found


def started_twice(sharded: bool) -> list[dict[str, Tensor]]:
    """Return what starts from PyTorch's global random state, and what starts from a generator."""
    return [started(sharded, None), started(sharded, 5)]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_start_on_several_processes_is_that_of_one(ranks: int, tmp_path: Path) -> None:
    wanted = started_twice(sharded=False)
    for found in on_ranks(ranks, tmp_path / "ranks", started_twice, True):
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours.keys() == theirs.keys()
            for name, values in theirs.items():
                assert torch.equal(ours[name], values), name
    for name, row in (("fan in", 3), ("last row", VOCABULARY - 1), ("bfloat16", 90)):
        assert not wanted[0][f"{name}: weight"][row].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 31, 32, 33, 47, 100])
def test_blocks_sample_what_one_call_samples(dtype: torch.dtype, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch samples 16 numbers at a time, and the last 16 of a call anew."""
    monkeypatch.setattr("whatwhere.initialization._BLOCK", 16)
    for width in (1, 3, 8):
        assert sum(row_blocks(rows, width)) == rows
        for sample in (sample_normal, sample_uniform):
            whole, generator = torch.empty(rows, width, dtype=dtype), torch.Generator().manual_seed(1)
            sample(whole, 0.3, torch.Generator().manual_seed(1))
            parts = [torch.empty(n, width, dtype=dtype) for n in row_blocks(rows, width)]
            for part in parts:
                sample(part, 0.3, generator)
            assert torch.equal(torch.cat(parts), whole)
