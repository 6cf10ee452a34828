"""A process that measures one case under one regime: `python -m benchmarks.worker '{"case": ..., "regime": ...}'`.

It writes a line of JSON for each variant, a `records.Line`, or one `{"unavailable": reason}`. Nothing here may import
torch before the regime is set.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TextIO

from benchmarks.case import Scale
from benchmarks.memory import pool_allocations


@dataclass(frozen=True)
class Request:
    """A request to a worker: what to measure, and under which conditions.

    Args:
        case: its name.
        regime: of allocation.
        seconds: for the rounds of one variant.
        once: measure errors and peaks too, which one regime does for all.
        scale: size, device and threads.
        variants: names of the only ones that are measured; None is all.
    """

    case: str
    regime: str
    seconds: float
    once: bool
    scale: Scale
    variants: tuple[str, ...] | None = None

    def as_json(self) -> str:
        """Return the request as the argument of the process."""
        return json.dumps(asdict(self))


def read_request(text: str) -> Request:
    """Read the argument of the process.

    Args:
        text: JSON, as `Request.as_json` writes it.

    Returns:
        The request.

    Examples:
        >>> request = Request("rotary", "pooled", 1.0, once=False, scale=Scale(quick=True))
        >>> read_request(request.as_json()) == request
        True
    """
    settings = json.loads(text)
    variants = None if settings["variants"] is None else tuple(settings["variants"])
    return Request(**(settings | {"scale": Scale(**settings["scale"]), "variants": variants}))


def main(request: Request) -> None:
    """Measure, and write each variant as soon as it is done.

    Args:
        request: what to measure.
    """
    channel = _channel()
    if request.regime == "pooled" and not pool_allocations():
        _write(channel, {"unavailable": "this C library has no mallopt"})
        return
    import torch

    from benchmarks.cases import CASES
    from benchmarks.measure import QUICK, measure
    from benchmarks.timing import Budget

    scale = request.scale
    torch.set_num_threads(scale.threads)
    budget = QUICK if scale.quick else Budget(request.seconds)
    for variant in CASES[request.case].variants(scale):
        if request.variants is None or variant.name in request.variants:
            _write(channel, measure(variant, scale, budget, once=request.once))


def _channel() -> TextIO:
    """Return what was standard output; what packages print goes to the errors."""
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return channel


def _write(channel: TextIO, line: Mapping[str, object]) -> None:
    print(json.dumps(line), file=channel, flush=True)


if __name__ == "__main__":
    main(read_request(sys.argv[1]))
