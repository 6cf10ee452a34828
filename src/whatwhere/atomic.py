"""Atomic writes: files and folders appear complete under their final names, or not at all. Pipes are read at once.

    .NAME.BOOTRANDOM.part    unfinished; its writer holds a lock on it while it lives
    .NAME.BOOTRANDOM.old     the folder that is replaced, where the system cannot exchange two in one step

What a killed writer left is removed by the next write to the same name: where its lock is free, and the machine is the
same one since its last start (BOOT), for not every network file system shares its locks among machines.
"""

import ctypes
import errno
import os
import platform
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from whatwhere.errors import TextError

if sys.platform != "win32":
    import fcntl

LFS_POINTER = b"version https://git-lfs.github.com/spec/"  # how a pointer of Git LFS begins
MAX_LFS_POINTER = 1024  # bytes at most of one, by its specification
IS_LFS_POINTER = (
    "it is a pointer of Git LFS, not the file itself, as git clone leaves it without git-lfs",
    "Run git lfs install and git lfs pull in its folder, or download the file again.",
)
"""What is wrong with it, and the way out."""
_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE of Linux, which is RENAME_SWAP of macOS; and AT_FDCWD


@contextmanager
def atomic_file(out: str | Path, *, replace: bool = True, sync: bool = True, follow: bool = True) -> Iterator[Path]:
    """Write a file beside its final name, and rename it once it is complete and on the disk.

    If the block ends early (an error, a full disk, an interruption), an existing file is kept, and otherwise there is
    none. Of a link the target is replaced, unless `follow` is False, as for links among files of ours: they could lead
    out of their folder. A device or a pipe is never replaced, but written directly. Without `sync` the bytes may be
    lost if the machine stops. FileExistsError is raised if `out` exists at the end and `replace` is False.
    """
    out = _resolved(out) if replace and follow else Path(out)
    kept = out.exists() and not out.is_symlink()
    if replace and kept and not out.is_file() and not out.is_dir():
        with _reader_of(out):
            yield out
        return
    with _locked(out, "part", _create) as path:
        try:
            if replace and kept:
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
            _remove(path)


def _resolved(path: str | Path) -> Path:
    """Return a path without links; one that leads to itself stays, where Path.resolve raises what is not an OSError."""
    return Path(os.path.realpath(path))


@contextmanager
def _reader_of(pipe: Path) -> Iterator[None]:
    """Raise OSError at once if nobody reads from a pipe, and hold it open in a `with` block."""
    number = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK) if pipe.is_fifo() else None
    try:
        yield
    finally:
        if number is not None:
            os.close(number)


def write_atomic(out: str | Path, content: bytes | str, *, sync: bool = True, follow: bool = True) -> None:
    """Write a file atomically: readers see the old contents or the new ones, never a part."""
    with atomic_file(out, sync=sync, follow=follow) as path:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_folder(out: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Write a folder beside its final name, and rename it once it is complete and on the disk.

    Where the system cannot exchange two folders, one that is replaced is first renamed to .NAME.*.old/NAME, and removed
    once the new one has its name; what a process that was killed in between left there, the next write restores.
    """
    out = Path(out)
    with _locked(out, "part", Path.mkdir) as path:
        try:
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
            _remove(path)


@contextmanager
def temporary_folder(name: Path) -> Iterator[Path]:
    """Create a folder for this user alone, and remove it at the end of a `with` block, or at the next call."""
    with _locked(name, "part", lambda path: path.mkdir(0o700)) as path:
        try:
            yield path
        finally:
            _remove(path)


def open_bytes(path: Path) -> BinaryIO:
    """Open a file or a pipe for reading, without waiting for somebody to write to it; TextError for a device."""
    at_once = getattr(os, "O_NONBLOCK", 0)
    opened = open(path, "rb", opener=lambda name, flags: os.open(name, flags | at_once))  # noqa: SIM115
    mode = os.fstat(opened.fileno()).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        opened.close()
        raise TextError(f"{path} is a device, which may never end.\nPass a file, or a pipe.")
    if at_once:
        os.set_blocking(opened.fileno(), True)
    return opened


def require_writable(out: str | Path) -> None:
    """Raise OSError unless a file can be created beside a name, to check it before long work."""
    with _locked(_resolved(out), "part", _create) as path:
        path.unlink()


def is_unfinished(path: Path) -> bool:
    """Return whether a path is the temporary file of an interrupted write."""
    return path.name.startswith(".") and path.name.endswith(".part")


@contextmanager
def _locked(out: Path, suffix: str, create: Callable[[Path], None]) -> Iterator[Path]:
    """Create a temporary file or folder beside a final name, and hold its lock; remove those of killed writers."""
    with suppress(OSError):
        _sweep(out)
    lock = None
    try:
        while True:
            path = out.with_name(f".{out.name}.{_boot()}{secrets.token_hex(4)}.{suffix}")
            create(path)
            lock = _lock(path, wait=True)
            # A sweep of another process or thread may have seen it before it was locked, and removed it.
            if os.path.lexists(path):
                break
            if lock is not None:
                os.close(lock)
        yield path
    finally:
        if lock is not None:
            os.close(lock)


def _sweep(out: Path) -> None:
    """Remove what killed writers left beside a name; restore the folder that one of them was replacing."""
    prefix = f".{out.name}.{_boot()}"
    with os.scandir(out.parent) as entries:
        names = [each.name for each in entries if each.name.startswith(prefix)]
    for path in map(out.with_name, names):
        lock = _lock(path) if path.suffix in (".part", ".old") else None
        if lock is None:
            continue
        try:
            if path.suffix == ".old" and not os.path.lexists(out):
                (path / out.name).rename(out)
            _remove(path)
        finally:
            os.close(lock)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _lock(path: Path, wait: bool = False) -> int | None:
    """Lock a file or folder until the number is closed; None where a living process has it, or there are no locks."""
    if sys.platform == "win32":
        return None
    number = None
    try:
        # On a network file system only what is open for writing can be locked.
        number = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        if number is not None:
            os.close(number)
        return None
    return number


@cache
def _boot() -> str:
    """Return four digits that tell this machine, since its last start, from others."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8")
    except OSError:
        name = platform.node()
    return sha256(name.encode()).hexdigest()[:4]


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def _take_name(path: Path, out: Path) -> None:
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
    if _swap(path, out):
        return  # what has the temporary name now is removed as that of any write
    with _locked(out, "old", Path.mkdir) as aside:
        try:
            out.rename(aside / out.name)
            try:
                path.rename(out)
            except BaseException:
                (aside / out.name).rename(out)
                raise
        finally:
            _remove(aside)


def _swap(first: Path, second: Path) -> bool:
    """Exchange two names in one step; return False where the system or the file system cannot."""
    names = os.fsencode(first.absolute()), os.fsencode(second.absolute())
    try:
        system = ctypes.CDLL(None)
        if sys.platform == "linux":
            return bool(system.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0)
        return bool(system.renamex_np(*names, _EXCHANGE) == 0)
    except (AttributeError, OSError, TypeError):  # TypeError: Windows
        return False


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
