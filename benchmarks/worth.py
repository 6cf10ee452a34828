"""Measure variants in order of worth, as far as the time goes: `python -m benchmarks.worth`, by gpu.py.

Each variant is kept as soon as it is measured; run the same command again to resume.
"""

import argparse
import json
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from time import perf_counter

from benchmarks.case import Scale
from benchmarks.cases import CASES
from benchmarks.machine import code, machine, versions
from benchmarks.run import bench
from benchmarks.store import read
from whatwhere.errors import ResultsError

WORTH: tuple[tuple[str, str], ...] = (
    ("token-step", "(8,192|262,144) rows, uniform ids"),
    ("rotary", "bfloat16, half, .*"),
    ("attention", "bfloat16, 4,096 tokens, .*"),
    ("lookup", "float32, dim 768, sinusoidal|bfloat16, dim 4096, learned"),
    ("decoding", "a step .*"),
    ("loss", ".*"),
    ("window", "bfloat16, .*"),
    ("training", ".*"),
    ("rotary", "bfloat16, .*|float32, half, .*"),
    ("attention", "float32, 4,096 tokens, .*"),
    ("position-table", ".*"),
    ("decoding", ".*"),
    ("lookup", ".*"),
    ("token-step", ".*"),
    ("attention", ".*"),
    ("window", ".*"),
    ("rotary", ".*"),
)
"""Cases, and which of their variants, the first first. A case that is not there is passed over."""

SECONDS = 1.5
"""For the rounds of a variant."""


def measure_in_order(device: str, quick: bool, minutes: float, folder: Path, cases: Sequence[str] = ()) -> Path:
    """Measure what is missing, the first first.

    Args:
        device: `cpu` or `cuda`.
        quick: small shapes, and all variants of a case at once: only to see that it runs.
        minutes: that it may take; what is being measured then is given up.
        folder: of the results, with a file for each machine.
        cases: the only ones; none are all.

    Returns:
        The file of results.
    """
    ends, threads = perf_counter() + 60 * minutes, 2 if device == "cpu" else 8
    identity = code()
    on = json.dumps([machine(device), versions(), quick], sort_keys=True)
    out = folder / f"{device}-{sha256(on.encode()).hexdigest()[:8]}.json"
    scale = Scale(quick=quick, device=device, threads=threads, compiled=not quick)
    for name, pattern in WORTH:
        if name not in CASES or device not in CASES[name].devices or (cases and name not in cases):
            continue
        names = [each.name for each in CASES[name].variants(scale) if quick or re.fullmatch(pattern, each.name)]
        # One that ends its process is given up, and the others are measured.
        while (
            names := [each for each in names if each not in _measured(out, name, identity)]
        ) and perf_counter() < ends:
            print(f"{name}: {', '.join(names)}", flush=True)
            try:
                bench(
                    [name],
                    quick=quick,
                    threads=threads,
                    device=device,
                    seconds=SECONDS,
                    out=out,
                    variants=names,
                    ends=ends,
                )
            except ResultsError as problem:
                print(f"{name}: {problem}", flush=True)
            left = [each for each in names if each not in _measured(out, name, identity)]
            names = left[1:]
    return out


def _measured(out: Path, case: str, identity: str) -> set[str]:
    record = read(out)["cases"].get(case) if out.exists() else None
    return {each["variant"] for each in record["variants"]} if record and record["code"] == identity else set()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worth", description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--cases", nargs="*", default=[])
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    print(measure_in_order(given.device, given.quick, given.minutes, given.folder, given.cases))


if __name__ == "__main__":
    main()
