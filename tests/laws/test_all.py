"""Laws 1 to 7, which hold for every scheme at every door."""

import pytest
import torch

import whatwhere as ww

from . import laws
from .cases import ALL_ROWS, DIM, LEFT, MAX_LENGTH, OPTIONS, Case, each, fixed, positional, variants, varied
from .model import Cache, Model, attend, draw, model, random_ids

LENGTHS = (5, 6, 9, 13, 31)
COMPILED = ("learned", "sinusoidal", "rotary", "rotary-dynamic-ntk", "alibi", "t5", "fox", "learned+rotary+alibi")
"""Schemes whose models are compiled in each run: of every door, with a length of their own, and with gates."""


class OneBinding:
    """Stand in for a Where, and give the same Here every time."""

    def __init__(self, here):
        self.here = here

    def at(self, p, regime_length=None):
        return self.here


@each(fixed, slow=varied)
@pytest.mark.parametrize("start", [0, 100_000])
@pytest.mark.parametrize("law", [laws.unchanged_by_bfloat16, laws.unchanged_by_autocast])
def test_law_1_conversions(law, start, case):
    law(case.build(), ww.positions(9, start=min(start, case.row.tested_up_to - 9)))


@each(positional, slow=varied)
def test_law_1_who_called_before(case):
    laws.unchanged_by_callers(case.build, ww.positions(9, start=2), case.row.tested_up_to)


@each(slow=varied)
def test_law_1_layers_of_other_dtypes_and_engines(case):
    """One Here is shared by layers: what one layer asks for must not reach the next."""
    where, p = case.build(), ww.Positions.packed([3, 4])
    here = where.at(p)
    shared, expected = OneBinding(here), attend(where, p)
    if not case.row.learned:
        attend(shared, p, dtype=torch.bfloat16)
    if not case.causal_only:
        attend(shared, p, causal=False)
    attend(shared, p, mask=torch.eye(7, dtype=torch.bool)[None, None])
    laws.require_equal([attend(shared, p)], [expected])


@pytest.mark.compile
@each(lambda case: not case.options, slow=lambda case: case.row.name not in COMPILED)
def test_law_1_compiled_model_counts_by_itself(case):
    """Every scheme compiles below too, where its layer takes positions."""
    laws.compiles_at_most_twice(lambda n: (random_ids(2, n, seed=n),), model(case), LENGTHS)


@pytest.mark.every_nth(5)
@pytest.mark.compile
@each(slow=varied)
def test_law_1_a_compiled_layer_takes_positions(case):
    laws.compiles_at_most_twice(
        lambda n: (draw(2, n, DIM, seed=n), ww.positions(n, start=3)), laws.OneLayer(case.build(num_heads=2)), LENGTHS
    )


@pytest.mark.every_nth(7)
@each(slow=varied)
@pytest.mark.parametrize("first", [1, 5])
def test_law_2_decoding(first, case):
    laws.decoding_equals_prefill(model(case), ww.positions(8), first)


@each(slow=varied)
def test_law_2_decoding_a_batch_of_other_starts(case):
    laws.decoding_equals_prefill(model(case), ww.positions(8, start=torch.tensor([0, 9])), first=3)


@each(slow=varied)
def test_law_2_positions_that_grow(case):
    """Positions are appended as a server does, not sliced from one that was known in advance."""
    small, ids = model(case), random_ids(2, 8)
    caches, p = [Cache(), Cache()], ww.positions(6)
    with torch.no_grad():
        rows = [small(ids[:, :6], p, None, caches)]
        for t in (6, 7):
            new = ww.positions(1, start=t)
            p = p.append(new)
            rows.append(small(ids[:, t : t + 1], new, p, caches))
        torch.testing.assert_close(torch.cat(rows, dim=1), small(ids, ww.positions(8)), **laws.TOLERANCE)


@each(lambda case: case.axes > 1, slow=varied)
@pytest.mark.parametrize("first", [1, 5])
def test_law_2_decoding_on_a_grid(first, case):
    """The last axis runs fastest, and later is what stands later in the sequence."""
    p = ww.Positions.grid(*[1] * (case.axes - 2), 3, 4)
    laws.decoding_equals_prefill(model(case), p, first)
    laws.decoding_equals_prefill(model(case), ww.Positions(p.index.flip(0), p.order, None, True, p.max_length), first)


@pytest.mark.every_nth(7)
@each()
@pytest.mark.parametrize(
    "p", [ww.Positions.from_mask(LEFT), ww.Positions.packed([2, 6])], ids=["left-padded", "packed"]
)
def test_law_3_decoding(p, case):
    """Of every variant in the default pass; other laws take the variants of a scheme each night."""
    laws.decoding_equals_prefill(model(case), p, first=5)


@each(slow=varied)
def test_law_3_packed(case):
    laws.packed_equals_separate(model(case), (3, 1, 5))


@each(slow=varied)
def test_law_3_padded_between(case):
    between = torch.tensor([[1, 1, 0, 1, 0, 1, 1, 1], [0, 1, 1, 0, 0, 1, 1, 0]], dtype=torch.bool)
    laws.padded_equals_unpadded(model(case), between)


@each(slow=varied)
@pytest.mark.parametrize("side", ["left", "right"])
def test_law_3_padded_at_a_side(side, case):
    laws.padded_equals_unpadded(model(case), LEFT if side == "left" else LEFT.flip(-1))


@each(lambda case: case.row.follows_length)
def test_law_3_each_document_by_its_own_length(case):
    """No regime is stated: of documents beyond and within the trained length, each has its own."""
    small = model(case, max_length=4)
    small.regime_length = None
    laws.packed_equals_separate(small, (3, 1, 5))
    laws.packed_equals_separate(small, (8, 4, 6))


@each(lambda case: case.row.follows_length)
@pytest.mark.parametrize("side", ["left", "right"])
def test_law_3_each_sequence_by_its_own_length(side, case):
    """Of 8 and 5 tokens, one is beyond the trained length of 5, the other is not."""
    small = model(case, max_length=5)
    small.regime_length = None
    laws.padded_equals_unpadded(small, LEFT if side == "left" else LEFT.flip(-1))


@each(slow=varied)
def test_law_4_meta_device(case):
    laws.materialized_equals_built(case.build, ww.positions(9))


@each(slow=varied)
def test_law_4_meta_device_of_a_model(case):
    """A whole model, by the protocol that sharded training uses: every module draws what it owns."""
    torch.manual_seed(0)
    with torch.device("meta"):
        late = Model(case)
    assert {weight.device.type for weight in late.parameters()} == {"meta"}
    late.to_empty(device="cpu").load_state_dict(model(case).state_dict())
    ids = random_ids(2, 7)
    laws.require_equal([late(ids)], [model(case)(ids)])


@pytest.mark.parametrize("row", [row for row in ALL_ROWS if row.name in OPTIONS], ids=lambda row: row.name)
def test_law_5_settings_matter(row):
    cases = [Case(row, options) for options in variants(row)]
    axes = {case.axes for case in cases}
    positions = [ww.positions(9, start=1)]
    if len(axes) == 1 and axes != {1}:  # what an option does to the axes cannot be seen where they are alike
        positions.append(ww.Positions.from_position_ids(torch.arange(9 * max(axes)).reshape(max(axes), 1, 9) % 7))
    laws.tell_apart([case.build() for case in cases], *positions, regime_length=cases[0].regime)


@each(lambda case: case.row.door == "score" and fixed(case))
def test_law_5_the_number_of_heads_matters(case):
    few, many = (case.build(num_heads=heads).score(ww.positions(9)) for heads in (2, 4))
    assert (few - many[:, :2]).abs().max() > 1e-2


@each()
def test_law_6_state(case):
    laws.state_is_as_declared(case.build(), case.row.learned)


@each(lambda case: case.row.learned)
@pytest.mark.parametrize("p", [ww.positions(4), ww.Positions.packed([2, 1])], ids=["run", "packed"])
def test_law_7_gradients(p, case):
    torch.manual_seed(0)
    laws.gradients_are_right(case.build(dim=8, num_heads=2, max_length=5), p, dim=8)


@each()
def test_facts_of_the_row_fit_the_doors(case):
    """The laws are chosen by these facts, so the facts themselves must be true."""
    where = case.build()
    doors = [door for door in ("input", "query_key", "score") if getattr(where, door) is not None]
    rows = [row for row in ALL_ROWS if row.name in case.row.name.split("+") and row.door is not None]
    assert set(doors) == {row.door for row in rows}
    assert len(doors) == len(rows)
    assert case.row.causal_only == case.causal_only or case.options
    assert case.row.follows_length == (where.query_key is not None and where.query_key.follows_length)


@each()
@pytest.mark.parametrize("shift", [1, 1_000_000])
def test_relative_iff_declared(shift, case):
    torch.manual_seed(0)
    n = MAX_LENGTH if case.by_region else 9  # only then some pairs are far
    shift = min(shift, (case.row.tested_up_to if case.row.any_length else MAX_LENGTH) - n)
    shift -= case.by_region and shift > 1  # groups and chunks divide round shifts
    relative = case.sees_distances_only(shift + n)
    laws.relative_iff_declared(case.build(), relative, n=n, shift=shift, regime_length=case.regime)


@each(lambda case: not case.row.any_length)
def test_a_table_ends_with_an_error(case):
    where = case.build(max_length=8)
    attend(where, ww.positions(8))
    with pytest.raises(ww.errors.PositionError, match="position 8 is beyond"):
        attend(where, ww.positions(9))


@each(lambda case: case.row.any_length)
def test_any_length(case):
    where = case.build(max_length=8)
    assert attend(where, ww.positions(9, start=case.row.tested_up_to - 9)).isfinite().all()
