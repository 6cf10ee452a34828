"""One model on a mesh of processes: the losses of one process, checkpoints on fewer processes, and lost processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch

import whatwhere as ww
from whatwhere import comparison
from whatwhere.comparison.saved_model import read_tensors
from whatwhere.comparison.sharded_model import by_head, by_kind
from whatwhere.comparison.tasks import Recall
from whatwhere.comparison.train import Training, one_thread
from whatwhere.comparison.train_one import TrainedModel, train_one
from whatwhere.comparison.training_checkpoint import complete_checkpoints
from whatwhere.parallel.mesh import MeshSizes, fill_mesh

from ..parallel.processes import on_ranks

SMALL: dict[str, Any] = {
    "steps": 6, "dim": 16, "heads": 2, "feedforward": 32, "trained": [16], "batch": 6, "test_sequences": 4,
}  # fmt: skip
TEXT = "".join(f"{n} times {n} is {n * n}. " for n in range(300))
ROUNDING = 5e-6
MESHES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "replicas and shards, an uneven batch": ("fire", {"data": 2, "shard": 2}),
    "replicas and heads, tied": ("t5", {"data": 2, "tensor": 2, "tied": True, "recompute": True}),
    "shards and tokens": ("rotary+t5", {"shard": 2, "context": 2, "order": "zigzag", "keys": "ring"}),
    "shards and tokens, gathered": ("rotary+alibi", {"shard": 2, "context": 2, "order": "zigzag"}),
    "heads and tokens, sums over tokens": ("fox", {"tensor": 2, "context": 2, "order": "striped"}),
    "a ring of tokens, sums over tokens": (
        "selective-rope+fox",
        {"tensor": 2, "context": 2, "order": "zigzag", "keys": "ring", "recompute": True},
    ),
    "a ring of parts of the weights": ("fire", {"context": 2, "shard": 2, "order": "striped", "keys": "ring"}),
    "sampled positions": ("carope@randomized", {"data": 2, "context": 2, "recompute": True}),
    "compiled": ("kerple", {"shard": 2, "tensor": 2, "compiled": True, "layers": 1}),
    "one target a sequence": ("transformer-xl", {"tensor": 2, "task": "expressions", "trained": [1, 2, 3]}),
    "bfloat16, shards and heads": ("t5", {"shard": 2, "tensor": 2, "precision": "bfloat16"}),
    "bfloat16 on a ring": (
        "fire",
        {"shard": 2, "context": 2, "order": "zigzag", "keys": "ring", "precision": "bfloat16"},
    ),
    "compiled, recomputed, on a ring": (
        "t5",
        {"shard": 2, "context": 2, "order": "zigzag", "keys": "ring", "recompute": True, "compiled": True, "layers": 1},
    ),
    "one target a sequence of tokens": ("kerple", {"context": 2, "task": "recall", "trained": [2, 3]}),
}
"""Schemes on meshes of 4 processes, of which data is what the axes leave."""
FEW = ("replicas and heads, tied", "shards and tokens", "bfloat16, shards and heads")


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("notes") / "notes.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def trained(scheme: str, notes: Path, out: Path, **options: Any) -> TrainedModel | None:
    task = options.pop("task", "text")
    files = [notes] if task == "text" else []
    tested = [32] if task == "text" else [4]
    with one_thread():
        return train_one(scheme, task, tested, files=files, out=out, progress=False, **SMALL | options)


def alone(scheme: str, notes: Path, out: Path, **options: Any) -> TrainedModel:
    mesh = {"data", "shard", "tensor", "context", "order", "keys", "compiled", "recompute"}
    found = trained(scheme, notes, out, **{key: value for key, value in options.items() if key not in mesh})
    assert found is not None
    return found


def losses(found: TrainedModel) -> list[float]:
    return [loss for _, loss in found.losses]


def test_a_deterministic_training_has_equal_bytes_on_one_thread_and_on_two(notes: Path, tmp_path: Path) -> None:
    before, files = torch.get_num_threads(), []
    for threads in (1, 2, 2):
        out = tmp_path / str(len(files))
        torch.set_num_threads(threads)
        try:
            found = train_one(
                "rotary", "text", [32], files=[notes], out=out, progress=False, deterministic=True, **SMALL
            )
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        assert found is not None
        files.append((out / found.file).read_bytes())
        assert json.loads((out / "results.json").read_text(encoding="utf-8"))["threads_per_run"] == 1
    assert files[0] == files[1] == files[2]


def stopped_at(step: int, rank: int) -> None:
    """Let one process get SIGTERM before a step."""
    whole = Training.step

    def step_and_stop(self: Training) -> None:
        if self.done + 1 == step and rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        whole(self)

    Training.step = step_and_stop  # type: ignore[method-assign]


# One process


def test_one_process_has_the_run_of_compare_to_the_bit(notes: Path, tmp_path: Path) -> None:
    found = alone("learned+alibi", notes, tmp_path / "train")
    compared = comparison.compare(
        ["learned+alibi"], "text", [32], [0], tmp_path / "compare", files=[notes], workers=1, progress=False, **SMALL
    )
    run = compared.runs[0]
    assert found.losses == run.losses
    assert found.scores == run.scores
    kept = comparison.read_results(tmp_path / "train")
    models = [read_tensors(results.folder / results.runs[0].file) for results in (kept, compared)]
    assert {"blocks.1.qkv.weight", "input.tokens.weight"} <= models[0].keys()
    for name, tensor in models[0].items():
        assert torch.equal(tensor, models[1][name]), name
    report = ww.inspect(tmp_path / "train")
    assert report.shape == (256, SMALL["dim"])


def test_recomputed_blocks_have_the_same_losses_and_bfloat16_nearly(notes: Path, tmp_path: Path) -> None:
    wanted = losses(alone("t5", notes, tmp_path / "plain"))
    assert losses(alone("t5", notes, tmp_path / "recomputed", recompute=True)) == wanted
    rounded = losses(alone("t5", notes, tmp_path / "rounded", precision="bfloat16"))
    assert rounded != wanted
    assert rounded == pytest.approx(wanted, abs=0.05)


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_compiled_blocks_have_the_same_losses(notes: Path, tmp_path: Path) -> None:
    wanted = losses(alone("rotary", notes, tmp_path / "plain", layers=1))
    compiled = losses(alone("rotary", notes, tmp_path / "compiled", layers=1, compiled=True))
    assert compiled == pytest.approx(wanted, abs=ROUNDING)


def test_what_is_interrupted_goes_on_from_its_checkpoint(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = losses(alone("learned", notes, tmp_path / "whole"))
    monkeypatch.setattr(Training, "step", Training.step)
    stopped_at(3, rank=0)
    with pytest.raises(KeyboardInterrupt):
        alone("learned", notes, tmp_path / "resumed", every=2)
    monkeypatch.undo()
    assert [path.name for path in complete_checkpoints(tmp_path / "resumed")] == ["step-00000002", "step-00000003"]
    shutil.copytree(tmp_path / "resumed", tmp_path / "damaged")
    found = alone("learned", notes, tmp_path / "resumed")
    assert found.resumed_at == 3
    assert losses(found) == wanted
    assert alone("learned", notes, tmp_path / "resumed").losses == found.losses  # which trains nothing
    (tmp_path / "resumed" / "results.json").unlink()  # as where a process is killed just before it writes that
    assert alone("learned", notes, tmp_path / "resumed").scores == found.scores
    with pytest.raises(ww.errors.ResultsError, match=r"training is .*seed 0.*here .*seed 1"):
        alone("learned", notes, tmp_path / "resumed", seed=1)
    (file,) = (tmp_path / "damaged" / "checkpoints" / "step-00000003").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ww.errors.ResultsError, match=r"cannot be read: its files are not those that were written"):
        alone("learned", notes, tmp_path / "damaged")
    shutil.rmtree(file.parent)
    assert losses(alone("learned", notes, tmp_path / "damaged")) == wanted


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tensor": 2}, r"needs 2 processes, but there is 1.\nStart as many: torchrun --nproc-per-node 2"),
        ({"data": 3, "context": 2}, r"data 3 x shard 1 x tensor 1 x context 2 needs 6 processes"),
        ({"precision": "half"}, "precision='half'"),
        ({"order": "random"}, "order='random'"),
        ({"keys": "sent"}, "keys='sent'"),
        ({"steps": 0}, "steps=0 trains nothing"),
        ({"device": "bad"}, "^a run got device='bad', but knows only: auto, cpu, cuda"),
        ({"depth": 3}, "^a run has no setting 'depth'"),
        ({"task": "poems"}, "^a run got task='poems'"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    options: dict[str, Any], words: str, notes: Path, tmp_path: Path, our_own_checks: None
) -> None:
    with pytest.raises(ww.errors.SettingError, match=words):
        trained("rotary", notes, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_mesh_is_filled_up() -> None:
    assert fill_mesh(None, 2, 2, 1, processes=8) == MeshSizes(2, 2, 2, 1)
    with pytest.raises(ww.errors.SettingError, match="needs 4 processes, but there are 3"):
        fill_mesh(None, 2, 2, 1, processes=3)


def test_rows_in_the_order_of_heads_have_whole_heads() -> None:
    # 3 kinds x 4 heads x 2 features
    by_kinds = torch.arange(24)
    assert by_head(by_kinds, 4)[:6].tolist() == [0, 1, 8, 9, 16, 17]
    assert torch.equal(by_kind(by_head(by_kinds, 4), 4), by_kinds)


# Several processes


def on_meshes(
    names: tuple[str, ...], notes: str, folder: str
) -> tuple[dict[str, tuple[list[float], dict[int, Any], tuple[int, ...]]], list[str]]:
    """Train on each mesh of 4 processes; then begin one that is stopped, and name what is refused."""
    results = {}
    for name in names:
        scheme, options = MESHES[name]
        found = trained(scheme, Path(notes), Path(folder) / name, **options)
        if found is not None:
            results[name] = (losses(found), found.scores, found.bytes_of_processes)
    refused = []
    for scheme, options in (
        ("rotary", {"tensor": 4}),
        ("rotary", {"context": 4, "order": "zigzag", "trained": [20]}),
        ("cope", {"context": 4, "keys": "ring"}),
        ("rotary", {"data": 4, "batch": 3}),
        ("rotary", {"tensor": 2, "table": "rank2"}),
    ):
        try:
            trained(scheme, Path(notes), Path(folder) / "refused", **options)
        except ww.errors.WhatWhereError as problem:
            refused.append(str(problem))
    stopped_at(3, torch.distributed.get_rank())
    try:
        trained("t5", Path(notes), Path(folder) / "resumed", shard=2, tensor=2, steps=9, every=8)
    except KeyboardInterrupt:
        refused.append("stopped")
    return results, refused


def interrupted(step: int, notes: str, folder: str, **options: Any) -> None:
    """Begin or go on, and be stopped before a step."""
    stopped_at(step, torch.distributed.get_rank())
    with pytest.raises(KeyboardInterrupt):
        trained("t5", Path(notes), Path(folder) / "resumed", steps=9, every=8, **options)


def alone_on(names: tuple[str, ...], notes: Path, folder: Path) -> dict[str, TrainedModel]:
    return {name: alone(MESHES[name][0], notes, folder / f"alone {name}", **MESHES[name][1]) for name in names}


def require_alike(found: dict[str, Any], whole: dict[str, TrainedModel]) -> None:
    """Check losses and scores against one process, and that the mesh spreads weights, gradients and moments evenly."""
    assert found.keys() == whole.keys()
    for name, (seen, scores, sizes) in found.items():
        rounded = "bfloat16" in name
        assert seen == pytest.approx(losses(whole[name]), abs=5e-3 if rounded else ROUNDING), name
        for length, by_group in whole[name].scores.items():
            assert scores[length] == pytest.approx(by_group, abs=5e-3 if rounded else 1e-4), name
        options = MESHES[name][1]
        data = 4 // prod(options.get(axis, 1) for axis in ("shard", "tensor", "context"))
        share = whole[name].bytes_of_processes[0] * data / 4
        assert len(sizes) == 4
        assert share * 0.99 < max(sizes) < share * 1.1, name


def test_meshes_have_the_losses_of_one_process_and_checkpoints_are_resumed_on_fewer(
    notes: Path, tmp_path: Path
) -> None:
    wanted = alone("t5", notes, tmp_path / "alone", steps=9)
    (found, refused), *others = on_ranks(4, tmp_path / "four", on_meshes, FEW, str(notes), str(tmp_path))
    require_alike(found, alone_on(FEW, notes, tmp_path))
    exact = losses(alone("t5", notes, tmp_path / "float32"))
    assert found["bfloat16, shards and heads"][0] != pytest.approx(exact, abs=20 * ROUNDING)
    words = ["heads=2 cannot be split among 4", "do not divide into 4 zigzag shards", "CoPE counts",
             "batch=3 has too few sequences",
             "vocabulary of a TokenEmbedding can be sharded", "stopped"]  # fmt: skip
    for expected, message in zip(words, refused, strict=True):
        assert expected in message
    assert all(other[1] == refused for other in others), "all processes refuse alike"
    on_ranks(2, tmp_path / "two", partial(interrupted, context=2), 6, str(notes), str(tmp_path))
    assert [path.name for path in complete_checkpoints(tmp_path / "resumed")] == ["step-00000003", "step-00000006"]
    last = alone("t5", notes, tmp_path / "resumed", steps=9)
    assert last.resumed_at == 6
    assert losses(last) == pytest.approx(losses(wanted), abs=ROUNDING)


@pytest.mark.slow
def test_further_meshes_have_the_losses_of_one_process(notes: Path, tmp_path: Path) -> None:
    names = tuple(name for name in MESHES if name not in FEW)
    (found, _), *_ = on_ranks(4, tmp_path / "four", on_meshes, names, str(notes), str(tmp_path))
    require_alike(found, alone_on(names, notes, tmp_path))


@pytest.mark.slow
def test_an_uneven_vocabulary_is_resumed_on_fewer_processes_twice(notes: Path, tmp_path: Path) -> None:
    assert len(Recall().tokens) % 2 == 1
    options: dict[str, Any] = {"task": "recall", "trained": [2, 3], "tied": True}
    wanted = alone("t5", notes, tmp_path / "alone", steps=9, **options)
    for ranks, step, mesh in ((4, 3, {"shard": 2, "tensor": 2}), (2, 6, {"tensor": 2})):
        train = partial(interrupted, **options, **mesh)
        on_ranks(ranks, tmp_path / f"on {ranks}", train, step, str(notes), str(tmp_path))
        assert complete_checkpoints(tmp_path / "resumed")[-1].name == f"step-0000000{step}"
    last = alone("t5", notes, tmp_path / "resumed", steps=9, **options)
    assert last.resumed_at == 6
    assert losses(last) == pytest.approx(losses(wanted), abs=ROUNDING)


KILLED = '''
import os, signal
from whatwhere.comparison.tasks import Recall

class Once:
    """Recall, whose second process is killed at the fifth batch."""
    def __init__(self):
        self.task, self.batches = Recall(trained=(2, 3)), 0
    def __getattr__(self, name):
        return getattr(self.__dict__["task"], name)
    def sample(self, batch, generator):
        self.batches += 1
        if self.batches == 5 and os.environ.get("RANK") == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        return self.task.sample(batch, generator)

once = Once()
'''


@pytest.mark.slow
def test_a_killed_process_is_restarted_by_torchrun_from_the_last_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    options = ["--lengths", "4", "--steps", "8", "--dim", "16", "--heads", "2", "--set", "batch=6", "--every", "2"]
    words = ["train", "alibi", "--module", str(tmp_path / "killed.py:once"), *options, "--json"]
    command = [
        *torchrun,
        "--max-restarts",
        "1",
        "-m",
        "whatwhere",
        *words,
        "--shard",
        "2",
        "--out",
        str(tmp_path / "o"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["resumed_at"] == 4, done.stderr
    one = subprocess.run(
        [sys.executable, "-m", "whatwhere", *words, "--out", str(tmp_path / "one")],
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    wanted = json.loads(one.stdout)
    assert [loss for _, loss in found["losses"]] == pytest.approx([loss for _, loss in wanted["losses"]], abs=ROUNDING)
