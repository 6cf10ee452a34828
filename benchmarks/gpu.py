"""Test and measure on a GPU with what lies in this checkout: `make gpu`, or `python3 -m benchmarks.gpu`.

It needs Python, a PyTorch built for CUDA and Triton. All other packages are unpacked from build/wheels, which
`make gpu-wheels` fills where there is a network; nothing is installed. First the tests, three minutes at most, then the
benchmark in order of worth, nine minutes in all. Each result is kept as soon as it is there; run it again to resume.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
OWN = ("torch", "triton", "numpy")
"""Packages that the machine has, if it has them, in the version that fits its PyTorch."""
TESTS = {
    "kernels and layers": ["-m", "cuda and not compile"],
    "compiled": ["-m", "cuda and compile"],
}
"""Passes of the device tests, and how pytest selects them."""
TEST_MINUTES = 3.0
_CHECK = """
import sys
from importlib.util import find_spec
missing = [name for name in sys.argv[2:] if find_spec(name) is None]
sys.exit(
    "missing: " + ", ".join(missing) +
    "\\nRun `make gpu-wheels` where there is a network, and bring build/wheels along with the checkout."
) if missing else None
import torch
if sys.argv[1] == "cuda" and not torch.cuda.is_available():
    sys.exit(f"PyTorch {torch.__version__} sees no GPU here; python3 -m benchmarks.gpu --device cpu --quick rehearses")
print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name() if sys.argv[1] == 'cuda' else 'on the CPU'}")
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, then the benchmark.

    Args:
        arguments: of the command line.

    Returns:
        0 where all tests passed that ran, else 1.
    """
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu rehearses it")
    parser.add_argument("--quick", action="store_true", help="small shapes: only to see that all runs")
    parser.add_argument("--minutes", type=float, default=9.0, help="in all")
    parser.add_argument("--folder", type=_path, default=ROOT / "build" / "gpu", help="what it keeps")
    parser.add_argument("--wheels", type=_path, default=ROOT / "build" / "wheels", help="packages to unpack")
    parser.add_argument("--out", type=_path, default=None, help="another folder, to which results are copied")
    parser.add_argument("--tests", nargs="*", default=["tests/cuda"], help="what pytest is given")
    parser.add_argument("--cases", nargs="*", default=[], help="of the benchmark; none are all")
    given = parser.parse_args(arguments)
    ends = perf_counter() + 60 * given.minutes
    results = given.folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    environment = environment_with(unpack(given.wheels, given.folder / "packages"), given.device)
    missing = subprocess.run([sys.executable, "-c", _CHECK, given.device, *needed()], env=environment, cwd=ROOT)
    if missing.returncode:
        return 1
    passed = run_tests(given.tests, results, environment, min(ends, perf_counter() + 60 * TEST_MINUTES))
    command = [sys.executable, "-m", "benchmarks.worth", "--device", given.device, "--folder", str(results)]
    command += [*(["--quick"] if given.quick else []), "--cases", *given.cases]
    process = subprocess.Popen(
        [*command, "--minutes", str(max(ends - perf_counter(), 1.0) / 60)], env=environment, cwd=ROOT
    )
    try:
        while True:
            try:
                measured = process.wait(timeout=5.0) == 0
                break
            except subprocess.TimeoutExpired:
                copy(results, given.out)
    finally:
        process.kill()
        copy(results, given.out)
    print(f"Results: {given.out or results}. Commit its file as benchmarks/results/cuda.json; then: make docs")
    return 0 if passed and measured else 1


def _path(text: str) -> Path:
    return Path(text).resolve()  # processes start in the root of the checkout


def needed() -> list[str]:
    """Return the modules that whatwhere and its tests import."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [requirement.partition(">")[0].strip() for requirement in project["dependencies"]]
    return [*names, "triton", "pytest"]


def unpack(wheels: Path, to: Path) -> Path:
    """Unpack wheels that fit this Python, but those of packages that the machine has in OWN.

    Args:
        wheels: a folder of them.
        to: the folder that gets their modules.

    Returns:
        That folder.
    """
    to.mkdir(parents=True, exist_ok=True)
    for wheel in sorted(wheels.glob("*.whl")):
        done = to / f".{wheel.name}"
        name = wheel.name.partition("-")[0].replace("_", "-").lower()
        if done.exists() or not fits(wheel.name) or (name in OWN and find_spec(name) is not None):
            continue
        with zipfile.ZipFile(wheel) as file:
            file.extractall(to)
        done.touch()
    return to


def fits(wheel: str) -> bool:
    """Return whether a wheel fits this Python, by its file's name.

    Args:
        wheel: name of the file.

    Examples:
        >>> fits("pluggy-1.6.0-py3-none-any.whl"), fits("pluggy-1.6.0-cp27-cp27m-any.whl")
        (True, False)
    """
    *_, python, abi, _ = wheel.removesuffix(".whl").split("-")
    here = f"cp{sys.version_info.major}{sys.version_info.minor}"
    if abi == "none":
        return any(each in ("py3", here) for each in python.split("."))
    stable = any(suffix.startswith(".abi3") for suffix in EXTENSION_SUFFIXES)
    return abi == here or (abi == "abi3" and stable and int(python[3:]) <= sys.version_info.minor)


def environment_with(packages: Path, device: str) -> dict[str, str]:
    """Return the environment of tests and benchmark: this checkout, then unpacked packages, then the machine's own."""
    path = [str(ROOT / "src"), str(ROOT), str(packages), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(part for part in path if part), "HF_HUB_OFFLINE": "1"}
    own["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the machine's are of other versions of pytest
    return {**os.environ, **own, "WHATWHERE_TEST_DEVICE": device}


def run_tests(tests: Sequence[str], folder: Path, environment: Mapping[str, str], ends: float) -> bool:
    """Run the device tests that have not passed on this code, until the time is up.

    Args:
        tests: what pytest is given.
        folder: gets tests.txt, what pytest prints, and the names of the tests that passed.
        environment: of the process.
        ends: the time by `perf_counter`.

    Returns:
        Whether none failed of those that ran.
    """
    passed, report, before = True, folder / "tests.txt", folder / f"passed-{digest()}.txt"
    on_gpu = environment["WHATWHERE_TEST_DEVICE"] == "cuda"
    workers = ["-p", "xdist", "-n", "8"] if on_gpu and find("xdist", environment) else []
    with report.open("w", encoding="utf-8") as file:
        for name, marks in TESTS.items():
            if name == "compiled" and not on_gpu:
                continue
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, *marks, *tests]
            left = max(ends - perf_counter(), 1.0)
            process = subprocess.Popen(
                command,
                env={**environment, "WHATWHERE_TESTS_PASSED": str(before)},
                cwd=ROOT,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its workers end with it
            )
            try:
                status = process.wait(timeout=left)
                passed &= status in (0, 5)  # 5: none was selected
                outcome = {0: "passed", 5: "none left"}.get(status, f"FAILED, see {report}")
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                outcome = "stopped, for their time is up: run it again to resume"
            print(f"tests, {name}: {outcome}", flush=True)
            if (new := before.with_name(before.name + ".new")).exists():
                with before.open("a", encoding="utf-8") as names:
                    names.write(new.read_text(encoding="utf-8"))
                new.unlink()
    print("\n".join(report.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]), flush=True)
    return passed


def digest() -> str:
    """Return a digest that changes with any line of the library or of its tests."""
    made = sha256()
    for file in sorted(path for folder in ("src/whatwhere", "tests") for path in (ROOT / folder).rglob("*.py")):
        made.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return made.hexdigest()[:12]


def find(module: str, environment: Mapping[str, str]) -> bool:
    """Return whether a module can be imported in an environment."""
    command = [sys.executable, "-c", f"import {module}"]
    return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL).returncode == 0


def copy(results: Path, to: Path | None) -> None:
    """Copy the results so far to another folder, if there is one."""
    if to is not None:
        shutil.copytree(results, to, dirs_exist_ok=True)


if __name__ == "__main__":
    sys.exit(main())
