"""Detection of the format of a file or folder, of every format that is read."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np

from whatwhere.models.checkpoint import pickled
from whatwhere.models.checkpoint.base import Chosen, Contents, Reader
from whatwhere.models.checkpoint.embedding_projector import is_projector, open_projector
from whatwhere.models.checkpoint.files import File, read_json
from whatwhere.models.checkpoint.folder import (
    INDEX,
    RESULTS,
    is_results,
    open_folder,
    open_results,
    open_with_config_and_tokenizer,
    weight_files,
)
from whatwhere.models.checkpoint.gguf import is_gguf, open_gguf
from whatwhere.models.checkpoint.npy import is_npy, open_npy, open_npz
from whatwhere.models.checkpoint.safetensors import is_safetensors
from whatwhere.models.checkpoint.tokenizer_files import MAX_TOKENIZER_BYTES
from whatwhere.models.checkpoint.word_vectors import is_binary, open_binary_vectors, open_text_vectors

if TYPE_CHECKING:
    from torch import Tensor

_PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_FASTTEXT = (793_712_314).to_bytes(4, "little")
_HDF5 = b"\x89HDF\r\n\x1a\n"


def holds_weights(folder: Path) -> bool:
    """Return whether a folder has weights, results of a comparison or word vectors, rather than a configuration alone.

    Args:
        folder: of a model.
    """
    return is_results(folder) or is_projector(folder) or bool(weight_files(folder))


def open_contents(path: Path, allow_pickle: bool) -> Contents:
    """Detect the format of a file or folder, and read its headers.

    Args:
        path: of a file or folder.
        allow_pickle: read pickles too.

    Raises:
        CheckpointError: If it cannot be read, is damaged, or its format is not supported.
    """
    if path.is_dir():
        return _open_directory(path, allow_pickle)
    file = File(path)
    if path.name == RESULTS:
        return open_results(path.parent)
    head = file.head(16)
    if path.name.endswith(INDEX) or path.suffix == ".safetensors":
        return open_with_config_and_tokenizer("safetensors", [path], allow_pickle)
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
        return open_with_config_and_tokenizer("safetensors", [path], allow_pickle)
    return _open_vectors(file, head)


def _open_directory(folder: Path, allow_pickle: bool) -> Contents:
    # A folder with weights is a model, even if it also has a results.json or a vectors.tsv.
    if not weight_files(folder):
        if is_results(folder):
            return open_results(folder)
        if is_projector(folder):
            return open_projector(folder)
    return open_folder(folder, allow_pickle)


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


@final
class Renamed(Reader):
    """A reader of some tensors under other names.

    Args:
        reader: of the tensors.
        names: the new name -> that of the reader.
    """

    def __init__(self, reader: Reader, names: Mapping[str, str]) -> None:
        self._reader, self._names = reader, names

    def array(self, name: str, rows: Chosen | None) -> np.ndarray:
        """Read a tensor by its new name."""
        return self._reader.array(self._names[name], rows)

    def tensor(self, name: str, rows: Chosen | None) -> "Tensor":
        """Read a tensor by its new name."""
        return self._reader.tensor(self._names[name], rows)


def _open_vectors(file: File, head: bytes) -> Contents:
    if not file.size:
        raise file.wrong("it is empty", "Create or download it again.")
    if file.path.suffix == ".json":
        raise file.wrong(*_json_without_tensors(file))
    if head.startswith(_FASTTEXT):
        raise file.wrong("it is a model of fastText", "Save its vectors as text, a .vec file, and pass that.")
    if head.startswith(_HDF5):
        raise file.wrong("it is HDF5, as Keras writes it", "Save the model as safetensors.")
    if is_binary(file):
        return open_binary_vectors(file.path)
    return open_projector(file.path) if file.path.suffix == ".tsv" else open_text_vectors(file.path)
