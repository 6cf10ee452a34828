"""Principal components, against the eigenvectors of the covariance."""

import numpy as np
import pytest

from whatwhere.analysis.pca import principal_components


@pytest.fixture
def table() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(20, 64)) * np.linspace(0.1, 2.0, 64)


def test_equals_the_eigenvectors_of_the_covariance(table: np.ndarray) -> None:
    values, vectors = np.linalg.eigh(np.cov(table, rowvar=False))
    result = principal_components(table, 3)
    for axis in range(3):
        expected = vectors[:, -1 - axis]
        assert abs(result.axes[axis] @ expected) == pytest.approx(1.0, abs=1e-10)
        assert result.explained_variance_ratio[axis] == pytest.approx(values[-1 - axis] / values.sum(), abs=1e-12)
        assert result.coordinates[:, axis].var(ddof=1) == pytest.approx(values[-1 - axis], rel=1e-10)


def test_float32_tables_are_computed_in_float64(table: np.ndarray) -> None:
    single = table.astype(np.float32)
    assert np.array_equal(principal_components(single).axes, principal_components(single.astype(np.float64)).axes)


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


def test_axes_that_are_left_over_carry_nothing() -> None:
    line = np.outer(np.arange(6.0), [3.0, 4.0])
    result = principal_components(line, 5)
    assert result.coordinates.shape == (6, 5)
    assert result.explained_variance_ratio[0] == pytest.approx(1.0)
    assert not result.coordinates[:, 1:].any()
