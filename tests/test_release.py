"""What a release promises is true: the tests, targets of make and packages that its files name are there."""

import re
import tomllib
from pathlib import Path

import pytest

import whatwhere as ww

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/\S+?\.py::\w+)`", PAGE)))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("named", NAMED)
def test_each_promise_is_held_by_a_test_that_is_there(named: str) -> None:
    file, _, name = named.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_every_row_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    assert [row for row in rows if "::test_" not in row] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_targets_of_make_that_are_there(workflow: Path) -> None:
    text = workflow.read_text(encoding="utf-8")
    targets = re.findall(r"run: make (\S+)", text)
    assert all(
        re.search(rf"^{re.escape(name.replace('.venv', '$(VENV)'))}:", MAKEFILE, re.MULTILINE) for name in targets
    )


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_named_by_commit(workflow: Path) -> None:
    uses = re.findall(r"uses: (\S+)", workflow.read_text(encoding="utf-8"))
    assert uses
    assert [each for each in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []


def test_every_locked_version_has_hashes() -> None:
    """But for PyTorch: its build for the CPU comes from elsewhere."""
    locked = (ROOT / "release" / "locked.txt").read_text(encoding="utf-8")
    hashed = re.findall(r"^(\S+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", locked, re.MULTILINE)
    versions = re.findall(r"^(\S+)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    names = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in versions}
    del names["torch"]
    assert dict(hashed) == names


def test_the_recipe_needs_what_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {line.replace("torch", "pytorch").replace(">=", " >=") for line in project["dependencies"]}
    recipe = (ROOT / "release" / "recipe.yaml").read_text(encoding="utf-8")
    run = recipe.partition("  run:\n")[2].partition("  run_constraints:")[0]
    assert {line.strip(" -") for line in run.splitlines() if line} == needed | {f"python {project['requires-python']}"}


def test_the_version_and_its_day_are_the_same_everywhere() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.findall(r"^## (\d\S+) \((\d{4}-\d{2}-\d{2})\)$", changes, re.MULTILINE)[0]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    cited = re.search(r"^version: (\S+)\ndate-released: (\S+)$", citation, re.MULTILINE)
    recipe = re.search(r'version: "(\S+)"', (ROOT / "release" / "recipe.yaml").read_text(encoding="utf-8"))
    assert cited
    assert recipe
    assert newest == cited.groups()
    assert ww.__version__ == newest[0] == recipe[1]
