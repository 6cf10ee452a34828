"""A benchmark as a whole: processes, regimes, what is kept, what is refused, what is printed."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import run, table
from benchmarks.case import Candidate, Case, Scale, Variant
from benchmarks.run import bench
from benchmarks.store import as_text
from benchmarks.worker import Request
from whatwhere.errors import ResultsError, SettingError, ShapeError


def case(name: str, prepare: Callable[[], Sequence[Candidate]]) -> Case:
    return Case(name, "a trial", "nothing", lambda scale: [Variant("one", "nothing", prepare, unit=8)])


def candidates() -> list[Candidate]:
    return [Candidate("nothing", lambda: lambda: None), Candidate("whatwhere", lambda: lambda: torch.ones(8))]


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Replace the real cases by two of our own; count how often each is prepared."""
    prepared = {"first": 0, "second": 0}

    def counted(name: str) -> list[Candidate]:
        prepared[name] += 1
        return candidates()

    cases = {name: case(name, lambda name=name: counted(name)) for name in prepared}
    monkeypatch.setattr(run, "CASES", cases)
    return prepared


def test_a_process_of_its_own_measures_under_its_regime() -> None:
    scale = Scale(quick=True, threads=1, compiled=False)
    (line,) = run._in_a_process(Request("start", "pooled", 0.1, once=False, scale=scale))
    assert line["variant"] == "processes"
    assert [len(row["times"]["rounds"]) for row in line["rows"].values()] == [2, 2]


def test_regimes_have_results_of_their_own(trial: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[tuple[str, bool]] = []

    def in_a_process(request: Request, ends: float) -> Any:
        requested.append((request.regime, request.once))
        for variant in run.CASES[request.case].variants(request.scale):
            yield run.measure(variant, request.scale, run.QUICK, request.once)

    monkeypatch.setattr(run, "_in_a_process", in_a_process)
    result = bench(["first"], threads=1)
    assert requested == [("fresh", True), ("pooled", False)]
    limit, ours = result["cases"]["first"]["variants"][0]["rows"]
    assert [set(row["regimes"]) for row in (limit, ours)] == [{"fresh", "pooled"}] * 2
    assert ours["peak"] is None or ours["peak"] < 2**20
    assert table.regimes(result) == ["fresh", "pooled"]


def test_a_process_that_fails_reports_why() -> None:
    broken = Request("no-such-case", "fresh", 0.1, once=True, scale=Scale(quick=True))
    with pytest.raises(ResultsError, match=r"no-such-case \(fresh\) ended with status 1.*\n(.*\n)*KeyError"):
        list(run._in_a_process(broken))


def test_finished_cases_are_kept_and_the_same_command_resumes(
    trial: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results.json"

    def interrupted(*_: object) -> dict[str, Any]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        real = run._record
        patch.setattr(run, "_record", lambda case, *rest: (interrupted if case.name == "second" else real)(case, *rest))
        with pytest.raises(KeyboardInterrupt):
            bench(quick=True, threads=1, out=out)
    assert list(json.loads(out.read_text())["cases"]) == ["first"]
    result = bench(quick=True, threads=1, out=out)
    assert trial == {"first": 1, "second": 1}
    assert list(result["cases"]) == ["first", "second"]
    assert json.loads(out.read_text()) == json.loads(json.dumps(result))
    # What other code measured is measured again, and only what is named.
    monkeypatch.setattr(run, "code", lambda: "another code")
    bench(["second"], quick=True, threads=1, out=out)
    assert trial == {"first": 1, "second": 2}
    assert [record["code"] for record in json.loads(out.read_text())["cases"].values()][1] == "another code"


def test_a_file_of_other_settings_or_of_something_else_is_refused(trial: dict[str, int], tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    bench(quick=True, threads=1, out=out)
    before = out.read_text()
    with pytest.raises(ResultsError, match="measured with other settings"):
        bench(quick=True, threads=2, out=out)
    assert out.read_text() == before
    for content in ("{", "[]", "{}", '{"format": "whatwhere-results"}'):
        out.write_text(content)
        with pytest.raises(ResultsError, match=r"results\.json"):
            bench(quick=True, threads=1, out=out)
        assert out.read_text() == content
    out.write_text(before.replace('"version": 2', '"version": 7'))
    with pytest.raises(ResultsError, match="of version 7"):
        bench(quick=True, threads=1, out=out)
    with pytest.raises(ResultsError, match="cannot be written"):
        bench(quick=True, threads=1, out=tmp_path / "no-folder" / "results.json")


def test_bad_settings_are_refused(trial: dict[str, int]) -> None:
    with pytest.raises(SettingError, match="case='third', but knows only: first, second"):
        bench(["third"])
    with pytest.raises(SettingError, match="device='tpu'"):
        bench(device="tpu")
    with pytest.raises(ShapeError, match="threads=0"):
        bench(threads=0)
    with pytest.raises(SettingError, match="seconds=0"):
        bench(seconds=0.0)
    if not torch.cuda.is_available():
        with pytest.raises(SettingError, match="sees no such device"):
            bench(device="cuda")
    assert trial == {"first": 0, "second": 0}


def test_a_result_that_is_not_finite_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def bad() -> list[Candidate]:
        return [*candidates(), Candidate("whatwhere too", lambda: lambda: None, lambda _: float("nan"))]

    monkeypatch.setattr(run, "CASES", {"bad": case("bad", bad)})
    result = bench(quick=True, threads=1)
    *_, row = table.rows(result)
    assert (row.candidate, row.note) == ("whatwhere too", "failed: ArithmeticError: its result is not finite")
    assert json.loads(as_text(result)) == json.loads(json.dumps(result))


def test_the_digest_changes_with_what_is_measured_and_not_with_the_page(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for package in (one, other):
        package.mkdir()
        (package / "kernel.cpp").write_text("return 1;")
    digests = [run.code(one, other)]
    for file in (one / "kernel.cpp", other / "kernel.cpp", one / "new.py"):
        file.write_text("return 2;")
        digests.append(run.code(one, other))
    assert len(set(digests)) == 4
    for name in ("speed.py", "results.json"):
        (other / name).write_text("words")
        assert run.code(one, other) == digests[-1]


def test_a_regime_that_is_not_available_is_recorded(trial: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    def in_a_process(request: Request, ends: float) -> Any:
        for variant in run.CASES[request.case].variants(request.scale):
            line = run.measure(variant, request.scale, run.QUICK, request.once)
            yield run._read(json.dumps({"unavailable": "no mallopt"} if request.regime == "pooled" else line))

    monkeypatch.setattr(run, "_in_a_process", in_a_process)
    record = bench(["first"], threads=1)["cases"]["first"]
    assert record["unavailable"] == {"pooled": "no mallopt"}
    assert [list(row["regimes"]) for row in record["variants"][0]["rows"]] == [["fresh"], ["fresh"]]
