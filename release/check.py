"""Build the package twice and check it as a user gets it: `make release-check`.

The committed state is built in two fresh clones: both wheels and both source distributions must be equal byte for byte.
They must hold what git lists and what is built, pass `twine check`, and the wheel must be small. Built from the source
distribution without a compiler, Node.js and an index, the wheel must be pure Python and have the page. Installed alone
into a fresh environment, the pure wheel must write the report of `whatwhere demo`, and each of its commands must run or
say in one message which extra it needs; with the extra `studio`, each command of the other wheel must run.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 2_000_000
"""Of a wheel."""
BUILT = {"whatwhere/kernels/_native.so", "whatwhere/studio/web/dist/"}
"""What a wheel has beside the files of git; a folder ends with a slash."""
LEFT_OUT = ("whatwhere/studio/web/src/", "whatwhere/studio/web/package", "whatwhere/studio/web/tsconfig")
"""Files of git that a wheel lacks: what the page is bundled from."""

SMOKE = (
    "demo --out demo",
    "compare none alibi --lengths 8 --seeds 1 --steps 2 --out results",
    "ask results 'Max(1,2)'",
    "tables results --out tables",
    "figures results --out figures",
    "encode 'The cat sat on the mat.'",
    "schemes",
    "inspect model",
    "check model",
    "diff model model",
    "neighbors model '#1' -k 2",
    "analogy model '#1' '#2' '#3'",
    "similarity model '#1' '#2'",
    "map model --out map.svg",
    "studio model --export page.html",
    "resize model resized --vocab-size 64",
    "extend model extended --to 512",
    "trim model trimmed --keep-ids ids.txt",
    "repair model repaired --ids ids.txt",
    "convert model converted --dtype float16",
    "golden model --out golden",
    "verify golden golden/golden.safetensors",
    "doctor",
)
"""One call of each command, in a folder with a small model."""
NOT_HERE = {"probe": "needs transformers, and says so"}
"""Commands that need what the wheel does not install -> what they do then."""


class Failed(Exception):
    """A check has failed."""


def main() -> None:
    """Run the checks in order, and end at the first that fails."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            _check(Path(folder))
        except (Failed, subprocess.CalledProcessError) as problem:
            output = getattr(problem, "stderr", "") or getattr(problem, "output", "") or ""
            sys.exit(f"release-check failed: {problem}\n{output[-3000:]}")


def _check(folder: Path) -> None:
    if changed := _run(["git", "status", "--porcelain"], ROOT).strip():
        raise Failed(f"there are changes that are not committed, and a release has none:\n{changed}")
    for name in ("one", "two"):
        _say(f"build {name}")
        _clone(folder / name)
        _run([sys.executable, "-m", "build", "--outdir", str(folder / f"dist-{name}"), str(folder / name)], folder)
    wheel, source = _only(folder / "dist-one", "*.whl"), _only(folder / "dist-one", "*.tar.gz")
    for one in (wheel, source):
        if one.read_bytes() != (folder / "dist-two" / one.name).read_bytes():
            raise Failed(f"two builds of {one.name} differ")
    _say(f"contents of {wheel.name}, {wheel.stat().st_size:,} bytes")
    _check_contents(wheel, source)
    _run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source)], folder)
    _say("without a compiler, and from the source distribution without Node.js and without an index")
    pure = _check_fallbacks(folder, source)
    _say("a fresh environment")
    _check_installed(folder, wheel, pure)
    kept = ROOT / "dist"
    kept.mkdir(exist_ok=True)
    for one in (wheel, pure, source):
        shutil.copy(one, kept)
    print(f"release-check passed. dist/ has {wheel.name}, {pure.name} and {source.name}.")


def _clone(target: Path) -> None:
    """Clone the committed state; what npm has installed is lent, for its packages are pinned by hash."""
    _run(["git", "clone", "--quiet", str(ROOT), str(target)], target.parent)
    modules = Path("src/whatwhere/studio/web/node_modules")
    if (ROOT / modules).is_dir():
        shutil.copytree(ROOT / modules, target / modules, symlinks=True)


def _check_contents(wheel: Path, source: Path) -> None:
    listed = _run(["git", "ls-files"], ROOT).splitlines()
    files = {name.removeprefix("src/") for name in listed if name.startswith("src/")}
    expected = {name for name in files if not name.startswith(LEFT_OUT) and not name.endswith(".mjs")}
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    inside = {name for name in held if not name.split("/")[0].endswith(".dist-info")}
    _require_equal(f"the wheel {wheel.name}", inside, expected, BUILT)
    with tarfile.open(source) as packed:
        names = {member.name.partition("/")[2] for member in packed.getmembers() if member.isfile()}
    _require_equal(f"the source {source.name}", names - {"PKG-INFO"}, set(listed), {"src/whatwhere/studio/web/dist/"})
    if wheel.stat().st_size > MOST_BYTES:
        raise Failed(f"{wheel.name} has {wheel.stat().st_size:,} bytes; at most {MOST_BYTES:,} are allowed")


def _require_equal(what: str, held: set[str], expected: set[str], built: Iterable[str]) -> None:
    missing = sorted(expected - held)
    extra = sorted(name for name in held - expected if not any(name.startswith(part) for part in built))
    absent = sorted(part for part in built if not any(name.startswith(part) for name in held))
    if missing or extra or absent:
        raise Failed(f"{what} lacks {missing + absent} and has {extra} besides")


def _check_fallbacks(folder: Path, source: Path) -> Path:
    """Build where nothing is: no compiler, no Node.js, no index. Return the wheel, which is pure and has the page."""
    shutil.unpack_archive(source, folder / "unpacked", "gztar", filter="data")
    unpacked = _only(folder / "unpacked", "whatwhere-*")
    (folder / "bin").mkdir()
    bare = {"PATH": str(folder / "bin"), "CXX": "no-compiler", "PIP_NO_INDEX": "1", "HOME": str(folder)}
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder / "pure"),
        str(unpacked),
    ]
    _run(command, folder, bare)
    wheel = _only(folder / "pure", "*.whl")
    if not wheel.name.endswith("-py3-none-any.whl"):
        raise Failed(f"without a compiler the wheel is {wheel.name}, and not pure Python")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    if "whatwhere/studio/web/dist/index.html" not in held:
        raise Failed("the wheel from the source distribution lacks the page")
    return wheel


def _check_installed(folder: Path, wheel: Path, pure: Path) -> None:
    """Install the wheel alone, with PyTorch and the tests' versions of packages, and run every command."""
    home = folder / "environment"
    venv.create(home, with_pip=True)
    python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    constraints = ROOT / "constraints.txt"
    torch = next(line for line in constraints.read_text(encoding="utf-8").splitlines() if line.startswith("torch=="))
    index = ["--index-url", os.environ["TORCH_INDEX"]] if os.environ.get("TORCH_INDEX") else []
    _run([*pip, *index, torch], folder)
    _run([*pip, "-c", str(constraints), str(pure)], folder)
    _say(f"{pure.name} without extras")
    bare = folder / "bare"
    _write_model(bare)
    _check_without_extras(python, bare)
    _run([*pip, "--force-reinstall", "--no-deps", str(wheel)], folder)
    _run([*pip, "-c", str(constraints), f"{wheel}[studio,plots]"], folder)
    _run([str(python), "-m", "pip", "check"], folder)
    _say(f"{wheel.name} with the extras studio and plots")
    _check_types(folder / "client", python, pip)
    work = folder / "work"
    _write_model(work)
    names = "from whatwhere.cli import app; print(*(c.name or c.callback.__name__ for c in app.registered_commands))"
    commands = set(_run([str(python), "-c", names], work).split())
    tried = {line.split()[0] for line in SMOKE}
    if commands != tried | set(NOT_HERE):
        raise Failed(f"commands without a call in SMOKE: {sorted(commands ^ (tried | set(NOT_HERE)))}")
    environment = _environment(python, work)
    for line in SMOKE:
        started = time.monotonic()
        _run([str(python.with_name("whatwhere")), *shlex.split(line)], work, environment)
        _say(f"  whatwhere {line}: {time.monotonic() - started:.1f} s")
    for name in NOT_HERE:
        done = subprocess.run(
            [str(python.with_name("whatwhere")), name, "llama"],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
        )
        if done.returncode != 1 or "pip install" not in done.stderr or "Traceback" in done.stderr:
            raise Failed(f"whatwhere {name} does not say what is missing: {done.stderr}")


def _check_without_extras(python: Path, work: Path) -> None:
    """Run every command where no extra is installed: it succeeds, or says in one message which one it needs.

    Args:
        python: of the environment.
        work: the folder with the model.
    """
    environment = _environment(python, work)
    for line in SMOKE:
        command = [str(python.with_name("whatwhere")), *shlex.split(line)]
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        named = re.findall(r"pip install ['\"]whatwhere\[(\w+)\]['\"]", done.stderr)
        messages = done.stderr.count("whatwhere: ")
        if done.returncode and (done.returncode != 1 or not named or messages != 1 or "Traceback" in done.stderr):
            raise Failed(f"without extras, whatwhere {line} ends with status {done.returncode}:\n{done.stderr}")
        _say(f"  whatwhere {line}: {f'needs {named[0]}' if done.returncode else 'runs'}")
    if not (work / "demo" / "report.html").is_file():
        raise Failed("whatwhere demo wrote no report")


def _environment(python: Path, work: Path) -> dict[str, str]:
    return {"PATH": str(python.parent), "HOME": str(work), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def _check_types(client: Path, python: Path, pip: list[str]) -> None:
    """Check a small project that uses the installed wheel, by both type checkers."""
    client.mkdir()
    shutil.copy(ROOT / "tests" / "typed_use.py", client)
    settings = {"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": "error"}
    settings |= {"venvPath": "..", "venv": "environment"}
    (client / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    _run([*pip, "mypy", "pyright"], client)
    for checker in (["mypy", "--strict", "typed_use.py"], ["pyright"]):
        _run([str(python), "-m", *checker], client)
        _say(f"  {checker[0]}: no error in tests/typed_use.py")


def _write_model(folder: Path) -> None:
    """Write a small random model of the kind of Llama: a token table and its configuration."""
    model = folder / "model"
    model.mkdir(parents=True)
    table = np.random.default_rng(0).standard_normal((48, 32)).astype(np.float32)
    save_file({"model.embed_tokens.weight": table}, model / "model.safetensors")
    sizes = '"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2'
    other = '"vocab_size": 48, "max_position_embeddings": 128, "tie_word_embeddings": true, "rope_theta": 10000.0'
    (model / "config.json").write_text(f'{{"model_type": "llama", {sizes}, {other}}}', encoding="utf-8")
    (folder / "ids.txt").write_text("\n".join(map(str, range(1, 20))), encoding="utf-8")


def _run(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a command, and return what it prints.

    The date of the commit is that of all files in the archives, and nothing of the checkout is imported.
    """
    folder.mkdir(parents=True, exist_ok=True)
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = dict(outside if environment is None else environment) | {"SOURCE_DATE_EPOCH": _date()}
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


@cache
def _date() -> str:
    """Return the date of the commit in seconds."""
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
