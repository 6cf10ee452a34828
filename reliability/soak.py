"""Long work in one process: steps of RowAdamW, and of decoding with a cache that forgets; memory stays as it is.

The memory of the process after a fifth of the steps is compared with that at the end, and the last numbers with those
of work that did not take so long: of AdamW on the whole table, and of the last tokens alone.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

import whatwhere as ww
from reliability.findings import Trial

_ALLOWED = 8 << 20
"""Bytes by which the memory of a process may grow: pages that its allocator keeps."""
_WINDOW = 64


def run(steps: int) -> tuple[Trial, ...]:
    """Do so many steps of each.

    Args:
        steps: of RowAdamW, and of decoding.
    """
    return _soaked("RowAdamW", steps, _training(steps)), _soaked("decoding behind a window", steps, _decoding(steps))


def _soaked(name: str, steps: int, work: Iterator[float]) -> Trial:
    """Return what work took that yields after each step how far its numbers are from the right ones."""
    before, furthest = 0, 0.0
    for step, error in enumerate(work, 1):
        furthest = max(furthest, error)
        if step == max(1, steps // 5):
            before = _memory()
    growth = _memory() - before
    failures = [f"{growth:,} more bytes of memory"] * (growth > _ALLOWED)
    failures += [f"an error of {furthest:.2g}"] * (furthest > 1e-4)
    seen = f"{growth / 1e6:.1f} MB more memory in the last four fifths; the largest error {furthest:.1e}"
    return Trial(f"steps of {name}", steps, len(failures), seen, tuple(failures))


def _training(steps: int) -> Iterator[float]:
    """Train few rows of a table by RowAdamW, and all of another one by AdamW.

    Both in float64: where gradients become small, AdamW in float32 is further from these numbers than RowAdamW is.
    """
    generator = torch.Generator().manual_seed(0)
    own, whole = (ww.TokenEmbedding(2000, 16).double() for _ in range(2))
    whole.load_state_dict(own.state_dict())
    optimizers = ww.RowAdamW(own, lr=1e-3), torch.optim.AdamW(whole.parameters(), lr=1e-3)
    for step in range(steps):
        ids = torch.randint(2000, (8,), generator=generator)
        for table, optimizer in zip((own, whole), optimizers, strict=True):
            table(ids).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        if step == steps - 1:
            optimizers[0].flush()
            yield float((own.weight - whole.weight).detach().abs().max())
        else:
            yield 0.0


@torch.no_grad()
def _decoding(steps: int) -> Iterator[float]:
    """Decode token by token; every hundredth is compared with attention to the tokens of its window alone."""
    generator = torch.Generator().manual_seed(0)
    where = ww.Where(ww.Rotary(16), window=_WINDOW)
    keys, caches, window = None, (torch.empty(1, 2, 0, 16),) * 2, torch.empty(3, 1, 2, 0, 16)
    for step in range(steps):
        q, k, v = new = torch.randn(3, 1, 2, 1, 16, generator=generator)
        window = torch.cat([window, new], 3)[..., -_WINDOW:, :]
        if keys is None:
            positions = keys = ww.positions(1)
        else:
            slots = where.kept(keys)
            positions = keys.next()
            keys, caches = keys[slots].append(positions), (caches[0][:, :, slots], caches[1][:, :, slots])
        here = where.at(positions, keys)
        q, k = here.query_key(q, k)
        caches = torch.cat([caches[0], k], 2), torch.cat([caches[1], v], 2)
        found = here.attention(q, *caches)
        yield _error(where, found, window, step) if step % 100 == 0 else 0.0


def _error(where: ww.Where, found: Tensor, window: Tensor, last: int) -> float:
    """Return how far an output is from that of the tokens of its window, at once."""
    here = where.at(ww.positions(window.shape[3], start=last + 1 - window.shape[3]))
    q, k = here.query_key(window[0], window[1])
    return float((here.attention(q, k, window[2])[:, :, -1:] - found).abs().max())


def _memory() -> int:
    """Return the bytes of memory that the process has now."""
    if Path("/proc/self/statm").exists():
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGESIZE")
    import resource  # of Unix: the pages of docs/ are written elsewhere too

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10
