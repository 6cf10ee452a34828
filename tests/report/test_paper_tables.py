"""Tables as files: every number can be read back, and a hostile name stays text in each format."""

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from whatwhere.comparison import OwnScores, paired_differences, read_results
from whatwhere.comparison.statistics import PairedDifferences
from whatwhere.errors import ResultsError, SettingError
from whatwhere.escape import visible
from whatwhere.report.comparison_figures import figures
from whatwhere.report.paper import csv_text, latex, latex_text, markdown, write_tables
from whatwhere.report.section import Table

from ..comparison.made_up import HOSTILE, change, hostile_folder, made_up_folder
from ..running import whatwhere

NASTY = [
    HOSTILE, "a|b_c*d`e", "\\input{x}", "50 % of $x$ & #1 ~^", "--x", "=1+1", "[a](b)", "&lt;", "ａß−1", "a\nb\tc",
    "*x",
]  # fmt: skip


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8"))))


def test_csv_has_every_number_of_every_seed(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path / "results", seeds=2))
    written = write_tables(results, tmp_path / "out", ["csv"])
    assert written.files == ("scores.csv", "shift.csv", "runs.csv", "losses.csv", "differences.csv")
    scores = rows_of(tmp_path / "out/scores.csv")
    right = {
        (run.scheme, run.seed, group, length): score
        for run in results.runs
        for length, groups in run.scores.items()
        for group, score in groups.items()
    }
    read = {(r["scheme"], int(r["seed"]), r["group"], int(r["arguments"])): r["accuracy"] for r in scores}
    assert len(read) == len(scores)
    assert {key: float(text) if text else None for key, text in read.items()} == right
    assert {r["trained"] for r in scores if int(r["arguments"]) <= 6} == {"true"}
    assert {r["trained"] for r in scores if int(r["arguments"]) > 6} == {"false"}
    shift = rows_of(tmp_path / "out/shift.csv")
    first = results.runs[0].shift[0]
    assert float(shift[0]["accuracy"]) == first.score
    assert float(shift[0]["largest logit change"]) == first.largest_logit_change
    for row in rows_of(tmp_path / "out/differences.csv"):
        gains = [float(row[f"seed {seed}"]) for seed in (0, 1)]
        if row["length"] == "in length":
            continue
        pairs = [right[row[part], seed, "all", int(row["length"])] for part in ("first", "second") for seed in (0, 1)]
        assert gains == pytest.approx([pairs[0] - pairs[2], pairs[1] - pairs[3]])  # type: ignore[operator]
        assert float(row["mean"]) == pytest.approx(sum(gains) / 2)


def test_names_are_text_in_csv() -> None:
    read = list(csv.reader(io.StringIO(csv_text([[name, -1.5] for name in NASTY]))))
    assert [row[1] for row in read] == ["-1.5"] * len(NASTY)
    for (text, _), name in zip(read, NASTY, strict=True):
        assert text.removeprefix("'") == visible(name)
        assert text[0] not in "=+-@"


def test_names_are_text_in_markdown() -> None:
    written = markdown(Table(HOSTILE, ["name", *NASTY], [[name, *NASTY] for name in NASTY], numeric=[1]))
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(written)
    inline = [token for token in tokens if token.type == "inline"]
    assert {child.type for token in inline for child in token.children or []} <= {"text", "strong_open", "strong_close"}
    texts = ["".join(child.content for child in token.children or []) for token in inline]
    rows = [["name", *NASTY], *([name, *NASTY] for name in NASTY)]
    assert texts == [visible(HOSTILE), *(visible(cell) for row in rows for cell in row)]


def test_names_are_text_in_latex() -> None:
    written = latex(Table(HOSTILE, ["name", *NASTY], [[name, *NASTY] for name in NASTY], numeric=[1]), "nasty")
    cells = [line.removesuffix(r" \\") for line in written.splitlines() if line.endswith(r" \\")]
    plain = [re.sub(r"\\[&%$#_{}]", "", cell) for cell in cells]
    assert [cell.count("&") for cell in plain] == [len(NASTY)] * (len(NASTY) + 1), "each row has all its cells"
    for cell in plain:
        assert not set('%#_^~|<>"') & set(cell)
        assert set(re.findall(r"\\([A-Za-z]+)", cell)) <= {
            "textbackslash", "textasciicircum", "textasciitilde", "textless", "textgreater", "textbar", "langle",
            "rangle",
        }  # fmt: skip
        depth = 0
        for char in cell:
            depth += {"{": 1, "}": -1}.get(char, 0)
            assert depth >= 0
        assert depth == 0
        assert cell.count("$") % 2 == 0
    assert cells[0].startswith("    name & ")
    assert latex_text("a_b") == r"a\_b"
    assert latex_text("ａ") == r"$\langle$U+FF41$\rangle$", "pdfTeX has no such character"
    assert latex_text("\u00b1\u00a00.3") == r"$\pm$~0.3"
    assert latex_text("[a]*") == "{[}a{]}{*}", "after the end of a row they would be its arguments"
    assert latex_text("a---b") == "a-{}-{}-b", "hyphens are not joined to a dash"


def test_tables_of_hostile_results_are_written(tmp_path: Path) -> None:
    written = write_tables(read_results(hostile_folder(tmp_path / "results")), tmp_path / "out")
    texts = [(tmp_path / "out" / name).read_text(encoding="utf-8") for name in written.files]
    assert all(text and not set("\x00\u202e") & set(text) for text in texts)


def test_latex_is_a_table_of_scores_and_those_of_differences(tmp_path: Path) -> None:
    folder = made_up_folder(tmp_path / "results", seeds=1)
    done = whatwhere("tables", str(folder), "--format", "latex", "--out", str(tmp_path / "out"), "--json")
    assert json.loads(done.out)["files"] == ["scores.tex", "differences.tex", "methods.tex"]
    differences = (tmp_path / "out/differences.tex").read_text(encoding="utf-8")
    labels = re.findall(r"\\label\{(\S+)\}", differences)
    assert labels == [f"tab:differences-{n}" for n in ("in-length", 8, 12, 16, 24, 32)]
    methods = (tmp_path / "out/methods.tex").read_text(encoding="utf-8")
    assert re.search(r"Task: expressions\. .* by AdamW .*; dim 64; layers 2; .* sign-flip permutation test", methods)
    scores = (tmp_path / "out/scores.tex").read_text(encoding="utf-8")
    alibi = read_results(folder).score("alibi", 32)
    assert alibi is not None
    assert re.search(rf"alibi & 100\.0 & .* & {100 * alibi.median:.1f} \\\\", scores)
    assert re.search(r"a single seed; ``at'' counts arguments[\s\S]*order-free ceiling & ", scores)


def test_methods_state_the_settings_of_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What all runs share is stated, what differs has all its values, and so do settings that are not the default."""
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    start = {"folder": "a", "scheme": "none", "seed": 0, "sha256": "", "loaded": ["x"], "fresh": [], "unused": []}

    def vary(data: Any) -> None:
        data["settings"] |= {"batch": 8, "direction": "encoder", "tied": True}
        data["device"] = "cuda"
        for run in data["runs"]:
            own = {"batch": 4} if run["scheme"] == "none" else {"schedule": "constant", "batch": 16}
            run.update(varied=own, start=start)

    folder = change(made_up_folder(tmp_path / "results", schemes=("none", "rotary"), seeds=2), vary)
    assert write_tables(read_results(folder), tmp_path / "out", ["markdown"]).files == ("scores.md", "methods.md")
    methods = (tmp_path / "out/methods.md").read_text(encoding="utf-8")
    assert "2 seeds, on cuda in bfloat16. Settings: steps 800; batch 4 or 16; learning rate 0.002; " in methods
    assert "schedule cosine or constant; dim 64; layers 2; heads 4; direction encoder; tied True; of several" in methods
    assert "Runs started from kept models: none from" in methods


def test_methods_state_what_was_compared_and_tested(tmp_path: Path) -> None:
    """Each scheme by its name, whose it is, on how many sequences of which length, and the files of a text."""

    def describe(data: Any) -> None:
        data["settings"]["test_sequences"] = 5
        data["task"] |= {"sequences": {"64": 20, "128": 20, "256": 12}, "identity": "sha256 abc"}
        data["request"] = {"files": ["far/notes.txt"], "tokenizer": None, "start": None, "modules": [],
                           "against": "none", "vary": {}}  # fmt: skip
        for run in data["runs"]:
            run["own"] = run["scheme"] == "alibi"

    folder = change(made_up_folder(tmp_path / "results", "text", ("none", "rotary", "alibi"), seeds=2), describe)
    (folder / "runs").mkdir(exist_ok=True)
    for n in range(8):
        (folder / "runs" / f"{n}.json").write_text("{}")
    write_tables(read_results(folder), tmp_path / "out", ["markdown", "csv"], against="rotary")
    methods = (tmp_path / "out/methods.md").read_text(encoding="utf-8")
    assert methods.startswith("Task: text on notes.txt (sha256 abc; the last tenth is held out). Schemes: none, rotary")
    assert "rotary and alibi (of our own). With each, " in methods
    assert "tested on new sequences: 20 of 64, 128; 12 of 256 bytes, 2 seeds" in methods
    assert "test sequences" not in methods, "a limit, of which more or fewer are tested"
    chosen = "every scheme against rotary (chosen after the runs, so p (Holm) is too small; before them: “none”)"
    assert f"{chosen} is compared" in methods
    write_tables(read_results(folder), tmp_path / "before", ["markdown"])
    before = (tmp_path / "before/methods.md").read_text(encoding="utf-8")
    assert "every scheme against “none” (chosen before the runs) is compared" in before
    change(folder, lambda data: data["request"].update(against=None))
    write_tables(read_results(folder), tmp_path / "after", ["markdown"], against="rotary")
    assert "before them: all pairs)" in (tmp_path / "after/methods.md").read_text(encoding="utf-8")
    assert "corrected for 2 pairs of schemes, each length by itself" in methods
    assert methods.endswith("The folder also holds 2 runs of other calls, which no test counts.\n")
    rows = {(row["bytes"], row["sequences"]) for row in rows_of(tmp_path / "out/scores.csv")}
    assert rows == {("64", "20"), ("128", "20"), ("256", "12")}


def test_what_is_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results: Any = read_results(made_up_folder(tmp_path / "results", seeds=1))
    with pytest.raises(SettingError, match="tables got format='word', but knows only: csv, markdown, latex"):
        write_tables(results, tmp_path, ["word"])
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"cannot be written: .*\nPass another folder"):
        write_tables(results, tmp_path / "file", ["csv"])
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    written = write_tables(results, tmp_path / "out", ["csv"])
    assert written.files == ("scores.csv", "shift.csv", "runs.csv", "losses.csv")
    assert "pip install 'whatwhere[compare]'" in written.missing


def test_own_scores_have_the_tables_and_figures_of_a_comparison(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path / "results", "text", ("none", "rotary"), seeds=2))
    scores = {
        scheme: {seed: {n: results.by_seed(scheme, n)[seed] for n in results.tested} for seed in results.seeds}
        for scheme in results.schemes
    }
    own = OwnScores(scores, "text", max(results.task.trained), "nats per byte", higher_is_better=False, unit="bytes")
    for length in results.tested:
        assert [own.score(s, length) for s in own.schemes] == [results.score(s, length) for s in results.schemes]
        assert paired_differences(own, length) == paired_differences(results, length)
    one, other = next(figures(own)), next(figures(results))
    assert one.series == [curve for curve in other.series if not curve.reference]
    assert (one.x, one.marks, one.y_label) == (other.x, other.marks, other.y_label)
    written = write_tables(own, tmp_path / "own")
    files = {f"{name}.{suffix}" for name in ("scores", "differences") for suffix in ("csv", "md", "tex")}
    assert set(written.files) == files | {"methods.md", "methods.tex"}
    assert (tmp_path / "own/methods.md").read_text().startswith("Runs of one seed are taken to share initial tokens")
    theirs = rows_of(tmp_path / "own/scores.csv")
    write_tables(results, tmp_path / "all", ["csv"])
    assert theirs == [row for row in rows_of(tmp_path / "all/scores.csv") if row["group"] == "all"]


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ({}, "need a scheme"),
        ({"a": {0: {8: 0.5}}, "b": {1: {8: 0.5}}}, "the runs of 'b' have other seeds or lengths"),
        ({"a": {0: {8: 0.5}}, "b": {0: {9: 0.5}}}, "the runs of 'b' have other seeds or lengths"),
        ({"a": {0: {8: 93.0}}}, "has the score 93.0, but needs a share"),
        ({"a": {0: {8: float("nan")}}}, "has the score nan"),
        ({"a": {0: {16: 0.5}}}, "are all beyond the trained 8"),
    ],
)
def test_own_scores_are_refused(scores: dict[str, dict[int, dict[int, float | None]]], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        OwnScores(scores, "mine", longest_trained=8, measure="accuracy", higher_is_better=True)


def test_a_mean_in_length_with_a_missing_score_is_none() -> None:
    own = OwnScores({"a": {0: {4: 0.5, 8: None}}, "b": {0: {4: 0.5, 8: 0.7}}}, "mine", 8, "accuracy", True)
    assert (own.score("a", None), own.by_seed("b", None)) == (None, {0: pytest.approx(0.6)})
    found = paired_differences(own, None)
    assert isinstance(found, PairedDifferences)
    assert found.left_out == ("a",)
