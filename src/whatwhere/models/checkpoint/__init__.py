"""Files of models in any format: opened by their headers, read tensor by tensor, and never trusted."""

from pathlib import Path
from typing import Any, overload

from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.checkpoint import Checkpoint
from whatwhere.models.checkpoint.folder import CONFIG, INDEX, RESULTS, holds_weights
from whatwhere.models.checkpoint.hub import is_name, locate
from whatwhere.models.checkpoint.names import Names
from whatwhere.models.checkpoint.word_vectors import write_projector
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.keys import Json
from whatwhere.models.configuration.read import Config, HasDict, from_huggingface

__all__ = ["Checkpoint", "Entry", "Names", "has_tensors", "read", "write_projector"]


@overload
def read(source: Json | HasDict, *, part: str | None = None, like: str | None = None) -> Description: ...


@overload
def read(
    source: str | Path,
    *,
    base: str | Path | None = None,
    part: str | None = None,
    like: str | None = None,
    allow_pickle: bool = False,
) -> Checkpoint | Any: ...  # a Description of a configuration alone, which its path does not tell


def read(
    source: Config,
    *,
    base: str | Path | None = None,
    part: str | None = None,
    like: str | None = None,
    allow_pickle: bool = False,
) -> Checkpoint | Description:
    """Read a model from its files, or its tokens and positions from its configuration alone.

    PyTorch is not imported: only the headers of files are read, and a Description allocates no tables.

    Args:
        source: the path of a file or folder, of any format that Checkpoint reads; a name at huggingface.co, such as
            openai-community/gpt2 or openai-community/gpt2@main, of which only the requested bytes are read; or a
            Hugging Face configuration, as a dictionary or an object.
        base: of an adapter of PEFT, as in `Checkpoint.open`.
        part, like: of the configuration, as in `from_huggingface`.
        allow_pickle: read pickles of PyTorch too. Pass True only where you trust the author.

    Returns:
        A Checkpoint of a path with tensors; its `description` is that of the configuration beside them. A Description
        of a configuration, or of a folder that has nothing else.

    Raises:
        CheckpointError: If the path cannot be read, is damaged, or its format is not supported; or the model type of a
            configuration is not known.
        SettingError: If the configuration has a key that is not supported.

    Examples:
        >>> read({"model_type": "bloom", "vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 4}).score[0]
        ALiBi(num_heads=4)
    """
    if isinstance(source, str | Path):
        if has_tensors(source):
            return Checkpoint.open(source, base=base, allow_pickle=allow_pickle, part=part, like=like)
        source = locate(source)
    return from_huggingface(source, part=part, like=like)


def has_tensors(path: str | Path) -> bool:
    """Return whether a path, or a name in the local cache of Hugging Face, is more than a configuration."""
    path = locate(path)
    try:
        if path.is_dir():
            return holds_weights(path) or not (path / CONFIG).exists()
        if not path.exists() and is_name(path):
            return True
        return path.is_file() and (path.suffix != ".json" or path.name == RESULTS or path.name.endswith(INDEX))
    except OSError:  # opening it as a checkpoint raises an error with the reason
        return True
