"""A changed copy of a checkpoint: changes are collected, then written, and other tensors are copied byte for byte."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from whatwhere.errors import CheckpointError
from whatwhere.long_work import counted
from whatwhere.models.checkpoint.base import NO_TOKENIZER, QUANTIZED, Entry
from whatwhere.models.checkpoint.checkpoint import Checkpoint
from whatwhere.models.checkpoint.files import File, parse_json, plain_name, read_json
from whatwhere.models.checkpoint.folder import INDEX, weight_files
from whatwhere.models.checkpoint.hub import locate
from whatwhere.models.checkpoint.safetensors import (
    TYPES,
    Part,
    computed,
    copied,
    new_file,
    new_folder,
    read_header,
    require_writable_output,
    write_safetensors,
)
from whatwhere.models.checkpoint.tokenizer_files import tokenizer_json_in
from whatwhere.models.configuration.keys import Json
from whatwhere.surgery.report import Changed, Measured, NotCopied, Report

if TYPE_CHECKING:
    from torch import Tensor

WEIGHT_SUFFIXES = (
    ".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".npz", ".onnx", ".ot", ".part", ".pt", ".pth", ".safetensors",
    ".tflite", ".bin.index.json", ".safetensors.index.json",
)  # fmt: skip
"""Suffixes of files of weights, which would be outdated if they were copied."""

_MAX_JSON_BYTES = 200_000_000
_MAX_MODULES_BYTES = 1 << 20


class ChangedCopy:
    """A copy of a checkpoint in safetensors, with changes: one file, or a folder with configuration and tokenizer.

    `source` is an open checkpoint of any format, which is written as one file of weights; None opens safetensors.
    """

    def __init__(self, path: str | Path, out: str | Path, force: bool, source: Checkpoint | None = None) -> None:
        path = locate(path)
        path = path.parent if path.name.endswith(INDEX) else path
        self.path, self.out, self.force = path, Path(out), force
        self.checkpoint = Checkpoint.open(path, base="") if source is None else source
        self.folder: Path | None = path if path.is_dir() else None
        inputs = list(dict.fromkeys(entry.file for entry in self.checkpoint.tensors.values()))
        require_writable_output(self.out, [path, *inputs], force)
        self.index: Path | None = None
        self._weights: dict[str, tuple[list[Part], Json]] = {}  # of each new file: its tensors and metadata
        if source is None:
            self._require_safetensors(inputs)
            for file in inputs:
                ranges, metadata = read_header(file)
                stored = sorted(ranges.values(), key=attrgetter("offset"))
                self._weights[file.name] = [copied(each) for each in stored], metadata
            first = None if self.folder is None else next(iter(weight_files(self.folder)), None)  # files may vanish
            self.index = first if first is not None and first.name.endswith(INDEX) else None
        else:
            self.folder = None if self.out.suffix == ".safetensors" else self.folder
            metadata = {k: v for k, v in source.metadata.items() if isinstance(v, str) and len(v) < 1000}
            self._weights["model.safetensors"] = _widened(source), {"format": "pt", **metadata}
        if (self.folder is None) != (self.out.suffix == ".safetensors"):
            raise CheckpointError(
                f"the input is {'one file' if self.folder is None else 'a folder'}, {path.name}, so the output is one "
                f"too, but {self.out.name} {'does not end' if self.folder is None else 'ends'} in .safetensors.\n"
                "Pass two folders, or two files of safetensors; a folder has configuration and tokenizer."
            )
        self.parts: dict[str, Part] = {}  # tensors that replace those of their names
        self.changed: list[Changed] = []  # what the report says of each
        self.files: dict[str, bytes | None] = {}  # name of a small file -> its new content, or None to omit it
        self.metadata: dict[str, str | None] = {}  # of the headers: key -> its new value, or None to remove it
        self.notes: list[str] = []

    def _require_safetensors(self, files: Sequence[Path]) -> None:
        one = self.folder is None and len(files) == 1  # whose name may be any
        if self.checkpoint.format not in ("safetensors", "folder") or not (
            one or all(file.suffix == ".safetensors" for file in files)
        ):
            if runs := self.checkpoint.runs:
                raise CheckpointError(
                    f"{self.path} holds {len(runs)} runs of a comparison.\n"
                    f"Pass the file of one: models/{runs[0]}.safetensors."
                )
            raise CheckpointError(
                f"{self.path} is {self.checkpoint.format}, but only safetensors can be changed.\n"
                "Its tensors alone can be converted first: whatwhere convert PATH OUT.safetensors --format safetensors."
            )
        for file in files:
            File(file).require_local()

    def json(self, name: str) -> Json | None:
        """Return the contents of a small file of the folder, or None."""
        path = None if self.folder is None else self.folder / name
        return read_json(path, _MAX_JSON_BYTES) if path is not None and path.is_file() else None

    @cached_property
    def tokenizer(self) -> Json | str:
        """The contents of tokenizer.json, or of what older files make of it; or why there are none."""
        return NO_TOKENIZER if self.folder is None else tokenizer_json_in(self.folder)

    def require_tokenizer(self, why: str, way_out: str) -> Json:
        """Return `tokenizer`, or raise CheckpointError with what is not known without it, a part of a sentence."""
        if isinstance(self.tokenizer, str):
            raise CheckpointError(f"{self.path}: {self.tokenizer}, so {why}.\n{way_out}")
        return self.tokenizer

    def replace(self, entry: Entry, part: Part, what: str) -> None:
        """Replace a tensor; `what` is the change in a few words."""
        self.parts[entry.name] = part
        self.changed.append(Changed.of(entry, part, what))

    def compute(
        self, entry: Entry, make: "Callable[[], Tensor]", what: str, shape: tuple[int, ...] | None = None
    ) -> None:
        """Replace a tensor by what `make` returns when it is written, of the same type, and shape if none is given."""
        self.replace(entry, computed(entry.name, entry.dtype, entry.shape if shape is None else shape, make), what)

    def write(self, command: str, measured: Callable[[], Measured | None] = lambda: None) -> Report:
        """Write the copy atomically, and report what was changed and what was measured meanwhile."""
        self.checkpoint.require_stored(self.parts)
        not_copied: list[NotCopied] = []
        files = {name: (self._parts(name), self._edited(metadata)) for name, (_, metadata) in self._weights.items()}
        total = sum(part.bytes for parts, _ in files.values() for part in parts)
        with (new_file if self.folder is None else new_folder)(self.out, self.force) as path:
            if self.folder is not None:
                written = {*files, *([] if self.index is None else [self.index.name])}
                not_copied = copy_other_files(self.folder, path, written, self.files)
            with counted("writing", total, "bytes") as advance:
                size = sum(
                    write_safetensors(path if self.folder is None else path / name, *content, advance)
                    for name, content in files.items()
                )
            if self.index is not None:
                everything = [part for parts, _ in files.values() for part in parts]
                (path / self.index.name).write_bytes(self._new_index(self.index, everything))
        kept = sum(len(parts) for parts, _ in files.values()) - len(self.parts)
        return Report(
            command, str(self.path), str(self.out), tuple(self.changed), kept, size, measured(), tuple(self.notes),
            tuple(not_copied),
        )  # fmt: skip

    def _parts(self, file: str) -> list[Part]:
        parts, _ = self._weights[file]
        # A file may hold a tensor that, by the index, is in another one: this copy is not changed.
        own = {name for name in self.parts if len(self._weights) == 1 or self.checkpoint.entry(name).file.name == file}
        return [self.parts[part.name] if part.name in own else part for part in parts]

    def _edited(self, metadata: Json) -> Json:
        return {key: value for key, value in {**metadata, **self.metadata}.items() if value is not None}

    def _new_index(self, index: Path, parts: Sequence[Part]) -> bytes:
        """Return the index, with the totals in its metadata updated."""
        contents = dict(read_json(index, _MAX_JSON_BYTES))
        totals = {
            "total_size": sum(part.bytes for part in parts),
            "total_parameters": sum(prod(part.shape) for part in parts),
        }
        metadata = contents.get("metadata") or {}
        contents["metadata"] = self._edited({key: totals.get(key, value) for key, value in metadata.items()})
        return as_json(contents)


def _widened(checkpoint: Checkpoint) -> list[Part]:
    """Return every tensor in its stored type, or in float32 where safetensors has no such type."""
    checkpoint.require_stored(checkpoint.tensors)
    parts = []
    for entry in checkpoint.tensors.values():
        dtype = entry.dtype if entry.dtype in TYPES.values() and entry.dtype not in QUANTIZED else "float32"
        parts.append(computed(entry.name, dtype, entry.shape, partial(checkpoint.tensor, entry.name)))
    return parts


def copy_other_files(folder: Path, out: Path, written: set[str], files: Mapping[str, bytes | None]) -> list[NotCopied]:
    """Copy the other files of a model, and the modules of sentence-transformers; return those that are omitted."""
    # It comes before the weights are written, which takes longer: a damaged file is refused at once.
    modules = _modules(folder)
    not_copied: list[NotCopied] = []
    for path in sorted(folder.iterdir()):
        name = path.name
        if path == out or name in written or name in modules or files.get(name) is not None:
            continue
        if name in files:
            not_copied.append(NotCopied(name, "it has the old vocabulary, whose ids have changed"))
        elif name.endswith(WEIGHT_SUFFIXES):
            not_copied.append(NotCopied(name, "its weights are not changed with these"))
        elif not path.is_file():  # a pipe would never end
            not_copied.append(NotCopied(name, "it is a folder" if path.is_dir() else "it is not a regular file"))
        else:
            _copy(path, out / name)
    for name in modules:
        (out / name).mkdir()
        for path in sorted((folder / name).iterdir()):
            if path.is_file():
                _copy(path, out / name / path.name)
    for name, content in files.items():
        if content is not None:
            (out / name).write_bytes(content)
    return not_copied


def _copy(path: Path, to: Path) -> None:
    """Copy a file; of JSON, a tokenizer's among them, write what was parsed: it may change meanwhile."""
    if path.suffix != ".json" or (file := File(path)).size > _MAX_JSON_BYTES:
        shutil.copyfile(path, to)
        return
    parse_json(b'{"file":' + (content := file.head(_MAX_JSON_BYTES)) + b"}", str(path))
    to.write_bytes(content)


def _modules(folder: Path) -> list[str]:
    """Return the subfolders that belong to the model, as modules.json lists them."""
    path = folder / "modules.json"
    if not path.is_file():
        return []
    modules = parse_json(b'{"list":' + File(path).head(_MAX_MODULES_BYTES) + b"}", str(path))["list"]
    paths = [module.get("path") for module in modules if isinstance(module, dict)] if isinstance(modules, list) else []
    return [name for one in paths if one and (folder / (name := plain_name(one, str(path)))).is_dir()]


def as_json(contents: Json) -> bytes:
    """Return JSON as Hugging Face writes it, but in ASCII, which can represent every string."""
    return (json.dumps(contents, indent=2) + "\n").encode()
