"""All cases: each regime in a process of its own, each case kept as soon as it is done, on a GPU each variant."""

import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import TIMEOUT_MAX, Timer
from time import perf_counter

import torch

from benchmarks.case import Case, Scale
from benchmarks.cases import CASES
from benchmarks.machine import code, load, machine, versions
from benchmarks.measure import QUICK, measure
from benchmarks.progress import Display
from benchmarks.records import CandidateRecord, CaseRecord, Line, Results, Settings, VariantRecord
from benchmarks.store import FORMAT, VERSION, Store
from benchmarks.worker import Request
from whatwhere.checks import require_choice, require_positive, require_whole
from whatwhere.errors import ResultsError, SettingError

ROOT = Path(__file__).resolve().parents[1]
"""The root of the checkout, where workers start: `benchmarks` is not installed."""


class Unavailable(Exception):
    """A regime of allocation cannot be set here; the message is the reason."""


def bench(
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    threads: int = 2,
    device: str = "cpu",
    seconds: float = 10.0,
    out: Path | None = None,
    progress: bool = False,
    variants: Sequence[str] | None = None,
    ends: float = math.inf,
) -> Results:
    """Measure whatwhere and its peers.

    Args:
        names: of CASES; none means all that the device can do.
        quick: small shapes, two rounds, in this process: whether everything runs, not how fast it is.
        threads: number of PyTorch's threads.
        device: `cpu` or `cuda`.
        seconds: for the rounds of one variant under one regime; slow candidates take more.
        out: a file that keeps every finished case, on a GPU every finished variant; if it exists, what is missing in it
            is measured, and what was measured on other code is measured again.
        progress: show it on standard error.
        variants: names of the only ones that are measured; None is all.
        ends: the time by `perf_counter` at which it stops, with what is finished.

    Returns:
        What the file of results holds, of these cases.

    Raises:
        ResultsError: If the file is of another machine or of other settings, or a process ended early.
        SettingError: If a case or device is unknown or not available, or seconds are not positive.
        ShapeError: If threads is below 1.
    """
    require_whole("benchmarks", threads=threads)
    require_positive("benchmarks", seconds=seconds)
    chosen = choose(names, device)
    scale = Scale(quick=quick, device=device, threads=threads, compiled=not quick)
    settings: Settings = {
        "quick": quick,
        "threads": threads,
        "device": device,
        "seconds": None if quick else seconds,
    }
    empty: Results = {
        "format": FORMAT,
        "version": VERSION,
        "command": _command(settings, out),
        "settings": settings,
        "machine": machine(device),
        "versions": versions(),
        "cases": {},
    }
    store = Store(out, empty)
    identity = code()
    all_of = {case.name: [variant.name for variant in case.variants(scale)] for case in chosen}
    due: dict[str, list[str]] = {}
    for name, every in all_of.items():
        done = store.measured(name, identity)
        due[name] = [each for each in every if each not in done and (variants is None or each in variants)]
    missing = [case for case in chosen if due[case.name]]
    display = Display(sum(len(due[case.name]) * len(_regimes(case, scale)) for case in missing), progress)
    with display.progress:
        for number, case in enumerate(missing):
            if (began := perf_counter()) >= ends:
                break
            keep = partial(store.keep, case.name, order=all_of[case.name])
            keep(_record(case, scale, seconds, display, identity, due[case.name], keep, ends))
            display.finished_case(case.name, number + 1, len(missing), perf_counter() - began)
    selected = {case.name for case in chosen}
    kept = {name: record for name, record in store.results["cases"].items() if name in selected}
    return {**store.results, "cases": kept}


def choose(names: Sequence[str], device: str) -> list[Case]:
    """Return the cases of these names, in the order of the table.

    Args:
        names: of CASES; none means all that the device can do.
        device: `cpu` or `cuda`.

    Returns:
        The cases.

    Raises:
        SettingError: If a name or device is unknown, or a case is not measured on this device.
    """
    require_choice("benchmarks", "device", device, ("cpu", "cuda"))
    if device == "cuda" and not torch.cuda.is_available():
        raise SettingError("benchmarks got device='cuda', but PyTorch sees no such device here.\nPass --device cpu.")
    for name in names:
        require_choice("benchmarks", "case", name, tuple(CASES))
        if device not in CASES[name].devices:
            raise SettingError(f"{name} is measured on the {CASES[name].devices[0]} only: omit --device {device}.")
    return [case for name, case in CASES.items() if device in case.devices and (not names or name in names)]


def _regimes(case: Case, scale: Scale) -> tuple[str, ...]:
    return case.regimes_on(scale.device)[: 1 if scale.quick else None]


def _record(
    case: Case,
    scale: Scale,
    seconds: float,
    display: Display,
    identity: str,
    names: Sequence[str],
    keep: Callable[[CaseRecord], None],
    ends: float,
) -> CaseRecord:
    regimes: dict[str, list[Line]] = {}
    record: CaseRecord = {
        "code": identity,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": {"start": load(), "end": None},
        "unavailable": {},
        "variants": [],
    }
    own = _regimes(case, scale)
    # The first regime measures errors and peaks for all: fresh memory is counted whole.
    for number, regime in enumerate(own):
        display.at(case.name, regime)
        request = Request(case.name, regime, seconds, once=number == 0, scale=scale, variants=tuple(names))
        lines = regimes[regime] = []
        try:
            for line in _here(case, scale, names, ends) if scale.quick else _in_a_process(request, ends):
                lines.append(line)
                display.finished_variant()
                if len(own) == 1:
                    keep({**record, "load": {**record["load"], "end": load()}, "variants": joined(regimes)})
        except Unavailable as why:
            del regimes[regime]
            record["unavailable"][regime] = str(why)
    if len({len(lines) for lines in regimes.values()}) > 1:  # time was up: what not all regimes have is not kept
        regimes = {name: lines[: min(map(len, regimes.values()))] for name, lines in regimes.items()}
    return {**record, "load": {**record["load"], "end": load()}, "variants": joined(regimes)}


def joined(regimes: Mapping[str, Sequence[Line]]) -> list[VariantRecord]:
    """Join the lines of several regimes.

    Args:
        regimes: by name, each with a line for each variant; the first has errors and peaks.

    Returns:
        The variants, each candidate with its times by regime.
    """
    first = next(iter(regimes.values()))
    variants: list[VariantRecord] = []
    for number, line in enumerate(first):
        rows: list[CandidateRecord] = []
        for name, row in line["rows"].items():
            times = {regime: lines[number]["rows"][name]["times"] for regime, lines in regimes.items()}
            rows.append(
                {
                    "candidate": name,
                    "ours": row["ours"],
                    "note": row["note"],
                    "error": row["error"],
                    "peak": row["peak"],
                    "regimes": {regime: each for regime, each in times.items() if each is not None},
                }
            )
        variants.append(
            {
                "variant": line["variant"],
                "limit": line["limit"],
                "error": line["error"],
                "unit": line["unit"],
                "rows": rows,
            }
        )
    return variants


def _here(case: Case, scale: Scale, names: Sequence[str], ends: float) -> Iterator[Line]:
    with _threads(scale.threads):
        for variant in case.variants(scale):
            if variant.name in names and perf_counter() < ends:
                yield measure(variant, scale, QUICK, once=True)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _in_a_process(request: Request, ends: float = math.inf) -> Iterator[Line]:
    threads = str(request.scale.threads)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", request.as_json()],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            start_new_session=True,  # Ctrl-C is handled here
        )
        assert process.stdout is not None
        timer = Timer(min(max(ends - perf_counter(), 0.0), TIMEOUT_MAX), process.kill)
        timer.daemon = True
        timer.start()
        try:
            for text in process.stdout:
                yield _read(text)
            status = process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.wait()
            process.stdout.close()
        if status and perf_counter() < ends:
            errors.seek(0)
            raise _ended(request, status, errors.read())


def _read(text: str) -> Line:
    line = json.loads(text)
    if "unavailable" in line:
        raise Unavailable(line["unavailable"])
    measured: Line = line
    return measured


def _ended(request: Request, status: int, errors: str) -> ResultsError:
    last = "\n".join(errors.strip().splitlines()[-5:])
    cause = "Perhaps there was too little memory for it" if status < 0 else "Its last output"
    return ResultsError(
        f"the process that measures {request.case} ({request.regime}) ended with status {status}. {cause}:\n{last}\n"
        "Finished cases are kept where there is an --out; other cases can be named on the command line."
    )


def _command(settings: Settings, out: Path | None) -> str:
    words = ["python", "-m", "benchmarks"]
    words += ["--quick"] if settings["quick"] else []
    words += ["--threads", str(settings["threads"]), "--device", settings["device"]]
    words += [] if settings["seconds"] is None else ["--seconds", f"{settings['seconds']:g}"]
    return shlex.join([*words, *([] if out is None else ["--out", str(out)])])
