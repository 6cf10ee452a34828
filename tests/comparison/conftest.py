"""What several tests of comparisons need."""

from pathlib import Path

import pytest

from . import six_runs


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do six runs one after the other, in this process."""
    folder = tmp_path_factory.mktemp("alone") / "results"
    six_runs.compare(folder, workers=1, progress=False)
    return folder
