"""The machine that numbers belong to."""

import os
import platform
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from whatwhere import __version__
from whatwhere.benchmark import peers
from whatwhere.comparison import results
from whatwhere.kernels.native import library

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def machine(device: str) -> dict[str, Any]:
    """Describe processor, caches and memory as far as they tell, and which kernels run."""
    compiled = library()
    found = results.machine() | {
        "caches": caches(_CACHES),
        "memory": _memory(),
        "kernels": "plain" if compiled is None else compiled.level,
    }
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    return found


def versions() -> dict[str, str]:
    """Give the versions that numbers depend on: ours, Python's, the peers'."""
    return {"whatwhere": __version__, "python": platform.python_version(), **peers.versions()}


def code(package: Path = Path(__file__).parents[1]) -> str:
    """Give a digest that changes with any line of the package's code.

    >>> len(code())
    12
    """
    found = sha256()
    for file in sorted(path for path in package.rglob("*") if path.suffix in (".py", ".cpp", ".h")):
        found.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:12]


def caches(folder: Path) -> dict[str, str]:
    """Read the sizes of the first core's caches, as Linux tells them.

    >>> caches(Path("/no/such/folder"))
    {}
    """
    found = {}
    for place in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((place / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:  # not every virtual machine tells
            continue
        found[f"L{level}{'' if kind == 'Unified' else kind[0].lower()}"] = size
    return found


def load() -> list[float] | None:
    """Give the load average over 1, 5 and 15 minutes: what else ran here."""
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except OSError:
        return None


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
