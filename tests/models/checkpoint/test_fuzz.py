"""Damaged files of every format: refused by CheckpointError or read, at the cost of their size, in a moment.

Edits that are led by what they reach are those of `python -m reliability fuzz`.
"""

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from .damage import EDITS as ALL_EDITS
from .damage import damaged, read_all, withstands
from .samples import FORMATS, Sample, make

SECONDS = float(os.environ.get("WHATWHERE_FUZZ_SECONDS", "0"))
NAMES = [name for names in FORMATS.values() for name in names]
EDITS = st.lists(
    st.tuples(st.integers(0, len(ALL_EDITS) - 1), st.integers(0, 2**16), st.integers(0, 2**41)), min_size=1, max_size=4
)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sample]:
    """Make the valid files once."""
    return make(tmp_path_factory.mktemp("samples"))


def test_every_sample_is_tried(samples: dict[str, Sample]) -> None:
    assert sorted(samples) == sorted(NAMES)


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_are_refused_or_read(name: str, samples: dict[str, Sample], tmp_path: Path) -> None:
    """Apply a few edits, drawn by hypothesis, which shrinks what it finds."""
    sample = samples[name]
    assert read_all(sample.write(tmp_path))["names"].token_table is not None  # undamaged; it also imports what it needs
    assert not withstands(sample, sample.files[sample.damaged], tmp_path)
    tries: list[bool] = []

    @settings(
        max_examples=20,
        database=None,
        deadline=5000,  # milliseconds: nothing so small may take long
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(EDITS)
    def damage(edits: list[tuple[int, int, int]]) -> None:
        tries.append(withstands(sample, damaged(sample.files[sample.damaged], edits), tmp_path))

    end, run = time.monotonic() + SECONDS, 0
    while not tries or time.monotonic() < end:
        seed(run)(damage)()
        run += 1
    assert sum(tries) > len(tries) // 20, "the damage does none"
