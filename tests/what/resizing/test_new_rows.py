"""Rows of a new table: what stays stays to the bit, what is drawn is drawn as said."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.refusals import require_refused, short_refusals
from whatwhere.what.resizing import Rearrangement, pursue

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]


def table(rows: int = 50, dim: int = 6, dtype: torch.dtype = torch.float32) -> Tensor:
    """Sample rows with a mean, unequal spreads and correlated features."""
    mix = torch.randn(dim, dim, generator=torch.Generator().manual_seed(1))
    normal = torch.randn(rows, dim, generator=torch.Generator().manual_seed(2))
    return (normal @ mix + torch.arange(dim)).to(dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_old_rows_are_moved_to_the_bit(dtype: torch.dtype) -> None:
    """Also NaN with a payload, which arithmetic would lose."""
    old = table(dtype=dtype)
    bits = old.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[old.element_size()])
    bits[7] = -1  # a NaN in each of these types
    source = np.array([7, 3, -1, 49, 3])
    new = Rearrangement(source, rows=50).apply(old)
    assert new.dtype == dtype
    moved = new.view(bits.dtype)
    assert torch.equal(moved[[0, 1, 3, 4]], bits[[7, 3, 49, 3]])
    mean = np.delete(old.double().numpy(), 7, axis=0).mean(0)
    assert torch.equal(new[2].double(), torch.from_numpy(mean).to(dtype).double())


def test_noise_has_the_spread_of_each_feature_and_covariance_all_of_it() -> None:
    old = table()
    exact = old.double().numpy()
    change = {name: Rearrangement.enlarged(50, 40_050, draw=name) for name in ("noise", "covariance")}  # type: ignore[arg-type]
    result = {name: one.apply(old.double())[50:].numpy() for name, one in change.items()}
    covariance = np.cov(exact.T, bias=True)
    for rows in result.values():
        assert np.abs(rows.mean(0) - exact.mean(0)).max() < 5 * np.sqrt(covariance.diagonal().max() / 40_000)
        assert rows.std(0) == pytest.approx(exact.std(0), rel=0.02)
    scale = np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))
    assert np.abs((np.cov(result["covariance"].T, bias=True) - covariance) / scale).max() < 0.03
    off = ~np.eye(6, dtype=bool)
    assert np.abs((np.cov(result["noise"].T, bias=True) / scale)[off]).max() < 0.03
    assert np.abs((covariance / scale)[off]).max() > 0.3  # so that the two differ


def test_samples_depend_on_the_seed_and_exclude_padding() -> None:
    old = table()
    one, same = (Rearrangement.enlarged(50, 53, draw="noise", seed=3).apply(old) for _ in range(2))
    other = Rearrangement.enlarged(50, 53, draw="noise", seed=4).apply(old)
    assert torch.equal(one, same)
    assert not torch.equal(one[50:], other[50:])
    old[40:] = 1000
    new = Rearrangement.enlarged(50, 51, known=40).apply(old)
    assert torch.allclose(new[50], old[:40].mean(0), atol=1e-5)


def test_pieces_are_averaged_also_over_rows_that_were_there() -> None:
    old = table()
    new = Rearrangement.enlarged(50, 52, pieces={49: [1, 2], 51: [3, 3, 5]}).apply(old)
    right = old.double()
    assert torch.equal(new[49], ((right[1] + right[2]) / 2).float())
    assert torch.allclose(new[51], ((2 * right[3] + right[5]) / 3).float(), rtol=0, atol=1e-6)
    assert torch.equal(new[:49], old[:49])
    assert torch.allclose(new[50], old.mean(0), atol=1e-5)


def test_moments_of_new_rows_are_zero_and_biases_are_tables_of_one_column() -> None:
    change = Rearrangement(np.array([2, -1, 0]), rows=3, draw="noise")
    moments = torch.arange(6.0).reshape(3, 2)
    assert change.carry(moments).tolist() == [[4, 5], [0, 0], [0, 1]]
    bias = change.apply(torch.tensor([1.0, 2.0, 3.0]))
    assert bias.shape == (3,)
    assert bias[[0, 2]].tolist() == [3, 1]


# Orthogonal matching pursuit


def plain_pursuit(atoms: np.ndarray, target: np.ndarray, most: int) -> tuple[list[int], np.ndarray]:
    chosen: list[int] = []
    rest, solved = target, np.zeros(0)
    for _ in range(most):
        scores = np.abs(atoms @ rest) / np.linalg.norm(atoms, axis=1)
        scores[chosen] = -1
        chosen.append(int(scores.argmax()))
        solved = np.linalg.lstsq(atoms[chosen].T, target, rcond=None)[0]
        rest = target - atoms[chosen].T @ solved
    return chosen, solved


def test_pursuit_is_greedy_choice_and_least_squares() -> None:
    atoms, targets = table(200, 24).double().numpy(), table(24, 30).T.double().numpy().copy()
    ids, coefficients = pursue(torch.from_numpy(atoms), torch.from_numpy(targets), most=7)
    for target, result, weights in zip(targets, ids.tolist(), coefficients.numpy(), strict=True):
        right, solved = plain_pursuit(atoms, target, 7)
        assert result == right
        assert weights == pytest.approx(solved, rel=1e-5, abs=1e-7)


def test_pursuit_finds_a_sparse_sum_and_then_stops() -> None:
    atoms = torch.linalg.qr(table(40, 40).double())[0]
    target = 3 * atoms[5] - 0.5 * atoms[17]
    ids, coefficients = pursue(atoms, torch.stack([target, atoms[2] * 0]), most=5)
    assert ids[0, :2].tolist() == [5, 17]
    assert coefficients[0].numpy() == pytest.approx([3, -0.5, 0, 0, 0], abs=1e-6)
    assert coefficients[1].tolist() == [0] * 5
    twice = torch.cat([atoms[:1], atoms[:1]])  # an atom in the span of another
    assert pursue(twice, atoms[:1] * 2, most=2)[1][0].numpy() == pytest.approx([2, 0])
    assert pursue(table(), table()[:0], most=3)[0].shape == (0, 3)


@short_refusals(
    r"""
Rearrangement(np.array([5]), rows=5) -> TokenError: a row refers to id 5
Rearrangement(np.array([-2]), rows=5) -> TokenError: refers to id -2
Rearrangement.kept(5, [1, 1]) -> TokenError: contain one twice
Rearrangement.kept(5, [-1]) -> TokenError: id -1 is outside
Rearrangement.kept(5, []) -> TokenError: at least one
Rearrangement.enlarged(5, 6, pieces={6: [1]}) -> TokenError: row 6
Rearrangement.enlarged(5, 6, pieces={5: [7]}) -> TokenError: a mixture refers to id 7
Rearrangement.enlarged(5, 6, draw="subtokens") -> SettingError: knows only: mean, noise, covariance
Rearrangement.enlarged(5, 0) -> ShapeError: vocab_size=0
Rearrangement.enlarged(5, 6).apply(table()) -> ShapeError: a table of 5 rows
Rearrangement.enlarged(50, 51).apply(table() * float("nan")) -> ShapeError: none that is finite
pursue(table(), table(), most=0) -> ShapeError: most=0
pursue(table(5, 4), table(5, 3)) -> ShapeError: atoms have shape
"""
)
@pytest.mark.usefixtures("our_own_checks")
def test_bad_changes_are_refused(call: str, error: str, parts: str) -> None:
    require_refused(call, error, parts, globals())
