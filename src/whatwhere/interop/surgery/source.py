"""A checkpoint that is read to be changed, and what is written in its place: other tensors byte for byte."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint.checkpoint import Checkpoint
from whatwhere.interop.checkpoint.files import File, parse_json, plain_name, read_json
from whatwhere.interop.checkpoint.folder import INDEX, weights_in
from whatwhere.interop.checkpoint.safetensors import read_header
from whatwhere.interop.checkpoint.stretches import Stretch
from whatwhere.interop.checkpoint.writing import (
    Part,
    copied,
    new_file,
    new_folder,
    require_apart,
    write_safetensors,
)

Told = Callable[[int], None]
WEIGHTS = (
    ".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".npz", ".onnx", ".ot", ".part", ".pt", ".pth", ".safetensors",
    ".tflite", ".bin.index.json", ".safetensors.index.json",
)  # fmt: skip
"""Ends of names of weights, of which copies would be those of before."""

_LARGEST_JSON = 200_000_000
_LARGEST_LIST = 1 << 20


@dataclass(frozen=True)
class Shard:
    """Hold what one file of safetensors says.

    Args:
        path: of it.
        metadata: of its header.
        stretches: its tensors, by name.
    """

    path: Path
    metadata: Mapping[str, Any]
    stretches: Mapping[str, Stretch]


@dataclass(frozen=True, eq=False)
class Edits:
    """Say what shall be other than before.

    Args:
        parts: tensors, in place of those of their names.
        files: small files of the folder: their new content, or None for those that are left out.
        metadata: keys of the headers' metadata: their new value, or None for those that are removed.
    """

    parts: Mapping[str, Part] = field(default_factory=dict)
    files: Mapping[str, bytes | None] = field(default_factory=dict)
    metadata: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Written:
    """Say what was written.

    Args:
        bytes: of all weights.
        kept: how many tensors were copied byte for byte.
        left_out: files of the folder that were not copied.
    """

    bytes: int
    kept: int
    left_out: tuple[str, ...] = ()


class Source:
    """Hold a checkpoint in safetensors: one file, or a folder with its configuration and tokenizer.

    Args:
        path: of a folder, of an index in it, or of one file.
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        path = path.parent if path.name.endswith(INDEX) else path
        self.path = path
        self.checkpoint = Checkpoint.open(path)
        self.folder: Path | None = path if path.is_dir() else None
        files = dict.fromkeys(entry.file for entry in self.checkpoint.tensors.values())
        if self.checkpoint.format not in ("safetensors", "folder") or any(
            file.suffix != ".safetensors" for file in files if len(files) > 1 or self.folder is not None
        ):
            raise CheckpointError(
                f"{path} is {self.checkpoint.format}, but only safetensors are changed.\n"
                "Convert it first: whatwhere convert PATH OUT.safetensors --format safetensors."
            )
        self.shards = [Shard(file, *read_header(file)[::-1]) for file in files]
        self.index = self._index()

    def stretch(self, name: str) -> Stretch:
        """Give where a tensor stands."""
        file = self.checkpoint.entry(name).file
        return next(shard.stretches[name] for shard in self.shards if shard.path == file)

    def json(self, name: str) -> dict[str, Any] | None:
        """Read a small file of the folder, or give None."""
        path = None if self.folder is None else self.folder / name
        return read_json(path, _LARGEST_JSON) if path is not None and path.is_file() else None

    def require_output(self, out: Path, force: bool) -> None:
        """Raise CheckpointError unless `out` is of the same kind as what is read, and apart from it."""
        require_apart(out, [*(shard.path for shard in self.shards), self.path], force)
        if self.folder is None and out.suffix != ".safetensors":
            raise CheckpointError(
                f"one file is read, {self.path.name}, so one is written, but {out.name} does not end in .safetensors.\n"
                "Name it so, or pass the folder, with configuration and tokenizer, to write a folder."
            )
        if self.folder is not None and out.suffix == ".safetensors":
            raise CheckpointError(
                f"a folder is read, so one is written, but {out.name} is the name of a file.\n"
                "Give the name of a new folder, or pass the one file of weights."
            )

    def write(self, out: Path, edits: Edits, force: bool = False, told: Told | None = None) -> Written:
        """Write everything anew, with what was changed; the whole appears at once or not at all."""
        self.require_output(out, force)
        if self.folder is None:
            with new_file(out, force) as path:
                size = self._write_shard(self.shards[0], path, edits, told)
            return Written(size, self._kept(edits))
        with new_folder(out, force) as path:
            size = sum(self._write_shard(shard, path / shard.path.name, edits, told) for shard in self.shards)
            if self.index is not None:
                (path / self.index.name).write_bytes(self._indexed(edits))
            names = {file.name for file in (*(shard.path for shard in self.shards), self.index) if file is not None}
            left_out = copy_beside(self.folder, path, names, edits.files)
        return Written(size, self._kept(edits), tuple(left_out))

    @property
    def size(self) -> int:
        """How many bytes of tensors there are."""
        return sum(stretch.entry.bytes for shard in self.shards for stretch in shard.stretches.values())

    def _kept(self, edits: Edits) -> int:
        return sum(len(shard.stretches) for shard in self.shards) - len(edits.parts)

    def _index(self) -> Path | None:
        if self.folder is None:
            return None
        first = weights_in(self.folder)[0]
        return first if first.name.endswith(INDEX) else None

    def _parts(self, shard: Shard, edits: Edits) -> Iterator[Part]:
        for name, stretch in sorted(shard.stretches.items(), key=lambda item: item[1].offset):
            known = self.checkpoint.tensors.get(name)
            mine = known is not None and known.file == shard.path
            yield edits.parts[name] if mine and name in edits.parts else copied(stretch)

    def _write_shard(self, shard: Shard, path: Path, edits: Edits, told: Told | None) -> int:
        return write_safetensors(path, list(self._parts(shard, edits)), _edited(shard.metadata, edits), told)

    def _indexed(self, edits: Edits) -> bytes:
        """Give the index, with the sums that its metadata states."""
        assert self.index is not None
        said = read_json(self.index, _LARGEST_JSON)
        parts = [part for shard in self.shards for part in self._parts(shard, edits)]
        stated = {"total_size": sum(part.bytes for part in parts), "total_parameters": _numbers(parts)}
        metadata = said.get("metadata") or {}
        said["metadata"] = _edited({key: stated.get(key, value) for key, value in metadata.items()}, edits)
        return as_json(said)


def _edited(metadata: Mapping[str, Any], edits: Edits) -> dict[str, Any]:
    return {key: value for key, value in {**metadata, **edits.metadata}.items() if value is not None}


def copy_beside(folder: Path, out: Path, written: set[str], files: Mapping[str, bytes | None]) -> list[str]:
    """Copy the other files of a model, with what modules.json of sentence-transformers names; give what was left out.

    Args:
        folder, out: from, and into.
        written: names that are written by others.
        files: other contents, or None for files that are left out.
    """
    modules, left_out = _modules(folder), []
    for path in sorted(folder.iterdir()):
        name = path.name
        if path == out or name in written or name in modules or files.get(name) is not None:
            continue
        if name in files or name.endswith(WEIGHTS) or not path.is_file():  # nor is a pipe read, which would never end
            left_out.append(name)
        else:
            shutil.copyfile(path, out / name)
    for name in modules:
        (out / name).mkdir()
        for path in sorted((folder / name).iterdir()):
            if path.is_file():
                shutil.copyfile(path, out / name / path.name)
    for name, content in files.items():
        if content is not None:
            (out / name).write_bytes(content)
    return left_out


def _modules(folder: Path) -> list[str]:
    """Give the folders inside that belong to the model."""
    path = folder / "modules.json"
    if not path.is_file():
        return []
    listed = parse_json(b'{"list":' + File(path).head(_LARGEST_LIST) + b"}", str(path))["list"]
    named = [one.get("path") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [name for one in named if one and (folder / (name := plain_name(one, str(path)))).is_dir()]


def _numbers(parts: list[Part]) -> int:
    found = 0
    for part in parts:
        count = 1
        for size in part.shape:
            count *= size
        found += count
    return found


def as_json(said: Mapping[str, Any]) -> bytes:
    """Write JSON as Hugging Face does, but in ASCII, which holds every string."""
    return (json.dumps(said, indent=2) + "\n").encode()
