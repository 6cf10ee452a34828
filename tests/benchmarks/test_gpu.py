"""`make gpu`, rehearsed on the CPU: from a Python that has PyTorch and Triton alone, without a network."""

import json
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from benchmarks import gpu, run, worth
from benchmarks.case import Case, Variant
from benchmarks.worker import Request
from whatwhere.errors import ResultsError

from .test_run import candidates

ROOT = Path(__file__).parents[2]
TEST = "tests/cuda/test_training.py::test_row_adamw_state_loads_into_dense_adamw_and_back"


def closure(names: Iterable[str]) -> dict[str, Any]:
    """Return the distributions of these names and of all that they need here."""
    found: dict[str, Any] = {}
    todo = [Requirement(name) for name in names]
    while todo:
        one = todo.pop()
        name = one.name.lower().replace("_", "-")
        if name in found or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        todo += [Requirement(each) for each in found[name].requires or ()]
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a Python with PyTorch and Triton alone, and a folder of wheels; return both."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "python", symlinks=True)
    (site,) = (folder / "python").glob("lib/python*/site-packages")
    own = closure(["torch", "numpy", "triton"])
    for each in own.values():
        for name in {file.parts[0] for file in each.files or () if ".." not in file.parts}:
            if not (site / name).exists():
                (site / name).symlink_to(each.locate_file(name))
    wheels = folder / "wheels"
    wheels.mkdir()
    for name, each in closure([*gpu.needed(), "pytest"]).items():
        if name in own:
            continue
        with zipfile.ZipFile(wheels / f"{name.replace('-', '_')}-{each.version}-py3-none-any.whl", "w") as file:
            for path in each.files or ():
                if ".." not in path.parts and path.suffix != ".pyc":
                    file.write(each.locate_file(path), str(path))
    return folder / "python" / "bin" / "python", wheels


def command(python: Path, wheels: Path, kept: Path) -> subprocess.CompletedProcess[str]:
    words = [python, "-m", "benchmarks.gpu", "--device", "cpu", "--quick", "--folder", kept, "--wheels", wheels]
    words += ["--out", kept.with_name("copied"), "--tests", TEST, "--cases", "position-table"]
    environment = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="GPUs of NVIDIA are tried on Linux")
@pytest.mark.slow
def test_it_runs_from_nothing_and_goes_on(bare: tuple[Path, Path], tmp_path: Path) -> None:
    python, wheels = bare
    lacking = command(python, tmp_path, tmp_path / "kept")
    assert lacking.returncode == 1
    assert "missing: jaxtyping" in lacking.stderr
    assert "make gpu-wheels" in lacking.stderr
    done = command(python, wheels, tmp_path / "kept")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in (tmp_path / "copied" / "tests.txt").read_text()
    (file,) = (tmp_path / "kept" / "results").glob("cpu-*.json")
    first = json.loads(file.read_text())
    assert list(first["cases"]) == ["position-table"]
    rows = first["cases"]["position-table"]["variants"][0]["rows"]
    assert any(row["ours"] and not row["note"] for row in rows)
    assert json.loads((tmp_path / "copied" / file.name).read_text()) == first
    again = command(python, wheels, tmp_path / "kept")
    assert again.returncode == 0
    assert "1 deselected" in (tmp_path / "copied" / "tests.txt").read_text()
    assert "position-table:" in done.stdout
    assert "position-table:" not in again.stdout
    assert json.loads(file.read_text()) == first


def test_all_that_it_needs_is_fetched() -> None:
    listed = (ROOT / "release" / "gpu.txt").read_text().splitlines()
    assert {*gpu.needed()} - {*listed} == {"torch", "triton"}
    pins = (ROOT / "constraints.txt").read_text().lower()
    assert all(f"\n{name}==" in pins for name in listed if not name.startswith("#"))


def test_worth_names_cases_and_variants() -> None:
    named = {name for name, _ in worth.WORTH}
    measurable = {name for name, case in run.CASES.items() if "cuda" in case.devices and name != "neighbors"}
    assert measurable <= named, "every case that a GPU can measure has its place"
    for name, pattern in worth.WORTH:
        if name in run.CASES:
            names = [each.name for each in run.CASES[name].variants(run.Scale(device="cuda"))]
            assert any(re.fullmatch(pattern, each) for each in names), (name, pattern)


def test_a_variant_that_ends_its_process_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["one", "two", "three"]
    trial = Case(
        "rotary", "a trial", "", lambda scale: [Variant(name, "", candidates) for name in names], regimes=("fresh",)
    )

    def in_a_process(request: Request, ends: float) -> Any:
        for variant in trial.variants(request.scale):
            if variant.name in (request.variants or ()):
                if variant.name == "two":
                    raise ResultsError("it ended")
                yield run.measure(variant, request.scale, run.QUICK, request.once)

    monkeypatch.setattr(worth, "WORTH", [("rotary", "two|three|one"), ("loss", ".*"), ("rotary", ".*")])
    for module in (run, worth):
        monkeypatch.setattr(module, "CASES", {"rotary": trial})
    monkeypatch.setattr(run, "_in_a_process", in_a_process)
    file = worth.measure_in_order("cpu", quick=False, minutes=1.0, folder=tmp_path)
    assert [each["variant"] for each in json.loads(file.read_text())["cases"]["rotary"]["variants"]] == ["one", "three"]
