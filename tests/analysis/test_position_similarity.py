"""Similarity against NumPy; what each door looks like by position and by distance, against its formula."""

from math import pi
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.analysis.position_similarity import by_distance, fingerprint, similarity

PLACES = np.arange(7.0)


def sampled(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def cosine(u: Tensor, v: Tensor) -> float:
    a, b = u.double().numpy(), v.double().numpy()
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


def frequencies(dim: int, theta: float = 10_000.0) -> np.ndarray:
    return np.array([theta ** (-2 * i / dim) for i in range(dim // 2)])


def test_similarity_is_the_cosine_of_all_pairs_of_rows() -> None:
    table = sampled(4, 6)
    result = similarity(table[:, None], table)
    assert (result.shape, result.dtype) == ((4, 4), torch.float64)
    expected = [[cosine(a, b) for b in table] for a in table]
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-15)
    assert similarity(table[0], table).tolist() == pytest.approx(expected[0], abs=1e-15)


def test_lengths_do_not_matter_and_rounding_never_leaves_the_range() -> None:
    u = sampled(1000, 3)
    assert similarity(1e-3 * u, 1e3 * u).min() > 1 - 1e-12
    assert similarity(u, 3 * u).max() <= 1
    assert similarity(u, -3 * u).min() >= -1
    zero = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    assert similarity(zero, torch.tensor([[1.0, 2.0], [-3.0, -4.0], [0.0, 0.0]])).tolist() == [0, -1, 0]


class Tilt(ww.QueryKeyMap):
    """Multiply queries by 2**-p and keys by 3**-p: a map that has no frequencies and tells query from key."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim

    def bind(self, positions: Any) -> tuple[Tensor, ...]:
        return (positions.single_axis("Tilt").float()[:, None, :, None],)

    def map_query(self, q: Tensor, bound: tuple[Tensor, ...]) -> Tensor:
        return q * 2 ** -bound[0]

    def map_key(self, k: Tensor, bound: tuple[Tensor, ...]) -> Tensor:
        return k * 3 ** -bound[0]


class ByContent(ww.ScoreBias):
    """A bias that cannot be drawn without queries."""

    num_heads = 2
    by_content = True

    def bind(self, queries: Any, keys: Any, **given: Any) -> Any:
        raise AssertionError("a picture has no queries to bind")


def waves(dim: int, theta: float = 10_000.0) -> np.ndarray:
    return np.outer(PLACES, frequencies(dim, theta))


LEARNED = ww.Learned(4, 7)
ROWS = LEARNED.weight.detach()
IMAGES: dict[str, tuple[ww.Where, np.ndarray, str]] = {
    "sinusoid": (
        ww.Where(ww.Sinusoidal(6)),
        np.stack([np.sin(waves(6)), np.cos(waves(6))], axis=-1).reshape(7, 6),
        "dimension",
    ),
    "learned": (ww.Where(LEARNED), ROWS.numpy(), "dimension"),
    "rotary": (ww.Where(ww.Rotary(8, theta=500.0, rotary_dim=6)), np.cos(waves(6, 500.0)), "angle"),
    "interleaved": (ww.Where(ww.Rotary(8, interleaved=True, rotary_dim=6)), np.cos(waves(6)), "angle"),
    # The second of two pairs rotates by half a circle at each step.
    "half a circle": (ww.Where(ww.Rotary(4, theta=pi**-2)), np.cos(waves(4, pi**-2)), "angle"),
    "another map": (ww.Where(query_key=Tilt(3)), np.repeat(2.0**-PLACES, 3).reshape(7, 3), "query of ones"),
    "alibi": (ww.Where(ww.ALiBi(4)), -np.outer(PLACES, [2**-2, 2**-4, 2**-6, 2**-8]), "bias"),
}
CURVES: dict[str, tuple[ww.Where, list[np.ndarray]]] = {
    # <PE(0), PE(d)> = sum_n cos(d w_n), and every row has length sqrt(dim / 2).
    "sinusoid": (ww.Where(ww.Sinusoidal(8)), [np.cos(waves(8)).mean(1)]),
    "learned": (ww.Where(LEARNED), [np.array([cosine(ROWS[0], row) for row in ROWS])]),
    "rotary": (ww.Where(ww.Rotary(8, rotary_dim=6)), [(2 * np.cos(waves(6)).sum(1) + 2) / 8]),
    "interleaved": (ww.Where(ww.Rotary(8, interleaved=True, rotary_dim=6)), [(2 * np.cos(waves(6)).sum(1) + 2) / 8]),
    "a query after its key": (ww.Where(query_key=Tilt(4)), [2.0**-PLACES]),
    "alibi": (ww.Where(ww.ALiBi(2)), [-PLACES / 16, -PLACES / 256]),
}


@pytest.mark.parametrize("name", IMAGES)
def test_the_fingerprint_is_the_formula(name: str) -> None:
    where, expected, label = IMAGES[name]
    result = fingerprint(where, 7)
    assert label in result.label
    assert not result.values.requires_grad
    np.testing.assert_allclose(result.values.numpy(), expected, atol=1e-7)


@pytest.mark.parametrize("name", CURVES)
def test_by_distance_is_the_formula(name: str) -> None:
    where, expected = CURVES[name]
    result = by_distance(where, 7)
    np.testing.assert_allclose(np.stack([curve.numpy() for curve in result.curves.values()]), expected, atol=1e-6)


@pytest.mark.parametrize("where", [ww.Where(), ww.Where(score=ByContent())], ids=["none", "by content"])
def test_schemes_without_a_picture_are_none(where: ww.Where) -> None:
    assert fingerprint(where, 5) is None
    assert by_distance(where, 5) is None


def test_a_mixture_shows_the_first_of_its_doors() -> None:
    mixed = ww.scheme("sinusoidal+rotary+alibi", dim=8, num_heads=2, max_length=4)
    alone = ww.scheme("sinusoidal", dim=8, num_heads=2, max_length=4)
    ours, theirs = fingerprint(mixed, 4), fingerprint(alone, 4)
    assert torch.equal(ours.values, theirs.values)
    rotated = fingerprint(ww.scheme("rotary+alibi", dim=8, num_heads=2, max_length=4), 4)
    assert rotated.values[3, 0].item() == pytest.approx(np.cos(3.0))
    assert rotated.values.shape == (4, 2)


@pytest.mark.parametrize("name", ["pope", "fope", "ssmax", "temperature"])
def test_maps_with_parameters_for_each_head_have_a_picture_too(name):
    where = ww.scheme(name, dim=16, num_heads=4, max_length=12)
    seen, curves = fingerprint(where, 12), by_distance(where, 12)
    assert seen.label == "a query of ones, mapped"
    ones = torch.ones(1, 4, 12, 4)
    expected = where.query_key(ones, ones, ww.positions(12))[0][0, 0].detach()
    assert torch.equal(seen.values, expected)
    (curve,) = curves.curves.values()
    assert curve.shape == (12,)
    assert not curve.requires_grad
    assert curve.std() > 0
