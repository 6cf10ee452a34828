"""Schemes and tasks of one's own on the command line, the command that repeats them, and the time it takes."""

import importlib.util
import shlex
import sys
from pathlib import Path

import pytest

from whatwhere.cli import compare as command
from whatwhere.cli.compare import load_own
from whatwhere.comparison import estimate, load_model, read_results
from whatwhere.comparison.experiment import Estimate
from whatwhere.errors import SettingError
from whatwhere.studio.api import QUERIES
from whatwhere.studio.export import render_page
from whatwhere.studio.schemes import scheme_of
from whatwhere.studio.session import Session

from ..comparison import own_decoder
from ..running import error_of, json_of, whatwhere

FILE = """
import whatwhere as ww
from whatwhere.comparison.tasks import Expressions

def steep(dim, num_heads, max_length, by=1):
    assert KINDS and SIZES and __file__
    return ww.Where(score=ww.ALiBi(num_heads, slopes=[by * (FIRST + head) for head in range(num_heads)]))

FIRST = 1.0
KINDS = (Expressions, object())
SIZES = (True, ("a", 2.0))

def rotary(dim, num_heads, max_length):
    return ww.Where()

def few(dim):
    return ww.Where()

class Bias(ww.ALiBi):
    pass

class Short:
    def __init__(self):
        inner = Expressions((2, 3))
        vars(self).update((name, getattr(inner, name)) for name in dir(inner) if not name.startswith("_"))

def made():
    return Short()

task = Short()
number = 3
"""
SMALL = ("--lengths", "4", "--seeds", "1", "--steps", "2", "--dim", "16", "--heads", "2", "--workers", "1",
         "--set", "test_sequences=20")  # fmt: skip


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file with a scheme and a task, whose folder is no longer imported from afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_of_a_test.py").write_text(FILE)
    monkeypatch.delitem(__import__("sys").modules, "own_of_a_test", raising=False)
    return tmp_path / "own_of_a_test.py"


def test_the_printed_command_repeats_schemes_and_tasks_of_ones_own(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b").mkdir()
    own = own.rename(tmp_path / "a b" / own.name)
    monkeypatch.syspath_prepend(str(own.parent))
    modules = ("--module", f"{own}:steep", "--module", f"{own}:task")
    done = whatwhere("compare", "none", *modules, *SMALL, "--out", tmp_path / "a")
    assert done.status == 0, done.err
    first = read_results(tmp_path / "a")
    assert first.schemes == ["none", "steep"]
    assert first.record.request.modules == (f"{own}:steep", f"{own}:task")
    repeat = ("compare", "--repeat", tmp_path / "a", "--out", tmp_path / "b")
    assert f"runs only where you name it: {shlex.join(modules)}\n" in error_of(*repeat)
    for some in (modules[:2], modules[2:], (*modules, "--module", f"{own}:few")):
        assert "Name all of it, and nothing else" in error_of(*repeat, *some)
    assert not (tmp_path / "b").exists()
    assert whatwhere(*repeat, *modules, "--workers", "1").status == 0
    assert [run.losses for run in read_results(tmp_path / "b").runs] == [run.losses for run in first.runs]
    (tmp_path / "package_of_a_test").mkdir()
    own.rename(tmp_path / "package_of_a_test/own.py")
    monkeypatch.chdir(tmp_path)
    dotted = ("--module", "package_of_a_test.own:steep")
    assert whatwhere("compare", "none", *dotted, *SMALL, "--out", "c").status == 0
    assert read_results("c").record.request.modules == dotted[1:]


def test_a_scheme_of_ones_own_is_mixed_by_name_and_shown_after_training(own: Path, tmp_path: Path) -> None:
    names, module = ("none", "steep", "none/steep", "rotary+steep@by=2,dim=8"), ("--module", f"{own}:steep")
    done = whatwhere("compare", *names, *module, *SMALL, "--out", tmp_path / "a")
    assert done.status == 0, done.err
    results = read_results(tmp_path / "a")
    assert [run.base for run in results.runs] == ["none", "steep", "none/steep", "rotary+steep@by=2"]
    assert results.settings(results.runs[-1]).dim == 8
    source = results.record.sources["steep"]
    # What it reads is a part of it, where that is written alike in every process.
    assert source.endswith("SIZES = (True, ('a', 2.0))\n\nFIRST = 1.0")
    assert "KINDS =" not in source
    assert "__file__ =" not in source
    mixed, run = load_model(results, results.runs[-1], {"steep": load_own([module[1]]).schemes["steep"]}), "steep-0"
    assert mixed.wheres[0].score.slopes.tolist() == [2.0, 4.0]
    shown = json_of("inspect", tmp_path / "a", "--run", run, "--sections", "positions", *module)
    assert (shown["sources"], "by ALiBi" in shown["positions"]["missing"]) == ({"steep": source}, True)
    inspected = ("inspect", tmp_path / "a", "--sections", "rotary,biases", "--run")
    assert "steep(dim, num_heads, max_length" in whatwhere(*inspected, run).out
    (group,) = json_of(*inspected, run, *module)["biases"]["groups"]
    assert (group["scheme"], group["layers"], group["curves"]["slopes"]) == ("ALiBi", [0], [1.0, 2.0])
    assert group["curves"]["past"]["distance"] == [5, 3], "the first distances above ln(100) / slope"
    said = " ".join(whatwhere(*inspected, "none-0").out.split())
    assert "adds no bias to its attention scores" in said
    assert "its angles: whatwhere encode TEXT --from RESULTS --run none-0, or whatwhere studio RESULTS" in said
    encode = ("encode", "Max(1,2)", "--from", tmp_path / "a", "--run", run)
    assert json_of(*encode, *module)["bias"][1] == [-1.0, -2.0]
    ask = ("ask", tmp_path / "a", "Max(1,2)")
    assert len(json_of(*ask, *module)["answers"]) == 4
    page = render_page(session := Session.open(tmp_path / "a"))
    session.checkpoint.builds = load_own([module[1]]).schemes
    assert len(render_page(session)) > len(page) > 0
    assert source.splitlines()[0] in page
    names = {"PATH": tmp_path / "a", "steep": session.checkpoint.builds["steep"]}
    exec(scheme_of(session, run).python, names)
    assert names["where"].score.slopes.tolist() == [1.0, 2.0]
    own.write_text("raise SystemExit('run unasked')\n" + FILE.replace("FIRST = 1.0", "FIRST = 2.0"))
    for words in (ask, (*encode[:-1], "none-0"), ("inspect", tmp_path / "a", "--run", run)):
        assert whatwhere(*words).status == 0
    assert "--module FILE.py:steep" in error_of(*encode)
    own.write_text(FILE.replace("FIRST = 1.0", "FIRST = 2.0"))
    __import__("sys").modules.pop("own_of_a_test")
    assert "the scheme has changed, or what it uses" in error_of(*encode, *module)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("gone.py:steep", "but there is no /"),
        ("gone.own:steep", "but there is no module gone.own"),
        ("{own}", "needs a name in a file or a module: mine.py:build, my.own:build"),
        ("{own}:rotary", "the scheme 'rotary' of your own has a name of the catalogue"),
        ("{own}:few", r"built by few(dim, num_heads, max_length), but its function takes (dim): too many"),
        ("{own}:Bias", "is a class, but needs a function build"),
        ("{own}:gone", "has no 'gone' at its top"),
        ("{own}:number", "is a int, but needs a function build"),
        ("{own}:Short", "or a Task, as by task = Short()"),
        ("{own}:made", "or a Task, as by task = made()"),
    ],
)
def test_what_is_no_scheme_is_refused(spec: str, words: str, own: Path, tmp_path: Path) -> None:
    assert words in error_of("compare", "--module", spec.format(own=own), "--out", tmp_path / "a")


def test_a_model_of_ones_own_is_compared_repeated_and_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "model_of_a_test.py").write_text(Path(own_decoder.__file__).read_text())
    monkeypatch.delitem(__import__("sys").modules, "model_of_a_test", raising=False)
    module = ("--module", f"{tmp_path}/model_of_a_test.py:Decoder")
    done = whatwhere("compare", "rotary", *module, *SMALL, "--out", tmp_path / "a")
    assert done.status == 0, done.err
    assert "your own, Decoder; learning rate 0.002; dim 16; layers 2" in " ".join(done.out.split())
    first = read_results(tmp_path / "a")
    assert whatwhere("compare", "--repeat", tmp_path / "a", "--out", tmp_path / "b", *module).status == 0
    assert read_results(tmp_path / "b").runs[0].losses == first.runs[0].losses
    assert json_of("ask", tmp_path / "a", "Max(1,2)", *module)["correct"] == "2"
    session = Session.open(tmp_path / "a")
    session.checkpoint.builds = load_own(module[1:]).builds
    assert QUERIES["ask.answers"](session, {"text": "Max(1,2)"}).answers.correct == "2"
    assert "--module FILE.py:Decoder" in error_of("ask", tmp_path / "a", "Max(1,2)")
    faulty = ("--module", f"{tmp_path}/model_of_a_test.py:SeesLaterTokens")
    assert "sees later tokens" in error_of("compare", "none", *faulty, *SMALL, "--out", tmp_path / "c")
    plain = tmp_path / "plain"
    assert whatwhere("compare", "none", *SMALL, "--out", plain).status == 0
    assert "without code of your own: leave --module out" in error_of("compare", "--repeat", plain, *module)
    assert "--module got two models" in error_of("compare", "none", *module, *faulty, "--out", tmp_path / "c")


@pytest.mark.parametrize(
    ("file", "text", "spec", "words"),
    [
        ("mine_of_a_test.py", "x = 1\ny = (\n", "FILE:steep", "mine_of_a_test.py, line 2, raised SyntaxError"),
        ("mine_of_a_test.py", "x = 1\nraise SystemExit(3)\n", "FILE:steep", "line 2, raised SystemExit: 3"),
        ("mine_of_a_test.py", "def steep(dim, heads, length):\n    return dim / 0\n", "FILE:steep", "line 2)"),
        ("bad_of_a_test.py", "1 / 0\n", "bad_of_a_test:build", "bad_of_a_test.py, line 1, raised ZeroDivisionError"),
        ("bad_in_a_test/__init__.py", "raise ValueError('no')\n", "bad_in_a_test.own:build", "line 1, raised ValueE"),
        ("space_of_a_test/own.py", "", "space_of_a_test:build", "space_of_a_test is a folder without code"),
        ("my-own.py", "", "my-own.py:build", "a file whose name has letters, digits and _ alone"),
    ],
)
def test_what_ones_own_code_raises_is_said_with_its_place(
    file: str, text: str, spec: str, words: str, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file, or of a module elsewhere on the path of imports: the fixture has put its folder there."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    named = spec.replace("FILE", str(tmp_path / file))
    assert words in error_of("compare", "--module", named, *SMALL, "--out", tmp_path / "a")


def test_a_file_of_ones_own_replaces_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "scipy.py").write_text("")
    (tmp_path / "beside_of_a_test.py").write_text(FILE)
    load_own([f"{tmp_path}/beside_of_a_test.py:steep"])
    found = importlib.util.find_spec("scipy")
    assert found is not None
    assert not str(found.origin).startswith(str(tmp_path))


def test_a_file_with_the_name_of_another_module_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(FILE)
    assert "has the name of another module" in error_of("compare", "--module", f"{tmp_path}/json.py:steep")


def test_an_estimate_counts_runs_and_divides_them_among_processes() -> None:
    small = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 4, "test_sequences": 20, "lengths": [8]}
    one = estimate(["none", "rotary"], seeds=[3, 4, 5], steps=50, vary={"tied": [False, True]}, workers=3, **small)
    assert (one.runs, one.workers) == (12, 3)
    assert one.seconds > 0


def test_a_terminal_is_asked_before_all_schemes_are_trained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(command.typer, "confirm", lambda text, **_: asked.append(text))
    plan = Estimate(87, 900.0, 2)
    with pytest.raises(SettingError, match=r"without a terminal it cannot ask.*\nPass --yes"):
        command._confirm(plan, yes=False)
    assert capsys.readouterr().err == "whatwhere: 87 runs, about 15 minutes with 2 worker processes\n"
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(getattr(command.sys, stream), "isatty", lambda: True)
    command._confirm(plan, yes=True)
    assert asked == []
    with pytest.raises(command.typer.Exit):
        command._confirm(plan, yes=False)
    assert asked == ["Begin?"]
