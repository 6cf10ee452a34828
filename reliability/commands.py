"""The commands that write, on inputs so small that each takes less than a second, in forks that have all imports."""

import base64
import contextlib
import gzip
import importlib
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file

from whatwhere import cli
from whatwhere.atomic import is_unfinished

_WORDS = [f"w{n}" for n in range(600)]
_TINY = "--steps 3 --layers 1 --dim 8 --heads 2 --set feedforward=8 --set batch=4 --set test_sequences=10"
_COMMIT = "0123456789abcdef0123456789abcdef01234567"
_PACKAGES = (
    "whatwhere",
    "rich",
    "huggingface_hub",
    "matplotlib",
    "torch",
    "numpy",
    "httpx",
    "scipy",
    "pydantic",
    "typer",
)
"""Packages whose modules forks share."""
_OMITTED = ("seconds", "seconds_per_step", "milliseconds", "created", "command", "checksum")
_DIGITS = re.compile(r"\d[\d.,]*(e[+-]?\d+)?")


@dataclass(frozen=True)
class Command:
    """A command line, in which IN is the folder of the inputs, and OUT a folder that exists.

    Args:
        name: in tables.
        words: of the command line.
        once: it refuses an output that exists.
        replaces: what it writes may be there before: each file by itself, or a folder as a whole.
        prepare: called in the process of the command before it, with OUT.
        prints: its output is what it prints.
    """

    name: str
    words: str
    once: bool = False
    replaces: Literal["nothing", "files", "folder"] = "nothing"
    prepare: Callable[[Path], None] = lambda out: None
    prints: bool = False


def commands(inputs: Path) -> tuple[Command, ...]:
    """Make the inputs, and return all commands.

    Args:
        inputs: an empty folder.
    """
    _write_inputs(inputs)
    compared = f"compare none alibi --task recall --lengths 9 --seeds 1 --workers 1 {_TINY} --out"
    process = started(Command("compare", f"{compared} IN/results"), inputs, inputs / "first")
    if message := ended(process, inputs / "first"):
        raise RuntimeError(f"compare fails: {message}")
    surgery = {
        "resize": "IN/model OUT/new --vocab-size 640",
        "trim": "IN/model OUT/new --corpus IN/corpus.txt",
        "repair": "IN/model OUT/new --ids IN/ids.txt",
        "convert": "IN/model OUT/new --dtype bfloat16",
    }
    return (
        Command("compare", f"{compared} OUT/results"),
        Command(
            "compare --tokenizer",
            f"compare none --task text --file IN/corpus.txt --tokenizer IN/model --seeds 1 --lengths 64 --workers 1 "
            f"{_TINY} --out OUT/results",
            prepare=lambda out: os.environ.update(XDG_CACHE_HOME=str(out / "cache")),
        ),
        *(Command(name, f"{name} {words}", once=True) for name, words in surgery.items()),
        Command("convert --force", "convert IN/model OUT/new --layout interleaved --force", replaces="folder"),
        Command("diff", "diff IN/model IN/model --sample 50 --json", prints=True),
        Command("map", "map IN/model --out OUT/map.json --tsv OUT/projector", replaces="files"),
        Command("a map of a model at huggingface.co", "map someone/model --out OUT/map.svg", prepare=_at_hub),
        Command("studio --export", "studio IN/results --export OUT/page.html", replaces="files"),
        Command("figures", "figures IN/results --out OUT/figures", replaces="files"),
        Command("tables", "tables IN/results --out OUT/tables", replaces="files"),
        Command("golden", "golden IN/model/config.json --out OUT/golden", once=True),
        Command("golden --force", "golden IN/model/config.json --out OUT/golden --force", replaces="folder"),
    )


def _write_inputs(folder: Path) -> None:
    """Write a small model with a tokenizer, a text, and ids."""
    from whatwhere.what.text import words

    (folder / "model").mkdir()
    torch.manual_seed(0)
    dim, inner, layers = 64, 512, 4
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (len(_WORDS), dim),
        "lm_head.weight": (len(_WORDS), dim),
    }
    shapes["model.norm.weight"] = (dim,)
    for n in range(layers):
        layer = f"model.layers.{n}"
        shapes |= {f"{layer}.self_attn.{each}_proj.weight": (dim, dim) for each in "qkvo"}
        shapes |= {f"{layer}.mlp.{each}_proj.weight": (inner, dim) for each in ("gate", "up")}
        shapes |= {f"{layer}.mlp.down_proj.weight": (dim, inner)}
        shapes |= {f"{layer}.{each}_layernorm.weight": (dim,) for each in ("input", "post_attention")}
    tensors = {name: torch.randn(shape) for name, shape in shapes.items()}
    save_file(tensors, folder / "model" / "model.safetensors")
    config = {
        "model_type": "llama", "vocab_size": len(_WORDS), "hidden_size": dim, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": inner,
        "max_position_embeddings": 128, "rope_theta": 10000.0, "tie_word_embeddings": False,
    }  # fmt: skip
    (folder / "model" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    words(" ".join(_WORDS)).save(str(folder / "model" / "tokenizer.json"))
    lines = (" ".join(_WORDS[(n * m) % 500] for m in range(1, 12)) for n in range(3000))
    (folder / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "ids.txt").write_text("3\n4\n", encoding="utf-8")


_hub = ["", ""]
"""The address of a server that is taken for huggingface.co, and the folder of its model."""


@contextlib.contextmanager
def hub(model: Path) -> Iterator[None]:
    """Serve a model on this machine as huggingface.co does, in a `with` block.

    Args:
        model: its folder.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Answer, {each.name: each for each in model.iterdir()}))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    _hub[0] = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _at_hub(out: Path) -> None:
    from huggingface_hub import constants

    os.environ["HF_HOME"] = str(out / "home")
    os.environ.pop("HF_HUB_CACHE", None)
    constants.ENDPOINT, constants.HF_HUB_OFFLINE = _hub[0], False
    constants.HUGGINGFACE_CO_URL_TEMPLATE = _hub[0] + "/{repo_id}/resolve/{revision}/{filename}"


class _Answer(BaseHTTPRequestHandler):
    """The answer to one request."""

    def __init__(self, files: Mapping[str, Path], *arguments: object) -> None:
        self.files = files
        super().__init__(*arguments)  # type: ignore[arg-type]

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:  # the name that the base class calls
        """Answer the listing of the model, or a request for a part of a file."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # of those that are killed
            if self.path.startswith("/api/models/"):
                listed = [{"rfilename": name, "size": each.stat().st_size} for name, each in self.files.items()]
                self._send(200, json.dumps({"id": "someone/model", "sha": _COMMIT, "siblings": listed}).encode(), "")
                return
            if self.path.rpartition("/")[2] not in self.files:
                self._send(404, b"", "")
                return
            content = self.files[self.path.rpartition("/")[2]].read_bytes()
            begin, end = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            self._send(206, content[begin : end + 1], f"bytes {begin}-{end}/{len(content)}")

    def _send(self, status: int, body: bytes, part: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", part)
        self.end_headers()
        self.wfile.write(body)


def started(
    command: Command, inputs: Path, out: Path, before: Sequence[Callable[[], object]] = (), *, group: bool = False
) -> int:
    """Start a command in a fork, which has all imports already, and return its process; it prints to OUT.log.

    Args:
        command: to run.
        inputs: folder of the inputs.
        out: folder for the outputs.
        before: called in the fork first.
        group: in a group of processes of its own.
    """
    out.mkdir(exist_ok=True)
    out.with_suffix(".ready").unlink(missing_ok=True)
    if process := os.fork():
        return process
    status = 1
    try:
        if group:
            os.setpgid(0, 0)
        log = os.open(out.with_suffix(".log"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        os.dup2(log, 2)
        os.dup2(os.open(out.with_suffix(".printed"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), 1)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", 1, closefd=False)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        tempfile.tempdir = str(inputs)
        torch.set_num_threads(1)  # a fork has none of the threads of its parent
        for each in (lambda: command.prepare(out), *before):
            each()
        words = command.words.replace("IN/", f"{inputs}/").replace("OUT/", f"{out}/").split()
        sys.argv = ["whatwhere", *words]
        try:
            out.with_suffix(".ready").touch()
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        out.with_suffix(".modules").write_text(" ".join(sys.modules), encoding="utf-8")
    finally:
        os._exit(status)


def import_all(out: Path) -> None:
    """Import here what a command that ended had imported, so that forks have it.

    Args:
        out: folder of its outputs.
    """
    for name in out.with_suffix(".modules").read_text(encoding="utf-8").split():
        if name.startswith(_PACKAGES):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def wait_until_ready(out: Path) -> None:
    """Wait until a command that was started begins.

    Args:
        out: folder of its outputs.
    """
    while not out.with_suffix(".ready").exists():
        time.sleep(0.001)


def status_of(process: int) -> int:
    """Wait for a command, and return its status; of one that a signal ended, minus its number.

    Args:
        process: that was started.
    """
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def ended(process: int, out: Path) -> str:
    """Wait for a command, and return how it failed: "" if it did not.

    Args:
        process: that was started.
        out: folder of its outputs.
    """
    status = status_of(process)
    log = printed(out)
    if not status and "Traceback" not in log:
        return ""
    return f"status {status}: {' / '.join(log.strip().splitlines()[-3:])[-300:]}"


def printed(out: Path) -> str:
    """Return what a command wrote to standard error."""
    log = out.with_suffix(".log")
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def contents(command: Command, out: Path) -> dict[str, str]:
    """Return a digest of each finished file by its name; times, durations, commands and checksums of them left out.

    Args:
        command: that was run.
        out: folder of its outputs.
    """
    if command.prints:
        return {"printed": out.with_suffix(".printed").read_text(encoding="utf-8")}
    return {str(path.relative_to(out)): _digest(path) for path in sorted(out.rglob("*")) if _is_final(path, out)}


def _is_final(path: Path, out: Path) -> bool:
    inside = path.relative_to(out)
    return path.is_file() and not any(is_unfinished(out / part) for part in (inside, *inside.parents))


def _digest(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".json":
        try:
            value = _without_times(json.loads(content))
            if "checkpoints" in path.parts:  # whose digests of files differ where these do, see below
                value.pop("files", None)
            content = json.dumps(value).encode()
        except ValueError:
            return f"half a file of {len(content)} bytes"
    elif "checkpoints" in path.parts:  # whose metadata PyTorch writes in another order each time
        size = 8 + int.from_bytes(content[:8], "little")
        content = json.dumps(json.loads(content[8:size]), sort_keys=True).encode() + content[size:]
    elif path.name == "report.html":
        content = _page_without_times(content.decode())
    return sha256(content).hexdigest()


def _page_without_times(page: str) -> bytes:
    """Return an exported page with its answers unpacked: their numbers, and the text around them without its digits.

    Durations and dates are left out, with what depends on them: the digits of the tables of costs, settings and runs,
    and the hash of the packed answers.
    """
    from whatwhere.studio.export import unpack

    found = re.search(r'id="exported">(.*?)</script>', page, re.DOTALL)
    if found is None or not page.rstrip().endswith("</html>"):
        return f"half a page of {len(page)} characters".encode()
    packed = json.loads(found[1])
    answers = {
        key: unpack(gzip.decompress(base64.b64decode(packed["blocks"][n]))) for key, n in packed["answers"].items()
    }
    for section in answers["compare.results?{}"]["sections"]:
        if section["name"] in ("scores", "costs", "runs"):  # whose scores stand in `lengths` too
            section["parts"] = _DIGITS.sub("#", json.dumps(section["parts"], default=str))
    around = re.sub(r"sha256-[\w+/=]+", "", page[: found.start(1)] + page[found.end(1) :])
    text = json.dumps(_without_times(answers), default=lambda array: [str(array.dtype), array.tolist()])
    # Sentences tell how long the runs took, and by how many processes.
    text = re.sub(r"\btook [\d.,]+ |--workers \d+", "#", text)
    return (text + _DIGITS.sub("#", around)).encode()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if key not in _OMITTED}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


def unfinished(out: Path) -> list[str]:
    """Return the unfinished files and folders of dead writers in a folder."""
    return [str(path.relative_to(out)) for path in out.rglob(".*") if re.search(r"\.(part|old)$", path.name)]
