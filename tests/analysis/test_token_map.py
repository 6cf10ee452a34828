"""Maps and principal components against decompositions, and the share of neighbors against brute force."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest

from whatwhere.analysis import pca
from whatwhere.analysis.pca import principal_components
from whatwhere.analysis.token_map import group_neighbors, make_map, parse_groups
from whatwhere.errors import MissingExtra


@pytest.fixture
def table() -> np.ndarray:
    return (np.random.default_rng(0).standard_normal((400, 60)) * 0.7 ** np.arange(60)).astype(np.float32)


def kept(table: np.ndarray, coordinates: np.ndarray, k: int) -> float:
    unit = table.astype(np.float64) / np.linalg.norm(table.astype(np.float64), axis=1, keepdims=True)
    same = 0
    for row in range(len(table)):
        scores = unit @ unit[row]
        away = np.linalg.norm(coordinates - coordinates[row], axis=1)
        scores[row], away[row] = -2, np.inf
        same += len(set(np.argsort(-scores)[:k].tolist()) & set(np.argsort(away)[:k].tolist()))
    return same / k / len(table)


def test_a_map_by_principal_components(table: np.ndarray) -> None:
    result = make_map(table, k=7)
    _, singular, right = np.linalg.svd(table - table.mean(axis=0, dtype=np.float64), full_matrices=False)
    expected = (table - table.mean(axis=0, dtype=np.float64)) @ right[:2].T
    assert np.allclose(np.abs(result.coordinates), np.abs(expected), atol=1e-6)
    assert result.explained_variance_ratio == pytest.approx(tuple(singular[:2] ** 2 / (singular**2).sum()))
    assert result.kept.share == pytest.approx(kept(table, result.coordinates, 7))
    assert (result.kept.k, result.kept.queries, result.kept.chance) == (7, 400, 7 / 399)


@pytest.mark.parametrize("wide", [1000, 20])
def test_large_tables_use_their_covariance(table: np.ndarray, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = principal_components(table, 3)
    monkeypatch.setattr(pca, "_DECOMPOSED", 0)
    monkeypatch.setattr(pca, "_WIDE", wide)
    result = principal_components(table, 3)
    assert np.allclose(result.axes, whole.axes, atol=1e-4)
    assert np.allclose(result.coordinates, whole.coordinates, atol=1e-4)
    assert np.allclose(result.explained_variance_ratio, whole.explained_variance_ratio, rtol=1e-5)


def test_larger_ones_by_a_sample(table: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pca, "_DECOMPOSED", 0)
    monkeypatch.setattr(pca, "_ROWS", 300)
    result = principal_components(table, 2)
    assert result.coordinates.shape == (400, 2)
    whole = np.linalg.eigh(np.cov(table.astype(np.float64), rowvar=False))[1][:, -1]
    assert abs(result.axes[0] @ whole) > 0.97
    assert np.array_equal(result.axes, principal_components(table, 2).axes)
    assert not np.array_equal(result.axes, principal_components(table, 2, seed=1).axes)


def test_half_precision_by_its_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).integers(-30, 30, (200, 6)) * np.array([1.0, 1, 1, 1, 3, 9])
    whole = principal_components(rows)
    monkeypatch.setattr(pca, "_DECOMPOSED", 0)
    assert np.allclose(principal_components(rows.astype(np.float16)).axes, whole.axes, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "package"),
    [("tsne", "openTSNE"), pytest.param("umap", "umap", marks=pytest.mark.slow)],  # which compiles itself at first
)
def test_maps_by_neighbors_keep_more_of_them(method: str, package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    rng = np.random.default_rng(0)
    table = (10 * rng.standard_normal((12, 30))[np.arange(240) % 12] + rng.standard_normal((240, 30))).astype(
        np.float32
    )
    result = make_map(table, method)  # type: ignore[arg-type]
    assert result.coordinates.shape == (240, 2)
    assert result.explained_variance_ratio is None
    assert result.kept.share == pytest.approx(kept(table, result.coordinates, 10))
    assert result.kept.share > make_map(table).kept.share
    assert np.array_equal(result.coordinates, make_map(table, method).coordinates)  # type: ignore[arg-type]


@pytest.mark.parametrize(("method", "package", "extra"), [("tsne", "openTSNE", "map"), ("umap", "umap", "umap")])
def test_a_missing_extra_is_named(
    table: np.ndarray, method: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf'pip install "whatwhere\[{extra}\]"'):
        make_map(table, method)  # type: ignore[arg-type]


# Named sets of tokens


def test_neighbors_against_counting() -> None:
    rows = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 2.0], [-1.0, 0.0]])
    found = group_neighbors(rows, [0, 0, 1, 0, 2])
    # Cosines: 01 .8, 02 .6, 03 0, 04 -1, 12 .96, 13 .6, 14 -.8, 23 .8, 24 -.6, 34 0.
    assert found.nearest.tolist() == [1, 2, 1, 2, 3]
    assert found.cosines == pytest.approx([0.8, 0.96, 0.96, 0.8, 0.0])
    assert (found.stay, found.compared) == (1, 3)  # groups 1 and 2 have one token each
    assert found.within == pytest.approx((0.0, 0.8))
    assert found.between == pytest.approx((-1.0, 0.96))


def test_how_a_set_is_written() -> None:
    assert parse_groups("king,queen , man") == {"1": ["king", "queen", "man"]}
    assert parse_groups("a: x, #12\nb:y,;") == {"a": ["x", "#12"], "b": ["y"]}


# Principal components


def test_the_order_and_the_sign_of_the_rows_do_not_change_the_picture(table: np.ndarray) -> None:
    result, reversed_rows = principal_components(table), principal_components(table[::-1])
    np.testing.assert_allclose(reversed_rows.coordinates[::-1], result.coordinates, atol=1e-9)
    mirrored = principal_components(-table)
    np.testing.assert_allclose(mirrored.axes, result.axes, atol=1e-9)
    assert (result.axes[np.arange(2), np.abs(result.axes).argmax(axis=1)] > 0).all()


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_equal_rows_lie_at_one_point(rows: int) -> None:
    result = principal_components(np.tile([0.1, 0.2, 0.3], (rows, 1)), 2)
    assert not result.coordinates.any()
    assert not result.explained_variance_ratio.any()


@pytest.mark.parametrize("decomposed", [pca._DECOMPOSED, 0])
def test_rows_on_a_line_have_one_axis(decomposed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pca, "_DECOMPOSED", decomposed)
    result = principal_components(np.outer(np.arange(6.0), [3.0, 4.0, 0.0]), 5)
    assert result.coordinates.shape == (6, 5)
    assert result.explained_variance_ratio[0] == pytest.approx(1)
    assert not result.coordinates[:, 1:].any()
