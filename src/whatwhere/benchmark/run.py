"""All works: each regime in a process of its own, each work kept as soon as it is done."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from whatwhere.benchmark.machine import code, load, machine, versions
from whatwhere.benchmark.measure import QUICK, measure
from whatwhere.benchmark.progress import Display
from whatwhere.benchmark.store import Store
from whatwhere.benchmark.work import Scale, Work
from whatwhere.benchmark.works import WORKS
from whatwhere.checks import require_choice, require_positive, require_whole
from whatwhere.comparison.results import now
from whatwhere.errors import ResultsError, SettingError

Line = dict[str, Any]


def bench(
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    threads: int = 2,
    device: str = "cpu",
    seconds: float = 10.0,
    out: Path | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Measure whatwhere and its peers; give what the file of results holds.

    Args:
        names: of WORKS; none means all that the device can do.
        quick: small shapes, two rounds, in this process: whether everything runs, not how fast it is.
        threads: of PyTorch.
        device: `cpu` or `cuda`.
        seconds: for the rounds of one case under one regime; slow candidates take more.
        out: a file that keeps every finished work; if it exists, what is missing in it is measured, and what another
            state of the code was measured for is measured again.
        progress: draw it.

    Raises:
        ResultsError: the file is of another machine or of other settings, or a process ended early.
    """
    require_whole("bench", threads=threads)
    require_positive("bench", seconds=seconds)
    works = chosen(names, device)
    scale = Scale(quick=quick, device=device, threads=threads, compiled=not quick)
    settings = {"quick": quick, "threads": threads, "device": device, "seconds": None if quick else seconds}
    told = {
        "command": _command(settings, out),
        "settings": settings,
        "machine": machine(device),
        "versions": versions(),
    }
    store = Store(out, told)
    identity = code()
    missing = [work for work in works if not store.has(work.name, identity)]
    cases = sum(len(work.cases(scale)) * len(_regimes(work, scale)) for work in missing)
    display = Display(cases, progress)
    with display.progress:
        for number, work in enumerate(missing):
            began = perf_counter()
            store.keep(work.name, {"code": identity, **_record(work, scale, seconds, display)})
            display.finished_work(work.name, number + 1, len(missing), perf_counter() - began)
    asked = {work.name for work in works}
    kept = {name: record for name, record in store.results["works"].items() if name in asked}
    return store.results | {"works": kept}


def chosen(names: Sequence[str], device: str) -> list[Work]:
    """Give the works of these names, in the order of the table."""
    require_choice("bench", "device", device, ("cpu", "cuda"))
    if device == "cuda" and not torch.cuda.is_available():
        raise SettingError("bench got device='cuda', but PyTorch sees no such device here.")
    for name in names:
        require_choice("bench", "work", name, tuple(WORKS))
        if device not in WORKS[name].devices:
            raise SettingError(f"{name} is measured on the {WORKS[name].devices[0]} only: leave out --device {device}.")
    return [work for name, work in WORKS.items() if device in work.devices and (not names or name in names)]


def _regimes(work: Work, scale: Scale) -> tuple[str, ...]:
    return work.regimes_on(scale.device)[: 1 if scale.quick else None]


def _record(work: Work, scale: Scale, seconds: float, display: Display) -> dict[str, Any]:
    date, before = now(), load()
    regimes: dict[str, list[Line]] = {}
    for regime in _regimes(work, scale):
        display.at(work.name, regime)
        lines = regimes[regime] = []
        # The first regime finds errors and peaks for all: fresh memory is counted whole.
        source = (
            _here(work, scale) if scale.quick else _in_a_process(work, scale, seconds, regime, once=len(regimes) == 1)
        )
        for line in source:
            lines.append(line)
            display.finished_case()
    return {"date": date, "load": {"start": before, "end": load()}, **_joined(regimes)}


def _joined(regimes: dict[str, list[Line]]) -> dict[str, Any]:
    """Put the regimes of a case side by side."""
    first, *_ = regimes.values()
    unavailable = {
        name: line["unavailable"] for name, lines in regimes.items() for line in lines if "unavailable" in line
    }
    cases = []
    for number, case in enumerate(first):
        rows = []
        for name, row in case["rows"].items():
            times = {
                regime: lines[number]["rows"][name]["times"]
                for regime, lines in regimes.items()
                if regime not in unavailable and lines[number]["rows"][name]["times"] is not None
            }
            facts = {fact: row[fact] for fact in ("ours", "note", "error", "peak")}
            rows.append({"candidate": name, **facts, "regimes": times})
        cases.append({name: case[name] for name in ("case", "limit", "error", "unit")} | {"rows": rows})
    return {"unavailable": unavailable, "cases": cases}


def _here(work: Work, scale: Scale) -> Iterator[Line]:
    with _threads(scale.threads):
        for case in work.cases(scale):
            yield measure(case, scale, QUICK, once=True)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _in_a_process(work: Work, scale: Scale, seconds: float, regime: str, once: bool) -> Iterator[Line]:
    asked = {"work": work.name, "regime": regime, "seconds": seconds, "once": once, "scale": asdict(scale)}
    command = [sys.executable, "-m", "whatwhere.benchmark.worker", json.dumps(asked)]
    threads = str(scale.threads)
    environment = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        # A session of its own: Ctrl-C is ours to handle.
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, start_new_session=True
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield json.loads(line)
            status = process.wait()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if status:
            errors.seek(0)
            raise _ended(work.name, regime, status, errors.read())


def _ended(work: str, regime: str, status: int, errors: str) -> ResultsError:
    last = "\n".join(errors.strip().splitlines()[-5:])
    cause = "Perhaps there was too little memory for it" if status < 0 else "Its last words"
    return ResultsError(
        f"the process that measures {work} ({regime}) ended with status {status}. {cause}:\n{last}\n"
        "Finished works are kept where there is an --out; other works can be named on the command line."
    )


def _command(settings: dict[str, Any], out: Path | None) -> str:
    words = ["whatwhere", "bench"]
    words += ["--quick"] if settings["quick"] else []
    words += ["--threads", str(settings["threads"]), "--device", settings["device"]]
    words += [] if settings["quick"] else ["--seconds", f"{settings['seconds']:g}"]
    return shlex.join([*words, *([] if out is None else ["--out", str(out)])])
