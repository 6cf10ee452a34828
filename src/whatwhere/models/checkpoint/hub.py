"""Models at huggingface.co by name: their folder in the local cache, or one whose files are read by byte ranges.

In the folder of a model that is read by ranges, each large file is a pointer: two lines with its name, commit and size.
`File` reads through a pointer as through the file itself, by blocks that are kept beside it with a checksum; other
programs find no weights in it, but two lines that they cannot parse. Pointers count only in the cache, so no downloaded
model can make this program send a request.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from whatwhere.atomic import write_atomic
from whatwhere.errors import CheckpointError
from whatwhere.escape import visible
from whatwhere.long_work import downloads
from whatwhere.records import Schema, from_json

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

BLOCK = 1 << 20  # bytes of a block of the cache, and the least that is requested
_MAX_REQUEST = 16 * BLOCK
_MAX_POINTER = 4096
_FIRST_LINE = b"whatwhere: a file at huggingface.co, read by byte ranges\n"
_POINTER = Schema("whatwhere-pointer", 2, "Remove its folder: it is made again.")
_DIGEST = 32  # bytes of the checksum behind a block
_intact: dict[Path, tuple[int, int]] = {}
"""Blocks whose checksum this process has compared, and what the file system said of them then."""
_ATTEMPTS = 3
_TIMEOUT = 30.0


def is_name(path: str | Path) -> bool:
    """Return whether a path may be the name of a model at huggingface.co, and no file here has it."""
    return _NAME.fullmatch(str(path)) is not None and not Path(path).exists()


def locate(path: str | Path, *, online: bool = True) -> Path:
    """Return the local path for a path or a name: what is here, else a model in the cache, else one at huggingface.co.

    Where nothing can be looked up, the path itself is returned, and whoever opens it says so.
    """
    if not is_name(path):
        return Path(path)
    name, _, revision = str(path).partition("@")
    revision = revision or "main"
    hub = Path(os.environ.get("HF_HUB_CACHE") or _hugging_face_home() / "hub") / f"models--{name.replace('/', '--')}"
    commit = _commit(revision, hub / "refs" / revision)
    snapshot = hub / "snapshots" / commit if commit and (hub / "snapshots" / commit).is_dir() else None
    if snapshot is not None and any(snapshot.glob("*.safetensors*")):
        return snapshot
    if not online:
        return Path(path)
    if "/" in name and not _is_offline():
        return _folder_at_hub(name, revision)
    commit = _commit(revision, _reference(name, revision))  # as it was read from huggingface.co before
    earlier = _folder(name, commit) if commit and (_folder(name, commit) / _COMPLETE).is_file() else None
    return snapshot or earlier or Path(path)


def why_not_found(path: str | Path) -> str:
    """Return the way out for a name that was not found, as lines for an error; "" where it is not a name."""
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


def ranges_folder() -> Path:
    """Return the folder of the models that are read by byte ranges."""
    return _hugging_face_home() / "whatwhere"


def _hugging_face_home() -> Path:
    """Return the folder of huggingface_hub's data, by the variables that it reads: the package may be missing."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser()


def _is_offline() -> bool:
    try:
        from huggingface_hub import constants
    except ImportError:
        return True
    return bool(constants.HF_HUB_OFFLINE)


def _commit(revision: str, reference: Path) -> str:
    """Return the commit of a revision, which may be one itself, or stand in a file; "" where it is not known."""
    if _COMMIT.fullmatch(revision):
        return revision
    try:
        commit = reference.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return commit if _COMMIT.fullmatch(commit) else ""


def _reference(name: str, revision: str) -> Path:
    return ranges_folder() / "refs" / name.replace("/", "--") / revision.replace("/", "--")


def _folder(name: str, commit: str) -> Path:
    return ranges_folder() / f"{name.replace('/', '--')}@{commit[:12]}"


# The folder of a model: small files, and pointers to the others


@dataclass(frozen=True)
class HubFile:
    """A file of a model at huggingface.co, at one commit of 40 digits, with the size that its listing states."""

    repository: str
    commit: str
    name: str
    size: int

    def write_pointer(self, path: Path) -> None:
        """Write the pointer to this file into the folder of the model in the cache."""
        write_atomic(path, _FIRST_LINE + json.dumps(_POINTER.wrap(asdict(self))).encode(), follow=False)

    def wrong(self, what: str, way_out: str) -> CheckpointError:
        """Return an error about this file: the problem, and what the user can do."""
        return CheckpointError(f"{self.repository}/{self.name} at huggingface.co: {what}.\n{way_out}")


def read_pointer(path: Path, size: int) -> HubFile | None:
    """Return the file that a pointer of the cache names; None of any other regular file of this size."""
    if not len(_FIRST_LINE) < size <= _MAX_POINTER or not path.absolute().is_relative_to(ranges_folder().absolute()):
        return None
    content = path.read_bytes()
    if not content.startswith(_FIRST_LINE):
        return None
    try:
        pointer = json.loads(content[len(_FIRST_LINE) :])
        stated = _POINTER.unwrap(pointer, f"{path}, a pointer to a file,", CheckpointError)
        file = from_json(HubFile, stated, str(path))
        if file.size < 0:
            raise ValueError(file.size)
        return file
    except CheckpointError:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError):  # ResultsError is a ValueError
        raise CheckpointError(f"{path} is a damaged pointer to a file.\n{_POINTER.way_out}") from None


@cache  # one program reads one version of a branch
def _folder_at_hub(name: str, revision: str) -> Path:
    from huggingface_hub import HfApi

    with _hub_errors(name):
        info = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=30.0)
    commit, siblings = info.sha or "", info.siblings or []
    if not _COMMIT.fullmatch(commit):
        raise CheckpointError(f"huggingface.co names no commit of {name}.\nTry again later.")
    folder = _folder(name, commit)
    with _cache_errors(folder):
        if not (folder / _COMPLETE).is_file():
            folder.mkdir(parents=True, exist_ok=True)
            for file in _files(name, commit, [(each.rfilename, each.size) for each in siblings]):
                if file.size > _SMALL or file.name.endswith((".safetensors", ".gguf")):
                    file.write_pointer(folder / file.name)
                else:
                    content = download_range(file, 0, file.size) if file.size else b""
                    write_atomic(folder / file.name, content, follow=False)
            (folder / _COMPLETE).touch()
        reference = _reference(name, revision)
        reference.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(reference, commit, follow=False)
    return folder


def _files(name: str, commit: str, listed: list[tuple[str, int | None]]) -> Iterator[HubFile]:
    """Yield the files that are read: those of known suffixes outside of folders, with plain names."""
    if len(listed) > _MOST_FILES:
        raise CheckpointError(
            f"{name} has {len(listed):,} files at huggingface.co, and at most {_MOST_FILES:,} are listed.\n"
            f"Download those that you need: hf download {name} FILE ..."
        )
    for file, size in listed:
        if not _FILE.fullmatch(file) or not file.endswith(_SUFFIXES):
            continue
        if not isinstance(size, int) or not 0 <= size < 2**63:
            raise CheckpointError(f"huggingface.co states no size of {name}/{visible(file)}.\nTry again later.")
        yield HubFile(name, commit, file, size)


# Byte ranges. HfFileSystem takes an answer of any length for the range that was requested, and keeps nothing on disk.


def read_range(file: HubFile, blocks: Path, offset: int, view: memoryview) -> int:
    """Fill a view from an offset, with at most 16 MB; request the blocks that the folder `blocks` lacks."""
    count = min(len(view), file.size - offset, _MAX_REQUEST)
    first, last = offset // BLOCK, (offset + count - 1) // BLOCK
    missing = [block for block in range(first, last + 1) if not _is_cached(file, blocks, block)]
    while missing:  # contiguous ones by one request
        length = next((n for n in range(1, len(missing)) if missing[n] != missing[0] + n), len(missing))
        _fetch(file, blocks, missing[:length], left=len(view) - count)
        missing = missing[length:]
    done = 0
    for block in range(first, last + 1):
        begin = offset + done - block * BLOCK
        with (blocks / f"{block:06}").open("rb") as cached:
            cached.seek(begin)
            part = cached.read(min(BLOCK - begin, count - done))
        if not part:
            raise file.wrong(
                f"block {block} of the cache is too short", f"Remove the folder {blocks}: it is made again."
            )
        view[done : done + len(part)] = part
        done += len(part)
    return done


def _fetch(file: HubFile, blocks: Path, run: list[int], left: int) -> None:
    begin, end = run[0] * BLOCK, min((run[-1] + 1) * BLOCK, file.size)
    content = download_range(file, begin, end)
    with _cache_errors(blocks):
        blocks.mkdir(parents=True, exist_ok=True)
        for n, block in enumerate(run):
            part = content[n * BLOCK : (n + 1) * BLOCK]
            write_atomic(blocks / f"{block:06}", part + sha256(part).digest(), follow=False)
    if (report := downloads.get()) is not None:
        report(len(content), left)


def _is_cached(file: HubFile, blocks: Path, block: int) -> bool:
    """Return whether the cache has a block, with the checksum behind it, which is compared once."""
    path = blocks / f"{block:06}"
    if not path.is_file() or path.stat().st_size != min(BLOCK, file.size - block * BLOCK) + _DIGEST:
        return False
    status = path.stat()
    known = status.st_mtime_ns, status.st_ino
    if _intact.get(path) != known:
        content = path.read_bytes()
        if sha256(content[:-_DIGEST]).digest() != content[-_DIGEST:]:
            return False
        _intact[path] = known
    return True


def download_range(file: HubFile, begin: int, end: int) -> bytes:
    """Download bytes of a file; raise CheckpointError unless they are those requested, of a file of the stated size."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers, http_stream_backoff  # type: ignore[attr-defined]

    url = hf_hub_url(file.repository, file.name, revision=file.commit)
    headers = {**build_hf_headers(), "Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
    problem = ""
    for _ in range(_ATTEMPTS):
        content = bytearray()
        request = http_stream_backoff("GET", url, headers=headers, timeout=_TIMEOUT, max_retries=_ATTEMPTS)
        with _hub_errors(file.repository), request as response:
            # An exception in this block would be taken for one of the request, which is not made twice then.
            stated = response.headers.get("Content-Range", "")
            problem = "the connection ended early"
            if response.status_code != 206:
                problem = f"the server answered {response.status_code} to a request for a range"
            elif stated != f"bytes {begin}-{end - 1}/{file.size}":
                problem = f"the server sent {visible(stated)[:80]!r} instead, of {file.size:,} bytes"
            else:
                try:
                    for piece in response.iter_bytes(BLOCK):
                        content += piece
                        if len(content) >= end - begin:
                            return bytes(content[: end - begin])
                except Exception as error:  # of the transport, whose package depends on the version of huggingface_hub
                    problem = visible(error) or type(error).__name__
    raise file.wrong(
        f"bytes {begin:,} to {end:,} did not arrive, {problem}",
        f"Try again later, or download the whole model by hf download {file.repository}",
    )


@contextmanager
def _cache_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise CheckpointError(
            f"{folder} cannot be written: {problem.strerror or problem}.\nMake room, or choose another folder: HF_HOME."
        ) from None


@contextmanager
def _hub_errors(name: str) -> Iterator[None]:
    from huggingface_hub import errors

    page = f"https://huggingface.co/{name}"
    try:
        yield
    except errors.GatedRepoError:
        message = f"needs the consent of its authors: ask for it at {page}, then log in by hf auth login."
    except errors.RepositoryNotFoundError:
        message = "is not at huggingface.co, or private.\nCheck the name, or log in by hf auth login."
    except errors.RevisionNotFoundError:
        message = "has no such branch, tag or commit.\nLeave it out, as in org/name, or name another: org/name@main."
    except errors.OfflineModeIsEnabled:
        message = f"is not in the local cache, and HF_HUB_OFFLINE is set.\nUnset it, or run hf download {name} before."
    except Exception as problem:
        if type(problem).__module__.partition(".")[0] not in ("httpx", "httpx2", "huggingface_hub"):
            raise
        first = visible(str(problem).strip().split("\n")[0])[:200] or type(problem).__name__
        message = f"could not be read from huggingface.co: {first}.\nTry again later, or pass a folder."
    else:
        return
    raise CheckpointError(f"{name} {message}")
