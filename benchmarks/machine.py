"""The machine that numbers belong to."""

import os
import platform
from hashlib import sha256
from pathlib import Path

import torch

import whatwhere
from benchmarks import peers
from benchmarks.records import Machine
from whatwhere.comparison import results
from whatwhere.kernels.backend import library

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def machine(device: str) -> Machine:
    """Describe processor, caches and memory as far as the system does, which kernels run, and on `cuda` the GPU."""
    compiled, here = library(), results.machine()
    facts: Machine = {
        "processor": here.processor,
        "cores": here.cores,
        "system": here.system,
        "caches": caches(_CACHES),
        "memory": _memory(),
        "kernels": "fallback" if compiled is None else compiled.level,
    }
    if device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def versions() -> dict[str, str]:
    """Return the versions that numbers depend on: ours, Python's, the peers'."""
    return {"whatwhere": whatwhere.__version__, "python": platform.python_version(), **peers.versions()}


def code(*packages: Path) -> str:
    """Return a digest that changes with any line of the code that is measured, and of the code that measures.

    `speed.py`, which writes the page, is no part of it.

    Args:
        packages: folders of Python and C++ files; none are the installed whatwhere and this package.
    """
    digest = sha256()
    for package in packages or (Path(whatwhere.__file__).parent, Path(__file__).parent):
        files = (path for path in package.rglob("*") if path.suffix in (".py", ".cpp", ".h"))
        for file in sorted(path for path in files if path.name != "speed.py"):
            digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def caches(folder: Path) -> dict[str, str]:
    """Read the sizes of the first core's caches, such as "48K" of "L1d", from its folder in /sys as Linux has it."""
    sizes = {}
    for cache in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((cache / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:  # not every virtual machine has them
            continue
        sizes[f"L{level}{'' if kind == 'Unified' else kind[0].lower()}"] = size
    return sizes


def load() -> list[float] | None:
    """Return the load average over 1, 5 and 15 minutes: what else ran here; None where the system has none."""
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except OSError:
        return None


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
