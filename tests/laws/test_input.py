"""Laws 8 and 9, of the input door."""

import pytest
import torch

import whatwhere as ww

from . import laws
from .cases import MAX_LENGTH, each


@each(lambda case: case.row.door == "input")
def test_law_8_permuting_positions_permutes_rows(case):
    longest = case.row.tested_up_to if case.row.any_length else MAX_LENGTH
    index = torch.tensor([0, 1, 2, 3, 5, 8, 13, 21, 34, 55, longest - 1])
    encoding = case.build().input
    product = case.row.learned and case.row.any_length  # not a table
    apart = 2**-20 * encoding(index).abs().max().item() if product else 0.0
    laws.permuting_positions_permutes_rows(encoding, index, apart)


@each(lambda case: isinstance(case.build().input, ww.Sinusoidal | ww.AxialSinusoidal) and case.row.door == "input")
@pytest.mark.parametrize("distance", [1, 17, 400])
def test_law_9_inner_product_is_of_distance(distance, case):
    starts = [0, 1, 123, 45_678, case.row.tested_up_to - 1 - distance]
    laws.inner_product_is_of_distance(case.build().input, distance, starts)
