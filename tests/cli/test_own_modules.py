"""Schemes and tasks of one's own on the command line, the command that repeats them, and the time it takes."""

from pathlib import Path

import pytest

from whatwhere.cli import compare as command
from whatwhere.cli.compare import load_own
from whatwhere.comparison import estimate, read_results
from whatwhere.comparison.experiment import Estimate
from whatwhere.comparison.tasks import Expressions
from whatwhere.errors import SettingError

from ..comparison import own_decoder
from ..running import error_of, json_of, whatwhere

FILE = """
import whatwhere as ww
from whatwhere.comparison.tasks import Expressions

def steep(dim, num_heads, max_length):
    return ww.Where(score=ww.ALiBi(num_heads, slopes=[1.0 + head for head in range(num_heads)]))

class Short:
    def __init__(self):
        inner = Expressions((2, 3))
        vars(self).update((name, getattr(inner, name)) for name in dir(inner) if not name.startswith("_"))

class Through:
    def __getattr__(self, name):
        return getattr(task, name)

task = Short()
through = Through()
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


def test_a_task_may_take_its_attributes_from_another(own: Path) -> None:
    task = load_own([f"{own}:through"]).task
    assert task.tested_in_length == Expressions((2, 3)).tested_in_length


def test_the_printed_command_repeats_schemes_and_tasks_of_ones_own(own: Path, tmp_path: Path) -> None:
    modules = ("--module", f"{own}:steep", "--module", f"{own}:task")
    done = whatwhere("compare", "none", *modules, *SMALL, "--out", tmp_path / "a")
    assert done.status == 0, done.err
    first = read_results(tmp_path / "a")
    assert first.schemes == ["none", "steep"]
    assert first.record.request.modules == (f"{own}:steep", f"{own}:task")
    assert whatwhere("compare", "--repeat", tmp_path / "a", "--out", tmp_path / "b", "--workers", "1").status == 0
    again = read_results(tmp_path / "b")
    assert [run.losses for run in again.runs] == [run.losses for run in first.runs]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("gone.py:steep", "needs a Python file and a name in it, as in mine.py:build"),
        ("{own}", "needs a Python file"),
        ("{own}:gone", "has no 'gone' at its top"),
        ("{own}:number", "is a int, but needs a function build"),
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
    assert "your own, Decoder, 2 layers, dim 16" in done.out
    first = read_results(tmp_path / "a")
    assert whatwhere("compare", "--repeat", tmp_path / "a", "--out", tmp_path / "b", "--workers", "1").status == 0
    assert read_results(tmp_path / "b").runs[0].losses == first.runs[0].losses
    assert json_of("ask", tmp_path / "a", "Max(1,2)", *module)["correct"] == "2"
    assert "--module FILE.py:Decoder" in error_of("ask", tmp_path / "a", "Max(1,2)")
    faulty = ("--module", f"{tmp_path}/model_of_a_test.py:SeesLaterTokens")
    assert "sees later tokens" in error_of("compare", "none", *faulty, *SMALL, "--out", tmp_path / "c")
    assert "--module got two models" in error_of("compare", "none", *module, *faulty, "--out", tmp_path / "c")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\ny = (\n", "line 2, raised SyntaxError"),
        ("x = 1\nraise SystemExit(3)\n", "line 2, raised SystemExit: 3"),
        ("def steep(dim, heads, length):\n    return dim / 0\n", "line 2, raised ZeroDivisionError: division by zero"),
    ],
)
def test_what_ones_own_file_raises_is_said_with_its_place(text: str, words: str, own: Path, tmp_path: Path) -> None:
    own.write_text(text)
    message = error_of("compare", "--module", f"{own}:steep", *SMALL, "--out", tmp_path / "a")
    assert f"{own}, {words}" in message
    assert "--module runs this file" in message


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

    def confirm(text: str, **options: bool) -> bool:
        asked.append(text)
        return False

    monkeypatch.setattr(command.typer, "confirm", confirm)
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
