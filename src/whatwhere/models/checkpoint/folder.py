"""Folders: models of Hugging Face (weights, configuration, tokenizer), and results of our own comparisons."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint import pickled
from whatwhere.models.checkpoint.base import Contents, Entry, Reader
from whatwhere.models.checkpoint.byte_ranges import ByteRange, ByteRangeReader
from whatwhere.models.checkpoint.files import TIMES, File, plain_name, read_json
from whatwhere.models.checkpoint.gguf import PART, open_gguf
from whatwhere.models.checkpoint.safetensors import read_header, require_checksum
from whatwhere.models.checkpoint.tokenizer_files import tokenizer_in, tokens_in
from whatwhere.models.configuration.keys import Json
from whatwhere.records import Schema

if TYPE_CHECKING:
    from torch import Tensor

    Stored = TypeVar("Stored", ByteRange, Tensor)

CONFIG, INDEX = "config.json", ".index.json"
_MAX_INDEX_BYTES = 100_000_000
_MAX_CONFIG_BYTES = 10_000_000
_SAFETENSORS = ("model.safetensors.index.json", "model.safetensors", "diffusion_pytorch_model.safetensors")
_PICKLES = ("pytorch_model.bin.index.json", "pytorch_model.bin", "adapter_model.bin")

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
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Lone surrogates, which JSON can express and UTF-8 cannot."""


def weight_files(folder: Path) -> list[Path]:
    """Return the files of weights in a folder: an index, one file, or several safetensors without an index.

    Args:
        folder: of a model.

    Raises:
        CheckpointError: If there are several GGUF models.
    """
    for name in _SAFETENSORS:
        if (folder / name).is_file():
            return [folder / name]
    files = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    files = files or _gguf_in(folder)
    return files or [folder / name for name in _PICKLES if (folder / name).is_file()][:1]


def _gguf_in(folder: Path) -> list[Path]:
    """Return the GGUF model of a folder, without its later parts and its projector for images."""
    files = sorted(path for path in folder.glob("*.gguf") if path.is_file() and not path.name.startswith("mmproj"))
    files = [path for path in files if (part := PART.search(path.name)) is None or int(part[1]) == 1]
    if len(files) > 1:
        raise CheckpointError(
            f"{folder} holds {len(files)} models: {', '.join(quoted(path.name) for path in files[:5])}.\n"
            "Pass one of these files."
        )
    return files


def open_folder(folder: str | Path, allow_pickle: bool) -> Contents:
    """Read the headers of the weights in a folder, its configuration, and the paths of its tokenizer.

    Args:
        folder: of a model.
        allow_pickle: read pickles too, whose author you trust.

    Raises:
        CheckpointError: If there are no weights, or they cannot be read.
    """
    folder = Path(folder)
    weights = weight_files(folder)
    if not weights:
        inside = sorted(path.parent.name for path in folder.glob("*/*.safetensors"))[:3]
        hint = (
            f"\nThere are some in {', '.join(map(quoted, inside))}: pass that folder."
            if inside
            else "\nPass the folder or file of a model."
        )
        raise CheckpointError(f"{folder} holds no weights that are read: safetensors, GGUF or pytorch_model.bin.{hint}")
    if weights[0].suffix == ".gguf":
        contents = open_gguf(weights[0])
        return contents if contents.config is not None else replace(contents, config=_config_in(folder))
    return open_with_config_and_tokenizer("folder", weights, allow_pickle)


def open_with_config_and_tokenizer(format: str, weights: list[Path], allow_pickle: bool = False) -> Contents:
    """Read the headers of weights, and the configuration and the tokenizer in their folder.

    Args:
        format: name of the format.
        weights: an index, one file, or several files of safetensors.
        allow_pickle: read pickles too.

    Raises:
        CheckpointError: If they cannot be read, or are pickles and `allow_pickle` is not set.
    """
    folder = weights[0].parent
    metadata: Json = {}
    reader: Reader
    if weights[0].name.endswith(INDEX):
        entries, reader, metadata = _open_shards(weights[0], allow_pickle)
    elif weights[0].suffix == ".safetensors":
        entries, reader, metadata = _open_safetensors(weights)
    else:
        if not allow_pickle:
            raise pickled.refuse(weights[0])
        contents = pickled.open_pickled(weights[0])
        entries, reader = contents.entries, contents.reader
    return Contents(
        format,
        entries,
        reader,
        words=tokens_in(folder),
        config=_config_in(folder),
        metadata=metadata,
        tokenizer=lambda: tokenizer_in(folder),
    )


def open_configuration(path: Path) -> Contents:
    """Read a configuration without weights, and the paths of the tokenizer beside it.

    Args:
        path: of the file.

    Raises:
        CheckpointError: If it cannot be read.
    """
    return Contents(
        "configuration",
        {},
        ByteRangeReader({}),
        words=tokens_in(path.parent),
        config=read_json(path, _MAX_CONFIG_BYTES, TIMES),
        tokenizer=lambda: tokenizer_in(path.parent),
    )


def _config_in(folder: Path) -> Json | None:
    path = folder / CONFIG
    return read_json(path, _MAX_CONFIG_BYTES, TIMES) if path.is_file() else None


def _open_safetensors(weights: list[Path]) -> tuple[Mapping[str, Entry], Reader, Json]:
    ranges: dict[str, ByteRange] = {}
    metadata: Json = {}
    for path in weights:
        more, metadata = read_header(path)
        if both := ranges.keys() & more.keys():
            raise CheckpointError(
                f"{path}: the tensor {quoted(min(both))} is also in {ranges[min(both)].entry.file.name}.\n"
                "The folder holds several models, or one twice: pass one of the files."
            )
        ranges |= more
    return {name: one.entry for name, one in ranges.items()}, ByteRangeReader(ranges), metadata


def _open_shards(index: Path, allow_pickle: bool) -> tuple[Mapping[str, Entry], Reader, Json]:
    """Read an index, and the headers of its shards."""
    contents = read_json(index, _MAX_INDEX_BYTES, TIMES)
    shards, metadata = contents.get("weight_map"), contents.get("metadata") or {}
    if not isinstance(shards, dict) or not shards or not isinstance(metadata, dict):
        raise CheckpointError(f"{index} has no weight_map from tensors to files.\nDownload it again.")
    names = {plain_name(name, str(index)) for name in shards.values()}
    if all(name.endswith(".safetensors") for name in names):
        headers = {name: read_header(_shard(index, name))[0] for name in sorted(names)}
        ranges = {tensor: _in_shard(index, tensor, shards[tensor], headers[shards[tensor]]) for tensor in shards}
        return {name: one.entry for name, one in ranges.items()}, ByteRangeReader(ranges), metadata
    if not allow_pickle:
        raise pickled.refuse(index, [index.with_name(name) for name in sorted(names)])
    files = {name: File(_shard(index, name)) for name in sorted(names)}
    loaded, stored = {}, set[tuple[int, int]]()
    for name, file in files.items():
        loaded[name], own = pickled.load(file)
        stored |= own
    tensors = {tensor: _in_shard(index, tensor, shards[tensor], loaded[shards[tensor]]) for tensor in shards}
    entries = {name: pickled.entry_of(files[shards[name]], name, tensor) for name, tensor in tensors.items()}
    largest = max(files.values(), key=lambda file: file.size)
    return entries, pickled.Pickled(largest, tensors, stored), metadata


def _shard(index: Path, name: str) -> Path:
    path = index.with_name(name)
    if not path.is_file():
        raise CheckpointError(
            f"{index} names the file {quoted(name)}, which is not beside it.\nDownload that file too."
        )
    return path


def _in_shard(index: Path, tensor: str, name: str, header: "Mapping[str, Stored]") -> "Stored":
    if tensor not in header:
        raise CheckpointError(
            f"{index} places the tensor {quoted(tensor)} in {quoted(name)}, which does not contain it.\n"
            "The files are of different versions: download the folder again."
        )
    return header[tensor]


# Results of `whatwhere compare`: the trained model of each run, under the name of its file


def is_results(folder: Path) -> bool:
    """Return whether a folder has results of `whatwhere compare`: the file that it writes last.

    Args:
        folder: any folder.
    """
    return (folder / RESULTS).is_file()


def open_results(folder: str | Path) -> Contents:
    """Read the headers of the trained models of a comparison; `rotary-0/input.tokens.weight` is a table of seed 0.

    Args:
        folder: written by `whatwhere compare`.

    Raises:
        CheckpointError: If it has another format or version, or a file is missing or damaged.
    """
    path = Path(folder) / RESULTS
    results = RESULTS_SCHEMA.opened(read_json(path, MAX_RESULTS_BYTES), str(path), CheckpointError)
    ranges: dict[str, ByteRange] = {}
    files = _model_files(path, results.get("runs"))
    # Results without trained models have no such folder; if there is one, a missing file is an error.
    for file in files if (path.parent / _MODELS).is_dir() else ():
        require_checksum(file, RESULTS_SCHEMA)
        header, _ = read_header(file)
        ranges |= {f"{file.stem}/{name}": _renamed(one, f"{file.stem}/{name}") for name, one in header.items()}
    entries = {name: one.entry for name, one in ranges.items()}
    table = next((name for name in entries if name.endswith(f"/{TABLE}")), None)
    tokens = _tokens(results.get("task"))
    return Contents(
        RESULTS_FORMAT, entries, ByteRangeReader(ranges), words=lambda: tokens, metadata=results, token_table=table
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


def _renamed(source: ByteRange, name: str) -> ByteRange:
    return replace(source, entry=replace(source.entry, name=name))


def _tokens(task: Any) -> list[str] | None:
    tokens = task.get("tokens") if isinstance(task, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        return None
    return [_SURROGATE.sub("\ufffd", token) for token in tokens]
