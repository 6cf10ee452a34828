"""The claim about attention, on models whose attention is known: no weights, and weights that look for digits."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import whatwhere as ww
from experiments.errata_page import reason
from experiments.tutorials.all_claims import claim
from experiments.tutorials.trained import TrainedClaim
from experiments.tutorials.trained_tables import attention_of_max
from whatwhere.comparison import read_results
from whatwhere.comparison.read import AFTER, Comparison

from ..comparison.made_up import change

Tensors = dict[str, np.ndarray]
CLAIM = claim("0.39")
assert isinstance(CLAIM, TrainedClaim)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of an encoder without positions, hardly trained and marked as having learned its task."""
    folder = tmp_path_factory.mktemp("encoder")
    ww.compare(
        ["none"], lengths=[3], seeds=1, out=folder, steps=1, workers=1, progress=False, direction="encoder", dim=16,
        feedforward=16, heads=2, trained=(3,), test_sequences=10,
    )  # fmt: skip
    return learned(folder)


def learned(folder: Path) -> Path:
    return change(folder, lambda data: [run.update(in_length=1.0) for run in data["runs"]])


def edited(folder: Path, how: Callable[[Tensors], None]) -> Comparison:
    """Change the kept model of a folder."""
    results = read_results(folder)
    path = folder / results.runs[0].file
    tensors = load_file(path)
    how(tensors)
    save_file(tensors, path)
    return results


def blind(tensors: Tensors) -> None:
    """Let every token attend to all tokens alike."""
    for name in tensors:
        if name.endswith("qkv.weight"):
            tensors[name][:32] = 0


def looking_for_digits(tensors: Tensors) -> None:
    """Let Max attend to digits: these have feature 0, and the query of Max, which has feature 1, asks for it."""
    blind(tensors)
    tensors[AFTER][:] = np.eye(16, dtype=np.float32)[2]
    tensors[AFTER][2:12] = np.eye(16, dtype=np.float32)[0]
    tensors[AFTER][15] = np.eye(16, dtype=np.float32)[1]
    qkv = tensors["blocks.0.qkv.weight"]
    qkv[0, 1], qkv[16, 0] = 5.0, 5.0  # the first feature of the first head's query, and of its key


def test_an_equal_share_is_not_attention_to_the_digits(encoder: Path) -> None:
    results = edited(encoder, blind)
    weights = attention_of_max(results, results.runs[0])
    assert weights.shape == (4, 3, 1000)  # two heads in each of two layers
    np.testing.assert_allclose(weights.numpy(), 1 / 8, rtol=1e-5)
    result = CLAIM.judge(results)
    assert (result.verdict, result.runs) == ("fails", 1)
    assert result.measured.spread is not None
    assert result.measured.spread.median == pytest.approx(1 / 8, abs=1e-6)
    assert result.beside[1].spread is not None
    assert result.beside[1].spread.median == pytest.approx(3 / 8, abs=1e-6)


def test_a_head_that_looks_for_digits_makes_it_hold(encoder: Path) -> None:
    results = edited(encoder, looking_for_digits)
    weights = attention_of_max(results, results.runs[0])
    np.testing.assert_allclose(weights[0].numpy(), 1 / 3, atol=1e-3)
    np.testing.assert_allclose(weights[1].numpy(), 1 / 8, rtol=1e-5)  # the other head is blind
    result = CLAIM.judge(results)
    assert result.verdict == "holds"
    assert reason(result).startswith("above 0.125 in 1 of 1 run")


@pytest.mark.parametrize(
    ("how", "lacking"),
    [
        (lambda data: data["settings"].update(direction="decoder"), "these models are decoders"),
        (lambda data: data["settings"].update(positions="randomized"), "training sampled its positions"),
        (lambda data: data["runs"][0].update(in_length=0.98), "the task was not learned: 98.0 %"),
        (lambda data: data["runs"][0].update(own=True), "the scheme 'none' was built by a function of your own"),
    ],
)
def test_other_models_do_not_decide(encoder: Path, how: Callable[[Any], object], lacking: str, tmp_path: Path) -> None:
    copy = shutil.copytree(encoder, tmp_path / "copy")
    result = CLAIM.judge(read_results(change(copy, how)))
    assert result.verdict == "not measured"
    assert reason(result).startswith(lacking)
