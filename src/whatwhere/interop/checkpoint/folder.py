"""Folders as Hugging Face has them: weights in one file or in shards, a configuration, a tokenizer."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint import pickled
from whatwhere.interop.checkpoint.contents import Contents, Entry, Reader
from whatwhere.interop.checkpoint.files import File, plain_name, read_json, shown
from whatwhere.interop.checkpoint.gguf import PART, open_gguf
from whatwhere.interop.checkpoint.safetensors import read_header
from whatwhere.interop.checkpoint.stretches import Stretch, Stretches
from whatwhere.interop.checkpoint.tokens import words_of

if TYPE_CHECKING:
    from torch import Tensor

    Place = TypeVar("Place", Stretch, Tensor)

INDEX = ".index.json"
_LARGEST_INDEX = 100_000_000
_LARGEST_CONFIG = 10_000_000
_SAFE = ("model.safetensors.index.json", "model.safetensors", "diffusion_pytorch_model.safetensors")
_PICKLES = ("pytorch_model.bin.index.json", "pytorch_model.bin")


def weights_in(folder: Path) -> list[Path]:
    """Give the weights of a folder: an index, one file, or safetensors without an index; empty if there are none."""
    for name in _SAFE:
        if (folder / name).is_file():
            return [folder / name]
    found = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    found = found or _gguf_in(folder)
    return found or [folder / name for name in _PICKLES if (folder / name).is_file()][:1]


def _gguf_in(folder: Path) -> list[Path]:
    """Give the one GGUF model of a folder: later parts and what reads images aside, there must not be two."""
    found = sorted(path for path in folder.glob("*.gguf") if path.is_file() and not path.name.startswith("mmproj"))
    found = [path for path in found if (part := PART.search(path.name)) is None or int(part[1]) == 1]
    if len(found) > 1:
        raise CheckpointError(
            f"{folder} holds {len(found)} models: {', '.join(shown(path.name) for path in found[:5])}.\n"
            "Pass the file that you mean."
        )
    return found


def open_folder(folder: str | Path, allow_pickle: bool) -> Contents:
    """Open a folder of a model."""
    folder = Path(folder)
    weights = weights_in(folder)
    if not weights:
        inside = sorted(path.parent.name for path in folder.glob("*/*.safetensors"))[:3]
        hint = f"\nThere are some in {', '.join(map(shown, inside))}: pass that folder." if inside else ""
        raise CheckpointError(f"{folder} holds no weights that are read: safetensors, GGUF or pytorch_model.bin.{hint}")
    if weights[0].suffix == ".gguf":
        found = open_gguf(weights[0])
        return found if found.config is not None else replace(found, config=config_in(folder))
    return opened_with_files_beside("folder", weights, allow_pickle)


def opened_with_files_beside(format: str, weights: list[Path], allow_pickle: bool = False) -> Contents:
    """Open weights with the configuration and the tokenizer in their folder."""
    folder = weights[0].parent
    metadata: Mapping[str, Any] = {}
    reader: Reader
    if weights[0].name.endswith(INDEX):
        entries, reader, metadata = _sharded(weights[0], allow_pickle)
    elif weights[0].suffix == ".safetensors":
        entries, reader, metadata = _several(weights)
    else:
        if not allow_pickle:
            raise pickled.refuse(weights[0])
        contents = pickled.open_pickled(weights[0])
        entries, reader = contents.entries, contents.reader
    tokenizer = folder / "tokenizer.json"
    return Contents(
        format,
        entries,
        reader,
        words=words_of(folder),
        config=config_in(folder),
        metadata=metadata,
        tokenizer=tokenizer if tokenizer.is_file() else None,
    )


def config_in(folder: Path) -> dict[str, Any] | None:
    """Read config.json, if it is there."""
    path = folder / "config.json"
    return read_json(path, _LARGEST_CONFIG) if path.is_file() else None


def _several(weights: list[Path]) -> tuple[Mapping[str, Entry], Reader, Mapping[str, Any]]:
    stretches: dict[str, Stretch] = {}
    metadata: dict[str, Any] = {}
    for path in weights:
        more, metadata = read_header(path)
        if both := stretches.keys() & more.keys():
            raise CheckpointError(
                f"{path}: the tensor {shown(min(both))} is also in {stretches[min(both)].entry.file.name}.\n"
                "The folder holds several models, or one twice: pass the file that you mean."
            )
        stretches |= more
    return {name: stretch.entry for name, stretch in stretches.items()}, Stretches(stretches), metadata


def _sharded(index: Path, allow_pickle: bool) -> tuple[Mapping[str, Entry], Reader, Mapping[str, Any]]:
    """Read an index and the headers of the shards that it names."""
    said = read_json(index, _LARGEST_INDEX)
    places, metadata = said.get("weight_map"), said.get("metadata") or {}
    if not isinstance(places, dict) or not places or not isinstance(metadata, dict):
        raise CheckpointError(f"{index} has no weight_map, which says where each tensor is.\nDownload it anew.")
    names = {plain_name(name, str(index)) for name in places.values()}
    if all(name.endswith(".safetensors") for name in names):
        headers = {name: read_header(_shard(index, name))[0] for name in sorted(names)}
        stretches = {tensor: _found(index, tensor, places[tensor], headers[places[tensor]]) for tensor in places}
        return {name: stretch.entry for name, stretch in stretches.items()}, Stretches(stretches), metadata
    if not allow_pickle:
        raise pickled.refuse(index)
    files = {name: File(_shard(index, name)) for name in sorted(names)}
    loaded = {name: pickled.load(file) for name, file in files.items()}
    tensors = {tensor: _found(index, tensor, places[tensor], loaded[places[tensor]]) for tensor in places}
    entries = {name: pickled.entry_of(files[places[name]], name, tensor) for name, tensor in tensors.items()}
    largest = max(files.values(), key=lambda file: file.size)
    return entries, pickled.Pickled(largest, tensors), metadata


def _shard(index: Path, name: str) -> Path:
    path = index.with_name(name)
    if not path.is_file():
        raise CheckpointError(
            f"{index} names the file {shown(name)}, which is not beside it.\nDownload the rest of it."
        )
    return path


def _found(index: Path, tensor: str, name: str, header: "Mapping[str, Place]") -> "Place":
    if tensor not in header:
        raise CheckpointError(
            f"{index} says that the tensor {shown(tensor)} is in {shown(name)}, which does not hold it.\n"
            "The files are of different versions: download the folder anew."
        )
    return header[tensor]
