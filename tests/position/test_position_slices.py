"""Parts of positions: chosen slots, shards, what they remember, and documents that were counted of a part."""

import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.distributed.utils import _apply_to_tensors
from torch.utils import _pytree

import whatwhere as ww

PACKED = ww.Positions.packed([4, 8, 4])


def fields(p: ww.Positions) -> list[object]:
    tensors = (p.index, p.order, p.segment, p.lengths(), p.order_in_document())
    return [None if x is None else x.tolist() for x in tensors]


@pytest.mark.parametrize("order", ["contiguous", "zigzag", "striped"])
def test_shards_are_tokens_of_the_whole(order: str) -> None:
    slots = PACKED.shard_slots(4, order)
    assert sorted(slots.flatten().tolist()) == list(range(16))
    for own, part in zip(slots, PACKED.shards(4, order), strict=True):
        assert part.index.tolist() == PACKED.index[..., own].tolist()
        assert part.order.tolist() == PACKED.order[:, own].tolist()
        assert part.segment.tolist() == PACKED.segment[:, own].tolist()
        assert part.lengths().tolist() == PACKED.lengths()[:, own].tolist()
        assert part.order_in_document().tolist() == PACKED.order_in_document()[:, own].tolist()
    back = torch.cat([PACKED.order[:, own] for own in slots], dim=1)[:, slots.flatten().argsort()]
    assert torch.equal(back, PACKED.order)


def test_which_tokens_a_rank_has() -> None:
    p = ww.positions(8)
    assert p.shard_slots(2).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert p.shard_slots(2, "zigzag").tolist() == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert p.shard_slots(2, "striped").tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    # Under a causal mask a rank of a zig-zag order attends to as many keys as any other.
    pairs = [int(p.mask()[0, 0, own].sum()) for own in p.shard_slots(2, "zigzag")]
    assert pairs == [18, 18]


def test_what_is_remembered_survives() -> None:
    part = PACKED.shards(2)[1]
    copies = [pickle.loads(pickle.dumps(part)), part.to("cpu"), part[:], part.take(torch.arange(8)), part.append(0)]
    leaves, form = _pytree.tree_flatten(part)
    copies.append(_pytree.tree_unflatten(leaves=leaves, treespec=form))
    for copy in copies:
        assert fields(copy) == fields(part)
    assert part[2:6].lengths().tolist() == [[8, 8, 4, 4]]
    assert part.lengths().tolist() == [[8, 8, 8, 8, 4, 4, 4, 4]]
    assert ww.positions(8).shards(2)[0].append(ww.positions(4, start=8)).lengths().tolist() == [[12] * 8]
    assert ww.positions(8).shards(2)[0].run
    assert not ww.positions(8).shards(2, "striped")[0].run
    assert len(_pytree.tree_leaves(PACKED)) == 3  # as programs that were exported before know it


def test_real_coordinates_have_shards_without_a_length() -> None:
    part = ww.Positions.from_coordinates(torch.arange(8) / 2).shards(2)[1]
    assert part.index.tolist() == [[[2.0, 2.5, 3.0, 3.5]]]
    assert part.document_length is None


@pytest.mark.compile
def test_parts_in_a_compiled_program() -> None:
    def program(p: ww.Positions, slots: torch.Tensor) -> torch.Tensor:
        return p.take(slots).lengths() + p.take(slots)[:2].lengths().sum()

    slots = torch.tensor([9, 2, 3, 15])
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    assert torch.equal(compiled(PACKED, slots), program(PACKED, slots))


def test_documents_are_continued_and_compared_with_those_of_the_whole() -> None:
    ids = PACKED.index[0]
    whole, where = ww.Positions.from_position_ids(ids), ww.Where()
    step = whole.next()
    assert where.at(step, whole.append(step)).queries.segment.tolist() == [[2]]
    assert where.at(whole[8:], whole).queries.mask(whole).sum() == sum(range(5, 9)) + sum(range(1, 5))
    assert where.at(ids[:, 8:12], ids[:, 4:12]) is not None  # one document each: nothing was counted


Continued = Callable[[ww.Positions], ww.Positions]
CONTINUED: dict[str, tuple[Continued, int | None]] = {
    "next": (lambda p: p.next(), 8),
    "next, several": (lambda p: p.next(4), 8),
    "append": (lambda p: p.append(2), 3),
    "append, each": (lambda p: p.append(p.next()).append(1), 3),
    "a slice": (lambda p: p[2:], 5),
    "the last": (lambda p: p[-1:], 7),
    "a slice, continued": (lambda p: p[1:3].next(2), 6),
    "moved": (lambda p: p.to("cpu"), 3),
    "every second": (lambda p: p[::2], None),
    "none": (lambda p: p[2:2].next(), None),
    "later": (lambda p: p.append(ww.positions(2, start=20)), None),
    "a slice, appended": (lambda p: p[:2].append(p[2:]), None),
    "a shard": (lambda p: p.take(torch.tensor([0, 1])), None),
    "another index": (lambda p: replace(p, index=p.index * 2), None),
    "cast by FSDP": (lambda p: _apply_to_tensors(lambda x: x, p), None),
}


@pytest.mark.parametrize("name", CONTINUED)
def test_counted_positions_are_continued_as_those_that_are_read(name: str) -> None:
    continued, start = CONTINUED[name]
    counted, read = (continued(p) for p in (ww.positions(5, start=3), replace(ww.positions(5, start=3))))
    for field in ("index", "order", "document_start", "document_length", "segment"):
        one, other = getattr(counted, field), getattr(read, field)
        assert (one is other is None) or torch.equal(one, other)
    assert (counted.run, counted.max_length, counted.is_part) == (read.run, read.max_length, read.is_part)
    assert (counted.start, read.start) == (start, None)


@pytest.mark.parametrize(("queries", "keys"), [((1, 4), (5, 0)), ((2, 4), (5, 0)), ((2, 3), (5, 0)), ((3, 9), (4, 2))])
def test_counted_queries_after_all_keys_need_no_mask(queries: tuple[int, int], keys: tuple[int, int]) -> None:
    p, q = (ww.positions(n, start=start) for n, start in (queries, keys))
    assert (p.allowed(q, causal=True) is None) == bool(p.mask(q).all())
    assert torch.equal(p.mask(q), replace(p).mask(replace(q)))
