"""The page and the command: one file that asks for nothing, in which no token can do anything."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, models

from whatwhere.analysis.inspection import SECTIONS, inspect
from whatwhere.errors import MissingExtra, SettingError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.records import to_json
from whatwhere.report.inspection import TITLES, headline, sections
from whatwhere.report.text import number
from whatwhere.studio.export import write_inspection

from ..running import error_of, whatwhere
from .page import Page

pytestmark = pytest.mark.usefixtures("bundle")
HOSTILE = [
    "<script>alert(1)</script>", "</title><img src=x onerror=alert(1)>", "\u202egnp.exe", "a\u200bb", "\x1b[31mred",
    " ", "\u0301", '" onload="x', "&amp;", "'", "\n", "{{7*7}}", "x" * 500, "http://evil.example/", "\u2066",
]  # fmt: skip


def write_model(words: list[str], tmp_path: Path, **config: Any) -> Path:
    """Write a model whose tokens are hostile, some rows of which are faulty."""
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
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(HOSTILE, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def page(hostile: Path, bundle: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    file = written(hostile, folder / "out.html")
    assert [path.name for path in folder.iterdir()] == ["out.html"]
    return file.read_text(encoding="utf-8")


def written(path: Path, file: Path, *, allow_pickle: bool = False) -> Path:
    checkpoint = Checkpoint.open(path, allow_pickle=allow_pickle)
    return write_inspection(checkpoint, inspect(checkpoint), file)


def test_the_page_runs_nothing_but_its_own(page: str) -> None:
    read = Page(page)
    tags = [tag for tag, _ in read.elements]
    assert not set(tags) & {"img", "iframe", "object", "link", "form", "base", "video", "audio", "embed"}
    assert tags.count("script") == 2  # the answers, and the page's own
    for _, attributes in read.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "src", "xlink:href"):
            assert attributes.get(name, "#").startswith("#")
    policy = next(a["content"] for tag, a in read.elements if tag == "meta" and a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_no_character_reorders_or_hides(page: str) -> None:
    assert not set(page) & set("\u202e\u200b\u2066\x1b\x00")
    # As their codes they are there to be read.
    assert "⟨U+202E⟩gnp.exe" in page
    assert "a⟨U+200B⟩b" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_every_section_is_read_without_a_script(page: str, hostile: Path) -> None:
    read = Page(page)
    assert read.texts["h2"][0] == "Overview"
    parts = {section.title: section.parts for section in sections(inspect(hostile))}
    short = {title: each[0] for title, each in parts.items() if len(each) == 1 and isinstance(each[0], str)}
    assert [title for title in read.texts["h3"] if title in parts] == sorted(
        (title for title in parts if title not in short), key=lambda title: title == TITLES["sizes"]
    )
    assert {sentence for sentence in short.values() if sentence not in read.texts["p"]} == set()
    assert short
    said = headline(inspect(hostile))
    assert read.texts["p"][1] == f"{said}."
    assert said.startswith("400 tokens × 256, 64 learned positions; ")
    sizes = {row[0]: row[1:] for row in read.rows("Parameters and bytes by part")}
    assert sizes["token table"][:4] == ["400 × 256", "float32", "102,400", "86.2\u00a0%"]
    assert sizes["all"][2] == f"{400 * 256 + 64 * 256:,}"
    assert "1 row of zeros." in read.texts["p"]
    assert [row[:2] for row in read.rows("Zero rows")[1:]] == [["#3", "a⟨U+200B⟩b"]]
    (broken,) = read.rows("Rows with NaN or infinity")[1:]
    assert (broken[:2], broken[-2:]) == (["#4", "⟨U+001B⟩[31mred"], ["1", "0"])
    equal = [(*row[:2], row[-1]) for row in read.rows("Duplicate rows")[1:]]
    assert equal == [("#5", "␣", "1"), ("#6", "◌\u0301", "1")]
    norms = read.rows("Histogram of the norms")[1:]
    assert sum(int(count) for _, count in norms) == 399  # one is not finite
    rotary = read.texts["p"].index("No layer of this model rotates queries and keys.")
    assert read.texts["p"][rotary + 1] == "No layer of this model adds a bias to its attention scores."


def test_the_numbers_are_those_of_the_findings(page: str, hostile: Path) -> None:
    read, found = Page(page), inspect(hostile)
    percentiles = {name: number(value) for name, value in found.norms.percentiles.items()}
    assert dict(read.rows("Percentiles of the norms")[1:]) == percentiles  # type: ignore[arg-type]
    for distance, cosine in read.rows("Mean cosine of two positions, by their distance")[1:]:
        assert cosine.replace("−", "-") == f"{found.positions.by_distance[int(distance)]:.3f}"
    head, first = read.rows("Share of the variance by principal axis")[:2]
    assert head == ["axis", "token embeddings", "positions"]
    assert first[1] == f"{100 * found.spectrum.explained_variance_ratio[0]:.1f}\u00a0%"


def test_the_same_checkpoint_makes_the_same_page(page: str, hostile: Path, tmp_path: Path) -> None:
    assert written(hostile, tmp_path / "again.html").read_text(encoding="utf-8") == page


def test_the_page_shows_the_findings(hostile: Path, tmp_path: Path) -> None:
    """An inspection that was made before is written as it is; no other sections are computed."""
    checkpoint = Checkpoint.open(hostile)
    result = inspect(checkpoint, ["sizes", "norms"], seed=3)
    changed = replace(result.norms, percentiles=result.norms.percentiles | {"50": 7777.0})
    file = write_inspection(checkpoint, replace(result, norms=changed), tmp_path / "kept.html")
    read = Page(file.read_text(encoding="utf-8"))
    titles = [title for title in read.texts["h3"] if title in TITLES.values()]
    assert titles == [TITLES["norms"], TITLES["sizes"]]
    assert any(said.startswith("The median norm is 7,777") for said in read.texts["p"])


def test_a_page_never_replaces_the_model(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.eye(9, dtype=np.float32))
    before = (tmp_path / "table.npy").read_bytes()
    with pytest.raises(SettingError, match="not overwritten"):
        written(tmp_path / "table.npy", tmp_path / "table.npy")
    assert (tmp_path / "table.npy").read_bytes() == before


def test_without_a_bundle_it_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whatwhere.studio.export.PAGE", tmp_path)
    np.save(tmp_path / "table.npy", np.eye(9, dtype=np.float32))
    with pytest.raises(MissingExtra, match="make page"):
        written(tmp_path / "table.npy", tmp_path / "page.html")

    def work(*_: Any) -> None:
        raise AssertionError("it began to work")

    monkeypatch.setattr("whatwhere.analysis.inspection.examine", work)
    assert "make page" in error_of("inspect", tmp_path / "table.npy", "--report", tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["table.npy"]


# The command


def test_the_command_prints_the_findings(hostile: Path) -> None:
    status, out, err = whatwhere("inspect", hostile)
    assert (status, err) == (0, "")
    assert "400 tokens × 256, 64 learned positions" in out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "1 row of zeros" in out
    assert "#5 \x1b[31mred" not in out
    for title in TITLES.values():
        assert f"\n{title}\n" in out


def test_the_command_prints_json(hostile: Path) -> None:
    status, out, _ = whatwhere("inspect", hostile, "--json", "--sections", "sizes, norms", "--seed", "3")
    assert status == 0
    data = json.loads(out)
    result = inspect(hostile, ["sizes", "norms"], seed=3)
    assert data == {"headline": headline(result), "sources": {}} | to_json(result)
    assert next(iter(data)) == "headline"
    assert [name for name in SECTIONS if data[name] is not None] == ["sizes", "norms"]
    assert (data["seed"], data["shape"], data["norms"]["rows"]) == (3, [400, 256], 400)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-file"], "cannot be read"),
        (["table.npy", "--sections", "norm"], "Sections are: sizes"),
        (["table.npy", "--sections", ","], "sections are empty"),
        (["table.npy", "--report", "."], "is a folder"),
        (["model.pt"], "allow-pickle|allow_pickle"),
        (["broken.safetensors"], "header"),
    ],
)
def test_bad_input_is_an_error_in_words(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "table.npy", np.eye(9, dtype=np.float32))
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04")
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 100)
    assert re.search(said, error_of("inspect", *words))
