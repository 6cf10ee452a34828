"""One case: every candidate made, its error found, its time taken, its peak of memory."""

import gc
import math
import sys
from collections.abc import Mapping
from typing import Any

import torch

from whatwhere.benchmark.memory import peak, settled, trim
from whatwhere.benchmark.timing import Budget, ratios, spread, time_rounds
from whatwhere.benchmark.work import Absent, Candidate, Case, Run, Scale

QUICK = Budget(seconds=0.0, least=2)


def measure(case: Case, scale: Scale, budget: Budget, once: bool) -> dict[str, Any]:
    """Measure a case under the regime of this process.

    Args:
        budget: of its rounds.
        once: find errors and peaks too, which one regime does for all.
    """
    _forget_others()
    rows: dict[str, dict[str, Any]] = {}
    runs: dict[str, Run] = {}
    for candidate in case.prepare():
        row = rows[candidate.name] = {"ours": candidate.ours, "note": "", "error": None, "peak": None, "times": None}
        run = _made(candidate, scale, row, once)
        if run is not None:
            runs[candidate.name] = run
    limit = next(iter(rows))
    if limit in runs:
        with settled():
            _measure(runs, rows, case, scale, budget, once)
    return {"case": case.name, "limit": case.limit, "error": case.error, "unit": case.unit, "rows": rows}


def _measure(
    runs: Mapping[str, Run], rows: Mapping[str, dict[str, Any]], case: Case, scale: Scale, budget: Budget, once: bool
) -> None:
    took = time_rounds(runs, budget, scale.device)
    limit = [seconds / case.steps for seconds in next(iter(took.values()))]
    for name, found in took.items():
        rows[name]["times"] = _times([seconds / case.steps for seconds in found], limit)
        if once and case.unit:
            rows[name]["peak"] = peak(runs[name], scale.device)


def _made(candidate: Candidate, scale: Scale, row: dict[str, Any], once: bool) -> Run | None:
    try:
        if candidate.compiled and not scale.compiled:
            raise Absent("left out: it compiles for seconds")
        run = candidate.make()
        if once and candidate.error is not None:
            # Before anything else: work in place changes what it is given.
            row["error"] = _finite(candidate.error(run))
        else:
            run()
        return run
    except Absent as why:
        row["note"] = str(why)
    except Exception as problem:  # what fails is a row that says so, and no reason to lose the others
        row["note"] = f"failed: {type(problem).__name__}: {str(problem).strip().partition(chr(10))[0]}"
    return None


def _finite(error: float) -> float:
    if not math.isfinite(error):
        raise ArithmeticError("its result is not finite")
    return error


def _times(seconds: list[float], limit: list[float]) -> dict[str, Any]:
    return {
        "seconds": spread(seconds),
        "ratio": spread(ratios(seconds, limit)),
        "rounds": [float(f"{value:.4g}") for value in seconds],
    }


def _forget_others() -> None:
    """Drop what other cases left: tensors, and compiled code, for after eight shapes torch.compile would give up."""
    gc.collect()
    trim()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
