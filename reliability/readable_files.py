"""A small valid file of every format that the product reads, and how it reads it."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shutil import copy
from unittest.mock import patch

import numpy as np
import torch

import whatwhere as ww
from experiments.suite import read_evidence
from reliability.flips import Readable, Values
from reliability.seals import of_block, of_digest, of_json, of_tensors
from tests.models.checkpoint.damage import read_all
from tests.models.checkpoint.samples import CONFIG, WORDS, make, tokenizer
from whatwhere.comparison.byte_text import in_memory
from whatwhere.comparison.experiment import describe, record_of
from whatwhere.comparison.folder import Folder
from whatwhere.comparison.read import read_results
from whatwhere.comparison.run import Job, run
from whatwhere.comparison.saved_model import load_model
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions
from whatwhere.comparison.token_text import tokenized
from whatwhere.models.checkpoint import Checkpoint, hub
from whatwhere.models.golden import read_golden, write_golden
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
    for make_some in OWN.values():
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

    def results() -> Values:
        comparison = read_results(path)
        for each in comparison.runs:  # what is behind the record: names of files, settings of models
            comparison.tables(each), comparison.trace(each), load_model(comparison, each)
        return {**_plain(comparison.record), "shown": f"{comparison!r} {comparison}"}

    def resumed() -> Values:
        return _plain(Folder(path, task, settings, [job]).finished("learned", _SEED))

    record, request, finished = path / "results.json", path / "comparison.json", path / "runs" / "learned-2.json"
    saved, trace = path / result.file, path / result.trace
    yield Readable("results.json", record, results, True, seal=of_json(record))
    yield Readable("comparison.json", request, resumed, True, seal=of_json(request))
    yield Readable("a finished run", finished, resumed, True, seal=of_json(finished))
    yield Readable("the model of a run", saved, model, True, seal=of_tensors(saved))
    yield Readable("the model of a run, inspected", saved, _checkpoint(path), True, seal=of_tensors(saved))
    yield Readable("the trace of a run", trace, lambda: read_results(path).trace(result), True, seal=of_tensors(trace))


def _records(folder: Path) -> Iterator[Readable]:
    """Yield evidence and golden vectors."""
    (folder / "evidence").mkdir()
    evidence = Path(copy("evidence/E5.json", folder / "evidence"))
    yield Readable(
        "evidence", evidence, lambda: _plain(read_evidence(folder / "evidence")), True, seal=of_json(evidence)
    )
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    write_golden(ww.read(folder / "config.json"), folder / "golden")

    def golden() -> Values:
        record, numbers = read_golden(folder / "golden")
        return {**{f"tensor {name}": np.asarray(value) for name, value in numbers.items()}, **_plain(record)}

    vectors, numbers = folder / "golden" / "golden.json", folder / "golden" / "golden.safetensors"
    yield Readable("golden.json", vectors, golden, True, seal=of_json(vectors))
    yield Readable("golden.safetensors", numbers, golden, True, seal=of_digest(numbers, vectors))


def _texts(folder: Path) -> Iterator[Readable]:
    """Yield the files of a tokenized text; a damaged one is made again."""
    (folder / "tokenizer.json").write_bytes(tokenizer(WORDS))

    def text() -> Values:
        ids = tokenized(in_memory(b"cat"), folder / "tokenizer.json", folder / "cache")
        return {"tensor ids": ids.windows([0], len(ids)), **_plain(ids.about)}

    text()
    (about,), (ids,) = (list((folder / "cache" / "tokens").glob(f"*.{suffix}")) for suffix in ("json", "ids"))
    yield Readable("a tokenized text, .json", about, text, True, seal=of_json(about))
    yield Readable("a tokenized text, .ids", ids, text, True, seal=of_digest(ids, about))


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
        trained = FileTokenEmbedding(path)
        FileRowAdamW(trained, lr=0.1)
        trained(torch.arange(7))  # rows up to date, of which more than one number depends on one of the state
        trained.close()
        files = RowFiles(path, writable=True)
        try:
            weight, state = files.read(np.arange(7))
            arrays = {"tensor weight": weight.view(np.float32), "tensor state": np.asarray(state).view(np.float32)}
            return {**arrays, "steps": repr(files.steps)}
        finally:
            files.close()

    steps, state = (path.with_name("rows.safetensors.training") / name for name in ("steps.json", "state.safetensors"))
    yield Readable("steps of a table in training", steps, read, True, seal=of_json(steps))
    yield Readable("rows of a table in training", path, read, False)
    yield Readable("state of a table in training", state, read, False)


def _hub(folder: Path) -> Iterator[Readable]:
    """Yield the files of the cache of byte ranges; a damaged block is requested again."""
    content = make(folder)["safetensors"].files["model.safetensors"]
    path = folder / "hub" / "whatwhere" / "model" / "model.safetensors"
    block = path.parent / ".blocks" / path.name / "000000"

    def download(file: hub.HubFile, begin: int, end: int) -> bytes:
        return content[begin:end]

    def read() -> Values:
        hub._intact.clear()  # by the time of the last change, which two quick ones may share
        with patch.dict(os.environ, HF_HOME=str(folder / "hub")), patch.object(hub, "download_range", download):
            return _checkpoint(path)()

    path.parent.mkdir(parents=True)
    hub.HubFile("a/b", "0" * 40, path.name, len(content)).write_pointer(path)
    read()
    yield Readable("a pointer to a file at huggingface.co", path, read, True, seal=of_json(path))
    yield Readable("a block of such a file", block, read, True, seal=of_block(block))


OWN: Mapping[str, Callable[[Path], Iterator[Readable]]] = {
    "comparisons": _comparison,
    "evidence and golden vectors": _records,
    "tokenized texts": _texts,
    "tables in training": _table,
    "the cache of huggingface.co": _hub,
}
"""What makes the files of ours, by what they are of."""
