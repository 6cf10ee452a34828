"""The format of a path, detected; and folders of Hugging Face: weights, their configuration and tokenizer."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint import pickled
from whatwhere.models.checkpoint.base import Contents, Entry, Reader
from whatwhere.models.checkpoint.byte_ranges import ByteRange, ByteRangeReader
from whatwhere.models.checkpoint.embedding_projector import is_projector, open_projector
from whatwhere.models.checkpoint.files import TIMES, File, plain_name, read_json
from whatwhere.models.checkpoint.gguf import PART, is_gguf, open_gguf
from whatwhere.models.checkpoint.npy import is_npy, open_npy, open_npz
from whatwhere.models.checkpoint.results import RESULTS, is_results, open_results
from whatwhere.models.checkpoint.safetensors import is_safetensors, read_header
from whatwhere.models.checkpoint.tokenizer_files import MAX_TOKENIZER_BYTES, tokenizer_in, tokens_in
from whatwhere.models.checkpoint.word_vectors import is_binary, open_binary_vectors, open_text_vectors
from whatwhere.models.configuration.keys import Json
from whatwhere.what.row_files import require_up_to_date

if TYPE_CHECKING:
    from torch import Tensor

    Stored = TypeVar("Stored", ByteRange, Tensor)

CONFIG, INDEX = "config.json", ".index.json"
_MAX_INDEX_BYTES = 100_000_000
_MAX_CONFIG_BYTES = 10_000_000
_SAFETENSORS = ("model.safetensors.index.json", "model.safetensors", "diffusion_pytorch_model.safetensors")
_PICKLES = ("pytorch_model.bin.index.json", "pytorch_model.bin", "adapter_model.bin")
_PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_FASTTEXT = (793_712_314).to_bytes(4, "little")
_HDF5 = b"\x89HDF\r\n\x1a\n"


def open_contents(path: Path, allow_pickle: bool) -> Contents:
    """Detect the format of a file or folder, and read its headers."""
    if path.is_dir():
        return _open_folder(path, allow_pickle)
    file = File(path)
    if path.name == RESULTS:
        return open_results(path.parent)
    head = file.head(16)
    if path.name.endswith(INDEX) or path.suffix == ".safetensors":
        return _open_weights("safetensors", [path], allow_pickle)
    if is_gguf(head) or path.suffix == ".gguf":
        return open_gguf(path)
    if is_npy(head) or path.suffix == ".npy":
        return open_npy(path)
    if path.suffix == ".npz" or (pickled.is_zip(head) and path.suffix not in _PICKLE_SUFFIXES):
        return open_npz(path)
    if pickled.is_zip(head) or pickled.is_old_pickle(head):
        pickled.refuse_gensim(file)
        if not allow_pickle:
            raise pickled.refuse(path)
        return pickled.open_pickled(path)
    if is_safetensors(head):
        return _open_weights("safetensors", [path], allow_pickle)
    if not file.size:
        raise file.wrong("it is empty", "Create or download it again.")
    if path.suffix == ".json":
        raise file.wrong(*_json_without_tensors(file))
    if head.startswith(_FASTTEXT):
        raise file.wrong("it is a model of fastText", "Save its vectors as text, a .vec file, and pass that.")
    if head.startswith(_HDF5):
        raise file.wrong("it is HDF5, as Keras writes it", "Save the model as safetensors.")
    if is_binary(file):
        return open_binary_vectors(path)
    return open_projector(path) if path.suffix == ".tsv" else open_text_vectors(path)


def holds_weights(folder: Path) -> bool:
    """Return whether a folder has weights, results of a comparison or word vectors, not a configuration alone."""
    return is_results(folder) or is_projector(folder) or bool(weight_files(folder))


def weight_files(folder: Path) -> list[Path]:
    """Return the files of weights in a folder: an index, one file, or several safetensors without an index."""
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


def open_configuration(path: Path) -> Contents:
    """Read a configuration without weights, and the paths of the tokenizer beside it."""
    config = read_json(path, _MAX_CONFIG_BYTES, TIMES)
    return _with_tokenizer("configuration", path.parent, {}, ByteRangeReader({}), config)


def _open_folder(folder: Path, allow_pickle: bool) -> Contents:
    weights = weight_files(folder)
    # A folder with weights is a model, even if it also has a results.json or a vectors.tsv.
    if not weights and is_results(folder):
        return open_results(folder)
    if not weights and is_projector(folder):
        return open_projector(folder)
    if not weights:
        inside = sorted(path.parent.name for path in folder.glob("*/*.safetensors"))[:3]
        hint = (
            f"There are some in {', '.join(map(quoted, inside))}: pass that folder."
            if inside
            else "Pass the folder or file of a model."
        )
        raise CheckpointError(
            f"{folder} holds no weights that are read: safetensors, GGUF or pytorch_model.bin.\n{hint}"
        )
    if weights[0].suffix == ".gguf":
        contents = open_gguf(weights[0])
        return contents if contents.config is not None else replace(contents, config=_config_in(folder))
    return _open_weights("folder", weights, allow_pickle)


def _open_weights(format: str, weights: list[Path], allow_pickle: bool) -> Contents:
    """Read the headers of an index, one file, or several safetensors; and what stands beside them."""
    folder = weights[0].parent
    metadata: Json = {}
    reader: Reader
    if weights[0].name.endswith(INDEX):
        entries, reader, metadata = _open_shards(weights[0], allow_pickle)
    elif weights[0].suffix == ".safetensors" or format == "safetensors":
        entries, reader, metadata = _open_safetensors(weights)
    elif allow_pickle:
        contents = pickled.open_pickled(weights[0])
        entries, reader = contents.entries, contents.reader
    else:
        raise pickled.refuse(weights[0])
    for file in {entry.file for entry in entries.values()}:
        require_up_to_date(file)
    return _with_tokenizer(format, folder, entries, reader, _config_in(folder), metadata)


def _with_tokenizer(
    format: str,
    folder: Path,
    entries: Mapping[str, Entry],
    reader: Reader,
    config: Json | None,
    metadata: Json | None = None,
) -> Contents:
    return Contents(
        format, entries, reader, tokens_in(folder), config, metadata or {}, tokenizer=lambda: tokenizer_in(folder)
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
    names = sorted({plain_name(name, str(index)) for name in shards.values()})
    if all(name.endswith(".safetensors") for name in names):
        headers = {name: read_header(_shard(index, name))[0] for name in names}
        ranges = {tensor: _in_shard(index, tensor, shards[tensor], headers[shards[tensor]]) for tensor in shards}
        return {name: one.entry for name, one in ranges.items()}, ByteRangeReader(ranges), metadata
    if not allow_pickle:
        raise pickled.refuse(index, [index.with_name(name) for name in names])
    files = {name: File(_shard(index, name)) for name in names}
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


def _json_without_tensors(file: File) -> tuple[str, str]:
    """Return what a JSON file is, and what can be done with it."""
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
