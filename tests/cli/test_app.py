"""The command line: what it prints is what the library computes, and no traceback reaches its user."""

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE
from typing import Any
from unittest.mock import Mock

import pytest

import whatwhere as ww
from whatwhere import cli
from whatwhere.cli.app import program
from whatwhere.records import to_json, with_checksum
from whatwhere.where.catalogue import describe

from ..running import Output, json_of, whatwhere
from ..systems import unix

TEXT = "The cat sat on the mat."
COMMANDS = [each.name or each.callback.__name__ for each in cli.app.registered_commands]
TINY = (
    "--steps 2 --lengths 8 --seeds 5, --workers 1 --dim 8 --heads 2 --layers 1 --set feedforward=8 "
    "--set test_sequences=40"
)
FULL = Path("/dev/full")
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def encoded(*words: str | Path) -> dict[str, Any]:
    return json_of("encode", *words)


def python(*words: str, stdout: Any = PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, stdout=stdout, stderr=PIPE, text=True, timeout=120, check=False, env=BUFFERED)


def tables(shown: str) -> list[list[list[float]]]:
    """Read the numbers with four decimals out of each table of a walk."""
    parts = [[re.findall(r"-?\d+\.\d{4}\b", line) for line in part.splitlines()] for part in shown.split("\n\n")]
    return [rows for part in parts if (rows := [[float(n) for n in row] for row in part if row])]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_an_example(command: str) -> None:
    assert f"Example: {' '.join(['whatwhere', *command.split()])}" in whatwhere(*command.split(), "--help").out


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv[1:] = ['-h']\nfrom whatwhere.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    )
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "typer" in loaded
    assert not {"torch", "numpy", "tokenizers", "matplotlib"} & loaded


@pytest.mark.parametrize("command", ["encode", "schemes"])
def test_the_example_of_the_help_runs(command: str) -> None:
    shown = " ".join(whatwhere(command, "-h").out.split())
    example = re.split(" (Options|Arguments):", shown.partition("Example: ")[2])[0]
    said = whatwhere(*shlex.split(example)[1:])
    assert (said.status, said.err, said.out != "") == (0, "", True)


def test_text_file_ids_and_tokenizer(tmp_path: Path) -> None:
    tokenizer = ww.text.train("byte", TEXT)
    tokenizer.save(str(file := tmp_path / "tokenizer.json"))
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    result = encoded(TEXT, "--tokenizer", file)
    assert result["ids"] == list(TEXT.encode())
    assert result["tokens"] == tokenizer.encode(TEXT).tokens
    assert encoded("--file", tmp_path / "text.txt", "--tokenizer", file) == result
    assert encoded("--ids", ",".join(map(str, result["ids"])), "--tokenizer", file) == result
    plain = encoded("--ids", "105,6587,105")
    assert (plain["ids"], plain["tokens"]) == ([105, 6587, 105], None)
    assert encoded("--ids", " 105, 6587,105,") == plain
    assert encoded("--ids", "105,6587,105", "--seed", "1")["rows"] != plain["rows"]


@pytest.mark.parametrize("scheme", ["none", "learned", "rotary", "alibi", "cope", "sinusoidal+rotary+alibi"])
def test_people_read_the_numbers_that_machines_read(scheme: str) -> None:
    said, result = whatwhere("encode", TEXT, "--scheme", scheme), encoded(TEXT, "--scheme", scheme)
    assert (said.status, said.err) == (0, "")
    added = ["position_rows", "vectors"] if result["position_rows"] else []
    shown = [result[name] for name in ["rows", *added, "angles", "bias"] if result[name] is not None]
    assert tables(said.out) == [[[pytest.approx(n, abs=5.1e-5) for n in row] for row in table] for table in shown]
    for token, number in zip(result["tokens"], result["ids"], strict=True):
        assert re.search(rf"^ +{number} +{re.escape(token)} +{number} ", said.out, re.MULTILINE)
    assert ("No position is added" in said.out) == (result["position_rows"] is None)
    assert ("only the causal mask depends" in said.out) == (scheme == "none")


def test_what_is_not_shown_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.encode, "MOST_ROWS", 3)
    shown = whatwhere("encode", TEXT, "--dim", "24").out
    assert [len(table) for table in tables(shown)] == [3, 3, 3]
    assert shown.count(" and 4 more: --json lists them\n") == 3
    assert shown.count("; and 16 more columns\n") == 3
    assert len(encoded(TEXT, "--dim", "24")["rows"]) == 7


def test_no_escape_reaches_the_terminal(tmp_path: Path) -> None:
    said = whatwhere("encode", "a\x1b[31m \u202eb שלום 😀", "--save", tmp_path / "\x1b[31m")
    assert {"שלום", "😀", "⟨U+202E⟩"} <= set(said.out.split())
    wrong = whatwhere("encode", "--file", tmp_path / "\x1b[32m")
    assert "⟨U+001B⟩[32m cannot be read" in wrong.err
    assert "\x1b" not in said.out + wrong.err + whatwhere("schemes").out + whatwhere("encode", "-h").out


def test_schemes_are_the_rows_of_the_catalogue() -> None:
    said = whatwhere("schemes", "--json")
    assert (said.status, json.loads(said.out)) == (0, [to_json(describe(row)) for row in ww.catalogue.values()])
    lines = whatwhere("schemes").out.splitlines()[1:]
    first = [n for n, line in enumerate(lines) if line[1] != " "]
    assert [lines[n].split()[0] for n in first] == list(ww.catalogue)
    for row, (start, end) in zip(ww.catalogue.values(), pairwise([*first, len(lines)]), strict=True):
        words = " ".join(lines[start:end]).split()  # long cells are broken into several lines
        assert {row.door or "none", *row.formula.split(), *", ".join(row.used_by).split()} <= set(words)
        flags = ["yes" if flag else "no" for flag in (row.learned, row.relative)]
        shown = flags[: 1 if row.shift_invariance == "in one regime" else 2]
        assert [word for word in words if word in ("yes", "no")] == shown
        assert row.length in words


def test_schemes_that_are_named_are_printed_with_their_family_and_sources() -> None:
    rotary = [name for name in ww.catalogue if name == "rotary" or name.startswith("rotary-")]
    named = json.loads(whatwhere("schemes", "alibi", "rope", "--json").out)
    assert [row["name"] for row in named] == [*rotary, "alibi"]
    said = whatwhere("schemes", "t5").out
    assert "t5-" not in said
    assert f"t5: {ww.catalogue['t5'].paper}, {ww.catalogue['t5'].url}" in " ".join(said.split())
    assert "Did you mean rotary" in whatwhere("schemes", "rotery").err


def test_a_comparison_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(*words: str) -> Output:
        return whatwhere("compare", *words, *TINY.split(), "--out", tmp_path / "out")

    monkeypatch.setattr("whatwhere.cli.compare._write_page", lambda folder, builds: None)  # it has its own tests
    numbers = r"\d+ s(, held-out loss [\d.]+)?"
    first = compare("none")
    assert (first.status, re.sub(numbers, "", first.err)) == (0, "1 of 1 runs: none, seed 5, \n")
    runs = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/*")}
    assert {f"{path.parent.name}/{path.stem}" for path in runs} == {"models/none-5", "runs/none-5", "traces/none-5"}
    assert compare("none") == (0, first.out, "")
    assert {path: path.stat().st_mtime_ns for path in runs} == runs
    joined = compare("rotary+alibi", "none", "--json")
    said, ran = joined.err.splitlines()
    assert said == "whatwhere: 2 schemes are 1 pair: 1 seed cannot show that any differ. 6 can."
    assert re.sub(numbers, "", ran) == "1 of 1 runs: rotary+alibi, seed 5, "
    result = json.loads(joined.out)
    differences = result.pop("differences")
    assert [{pair["first"], pair["second"]} for pair in differences["pairs"]] == [{"rotary+alibi", "none"}]
    assert (differences["length"], differences["seeds"], differences["seeds_needed"]) == (8, [5], 6)
    assert with_checksum(result) == json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert [run["scheme"] for run in result["runs"]] == ["rotary+alibi", "none"]
    line = next(line for line in first.out.splitlines() if line.split()[:1] == ["none"])
    assert line.split()[-1] == f"{100 * result['summary']['none']['scores']['8']['all']['median']:.1f}"
    said = compare("none", "--set", "batch=3")
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith(f"whatwhere: {tmp_path / 'out'} holds another comparison: there batch is 64, here 3.\n")


BEFALLS = [
    (KeyboardInterrupt(), 130, "interrupted. Run the same command again.\n"),
    (MemoryError("1 TB"), 1, "too little memory: 1 TB.\nChoose smaller sizes"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, "too little memory: DefaultCPU"),
    (ImportError("libtorch.so: failed to map segment from shared object"), 1, "too little memory: libtorch.so"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), 1, "too little memory: [Errno 12]"),
    (OSError(errno.EROFS, "Read-only file system", "out"), 1, "[Errno 30] Read-only file system: 'out'.\nChoose an"),
    (OSError(errno.EMFILE, "Too many open files"), 1, "[Errno 24] Too many open files.\nAllow more"),
    (OSError(errno.EIO, "Input/output error"), 1, "the system refused: [Errno 5] Input/output error."),
]


@pytest.mark.parametrize(("problem", "status", "message"), BEFALLS)
def test_what_befalls_a_command(problem, status, message, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("whatwhere.where.catalogue.describe", Mock(side_effect=problem))
    said = whatwhere("schemes")
    assert (said.status, said.out, said.err[: 11 + len(message)]) == (status, "", f"whatwhere: {message}")


def test_a_wrong_option_is_no_lack_of_memory() -> None:
    said = whatwhere("schemes", "--allocate")
    assert (said.status, "No such option" in said.err, "memory" in said.err) == (2, True, False)


def test_only_what_resumes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whatwhere.comparison.experiment.compare", Mock(side_effect=KeyboardInterrupt()))
    assert whatwhere("demo").err.endswith("What is finished is kept; run the same command again to resume.\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("place", ["whatwhere.where.catalogue.describe", "typer.core.TyperGroup.make_context"])
@unix
def test_a_signal_ends_a_command_with_one_line(
    place: str, number: signal.Signals, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a command runs, and before it begins."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(place, lambda *_, **options: os.kill(os.getpid(), number))
    said = whatwhere(*(["schemes"] if "describe" in place else []))
    assert (said.status, said.out, said.err.count("\n")) == (status, "", 1)
    assert said.err.endswith("Run the same command again.\n")
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interruption_may_meet_another_library_that_fails_to_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = KeyError("half a font")
    problem.__context__ = KeyboardInterrupt()
    monkeypatch.setattr("whatwhere.where.catalogue.describe", Mock(side_effect=problem))
    said = whatwhere("schemes")
    assert (said.status, said.err.split(".")[0]) == (130, "whatwhere: interrupted")


@pytest.mark.parametrize("command", ["--version", "schemes", "schemes --json"])
def test_a_reader_that_leaves(command: str) -> None:
    words = [sys.executable, "-m", "whatwhere", *command.split()]
    with subprocess.Popen(words, stdout=PIPE, stderr=PIPE, text=True, env=BUFFERED) as started:
        started.stdout.close()
        assert started.stderr.read() == ""
        assert started.wait(60) == 141


@pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no /dev/full")
def test_a_full_disk() -> None:
    with FULL.open("w") as full:
        done = python("-m", "whatwhere", "--help", stdout=full)
    assert (done.returncode, done.stderr) == (
        1,
        "whatwhere: [Errno 28] No space left on device.\nMake room, or choose another folder, and run the same command "
        "again; what is finished is kept.\n",
    )


def test_a_terminal_that_lacks_characters_and_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = TextIOWrapper(BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "argv", ["whatwhere", "encode", "mat 😀"])
    for stream in (plain, None):
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        sys.stdout.flush() if stream else sys.stdout.close()
    assert b"\\U0001f600" in plain.buffer.getvalue()


def test_an_empty_path_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a variable of the shell is that was not set: each path of each command is refused, before anything is read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.vec").write_text("2 3\na 1 2 3\nb 2 3 4\n")
    lines = (
        "inspect ''", "inspect table.vec --report ''", "neighbors '' a", "analogy '' a b c", "similarity '' a b",
        "map ''", "map table.vec --out ''", "map table.vec --tsv ''",
        "diff '' table.vec", "diff table.vec ''", "resize '' out --positions 4", "resize table.vec '' --positions 4",
        "trim '' out --keep-ids ids", "trim table.vec out --corpus ''", "trim table.vec out --keep-ids ''",
        "convert table.vec '' --format safetensors", "convert table.vec out --tokenizer ''", "encode --file ''",
        "encode a --tokenizer ''", "encode a --save ''", "compare none --out ''", "compare none --task text --file ''",
        "demo --out ''", "studio ''", "studio table.vec ''", "studio --corpus ''", "studio --export ''",
    )  # fmt: skip
    for line in lines:
        status, out, err = whatwhere(*shlex.split(line))
        assert (status, out) == (2, ""), line
        assert "the path is empty. Pass the path of a file or folder" in err, line
    assert [path.name for path in tmp_path.iterdir()] == ["table.vec"]


def test_the_program_is_named_so_that_it_can_be_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "whatwhere"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(own)])
    monkeypatch.setenv("PATH", "")
    assert program() == str(own)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == "whatwhere"
    monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py"])
    assert program() == "whatwhere"
    monkeypatch.setenv("PATH", "")
    assert program() == "python -m whatwhere"
