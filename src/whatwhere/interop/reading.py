"""Open a model that somebody else has made."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from whatwhere.interop.checkpoint import Checkpoint
from whatwhere.interop.checkpoint.folder import INDEX
from whatwhere.interop.checkpoint.opening import holds_weights
from whatwhere.interop.checkpoint.results import RESULTS

if TYPE_CHECKING:
    from whatwhere.interop.huggingface import Description, HasDict


@overload
def read(
    source: "Mapping[str, Any] | HasDict", *, part: str | None = None, like: str | None = None
) -> "Description": ...


@overload
def read(
    source: str | Path, *, part: str | None = None, like: str | None = None, allow_pickle: bool = False
) -> "Checkpoint | Description": ...


def read(
    source: Any, *, part: str | None = None, like: str | None = None, allow_pickle: bool = False
) -> "Checkpoint | Description":
    """Read a model: its files where there are any, else what its configuration says of tokens and positions.

    A configuration, or a folder with nothing else, gives a Description. Anything with tensors gives a Checkpoint, of
    which only headers have been read; its `description` is that of the configuration beside it.

    Args:
        source: a Hugging Face configuration, as a dictionary or an object; or the path of a file or folder, of any
            format that Checkpoint reads.
        part, like: of the configuration, as in `from_huggingface`.
        allow_pickle: read pickles of PyTorch too. Pass True only where you trust the author.

    >>> read({"model_type": "bloom", "vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 4}).score[0]
    ALiBi(num_heads=4)
    """
    if isinstance(source, str | Path) and _has_tensors(Path(source)):
        return Checkpoint.open(source, allow_pickle=allow_pickle, part=part, like=like)
    from whatwhere.interop.huggingface import from_huggingface

    return from_huggingface(source, part=part, like=like)


def _has_tensors(path: Path) -> bool:
    """Tell whether a path is that of more than a configuration; one that is not there is looked for as one."""
    try:
        if path.is_dir():
            return holds_weights(path) or not (path / "config.json").exists()
        return path.is_file() and (path.suffix != ".json" or path.name == RESULTS or path.name.endswith(INDEX))
    except OSError:  # a Checkpoint will say why
        return True
