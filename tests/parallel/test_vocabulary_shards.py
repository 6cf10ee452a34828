"""Vocabulary shards train as one process does; what a process holds, and what it refuses, is measured on each."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module

import whatwhere as ww
from benchmarks.memory import peak
from whatwhere.kernels import linear_cross_entropy as kernel
from whatwhere.parallel import VocabularyParallel, VocabularyShards, shard_vocabulary, vocabulary_cross_entropy

from .processes import on_ranks
from .training import Model, loss_of, mesh_of_all, said, train

DIM, STEPS = 16, 5
CASES = [(96, None, True), (97, 3, True), (97, 90, False), (5, 0, True)]
"""Rows, padding row, and whether the table is tied: 97 rows do not divide, and of 5 some ranks have none."""


def batch(number: int, vocab_size: int) -> Tensor:
    ids = torch.randint(vocab_size, (4, 9), generator=torch.Generator().manual_seed(number))
    ids[0, 0] = 0
    return ids


def model_of(vocab_size: int, padding_idx: int | None, tied: bool) -> Model:
    torch.manual_seed(3)
    return Model(vocab_size, DIM, padding_idx, tied)


def trained(model: Model, rows: int) -> list[float]:
    def loss_at(step: int) -> Tensor:
        ids = batch(step, rows)
        targets = ids[:, 1:].clone()
        targets[1, 2] = -100
        return loss_of(model(ids[:, :-1]), targets)

    return train(range(STEPS), [torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)], loss_at)


def sharded_training() -> list[Any]:
    """Return losses, the whole table after training, and which rows of the gradient a process has."""
    found = []
    for vocab_size, padding_idx, tied in CASES:
        model = model_of(vocab_size, padding_idx, tied)
        shard_vocabulary(model.tokens, mesh_of_all())
        losses = trained(model, vocab_size)
        whole: Any = model.tokens.weight
        model(batch(0, vocab_size)).sum().backward()
        gradient: Any = model.tokens.weight.grad
        found.append((losses, whole.full_tensor().detach(), len(gradient.to_local()), len(whole.to_local())))
    return found


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_shards_train_as_one_process(ranks: int, tmp_path: Path) -> None:
    results = on_ranks(ranks, tmp_path / "ranks", sharded_training)
    for at, (vocab_size, padding_idx, tied) in enumerate(CASES):
        model = model_of(vocab_size, padding_idx, tied)
        wanted = trained(model, vocab_size)
        assert len(set(wanted)) == STEPS
        for result in results:
            losses, table, gradient_rows, rows = result[at]
            assert losses == pytest.approx(wanted, abs=3e-6)
            torch.testing.assert_close(table, model.tokens.weight.detach(), rtol=0, atol=1e-4)
            assert gradient_rows == rows <= -(-vocab_size // ranks)
            assert padding_idx is None or not table[padding_idx].any()
        assert sum(result[at][3] for result in results) == vocab_size


def looked_up() -> list[Any]:
    """Return the rows, gradients and logits of a table and of its shards, and errors of each process."""
    table = model_of(97, 3, True).tokens
    shards = shard_vocabulary(model_of(97, 3, True).tokens, mesh_of_all())
    ids, both = torch.tensor([[0, 3, 96, 48, 49, 3, 96]], dtype=torch.int32), []
    for tokens in (table, shards):
        rows = tokens(ids)
        rows.retain_grad()
        logits: Any = tokens.readout(rows)
        logits = logits.full_tensor() if isinstance(tokens, VocabularyShards) else logits
        logits.square().sum().backward()
        weight: Any = tokens.weight.grad
        weight = weight.full_tensor() if isinstance(tokens, VocabularyShards) else weight
        both.append((rows.detach(), logits.detach(), rows.grad, weight))
    narrow = ww.FactorizedEmbedding(97, 3, DIM)
    narrow.reset_parameters(torch.Generator().manual_seed(0))
    both[0] += (narrow.readout(both[0][0]).detach(),)
    shard_vocabulary(narrow.tokens, mesh_of_all())
    both[1] += (narrow.readout(both[0][0]).full_tensor().detach(),)

    def loss_at_zero(targets: Tensor) -> Tensor:
        return vocabulary_cross_entropy(shards.readout(torch.zeros(len(targets), DIM)), targets)

    errors = [said(shards, wrong) for wrong in (torch.tensor([[5, 97]]), torch.tensor([[-1]]), torch.tensor([0.5]))]
    errors += [said(loss_at_zero, wrong) for wrong in (torch.tensor([1, 97]), torch.tensor([1.5, 1]))]
    changed = torch.distributed.get_rank()
    for unlike in (torch.tensor([1, 2 + changed]), torch.tensor([1 + changed, 2 - changed]), torch.ones(1 + changed)):
        errors += [said(compute, unlike.long()) for compute in (shards, loss_at_zero)]
    return [both, errors]


def test_rows_are_those_of_the_table_and_wrong_ids_are_refused_on_all_alike(tmp_path: Path) -> None:
    results = on_ranks(2, tmp_path / "ranks", looked_up)
    for (table, shards), errors in results:
        assert torch.equal(table[0], shards[0])
        for wanted, found in zip(table[1:], shards[1:], strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
        assert not table[1][..., 3].any()
        assert not shards[1][..., 3].any()
        assert not shards[3][3].any()
        assert all(error.startswith("TokenError") for error in errors)
        assert all("ids differ among the processes" in error for error in errors[5::2])
        assert all("targets differ among the processes" in error for error in errors[6::2])
        assert "id 97 at (0, 1) is outside" in errors[0]
        assert "target 97 at (1,) is outside" in errors[3]
        assert "targets are whole numbers, but these have dtype torch.float32" in errors[4]
    assert results[0][1] == results[1][1]


def styled() -> list[Any]:
    """Return rows by `parallelize_module` from the meta device, what is refused, and losses of units of FSDP."""
    model = nn.ModuleDict({"tokens": ww.TokenEmbedding(97, DIM, 96, device="meta")})
    parallelize_module(model, mesh_of_all(), {"tokens": VocabularyParallel()})
    model.to_empty(device="cpu")
    tokens: Any = model["tokens"]
    tokens.reset_parameters(torch.Generator().manual_seed(8))
    rows = tokens(torch.arange(97)).detach()
    kept = ww.TokenEmbedding(8, 4)
    optimizer = ww.RowAdamW(kept)
    mesh = init_device_mesh("cpu", (1, torch.distributed.get_world_size()))
    tied, head = ww.TokenEmbedding(8, 4), nn.Linear(4, 8, bias=False)
    head.weight = tied.weight
    given = ((tokens, mesh_of_all()), (kept, mesh_of_all()), (tied, mesh), (tied, mesh_of_all()))
    refused = [said(shard_vocabulary, *each) for each in given]
    del optimizer
    unit = model_of(97, 3, True)
    fully_shard(unit.tokens, mesh=mesh_of_all())
    fully_shard(unit, mesh=mesh_of_all())
    return [rows, refused, trained(unit, 97)]


def test_styles_starts_refusals_and_a_tied_table_as_a_unit_of_fsdp(tmp_path: Path) -> None:
    alone = ww.TokenEmbedding(97, DIM, 96)
    alone.reset_parameters(torch.Generator().manual_seed(8))
    wanted = trained(model_of(97, 3, True), 97)
    for rows, refused, losses in on_ranks(2, tmp_path / "ranks", styled):
        assert torch.equal(rows, alone.weight.detach())
        for error, words in zip(refused, ("Shard it once", "RowAdamW after", "mesh has 2", "same weight"), strict=True):
            assert words in error
        assert losses == pytest.approx(wanted, abs=3e-6)


def computed(table: ww.TokenEmbedding, hidden: Tensor, targets: Tensor) -> list[Tensor]:
    """Return losses, log-probabilities and most likely tokens of a table, and their gradients."""
    settings: tuple[dict[str, Any], ...] = (
        {},
        {"reduction": "none", "softcap": 1.5},
        {"reduction": "sum", "z_loss": 0.1, "label_smoothing": 0.2},
    )
    calls = [lambda h, how=how: table.loss(h, targets, **how) for how in settings]
    calls += [lambda h: table.log_probs(h, targets.clamp(min=0)), lambda h: table.top(h, 3)[0]]
    found: list[Tensor] = [table.top(hidden, 3)[1]]
    for call in calls:
        leaf = hidden.clone().requires_grad_()
        table.weight.grad = None
        result = call(leaf)
        (result * torch.linspace(0.5, 2, result.numel()).to(result).view_as(result)).sum().backward()
        weight: Any = table.weight.grad
        assert leaf.grad is not None
        found += [result.detach(), leaf.grad, weight.full_tensor() if hasattr(weight, "full_tensor") else weight]
    return found


def in_parts(dtype: torch.dtype, room: int) -> list[Any]:
    """Return what shards and whole tables of each case compute, errors, and bytes beyond those at the start."""
    kernel._ROOM["cpu"] = room, room  # of this process alone
    found = []
    for vocab_size, padding_idx, _ in CASES:
        torch.manual_seed(vocab_size)
        tables = [ww.TokenEmbedding(vocab_size, DIM, padding_idx, init=1.0, dtype=dtype) for _ in range(2)]
        tables[1].load_state_dict(tables[0].state_dict())
        hidden, targets = torch.randn(2, 9, DIM).to(dtype), torch.randint(vocab_size, (2, 9))
        targets[0, 3:5], targets[1, 0] = -100, vocab_size - 1
        shards = shard_vocabulary(tables[1], mesh_of_all())
        found.append((computed(tables[0], hidden, targets), computed(shards, hidden, targets)))
    rank = torch.distributed.get_rank()
    wrong = (torch.tensor([[1, 97]]), torch.tensor([[0.5, 1.0]]), torch.tensor([[1, 2 + rank]]))
    errors = [said(shards.loss, torch.zeros(1, 2, DIM, dtype=dtype), each) for each in wrong]
    large = shard_vocabulary(ww.TokenEmbedding(60_000, DIM), mesh_of_all())
    hidden, targets = torch.randn(1000, DIM), torch.randint(60_000, (1000,), generator=torch.Generator().manual_seed(1))
    return [found, errors, peak(lambda: large.loss(hidden, targets).backward())]


@pytest.mark.parametrize(
    ("ranks", "dtype"), [(2, torch.float32), pytest.param(4, torch.bfloat16, marks=pytest.mark.slow)]
)
def test_shards_have_the_loss_of_the_table_and_never_their_logits_of_all_tokens(
    ranks: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for cases, errors, used in on_ranks(ranks, tmp_path / "ranks", in_parts, dtype, 8 << 20):
        for table, shards in cases:
            assert len(table) == 16
            # Of two logits in 16 bits that are nearly equal either may be the larger: not the ids and gradients of top.
            some = slice(1, -2) if dtype == torch.bfloat16 else slice(None)
            for wanted, found in zip(table[some], shards[some], strict=True):
                torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
        for error, words in zip(errors, ("target 97 at (0, 1)", "whole numbers", "targets differ"), strict=True):
            assert error.startswith("TokenError")
            assert words in error
        assert used is None or used < (60_000 // ranks) * 1000 * 4 // 2  # half the logits of a process


class Halved(ww.TokenEmbedding):
    """A table with logits of its own."""

    def readout(self, hidden: Tensor) -> Tensor:
        return super().readout(hidden) / 2


def of_a_unit(sharded: bool) -> list[list[Tensor]]:
    """Return what a table of each dtype computes, and one with logits of its own."""
    found = []
    for kind, dtype in (
        (ww.TokenEmbedding, torch.float32),
        (ww.TokenEmbedding, torch.bfloat16),
        (Halved, torch.float32),
    ):
        torch.manual_seed(0)
        table = kind(97, DIM, 3, init=1.0, dtype=dtype)
        hidden, targets = torch.randn(2, 9, DIM).to(dtype), torch.randint(97, (2, 9))
        found.append(computed(fully_shard(table, mesh=mesh_of_all()) if sharded else table, hidden, targets))
    return found


def test_a_table_that_is_a_unit_of_fully_shard_has_its_loss(tmp_path: Path) -> None:
    wanted = of_a_unit(False)
    for found in on_ranks(2, tmp_path / "ranks", of_a_unit, True):
        for ours, alone, within in zip(found, wanted, (1e-5, 1e-2, 1e-5), strict=True):
            torch.testing.assert_close(ours, alone, rtol=within, atol=1e-5)
