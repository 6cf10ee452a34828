"""The format of a path, detected; folders of Hugging Face, and of comparisons, with the trained model of each run."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.archives import load_pickle, open_npy, open_npz, refuse_gensim, refuse_pickle
from whatwhere.models.checkpoint.base import ByteRange, Contents, Entry
from whatwhere.models.checkpoint.files import TIMES, File, plain_name, read_json
from whatwhere.models.checkpoint.gguf import PART, open_gguf
from whatwhere.models.checkpoint.safetensors import is_safetensors, read_header, require_checksum
from whatwhere.models.checkpoint.tokenizer_files import (
    MAX_TOKENIZER_BYTES,
    printable,
    tokenizer_in,
    tokenizer_of_task,
    tokens_in,
)
from whatwhere.models.checkpoint.word_vectors import (
    is_binary,
    is_projector,
    open_binary_vectors,
    open_projector,
    open_text_vectors,
)
from whatwhere.models.configuration.keys import Json
from whatwhere.records import Schema
from whatwhere.what.row_files import require_up_to_date

RESULTS_SCHEMA = Schema(
    "whatwhere-results",
    4,
    "Run the comparison again, into a new folder, or read it with the whatwhere that wrote it.",
    unchecked={3},
)
RESULTS, RESULTS_FORMAT = "results.json", "results"
MAX_RESULTS_BYTES = 200_000_000
TABLE = "input.tokens.weight"
_MODELS = "models"
CONFIG, INDEX = "config.json", ".index.json"
_MAX_INDEX_BYTES = 100_000_000
_MAX_CONFIG_BYTES = 10_000_000
_SAFETENSORS = ("model.safetensors.index.json", "model.safetensors", "diffusion_pytorch_model.safetensors")
_PICKLES = ("pytorch_model.bin.index.json", "pytorch_model.bin", "adapter_model.bin", "model.pth", "model.pt")
_PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_SUFFIXES = (*_PICKLE_SUFFIXES, ".h5", ".msgpack", ".onnx", ".distcp")
_FASTTEXT = (793_712_314).to_bytes(4, "little")
_HDF5, _GZIP = b"\x89HDF\r\n\x1a\n", b"\x1f\x8b"


def open_contents(path: Path, allow_pickle: bool) -> Contents:
    """Detect the format of a file or folder, and read its headers."""
    if path.is_dir():
        return _open_folder(path, allow_pickle)
    file = File(path)
    if path.name == RESULTS:
        return open_results(path.parent)
    head = file.head(16)
    is_zip = head.startswith(b"PK\x03\x04")
    if path.name.endswith(INDEX) or path.suffix == ".safetensors":
        return _open_weights("safetensors", [path], allow_pickle)
    if head.startswith(b"GGUF") or path.suffix == ".gguf":
        return open_gguf(path)
    if head.startswith(np.lib.format.MAGIC_PREFIX) or path.suffix == ".npy":
        return open_npy(file)
    if path.suffix == ".npz" or (is_zip and path.suffix not in _PICKLE_SUFFIXES):
        return open_npz(file)
    if is_zip or (head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")):
        refuse_gensim(file)
        if not allow_pickle:
            raise refuse_pickle(path)
        return Contents("pickle", load_pickle(file))
    if is_safetensors(head):
        return _open_weights("safetensors", [path], allow_pickle)
    if not file.size:
        raise file.wrong("it is empty", "Create or download it again.")
    if path.suffix == ".json":
        raise file.wrong(*_json_without_tensors(file))
    if head.startswith(_FASTTEXT):
        raise file.wrong("it is a model of fastText", "Save its vectors as text, a .vec file, and pass that.")
    if head.startswith(_GZIP):
        raise file.wrong("it is compressed by gzip, and files are read as they are", "Decompress it: gunzip FILE.")
    if head.startswith(_HDF5):
        raise file.wrong("it is HDF5, as Keras writes it", "Save the model as safetensors.")
    if is_binary(file):
        return open_binary_vectors(file)
    return open_projector(path) if path.suffix == ".tsv" else open_text_vectors(file)


def holds_weights(folder: Path) -> bool:
    """Return whether a folder has weights, results of a comparison or word vectors, not a configuration alone."""
    return (folder / RESULTS).is_file() or is_projector(folder) or bool(weight_files(folder))


def weight_files(folder: Path) -> list[Path]:
    """Return the files of weights in a folder: an index, one file, or several safetensors without an index."""
    for name in _SAFETENSORS:
        if (folder / name).is_file():
            return [folder / name]
    files = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    files = files or _gguf_in(folder) or [folder / name for name in _PICKLES if (folder / name).is_file()][:1]
    parts = [] if files else sorted(folder.glob("consolidated.*.pth"))  # several have columns or rows of each tensor
    return parts if len(parts) == 1 else files


def _gguf_in(folder: Path) -> list[Path]:
    """Return the GGUF model of a folder, without its later parts and its projector for images."""
    files = sorted(path for path in folder.glob("*.gguf") if path.is_file() and not path.name.startswith("mmproj"))
    files = [path for path in files if (part := PART.search(path.name)) is None or int(part[1]) == 1]
    if len(files) > 1:
        raise CheckpointError(
            f"{folder} holds {len(files)} models: {', '.join(quoted(path.name) for path in files[:5])}.\nPass one."
        )
    return files


def open_configuration(path: Path) -> Contents:
    """Read a configuration without weights, and the paths of the tokenizer beside it."""
    config = read_json(path, _MAX_CONFIG_BYTES, TIMES) if (file := File(path)).size <= _MAX_CONFIG_BYTES else {}
    if "model_type" not in config:
        raise file.wrong(*_json_without_tensors(file))
    return Contents("configuration", {}, tokens_in(path.parent), config, {}, lambda: tokenizer_in(path.parent))


def _open_folder(folder: Path, allow_pickle: bool) -> Contents:
    weights = weight_files(folder)
    # A folder with weights is a model, even if it also has a results.json or a vectors.tsv.
    if not weights and (folder / RESULTS).is_file():
        return open_results(folder)
    if not weights and is_projector(folder):
        return open_projector(folder)
    if not weights:
        found = (path for form in ("*", "snapshots/*") for path in folder.glob(f"{form}/*.safetensors"))
        inside = sorted({path.parent.relative_to(folder).as_posix() for path in found})[:3]
        other = sorted(path.name for path in folder.iterdir() if path.suffix in _SUFFIXES)[:3]
        hint = "Pass the folder or file of a model."
        if other:
            hint = f"It holds {', '.join(map(quoted, other))}: pass a file of PyTorch by its name, or save safetensors."
        if inside:
            hint = f"There are some in {', '.join(map(quoted, inside))}: pass that folder."
        raise CheckpointError(f"{folder} holds no weights that are read: safetensors, GGUF or PyTorch's.\n{hint}")
    if weights[0].suffix == ".gguf":
        contents = open_gguf(weights[0])
        return contents if contents.config is not None else replace(contents, config=_config_in(folder))
    return _open_weights("folder", weights, allow_pickle)


def _open_weights(format: str, weights: list[Path], allow_pickle: bool) -> Contents:
    """Read the headers of an index, one file, or several safetensors; and what stands beside them."""
    entries: dict[str, Entry] = {}
    metadata: Json = {}
    if weights[0].name.endswith(INDEX):
        entries, metadata = _open_shards(weights[0], allow_pickle)
    else:
        for path in weights:
            more, metadata = _header(path, format, allow_pickle)
            if both := entries.keys() & more.keys():
                raise CheckpointError(
                    f"{path}: the tensor {quoted(min(both))} is also in {entries[min(both)].file.name}.\n"
                    "The folder holds several models, or one twice: pass one of the files."
                )
            entries |= more
    for file in {entry.file for entry in entries.values()}:
        require_up_to_date(file)
    folder = weights[0].parent
    return Contents(format, entries, tokens_in(folder), _config_in(folder), metadata, lambda: tokenizer_in(folder))


def _header(path: Path, format: str, allow_pickle: bool) -> tuple[Mapping[str, Entry], Json]:
    if format == "safetensors" or path.suffix == ".safetensors":
        return read_header(path)
    if not allow_pickle:
        raise refuse_pickle(path)
    return load_pickle(File(path)), {}


def _config_in(folder: Path) -> Json | None:
    path = folder / CONFIG
    return read_json(path, _MAX_CONFIG_BYTES, TIMES) if path.is_file() else None


def _open_shards(index: Path, allow_pickle: bool) -> tuple[dict[str, Entry], Json]:
    contents = read_json(index, _MAX_INDEX_BYTES, TIMES)
    shards, metadata = contents.get("weight_map"), contents.get("metadata") or {}
    if not isinstance(shards, dict) or not shards or not isinstance(metadata, dict):
        raise CheckpointError(f"{index} has no weight_map from tensors to files.\nDownload it again.")
    names = sorted({plain_name(name, str(index)) for name in shards.values()})
    if not allow_pickle and not all(name.endswith(".safetensors") for name in names):
        raise refuse_pickle(index, [index.with_name(name) for name in names])
    headers = {name: _header(_shard(index, name), "folder", allow_pickle)[0] for name in names}
    wrong = next((tensor for tensor in shards if tensor not in headers[shards[tensor]]), None)
    if wrong is not None:
        raise CheckpointError(
            f"{index} places the tensor {quoted(wrong)} in {quoted(shards[wrong])}, which does not contain it.\n"
            "The files are of different versions: download the folder again."
        )
    return {tensor: headers[shards[tensor]][tensor] for tensor in shards}, metadata


def _shard(index: Path, name: str) -> Path:
    path = index.with_name(name)
    if not path.is_file():
        raise CheckpointError(f"{index} names {quoted(name)}, which is not beside it.\nDownload that file too.")
    return path


def _json_without_tensors(file: File) -> tuple[str, str]:
    keys = read_json(file.path, MAX_TOKENIZER_BYTES) if file.size <= MAX_TOKENIZER_BYTES else {}
    if "model" in keys and "added_tokens" in keys:
        return "it is a tokenizer, without vectors", (
            "Pass the folder of its model, or encode a text with it: whatwhere encode TEXT --tokenizer FILE"
        )
    if "model_type" in keys:
        return "it is a configuration, without tensors", (
            "whatwhere inspect prints its sizes and positions; in Python: whatwhere.read(path)."
        )
    return "it is JSON, but no tensors, no configuration with a model_type, and no tokenizer", (
        "Pass the folder of a model, or one file of weights."
    )


# Results of `whatwhere compare`


def open_results(folder: Path) -> Contents:
    """Read the headers of the trained models of a comparison; `rotary-0/input.tokens.weight` is a table of seed 0."""
    path = folder / RESULTS
    results = RESULTS_SCHEMA.unwrap(read_json(path, MAX_RESULTS_BYTES), str(path), CheckpointError)
    entries: dict[str, ByteRange] = {}
    files = _model_files(path, results.get("runs"))
    # Results without trained models have no such folder; if there is one, a missing file is an error.
    for file in files if (folder / _MODELS).is_dir() else ():
        require_checksum(file, RESULTS_SCHEMA)
        for own, entry in read_header(file)[0].items():
            name = f"{file.stem}/{own}"
            entries[name] = replace(entry, name=name)
    tokens = _tokens(results.get("task"))
    return Contents(
        RESULTS_FORMAT,
        entries,
        words=lambda: tokens,
        metadata=results,
        tokenizer=lambda: tokenizer_of_task(results.get("task")),
        token_table=next((name for name in entries if name.endswith(f"/{TABLE}")), None),
    )


def _model_files(path: Path, runs: Any) -> list[Path]:
    """Return the files of the runs, all of which must be in models/."""
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise CheckpointError(f"{path} has no list of runs.\nPass a folder that whatwhere compare has written.")
    files = []
    for run in runs:
        name = run.get("file")
        inside = name.removeprefix(f"{_MODELS}/") if isinstance(name, str) and name.startswith(f"{_MODELS}/") else ""
        files.append(path.parent / _MODELS / plain_name(inside, str(path)))
    return list(dict.fromkeys(files))


def _tokens(task: Any) -> list[str] | None:
    tokens = task.get("tokens") if isinstance(task, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        return None
    return [printable(token) for token in tokens]
