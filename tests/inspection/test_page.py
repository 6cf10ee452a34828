"""The page and the command: one file that asks for nothing, in which no token can do anything."""

import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, models

from whatwhere import cli
from whatwhere.errors import MissingExtra, SettingError
from whatwhere.inspection import SECTIONS, Inspection, inspect
from whatwhere.inspection.page.parts import shown
from whatwhere.page.markup import text_of

HOSTILE = [
    "<script>alert(1)</script>", "</title><img src=x onerror=alert(1)>", "\u202egnp.exe", "a\u200bb", "\x1b[31mred",
    " ", "\u0301", '" onload="x', "&amp;", "'", "\n", "{{7*7}}", "x" * 500, "http://evil.example/", "\u2066",
]  # fmt: skip


def tell(words: list[str], tmp_path: Path, **config: Any) -> Path:
    """Make a folder of a model whose words are hostile, some rows of which are not well."""
    g = np.random.default_rng(0)
    rows = g.standard_normal((400, 256)).astype(np.float32)
    rows[: len(words)] = 0.05 * g.standard_normal(256) + 0.01 * rows[: len(words)]
    rows[3], rows[4, 0] = 0, np.nan
    rows[6] = rows[5]
    named = words + [f"w{n}" for n in range(390 - len(words))]
    save_file(
        {"wte.weight": rows, "wpe.weight": g.standard_normal((64, 256)).astype(np.float32)},
        tmp_path / "model.safetensors",
    )
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(named)}, unk_token="w0"))
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    settings = {"model_type": "gpt2", "n_embd": 256, "n_head": 2, "n_layer": 2, "vocab_size": 400, "n_positions": 64}
    (tmp_path / "config.json").write_text(json.dumps(settings | config))
    return tmp_path


class Seen(HTMLParser):
    """Read tags and attributes as a browser does."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag."""
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a page of a model whose tokens are hostile."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("hostile")
    file = inspect(tell(HOSTILE, folder)).write(folder / "out.html")
    assert sorted(path.name for path in folder.iterdir() if "html" in path.name) == ["out.html"]
    return file.read_text(encoding="utf-8")


def test_the_page_runs_nothing_and_asks_for_nothing(page: str) -> None:
    seen = Seen()
    seen.feed(page)
    tags = {tag for tag, _ in seen.tags}
    assert not tags & {"script", "img", "iframe", "object", "link", "form", "base", "video", "audio", "embed"}
    for _, attributes in seen.tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert not re.search(r"url\((?!#)", page)
    policy = next(a["content"] for tag, a in seen.tags if tag == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_no_sign_reorders_or_hides(page: str) -> None:
    assert not set(page) & set("\u202e\u200b\u2066\x1b\x00")
    # As their codes they are there to be read.
    assert "\\u202egnp.exe" in page
    assert "a\\u200bb" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_every_drawing_tells_what_it_shows(page: str) -> None:
    seen = Seen()
    seen.feed(page)
    drawings = [attributes for tag, attributes in seen.tags if tag == "svg"]
    told = [attributes for attributes in drawings if attributes.get("role") == "img"]
    assert len(told) >= 4
    for attributes in drawings:
        assert attributes.get("role") == "img" or attributes.get("aria-hidden") == "true"
    ids = {attributes["id"] for _, attributes in seen.tags if "id" in attributes}
    assert len(ids) == sum("id" in attributes for _, attributes in seen.tags), "ids are used once"
    for attributes in told:
        assert set((attributes["aria-labelledby"] or "").split()) <= ids
    for name in ("token-norms", "position-norms"):
        found = re.search(rf'<desc id="{name}-desc">([^<]*)</desc>', page)
        assert found
        assert re.search(r"\d", found[1])


def test_every_section_is_on_the_page(page: str) -> None:
    for name in SECTIONS:
        assert f'<section id="{name}"' in page
        assert f'href="#{name}"' in page


def test_the_same_checkpoint_gives_the_same_page(page: str, tmp_path: Path) -> None:
    folder = tell(HOSTILE, tmp_path)
    again = inspect(folder).write(tmp_path / "again.html").read_text(encoding="utf-8")
    own = re.compile(r"<header>.*?</header>|<title>[^<]*</title>", re.DOTALL)
    assert own.sub("", again) == own.sub("", page)


@pytest.mark.parametrize(
    ("given", "seen"),
    [(" a", "␣a"), ("  ", "␣␣"), ("a b", "a b"), ("\u0301", "◌\u0301"), ("\t", "\\t"), ("Ġthe", "Ġthe"), ("", "")],
)
def test_what_cannot_be_seen_is_shown(given: str, seen: str) -> None:
    assert text_of(shown(given)) == seen


def test_a_page_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    np.save(tmp_path / "table.npy", np.eye(9, dtype=np.float32))
    found = inspect(tmp_path / "table.npy", ["sizes"])
    with pytest.raises(SettingError, match="is a folder"):
        found.write(tmp_path)
    with pytest.raises(SettingError, match="cannot be written"):
        found.write(tmp_path / "no" / "where.html")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match="report"):
        found.write(tmp_path / "page.html")


# The command


def whatwhere(*words: str | Path) -> tuple[int, str, str]:
    """Run a command in this process, as `whatwhere WORDS` does."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["whatwhere", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def test_the_command_prints_what_was_found(tmp_path: Path) -> None:
    folder = tell(HOSTILE, tmp_path)
    status, out, err = whatwhere("inspect", folder)
    assert (status, err) == (0, "")
    assert "400 tokens x 256, learned positions 64" in out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "1 rows are all zeros" in out
    assert "#5 \x1b[31mred" not in out
    for title in ("Sizes", "What against where", "Lengths of the token rows", "Rows that are not well", "Positions"):
        assert f"\n{title}\n" in out


def test_the_command_gives_json(tmp_path: Path) -> None:
    folder = tell(HOSTILE, tmp_path)
    status, out, _ = whatwhere("inspect", folder, "--json", "--sections", "sizes, norms", "--seed", "3")
    assert status == 0
    data = json.loads(out)
    assert data == inspect(folder, ["sizes", "norms"], seed=3).data
    assert (data["format"], data["version"], list(data["sections"])) == ("whatwhere-inspection", 1, ["sizes", "norms"])


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    np.save(tmp_path / "table.npy", np.random.default_rng(0).standard_normal((50, 8)))
    status, out, _ = whatwhere("inspect", tmp_path / "table.npy", "--report", tmp_path / "out.html")
    assert status == 0
    assert f"Report: {(tmp_path / 'out.html').resolve()}" in out
    assert (tmp_path / "out.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-file"], "cannot be read"),
        (["table.npy", "--sections", "norm"], "there are: sizes"),
        (["table.npy", "--sections", ","], "no section"),
        (["table.npy", "--report", "."], "is a folder"),
        (["model.pt"], "allow-pickle|allow_pickle"),
    ],
)
def test_bad_input_is_told_in_words(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "table.npy", np.eye(9, dtype=np.float32))
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04")
    status, out, err = whatwhere("inspect", *words)
    assert (status, out) == (1, "")
    assert re.search(said, err)
    assert "Traceback" not in err


def test_a_terminal_without_blocks_gets_plain_bars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from whatwhere.inspection import terminal

    np.save(tmp_path / "table.npy", np.random.default_rng(0).standard_normal((50, 8)))
    found = inspect(tmp_path / "table.npy", ["norms"])
    for encoding, sign in (("utf-8", "█"), ("ascii", "#")):
        written = StringIO()
        monkeypatch.setattr(terminal.sys, "stdout", type("Out", (), {"encoding": encoding})())
        terminal.show(found.data, Console(file=written, width=120))
        monkeypatch.undo()
        assert sign in written.getvalue()
        assert written.getvalue().isascii() is (encoding == "ascii")


def test_data_alone_makes_the_page(tmp_path: Path) -> None:
    """The page is a function of the data, also of data that were kept as JSON."""
    pytest.importorskip("matplotlib")
    data = inspect(tell(HOSTILE, tmp_path)).data
    kept = json.loads(json.dumps(data))
    one, other = Inspection(data).write(tmp_path / "one.html"), Inspection(kept).write(tmp_path / "other.html")
    assert one.read_bytes() == other.read_bytes()
