"""What several tests of comparisons need."""

from pathlib import Path
from typing import Any

import pytest

import whatwhere as ww
from whatwhere.comparison import Comparison, compare

from . import six_runs

SMALL: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 8, "test_sequences": 20, "device": "cpu"}
"""Settings of a model that trains in no time."""
QUICK = SMALL | {"lengths": [4], "trained": [2, 3], "workers": 1, "progress": False}
"""Arguments of a comparison of such models."""


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do six runs one after the other, in this process."""
    folder = tmp_path_factory.mktemp("alone") / "results"
    six_runs.compare(folder, workers=1, progress=False)
    return folder


def nothing(dim: int, num_heads: int, max_length: int) -> ww.Where:
    """Build a scheme of one's own."""
    return ww.Where()


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Train schemes with and without parameters, with settings and tables of their own, and one of one's own."""
    schemes = ["learned", "rotary@theta=100.5,randomized", "none@encoder,layers=1", "none@heads=4,rank2,tied"]
    schemes += ["none@onehot", "none@ids", "none@frozen,steps=2", "rotary+t5/none", "fope", "fox", ("mine", nothing)]
    return compare(schemes, seeds=[3], out=tmp_path_factory.mktemp("vary") / "a", **QUICK | {"dim": 24, "steps": 3})
