"""examples/train_distributed.py: on several processes it has the losses of one."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "examples" / "train_distributed.py"


def losses(processes: int, *options: str) -> list[float]:
    """Return the first and the last loss that the program prints; gloo may abort it once it has printed them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [*command, PROGRAM, *options],
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert f"on {processes} processes: loss" in done.stdout, done.stderr
    return [float(loss) for loss in re.findall(r"\d\.\d+", done.stdout.split("loss")[1])]


TWO, FOUR = (2, "--tensor", "2"), (4, "--tensor", "2", "--context", "2")


@pytest.mark.parametrize(
    ("scheme", "ways"),
    [
        ("rotary", [TWO]),
        pytest.param("rotary", [FOUR], marks=pytest.mark.slow),
        pytest.param("fire", [FOUR, (4, "--tensor", "2"), (4, "--context", "4")], marks=pytest.mark.slow),
    ],
)
def test_several_processes_have_the_losses_of_one(scheme: str, ways: list[Any]) -> None:
    alone = losses(1, "--scheme", scheme)
    assert alone[1] < alone[0] - 1.5
    for processes, *options in ways:
        assert losses(processes, "--scheme", scheme, *options) == pytest.approx(alone, abs=2e-3), options
