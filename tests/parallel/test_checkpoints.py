"""Distributed checkpoints are resumed on fewer processes, read as safetensors, or refused by name; and patch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.fsdp import fully_shard

import whatwhere as ww
from whatwhere.parallel import RowOwners, deal_rows, shard_vocabulary

from .processes import on_ranks
from .training import Model, loss_of, mesh_of_all, said, train

ROWS, DIM = 97, 8
SETTINGS: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.1}


def trained(folders: dict[int, str], start: int, stop: int, tied: bool) -> tuple[list[float], dict[str, Tensor]]:
    """Train from a step to another, with a checkpoint read before and written after; return losses and all weights."""
    torch.manual_seed(start)  # what is resumed starts with other values
    model = Model(ROWS, DIM, 90, tied)
    if torch.distributed.is_initialized():
        shard_vocabulary(model.tokens, mesh_of_all())
    rest = [parameter for parameter in model.parameters() if tied or parameter is not model.tokens.weight]
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(rest, **SETTINGS)]
    optimizers += [] if tied else [ww.RowAdamW(model.tokens, **SETTINGS)]

    def state() -> dict[str, Any]:
        return {"model": states.get_model_state_dict(model),
                "optimizer": states.get_optimizer_state_dict(model, optimizers)}  # fmt: skip

    if start in folders:
        loaded = state()
        checkpoint.load(loaded, checkpoint_id=folders[start])
        states.set_model_state_dict(model, loaded["model"])
        states.set_optimizer_state_dict(model, optimizers, loaded["optimizer"])

    def loss_at(step: int) -> Tensor:
        ids = torch.randint(ROWS, (3, 6), generator=torch.Generator().manual_seed(step))
        return loss_of(model(ids[:, :-1]), ids[:, 1:])

    losses = train(range(start, stop), optimizers, loss_at)
    if stop in folders:
        checkpoint.save(state(), checkpoint_id=folders[stop])
    full = states.StateDictOptions(full_state_dict=True)
    return losses, {name: value.clone() for name, value in states.get_model_state_dict(model, options=full).items()}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("ranks", [(2, 1), pytest.param((4, 2, 1), marks=pytest.mark.slow)])
def test_training_resumes_on_fewer_processes(ranks: tuple[int, ...], tied: bool, tmp_path: Path) -> None:
    steps = 3 * len(ranks)
    wanted, weights = trained({}, 0, steps, tied)
    folders = {step: str(tmp_path / str(step)) for step in range(3, steps, 3)}
    losses = []
    for number, processes in enumerate(ranks):
        step = 3 * number
        if processes == 1:
            found, resumed = trained(folders, step, step + 3, tied)
        else:
            results = on_ranks(processes, tmp_path / f"ranks-{processes}", trained, folders, step, step + 3, tied)
            found, saved = results[0]
        losses += found
    assert losses == pytest.approx(wanted, abs=5e-6)
    for name, values in weights.items():
        torch.testing.assert_close(resumed[name], values, rtol=0, atol=1e-4)
    save_file(saved, tmp_path / "model.safetensors")
    read = ww.Checkpoint.open(tmp_path / "model.safetensors").tensor("tokens.weight")
    assert torch.equal(read, saved["tokens.weight"])
    assert read.shape == (ROWS, DIM)


def dealt(folder: str, saves: bool, sizes: tuple[int, ...], start: int, stop: int) -> dict[int, list[float]]:
    """Return losses of tables on their owners, or of one process that has joined no others, for each number of rows."""
    joined, losses = torch.distributed.is_initialized(), {}
    ranks, rank = (torch.distributed.get_world_size(), torch.distributed.get_rank()) if joined else (1, 0)
    for rows in sizes:
        torch.manual_seed(start)  # what is resumed starts with other values
        model: Any = nn.Sequential(ww.TokenEmbedding(rows, DIM, 90), nn.Linear(DIM, rows))
        before, after = (Path(folder) / f"{rows} rows, step {step}" for step in (start, stop))
        saved = torch.load(before / "table.pt") if start else {}
        if saved:
            model[0].load_state_dict({"weight": saved["table"]})
        if joined:
            mesh = mesh_of_all()
            fully_shard(model, mesh=mesh, ignored_params={deal_rows(model[0], mesh).weight})
        table, rest = ww.RowAdamW(model[0], **SETTINGS), torch.optim.AdamW(model[1].parameters(), **SETTINGS)

        def state(head: nn.Module = model[1], rest: torch.optim.Optimizer = rest) -> dict[str, Any]:
            return {"head": states.get_model_state_dict(head), "rest": states.get_optimizer_state_dict(head, rest)}

        if saved:
            table.load_state_dict(saved["optimizer"])
            loaded = state()
            checkpoint.load(loaded, checkpoint_id=before / "rest")
            states.set_model_state_dict(model[1], loaded["head"])
            states.set_optimizer_state_dict(model[1], rest, loaded["rest"])

        def loss_at(step: int, model: nn.Module = model, rows: int = rows) -> Tensor:
            ids = (torch.rand(8, 6, generator=torch.Generator().manual_seed(step)) ** 2 * rows).long()[rank::ranks]
            return loss_of(model(ids)[:, :-1], ids[:, 1:])

        whole = torch.tensor(train(range(start, stop), (table, rest), loss_at)) / ranks
        if joined:
            torch.distributed.all_reduce(whole)
        losses[rows] = whole.tolist()
        if saves:
            by_id = table.state_dict()
            moments = {name: model[0].whole(value) for name, value in by_id["state"][0].items() if name != "owners"}
            by_id["state"] = {0: moments}
            assert moments["exp_avg"].shape == (rows, DIM)
            whole_table = model[0].whole_table()
            checkpoint.save(state(), checkpoint_id=after / "rest")
            if rank == 0:
                torch.save({"table": whole_table, "optimizer": by_id}, after / "table.pt")
    return losses


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("chain", [(2, 1), pytest.param((4, 2, 1), marks=pytest.mark.slow),
                                   pytest.param((4, 1), marks=pytest.mark.slow)])  # fmt: skip
def test_owners_resume_by_id_on_other_numbers_of_processes(chain: tuple[int, ...], tmp_path: Path) -> None:
    """97 rows are 98 on one owner and on two, 99 are 100 on one, two and four."""
    sizes, folder, steps = (97, 99), str(tmp_path), 3 * len(chain)
    wanted, found = dealt(folder, False, sizes, 0, steps), {rows: [0.0] * 0 for rows in sizes}
    for number, ranks in enumerate(chain):
        at = (sizes, 3 * number, 3 * number + 3)
        results = on_ranks(ranks, tmp_path / f"ranks-{ranks}", dealt, folder, ranks > 1, *at)
        for rows in sizes:
            found[rows] += results[0][rows]
    alone = dealt(folder, False, sizes, steps - 3, steps)
    for rows in sizes:
        assert found[rows] == pytest.approx(wanted[rows], abs=5e-6)
        assert alone[rows] == pytest.approx(wanted[rows][-3:], abs=5e-6)


def patched() -> tuple[str, list[float]]:
    """Return what patch says after fully_shard, and losses of a model that was patched before."""
    mesh, model = mesh_of_all(), llama()
    fully_shard(model, mesh=mesh)
    refused = said(lambda: ww.patch(model))
    model = llama()
    ww.patch(model)
    fully_shard(model, mesh=mesh)
    return refused, losses_of(model)


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=ROWS, tie_word_embeddings=True, **sizes))


def losses_of(model: Any) -> list[float]:
    def loss_at(step: int) -> Tensor:
        ids = torch.randint(ROWS, (2, 6), generator=torch.Generator().manual_seed(step))
        loss: Tensor = model(ids, labels=ids).loss
        return loss

    return train(range(3), [torch.optim.AdamW(model.parameters(), **SETTINGS)], loss_at)


def test_a_model_is_patched_before_it_is_sharded(tmp_path: Path) -> None:
    wanted = losses_of(llama())
    for refused, losses in on_ranks(2, tmp_path / "ranks", patched):
        assert refused.endswith("Patch it before fully_shard.")
        assert losses == pytest.approx(wanted, abs=3e-6)


def owners_saved(folder: str) -> Tensor:
    """Save rows on their owners, read them again in two ways, and return them by id."""
    mesh, rows = mesh_of_all(), torch.arange(ROWS * DIM)
    read, other = (deal_rows(ww.TokenEmbedding(ROWS, DIM), mesh) for _ in range(2))
    saved = deal_rows(ww.TokenEmbedding.from_pretrained(rows.float().view(ROWS, DIM), freeze=False), mesh)
    even = deal_rows(ww.TokenEmbedding(ROWS - 1, DIM), mesh)
    table, moments = moments_of(saved)
    checkpoint.save({**saved.state_dict(), "even": even.weight, "moments": moments}, checkpoint_id=folder)
    loaded = states.get_model_state_dict(read)
    checkpoint.load(loaded, checkpoint_id=folder)
    states.set_model_state_dict(read, loaded)
    other.load_state_dict(saved.state_dict())
    assert torch.equal(other.whole_table(), read.whole_table())
    taken, empty = moments_of(read)
    checkpoint.load({"moments": empty}, checkpoint_id=folder)
    states.set_optimizer_state_dict(read, taken, empty)
    first, second = (each.state_dict()["state"][0]["exp_avg"].full_tensor() for each in (table, taken))
    assert first.any()
    assert torch.equal(first, second)
    return read.whole_table()


def moments_of(owners: RowOwners) -> tuple[ww.RowAdamW, dict[str, Any]]:
    """Return an optimizer after a step, and its state as distributed checkpoints take it; the rows stay as they are."""
    optimizer = ww.RowAdamW(owners, lr=0.0)
    owners(torch.arange(7)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return optimizer, states.get_optimizer_state_dict(owners, optimizer)


def owners_refused(folder: str) -> list[str]:
    """Return what is said of rows of other owners, and of rows by id."""
    mesh = mesh_of_all()
    owners, whole = deal_rows(ww.TokenEmbedding(ROWS, DIM), mesh), ww.TokenEmbedding(ROWS, DIM)
    optimizer, moments = moments_of(owners)
    checkpoint.load({"moments": moments}, checkpoint_id=folder)  # into the moments themselves
    owners(torch.arange(7)).sum().backward()
    plain = ww.RowAdamW(ww.TokenEmbedding(ROWS + 1, DIM))  # of as many rows as the owners have
    dense = torch.optim.AdamW(owners.parameters())
    dense.load_state_dict(optimizer.state_dict())
    without = dense.state_dict()
    del without["state"][0]["owners"]
    loaded = states.get_model_state_dict(owners)
    checkpoint.load(loaded, checkpoint_id=folder)  # into the rows themselves
    faults: list[Any] = [
        lambda: states.set_optimizer_state_dict(owners, optimizer, moments),
        optimizer.step,
        lambda: plain.load_state_dict(optimizer.state_dict()),
        lambda: optimizer.load_state_dict(without),
        lambda: states.set_model_state_dict(owners, loaded),
        lambda: owners(torch.tensor([1])),
        owners.whole_table,
        lambda: owners.load_state_dict(whole.state_dict()),
        lambda: checkpoint.load({"even": torch.empty(ROWS - 1, DIM)}, checkpoint_id=folder),  # a table without owners
    ]
    return list(map(said, faults))


def test_rows_of_other_owners_are_refused(tmp_path: Path) -> None:
    folder = str(tmp_path / "saved")
    for rows in on_ranks(2, tmp_path / "two", owners_saved, folder):
        assert torch.equal(rows, torch.arange(ROWS * DIM).float().view(ROWS, DIM))
    refused = on_ranks(1, tmp_path / "one", owners_refused, folder)[0]
    *of_optimizer, plain, dense = refused[:4]
    assert len(of_optimizer) == 2
    assert all("optimizer's state are in the order of 2 owners, but this table has 1" in each for each in of_optimizer)
    assert "in the order of 2 owners, but this table is in the order of its ids" in plain
    assert "not known to be in the order of owners" in dense
    *other, by_id, without_owners = refused[4:]
    assert len(other) == 3
    assert all("in the order of 2 owners, but this table has 1" in said for said in other)
    assert "the rows are by id" in by_id
    assert "Size mismatch" in without_owners
