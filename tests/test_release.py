"""What a release promises is true: the tests, targets of make and packages that its files name are there."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import whatwhere as ww
from whatwhere.cli import app

from .running import script

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


def test_a_release_is_tried_by_every_command() -> None:
    check = script(ROOT / "release" / "check.py", "release_check")
    commands = {each.name or each.callback.__name__ for each in app.registered_commands}
    assert {line.split()[0] for line in check.SMOKE} | set(check.NOT_HERE) == commands


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


def test_jobs_on_linux_run_what_a_checkout_runs() -> None:
    """Each step that is no action is a target of make; but what a service alone can do: publish, build every wheel."""
    yaml = pytest.importorskip("yaml")
    tried = []
    for workflow in WORKFLOWS:
        for name, job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].items():
            systems = job.get("strategy", {}).get("matrix", {}).get("os", [job["runs-on"]])
            if "ubuntu" in "".join(systems) and name not in ("publish", "notebooks", "wheels"):
                steps = [step["run"] for step in job["steps"] if "run" in step]
                assert [step for step in steps if not step.startswith("make ")] == [], name
                tried += steps
    assert len(tried) > 8


@pytest.mark.parametrize("part", ["kernels", "page"])
def test_a_build_that_must_be_whole_leaves_nothing_out(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("hatchling")
    module = script(ROOT / "hatch_build.py")

    def fail() -> None:
        raise OSError("there is no tool")

    monkeypatch.setenv("WHATWHERE_BUILD", "whole")
    monkeypatch.setattr(module, "build", fail if part == "kernels" else lambda: None)
    monkeypatch.setattr(module.hatch_page, "build", fail if part == "page" else lambda: None)
    hook = module.Hook(str(tmp_path), {}, None, None, str(tmp_path), "wheel")
    with pytest.raises(SystemExit, match=r"leaves nothing out\..*there is no tool"):
        hook.initialize("standard", {"artifacts": []})


def test_every_wheel_is_tried_where_it_is_built() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    assert built["environment"]["WHATWHERE_BUILD"] == built["windows"]["environment"]["WHATWHERE_BUILD"] == "whole"
    assert "whatwhere doctor" in built["test-command"]
    assert any("tests/kernels" in command for command in built["test-command"])
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    systems = {"manylinux_x86_64": "ubuntu-latest", "manylinux_aarch64": "ubuntu-24.04-arm"}
    systems |= {"macosx_arm64": "macos-latest", "win_amd64": "windows-latest"}
    assert built["build"].split() == [f"cp311-{name}" for name in systems]
    assert f"os: [{', '.join(systems.values())}]" in text


def test_a_package_is_published_without_a_stored_password() -> None:
    """By the identity of the workflow, in a job that does nothing else; no job of any workflow reads a secret."""
    jobs = pytest.importorskip("yaml").safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert [step["uses"].partition("@")[0] for step in jobs["publish"]["steps"]] == [
        "actions/download-artifact", "pypa/gh-action-pypi-publish",
    ]  # fmt: skip
    assert all("secrets." not in workflow.read_text(encoding="utf-8") for workflow in WORKFLOWS)


def test_packages_of_the_page_have_hashes() -> None:
    lock = ROOT / "src" / "whatwhere" / "studio" / "web" / "package-lock.json"
    packages = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    packages.pop("")  # the page itself
    assert packages
    assert [name for name, package in packages.items() if not package["integrity"].startswith("sha512-")] == []


@pytest.mark.slow
def test_all_tests_are_collected_where_windows_lacks_what_unix_has() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "release.without_unix", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run([*command, "--collect-only", "tests"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
