"""Models at huggingface.co, from a local server that serves ranges, redirects, fails, truncates and lies."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from safetensors import SafetensorError
from safetensors.numpy import load_file

import whatwhere as ww
from tests.running import error_of, json_of
from whatwhere.errors import CheckpointError
from whatwhere.long_work import downloads
from whatwhere.models.checkpoint import hub
from whatwhere.report.terminal import Downloads

from .checkpoint.samples import safetensors

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """A server: the files of its one model, what it was asked for, and how it answers a request for a range."""

    files: dict[str, bytes] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    sizes: dict[str, object] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    sent: int = 0
    misbehave: Callable[["Answer", bytes, int, int], bool] | None = None
    refuse: tuple[int, str] | None = None


class Answer(BaseHTTPRequestHandler):
    """The answer to one request."""

    def __init__(self, site: Hub, *arguments: object) -> None:
        self.site = site
        super().__init__(*arguments)  # type: ignore[arg-type]

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send headers and a body."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:  # the name that the base class calls
        """Answer the listing of the model, or a request for a file."""
        site = self.site
        site.requests.append(f"{self.path} {self.headers.get('Range', '')}".strip())
        site.tokens.append(self.headers.get("Authorization"))
        if site.refuse is not None:
            self.reply(site.refuse[0], X_Error_Code=site.refuse[1])
            return
        if self.path.startswith("/api/models/"):
            names = site.names or list(site.files)
            listed = [{"rfilename": n, "size": site.sizes.get(n, len(site.files.get(n, b"")))} for n in names]
            self.reply(200, json.dumps({"id": "someone/model", "sha": COMMIT, "siblings": listed}).encode())
            return
        content = site.files[self.path.rpartition("/")[2]]
        begin, end = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        site.sent += end + 1 - begin
        if site.misbehave is None or not site.misbehave(self, content, begin, end):
            self.reply(206, content[begin : end + 1], Content_Range=f"bytes {begin}-{end}/{len(content)}")


@contextmanager
def serve(site: Hub) -> Iterator[str]:
    """Yield the address of a server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Answer, site))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Yield a server with a small model, which huggingface_hub takes for huggingface.co."""
    made = Hub({"config.json": json.dumps(CONFIG).encode(), "model.safetensors": safetensors({TABLE: WEIGHT})})
    with serve(made) as address:
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        own = {"ENDPOINT": address, "HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_OFFLINE": False}
        for name, value in own.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.delenv("HF_HUB_CACHE", raising=False)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        monkeypatch.chdir(tmp_path)
        hub._folder_at_hub.cache_clear()
        yield made
    hub._folder_at_hub.cache_clear()


ROWS, DIM = 3000, 512
CONFIG = {
    "model_type": "llama", "vocab_size": ROWS, "hidden_size": DIM, "num_hidden_layers": 1, "num_attention_heads": 8,
}  # fmt: skip


TABLE, WEIGHT = "model.embed_tokens.weight", np.arange(ROWS * DIM, dtype=np.float32).reshape(ROWS, DIM)  # of 6 MB


def require_row(number: int) -> None:
    """Open the model, and compare a row of the table."""
    np.testing.assert_array_equal(ww.read("someone/model").array(TABLE, rows=[number])[0], WEIGHT[number])


def test_only_headers_and_requested_rows_are_downloaded(site: Hub) -> None:
    checkpoint = ww.read("someone/model")
    assert checkpoint.description.query_key[0].scheme == "rotary"
    assert site.sent < 2 * hub.BLOCK
    np.testing.assert_array_equal(checkpoint.array(TABLE, rows=[2999, 7])[1], WEIGHT[7])
    assert site.sent < 3 * hub.BLOCK < len(site.files["model.safetensors"])


def test_a_large_vocabulary_makes_the_tokenizer(site: Hub) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", *(f"unused{n:0400}" for n in range(2993))]
    site.files |= {"config.json": json.dumps(CONFIG | {"model_type": "bert"}).encode(),
                   "vocab.txt": "\n".join(words).encode(),
                   "tokenizer_config.json": b'{"tokenizer_class": "BertTokenizer"}'}  # fmt: skip
    assert len(site.files["vocab.txt"]) > hub.BLOCK
    assert ww.read("someone/model").tokenizer.encode("the cat").ids == [2, 5, 6, 3]


def test_the_whole_table_is_equal_and_its_download_reported(site: Hub) -> None:
    shown: list[str] = []
    token = downloads.set(Downloads(shown.append))
    try:
        whole = ww.read("someone/model@main").array(TABLE)
    finally:
        downloads.reset(token)
    np.testing.assert_array_equal(whole, WEIGHT)
    assert site.sent < len(site.files["model.safetensors"]) + hub.BLOCK
    assert (shown[0], shown[-1]) == ("1.0 MB downloaded", "6.1 MB downloaded")


def test_what_was_downloaded_is_read_again_without_the_network(site: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    require_row(5)
    count = len(site.requests)
    hub._folder_at_hub.cache_clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    require_row(5)
    assert len(site.requests) == count
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE is set"):
        require_row(2900)


def test_a_pointer_counts_in_the_cache_alone(site: Hub, tmp_path: Path) -> None:
    """Other programs find no weights in it, and elsewhere it sends no request."""
    path = ww.read("someone/model").path / "model.safetensors"
    with pytest.raises(SafetensorError):
        load_file(path)
    count = len(site.requests)
    (tmp_path / "other.safetensors").write_bytes(path.read_bytes())
    with pytest.raises(CheckpointError, match="header claims"):
        ww.read(tmp_path / "other.safetensors")
    assert len(site.requests) == count


def test_a_redirect_to_another_host_gets_no_token(site: Hub) -> None:
    other = Hub(site.files)
    with serve(other) as address:

        def redirect(answer: Answer, content: bytes, begin: int, end: int) -> bool:
            answer.reply(302, Location=f"{address.replace('127.0.0.1', 'localhost')}{answer.path}")
            return True

        site.misbehave = redirect
        require_row(3)
    assert set(site.tokens) == {"Bearer hf_secret"}
    assert other.tokens
    assert set(other.tokens) == {None}


def test_a_failure_that_passes_is_tried_again(site: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    failed: list[int] = []

    def fail_once(answer: Answer, content: bytes, begin: int, end: int) -> bool:
        failed.append(begin)
        if len(failed) == 1:
            answer.reply(503)
        elif len(failed) == 2:  # truncated
            answer.send_response(206)
            answer.send_header("Content-Range", f"bytes {begin}-{end}/{len(content)}")
            answer.send_header("Content-Length", str(end + 1 - begin))
            answer.end_headers()
            answer.wfile.write(content[begin:end])
            answer.close_connection = True
        return len(failed) <= 2

    site.misbehave = fail_once
    require_row(3)


@pytest.mark.parametrize(
    ("kind", "words"), [("whole", "answered 200"), ("another", "instead, of"), ("too little", "did not arrive")]
)
def test_a_server_that_sends_something_else_is_named(site: Hub, kind: str, words: str) -> None:
    def misbehave(answer: Answer, content: bytes, begin: int, end: int) -> bool:
        if kind == "whole":
            answer.reply(200, content)
        elif kind == "another":
            answer.reply(206, content[: end + 1 - begin], Content_Range=f"bytes 0-{end - begin}/{len(content) + 1}")
        else:
            answer.reply(206, content[begin:end], Content_Range=f"bytes {begin}-{end}/{len(content)}")
        return True

    site.misbehave = misbehave
    with pytest.raises(CheckpointError, match=words):
        ww.read("someone/model")


def test_a_size_that_is_no_truth_is_found(site: Hub) -> None:
    site.sizes["model.safetensors"] = len(site.files["model.safetensors"]) + 8
    with pytest.raises(CheckpointError, match="did not arrive"):
        ww.read("someone/model").array(TABLE)
    hub._folder_at_hub.cache_clear()
    hub._reference("someone/model", "main").unlink()
    site.sizes["model.safetensors"] = None
    (hub._folder("someone/model", COMMIT) / ".complete").unlink()
    with pytest.raises(CheckpointError, match="states no size"):
        ww.read("someone/model")


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "GatedRepo", "hf auth login"),
        (401, "RepoNotFound", "is not at huggingface.co, or private"),
        (404, "RevisionNotFound", "no such branch"),
        (418, "", "could not be read from huggingface.co"),
    ],
)
def test_a_refusal_names_the_way_out_without_a_traceback(site: Hub, status: int, code: str, words: str) -> None:
    site.refuse = status, code
    message = error_of("inspect", "someone/model")
    assert words in message
    assert "Traceback" not in message


def test_names_of_files_do_not_leave_the_folder(site: Hub, tmp_path: Path) -> None:
    site.names = [*site.files, "../outside.json", "/etc/outside.json", "sub/inside.json", "..", ".complete", "code.py"]
    folder = ww.read("someone/model").path
    assert sorted(path.name for path in folder.iterdir() if path.suffix) == ["config.json", "model.safetensors"]
    assert not list(tmp_path.rglob("*outside*"))


def test_surgery_requires_the_whole_file(site: Hub) -> None:
    assert "hf download" in error_of("resize", "someone/model", "out", "--vocab-size", "3001")


def test_a_model_is_probed_by_its_configuration_alone(site: Hub) -> None:
    pytest.importorskip("transformers")
    found = json_of("probe", "someone/model")
    assert found["probe"]["model_type"] == "llama"
    assert len(found["probe"]["layers"][0]["query"]["frequencies"]) == DIM // 8 // 2
    assert not site.sent > len(site.files["config.json"])
    assert "hf download someone/model" in error_of("probe", "someone/model", "--weights")
    assert "HF_HUB_OFFLINE is set" not in error_of("probe", "lama")


def test_code_of_a_model_is_not_downloaded(site: Hub) -> None:
    pytest.importorskip("transformers")
    own = {"model_type": "mine", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    site.files = {"config.json": json.dumps(own).encode(), "own.py": b"raise SystemExit('ran')"}
    for options in ((), ("--trust-remote-code",)):
        assert "is not downloaded" in error_of("probe", "someone/model", *options)


def test_without_the_network_one_line_says_so() -> None:
    assert "HF_HUB_OFFLINE is set" in error_of("inspect", "someone/model")
    pytest.importorskip("transformers")
    assert "HF_HUB_OFFLINE is set" in error_of("probe", "someone/model")
