"""Damaged files of every format: refused by CheckpointError or read, at the cost of their size, in a moment."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from .damage import damaged, read_all, withstands
from .samples import Sample, make

SECONDS = float(os.environ.get("WHATWHERE_FUZZ_SECONDS", "0"))
FORMATS = {
    "safetensors": ["safetensors"],
    "folder": ["folder-index", "folder-shard", "folder-config", "folder-tokenizer", "folder-vocabulary",
               "folder-sentencepiece"],
    "gguf": ["gguf"],
    "word2vec": ["word2vec", "fasttext"],
    "word2vec-binary": ["word2vec-binary"],
    "glove": ["glove"],
    "npy": ["npy"],
    "npz": ["npz", "npz-pressed"],
    "projector": ["projector", "projector-labels"],
    "results": ["results"],
    "pickle": ["pickle"],
}  # fmt: skip
NAMES = [name for names in FORMATS.values() for name in names]
ROOT = Path(__file__).parents[3]
EDITS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2**16), st.integers(0, 2**41)), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sample]:
    """Make the valid files once."""
    return make(tmp_path_factory.mktemp("samples"))


def test_every_sample_is_tried(samples: dict[str, Sample]) -> None:
    assert sorted(samples) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_are_refused_or_read(name: str, samples: dict[str, Sample], tmp_path: Path) -> None:
    """Apply a few edits, drawn by hypothesis, which shrinks what it finds."""
    sample = samples[name]
    assert read_all(sample.write(tmp_path))["names"].token_table is not None  # undamaged; it also imports what it needs
    assert not withstands(sample, sample.files[sample.damaged], tmp_path)
    tries: list[bool] = []

    @settings(
        max_examples=30,
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


def fuzz(names: list[str], seconds: float, folder: Path) -> int:
    """Run libFuzzer; return how many damaged files it tried, none of which may end the process."""
    pytest.importorskip("atheris", reason="made for Linux on x86-64 alone")
    command = [sys.executable, "-m", "tests.models.checkpoint.fuzz", ",".join(names), f"{seconds:.0f}", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds + 300)
    assert done.returncode == 0, f"what made it fail is in {folder}\n{done.stderr[-5000:]}"
    tried = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    assert tried is not None
    return int(tried[1])


def test_fuzz_all_formats(tmp_path: Path) -> None:
    """Every format in one process, some seconds long."""
    assert fuzz(NAMES, SECONDS or 3, tmp_path) > len(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_fuzz_long(format: str, tmp_path: Path) -> None:
    """Each format by itself: a minute, or as long as WHATWHERE_FUZZ_SECONDS says.

    Last long run, 2026-11-21: ten minutes each, no finding. Files tried: safetensors 231,393, folder 75,821, gguf
    191,321, word2vec 44,369, word2vec-binary 58,287, glove 61,041, npy 98,771, npz 70,434, projector 22,265, results
    62,324, pickle 69,254. Once the projector's run had said that a file of 280 bytes took 3.9 MB; the same file did
    not again, so what is too much is measured twice since.
    """
    assert fuzz(FORMATS[format], SECONDS or 60, tmp_path) > 100
