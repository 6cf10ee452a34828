"""A small valid file of every format that the product reads, and how it reads it."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copy
from unittest.mock import patch

import numpy as np
import torch

import whatwhere as ww
from reliability.flips import Readable, Values
from tests.models.checkpoint.damage import read_all
from tests.models.checkpoint.samples import CONFIG, WORDS, make, tokenizer
from whatwhere.comparison.byte_text import MemoryText
from whatwhere.comparison.experiment import describe, record_of
from whatwhere.comparison.folder import Folder
from whatwhere.comparison.read import read_results
from whatwhere.comparison.run import Job, run
from whatwhere.comparison.saved_model import load_model
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions
from whatwhere.comparison.token_text import tokenized
from whatwhere.comparison.train import Training, build
from whatwhere.comparison.training_checkpoint import load_checkpoint, save_checkpoint
from whatwhere.evidence.suite import read_evidence
from whatwhere.models.checkpoint import Checkpoint, hub_files
from whatwhere.models.golden.verify import read_golden
from whatwhere.models.golden.write import write_golden
from whatwhere.records import to_json
from whatwhere.what.file_table import FileRowAdamW, FileTokenEmbedding
from whatwhere.what.row_files import RowFiles

_CHECKED = {"npz", "npz-pressed", "pickle"}
"""Formats of others with a checksum of every byte that is read: that of zip."""
_BLOCK = 32
"""Numbers of a block of GGUF, which share a scale."""
_SEED = 2


def readable_files(folder: Path) -> Iterator[Readable]:
    """Make the files, one after another.

    Args:
        folder: to write into.
    """
    for name, sample in make(folder).items():
        if name != "results":  # our own are below
            path = sample.write(folder / name)
            file = folder / name / sample.damaged
            yield Readable(name, file, _checkpoint(path), name in _CHECKED, _BLOCK if name == "gguf" else 1)
    for make_some in (_comparison, _training, _records, _table, _hub):
        yield from make_some(folder)


def _checkpoint(path: Path) -> Callable[[], Values]:
    def read() -> Values:
        checkpoint = Checkpoint.open(path, allow_pickle=True)
        arrays = {f"tensor {name}": checkpoint.array(name) for name in checkpoint.tensors}
        about = {name: repr(value) for name, value in read_all(path).items()}
        return {**arrays, **about}

    return read


def _plain(record: object) -> Values:
    return {"record": to_json(record, None)}


def _comparison(folder: Path) -> Iterator[Readable]:
    """Yield the files of a comparison."""
    task = Expressions(trained=(2,))
    settings = make_settings(
        "expressions", [3], dim=8, heads=2, feedforward=8, batch=4, test_sequences=4, steps=2, device="cpu"
    )
    job, path = Job("learned", _SEED, task, settings), folder / "comparison"
    opened = Folder(path, task, settings, [job])
    kept = opened.keep(run(job))
    opened.write_results(record_of([kept], describe(task, settings), settings, [_SEED]))
    result = kept.result

    def model() -> Values:
        state = load_model(path, result).state_dict()
        return {f"tensor {name}": tensor.numpy() for name, tensor in state.items()}

    def resumed() -> Values:
        return _plain(Folder(path, task, settings, [job]).finished("learned", _SEED))

    yield Readable("results.json", path / "results.json", lambda: _plain(read_results(path).record), True)
    yield Readable("comparison.json", path / "comparison.json", resumed, True)
    yield Readable("a finished run", path / "runs" / "learned-2.json", resumed, True)
    yield Readable("the model of a run", path / result.file, model, True)
    yield Readable("the model of a run, inspected", path / result.file, _checkpoint(path), True)
    yield Readable("the trace of a run", path / result.trace, lambda: read_results(path).trace(result), True)


def _training(folder: Path) -> Iterator[Readable]:
    """Yield the files of a training that can be resumed."""
    task = Expressions(trained=(2,))
    settings = make_settings("expressions", [3], dim=8, heads=2, feedforward=8, batch=4, test_sequences=4, steps=2)

    def begun() -> Training:
        return Training(build("learned", _SEED, task, settings), _SEED, task, settings)

    training = begun()
    training.step()
    save_checkpoint(training, folder / "training", first=True)
    (path,) = (folder / "training" / "checkpoints").iterdir()

    def resumed() -> Values:
        other = begun()
        load_checkpoint(other, path)
        weights = {f"tensor {name}": tensor.numpy() for name, tensor in other.model.state_dict().items()}
        return {**weights, "done": (other.done, other.losses), "random": other.generator.get_state().tolist()}

    yield Readable("state.json of a training", path / "state.json", resumed, True)
    yield Readable("weights of a training", next(path.glob("*.safetensors")), resumed, True)


def _records(folder: Path) -> Iterator[Readable]:
    """Yield evidence, golden vectors and a tokenized text; a damaged one of the last is made again."""
    (folder / "evidence").mkdir()
    evidence = Path(copy("evidence/E5.json", folder / "evidence"))
    yield Readable("evidence", evidence, lambda: _plain(read_evidence(folder / "evidence")), True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    write_golden(ww.read(folder / "config.json"), folder / "golden")

    def golden() -> Values:
        record, numbers = read_golden(folder / "golden")
        return {**{f"tensor {name}": np.asarray(value) for name, value in numbers.items()}, **_plain(record)}

    yield Readable("golden.json", folder / "golden" / "golden.json", golden, True)
    yield Readable("golden.safetensors", folder / "golden" / "golden.safetensors", golden, True)
    (folder / "tokenizer.json").write_bytes(tokenizer(WORDS))

    def text() -> Values:
        ids = tokenized(MemoryText(b"cat"), folder / "tokenizer.json", folder / "cache")
        return {"tensor ids": ids.windows([0], len(ids)), **_plain(ids.about)}

    text()
    for suffix in ("json", "ids"):
        (path,) = (folder / "cache" / "tokens").glob(f"*.{suffix}")
        yield Readable(f"a tokenized text, .{suffix}", path, text, True)


def _table(folder: Path) -> Iterator[Readable]:
    """Yield the files of a table in training."""
    path = folder / "rows.safetensors"
    FileTokenEmbedding.create(path, 7, 4, generator=torch.Generator().manual_seed(0))
    table = FileTokenEmbedding(path)
    optimizer = FileRowAdamW(table, lr=0.1)
    table(torch.tensor([3, 5])).sum().backward()
    optimizer.step()
    optimizer.flush()
    table.close()

    def read() -> Values:
        files = RowFiles(path, writable=True)
        try:
            weight, state = files.read(np.arange(7))
            arrays = {"tensor weight": weight.view(np.float32), "tensor state": np.asarray(state).view(np.float32)}
            return {**arrays, "steps": repr(files.steps)}
        finally:
            files.close()

    steps = path.with_name("rows.safetensors.training")
    yield Readable("steps of a table in training", steps / "steps.safetensors", read, True)
    yield Readable("rows of a table in training", path, read, False)
    yield Readable("state of a table in training", steps / "state.safetensors", read, False)


def _hub(folder: Path) -> Iterator[Readable]:
    """Yield the files of the cache of byte ranges; a damaged block is requested again."""
    content = make(folder)["safetensors"].files["model.safetensors"]

    def download(file: hub_files.HubFile, begin: int, end: int) -> bytes:
        return content[begin:end]

    with patch.dict(os.environ, HF_HOME=str(folder / "hub")), patch.object(hub_files, "download_range", download):
        path = hub_files.ranges_folder() / "model" / "model.safetensors"
        path.parent.mkdir(parents=True)
        hub_files.HubFile("a/b", "0" * 40, path.name, len(content)).write_pointer(path)
        read = _checkpoint(path)
        read()
        yield Readable("a pointer to a file at huggingface.co", path, read, True)
        yield Readable("a block of such a file", path.parent / ".blocks" / path.name / "000000", read, True)
