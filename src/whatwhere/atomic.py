"""Atomic writes: files and folders appear complete under their final names, or not at all."""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_file(out: str | Path, *, replace: bool = True, sync: bool = True) -> Iterator[Path]:
    """Write a file beside its final name, and rename it once it is complete and on the disk.

    If the block ends early (an error, a full disk, an interruption), an existing file is kept, and otherwise there is
    none. The target of a link is replaced, not the link. A device or a pipe cannot be replaced by a file: it is written
    to directly.

    Args:
        out: the final name.
        replace: an existing file may be replaced.
        sync: wait until the bytes are on the disk; otherwise they may be lost if the machine stops.

    Yields:
        The path to write to.

    Raises:
        FileExistsError: If `out` exists at the end and may not be replaced.
        OSError: If it cannot be written.

    Examples:
        >>> from tempfile import mkdtemp
        >>> out = Path(mkdtemp()) / "notes.txt"
        >>> with atomic_file(out) as path:
        ...     _ = path.write_text("all of it")
        >>> out.read_text(), [each.name for each in out.parent.iterdir()]
        ('all of it', ['notes.txt'])
    """
    out = Path(out).resolve() if replace else Path(out)
    if replace and out.exists() and not out.is_file() and not out.is_dir():
        yield out
        return
    path = _unfinished(out)
    try:
        _create(path)
        if replace and out.exists():
            shutil.copymode(out, path)
        yield path
        if sync:
            _sync(path)
        if replace:
            path.replace(out)
        else:
            _take_name(path, out)
        if sync:
            _sync(out.parent)
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def write_atomic(out: str | Path, content: bytes | str, *, sync: bool = True) -> None:
    """Write a file atomically: readers see the old contents or the new ones, never a part.

    Args:
        out: the final name; an existing file is replaced.
        content: bytes, or text, which is written as UTF-8 with unchanged line ends.
        sync: as `atomic_file` takes it.

    Raises:
        OSError: If it cannot be written.
    """
    with atomic_file(out, sync=sync) as path:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_folder(out: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Write a folder beside its final name, and rename it once it is complete and on the disk.

    Not every system can exchange two folders: a folder that is replaced is first renamed to .NAME.*.old, and removed
    once the new one has its name.

    Args:
        out: the final name.
        replace: an existing folder may be replaced.

    Yields:
        The folder to write into.

    Raises:
        OSError: If it cannot be written, or exists and may not be replaced.
    """
    out = Path(out)
    path = _unfinished(out)
    try:
        path.mkdir()
        yield path
        for inside in path.rglob("*"):
            _sync(inside)
        _sync(path)
        if replace and os.path.lexists(out):
            _exchange(path, out)
        else:
            path.rename(out)
        _sync(out.parent)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def require_writable(out: str | Path) -> None:
    """Raise OSError unless a file can be created beside a name, to check it before long work.

    Args:
        out: the final name.
    """
    path = _unfinished(Path(out).resolve())
    _create(path)
    path.unlink()


def is_unfinished(path: Path) -> bool:
    """Return whether a path is the temporary file of an interrupted write.

    Args:
        path: of a file or folder.

    Examples:
        >>> is_unfinished(Path(".model.safetensors.0badcafe.part")), is_unfinished(Path("model.safetensors"))
        (True, False)
    """
    return path.name.startswith(".") and path.name.endswith(".part")


def _unfinished(out: Path) -> Path:
    """Return a temporary name beside the final one."""
    return out.with_name(f".{out.name}.{secrets.token_hex(4)}.part")


def _create(path: Path) -> None:
    """Create an empty file, with the permissions of any new file."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def _take_name(path: Path, out: Path) -> None:
    """Rename a file, unless the new name exists."""
    try:
        os.link(path, out)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(out):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(out)) from None
        path.rename(out)


def _exchange(path: Path, out: Path) -> None:
    """Rename a folder to the name of another one, which is removed."""
    aside = out.with_name(f".{out.name}.{secrets.token_hex(4)}.old")
    aside.mkdir()
    try:
        out.rename(aside / out.name)
        try:
            path.rename(out)
        except BaseException:
            (aside / out.name).rename(out)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk; not every system opens folders."""
    try:
        number = os.open(path, os.O_RDONLY)
    except OSError:
        if path.is_dir():
            return
        raise
    try:
        os.fsync(number)
    finally:
        os.close(number)
