"""Positions: what each constructor promises, and the mask against its definition, one pair at a time."""

import copy
import dataclasses
import pickle
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.testing import CompileCounter
from torch.utils import _pytree

import whatwhere as ww
from whatwhere.position.positions import as_positions

few = settings(deadline=None, max_examples=50)


def mask_by_loops(queries, keys, causal):
    """The definition, one pair at a time."""
    rows = max(queries.batch, keys.batch)
    table = torch.zeros(rows, 1, queries.tokens, keys.tokens, dtype=torch.bool)
    for b in range(rows):
        at_query, at_key = b % queries.batch, b % keys.batch
        for i in range(queries.tokens):
            for j in range(keys.tokens):
                of_query = 0 if queries.segment is None else int(queries.segment[at_query, i])
                of_key = 0 if keys.segment is None else int(keys.segment[at_key, j])
                later = int(keys.order[at_key, j]) > int(queries.order[at_query, i])
                table[b, 0, i, j] = of_query == of_key and of_key >= 0 and not (causal and later)
    return table


lengths = st.lists(st.integers(1, 5), min_size=1, max_size=4)
padded = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1, max_size=3)
)
recipes = st.one_of(
    st.tuples(st.just("positions"), st.tuples(st.integers(1, 6), st.integers(0, 9))),
    st.tuples(st.just("packed"), lengths),
    st.tuples(st.just("from_mask"), padded),
)


def make(recipe):
    """Make the sampled positions: inside the test, as the run-time type check may use random numbers."""
    kind, what = recipe
    if kind == "positions":
        return ww.positions(*what)
    return ww.Positions.packed(what) if kind == "packed" else ww.Positions.from_mask(torch.tensor(what))


FACTS = """
positions(4, start=40) ->
    index=[[[40, 41, 42, 43]]], order=[[40, 41, 42, 43]], segment=None, run=True, max_length=44, batch=1, tokens=4
positions(0) -> index=[[[]]], tokens=0
positions(2, start=torch.tensor([3, 0, 9], dtype=torch.int32)) ->
    index=[[[3, 4], [0, 1], [9, 10]]], batch=3, run=True, max_length=11
positions(3, start=2**63 - 4)[2:] -> index=[[[2**63 - 2]]]
positions(100)[7:9] -> max_length=9
positions(6)[::2] -> index=[[[0, 2, 4]]], run=False
positions(3).append(positions(2, start=3)) -> index=[[[0, 1, 2, 3, 4]]], run=True, max_length=5, segment=None
positions(3).append(positions(1, start=7)) -> run=False
positions(2).append(torch.tensor([[2], [5]])) -> index=[[[0, 1, 2], [0, 1, 5]]]
Positions.packed([4]) -> run=True, segment=None
Positions.packed([2, 2]) -> run=False, segment=[[0, 0, 1, 1]]
Positions.from_mask(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]], dtype=torch.bool)) ->
    index=[[[0, 0, 0, 1], [0, 1, 2, 2]]], segment=[[-1, -1, 0, 0], [0, 0, 0, -1]], run=False, max_length=3
Positions.from_mask(torch.ones(2, 3, dtype=torch.bool)) -> run=True, segment=None
Positions.from_mask(torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]))[-1:] -> index=[[[2], [4]]]
Positions.from_mask(torch.tensor([[0, 1, 1, 1], [1, 1, 1, 0]]))[1:3] ->
    index=[[[0, 1], [1, 2]]], order=[[0, 1], [1, 2]], segment=[[0, 0], [0, 0]]
Positions.from_position_ids(torch.tensor([[0, 1, 2, 0, 1], [0, 0, 1, 2, 3]])) ->
    index=[[[0, 1, 2, 0, 1], [0, 0, 1, 2, 3]]], segment=[[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]], run=False
Positions.from_position_ids(torch.tensor([0, 4, 9])) -> segment=None, run=False, max_length=10
Positions.from_position_ids(torch.tensor([[[0, 1, 1, 2]], [[0, 1, 2, 2]], [[0, 2, 1, 2]]])) ->
    index=[[[0, 1, 1, 2]], [[0, 1, 2, 2]], [[0, 2, 1, 2]]], order=[[0, 1, 2, 3]], axes=3, segment=None, run=True
Positions.grid(2, 3) -> index=[[[0, 0, 0, 1, 1, 1]], [[0, 1, 2, 0, 1, 2]]], order=[[0, 1, 2, 3, 4, 5]]
Positions.grid(2, 3, 4) -> axes=3, max_length=4, run=True
Positions.packed([2, 1], device='meta') -> device='meta', run=False, max_length=2
Positions.grid(2, 2, device='meta') -> device='meta'
positions(2, start=torch.zeros(2, dtype=torch.int64, device='meta')) -> device='meta'
positions(np.uint8(3), start=np.int32(2)) -> index=[[[2, 3, 4]]], max_length=5
positions(3, start=torch.tensor([5, 0])).append(2) -> index=[[[5, 6, 7, 8, 9], [0, 1, 2, 3, 4]]], run=True
positions(3, start=torch.tensor([5, 0])).next(2) -> run=True, segment=None, max_length=10
Positions.grid(np.int64(2), torch.tensor(3)) -> index=[[[0, 0, 0, 1, 1, 1]], [[0, 1, 2, 0, 1, 2]]]
Positions.packed(np.array([3, 2], dtype=np.uint16)) -> index=[[[0, 1, 2, 0, 1]]], max_length=3
as_positions(np.int64(3)) -> index=[[[0, 1, 2]]], run=True
as_positions(3, 'meta') -> device='meta'
as_positions(torch.arange(3)) -> index=[[[0, 1, 2]]]
as_positions(torch.zeros(3, 2, 1).long()) -> axes=3, batch=2
"""


@pytest.mark.parametrize(("code", "facts"), re.findall(r"^(\S.*) ->\s+(.*)$", FACTS, re.MULTILINE))
@pytest.mark.usefixtures("our_own_checks")
def test_positions_have_these_facts(code, facts):
    p = eval(code, {"np": np, "torch": torch, "as_positions": as_positions, **vars(ww)})
    for name, wanted in eval(f"dict({facts})").items():
        found = getattr(p, name)
        plain = found.tolist() if isinstance(found, torch.Tensor) else str(found) if name == "device" else found
        assert (plain, type(plain)) == (wanted, type(wanted)), name


@few
@given(st.integers(0, 12), st.integers(0, 20), st.integers(1, 3), st.integers(0, 99))
def test_randomized_positions_are_distinct_growing_and_inside(n, spare, batch, seed):
    max_length = max(n + spare, 1)
    p = ww.Positions.randomized(n, max_length=max_length, batch=batch, generator=torch.Generator().manual_seed(seed))
    assert p.index.shape == (1, batch, n)
    assert bool((p.index.diff() > 0).all())
    assert all(0 <= value < max_length for value in p.index.flatten().tolist())
    assert (p.max_length, p.run) == (max_length, True)


def test_randomized_differs_between_sequences_and_is_the_same_for_a_seed():
    first, again = (ww.Positions.randomized(8, 1000, 4, torch.Generator().manual_seed(5)).index for _ in range(2))
    assert torch.equal(first, again)
    assert len({tuple(row) for row in first[0].tolist()}) == 4


def test_randomized_samples_every_position_equally():
    p = ww.Positions.randomized(5, max_length=10, batch=4000, generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(p.index.flatten(), minlength=10) / 4000
    # Each position is drawn with probability 1/2; the standard deviation of a share is 0.008.
    assert bool(((shares - 0.5).abs() < 0.04).all())


ends = st.one_of(st.none(), st.integers(-7, 7))
slices = st.builds(slice, ends, ends, st.one_of(st.none(), st.integers(1, 3)))


@few
@given(recipes, slices, slices, st.booleans())
def test_a_slice_of_a_slice_is_what_slicing_tensors_gives(recipe, one, other, looked_at):
    """A slice reads its fields when they are needed, and a slice of it then starts from the whole."""
    p = make(recipe)
    first = p[one]
    if looked_at:
        repr(first)
    part = first[other]
    assert part.tokens == len(range(p.tokens)[one][other])
    assert torch.equal(part.index, p.index[..., one][..., other])
    assert torch.equal(part.order, p.order[:, one][:, other])
    if p.segment is None:
        assert part.segment is None
    else:
        assert torch.equal(part.segment, p.segment[:, one][:, other])
    assert part.run == (p.run and one.step in (None, 1) and other.step in (None, 1))
    assert part.max_length == (int(part.index.max()) + 1 if part.tokens else 0)


def test_a_slice_is_a_value_like_any_other():
    part = ww.positions(9, start=3)[2:5]
    for other in (copy.deepcopy(part), pickle.loads(pickle.dumps(part)), dataclasses.replace(part, run=False)):
        assert other.index.tolist() == [[[5, 6, 7]]]
        assert other.max_length == 8
        assert other.whole_lengths().tolist() == [[12, 12, 12]]
    assert dataclasses.replace(part, run=False).run is False


@pytest.mark.compile
def test_steps_of_decoding_share_two_graphs():
    """Where a slice stands is a number that changes at each step: it must not be taken for a constant."""
    where, counter, p = ww.Where(query_key=ww.Rotary(8), score=ww.ALiBi(2)), CompileCounter(), ww.positions(40)

    def step(q, k, queries, keys):
        here = where.at(queries, keys)
        q, new = here.query_key(q, q)
        return here.attention(q, k, k), new

    fast = torch.compile(step, fullgraph=True, backend=counter)
    for n in range(5, 11):
        q, k = torch.randn(1, 2, 1, 8), torch.randn(1, 2, n + 1, 8)
        result, wanted = fast(q, k, p[n : n + 1], p[: n + 1]), step(q, k, p[n : n + 1], p[: n + 1])
        torch.testing.assert_close(result, wanted, rtol=0, atol=1e-5)
    assert 1 <= counter.frame_count <= 2


def test_appended_tokens_join_the_last_document_of_their_row():
    cache = ww.Positions.from_position_ids(torch.tensor([[0, 1, 2, 3], [0, 1, 0, 1]])).append(torch.tensor([[4], [2]]))
    assert cache.segment.tolist() == [[0, 0, 0, 0, 0], [0, 0, 1, 1, 1]]
    assert cache[-1:].mask(cache)[:, 0, 0].int().tolist() == [[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]


def test_appending_after_padding_never_joins_the_padding():
    p = ww.Positions.from_mask(torch.tensor([[0, 1, 1], [1, 1, 0]])).append(torch.tensor([[2], [2]]))
    assert p.segment.tolist() == [[-1, 0, 0, 0], [0, 0, -1, 0]]
    nothing_before = ww.Positions.from_mask(torch.tensor([[0, 0], [1, 1]])).append(torch.tensor([[1], [2]]))
    assert nothing_before.segment.tolist() == [[-1, -1, 0], [0, 0, 0]]


@few
@given(recipes, st.booleans())
def test_mask_is_its_definition(recipe, causal):
    p = make(recipe)
    expected = mask_by_loops(p, p, causal)
    mask = p.mask(causal=causal)
    assert mask.dtype == torch.bool
    assert torch.equal(mask, expected)


@few
@given(recipes, recipes, st.booleans())
def test_mask_across_two_sequences_is_its_definition(of_queries, of_keys, causal):
    queries, keys = make(of_queries), make(of_keys)
    if queries.batch == keys.batch or 1 in (queries.batch, keys.batch):
        assert torch.equal(queries.mask(keys, causal=causal), mask_by_loops(queries, keys, causal))
    elif causal or queries.segment is not None or keys.segment is not None:
        with pytest.raises(ww.errors.ShapeError, match="equal batches, or 1, are needed"):
            queries.mask(keys, causal=causal)


def test_positions_are_a_tree_of_tensors():
    p = ww.Positions.packed([2, 3])
    leaves, spec = _pytree.tree_flatten({"p": p})
    assert len(leaves) == 3
    back = _pytree.tree_unflatten(leaves, spec)["p"]
    assert isinstance(back, ww.Positions)
    assert torch.equal(back.mask(), p.mask())
    assert (back.run, back.max_length) == (p.run, p.max_length)


def test_the_shape_of_the_tree_is_written_and_read_back():
    # torch.export.save keeps it as JSON, and a loaded program compares it with that of its inputs.
    _, spec = _pytree.tree_flatten((ww.positions(3), ww.Positions.packed([2, 1])))
    assert _pytree.treespec_loads(_pytree.treespec_dumps(spec)) == spec
    keys = [_pytree.keystr(path) for path, _ in _pytree.tree_flatten_with_path(ww.Positions.packed([2, 1]))[0]]
    assert keys == [".index", ".order", ".segment"]


def test_positions_can_not_be_changed():
    with pytest.raises(AttributeError):
        ww.positions(3).run = False


CODE = {
    "positions(5)": ww.positions(5),
    "positions(0)": ww.positions(0),
    "positions(1000000)": ww.positions(1_000_000),
    "positions(2, start=40)": ww.positions(42)[40:],
    "positions(2, start=torch.tensor([3, 0, 9]))": ww.positions(2, start=torch.tensor([3, 0, 9])),
    "Positions.packed([3, 2])": ww.Positions.packed([3, 2]),
    "Positions.packed([70, 80])": ww.Positions.packed([70, 80]),
    "Positions.grid(2, 3)": ww.Positions.grid(2, 3),
    "Positions.from_mask(torch.tensor([[0, 1, 1], [1, 1, 1]]))": ww.Positions.from_mask(
        torch.tensor([[0, 1, 1], [1, 1, 1]])
    ),
    "Positions.from_coordinates(torch.tensor([3, 2, 3]))": ww.Positions.from_coordinates(torch.tensor([3, 2, 3])),
    "Positions.from_coordinates(torch.tensor([0, 4, 9]), order=torch.tensor([0, 4, 9]))": (
        ww.Positions.from_position_ids(torch.tensor([0, 4, 9]))
    ),
    "Positions.from_coordinates(torch.tensor([[[0, 1]], [[2, 0]]]), order=torch.tensor([1, 0]), "
    "segment=torch.tensor([0, -1]))": ww.Positions.from_coordinates(
        torch.tensor([[[0, 1]], [[2, 0]]]), torch.tensor([1, 0]), torch.tensor([0, -1])
    ),
}


def require_equal(p, q):
    assert p.index.tolist() == q.index.tolist()
    assert p.order.tolist() == q.order.tolist()
    assert (p.segment is None) == (q.segment is None)
    assert p.segment is None or p.segment.tolist() == q.segment.tolist()


@pytest.mark.parametrize("code", CODE)
def test_repr_is_code(code):
    assert repr(CODE[code]) == code
    require_equal(eval(code, {"torch": torch, **vars(ww)}), CODE[code])


@few
@given(recipes, st.slices(6))
def test_repr_of_any_positions_makes_them_again(recipe, part):
    p = make(recipe)[slice(part.start, part.stop, abs(part.step or 1))]
    if p.tokens:
        require_equal(eval(repr(p), {"torch": torch, **vars(ww)}), p)


def test_repr_of_many_coordinates_or_those_of_a_device_is_a_summary():
    long = ww.Positions.randomized(100, 1000, generator=torch.Generator().manual_seed(0))
    assert repr(long) == "<Positions: axes=1, batch=1, tokens=100, device='cpu'>"
    far = ww.Positions.packed([2, 1], device="meta")
    assert repr(far) == "<Positions: axes=1, batch=1, tokens=3, segments, device='meta'>"


@few
@given(recipes, st.integers(0, 3))
def test_the_next_tokens_are_those_of_the_longer_sequence(recipe, n):
    """By the constructors themselves: what they make of n more real tokens at the end."""
    kind, what = recipe
    p = make(recipe)
    if kind == "positions":
        longer = ww.positions(what[0] + n, start=what[1])
    elif kind == "packed":
        longer = ww.Positions.packed([*what[:-1], what[-1] + n])
    else:
        longer = ww.Positions.from_mask(torch.cat([torch.tensor(what), torch.ones(len(what), n).bool()], -1))
    wanted = longer[p.tokens :]
    step = p.next(n)
    assert torch.equal(step.index, wanted.index)
    assert torch.equal(step.mask(p), wanted.mask(longer[: p.tokens]))
    assert torch.equal(step.mask(p.append(step)), wanted.mask(longer))
    assert torch.equal(p.append(n).mask(), longer.mask())
    assert torch.equal(p.append(n).index, longer.index)


def test_position_ids_with_documents_continue_the_last_one():
    p = ww.Positions.from_position_ids(torch.tensor([[0, 1, 2, 0, 1], [0, 1, 2, 3, 4]])).append(1)
    assert p.index[0, :, -1].tolist() == [2, 5]
    assert p[-1:].mask(p)[:, 0, 0].int().tolist() == [[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]]


def test_the_last_document_is_that_of_the_last_token_and_not_the_one_of_the_largest_number():
    p = ww.Positions.from_coordinates(torch.tensor([0, 1, 0, 1, 0]), segment=torch.tensor([1, 1, 0, 0, -1]))
    assert p.next().segment.tolist() == [[0]]
    assert p.next().index.tolist() == [[[2]]]
    assert p.append(ww.positions(1, start=5)).segment.tolist() == [[1, 1, 0, 0, -1, 0]]


@pytest.mark.compile
def test_decoding_by_next_compiles():
    def step(p):
        return p.append(p.next()).mask()

    p = ww.Positions.from_mask(torch.tensor([[0, 1, 1], [1, 1, 1]]))
    assert torch.equal(torch.compile(step, backend="eager")(p), step(p))


def lengths_by_loops(p, present):
    """The definition, one token at a time."""
    rows = max(r.batch for r in (p, *present))
    table = torch.zeros(rows, p.tokens, dtype=torch.int64)
    for b in range(rows):
        for i in range(p.tokens):
            own = 0 if p.segment is None else int(p.segment[b % p.batch, i])
            for r in (p, *present):
                for j in range(r.tokens):
                    if own == (0 if r.segment is None else int(r.segment[b % r.batch, j])):
                        reached = 1 + int(r.index[:, b % r.batch, j].max())
                        table[b, i] = max(int(table[b, i]), reached)
    return table


@few
@given(recipes, st.lists(recipes, max_size=2))
def test_lengths_are_their_definition(recipe, others):
    p, present = make(recipe), [make(other) for other in others]
    if len({r.batch for r in (p, *present)} - {1}) <= 1:
        assert torch.equal(p.lengths(*present), lengths_by_loops(p, present))


def test_lengths_of_long_packed_sequences_make_no_table_of_all_pairs():
    """A table of 100,000 by 100,000 would be 80 GB."""
    sizes = [40_000, 10, 59_990]
    assert torch.equal(
        ww.Positions.packed(sizes).lengths()[0], torch.tensor(sizes).repeat_interleave(torch.tensor(sizes))
    )


def test_no_tokens_have_no_lengths_and_count_for_none():
    assert ww.positions(0).lengths().shape == (1, 0)
    assert ww.positions(2).lengths(ww.positions(0)).tolist() == [[2, 2]]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint16, torch.uint32, torch.uint64])
@pytest.mark.usefixtures("our_own_checks")
def test_a_mask_and_position_ids_of_any_integer_dtype(dtype):
    mask = torch.tensor([[0, 1, 1]])
    assert torch.equal(ww.Positions.from_mask(mask.to(dtype)).index, ww.Positions.from_mask(mask).index)
    assert ww.Positions.from_position_ids(torch.arange(3).to(dtype)).index.tolist() == [[[0, 1, 2]]]
    assert ww.positions(2, start=torch.tensor([4, 5]).to(dtype)).index.tolist() == [[[4, 5], [5, 6]]]
    with pytest.raises(ww.errors.PositionError, match="but this one has 2 at"):
        ww.Positions.from_mask((mask * 2).to(dtype))


EMPTY = ww.Positions.from_mask(torch.zeros(0, 3, dtype=torch.int64))


@pytest.mark.parametrize(
    "one", [ww.positions(3), ww.Positions.from_mask(torch.tensor([[0, 1, 1]]))], ids=["plain", "padded"]
)
def test_one_sequence_is_expanded_to_an_empty_batch(one):
    """A batch of 1 stands for any number of like sequences, and none is such a number."""
    assert one.mask(EMPTY).shape == EMPTY.mask(one).shape == (0, 1, 3, 3)
    assert one.lengths(EMPTY).shape == EMPTY.lengths(one).shape == (0, 3)
    assert one.append(EMPTY).index.shape == (1, 0, 6)
