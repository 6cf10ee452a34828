"""Single bits of valid files, flipped: each file is then refused in one clear error, or read to the same values.

A format without a checksum cannot know that a number is another one: there, at most the one number that holds the bit
(or the block that shares it) is another, or a name, a word or a setting that is spelled with it, or a tensor whose type
is stated by it. These are counted. Where a row shows fewer than 10,000 flips, each bit of the file was flipped.
"""

import json
import os
import random
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from reliability.findings import Trial
from reliability.seals import Seal
from whatwhere.errors import WhatWhereError

_ADDRESSES = 4 << 30
"""Bytes of addresses that a process may take, threads included, so that a claim of a terabyte fails at once."""
_ALLOWED = 64 << 20
"""Bytes of memory that reading may take beyond four times the size of the file."""
_SECONDS = 20
Values = Mapping[str, object]
"""What was read, by name: arrays, and all else as something that can be compared."""


@dataclass(frozen=True)
class Readable:
    """A valid file, and how the product reads it.

    Args:
        name: of the format, as it is shown.
        path: of the file.
        read: returns all that is read of it.
        checked: whether the format has a checksum of everything, so that nothing else may ever be read.
        block: how many numbers may hold a bit: more than one where they share a scale.
        seal: makes the checksums of damaged content right again, for fuzzing; None where there are none.
    """

    name: str
    path: Path
    read: Callable[[], Values]
    checked: bool
    block: int = 1
    seal: Seal | None = None


def run(times: int) -> tuple[Trial, ...]:
    """Flip so many bits of a file of each format, or each of its bits where it has fewer.

    Args:
        times: for each format.
    """
    from reliability.readable_files import readable_files

    with tempfile.TemporaryDirectory() as folder:
        return tuple(flipped(each, times) for each in readable_files(Path(folder)))


def flipped(file: Readable, times: int) -> Trial:
    """Flip bits of a file, one at a time, in a process of its own, whose memory is limited.

    Args:
        file: that is valid, and is so again afterwards.
        times: bits.
    """
    content = file.path.read_bytes()
    receiving, sending = os.pipe()
    process = os.fork()
    if not process:
        torch.set_num_threads(1)  # a fork has none of the threads of its parent
        status = 1
        try:
            with os.fdopen(sending, "w", encoding="utf-8") as out:
                json.dump(_counted(file, content, times), out)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(sending)
    with os.fdopen(receiving, encoding="utf-8") as answer:
        said = answer.read()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    file.path.write_bytes(content)
    name = f"one bit flipped: {file.name}"
    if status or not said:
        return Trial(name, 1, 1, "", (f"the process ended with status {status}",))
    counts, failures, memory = json.loads(said)
    seen = ", ".join(f"{counts[kind]:,} {kind}" for kind in sorted(counts) if kind != "lost")
    return Trial(name, sum(counts.values()), len(failures), f"{seen}; {memory} MB more memory", tuple(failures[:3]))


def _counted(file: Readable, content: bytes, times: int) -> tuple[Mapping[str, int], list[str], int]:
    """Return how often what came of a flip, the failures, and the most memory that was taken, in MB."""
    import resource  # of Unix: the pages of docs/ are written elsewhere too

    right = dict(file.read())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _ADDRESSES, used + _ADDRESSES))
    signal.signal(signal.SIGALRM, _too_long)
    bits = 8 * len(content)
    counts: Counter[str] = Counter()
    failures = []
    for bit in range(bits) if bits <= times else random.Random(0).sample(range(bits), times):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.path.write_bytes(damaged)
        signal.alarm(_SECONDS)
        kind = _outcome(file, right)
        signal.alarm(0)
        counts[kind if kind in OUTCOMES else "lost"] += 1
        if kind not in OUTCOMES:
            failures.append(f"bit {bit % 8} of byte {bit // 8}: {kind}")
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if memory > 4 * len(content) + _ALLOWED:
        failures.append(f"{memory:,} bytes of memory were taken for a file of {len(content):,}")
    return counts, failures, memory >> 20


OUTCOMES = (
    "refused", "read as before", "with one number or block changed", "with another name, word or setting",
    "with the numbers of one tensor as another type or shape",
)  # fmt: skip


def _outcome(file: Readable, right: Values) -> str:
    """Return what came of reading a flipped file: one of the outcomes, or what is wrong."""
    try:
        found = file.read()
    except WhatWhereError as problem:
        return "refused" if "\n" in str(problem) else f"an error without a way out: {problem}"
    except Exception as problem:  # anything else is what is looked for
        return f"{type(problem).__name__}: {problem}"
    numbers, tensors, others = _differences(right, found)
    if not numbers and not others:
        return "read as before"
    if file.checked:
        return f"read as something else, of a format with a checksum: {numbers} numbers, {sorted(others)[:2]}"
    if numbers > file.block:
        return OUTCOMES[4] if tensors == 1 else f"{numbers} numbers of {tensors} tensors are others"
    return OUTCOMES[2] if numbers else OUTCOMES[3]


def _differences(right: Values, found: Values) -> tuple[int, int, Iterable[str]]:
    """Return how many numbers of how many arrays differ, and the names of what else; renamed arrays are compared."""
    arrays = [{name: value for name, value in each.items() if isinstance(value, np.ndarray)} for each in (right, found)]
    renamed = [[name for name in arrays[n] if name not in arrays[1 - n]] for n in (0, 1)]
    pairs = [(name, name) for name in arrays[0] if name in arrays[1]] + list(zip(*renamed, strict=False))
    numbers = [_changed(arrays[0][old], arrays[1][new]) for old, new in pairs]
    numbers += [arrays[n][name].size for n in (0, 1) for name in renamed[n][len(renamed[1 - n]) :]]
    rest = (right.keys() | found.keys()) - arrays[0].keys() - arrays[1].keys()
    changed = sum(number > 0 for number in numbers)
    return (
        sum(numbers),
        changed,
        {*renamed[0], *renamed[1], *(name for name in rest if right.get(name) != found.get(name))},
    )


def _changed(old: np.ndarray, new: np.ndarray) -> int:
    """Return how many numbers differ, as bytes: NaN equals itself, and 0 is not -0."""
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        return max(old.size, new.size)
    size = old.dtype.itemsize
    sides = [np.frombuffer(np.ascontiguousarray(each).tobytes(), np.uint8).reshape(-1, size) for each in (old, new)]
    return int((sides[0] != sides[1]).any(axis=1).sum())


def _too_long(*_: object) -> None:
    raise TimeoutError(f"not read within {_SECONDS} s")
