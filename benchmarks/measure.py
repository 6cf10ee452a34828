"""One variant: every candidate made, its error computed, its time and its peak of memory measured."""

import gc
import math
import sys
from collections.abc import Mapping

import torch

from benchmarks.case import Absent, Candidate, Run, Scale, Variant
from benchmarks.memory import peak, settled, trim
from benchmarks.records import Line, Measured, Times
from benchmarks.timing import Budget, ratios, spread, time_rounds

QUICK = Budget(seconds=0.0, least=2)


def measure(variant: Variant, scale: Scale, budget: Budget, once: bool) -> Line:
    """Measure a variant under the regime of this process.

    Args:
        variant: of a case.
        scale: device, and whether candidates that need torch.compile take part.
        budget: of its rounds.
        once: measure errors and peaks too, which one regime does for all.

    Returns:
        A row for each candidate. One that is absent or fails has a note with the reason, and no times.
    """
    _forget_others()
    rows: dict[str, Measured] = {}
    runs: dict[str, Run] = {}
    for candidate in variant.prepare():
        row: Measured = {"ours": candidate.ours, "note": "", "error": None, "peak": None, "times": None}
        rows[candidate.name] = row
        run = _made(candidate, scale, row, once)
        if run is not None:
            runs[candidate.name] = run
    limit = next(iter(rows))
    if limit in runs:
        with settled():
            _measure(runs, rows, variant, scale, budget, once)
    return {
        "variant": variant.name,
        "limit": variant.limit,
        "error": variant.error,
        "unit": variant.unit,
        "rows": rows,
    }


def _measure(
    runs: Mapping[str, Run], rows: Mapping[str, Measured], variant: Variant, scale: Scale, budget: Budget, once: bool
) -> None:
    times = time_rounds(runs, budget, scale.device)
    limit = [seconds / variant.steps for seconds in next(iter(times.values()))]
    for name, rounds in times.items():
        rows[name]["times"] = _times([seconds / variant.steps for seconds in rounds], limit)
        if once and variant.unit:
            rows[name]["peak"] = peak(runs[name], scale.device)


def _made(candidate: Candidate, scale: Scale, row: Measured, once: bool) -> Run | None:
    try:
        if candidate.compiled and not scale.compiled:
            raise Absent("not measured: it compiles for seconds")
        run = candidate.make()
        if once and candidate.error is not None:
            # Before anything else: what computes in place changes its inputs.
            row["error"] = _finite(candidate.error(run))
        else:
            run()
        return run
    except Absent as why:
        row["note"] = str(why)
    except Exception as problem:  # a failure is shown in its row, and the others are measured
        row["note"] = f"failed: {type(problem).__name__}: {str(problem).strip().partition(chr(10))[0]}"
    return None


def _finite(error: float) -> float:
    if not math.isfinite(error):
        raise ArithmeticError("its result is not finite")
    return error


def _times(seconds: list[float], limit: list[float]) -> Times:
    return {
        "seconds": spread(seconds),
        "ratio": spread(ratios(seconds, limit)),
        "rounds": [float(f"{value:.4g}") for value in seconds],
    }


def _forget_others() -> None:
    """Free what other variants left: tensors, and compiled code, since torch.compile gives up after eight shapes."""
    gc.collect()
    trim()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
