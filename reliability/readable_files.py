"""A small valid file of every format that the product reads, and how it reads it."""

from collections.abc import Callable, Iterator
from pathlib import Path

from reliability.flips import Readable, Values
from tests.models.checkpoint.damage import read_all
from tests.models.checkpoint.samples import make
from whatwhere.models.checkpoint import Checkpoint

_CHECKED = {"npz", "npz-pressed", "pickle"}
"""Samples whose formats have a checksum of every byte that is read: of zip, or our own."""


def readable_files(folder: Path) -> Iterator[Readable]:
    """Make the files, one after another.

    Args:
        folder: to write into.
    """
    samples = make(folder)
    for name, sample in samples.items():
        path = sample.write(folder / name)
        damaged = folder / name / sample.damaged
        yield Readable(name, damaged, _checkpoint(path), name in _CHECKED, 32 if name == "gguf" else 1)


def _checkpoint(path: Path) -> Callable[[], Values]:
    def read() -> Values:
        checkpoint = Checkpoint.open(path, allow_pickle=True)
        arrays = {f"tensor {name}": checkpoint.array(name) for name in checkpoint.tensors}
        about = {name: repr(value) for name, value in read_all(path).items()}
        return {**arrays, **about}

    return read
