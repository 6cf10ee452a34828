"""Positions that are sampled at random, or given by the task."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import whatwhere as ww


@given(n=st.integers(0, 20), spare=st.integers(0, 50), batch=st.integers(1, 4), seed=st.integers(0, 1000))
def test_a_random_offset_is_one_start_for_each_sequence(n, spare, batch, seed):
    max_length = max(1, n + spare)
    p = ww.Positions.random_offset(n, max_length, batch, torch.Generator().manual_seed(seed))
    assert p.index.shape == (1, batch, n)
    assert (p.index.diff() == 1).all()
    assert ((p.index >= 0) & (p.index < max_length)).all()
    assert torch.equal(p.order, p.index[0])
    assert (p.run, p.segment, p.max_length) == (True, None, max_length)


def test_random_offsets_are_uniform_over_all_that_fit():
    p = ww.Positions.random_offset(3, max_length=7, batch=5000, generator=torch.Generator().manual_seed(0))
    counts = p.index[0, :, 0].bincount()
    assert len(counts) == 5
    # 1,000 expected, with a deviation of 28.
    assert (counts - 1000).abs().max() < 120
    again = ww.Positions.random_offset(3, max_length=7, batch=5000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.index, p.index)


def test_coordinates_of_a_task_repeat_and_fall_in_one_document():
    """`from_position_ids` would begin a document at each fall, and hide what stands before it."""
    index = torch.tensor([[3, 2, 1, 0, 3, 2, 1], [2, 1, 0, 2, 1, 0, 0]])
    p = ww.Positions.from_coordinates(index)
    assert torch.equal(p.index[0], index)
    assert p.order.tolist() == [list(range(7))] * 2
    assert (p.run, p.segment, p.max_length) == (True, None, 4)
    assert torch.equal(p.mask()[0, 0], torch.ones(7, 7).tril().bool())
    assert ww.Positions.from_position_ids(index).segment is not None


def test_from_coordinates_takes_axes_order_and_segment():
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    padded = ww.Positions.from_mask(mask)
    p = ww.Positions.from_coordinates(torch.tensor([[0, 0, 5, 5], [5, 4, 4, 5]]), padded.order, padded.segment)
    assert torch.equal(p.mask(), padded.mask())
    assert not p.run
    backwards = ww.Positions.from_coordinates(torch.zeros(3, dtype=torch.int64), order=torch.tensor([2, 1, 0]))
    assert torch.equal(backwards.mask()[0, 0], torch.ones(3, 3).triu().bool())
    assert ww.Positions.from_coordinates(torch.zeros(3, 2, 4, dtype=torch.int32)).axes == 3


NUMBERS = torch.tensor(
    [
        [7, 0, 5, 99, 3, 1, 98, 0],  # 705+31=0
        [99, 99, 1, 2, 3, 4, 5, 6],
        [1, 99, 2, 99, 3, 99, 99, 99],
    ]
)
COUNTS = torch.tensor([[1, 2, 3, 0, 1, 2, 0, 1], [0, 0, 1, 2, 3, 4, 5, 6], [1, 0, 1, 0, 1, 0, 0, 0]])


@pytest.mark.parametrize("digits", [range(10), list(range(10)), torch.arange(10)], ids=["range", "list", "tensor"])
def test_abacus_counts_the_digits_of_each_number(digits):
    p = ww.Positions.abacus(NUMBERS, digits)
    assert torch.equal(p.index[0], COUNTS)
    assert torch.equal(ww.Positions.abacus(NUMBERS[0], digits).index[0], COUNTS[:1])
    assert (p.run, p.segment, p.max_length) == (True, None, 7)


@pytest.mark.parametrize("offset", [20, torch.tensor([20, 20, 20])], ids=["number", "each"])
def test_an_offset_moves_digits_only(offset):
    moved = ww.Positions.abacus(NUMBERS, range(10), offset).index[0]
    assert torch.equal(moved, torch.where(COUNTS > 0, COUNTS + 20, 0))


def test_each_sequence_has_its_own_offset():
    moved = ww.Positions.abacus(NUMBERS, range(10), torch.tensor([0, 5, 90])).index[0]
    assert torch.equal(moved[0], COUNTS[0])
    assert moved[1:].amax(-1).tolist() == [11, 91]


def test_abacus_positions_are_rows_of_a_table():
    """As McLeish et al. use them; beyond the table there is an error, and not the row of another digit."""
    table = ww.Learned(4, 7)
    assert torch.equal(table(ww.Positions.abacus(NUMBERS, range(10)))[0], table.weight[COUNTS[0]])
    with pytest.raises(ww.errors.PositionError, match="position 7 is beyond"):
        table(ww.Positions.abacus(NUMBERS, range(10), offset=1))
