"""Positions: the loaded table and schemes of the catalogue, beside plain NumPy and the reference."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import whatwhere as ww
from whatwhere.records import Missing
from whatwhere.studio.api import positions as api
from whatwhere.studio.session import Session

from .conftest import csv_rows


@pytest.fixture(scope="module")
def position_table(minilm: Path) -> np.ndarray:
    return load_file(minilm / "model.safetensors")["embeddings.position_embeddings.weight"].astype(np.float64)


def cosines(rows: np.ndarray) -> np.ndarray:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(unit @ unit.T)


def test_the_loaded_table_is_seen_as_it_stands(real: Session, position_table: np.ndarray) -> None:
    result = api.positions(real, {"scheme": "model", "rows": 2048})
    seen = result.vectors
    assert (result.rows, result.door) == (512, "input")
    np.testing.assert_array_equal(result.fingerprint.values, position_table.astype(np.float32))
    assert seen.compared.tolist() == list(range(0, 512, 2))
    np.testing.assert_allclose(seen.cosines, cosines(position_table[::2]), atol=1e-6)
    np.testing.assert_allclose(seen.norms, np.linalg.norm(position_table, axis=1))
    assert seen.outliers.tolist() == [0, 127, 510, 511]
    means = [np.diagonal(cosines(position_table), distance).mean() for distance in (0, 1, 16, 511)]
    np.testing.assert_allclose(seen.by_distance[[0, 1, 16, 511]], means, atol=1e-9)
    np.testing.assert_allclose(result.by_distance.curves["from position 0"], cosines(position_table)[0], atol=1e-6)


def test_the_path_keeps_distances_as_well_as_three_axes_can(real: Session, position_table: np.ndarray) -> None:
    seen = api.positions(real, {"scheme": "model", "rows": 512}).vectors
    _, sizes, axes = np.linalg.svd(position_table - position_table.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(seen.variance_explained, (sizes**2 / (sizes**2).sum())[:3])
    np.testing.assert_allclose(
        np.abs(seen.path), np.abs((position_table - position_table.mean(axis=0)) @ axes[:3].T), atol=1e-9
    )


def test_the_sinusoid_is_the_reference(fresh: Session) -> None:
    result = api.positions(fresh, {"scheme": "sinusoidal", "rows": 40, "dim": 16})
    assert result.vectors.outliers.tolist() == []
    assert (result.rows, result.vectors.trained) == (40, 40)
    np.testing.assert_allclose(result.wavelengths, 2 * np.pi * 10_000.0 ** (np.arange(0, 16, 2) / 16), rtol=1e-12)


def test_each_door_of_a_mixture_can_be_shown(fresh: Session) -> None:
    settings = {"scheme": "sinusoidal+rotary+alibi", "rows": 8, "dim": 16, "heads": 2}
    rotated = api.positions(fresh, settings | {"door": "query_key"})
    angles = np.outer(np.arange(8), 10_000.0 ** (-np.arange(0, 8, 2) / 8))
    np.testing.assert_allclose(rotated.fingerprint.values, np.cos(angles), atol=1e-6)
    near = np.cos(angles[:, None] - angles[None]).mean(-1)  # a query of ones, rotated
    np.testing.assert_allclose(rotated.vectors.cosines, near, atol=1e-6)
    added = api.positions(fresh, settings | {"door": "score"})
    assert added.vectors is None
    np.testing.assert_array_equal(added.fingerprint.values, [[-d / 16, -d / 256] for d in range(8)])


@pytest.mark.parametrize("name", ww.catalogue)
def test_every_scheme_has_an_answer(fresh: Session, name: str) -> None:
    result = api.positions(fresh, {"scheme": name, "rows": 12, "dim": 24, "heads": 2})
    content = name in ("none", "fox", "cope", "shaw", "transformer-xl", "deberta", "inkling", "sam")
    content = content or name in ("carope", "selective-rope")
    assert (result.fingerprint is None) == (result.by_distance is None) == content
    assert result.door == ww.catalogue[name].door


def test_runs_show_what_they_learned(results: Path) -> None:
    result = api.positions(Session.open(results), {"scheme": "learned-0", "rows": 128})
    assert (result.trained, result.notes) == (8, ["trained with up to 8 tokens"])
    saved = load_file(results / "models" / "learned-0.safetensors")["input.where.input.weight"]
    assert result.rows == len(saved)
    np.testing.assert_array_equal(result.fingerprint.values, saved)


def test_a_table_that_is_not_finite_says_where(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    table = np.ones((6, 4), np.float32)
    table[3, 1] = np.nan
    save_file({"wte.weight": np.ones((9, 4), np.float32), "wpe.weight": table}, tmp_path / "model.safetensors")
    result = api.positions(Session.open(tmp_path / "model.safetensors"), {"scheme": "model"})
    assert result.vectors == Missing("1 rows hold numbers that are not finite, the first at position 3")
    assert result.fingerprint.values[3, 1].isnan()


def test_the_page_draws_what_the_api_answers(look: Callable[..., dict[str, Any]], real: Session) -> None:
    result = look(real, "positions.mjs")
    seen = api.positions(real, {"scheme": "model", "rows": 64}).vectors
    assert result["figures"] == [
        "The fingerprint of each position", "Single features by position", "Cosine of each pair of positions",
        "The path of the positions",
        "By distance", "The norm of each position's vector",
    ]  # fmt: skip
    rows = csv_rows(result["csv"])
    paths = [[float(row[f"component {axis}"]) for axis in (1, 2, 3)] for row in rows]
    np.testing.assert_allclose(paths, seen.path, rtol=1e-12)
    assert result["svg"].count("<line") > 62
    assert result["path"].endswith("Not drawn are positions unlike the others: 0."), "which would take all the width"
    assert "Outlier: 0" in result["note"]
    assert "axes=2%2C3" in result["address"]
    columns = csv_rows(result["columns"])
    table = api.positions(real, {"scheme": "model", "rows": 64}).fingerprint.values
    for feature in range(4, 8):
        np.testing.assert_array_equal([float(row[f"feature {feature}"]) for row in columns], table[:, feature])
    # A sinusoid ends at 1, and so do its colors; beside it are its wavelengths.
    assert result["bar"].split() == ["−1", "1"]
    assert "Wavelength of each pair of features" in result["sinusoid"]
    assert result["content"].startswith("This scheme depends on queries and keys.")
