"""How a table fills its space; what is the token's and what the position's; what training made of positions."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from whatwhere.analysis import pca as module
from whatwhere.analysis.added_positions import trained_positions, variance_split
from whatwhere.analysis.pca import spectrum
from whatwhere.where.frequencies import sinusoid


def test_the_spectrum_is_that_of_the_singular_values() -> None:
    table = np.random.default_rng(0).standard_normal((500, 12)) * np.arange(1, 13) + 1.0
    result = spectrum(table)
    singular = np.linalg.svd(table - table.mean(0), compute_uv=False) ** 2
    assert np.allclose(result.explained_variance_ratio, singular / singular.sum())
    assert result.participation_ratio == pytest.approx(singular.sum() ** 2 / (singular**2).sum())
    assert result.axes_for_90 == next(n for n in range(1, 13) if singular[:n].sum() >= 0.9 * singular.sum())
    units = table / np.linalg.norm(table, axis=1, keepdims=True)
    pairs = units @ units.T
    assert result.mean_cosine == pytest.approx((pairs.sum() - 500) / (500 * 499))


def test_the_largest_axes_of_a_wide_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(0).standard_normal((400, 80)) * 0.8 ** np.arange(80)
    whole = spectrum(table)
    monkeypatch.setattr(module, "_WIDE", 64)
    part = spectrum(table)
    assert part.axes_for_90 is None
    assert np.allclose(part.explained_variance_ratio, whole.explained_variance_ratio[:32], rtol=1e-3)
    assert part.participation_ratio == pytest.approx(whole.participation_ratio)


def test_large_tables_are_sampled_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS", 2000)
    table = np.random.default_rng(0).standard_normal((20_000, 8)) * np.arange(1, 9)
    result = spectrum(table)
    assert result.rows == 2000
    assert np.allclose(result.explained_variance_ratio, np.arange(8, 0, -1) ** 2 / 204, atol=0.03)


def test_shares_are_those_of_a_two_way_analysis_of_variance() -> None:
    g = np.random.default_rng(0)
    tokens, positions = g.standard_normal((30, 16)), 0.5 * g.standard_normal((20, 16))
    gain, shift, added = g.uniform(0.5, 2, 16), g.standard_normal(16), g.standard_normal(16)
    x = tokens[:, None] + positions[None] + added
    x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) * gain + shift
    x -= x.mean((0, 1))
    what, where = x.mean(1, keepdims=True), x.mean(0, keepdims=True)
    total = (x**2).sum()
    result = variance_split(tokens, positions, gain=gain, shift=shift, added=added)
    assert result.token == pytest.approx(20 * (what**2).sum() / total)
    assert result.position == pytest.approx(30 * (where**2).sum() / total)
    assert result.interaction == pytest.approx(((x - what - where) ** 2).sum() / total)


def test_without_normalization_nothing_interacts() -> None:
    g = np.random.default_rng(0)
    result = variance_split(g.standard_normal((50, 8)), g.standard_normal((40, 8)), normalize=False, scale=2.0)
    assert result.interaction == pytest.approx(0, abs=1e-12)
    assert result.token == pytest.approx(0.8, abs=0.05)


def test_one_map_shifts_sinusoids_and_no_map_shifts_noise() -> None:
    result = trained_positions(sinusoid(__import__("torch").arange(400), 32).double().numpy())
    assert result.shift > 0.999
    noise = trained_positions(np.random.default_rng(0).standard_normal((400, 32)))
    assert noise.shift < 0.1


def smooth(rows: int, dim: int = 64) -> np.ndarray:
    """Return positions that resemble their neighbors, about a mean row as long as they are far from it."""
    angles = np.arange(rows)[:, None] * 0.3 ** (np.arange(1, dim // 2 + 1) / 8)
    noise = 0.2 * np.random.default_rng(0).standard_normal((rows, dim))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) + noise + 0.7


@pytest.mark.parametrize(
    "planted",
    [
        lambda g, rows: 0.02 * g.standard_normal(rows.shape),
        lambda g, rows: rows / 50,
        lambda g, rows: rows / 1e4,
        lambda g, rows: rows * 0,
        lambda g, rows: 1.4 * rows,
        lambda g, rows: 0.7 + 0.01 * g.standard_normal(rows.shape),  # the mean row
        lambda g, rows: g.permuted(rows, axis=1),  # norm and distance as before, but unlike the neighbors
    ],
)
def test_positions_unlike_the_others_are_found(planted: Callable[..., np.ndarray]) -> None:
    rows, which = smooth(512), np.r_[90:120, 127, 300, 511]
    assert trained_positions(rows).outliers.tolist() == []
    rows[which] = planted(np.random.default_rng(1), rows[which])
    assert trained_positions(rows).outliers.tolist() == which.tolist()


@pytest.mark.parametrize("rows", [2, 3, 10, 64, 1000])
@pytest.mark.parametrize("dim", [2, 8, 384])
def test_no_position_of_a_sound_table_is_an_outlier(rows: int, dim: int) -> None:
    g = np.random.default_rng(rows)
    angles = np.arange(rows)[:, None] * 100.0 ** (-np.arange(dim // 2) / dim)
    sinusoid = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    falling = sinusoid * np.linspace(3, 1, rows)[:, None]
    for table in (g.standard_normal((rows, dim)), sinusoid, falling):
        assert trained_positions(table).outliers.tolist() == []


def test_positions_that_training_never_saw_are_no_outliers_each() -> None:
    rows = smooth(400)
    rows[300:] = 0.02 * np.random.default_rng(1).standard_normal((100, 64))
    result = trained_positions(rows)
    assert (result.trained, result.outliers.tolist()) == (300, [])


@pytest.mark.parametrize("odd", [[127], [125, 126, 127]])
def test_few_odd_rows_at_the_end_are_outliers(odd: list[int]) -> None:
    """Where all others resemble their neighbors alike, one that does not is not an end of training."""
    angles = np.arange(128)[:, None] * np.array([[0.01, 0.02, 0.05, 0.1, 0.2, 0.3]])
    rows = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    rows[odd] = 1.4 * np.roll(rows[odd], 3, axis=1) * np.array([[1], [-1], [1]])[: len(odd)]
    result = trained_positions(rows)
    assert (result.trained, result.outliers.tolist()) == (128, odd)


def test_the_last_position_of_truncated_texts_in_a_real_model_is_found(minilm: Path) -> None:
    """Position 127, which truncation gave to [SEP], with a norm of 1.44 of the median, which is less than half more."""
    with safe_open(minilm / "model.safetensors", "numpy") as file:
        rows = file.get_tensor("embeddings.position_embeddings.weight").astype(np.float64)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    result = trained_positions(rows)
    assert result.outliers.tolist() == [0, 127, 510, 511]
    assert result.neighbor_cosine[127] == pytest.approx(max(units[127] @ units[126], units[127] @ units[128]))
