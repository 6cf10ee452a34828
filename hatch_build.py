"""Compile the kernels and bundle the studio's page when the package is built; what cannot be is left out, with a word.

`python hatch_build.py` compiles the kernels in place, for work on them; hatch_page.py has the page.

Each kernel file is compiled once for each level of processor, none for the machine it is built on; the library picks a
level when it is loaded. It needs neither PyTorch nor Python's headers, so one wheel serves every version of both. On
Windows MinGW's g++ compiles it. With WHATWHERE_BUILD=whole nothing is left out: what cannot be built ends the build.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, outside of a build
    BuildHookInterface = object

sys.path.insert(0, str(Path(__file__).parent))  # a build imports this file alone
import hatch_page

KERNELS = Path(__file__).parent / "src" / "whatwhere" / "kernels"
LIBRARY = KERNELS / "_native.so"
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math"]
# Products and sums are rounded separately, as PyTorch's eager operations do: kernels equal these to the bit.
FLAGS += ["-ffp-contract=off"]
# Windows aligns the stack to 16 bytes, where GCC expects 32 and 64 of vectors that it keeps there.
MINGW = ["-Wa,-muse-unaligned-vector-move"]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"]
LEVELS = {"baseline": [], "avx2": AVX2, "avx512": [*AVX2, *AVX512]}


class Hook(BuildHookInterface):
    """Put the page into wheel and source, the compiled library into the wheel, and tag the wheel for this platform."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return Node, only where neither it nor a page of these sources is there."""
        return hatch_page.dependencies()

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Bundle and compile; a wheel without the library is pure, and serves every platform."""
        try:
            hatch_page.build()
            build_data["artifacts"].append("src/whatwhere/studio/web/dist/*")
        except (OSError, subprocess.CalledProcessError) as problem:
            end_if_whole(problem)
            self.app.display_warning(f"whatwhere is built without the page of its studio. {reason(problem)}")
        if self.target_name != "wheel":
            return
        try:
            build()
        except (OSError, subprocess.CalledProcessError) as problem:
            end_if_whole(problem)
            LIBRARY.unlink(missing_ok=True)
            self.app.display_warning(
                f"whatwhere is built without compiled kernels: PyTorch runs instead. {reason(problem)}"
            )
            return
        build_data["artifacts"].append("src/whatwhere/kernels/_native.so")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def build() -> Path:
    """Compile the library in place; a failure leaves what was there."""
    compiler = shlex.split(os.environ.get("CXX", ""))
    compiler = compiler or [found for found in ("c++", "g++", "clang++") if shutil.which(found)][:1]
    if not compiler:
        raise OSError("No C++ compiler was found: install one (Debian, Ubuntu: apt install g++), or set CXX.")
    mingw = "mingw" in run([*compiler, "-dumpmachine"])
    common = [*compiler, *FLAGS, *(MINGW if mingw else []), f"-DWHATWHERE_SOURCES={sources()}", "-c"]
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    with tempfile.TemporaryDirectory() as folder:
        jobs = [([str(KERNELS / "native.cpp")], Path(folder) / "native.o")]
        for level in LEVELS if x86 else ["baseline"]:
            for source in sorted(KERNELS.glob("*.cpp")):
                if source.name != "native.cpp":
                    options = [*LEVELS[level], f"-DWHATWHERE_LEVEL={level}", str(source)]
                    jobs.append((options, Path(folder) / f"{source.stem}_{level}.o"))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda job: run([*common, *job[0], "-o", str(job[1])]), jobs))
        made = Path(folder) / LIBRARY.name
        objects = [str(target) for _, target in jobs]
        run([*compiler, "-shared", "-o", str(made), *objects, "-lpthread", *(["-static", "-s"] if mingw else [])])
        unfinished = LIBRARY.with_suffix(".part")
        shutil.copyfile(made, unfinished)
        unfinished.replace(LIBRARY)  # at once: a process that has loaded the old one keeps it
    return LIBRARY


def sources() -> str:
    """Return a hash of everything that the library is made of."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted([*KERNELS.glob("*.cpp"), *KERNELS.glob("*.h")]):
        digest.update(path.name.encode() + path.read_bytes())
    return "h" + digest.hexdigest()[:16]


def run(command: list[str]) -> str:
    """Run a command and return what it prints; its output is in the error."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def end_if_whole(problem: Exception) -> None:
    """End the build if nothing may be left out."""
    if os.environ.get("WHATWHERE_BUILD") == "whole":
        raise SystemExit(f"WHATWHERE_BUILD=whole leaves nothing out. {reason(problem)}")


def reason(problem: Exception) -> str:
    """Return why a step failed: the end of its program's output, or why no program ran."""
    text = (
        (problem.stderr.strip() or problem.stdout.strip())[-2000:]
        if isinstance(problem, subprocess.CalledProcessError)
        else str(problem)
    )
    return f"Reason: {text}"


if __name__ == "__main__":
    try:
        print(f"compiled {build().name}")
    except (OSError, subprocess.CalledProcessError) as problem:
        sys.exit(f"not compiled. {reason(problem)}")
