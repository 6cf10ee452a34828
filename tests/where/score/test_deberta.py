"""DeBERTa: content meets position, position meets content."""

import math

import pytest
import torch

import whatwhere as ww
from whatwhere import reference

BOTH, C2P, P2C = ("c2p", "p2c"), ("c2p",), ("p2c",)
SETTINGS = [(4, None), (9, 6), (4, 4), (20, 8), (512, 256)]  # max_distance, position_buckets


@pytest.mark.parametrize(("max_distance", "position_buckets"), SETTINGS)
def test_rows_are_those_of_the_reference(max_distance, position_buckets):
    rows = ww.DeBERTa(1, 1, max_distance, position_buckets).rows(torch.arange(-700, 701)).tolist()
    side, shared = (max_distance, None) if position_buckets is None else (position_buckets, max_distance)
    assert rows == [reference.deberta_row(n, side, shared) for n in range(-700, 701)]
    assert sorted(rows) == rows
    assert (rows[0], rows[700], rows[-1]) == (0, side, 2 * side - 1)


def test_the_scale_counts_the_terms():
    assert ww.DeBERTa(16, 2, 4).scale == pytest.approx(1 / math.sqrt(3 * 16))
    for terms in (C2P, P2C, "c2p"):
        assert ww.DeBERTa(16, 2, 4, terms=terms).scale == pytest.approx(1 / math.sqrt(2 * 16))


def test_an_edge_that_is_a_whole_distance_is_not_missed():
    """9 (16 / 9) ** (4 / 8) is 12, so 12 is the last distance of row 9 + 4; in float32 it comes to the next."""
    assert int(ww.DeBERTa(1, 1, max_distance=17, position_buckets=18).rows(torch.tensor(12))) - 18 == 13
    assert float((torch.tensor(12 / 9).log() / torch.tensor(16 / 9).log() * 8).ceil()) == 5


def test_the_catalogue_has_a_row_for_each_trained_distance():
    scheme = ww.scheme("deberta", dim=16, num_heads=2, max_length=9).score
    assert (scheme.max_distance, scheme.position_buckets) == (9, None)
    assert scheme.rows(torch.arange(9)).unique().numel() == 9
