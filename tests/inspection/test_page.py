"""The page and the command: one file that asks for nothing, in which no token can do anything."""

import json
import re
from functools import partial
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, models

from whatwhere.errors import MissingExtra, SettingError
from whatwhere.inspection import SECTIONS, Inspection, inspect
from whatwhere.inspection.telling.parts import seen
from whatwhere.inspection.wording import TITLES
from whatwhere.studio import freezing
from whatwhere.studio.freezing import check_file, write_page

from ..running import refused, whatwhere

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


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a page of two files."""
    folder = tmp_path_factory.mktemp("bundle")
    for name in ("index.html", "studio.js", "studio.css"):
        (folder / name).write_text("", encoding="utf-8")
    return folder


def bundled(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have pages made of a bundle in another folder than the installation's."""
    for each in (write_page, check_file):
        patch.setattr(freezing, each.__name__, partial(each, page=folder))


@pytest.fixture(autouse=True)
def _bundled(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled(monkeypatch, bundle)


class Read(HTMLParser):
    """Read a page as a browser does that runs no script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"h2": [], "h3": [], "p": [], "caption": []}
        self.tables: dict[str, list[list[str]]] = {}
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self._open.append(tag)
        if tag in self.texts:
            self.texts[tag].append("")
        if tag == "tr" and self.texts["caption"]:
            self.tables.setdefault(self.texts["caption"][-1], []).append([])
        if tag in ("td", "th"):
            self.tables[self.texts["caption"][-1]][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        """Leave a tag."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep a text where it stands."""
        for tag in reversed(self._open):
            if tag in ("td", "th"):
                self.tables[self.texts["caption"][-1]][-1][-1] += data
                return
            if tag in self.texts:
                self.texts[tag][-1] += data
                return


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of a model whose tokens are hostile."""
    return tell(HOSTILE, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def page(hostile: Path, bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write its page."""
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        bundled(patch, bundle)
        file = inspect(hostile).write(folder / "out.html")
    assert [path.name for path in folder.iterdir()] == ["out.html"]
    return file.read_text(encoding="utf-8")


def test_the_page_runs_nothing_but_its_own(page: str) -> None:
    read = Read(page)
    tags = [tag for tag, _ in read.tags]
    assert not set(tags) & {"img", "iframe", "object", "link", "form", "base", "video", "audio", "embed"}
    assert tags.count("script") == 2  # the answers, and the page's own
    for _, attributes in read.tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    policy = next(a["content"] for tag, a in read.tags if tag == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_no_sign_reorders_or_hides(page: str) -> None:
    assert not set(page) & set("\u202e\u200b\u2066\x1b\x00")
    # As their codes they are there to be read.
    assert "\\u202egnp.exe" in page
    assert "a\\u200bb" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_every_section_is_read_without_a_script(page: str, hostile: Path) -> None:
    read = Read(page)
    assert read.texts["h2"][0] == "Overview"
    assert [title for title in read.texts["h3"] if title in TITLES.values()] == [TITLES[name] for name in SECTIONS]
    answer = inspect(hostile).answer
    assert read.texts["p"][1] == f"{answer}."
    assert answer.startswith("400 tokens x 256, learned positions 64; ")
    sizes = {row[0]: row[1:] for row in read.tables["Parameters and bytes by part"]}
    assert sizes["token table"] == ["400 x 256", "float32", "102,400", "86.2 %", "409,600", "86.2 %", "wte.weight"]
    assert sizes["all"][2] == f"{400 * 256 + 64 * 256:,}"
    assert "1 row: all zeros." in read.texts["p"]
    assert read.tables["Rows that are all zeros"][1:] == [["#3", "a\\u200bb"]]
    assert read.tables["Rows that are broken (NaN or infinity)"][1:] == [["#4", "\\x1b[31mred", "1", "0"]]
    assert read.tables["Rows that are equal"][1:] == [["#5", "#5 ␣  #6 ◌\u0301"]]
    lengths = read.tables["Lengths of the rows"][1:]
    assert sum(int(count) for _, count in lengths) == 399  # one is not finite
    rotary = read.texts["p"].index("No layer of this model turns queries and keys.")
    assert read.texts["p"][rotary + 1] == "No layer of this model adds a bias to its scores."


def test_the_numbers_are_those_of_the_table(page: str, hostile: Path) -> None:
    from safetensors.numpy import load_file

    read, tensors = Read(page), load_file(hostile / "model.safetensors")
    norms = np.linalg.norm(tensors["wte.weight"].astype(np.float64), axis=1)
    finite = norms[np.isfinite(norms)]
    names, values = read.tables["Percentiles of the lengths"]
    for name, value in zip(names[1:], values[1:], strict=True):
        assert value == f"{np.percentile(finite, float(name.removesuffix(' %'))):.3g}"
    places = tensors["wpe.weight"].astype(np.float64)
    unit = places / np.linalg.norm(places, axis=1, keepdims=True)
    for distance, cosine in read.tables["How alike two positions are, by their distance"][1:]:
        n = int(distance)
        assert cosine == f"{(unit[n:] * unit[:-n]).sum(axis=1).mean():.3f}"
    spread = np.linalg.svd(places - places.mean(axis=0), compute_uv=False) ** 2
    first = read.tables["Share of the variance of positions by principal axis"][1]
    assert first == ["1", f"{100 * spread[0] / spread.sum():.1f} %"]


def test_the_same_checkpoint_gives_the_same_page(page: str, hostile: Path, tmp_path: Path) -> None:
    assert inspect(hostile).write(tmp_path / "again.html").read_text(encoding="utf-8") == page


def test_data_alone_make_the_page(hostile: Path, tmp_path: Path) -> None:
    """What was kept as JSON is shown as it was found, of what lies at its path."""
    data = inspect(hostile, ["sizes", "norms"], seed=3).data
    data["sections"]["norms"]["mean"] = data["sections"]["norms"]["percentiles"]["50"] = 7777
    file = Inspection(json.loads(json.dumps(data))).write(tmp_path / "kept.html")
    read = Read(file.read_text(encoding="utf-8"))
    titles = [title for title in read.texts["h3"] if title in TITLES.values()]
    assert titles == [TITLES["sizes"], TITLES["norms"]]
    assert any(said.startswith("The median length is 7.78e+03") for said in read.texts["p"])


def test_a_pickle_that_was_allowed_once_is_written(tmp_path: Path) -> None:
    torch.save({"tok_embeddings.weight": torch.eye(40, 8)}, tmp_path / "model.pt")
    file = inspect(tmp_path / "model.pt", allow_pickle=True).write(tmp_path / "page.html")
    assert "40 tokens x 8." in Read(file.read_text(encoding="utf-8")).texts["p"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (" a", "␣a"), ("  ", "␣␣"), ("a b", "a b"), ("\u0301", "◌\u0301"), ("\t", "\\t"), ("Ġthe", "Ġthe"), ("", ""),
        ("x" * 500, "x" * 36 + "…" + "x" * 11),
    ],
)  # fmt: skip
def test_what_cannot_be_seen_is_shown(given: str, shown: str) -> None:
    assert seen(given) == shown


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.eye(9, dtype=np.float32))
    found = inspect(tmp_path / "table.npy", ["sizes"])
    with pytest.raises(SettingError, match="is a folder"):
        found.write(tmp_path)
    with pytest.raises(SettingError, match="cannot be written"):
        found.write(tmp_path / "no" / "where.html")
    before = (tmp_path / "table.npy").read_bytes()
    with pytest.raises(SettingError, match="not written over"):
        found.write(tmp_path / "table.npy")
    assert (tmp_path / "table.npy").read_bytes() == before


def test_without_a_bundle_it_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled(monkeypatch, tmp_path)
    np.save(tmp_path / "table.npy", np.eye(9, dtype=np.float32))
    with pytest.raises(MissingExtra, match="make page"):
        inspect(tmp_path / "table.npy", ["sizes"]).write(tmp_path / "page.html")

    def work(*_: Any) -> None:
        raise AssertionError("it began to work")

    monkeypatch.setattr("whatwhere.inspection.gather", work)
    assert "make page" in refused("inspect", tmp_path / "table.npy", "--report", tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["table.npy"]


# The command


def test_the_command_prints_what_was_found(hostile: Path) -> None:
    status, out, err = whatwhere("inspect", hostile)
    assert (status, err) == (0, "")
    assert "400 tokens x 256, learned positions 64" in out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "1 row: all zeros" in out
    assert "#5 \x1b[31mred" not in out
    for title in ("Sizes", "What against where", "Lengths of the token rows", "Rows that are not well", "Positions"):
        assert f"\n{title}\n" in out


def test_the_command_gives_json(hostile: Path) -> None:
    status, out, _ = whatwhere("inspect", hostile, "--json", "--sections", "sizes, norms", "--seed", "3")
    assert status == 0
    data = json.loads(out)
    assert data == inspect(hostile, ["sizes", "norms"], seed=3).data
    assert (data["format"], data["version"], list(data["sections"])) == ("whatwhere-inspection", 1, ["sizes", "norms"])


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.random.default_rng(0).standard_normal((50, 8)))
    status, out, _ = whatwhere("inspect", tmp_path / "table.npy", "--report", tmp_path / "out.html")
    assert status == 0
    assert f"Report: {(tmp_path / 'out.html').resolve()}" in out
    assert (tmp_path / "out.html").read_text(encoding="utf-8").startswith("<!doctype html>")


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
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "table.npy", np.eye(9, dtype=np.float32))
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04")
    assert re.search(said, refused("inspect", *words))


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
