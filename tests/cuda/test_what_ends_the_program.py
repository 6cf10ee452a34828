"""What is checked on the device ends the program there: each case has a program of its own."""

import subprocess
import sys

import pytest

from .device import DEVICE

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(DEVICE != "cuda", reason="on the CPU, errors name what is wrong")]

START = """
import torch
import whatwhere as ww
d = torch.device("cuda")
"""
END = """
print("called", flush=True)
torch.cuda.synchronize()
print("went on", flush=True)
"""
RIGHT = "ww.TokenEmbedding(10, 32, device=d)(torch.tensor([[9]], device=d))"
WRONG = {
    "an id": "ww.TokenEmbedding(10, 32, device=d)(torch.tensor([[10]], device=d))",
    "a negative id": "ww.TokenEmbedding(10, 32, device=d)(torch.tensor([[-1]], device=d))",
    "an id of an input layer": (
        "ww.InputLayer(10, 32, ww.Sinusoidal(32)).to(d)(torch.tensor([[3, 10]], device=d, dtype=torch.int32))"
    ),
    "an id of a table that RowAdamW trains": (
        "t = ww.TokenEmbedding(10, 32, device=d); o = ww.RowAdamW(t); torch.set_grad_enabled(True); "
        "t(torch.tensor([1], device=d)).sum().backward(); o.step(); t(torch.tensor([10], device=d))"
    ),
    "a learned position": "ww.Learned(32, max_length=8, device=d)(torch.tensor([8], device=d))",
    "a learned position of an input layer": (
        "ww.InputLayer(10, 32, ww.Learned(32, max_length=8)).to(d)(torch.zeros(1, 9, dtype=torch.int64, device=d))"
    ),
}


def run(call: str) -> subprocess.CompletedProcess[str]:
    program = f"{START}\nwith torch.no_grad():\n    {call}\n{END}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_right_ids_do_not_end_the_program():
    assert run(RIGHT).stdout.split("\n")[:2] == ["called", "went on"]


@pytest.mark.parametrize("plainly", [False, True])
@pytest.mark.parametrize("what", WRONG)
def test_what_lies_outside_a_table_ends_the_program(what, plainly):
    """Not always at the call, which does not wait, but before anything could be made of the result."""
    call = f"with ww.pytorch_only(): {WRONG[what]}" if plainly else WRONG[what]
    done = run(call)
    assert "went on" not in done.stdout, done.stderr
    assert done.returncode != 0
    assert "device-side assert" in done.stderr
