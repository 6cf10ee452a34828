"""RowAdamW on shards, and rows on their owners: losses of one process, and what is refused."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import whatwhere as ww
from whatwhere.parallel import clip_gradient_norm, deal_rows, shard_vocabulary

from .processes import on_ranks
from .training import Model, loss_of, mesh_of_all, said, train

ROWS, DIM, STEPS, PADDING = 97, 16, 8, 3
SETTINGS: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.1}


def model_of_rows() -> Model:
    torch.manual_seed(3)
    return Model(ROWS, DIM, PADDING, tied=False)


def batch(number: int) -> Tensor:
    """Return ids, some of them frequent, some not in every batch, and the padding token."""
    generator = torch.Generator().manual_seed(number)
    ids = (torch.rand(8, 7, generator=generator) ** 3 * ROWS).long()
    ids[:, 2] = PADDING
    return ids


def trained(model: Model, by_rows: bool, own: slice, reduce: Any, clip: Any) -> tuple[list[float], Any]:
    """Return the loss of each step, the norm of each, and the optimizer of the table."""
    table: Any = (ww.RowAdamW if by_rows else torch.optim.AdamW)(
        model.tokens if by_rows else model.tokens.parameters(), **SETTINGS
    )
    rest = torch.optim.AdamW([x for x in model.parameters() if x is not model.tokens.weight], **SETTINGS)
    norms: list[float] = []

    def loss_at(step: int) -> Tensor:
        ids = batch(step)[own]
        return loss_of(model(ids)[:, :-1], ids[:, 1:])

    losses = train(range(STEPS), (table, rest), loss_at, lambda: norms.append(float(clip(model.parameters(), 0.3))))
    if by_rows:
        table.flush()
    return [*map(reduce, losses), *norms], table


def mean(loss: float) -> float:
    whole = torch.tensor(loss, dtype=torch.float64)
    torch.distributed.all_reduce(whole)
    return float(whole) / torch.distributed.get_world_size()


def by_ranks() -> dict[str, Any]:
    """Train in every way; return numbers, tables and what is refused."""
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    mesh, found = mesh_of_all(), {}
    for by_rows in (True, False):
        model = model_of_rows()
        shards: Any = shard_vocabulary(model.tokens, mesh)
        numbers, table = trained(model, by_rows, slice(None), float, clip_gradient_norm)
        found[f"shards {by_rows}"] = numbers, shards.weight.full_tensor().detach()
        if by_rows:
            state = table.state_dict()["state"][0]
            found["state"] = state["exp_avg"].full_tensor(), state["exp_avg_sq"].full_tensor()
        model = model_of_rows()
        owners = deal_rows(model.tokens, mesh)
        fully_shard(model, mesh=mesh, ignored_params={owners.weight})
        own = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
        numbers, _ = trained(model, by_rows, own, mean, clip_gradient_norm)
        found[f"owners {by_rows}"] = numbers, owners.whole_table()
    model, replicas = model_of_rows(), init_device_mesh("cpu", (ranks, 1), mesh_dim_names=("data", "shard"))
    owners = deal_rows(model.tokens, mesh)
    fully_shard(model, mesh=replicas["data", "shard"], ignored_params={owners.weight})
    numbers, _ = trained(model, True, own, mean, clip_gradient_norm)
    found["owners of all replicas True"] = numbers, owners.whole_table()
    found["refused"] = refused(mesh)
    owners = deal_rows(model_of_rows().tokens, mesh)
    (slope,) = torch.autograd.grad(curved(owners, own), owners.weight, create_graph=True)
    (ranks * slope.to_local().square().sum()).backward()  # of which owners get the mean
    found["second"] = owners.whole(owners.weight.grad)
    started = shard_vocabulary(ww.TokenEmbedding(ROWS, DIM, PADDING, device="meta"), mesh).to_empty(device="cpu")
    started.reset_parameters(torch.Generator().manual_seed(8))
    found["started"] = deal_rows(started, mesh).whole_table()
    return found


def curved(table: nn.Module, own: slice) -> Tensor:
    loss: Tensor = table(batch(0)[own]).pow(3).sum(-1).mean()
    return loss


def refused(mesh: Any) -> list[str]:
    owners = deal_rows(ww.TokenEmbedding(ROWS, DIM), mesh)
    shards = shard_vocabulary(ww.TokenEmbedding(ROWS, DIM), mesh)
    gathered = ww.TokenEmbedding(ROWS, DIM)
    fully_shard(gathered, mesh=mesh)
    optimizer = ww.RowAdamW(shards)
    shards(torch.tensor([1, 2])).sum().backward()
    both = init_device_mesh("cpu", (torch.distributed.get_world_size(), 1), mesh_dim_names=("data", "shard"))
    part = model_of_rows()
    fully_shard(part, mesh=both, ignored_params={deal_rows(part.tokens, both["shard"]).weight})
    same_tokens = model_of_rows()
    alone = deal_rows(same_tokens.tokens, both["shard"])
    fully_shard(same_tokens, mesh=both["shard"], ignored_params={alone.weight})
    same_tokens(torch.tensor([[1, 2]]))  # the other axis may be that of tensor
    wrong = torch.tensor([2, ROWS if torch.distributed.get_rank() == 0 else 1])
    return [
        said(lambda: owners(wrong)),
        said(lambda: owners.readout(torch.zeros(1, DIM))),
        said(owners.reset_parameters),
        said(lambda: ww.RowAdamW(gathered)),
        said(lambda: ww.RowAdamW(owners, rows=[1])),
        said(lambda: nn.utils.clip_grad_norm_(shards.parameters(), 1.0)),
        said(lambda: shards.readout(torch.zeros(1, DIM))),
        said(lambda: part(torch.tensor([[1, 2]]))),
        said(lambda: owners.whole(torch.zeros(ROWS, DIM))),
        said(optimizer.step),
    ]


def alone(by_rows: bool) -> tuple[list[float], Tensor, Any]:
    model = model_of_rows()
    numbers, table = trained(model, by_rows, slice(None), float, partial(nn.utils.clip_grad_norm_))
    return numbers, model.tokens.weight.detach(), table


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_losses_norms_and_tables_are_those_of_one_process(ranks: int, tmp_path: Path) -> None:
    wanted = {by_rows: alone(by_rows) for by_rows in (True, False)}
    assert max(wanted[True][0][STEPS:]) > 0.3  # it clips
    start = ww.TokenEmbedding(ROWS, DIM, PADDING)
    start.reset_parameters(torch.Generator().manual_seed(8))
    table = model_of_rows().tokens
    (slope,) = torch.autograd.grad(curved(table, slice(None)), table.weight, create_graph=True)
    (second,) = torch.autograd.grad(slope.square().sum(), table.weight)
    results = on_ranks(ranks, tmp_path / "ranks", by_ranks)
    for result in results:
        torch.testing.assert_close(result["second"], second)
        assert torch.equal(result["started"], start.weight.detach())
        for by_rows, (numbers, table, optimizer) in wanted.items():
            for way in ("shards", "owners", *(["owners of all replicas"] if by_rows else [])):
                found, whole = result[f"{way} {by_rows}"]
                assert found == pytest.approx(numbers, abs=5e-6), way
                torch.testing.assert_close(whole, table, rtol=0, atol=1e-4)
                assert not whole[PADDING].any()
            if by_rows:
                state = optimizer.state_dict()["state"][0]
                for name, moments in zip(("exp_avg", "exp_avg_sq"), result["state"], strict=True):
                    torch.testing.assert_close(moments, state[name], rtol=1e-3, atol=1e-7)
    for number, result in enumerate(results):
        ids, readout, reset, gathered, some, clip, tied, part, by_id, step = result["refused"]
        assert ids.startswith("TokenError: id 97 at (1,)" if number == 0 else "TokenError: an id is outside")
        for text, words in ((readout, "not an output projection"), (reset, "Reset the table before"),
                            (gathered, "gathered whole"), (some, "Train all rows"), (clip, "clip_gradient_norm"),
                            (tied, "dense gradient"), (part, "dealt to 1 processes")):  # fmt: skip
            assert text.startswith("SettingError")
            assert words in text
        assert by_id.startswith(
            "ShapeError: the table has 98 rows on its owners, but the values 97" if ranks == 2 else "ShapeError"
        )
        assert step == "nothing"
