"""How memory is allocated while times are taken, and how much of it a candidate needs at its peak.

A large tensor of the C library's default allocator is mapped anew, touched page by page and unmapped again: on some
machines that costs five times the arithmetic. So every case is timed twice, each in a process of its own: `fresh` is
the default, `pooled` keeps freed memory for the next tensor. Neither may be presented as the other.
"""

import ctypes
import gc
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # the numbers of malloc.h
_NEVER = -1


def pool_allocations() -> bool:
    """Keep freed memory in this process from now on.

    Call it before torch is imported: what was mapped before stays mapped.

    Returns:
        Whether the C library has such a setting.
    """
    library = _glibc()
    if library is None:
        return False
    # No mappings of their own for large blocks, and nothing at the heap's end is given back.
    return bool(library.mallopt(_MMAP_MAX, 0)) and bool(library.mallopt(_TRIM_THRESHOLD, _NEVER))


@contextmanager
def settled() -> Iterator[None]:
    """Collect garbage once, and exempt the million objects of the packages from later collections.

    What was exempt before stays so.
    """
    before = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not before:
            gc.unfreeze()


def peak(run: Callable[[], object], device: str = "cpu") -> int | None:
    """Return the bytes that a run needs at its peak beyond those at its start, its results among them.

    Args:
        run: what is measured, once.
        device: `cpu` or `cuda`.

    Returns:
        On the CPU the peak of resident memory, which Linux can reset; None elsewhere. On CUDA what PyTorch's allocator
        handed out.
    """
    gc.collect()  # quick where the caller is `settled`
    if device == "cuda":
        return _peak_on_cuda(run)
    if not _reset_peak():
        return None
    trim()  # else a block that was freed and kept would cost the next run nothing
    _reset_peak()
    before = _resident("VmRSS")
    held = run()
    after = _resident("VmHWM")
    del held
    return max(0, after - before)


def trim() -> None:
    """Return freed memory to the system: kept, it would pile up from variant to variant, in pieces that fit nothing."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _peak_on_cuda(run: Callable[[], object]) -> int:
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    held = run()
    torch.cuda.synchronize()
    after = torch.cuda.max_memory_allocated()
    del held
    return int(after - before)


def _glibc() -> Any:
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc":
        return None
    return ctypes.CDLL("libc.so.6")


def _reset_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # 5 resets VmHWM
    except OSError:
        return False
    return True


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")
