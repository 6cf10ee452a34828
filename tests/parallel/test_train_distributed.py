"""examples/train_distributed.py: on several processes it has the losses of one."""

import os
import re
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize("scheme", ["rotary", pytest.param("fire", marks=pytest.mark.slow)])
def test_four_processes_have_the_losses_of_one(scheme: str) -> None:
    alone = losses(1, "--scheme", scheme)
    assert alone[1] < alone[0] - 1.5
    meshes = (["--tensor", "2", "--context", "2"], ["--tensor", "2"], ["--context", "4"])
    for options in meshes[: 1 if scheme == "rotary" else None]:
        assert losses(4, "--scheme", scheme, *options) == pytest.approx(alone, abs=2e-3), options


def test_it_is_short() -> None:
    assert len(PROGRAM.read_text(encoding="utf-8").splitlines()) <= 150
