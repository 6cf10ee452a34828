"""Peaks of memory, and the two ways of allocating, each in a process of its own."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks import memory

LINUX = pytest.mark.skipif(memory._glibc() is None, reason="tells glibc what to do")
MIB = 2**20


def printed_by(code: str) -> list[int]:
    """Run code in a new process, and read the numbers it prints."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    root = Path(memory.__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@LINUX
def test_the_peak_counts_what_is_freed_before_the_end() -> None:
    held, passing, nothing = printed_by(
        """
        import numpy as np
        from benchmarks.memory import peak

        def passing():
            np.ones(64 * 2**20, np.uint8).sum()
            return np.ones(16 * 2**20, np.uint8)

        print(peak(lambda: np.ones(64 * 2**20, np.uint8)), peak(passing), peak(lambda: None))
        """
    )
    assert held == pytest.approx(64 * MIB, abs=4 * MIB)
    assert passing == pytest.approx(64 * MIB, abs=4 * MIB)
    assert nothing < 4 * MIB


@LINUX
@pytest.mark.parametrize("pooled", [False, True])
def test_pooled_keeps_freed_memory_and_fresh_returns_it(pooled: bool) -> None:
    before, after = printed_by(
        f"""
        from benchmarks.memory import _resident, pool_allocations
        assert pool_allocations() if {pooled} else True
        import numpy as np
        before = _resident("VmRSS")
        large = np.ones(64 * 2**20, np.uint8)
        del large
        print(before, _resident("VmRSS"))
        """
    )
    assert (after - before > 60 * MIB) == pooled


def test_without_linux_there_is_no_peak_and_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_reset_peak", lambda: False)
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert memory.peak(lambda: None) is None
    assert not memory.pool_allocations()
