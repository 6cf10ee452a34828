"""Tables in files are trained as those in memory are, whatever happens to the process."""

import copy
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import whatwhere as ww
from whatwhere.errors import CheckpointError, SettingError, ShapeError, TokenError
from whatwhere.records import with_checksum
from whatwhere.what import row_files, row_training
from whatwhere.what.file_table import FileRowAdagrad, FileRowAdamW, FileTokenEmbedding
from whatwhere.what.ngram_hash import xor_hashes
from whatwhere.what.resizing import resize
from whatwhere.what.row_adamw import table as row_table

from ..systems import unix
from .row_adamw.race import train as take_steps

V, D = 200, 12
SETTINGS = {"lr": 0.05, "betas": (0.9, 0.99), "weight_decay": 0.1}
TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)

pytestmark = unix


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    FileTokenEmbedding.create(tmp_path / "rows.safetensors", V, D, generator=generator())
    return tmp_path / "rows.safetensors"


def in_memory(dtype: torch.dtype = torch.float32, **settings) -> ww.TokenEmbedding:
    table = ww.TokenEmbedding(V, D, dtype=dtype, **settings)
    table.reset_parameters(generator())
    return table


def both(path: Path, dtype: torch.dtype = torch.float32, rows: int = V):
    path.unlink(missing_ok=True)
    FileTokenEmbedding.create(path, rows, D, dtype=dtype, generator=generator())
    table, own = ww.TokenEmbedding(rows, D, dtype=dtype), FileTokenEmbedding(path)
    table.reset_parameters(generator())
    return own, FileRowAdamW(own, **SETTINGS), table, ww.RowAdamW(table, **SETTINGS)


def batches(steps: int, seed: int = 1) -> list[torch.Tensor]:
    return list(torch.randint(0, V, (steps, 3, 5), generator=generator(seed)))


def train(table: ww.TokenEmbedding, optimizer, steps: list[torch.Tensor], prefetch: bool = False, clip: bool = True):
    target = torch.randn(D, generator=generator(2)).to(table.weight.dtype)
    losses = []
    for n, ids in enumerate(steps):
        loss = (table(ids) - target).float().square().mean()
        if prefetch and n + 1 < len(steps):
            table.prefetch(steps[n + 1])
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_([table.weight], 0.01)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def trained(path: Path, steps: list[torch.Tensor]) -> FileTokenEmbedding:
    own = FileTokenEmbedding(path)
    train(own, optimizer := FileRowAdamW(own, **SETTINGS), steps)
    optimizer.flush()
    return own


def rows(table: FileTokenEmbedding) -> torch.Tensor:
    with torch.no_grad():
        return table(torch.arange(len(table.weight)))


@TYPES
@pytest.mark.parametrize("init", ["normal", "fan_in_uniform"])
def test_created_rows_are_those_of_a_table_in_memory(tmp_path: Path, dtype: torch.dtype, init) -> None:
    FileTokenEmbedding.create(
        tmp_path / "a.safetensors", V, D, padding_idx=7 - V, init=init, dtype=dtype, generator=generator()
    )
    table = in_memory(dtype, init=init, padding_idx=7)
    assert torch.equal(load_file(tmp_path / "a.safetensors")["weight"], table.weight)
    own = FileTokenEmbedding(tmp_path / "a.safetensors", padding_idx=7, scale="sqrt_dim")
    table.scale = D**0.5
    ids = torch.tensor([[7, 3, 199], [3, 0, 7]], dtype=torch.int32)
    assert torch.equal(own(ids), table(ids))


@TYPES
@pytest.mark.parametrize("prefetch", [False, True], ids=["", "prefetch"])
def test_training_gives_the_bits_of_row_adamw(tmp_path: Path, dtype: torch.dtype, prefetch: bool) -> None:
    own, optimizer, table, row_adamw = both(tmp_path / "rows.safetensors", dtype)
    for part in range(3):
        some = batches(10, seed=part)
        if part == 2:
            for group in (*row_adamw.param_groups, *optimizer.param_groups):
                group["lr"] = 0.01
        assert train(own, optimizer, some, prefetch) == train(table, row_adamw, some)
        optimizer.flush()
    row_adamw.flush()
    assert torch.equal(rows(own), table.weight)  # of rows that are behind: with the steps that they missed
    optimizer.update_all_rows()
    own.close()
    assert torch.equal(load_file(tmp_path / "rows.safetensors")["weight"], table.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])  # PyTorch adds no sparse float16
def test_batches_of_all_sorts_are_as_in_memory(tmp_path: Path, dtype: torch.dtype) -> None:
    """Empty ones, the padding row, and several lookups before a step, of which one gets no gradient."""
    own, optimizer, table, row_adamw = both(tmp_path / "rows.safetensors", dtype)
    empty = torch.zeros(2, 0, dtype=torch.int64)
    for each, each_optimizer in ((own, optimizer), (table, row_adamw)):
        each.padding_idx = 4
        assert each(empty).shape == (2, 0, D)
        take_steps(each, each_optimizer, [empty, torch.tensor([[3, 4]]), empty, torch.tensor([[4]])])
        for first, second, looked_up in zip(batches(6), batches(6, 5), batches(6, 6), strict=True):
            (each(first).float().square().sum() + each(second).sum()).backward()
            each(second).float().square().sum().backward()
            each(looked_up)
            each_optimizer.step()
            each_optimizer.zero_grad()
        each_optimizer.flush()
    own.prefetch(empty)
    assert own.rows_in_file.number == 10
    # Gradients of several lookups are added in another order.
    torch.testing.assert_close(rows(own), table.weight.detach(), rtol=torch.finfo(dtype).eps, atol=1e-6)


def test_long_histories_give_the_bits_of_row_adamw_and_no_step_flushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (row_training, row_table):
        monkeypatch.setattr(module, "MIN_HISTORY", 4)

    def take(table: ww.TokenEmbedding, optimizer, n: int) -> list[float]:
        optimizer.param_groups[0].update(eps=(1e-8, 1e-3)[n // 10 % 2], lr=(0.05, 0.01)[n // 7 % 2])
        return train(table, optimizer, [torch.tensor([n % 3, 3 + n // 15])])

    path = tmp_path / "rows.safetensors"
    own, optimizer, table, row_adamw = both(path, rows=6)
    for n in range(34):  # a history ends each 6 steps, and where eps changes; some rows are read long after
        assert take(own, optimizer, n) == take(table, row_adamw, n)
        if n in (12, 25):
            optimizer.flush()  # which brings all rows up to date, as more than one history is over
            row_adamw.flush()
    own.close()
    own = FileTokenEmbedding(path)  # resumed: the histories are those that the steps give
    assert own.rows_in_file.number == 26
    own.update_all_rows()
    _, _, table, row_adamw = both(tmp_path / "in memory.safetensors", rows=6)
    for n in range(26):
        take(table, row_adamw, n)
    row_adamw.flush()
    with torch.no_grad():
        assert torch.allclose(own(torch.arange(6)), table.weight, atol=1e-6, rtol=1e-6)


def test_training_resumes_in_another_process_after_a_flush(path: Path) -> None:
    table = in_memory()
    train(table, row_adamw := ww.RowAdamW(table, **SETTINGS), batches(20))
    own = FileTokenEmbedding(path)
    optimizer = FileRowAdamW(own, **SETTINGS)
    train(own, optimizer, batches(20)[:8])
    optimizer.flush()
    saved = optimizer.state_dict()
    train(own, optimizer, batches(20)[8:12])  # is given up
    own.close()
    own = FileTokenEmbedding(path)
    optimizer = FileRowAdamW(own, lr=1.0)
    optimizer.load_state_dict(saved)
    train(own, optimizer, batches(20)[8:])
    row_adamw.flush()
    # Quadrature rules are made anew, from the same steps: equal to rounding.
    assert torch.allclose(rows(own), table.weight, atol=1e-6, rtol=1e-6)


def killed(path: str, when: str) -> None:
    """Train in steps, and kill the process in the middle of changes, which may be written already."""
    if when == "written changes":
        row_files._IN_MEMORY = 1
    table = FileTokenEmbedding(path)
    optimizer = FileRowAdamW(table, **SETTINGS)
    train(table, optimizer, batches(10))
    optimizer.flush()
    train(table, optimizer, batches(20)[10:15])
    os.kill(os.getpid(), signal.SIGKILL)


def run_until_its_end(function, *arguments) -> int | None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # else each process imports PyTorch again
    process = context.Process(target=function, args=arguments)
    process.start()
    process.join(300)
    return process.exitcode


@pytest.mark.parametrize("when", ["changes", "written changes"])
def test_after_a_kill_the_files_are_as_at_a_flush(path: Path, when: str) -> None:
    assert run_until_its_end(killed, str(path), when) == -signal.SIGKILL
    table = in_memory()
    train(table, row_adamw := ww.RowAdamW(table, **SETTINGS), batches(20)[:10])
    if when == "written changes":
        with pytest.raises(CheckpointError, match="changes that were interrupted"):
            FileTokenEmbedding(path, read_only=True)
        with pytest.raises(CheckpointError, match="changes were interrupted"):
            ww.read(path)
    own = FileTokenEmbedding(path)
    optimizer = FileRowAdamW(own, **SETTINGS)
    row_adamw.flush()
    assert own.rows_in_file.number == 10
    assert torch.allclose(rows(own), table.weight, atol=1e-6, rtol=1e-6)
    train(own, optimizer, batches(20)[10:])  # and goes on


def test_a_full_disk_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = FileTokenEmbedding(path)
    optimizer = FileRowAdamW(own, **SETTINGS)
    train(own, optimizer, batches(5))
    before, write = rows(own), os.pwrite

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="No space left"):
            optimizer.flush()
    assert torch.equal(rows(own), before)
    monkeypatch.setattr(os, "pwrite", write)
    optimizer.flush()
    own.close()
    own = FileTokenEmbedding(path, read_only=True)
    assert torch.allclose(rows(own), before, atol=1e-7)


def test_after_a_step_that_failed_midway_the_tables_refuse_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = two_tables(tmp_path)
    optimizer = FileRowAdamW(tables, **SETTINGS)
    train_both(tables, optimizer, batches(5))
    optimizer.flush()
    before, write = [rows(each) for each in tables], os.pwrite
    second = tables[1].rows_in_file.files.weight.fd.number
    monkeypatch.setattr(row_files, "_IN_MEMORY", 1)

    def full(file: int, data: bytes, offset: int) -> int:
        if file == second:  # after the first table was changed, and in the middle of the second
            raise OSError(28, "No space left on device")
        return write(file, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(CheckpointError, match="No space left"):
        train_both(tables, optimizer, batches(6)[5:])
    monkeypatch.setattr(os, "pwrite", write)
    ids = torch.tensor([1])
    for each in tables:
        refusing = [(optimizer.step, ()), (optimizer.flush, ()), (each.update_all_rows, ())]
        for refused, arguments in (*refusing, (each.prefetch, (ids,)), (each, (ids,))):
            with pytest.raises(CheckpointError, match="Close the table and open it again"):
                refused(*arguments)
        each.close()
    for each, wanted in zip(two_tables(tmp_path), before, strict=True):
        assert each.rows_in_file.number == 5
        assert torch.allclose(rows(each), wanted, atol=1e-7)


def test_a_gradient_that_is_refused_changes_no_table(tmp_path: Path) -> None:
    tables = two_tables(tmp_path)
    optimizer = FileRowAdamW(tables, **SETTINGS)
    for each in tables:
        each(torch.tensor([1])).sum().backward()
    tables[1].weight.grad.mul_(torch.tensor(torch.nan))
    with pytest.raises(SettingError, match="Skip this step"):
        optimizer.step()
    assert [each.rows_in_file.number for each in tables] == [0, 0]
    optimizer.zero_grad()
    train_both(tables, optimizer, batches(1))


def two_tables(folder: Path, order: int = 1) -> list[FileTokenEmbedding]:
    paths = [folder / name / "rows.safetensors" for name in ("first", "second")]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            FileTokenEmbedding.create(path, 12, D, generator=generator())
    return [FileTokenEmbedding(path) for path in paths[::order]][::order]


def train_both(tables: list[FileTokenEmbedding], optimizer, steps: list[torch.Tensor]) -> None:
    for ids in steps:
        sum(each(ids % 12).square().sum() for each in tables).backward()
        optimizer.step()
        optimizer.zero_grad()


def kill_before(function, when: int, count: "itertools.count[int]"):
    """Return a function that kills its process where it is the call of this number, after half of what it writes."""

    def counted(*args, **settings):
        if next(count) == when:
            if "write" in function.__name__:
                function(args[0], args[1][: len(args[1]) // 2], *args[2:])
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **settings)

    return counted


def killed_at_each(folder: str) -> None:
    """Kill a process of its own at each write, wait for the disk, rename and removal of a flush of two tables."""
    torch.set_num_threads(1)
    flushed = Path(folder) / "flushed"
    tables = two_tables(flushed)
    optimizer = FileRowAdamW(tables, **SETTINGS)
    train_both(tables, optimizer, batches(10))
    optimizer.flush()
    for each in tables:
        each.close()
    for n in range(1000):
        shutil.copytree(flushed, Path(folder) / f"{n}")
        child = os.fork()
        if not child:
            count = itertools.count()
            tables = two_tables(Path(folder) / f"{n}")
            optimizer = FileRowAdamW(tables, **SETTINGS)
            train_both(tables, optimizer, batches(15)[10:])

            for owner, name in (
                (os, "pwrite"), (os, "fsync"), (os, "replace"), (os, "rename"), (os, "unlink"), (Path, "write_bytes"),
            ):  # fmt: skip
                setattr(owner, name, kill_before(getattr(owner, name), n, count))
            try:
                optimizer.flush()
            finally:
                os._exit(7)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7:  # all is done
            (Path(folder) / "kills.json").write_text(json.dumps(n))
            return


def test_after_a_kill_at_any_write_of_their_flush_both_tables_are_at_the_same_step(tmp_path: Path) -> None:
    run_until_its_end(killed_at_each, str(tmp_path))
    kills = json.loads((tmp_path / "kills.json").read_text())
    assert kills > 20
    flushed, wanted = [], {}
    for n in range(kills + 1):
        here = tmp_path / f"{n}"
        tables = two_tables(here, order=1 if n % 2 else -1)  # whichever is opened first
        FileRowAdamW(tables, **SETTINGS)
        numbers = {each.rows_in_file.number for each in tables}
        assert len(numbers) == 1
        flushed += numbers
        for each in tables:
            with torch.no_grad():
                found = each(torch.arange(12))
            assert torch.allclose(found, wanted.setdefault(flushed[-1], found), atol=1e-6, rtol=1e-6)
            each.close()
    assert flushed == sorted(flushed)  # from one write on, it has happened
    assert set(flushed) == {10, 15}
    own = ww.TokenEmbedding(12, D)
    own.reset_parameters(generator())
    train_both([own], row_adamw := ww.RowAdamW(own, **SETTINGS), batches(15))
    row_adamw.flush()
    assert torch.allclose(wanted[15], own.weight, atol=1e-6, rtol=1e-6)


def test_a_table_that_was_flushed_alone_needs_no_other(tmp_path: Path) -> None:
    tables = two_tables(tmp_path)
    train_both(tables, optimizer := FileRowAdamW([{"params": [each]} for each in tables], **SETTINGS), batches(3))
    optimizer.flush()
    FileRowAdamW(tables[0], **SETTINGS).flush()
    for each in tables:
        each.close()
    FileRowAdamW(tables := two_tables(tmp_path), **SETTINGS)
    assert [each.rows_in_file.number for each in tables] == [3, 3]


def test_state_of_another_file_is_refused(tmp_path: Path) -> None:
    path, model = tmp_path / "rows.safetensors", tmp_path / "model.safetensors"
    FileTokenEmbedding.create(path, V, D, generator=generator())
    save_file({"weight": in_memory().weight.detach()}, model)  # a file of others has no id
    shutil.copy(model, tmp_path / "download.safetensors")
    for each in (path, model):
        trained(each, [torch.tensor([77, 78])] * 3).close()
    (tmp_path / "other disk").mkdir()
    for each in (path, model):  # both together may be copied
        shutil.copy(each, tmp_path / "other disk")
        shutil.copytree(f"{each}.training", tmp_path / "other disk" / f"{each.name}.training")
        assert FileTokenEmbedding(tmp_path / "other disk" / each.name).rows_in_file.number == 3
    path.unlink()
    with pytest.raises(CheckpointError, match="Remove that folder"):
        FileTokenEmbedding.create(path, V, D, generator=generator())
    FileTokenEmbedding.create(tmp_path / "new.safetensors", V, D, generator=generator())  # with the same rows
    (tmp_path / "new.safetensors").rename(path)
    shutil.move(tmp_path / "download.safetensors", model)  # as it was before its training
    for each, reason in ((path, "another header or size"), (model, "another program changed rows")):
        for read_only in (False, True):
            with pytest.raises(CheckpointError, match=reason):
                FileTokenEmbedding(each, read_only=read_only)


def test_old_rows_are_not_written_into_another_file(path: Path) -> None:
    save_file({"weight": in_memory().weight.detach()}, path)
    run_until_its_end(killed, str(path), "written changes")
    content = path.read_bytes()
    save_file({"weight": torch.zeros(V, D)}, path)
    with pytest.raises(CheckpointError, match="belongs to another file"):
        FileTokenEmbedding(path)
    assert not load_file(path)["weight"].any()
    path.write_bytes(content)
    assert FileTokenEmbedding(path).rows_in_file.number == 10


def test_the_memory_of_a_step_does_not_depend_on_the_rows_of_the_table(tmp_path: Path) -> None:
    peaks = []
    for count in (10_000, 20_000, 2_000_000):  # the first imports; the numbers of the last alone take 16 MB
        path = tmp_path / f"{count}.safetensors"
        FileTokenEmbedding.create(path, count, 2, generator=generator())
        tracemalloc.start()
        try:
            table = FileTokenEmbedding(path)
            optimizer = FileRowAdamW(table)
            table(torch.arange(256) * (count // 256)).sum().backward()
            optimizer.step()
            optimizer.flush()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[2] < peaks[1] + (1 << 18), peaks


def test_states_of_other_algorithms_are_refused(tmp_path: Path) -> None:
    first, second = two_tables(tmp_path)
    adamw, adagrad_by_row, table = FileRowAdamW(first), FileRowAdagrad(second), in_memory()
    row_adamw, start = ww.RowAdamW(table), adamw.state_dict()
    train(table, row_adamw, batches(1))
    for ids in batches(1):
        for each, optimizer in ((first, adamw), (second, adagrad_by_row)):
            each(ids % 12).sum().backward()
            optimizer.step()
    for optimizer, state, reason in (
        (adamw, adagrad_by_row.state_dict(), "algorithm adagrad-by-row"),
        (adagrad_by_row, adamw.state_dict(), "algorithm adamw"),
        (adamw, row_adamw.state_dict(), "exp_avg, exp_avg_sq of a table in memory"),
        (adamw, FileRowAdamW(two_tables(tmp_path / "more")).state_dict(), "2 tables, but this optimizer has 1"),
        (adamw, start, "at step 1, but the state at step 0"),
    ):
        with pytest.raises(SettingError, match=reason):
            optimizer.load_state_dict(state)
    adamw.load_state_dict(adamw.state_dict())


def adagrad(weight: np.ndarray, gradients: list[dict[int, np.ndarray]], lr: float, eps: float) -> np.ndarray:
    """Adagrad with one number for each row, in float64, from its formula."""
    weight, total = weight.astype(np.float64), np.zeros(len(weight))
    for each in gradients:
        for row, g in each.items():
            total[row] += (g**2).mean()
            weight[row] -= lr * g / (np.sqrt(total[row]) + eps)
    return weight


def test_adagrad_by_row_is_that_of_its_formula(path: Path) -> None:
    own = FileTokenEmbedding(path)
    optimizer = FileRowAdagrad(own, lr=0.1)
    gradients, before = [], load_file(path)["weight"].numpy().copy()  # of a mapped file
    for n, ids in enumerate(batches(12)):
        own(ids).pow(2 + n % 2).sum().backward()
        sparse = own.weight.grad.coalesce()
        gradients.append(dict(zip(sparse.indices()[0].tolist(), sparse.values().double().numpy(), strict=True)))
        optimizer.step()
        optimizer.zero_grad()
    optimizer.flush()
    own.close()
    assert np.allclose(load_file(path)["weight"], adagrad(before, gradients, 0.1, 1e-8), atol=1e-5)
    assert (path.with_name(path.name + ".training") / "state.safetensors").stat().st_size < 4 * V + 200


def test_adagrad_by_row_moves_bfloat16_by_less_than_a_rounding_step(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(V, 64, dtype=torch.bfloat16)}, tmp_path / "a.safetensors")
    own = FileTokenEmbedding(tmp_path / "a.safetensors")
    optimizer = FileRowAdagrad(own, lr=1e-3)  # a rounding step below 1 is 3.9e-3
    for _ in range(100):
        own(torch.arange(V)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    expected = 1 - 1e-3 * sum(n**-0.5 for n in range(1, 101))
    assert rows(own).float().mean().item() == pytest.approx(expected, abs=1e-3)


def test_hashed_and_per_layer_tables_are_trained_in_files(tmp_path: Path) -> None:
    hashes, sizes = xor_hashes((3, 5, 9), [[71, 113], [53]]), {"num_layers": 3, "layer_dim": 4, "dim": 8}
    hashed = ww.HashedNGramEmbedding(hashes, dim=D, padding_id=0, num_embeddings=256)
    layers = ww.PerLayerEmbedding(V, **sizes, dtype=torch.bfloat16)
    rows = {"a": hashed.table.weight.detach(), "b": layers.tokens.weight.detach()}
    for name in "ab":
        save_file(rows, tmp_path / f"{name}.safetensors")
    tables = [FileTokenEmbedding(tmp_path / f"{name}.safetensors", name) for name in "ab"]
    own_hashed = ww.HashedNGramEmbedding(hashes, dim=D, padding_id=0, table=tables[0])
    own_layers = ww.PerLayerEmbedding(V, **sizes, tokens=tables[1], dtype=torch.bfloat16)
    optimizers = FileRowAdamW(tables, **SETTINGS), ww.RowAdamW([hashed.table, layers.tokens], **SETTINGS)
    for ids in torch.randint(0, V, (5, 2, 9), generator=generator()):
        tables[0].prefetch(own_hashed.rows(ids))
        pairs = (own_hashed(ids), hashed(ids)), (own_layers.lookup(ids), layers.lookup(ids))
        for own, wanted in pairs:
            assert torch.equal(own, wanted)
            for vectors in (own, wanted):
                vectors.float().square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    with pytest.raises(ShapeError, match=r"shape \(201, 12\), but got \(200, 12\)"):
        ww.PerLayerEmbedding(201, **sizes, tokens=tables[1])


def test_a_layer_with_a_table_in_a_file_saves_and_loads_the_rest(path: Path) -> None:
    layer = ww.InputLayer(V, D, input=ww.Learned(dim=D, max_length=8), device="meta").to_empty(device="cpu")
    layer.tokens = FileTokenEmbedding(path)
    layer.bfloat16()
    state = layer.state_dict()
    assert list(state) == ["where.input.weight"]
    layer.load_state_dict(state)
    assert sum(each.untyped_storage().nbytes() for each in layer.parameters()) < 1000
    assert layer.tokens(torch.tensor([3])).dtype == torch.float32
    for refused in (copy.deepcopy, lambda x: x.__reduce__()):
        with pytest.raises(SettingError, match="cannot be"):
            refused(layer.tokens)
    with pytest.raises(SettingError, match="are in"):
        layer.load_state_dict({**state, "tokens.weight": torch.zeros(V, D)})


def test_read_only_tables_are_shared_and_rows_that_are_behind_are_right(path: Path) -> None:
    own = trained(path, batches(10))
    wanted = rows(own)
    with pytest.raises(SettingError, match="open already"):
        FileTokenEmbedding(path, read_only=True)
    own.close()
    readers = [FileTokenEmbedding(path, read_only=True) for _ in range(2)]
    for reader in readers:
        assert torch.allclose(rows(reader), wanted, atol=1e-7)
        assert not reader(torch.tensor([1])).requires_grad
    with pytest.raises(SettingError, match="open already"):
        FileTokenEmbedding(path)
    with pytest.raises(SettingError, match="reading only"):
        FileRowAdamW(readers[0])
    with pytest.raises(SettingError, match="reading only"):
        readers[0].update_all_rows()


def saved(own: FileTokenEmbedding, **tensors: torch.Tensor) -> Path:
    save_file(tensors, own.path.with_name("saved.safetensors"))
    return own.path.with_name("saved.safetensors")


ONE, WHOLE = torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda own: ww.RowAdamW(own), SettingError, "in a file"),
        (lambda own: own.readout(torch.zeros(D)), SettingError, "in a file"),
        (lambda own: own.reset_parameters(), SettingError, "not sampled anew"),
        (lambda own: resize(own, V + 1), SettingError, "not a plain parameter"),
        (lambda own: own(torch.tensor([V])), TokenError, "outside the vocabulary"),
        (lambda own: own.prefetch(torch.tensor([-1])), TokenError, "outside the vocabulary"),
        (lambda own: FileRowAdamW([{"params": [in_memory()]}]), SettingError, "trains FileTokenEmbedding"),
        (lambda own: FileRowAdamW([]), SettingError, "no embedding.\nPass a FileTokenEmbedding"),
        (lambda own: FileTokenEmbedding.create(own.path, V, D), CheckpointError, "exists already"),
        (lambda own: FileTokenEmbedding.create(own.path / "b", V, D, padding_idx=V), TokenError, "padding_idx"),
        (lambda own: FileTokenEmbedding(own.path.with_name("none")), CheckpointError, "No such file"),
        (lambda own: FileTokenEmbedding(saved(own, a=ONE, b=ONE + 1)), TokenError, "2 matrices"),
        (lambda own: FileTokenEmbedding(saved(own, a=ONE), "c"), TokenError, "has no tensor 'c'"),
        (lambda own: FileTokenEmbedding(saved(own, a=WHOLE), "a"), CheckpointError, "I64"),
        (
            lambda own: (FileRowAdamW(own), own.close(), FileRowAdagrad(FileTokenEmbedding(own.path))),
            SettingError,
            "state of adamw, not of adagrad",
        ),
    ],
)
def test_what_does_not_fit_is_refused(path: Path, call, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(FileTokenEmbedding(path))


def test_files_that_are_damaged_or_of_another_table_are_refused(path: Path) -> None:
    own = FileTokenEmbedding(path)
    FileRowAdamW(own)
    own.close()
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(CheckpointError, match="not a whole safetensors"):
        FileTokenEmbedding(path)
    path.write_bytes(content)
    own = FileTokenEmbedding(path)
    os.truncate(path, len(content) - 8)
    with pytest.raises(CheckpointError, match="became shorter"):
        rows(own)
    own.close()
    save_file({"weight": torch.zeros(V + 1, D)}, path)
    with pytest.raises(CheckpointError, match="another header or size"):
        FileTokenEmbedding(path)
    save_file({"weight": torch.zeros(V, D)}, path)
    (path.with_name(path.name + ".training") / "steps.json").write_bytes(b"{")
    with pytest.raises(CheckpointError, match="no steps of an optimizer"):
        FileTokenEmbedding(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *(
            (change, "a setting of a step is negative or not finite")
            for setting in (-1.0, float("nan"), float("inf"))
            for change in ({"eps": setting}, {"runs": [[2, 0.05, 0.9, 0.99, setting, 0.1]]})
        ),
        ({"runs": [[1, 0.05, 0.9, 0.99, 1e-8, 0.1]]}, "no settings of each step from 0 to 2"),
        ({"number": -1}, "it is at step -1"),
    ],
)
def test_steps_that_no_training_can_have_are_refused(path: Path, change: dict, words: str) -> None:
    trained(path, batches(2)).close()
    file = path.with_name(path.name + ".training") / "steps.json"
    stated = json.loads(file.read_bytes())
    del stated["checksum"]
    file.write_text(json.dumps(with_checksum({**stated, "steps": {**stated["steps"], **change}})))
    with pytest.raises(CheckpointError, match=words):
        FileTokenEmbedding(path)


def test_files_of_an_earlier_version_are_refused_with_a_way_out(path: Path) -> None:
    (folder := path.with_name(path.name + ".training")).mkdir()
    (folder / "steps.safetensors").touch()
    for refused in (FileTokenEmbedding, ww.read):
        with pytest.raises(CheckpointError, match="bring all rows up to date with that version first"):
            refused(path)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write any file")
def test_a_file_that_cannot_be_written_is_read_only(path: Path) -> None:
    path.chmod(0o444)
    with pytest.raises(CheckpointError, match="read_only=True"):
        FileTokenEmbedding(path)
    assert torch.equal(rows(FileTokenEmbedding(path, read_only=True)), in_memory().weight)


def test_a_file_with_rows_that_are_behind_is_no_checkpoint(path: Path) -> None:
    own = trained(path, batches(3))
    with pytest.raises(CheckpointError, match="missed some of the last 3 steps"):
        ww.read(path)
    done = []
    own.update_all_rows(lambda *rows: done.append(rows))
    wanted = rows(own)
    assert done[-1] == (V, V)
    assert np.array_equal(ww.read(path).array("weight"), wanted)
    own.close()
    (path.with_name(path.name + ".training") / "state.safetensors").unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        FileTokenEmbedding(path)
