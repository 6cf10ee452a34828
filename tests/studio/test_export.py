"""The page as one file: what it holds is what the API answers, and nothing else may run in it."""

import base64
import gzip
import html
import json
import re
from collections.abc import Callable
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from typer.testing import CliRunner

import whatwhere as ww
from whatwhere.analysis.token_map import make_map
from whatwhere.cli.app import app
from whatwhere.errors import MissingExtra, SettingError
from whatwhere.report.section import Table
from whatwhere.report.text import number
from whatwhere.studio import export
from whatwhere.studio.api import EXPORTS, QUERIES, token_map
from whatwhere.studio.export import Shown, live, pack, show, unpack
from whatwhere.studio.session import Session

from ..comparison.made_up import hostile_folder
from ..running import fitting


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a page of two files, with what an inline script must not say."""
    (tmp_path / "index.html").write_text("", encoding="utf-8")
    (tmp_path / "studio.js").write_text('const a = "</script><!-- é";', encoding="utf-8")
    (tmp_path / "studio.css").write_text("p { color: red }", encoding="utf-8")
    monkeypatch.setattr(export, "PAGE", tmp_path)
    return tmp_path


def answers(page: str) -> dict[str, dict[str, Any]]:
    data = json.loads(re.search(r'id="exported">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    return {key: unpack(gzip.decompress(base64.b64decode(data["blocks"][n]))) for key, n in data["answers"].items()}


def test_an_exported_page_holds_what_the_api_answers(fresh: Session, bundle: Path) -> None:
    page = export.render_page(fresh)
    result = answers(page)
    assert set(result["about?{}"]["views"]) == set(EXPORTS) - {"compare", "training", "replay", "attention", "ask"}
    queries = {key: parts for key in result if (parts := key.partition("?"))[0] in QUERIES and key != "about?{}"}
    for key, (name, _, settings) in queries.items():
        right = pack(QUERIES[name](fresh, json.loads(settings)))
        assert pack(result[key]) == right, key
    assert {"tokens.card", "tokens.neighbors", "tokens.analogy", "maps.points", "maps.labels", "maps.neighbors"} <= {
        name for name, _, _ in queries.values()
    }
    assert 'tokens.card?{"token":"Max"}' in result
    assert export.render_page(fresh) == page  # the same bytes, whenever it is written


def cells(title: str, session: Session, table: int = 0) -> dict[str, list[str]]:
    """Give the rows of a table for readers without JavaScript, by their first cells; all are as long as the head."""
    exported = EXPORTS[title](session)
    tables = [part for section in exported.sections for part in section.parts if isinstance(part, Table)]
    read = tables[table]
    assert {len(row) for row in read.rows} == {len(read.columns)}
    return {row[0]: list(row[1:]) for row in read.rows}


def test_each_view_has_sections_to_read_without_javascript(fresh: Session) -> None:
    for name in QUERIES["about"](fresh, {}).views:
        view = EXPORTS[name](fresh)
        parts = [part for section in view.sections for part in section.parts]
        assert parts or view.text, name


def test_the_rotary_lab_is_left_in_tables(fresh: Session) -> None:
    plain, yarn = cells("rotary", fresh), cells("rotary", fresh, 1)
    for n in (0, 7, 31):
        wavelength = 2 * pi * 10_000 ** (2 * n / 64)
        assert plain[str(n)][:3] == [number(wavelength), "1", number(4096 / wavelength)]
    # YaRN keeps pairs that turn 32 times in the trained length, and slows those that do not turn once by the factor.
    assert [yarn[n][1] for n in ("0", "31")] == ["1", "4"]


def test_an_exported_page_begins_with_as_many_positions_as_it_holds(bundle: Path) -> None:
    layer = ww.InputLayer(vocab_size=30, dim=8, input=ww.Learned(dim=8, max_length=300))
    session = Session(live(layer))
    result = answers(export.render_page(session))
    begin = result["about?{}"]["begin"]["positions"]
    assert (begin["scheme"], begin["rows"], QUERIES["about"](session, {}).begin["positions"]["rows"]) == (
        "model",
        128,
        512,
    )
    held = result[f"positions.shown?{json.dumps(dict(sorted(begin.items())), separators=(',', ':'))}"]
    np.testing.assert_array_equal(held["fingerprint"]["values"], layer.where.input.weight[:128].detach())


def test_only_what_the_page_brought_may_run(fresh: Session, bundle: Path) -> None:
    page = export.render_page(fresh)
    assert page.count("<script") == page.count("</script>") == 2
    assert "<!--" not in page
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])  # type: ignore[index]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    (bundle / "index.html").unlink()
    with pytest.raises(MissingExtra, match="no page for the studio"):
        export.render_page(fresh)


def test_names_of_tokens_are_text_everywhere(bundle: Path, tmp_path: Path) -> None:
    table = tmp_path / "evil.vec"
    words = ["</script><script>alert(1)</script>", "<img/src=x>", "&amp;", "d", "e", "f"]
    table.write_text(f"{len(words)} 2\n" + "".join(f"{word} {n} 1\n" for n, word in enumerate(words)), encoding="utf-8")
    page = export.render_page(Session.open(table))
    assert page.count("<script") == 2
    assert "<img" not in page
    assert str(tmp_path) not in page
    assert str(tmp_path) not in json.dumps(answers(page)["about?{}"])


def test_modules_are_shown_from_memory(bundle: Path) -> None:
    layer = ww.InputLayer(vocab_size=30, dim=8, input=ww.Learned(dim=8, max_length=16))
    shown = show(layer, height=300)
    about = answers(shown.page)["about?{}"]
    assert (about["name"], about["tables"]["input"]["rows"], about["tables"]["input"]["dim"]) == ("InputLayer", 30, 8)
    inside = html.unescape(re.search(r'srcdoc="([^"]*)"', shown._repr_html_())[1])  # type: ignore[index]
    assert inside == shown.page
    assert 'sandbox="allow-scripts allow-downloads"' in shown._repr_html_()
    assert isinstance(ww.show(), Shown)
    assert "save" in repr(shown)
    assert shown.save(bundle / "out.html").read_text(encoding="utf-8") == shown.page

    from whatwhere.what.expressions import EXPRESSION_TOKENS, expression_tokenizer

    card = torch.nn.Embedding(len(EXPRESSION_TOKENS), 8, dtype=torch.bfloat16)
    named = show(card, expression_tokenizer())
    result = answers(named.page)['tokens.card?{"token":"Max"}']
    np.testing.assert_array_equal(result["tables"]["input"]["row"], card.weight[result["id"]].detach().float())
    assert result["reachable"] is True


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": 7}, "takes a path"),
        ({"model": torch.nn.Embedding(20, 4), "tokenizer": "bert"}, "tokenizers library"),
        ({"tokenizer": object()}, "has its own"),
        ({"height": 10}, "from 200"),
    ],
)
def test_what_cannot_be_shown_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        show(**given)


@pytest.mark.usefixtures("bundle")
def test_the_command_writes_one_file(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["studio", "--export", str(target), "--json"])
    assert done.exit_code == 0, done.output
    said = fitting("studio", done.output.splitlines()[-1])
    assert (said["file"], said["bytes"]) == (str(target), target.stat().st_size)
    table = tmp_path / "table.npy"
    np.save(table, np.eye(5, dtype=np.float32))
    before = table.read_bytes()
    two = [str(table), str(table), "--export", str(tmp_path / "two.html")]
    for wrong in (["--export", str(tmp_path)], [str(table), "--export", str(table)], ["--map", "tsne"], two):
        assert CliRunner().invoke(app, ["studio", *wrong]).exit_code != 0
    assert table.read_bytes() == before


def test_the_page_opens_from_disk_in_a_frame_and_without_scripts(
    look: Callable[..., dict[str, Any]], fresh: Session, tmp_path: Path
) -> None:
    page = export.render_page(fresh)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    (tmp_path / "frame.html").write_text(Shown(page, 800, "x")._repr_html_(), encoding="utf-8")
    seen = look(
        fresh, "exported.mjs", file=str(tmp_path / "page.html"), frame=str(tmp_path / "frame.html"), token=15, part="la"
    )
    assert seen["opened"] == dict.fromkeys(seen["views"], 0)
    assert seen["views"] == [view.title for view in QUERIES["about"](fresh, {}).views.values()]
    near = QUERIES["tokens.neighbors"](fresh, {"token": "Max", "k": 10}).lists[0]
    assert seen["near"] == near.words
    assert "exported" in seen["head"]
    assert seen["options"][0] == "Last"
    assert seen["refused"].startswith("This is an exported page")
    nearest = QUERIES["tokens.neighbors"](fresh, {"token": "#15", "k": 4}).lists[0]
    assert seen["chips"] == nearest.words
    assert seen["cosines"] == [f"{cosine:.3f}" for cosine in nearest.cosines]
    assert seen["layouts"] == ["PCA"], "no others were drawn"
    assert seen["violations"] == []
    assert seen["address"].endswith("page.html#/diagnostics")
    for said in ("Nearest to Max", "The overview counts and lists these rows", near.words[0]):
        assert said in seen["plain"]
    assert seen["stopped"] == [False, "stopped"]
    assert (seen["framed"], seen["outside"], seen["saved"]) == ("Token map", "about:blank", "20-tokens-by-pca.csv")
    assert {url.partition(":")[0] for url in seen["requests"]} <= {"file", "data", "blob", "about"}
    assert seen["complaints"] == []


@pytest.mark.usefixtures("bundle")
def test_a_checkpoint_is_exported_by_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, our_own_checks: None
) -> None:
    table, corpus = tmp_path / "table.npy", tmp_path / "corpus.txt"
    np.save(table, np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32))
    corpus.write_text("a b", encoding="utf-8")
    steps: list[str] = []

    def compute(function: Any, report: Any, **settings: Any) -> Any:
        report(0.5, "half")
        return make_map(settings["table"], "pca", k=3)

    monkeypatch.setattr(token_map, "run_in_subprocess", compute)
    file = ww.export(table, tmp_path / "page.html", map_method="tsne", corpus=corpus, progress=steps.append)
    assert file == tmp_path / "page.html"
    result = answers(file.read_text(encoding="utf-8"))
    assert result["about?{}"]["begin"]["map"] == {"method": "tsne", "table": "input", "example": ""}
    maps = {key for key in result if key.startswith("maps.points")}
    assert maps == {f'maps.points?{{"method":"{method}","table":"input"}}' for method in ("pca", "tsne")}
    assert {"tsne: half", "exporting tokens", "computing the answers"} <= set(steps)
    again = ww.export(ww.read(table), tmp_path / "again.html")
    assert answers(again.read_text(encoding="utf-8"))["about?{}"]["begin"]["map"] == {
        "method": "pca",
        "table": "input",
        "example": "",
    }
    with pytest.raises(SettingError, match="method must be one of pca, tsne, umap"):
        ww.export(table, tmp_path / "other.html", map_method="mds")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="part of the checkpoint"):
        ww.export(table, table)
    assert not (tmp_path / "other.html").exists()


def test_a_page_is_written_whole_or_not_at_all(fresh: Session, bundle: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("the old page", encoding="utf-8")
    (bundle / "studio.css").write_bytes(b"\xff")  # what is found in the midst of the work
    with pytest.raises(UnicodeDecodeError):
        export.write_page(fresh, target)
    assert target.read_text(encoding="utf-8") == "the old page"
    for wrong, said in ((tmp_path, "is a folder"), (tmp_path / "no/page.html", "cannot be written"), ("a\0b", "null")):
        with pytest.raises(SettingError, match=said):
            export.write_page(fresh, wrong)
    assert not list(tmp_path.glob("*.part"))
    (bundle / "studio.css").write_text("", encoding="utf-8")
    assert export.write_page(fresh, str(target)) == target
    assert target.read_text(encoding="utf-8") == export.render_page(fresh)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text('aä東\u202e"\\\n\0'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc"), PLAIN, max_size=4), st.lists(st.floats(width=32, allow_nan=False), max_size=9))
def test_what_goes_in_comes_out(plain: dict, numbers: list[float]) -> None:
    sent = plain | {"array": np.array(numbers, np.float32), "double": np.array(numbers)}
    result = unpack(pack(sent))
    for name, dtype in (("array", np.float32), ("double", np.float64)):
        back = result.pop(name)
        assert back.dtype == dtype
        np.testing.assert_array_equal(back, sent.pop(name))
    assert result == sent


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.array([2**31 - 1, -(2**31)]), np.int32),
        (np.array([2**31]), np.float64),
        (np.array([True, False]), np.uint8),
        (np.array([1, 2], ">f4"), np.float32),
        (np.array([1.0], np.float16), np.float32),
        (np.array([], np.int64), np.int32),
        (np.array([3], np.int16), np.int32),
        (np.arange(6.0).reshape(2, 3).T, np.float64),
    ],
)
def test_types_that_javascript_lacks_become_others_of_the_same_numbers(array: np.ndarray, dtype: type) -> None:
    result = unpack(pack({"x": array}))["x"]
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, array)


def test_numbers_that_json_cannot_say_are_null() -> None:
    assert unpack(pack({"x": [float("nan"), np.float32("inf"), 1.0]})) == {"x": [None, None, 1.0]}


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([1j]), {1, 2}])
def test_what_has_no_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="no form on the wire"):
        pack({"x": value})


@pytest.fixture
def opened(look: Callable[..., dict[str, Any]], fresh: Session, tmp_path: Path) -> Callable[..., dict[str, Any]]:

    def write_and_look(folder: Path, **given: Any) -> dict[str, Any]:
        file = export.write_page(Session.open(folder), tmp_path / "report.html")
        result = look(fresh, "report.mjs", file=str(file), **given)
        assert result["opened"] == dict.fromkeys(result["views"], 0)
        assert (result["title"], result["views"][0]) == ("Compare", "Compare")
        return result

    return write_and_look


def test_the_report_shows_what_was_measured(opened: Callable[..., dict[str, Any]], results: Path) -> None:
    written = json.loads((results / "results.json").read_text(encoding="utf-8"))
    result = opened(results, fingerprint="Fingerprint of learned")
    assert {"Compare", "Training replay", "Attention by distance", "Pipeline", "Token card"} <= set(result["views"])
    (head, *rows), (costs, *counts) = result["summary"]
    for name, said in written["summary"].items():
        row, cost = (next(cells for cells in each if cells[0] == name) for each in (rows, counts))
        for title, spread in {
            "in length": said["in_length"],
            "at 4": said["scores"]["4"]["all"],
            "at 6": said["scores"]["6"]["all"],
        }.items():
            shown = row[head.index(title)].replace("(", "").replace(")", "").replace(" to", "").split()
            ends = [] if spread is None else [f"{100 * spread[end]:.1f}" for end in ("median", "min", "max")]
            assert shown == (ends if len(set(ends[1:])) > 1 else ends[:1] or ["no", "row"])
        assert cost[costs.index("parameters")] == f"{said['parameters']['total']:,}"
    layer = load_file(results / "models/learned-0.safetensors")
    rows = [line.split(",") for line in result["csv"].removeprefix("\ufeff").splitlines()[1:]]
    table = next(tensor for name, tensor in layer.items() if tensor.shape == (8, 16))
    np.testing.assert_allclose(np.array(rows, float)[:, 1:], table, atol=1e-3)
    assert result["cut"] == result["wide"] == []
    assert result["paper"] == "#ffffff"
    assert result["replay"].startswith("step 7 of 7"), "it begins where the training ended"
    assert sorted(result["runs"]) == ["learned, seed 0", "rotary+alibi, seed 0"]
    assert result["replayed"] == []
    title, bottom = result["fold"]
    assert title == "Accuracy by length"
    assert bottom < 1000, "what a reader looks for is on the first screen"
    assert len(result["answer"].split()) <= 20
    questions, controls, usual, shifted, moved = result["asked"]
    assert ({"First(6,2,1)", "Last(6,2,1)", "Shift all positions by 1"} <= {*questions}, controls) == (True, 0)
    assert shifted == [str(n) for n in range(1, 9)]
    assert len(usual) == len(moved) == 2
    for said in (result["answer"], written["command"]):
        assert said in result["main"]
        assert said.replace("\xa0", " ") in result["plain"].replace("\xa0", " ")


def test_a_report_of_hostile_names_shows_them(opened: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    result = opened(hostile_folder(tmp_path / "hostile"))
    assert "</title></style><script>alert(1)</script>" in result["main"]
    assert "</title></style><script>alert(1)</script>" in result["plain"]
    assert "\u202e" not in result["main"] + result["plain"]
