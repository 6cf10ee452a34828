"""A process that measures one work under one regime: `python -m whatwhere.benchmark.worker '{"work": ...}'`.

It writes a line of JSON for each case. Nothing here may import torch before the regime is set.
"""

import json
import os
import sys
from typing import Any, TextIO

from whatwhere.benchmark.memory import pool_allocations


def main(asked: dict[str, Any]) -> None:
    """Measure, telling of each case as soon as it is done."""
    channel = _channel()
    if asked["regime"] == "pooled" and not pool_allocations():
        _tell(channel, {"unavailable": "this C library has no mallopt"})
        return
    import torch

    from whatwhere.benchmark.measure import QUICK, measure
    from whatwhere.benchmark.timing import Budget
    from whatwhere.benchmark.work import Scale
    from whatwhere.benchmark.works import WORKS

    scale = Scale(**asked["scale"])
    torch.set_num_threads(scale.threads)
    budget = QUICK if scale.quick else Budget(asked["seconds"])
    for case in WORKS[asked["work"]].cases(scale):
        _tell(channel, measure(case, scale, budget, once=asked["once"]))


def _channel() -> TextIO:
    """Take standard output for ourselves; what packages print goes to the errors."""
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return channel


def _tell(channel: TextIO, line: dict[str, Any]) -> None:
    print(json.dumps(line), file=channel, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
