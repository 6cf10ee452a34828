"""A benchmark as a whole: processes, regimes, what is kept, what is refused, what is printed."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from whatwhere.benchmark import run, table
from whatwhere.benchmark.run import bench
from whatwhere.benchmark.store import as_text
from whatwhere.benchmark.work import Candidate, Case, Scale, Work
from whatwhere.benchmark.works import WORKS
from whatwhere.errors import ResultsError, SettingError, ShapeError


def work(name: str, prepare: Callable[[], Sequence[Candidate]]) -> Work:
    return Work(name, "a trial", "nothing", lambda scale: [Case("one", "nothing", prepare, unit=8)])


def candidates() -> list[Candidate]:
    return [Candidate("nothing", lambda: lambda: None), Candidate("whatwhere", lambda: lambda: torch.ones(8))]


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Put two works of our own in place of the real ones; count how often each is prepared."""
    prepared = {"first": 0, "second": 0}

    def counted(name: str) -> list[Candidate]:
        prepared[name] += 1
        return candidates()

    works = {name: work(name, lambda name=name: counted(name)) for name in prepared}
    monkeypatch.setattr(run, "WORKS", works)
    return prepared


def test_a_process_of_its_own_measures_under_its_regime() -> None:
    scale = Scale(quick=True, threads=1, compiled=False)
    (line,) = run._in_a_process(WORKS["start"], scale, 0.1, "pooled", once=False)
    assert line["case"] == "processes"
    assert [len(row["times"]["rounds"]) for row in line["rows"].values()] == [2, 2]


def test_regimes_stand_side_by_side(trial: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def in_a_process(work: Work, scale: Scale, seconds: float, regime: str, once: bool) -> Any:
        asked.append((regime, once))
        for case in work.cases(scale):
            yield run.measure(case, scale, run.QUICK, once)

    monkeypatch.setattr(run, "_in_a_process", in_a_process)
    found = bench(["first"], threads=1)
    assert asked == [("fresh", True), ("pooled", False)]
    limit, ours = found["works"]["first"]["cases"][0]["rows"]
    assert [set(row["regimes"]) for row in (limit, ours)] == [{"fresh", "pooled"}] * 2
    assert ours["peak"] is None or ours["peak"] < 2**20
    assert table.regimes(found) == ["fresh", "pooled"]


def test_a_regime_that_cannot_be_had_is_said() -> None:
    line = {"case": "one", "limit": "", "error": "", "unit": 0, "rows": {"a": {"times": {}}}}
    line["rows"]["a"] |= {"ours": False, "note": "", "error": None, "peak": None}
    found = run._joined({"fresh": [line], "pooled": [{"unavailable": "no mallopt"}]})
    assert found["unavailable"] == {"pooled": "no mallopt"}
    assert list(found["cases"][0]["rows"][0]["regimes"]) == ["fresh"]


def test_a_process_that_fails_says_why() -> None:
    broken = work("no-such-work", candidates)
    with pytest.raises(ResultsError, match=r"no-such-work \(fresh\) ended with status 1.*\n(.*\n)*KeyError"):
        list(run._in_a_process(broken, Scale(quick=True), 0.1, "fresh", once=True))


def test_finished_works_are_kept_and_the_same_command_goes_on(
    trial: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results.json"

    def interrupted(*_: object) -> dict[str, Any]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        real = run._record
        patch.setattr(run, "_record", lambda work, *rest: (interrupted if work.name == "second" else real)(work, *rest))
        with pytest.raises(KeyboardInterrupt):
            bench(quick=True, threads=1, out=out)
    assert list(json.loads(out.read_text())["works"]) == ["first"]
    found = bench(quick=True, threads=1, out=out)
    assert trial == {"first": 1, "second": 1}
    assert list(found["works"]) == ["first", "second"]
    assert json.loads(out.read_text()) == json.loads(json.dumps(found))
    # What other code measured is measured again, and only what is asked for.
    monkeypatch.setattr(run, "code", lambda: "another code")
    bench(["second"], quick=True, threads=1, out=out)
    assert trial == {"first": 1, "second": 2}
    assert [record["code"] for record in json.loads(out.read_text())["works"].values()][1] == "another code"


def test_a_file_of_other_settings_or_of_something_else_is_refused(trial: dict[str, int], tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    bench(quick=True, threads=1, out=out)
    before = out.read_text()
    with pytest.raises(ResultsError, match="measured with other settings"):
        bench(quick=True, threads=2, out=out)
    assert out.read_text() == before
    for content in ("{", "[]", '{"format": "whatwhere-results"}'):
        out.write_text(content)
        with pytest.raises(ResultsError, match=r"results\.json"):
            bench(quick=True, threads=1, out=out)
        assert out.read_text() == content
    out.write_text(before.replace('"version": 1', '"version": 7'))
    with pytest.raises(ResultsError, match="of version 7"):
        bench(quick=True, threads=1, out=out)
    with pytest.raises(ResultsError, match="cannot be written"):
        bench(quick=True, threads=1, out=tmp_path / "no-folder" / "results.json")


def test_bad_settings_are_refused(trial: dict[str, int]) -> None:
    with pytest.raises(SettingError, match="work='third', but knows only: first, second"):
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

    monkeypatch.setattr(run, "WORKS", {"bad": work("bad", bad)})
    found = bench(quick=True, threads=1)
    *_, row = table.rows(found)
    assert (row.candidate, row.note) == ("whatwhere too", "failed: ArithmeticError: its result is not finite")
    assert json.loads(as_text(found)) == json.loads(json.dumps(found))
