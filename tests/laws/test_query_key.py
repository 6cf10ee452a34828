"""Laws 10 and 11, of the query-key door."""

import pytest
import torch

import whatwhere as ww

from . import laws
from .cases import each
from .model import HEAD_DIM, draw


def by_position(case):
    """It maps queries and keys by their positions alone."""
    return case.row.door == "query_key" and not case.by_content


@each(lambda case: by_position(case) and case.row.relative)
@pytest.mark.parametrize("shift", [1, 1_000_000])
def test_law_10_logits_do_not_move(shift, case):
    p, moved = ww.positions(12), ww.positions(12, start=min(shift, case.row.tested_up_to - 12))
    laws.logits_unmoved(case.build().query_key, p, moved, case.regime)


@each(lambda case: by_position(case) and case.row.relative and case.axes > 1)
@pytest.mark.parametrize("shift", [1, 1_000_000])
def test_law_10_logits_do_not_move_along_any_axis(shift, case):
    index = torch.arange(12 * case.axes).reshape(case.axes, 1, 12) % 7
    for axis in range(case.axes):
        moved = index.clone()
        moved[axis] += shift
        laws.logits_unmoved(case.build().query_key, *map(ww.Positions.from_position_ids, (index, moved)), case.regime)


@each(by_position)
def test_law_10_logits_see_the_distance(case):
    """The law alone would also hold for a map that does nothing."""
    query_key = case.build().query_key
    near, far = (
        laws.logits(query_key, ww.Positions.from_position_ids(torch.tensor([0, d])), case.regime) for d in (1, 2)
    )
    assert (near - far)[..., 1, 0].abs().max() > 1e-2


@each(lambda case: by_position(case) and case.row.keeps_norms)
@pytest.mark.parametrize("start", [0, 1_000_000])
def test_law_11_norms_stay(start, case):
    p = ww.positions(12, start=min(start, case.row.tested_up_to - 12))
    laws.norms_kept(case.build().query_key, p, case.regime)


@pytest.mark.every_nth(7)
@each(by_position)
@pytest.mark.parametrize("queries", [ww.positions(3, start=6), ww.positions(9, start=20)], ids=["fewer", "as many"])
def test_keys_at_other_positions(queries, case):
    """All keys handed over at once stand where the keys do, not where the queries do."""
    where, keys = case.build(), ww.positions(9)
    q, k = draw(2, 4, queries.tokens, HEAD_DIM, seed=0), draw(2, 2, 9, HEAD_DIM, seed=1)
    bound = where.at(queries, keys, regime_length=case.regime).query_key(q, k)
    others, regime = draw(2, 4, 9, HEAD_DIM, seed=2), {"regime_length": case.regime}
    apart = where.query_key(q, q, queries, **regime)[0], where.query_key(others, k, keys, **regime)[1]
    laws.require_equal(list(bound), list(apart))
    elsewhere = ww.positions(queries.tokens, start=53), ww.positions(9, start=53)
    moved = where.query_key(q, q, elsewhere[0])[0], where.query_key(others, k, elsewhere[1])[1]
    assert max((a - b).abs().max() for a, b in zip(apart, moved, strict=True)) > 1e-2


@each(by_position)
def test_in_place_is_the_same_map(case):
    """Maps that turn pairs of features write over queries and keys; the others refuse, and touch nothing."""
    query_key, p = case.build().query_key, ww.Positions.packed([4, 5])
    given = draw(2, 4, 9, HEAD_DIM, seed=0), draw(2, 2, 9, HEAD_DIM, seed=1)
    wanted = query_key(*given, p, regime_length=case.regime)
    mine = [x.clone() for x in given]
    if type(query_key) in (ww.Rotary, ww.LearnedRotary, ww.MixedRotary, ww.AxialRotary, ww.MultimodalRotary, ww.XPos):
        result = query_key(*mine, p, regime_length=case.regime, in_place=True)
        laws.require_equal(list(result), list(wanted))
        assert all(x is y for x, y in zip(result, mine, strict=True))
    else:
        with pytest.raises(ww.errors.SettingError, match="cannot write its results over q and k"):
            query_key(*mine, p, regime_length=case.regime, in_place=True)
        laws.require_equal(mine, list(given))
