"""Set up Hugging Face models, built small and at random, offline."""

import os

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: nothing is ever downloaded


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed PyTorch's random state, so that tests do not depend on their order."""
    torch.manual_seed(0)
