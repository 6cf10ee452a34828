"""Starting: whole processes, from the command to the exit."""

import os
import subprocess
import sys
from functools import partial

from benchmarks.case import Absent, Candidate, Case, Run, Scale, Variant

TORCH = "import torch"
ON_TOP = "import torch, then whatwhere"
HELP = "whatwhere --help"
_FIRST_USE = "from whatwhere import InputLayer, Rotary, Where, positions"


def variants(scale: Scale) -> list[Variant]:
    """Return one variant; quick runs start Python alone, which is enough to try the way that it is timed.

    Args:
        scale: quick or full, and the device.
    """
    return [Variant("processes", limit="python -c pass", prepare=partial(_candidates, scale.quick))]


def _candidates(quick: bool) -> list[Candidate]:
    commands = {
        "python -c pass": ["-c", "pass"],
        HELP: ["-m", "whatwhere", "--help"],
        TORCH: ["-c", "import torch"],
        ON_TOP: ["-c", "import torch, whatwhere"],
        "import torch, then whatwhere's layer, rotary and positions": ["-c", f"import torch\n{_FIRST_USE}"],
        "import transformers": ["-c", "import transformers"],
        "import x_transformers": ["-c", "import x_transformers"],
        "import rotary_embedding_torch": ["-c", "import rotary_embedding_torch"],
    }
    most = 2 if quick else len(commands)
    return [Candidate(name, partial(_run, words)) for name, words in list(commands.items())[:most]]


def _run(words: list[str]) -> Run:
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}

    def run() -> None:
        command = [sys.executable, *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)

    try:
        run()
    except subprocess.CalledProcessError:
        raise Absent("not installed, or does not import") from None
    return run


CASE = Case(
    "start",
    "starting a program",
    "Seconds of whole processes, files in the system's cache; everything is divided by a Python that does nothing. "
    "Names of whatwhere load when first used, so its import alone is nearly free; the row below it loads the usual "
    "ones.",
    variants,
    regimes=("fresh",),
    devices=("cpu",),
)
