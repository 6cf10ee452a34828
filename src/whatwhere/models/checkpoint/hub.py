"""Names of models at huggingface.co: the folder of one in the local cache, or one that is read by byte ranges."""

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from whatwhere.atomic import write_atomic
from whatwhere.errors import CheckpointError
from whatwhere.escape import visible
from whatwhere.models.checkpoint.hub_files import (
    HubFile,
    cache_errors,
    download_range,
    hub_errors,
    hugging_face_home,
    ranges_folder,
)

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

_NAME = re.compile(
    r"(?!.*\.\.)[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?(@[A-Za-z0-9][\w./-]{0,95})?", re.ASCII
)
_FILE = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][\w.-]{0,200}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SUFFIXES = (".json", ".txt", ".model", ".safetensors", ".gguf")
"""Suffixes of the files that are read; others, such as pickles and code, are not in the folder."""
_SMALL = 1 << 20
_MOST_FILES = 2000
_COMPLETE = ".complete"


def is_name(path: str | Path) -> bool:
    """Return whether a path may be the name of a model at huggingface.co, and no file here has it.

    Args:
        path: as the user wrote it: one or two parts, and perhaps a revision.

    Examples:
        >>> is_name("meta-llama/Llama-3.1-8B@main"), is_name("../model"), is_name("a/b/c")
        (True, False, False)
    """
    return _NAME.fullmatch(str(path)) is not None and not Path(path).exists()


def locate(path: str | Path) -> Path:
    """Return the local path for a path or a name: what is here, else a model in the cache, else one at huggingface.co.

    The cache is the one that transformers and `hf download` fill. What it lacks is read from huggingface.co, where the
    name has two parts and the package huggingface_hub may go online: small files are downloaded, others by the ranges
    that are requested.

    Args:
        path: of a file or folder, or a name such as "openai-community/gpt2" or "openai-community/gpt2@main".

    Returns:
        The path; the given one where it is no name, or nothing could be looked up.

    Raises:
        CheckpointError: If huggingface.co does not know the model, refuses it, or sends something else than it should.
    """
    if not is_name(path):
        return Path(path)
    name, _, revision = str(path).partition("@")
    snapshot = _cached_snapshot(name, revision or "main")
    if snapshot is not None and any(snapshot.glob("*.safetensors*")):
        return snapshot
    if "/" not in name or _is_offline():
        return snapshot or _earlier(name, revision or "main") or Path(path)
    return _folder_at_hub(name, revision or "main")


def _is_offline() -> bool:
    """Return whether huggingface_hub is not installed, or may not go online."""
    try:
        from huggingface_hub import constants
    except ImportError:
        return True
    return bool(constants.HF_HUB_OFFLINE)


def why_not_found(path: str | Path) -> str:
    """Return the way out for a name that was not found, as lines for an error; "" where it is no name.

    Args:
        path: as the user wrote it.
    """
    if not is_name(path) or ("/" not in str(path) and "." in str(path)):
        return ""
    name = str(path).partition("@")[0]
    if "/" not in name:
        return (
            "If it is a model at huggingface.co: it is not in the local cache, and is looked up only by its two names, "
            f"as in openai-community/gpt2.\nOr download it by hf download {name}, and pass the name again."
        )
    return (
        "If it is a model at huggingface.co: it is not in the local cache, and HF_HUB_OFFLINE is set or the package "
        f"huggingface_hub is missing.\nUnset it, or pip install 'whatwhere[hub]'; or download the model by hf download "
        f"{name}, and pass the name again."
    )


# In the cache that transformers and `hf download` fill


def _cached_snapshot(name: str, revision: str) -> Path | None:
    """Return the folder of a model in the cache of Hugging Face; None where it is not there."""
    cache = os.environ.get("HF_HUB_CACHE")
    folder = Path(cache) if cache else hugging_face_home() / "hub"
    repository = folder / f"models--{name.replace('/', '--')}"
    commit = revision if _COMMIT.fullmatch(revision) else _read_commit(repository / "refs" / revision)
    snapshot = repository / "snapshots" / commit
    return snapshot if commit and snapshot.is_dir() else None


def _read_commit(path: Path) -> str:
    """Return the commit that a file names; "" where it names none."""
    try:
        commit = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return commit if _COMMIT.fullmatch(commit) else ""


# At huggingface.co


def _reference(name: str, revision: str) -> Path:
    """Return the file that names the commit of a revision, as it was when it was last looked up."""
    return ranges_folder() / "refs" / name.replace("/", "--") / revision.replace("/", "--")


def _earlier(name: str, revision: str) -> Path | None:
    """Return the folder of a model that was read from huggingface.co before; None where there is none."""
    commit = revision if _COMMIT.fullmatch(revision) else _read_commit(_reference(name, revision))
    folder = _folder(name, commit)
    return folder if commit and (folder / _COMPLETE).is_file() else None


def _folder(name: str, commit: str) -> Path:
    return ranges_folder() / f"{name.replace('/', '--')}@{commit[:12]}"


@cache  # one program reads one version of a branch
def _folder_at_hub(name: str, revision: str) -> Path:
    """Look a model up, and return its folder: small files, and pointers to the others."""
    info = _look_up(name, revision)
    commit = info.sha or ""
    if not _COMMIT.fullmatch(commit):
        raise CheckpointError(f"huggingface.co names no commit of {name}.\nTry again later.")
    folder = _folder(name, commit)
    with cache_errors(folder):
        if not (folder / _COMPLETE).is_file():
            folder.mkdir(parents=True, exist_ok=True)
            for file in _files(name, commit, info):
                _write(file, folder / file.name)
            (folder / _COMPLETE).touch()
        reference = _reference(name, revision)
        reference.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(reference, commit, follow=False)
    return folder


def _look_up(name: str, revision: str) -> "ModelInfo":
    from huggingface_hub import HfApi

    with hub_errors(name):
        return HfApi().model_info(name, revision=revision, files_metadata=True, timeout=30.0)


def _files(name: str, commit: str, info: "ModelInfo") -> Iterable[HubFile]:
    """Yield the files that are read: those of known suffixes outside of folders, with plain names."""
    siblings = info.siblings or []
    if len(siblings) > _MOST_FILES:
        raise CheckpointError(
            f"{name} has {len(siblings):,} files at huggingface.co, and at most {_MOST_FILES:,} are listed.\n"
            f"Download those that you need: hf download {name} FILE ..."
        )
    for sibling in siblings:
        file, size = sibling.rfilename, sibling.size
        if not _FILE.fullmatch(file) or not file.endswith(_SUFFIXES):
            continue
        if not isinstance(size, int) or not 0 <= size < 2**63:
            raise CheckpointError(f"huggingface.co states no size of {name}/{visible(file)}.\nTry again later.")
        yield HubFile(name, commit, file, size)


def _write(file: HubFile, path: Path) -> None:
    """Write a small file as it is, and of a larger one a pointer."""
    if file.size > _SMALL or file.name.endswith((".safetensors", ".gguf")):
        file.write_pointer(path)
        return
    write_atomic(path, download_range(file, 0, file.size) if file.size else b"", follow=False)
