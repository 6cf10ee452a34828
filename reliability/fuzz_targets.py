"""What is fuzzed: samples of the formats of others, and files of ours, whose checksums fit again after each damage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reliability.flips import Readable
from reliability.readable_files import OWN
from reliability.seals import Seal
from tests.models.checkpoint.damage import refuses_or_reads, withstands
from tests.models.checkpoint.samples import FORMATS, Sample, make


@dataclass(frozen=True)
class Target:
    """A valid file, and how it is damaged and read.

    Args:
        name: of the format.
        content: of the valid file, or the part of it that is damaged.
        withstands: reads damaged content; returns whether it was refused. Any other error passes through.
    """

    name: str
    content: bytes
    withstands: Callable[[bytes], bool]


def targets(folder: Path, names: Sequence[str]) -> list[Target]:
    """Make the files of some formats.

    Args:
        folder: to write into.
        names: of samples, or of what has files of ours.
    """
    samples = make(folder)
    made: list[Target] = []
    for name in names:
        path = folder / f"of {len(made)}"
        path.mkdir()
        made += _of_own(path, name) if name in OWN else [_of_sample(name, samples[name], path)]
    return made


def groups() -> dict[str, list[str]]:
    """Return the names for `targets` by group, each of which is fuzzed in a process of its own."""
    return {**FORMATS, **{name: [name] for name in OWN}}


def _of_sample(name: str, sample: Sample, folder: Path) -> Target:
    return Target(name, sample.files[sample.damaged], lambda content: withstands(sample, content, folder))


def _of_own(folder: Path, name: str) -> list[Target]:
    files = list(OWN[name](folder))
    kept = _Kept(folder)
    return [_of_file(each, each.path.read_bytes(), each.seal or _unsealed(each.path), kept) for each in files]


def _unsealed(path: Path) -> Seal:
    return lambda content: {path: content}


def _of_file(file: Readable, content: bytes, seal: Seal, kept: "_Kept") -> Target:
    def reads(damaged: bytes) -> bool:
        kept.restore()
        written = seal(damaged)
        for path, new in written.items():
            path.write_bytes(new)
        return refuses_or_reads(file.read, kept.size + sum(map(len, written.values())))

    return Target(file.name, content, reads)


@dataclass
class _Kept:
    """The files of a folder, which are restored after readers have changed them.

    Args:
        folder: as it is.
    """

    folder: Path
    files: dict[Path, bytes] = field(init=False)

    def __post_init__(self) -> None:
        """Keep all files, and when they were changed last."""
        self.files = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        self.size = sum(map(len, self.files.values()))
        self._seen = {path: path.stat() for path in self.files}

    def restore(self) -> None:
        """Write what has changed, and remove what is new."""
        for path in list(self.folder.rglob("*")):
            if path.is_file() and path not in self.files:
                path.unlink(missing_ok=True)
        for path, content in self.files.items():
            seen = self._seen[path]
            status = path.stat() if path.exists() else None
            if status is None or (status.st_mtime_ns, status.st_ino) != (seen.st_mtime_ns, seen.st_ino):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                self._seen[path] = path.stat()
