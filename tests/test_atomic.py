"""Atomic writes: whole or not at all, on a disk that is full as on one that is not."""

import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import whatwhere as ww
from whatwhere import atomic
from whatwhere.atomic import (
    atomic_file,
    atomic_folder,
    is_unfinished,
    require_writable,
    temporary_folder,
    write_atomic,
)
from whatwhere.cli import app
from whatwhere.comparison.folder import write_json
from whatwhere.models.checkpoint import write_projector

from .systems import unix


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """Limit the size of files: the system refuses the rest of a write, as a full disk does."""
    resource = pytest.importorskip("resource", reason="this system has no limits of processes")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    compiled, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # Python 3.11 would keep the half of a module
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = compiled


def inside(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")
    with full_disk(1000), pytest.raises(OSError, match="too large"):
        write_atomic(tmp_path / "out", bytes(5000))
    assert inside(tmp_path) == {"out": b"old"}
    write_atomic(tmp_path / "out", "new é\n")
    assert inside(tmp_path) == {"out": "new é\n".encode()}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_no_file(error: type[BaseException], tmp_path: Path) -> None:
    def write() -> None:
        with atomic_file(tmp_path / "out") as path:
            path.write_bytes(b"half")
            raise error

    with pytest.raises(error):
        write()
    assert inside(tmp_path) == {}


def test_a_file_that_appears_meanwhile_stays(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_file(tmp_path / "out", replace=False) as path:
            path.write_bytes(b"ours")
            (tmp_path / "out").write_bytes(b"theirs")

    with pytest.raises(FileExistsError):
        write()
    assert inside(tmp_path) == {"out": b"theirs"}


@unix
def test_a_link_stays_a_link_and_a_mode_a_mode(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "out").symlink_to(tmp_path / "real")
    write_atomic(tmp_path / "out", b"new")
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o640


@unix
def test_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomic(pipe, b"all of it")
        assert os.read(reader, 100) == b"all of it"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_folder_replaces_another_as_a_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_bytes(b"")
    for error in (None, OSError):
        try:
            with atomic_folder(out, replace=True) as path:
                (path / f"new{error}").write_bytes(b"")
                if error is not None:
                    raise error
        except OSError:
            assert error is OSError
        assert [each.name for each in out.iterdir()] == ["newNone"]
        assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_trying_to_write_leaves_no_trace(tmp_path: Path) -> None:
    require_writable(tmp_path / "out")
    with pytest.raises(OSError, match="No such file"):
        require_writable(tmp_path / "nowhere" / "out")
    assert list(tmp_path.iterdir()) == []
    with atomic_file(tmp_path / "out") as path:
        assert is_unfinished(path)
    assert not is_unfinished(tmp_path / "out")


@pytest.fixture
def killed() -> Callable[[Callable[[], object]], None]:
    if not hasattr(os, "fork"):
        pytest.skip("made for Unix: forks")

    def run(do: Callable[[], object]) -> None:
        if not (process := os.fork()):
            try:
                do()
            finally:
                os._exit(1)
        assert os.waitpid(process, 0)[1] == signal.SIGKILL

    return run


def kill(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_next_write_removes_what_a_killed_writer_left_and_nothing_of_a_living_one(
    tmp_path: Path, killed: Callable[[Callable[[], object]], None]
) -> None:
    def half() -> None:
        with atomic_file(tmp_path / "out") as path:
            path.write_bytes(b"half")
            kill()

    def half_a_folder() -> None:
        with atomic_folder(tmp_path / "folder") as path:
            (path / "inside").write_bytes(b"half")
            kill()

    foreign = tmp_path / ".out.ffff12345678.part"  # of another machine, or from before its last start
    foreign.touch()
    with atomic_file(tmp_path / "out") as alive:
        killed(half)
        killed(half_a_folder)
        assert len(list(tmp_path.iterdir())) == 4
        write_atomic(tmp_path / "out", b"another")
        assert sorted(tmp_path.glob(".out*")) == sorted([alive, foreign])
        alive.write_bytes(b"whole")
    with atomic_folder(tmp_path / "folder"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [foreign.name, "folder", "out"]
    assert (tmp_path / "out").read_bytes() == b"whole"


def test_the_temporary_folder_of_a_killed_process_is_removed_by_the_next_one(
    tmp_path: Path, killed: Callable[[Callable[[], object]], None]
) -> None:
    def leave() -> None:
        with temporary_folder(tmp_path / "runs") as path:
            (path / "1").write_bytes(b"12")
            kill()

    with temporary_folder(tmp_path / "runs") as alive:
        killed(leave)
        assert len(list(tmp_path.iterdir())) == 2
        with temporary_folder(tmp_path / "runs") as second:
            assert set(tmp_path.iterdir()) == {alive, second}
            assert stat.S_IMODE(second.stat().st_mode) == 0o700
            assert is_unfinished(second)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_whose_replacement_was_killed_is_there_or_restored(
    can_exchange: bool, tmp_path: Path, killed: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").touch()

    def replace() -> None:
        if not can_exchange:
            monkeypatch.setattr(atomic, "_swap", lambda first, second: False)
        rename = Path.rename
        monkeypatch.setattr(Path, "rename", lambda path, name: (rename(path, name), kill()))
        monkeypatch.setattr(atomic, "_remove", kill)
        with atomic_folder(out, replace=True) as path:
            (path / "new").touch()

    killed(replace)
    assert out.exists() == can_exchange
    with pytest.raises(ZeroDivisionError), atomic_folder(out, replace=True):
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in out.iterdir()] == ["new" if can_exchange else "old"]


def test_what_a_sweep_removes_before_it_is_locked_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, removed = atomic._lock, list[Path]()

    def late(path: Path, wait: bool = False) -> int | None:
        if wait and not removed:
            removed.append(path)
            path.rmdir()
        return lock(path, wait)

    monkeypatch.setattr(atomic, "_lock", late)
    with atomic.temporary_folder(tmp_path / "work") as folder:
        assert folder.is_dir()
        assert removed
        assert folder not in removed
    assert list(tmp_path.iterdir()) == []


# What writes


def save_page(folder: Path) -> None:
    from whatwhere.studio.export import Shown

    Shown("x" * 5000, 300, "table").save(folder / "page.html")


@pytest.mark.parametrize(
    ("error", "write"),
    [
        (ww.errors.ResultsError, lambda folder: write_json(folder / "results.json", {"numbers": [*range(1000)]})),
        (ww.errors.CheckpointError, lambda folder: write_projector(folder, np.ones((100, 3), "float32"), ["a"] * 100)),
        (ww.errors.SettingError, save_page),
        (SystemExit, lambda folder: app(["map", f"{folder}.npy", "--out", str(folder / "map.svg")])),
        (SystemExit, lambda folder: app(["encode", "the cat sat", "--save", str(folder / "x.safetensors")])),
    ],
    ids=["results", "projector", "page", "map", "encode"],
)
def test_outputs_are_whole_or_not_there(
    error: type[BaseException], write: Callable[[Path], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(f"{tmp_path}.npy", np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32))
    (tmp_path / "x.safetensors").write_bytes(b"before")
    with full_disk(200), pytest.raises(error) as caught:
        write(tmp_path)
    assert "cannot be written" in " ".join(f"{caught.value} {capsys.readouterr().err}".split())
    assert inside(tmp_path) == {"x.safetensors": b"before"}
    with suppress(SystemExit):
        write(tmp_path)
    assert max(map(len, inside(tmp_path).values())) > 200
