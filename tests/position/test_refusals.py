"""What positions refuse: a call, the error, and what its message says."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from tests.refusals import require_refused, short_refusals
from whatwhere.position.positions import as_positions
from whatwhere.where.base import of_queries_and_keys

NAMES = {
    "np": np,
    "torch": torch,
    "positions": ww.positions,
    "Positions": ww.Positions,
    "Where": ww.Where,
    "as_positions": as_positions,
    "of_queries_and_keys": of_queries_and_keys,
    "INDEX": torch.tensor([3, 2, 1]),
    "IDS": torch.tensor([[1, 2, 3]]),
    "IMAGE": torch.tensor([[1, 4, 4]]),
    "REAL": ww.Positions.from_coordinates(torch.tensor([0.5, -1.25, 3.0])),
    "TWO": ww.positions(2, start=torch.tensor([0, 1])),
    "EMPTY": ww.Positions.from_mask(torch.zeros(0, 3, dtype=torch.int64)),
    "PACKED": ww.Positions.packed([4, 8, 4]).index[0],
    "ZIGZAG": ww.positions(16).shard_slots(2, "zigzag"),
}
REFUSALS = """
# counts and starts
positions(True) -> PositionError: whole number
positions(np.float64(3.0)) -> PositionError: whole number
positions(None) -> PositionError: whole number
positions(np.array([3, 2])) -> PositionError: whole number
positions(3, start=2**63 - 3) -> PositionError: n=3, start=9223372036854775805 … 2**63
positions(2**70, start=1) -> PositionError: n=1180591620717411303424, start=1 … 2**63
as_positions(True) -> PositionError: given as bool
as_positions([0, 1]) -> PositionError: given as list
of_queries_and_keys(1, 9) -> PositionError: last tokens … p[-1:] … positions(1)
of_queries_and_keys(1, torch.arange(9)) -> PositionError: last tokens … p[-1:] … positions(1)
Positions.packed(3) -> PositionError: packed got 3 … pass [3]
Positions.packed(np.array([3.0, 2.0])) -> PositionError: packed
Positions.packed([np.True_, 2]) -> PositionError: packed
Positions.packed("32") -> PositionError: packed
Positions.from_position_ids(torch.tensor([0, 2**63 - 1])) ->
    PositionError: position 9223372036854775807 at (0, 0, 1) is too large
Positions.from_position_ids(torch.tensor(np.array([0, 2**63 + 5], dtype=np.uint64))) ->
    PositionError: position 9223372036854775813 at (0, 0, 1) is too large
Positions.from_position_ids(torch.tensor([0.5])) -> PositionError: positions are whole numbers
Positions.from_position_ids(torch.tensor([[0, 1, 1], [1, 1, 1]])) -> PositionError: padding mask … from_mask
Positions.from_mask(torch.tensor([[0, 2, 2]], dtype=torch.uint64)) -> PositionError: but this one has 2 at
Positions(torch.zeros(1, 1, 3), torch.arange(3)[None]) ->
    PositionError: got an index of dtype torch.float32, but needs int64, or float64
Positions(torch.zeros(1, 1, 3, dtype=torch.int32), torch.arange(3)[None]) ->
    PositionError: got an index of dtype torch.int32

# samples and coordinates
Positions.randomized(5, max_length=10**9) -> PositionError: 1,000,000,000 numbers, but at most 134,217,728
Positions.random_offset(8, 5) ->
    PositionError: random_offset(8, max_length=5) needs a whole number of tokens from 0 to max_length
Positions.random_offset(3, 5, 0) -> ShapeError: random_offset got batch=0
Positions.from_coordinates(torch.tensor([-1, 2])) -> PositionError: position -1 at (0, 0, 0) is negative
Positions.from_coordinates(torch.tensor([True])) -> PositionError: these have dtype torch.bool
Positions.from_coordinates(torch.tensor([0.0, float("nan")])) ->
    PositionError: the coordinate at (0, 0, 1) is NaN or infinite
Positions.from_coordinates(INDEX, order=torch.tensor([0, 1])) ->
    ShapeError: order has shape (2,), but needs (3) or (1, 3)
Positions.from_coordinates(INDEX, segment=torch.ones(2, 3).long()) ->
    ShapeError: segment has shape (2, 3), but needs (3) or (1, 3)
Positions.from_coordinates(INDEX, order=torch.ones(3)) -> PositionError: order needs whole numbers, but has dtype
Positions.from_coordinates(INDEX, segment=torch.tensor([0, -2, 0])) ->
    PositionError: segment -2 at (0, 1) is not a document
Positions.abacus(IDS, []) -> TokenError: abacus got digit_ids=[], but needs the ids
Positions.abacus(IDS, [1], -1) -> PositionError: got offset=-1, but needs a whole number of 0 or more
Positions.abacus(IDS, [1], torch.tensor([-3])) -> PositionError: got offset=-3, but
Positions.abacus(IDS, [1], torch.tensor([1, 2])) -> ShapeError: an offset of shape (2,)
Positions.abacus([1], [1]) ->
    ShapeError: abacus needs token ids as a tensor of (tokens) or (batch, tokens), but got list
Positions.abacus(IDS[None], [1]) -> ShapeError: but got shape (1, 1, 3)
Positions.abacus(torch.tensor([[1, -7]]), [1]) -> TokenError: id -7 at (0, 1) is negative
Positions.abacus(IDS.double(), [1]) -> TokenError: these have dtype torch.float64

# what comes next, documents and axes
positions(4).tree(torch.tensor([-1, 1])) -> PositionError: draft 1 has parent 1, but needs one before it
Positions.multimodal(torch.tensor([0]), after="frames") -> SettingError: after='frames'
positions(3).next(-1) -> PositionError: whole number of 0 or more
positions(3).next(True) -> PositionError: whole number of 0 or more
Positions.from_position_ids(torch.tensor([0, 4, 9])).next() -> PositionError: how they continue … p[t : t + 1]
Positions.abacus(torch.tensor([1, 2, 99, 3]), range(10)).next() -> PositionError: how they continue … p[t : t + 1]
Positions.from_coordinates(torch.tensor([[0, 1, 2], [0, 2, 3]])).next() ->
    PositionError: how they continue … p[t : t + 1]
Positions.grid(2, 2).next() -> PositionError: how they continue … p[t : t + 1]
REAL.next() -> PositionError: real coordinates
REAL.next_text() -> PositionError: real coordinates
REAL.append(1) -> PositionError: real coordinates
REAL.lengths() -> PositionError: real coordinates
TWO.lengths(positions(2, start=torch.tensor([0, 1, 2]))) -> ShapeError: equal batches, or 1, are needed
Positions.from_mask(torch.ones(2, 3, dtype=torch.bool)).mask(EMPTY) -> ShapeError: batch 2 and the keys' 0
Positions.grid(2, 2).on_axes("AxialRotary", 3) ->
    PositionError: AxialRotary measures along 3 axes, but these positions have 2.
Positions.grid(2, 3).single_axis("Rotary") -> PositionError: measures along one axis, but these positions have 2
Where().at(Positions.from_position_ids(PACKED[:, 8:]), Positions.from_position_ids(PACKED)) ->
    PositionError: counted by Positions
Where().at(PACKED[:, 6:8], Positions.from_position_ids(PACKED)) -> PositionError: counted by Positions
Positions.from_position_ids(PACKED).append(Positions.packed([3, 2])) -> PositionError: counted by Positions
Where().at(torch.arange(16)[ZIGZAG[0]], torch.arange(16)[ZIGZAG.flatten()]) -> PositionError: counted by Positions
positions(8).take(torch.tensor([8])) -> PositionError: outside of the sequence
positions(8).take(torch.tensor([-1])) -> PositionError: outside of the sequence
positions(8).take(torch.tensor([True])) -> PositionError: take needs the slots
positions(8).shards(3, "zigzag") -> ShapeError: multiple of 6
positions(8).shards(2, "diagonal") -> SettingError: order

# images
Positions.centered_grid(2, 2, shift=-0.1) -> SettingError: centered_grid got shift=
Positions.centered_grid(2, 2, jitter=0.5) -> SettingError: centered_grid got jitter=
Positions.centered_grid(2, 2, rescale=float("inf")) -> SettingError: centered_grid got rescale=
Positions.centered_grid(2, 2, extent=0.0) -> SettingError: centered_grid got extent=
Positions.centered_grid() -> ShapeError: centered_grid got no size
Positions.centered_grid(2, 2, prefix=-1) -> PositionError: prefix=-1
Positions.multimodal(torch.tensor([1] * 5), IMAGE) ->
    PositionError: sequence 0 has more image tokens than the image grids account for
Positions.multimodal(torch.tensor([1, 1, 1, 0]), IMAGE) ->
    PositionError: ends a run of image tokens within a grid: 1 tokens are missing
Positions.multimodal(torch.tensor([0, 0]), IMAGE) ->
    PositionError: 1 image grids are left over, without tokens of type 1
Positions.multimodal(torch.tensor([0, 3])) -> PositionError: sequence 0 has 3.
Positions.multimodal(torch.tensor([1]), torch.tensor([[1, 3, 2]])) -> PositionError: height and width divide by merge=2
Positions.multimodal(torch.tensor([0]), time_steps=[1.0]) -> PositionError: one for each of the 0 videos
Positions.multimodal(torch.tensor([1]), torch.tensor([1, 2, 2])) ->
    ShapeError: image_grids needs a tensor of whole numbers, (grids, 3)
Positions.multimodal(torch.tensor([0, 0]), mask=torch.tensor([1])) -> ShapeError: mask has shape
Positions.multimodal(torch.tensor([0, 0]), mask=torch.tensor([1, 2])) -> PositionError: a mask has 0 and 1
Positions.multimodal(torch.tensor([0]), merge=0) -> ShapeError: got merge=0
"""


@short_refusals(REFUSALS)
@pytest.mark.usefixtures("our_own_checks")
def test_what_makes_no_positions_is_refused(call: str, error: str, parts: str) -> None:
    require_refused(call, error, parts, NAMES)
