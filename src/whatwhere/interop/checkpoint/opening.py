"""Find out what a file or folder is, by what it begins with, and open it."""

from pathlib import Path

from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint import pickled
from whatwhere.interop.checkpoint.binary_vectors import is_binary, open_binary_vectors
from whatwhere.interop.checkpoint.contents import Contents
from whatwhere.interop.checkpoint.files import File
from whatwhere.interop.checkpoint.folder import INDEX, open_folder, opened_with_files_beside, weights_in
from whatwhere.interop.checkpoint.gguf import is_gguf, open_gguf
from whatwhere.interop.checkpoint.npy import is_npy, open_npy
from whatwhere.interop.checkpoint.npz import open_npz
from whatwhere.interop.checkpoint.projector import is_projector, open_projector
from whatwhere.interop.checkpoint.results import RESULTS, is_results, open_results
from whatwhere.interop.checkpoint.safetensors import is_safetensors
from whatwhere.interop.checkpoint.text_vectors import open_text_vectors

_PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_FASTTEXT = (793_712_314).to_bytes(4, "little")
_HDF5 = b"\x89HDF\r\n\x1a\n"


def open_contents(path: str | Path, allow_pickle: bool) -> Contents:
    """Open what a path names."""
    path = Path(path)
    if path.is_dir():
        return _open_directory(path, allow_pickle)
    file = File(path)
    if path.name == RESULTS:
        return open_results(path.parent)
    head = file.head(16)
    if path.name.endswith(INDEX) or path.suffix == ".safetensors":
        return opened_with_files_beside("safetensors", [path], allow_pickle)
    if is_gguf(head) or path.suffix == ".gguf":
        return open_gguf(path)
    if is_npy(head) or path.suffix == ".npy":
        return open_npy(path)
    if path.suffix == ".npz" or (pickled.is_zip(head) and path.suffix not in _PICKLED):
        return open_npz(path)
    if pickled.is_zip(head) or pickled.is_old_pickle(head):
        if not allow_pickle:
            raise pickled.refuse(path)
        return pickled.open_pickled(path)
    if is_safetensors(head):
        return opened_with_files_beside("safetensors", [path], allow_pickle)
    return _open_vectors(file, head)


def holds_weights(folder: Path) -> bool:
    """Tell whether a folder has more than a configuration."""
    return is_results(folder) or is_projector(folder) or bool(weights_in(folder))


def _open_directory(folder: Path, allow_pickle: bool) -> Contents:
    # A folder of a model may have files of these names besides.
    if not weights_in(folder):
        if is_results(folder):
            return open_results(folder)
        if is_projector(folder):
            return open_projector(folder)
    return open_folder(folder, allow_pickle)


def _open_vectors(file: File, head: bytes) -> Contents:
    if not file.size:
        raise file.wrong("it is empty", "Make or download it anew.")
    if file.path.suffix == ".json":
        raise CheckpointError(f"{file.path} is a configuration, without tensors.\nRead it: whatwhere.read(path).")
    if head.startswith(_FASTTEXT):
        raise file.wrong("it is a model of fastText", "Save its vectors as text, a .vec file, and pass that.")
    if head.startswith(_HDF5):
        raise file.wrong("it is HDF5, as Keras writes it", "Save the model as safetensors.")
    if is_binary(file):
        return open_binary_vectors(file.path)
    return open_projector(file.path) if file.path.suffix == ".tsv" else open_text_vectors(file.path)
