"""Whether there is a GPU to test on.

WHATWHERE_TEST_DEVICE=cpu rehearses on the CPU what tests the library and not the kernels: it shows that such a test is
sound, and nothing of a GPU.
"""

import os

import torch

DEVICE = os.environ.get("WHATWHERE_TEST_DEVICE", "cuda")
MISSING = (
    "needs an NVIDIA GPU, and PyTorch sees none here" if DEVICE == "cuda" and not torch.cuda.is_available() else ""
)
"""Why tests marked `cuda` cannot run; empty where they can."""
