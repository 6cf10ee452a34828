"""Shards of a sequence, in every order: with gathered keys, attention is that of one process, for every scheme."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.position.positions import SHARD_ORDERS

from .cases import DIM, HEADS, KEY_HEADS, Case, each, varied
from .model import HEAD_DIM, attend, draw

TOKENS, RANKS = 12, 3
POSITIONS = {
    "one document": lambda: ww.positions(TOKENS),
    "position ids": lambda: ww.Positions.from_position_ids(torch.tensor([[*range(3), *range(9)], [*range(12)]])),
}


def shard(where: ww.Where, p: ww.Positions, slots: Tensor) -> tuple[Tensor, ...]:
    """Compute what a rank computes of its own tokens: mapped queries and keys, values, and gates."""
    here = where.at(p.take(slots))
    x = here.input(draw(2, TOKENS, DIM, seed=1)[:, slots])
    heads = x.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
    q, k = heads, heads[:, :KEY_HEADS].flip(-1)
    increments = here.increments(x)
    if increments is not None:  # sums of all tokens, so keys are gathered before they are rotated
        return q, k, heads[:, -KEY_HEADS:], increments
    q, k = here.query_key(q, k)
    gates = here.gates(x)
    return q, k, heads[:, -KEY_HEADS:], *(() if gates is None else (gates,))


def in_sequence(parts: Sequence[Tensor], slots: Tensor) -> Tensor:
    """Put what shards computed back in the order of the sequence."""
    return torch.cat(list(parts), dim=2)[:, :, slots.flatten().argsort()]


def drawn(where: ww.Where) -> ww.Where:
    """Sample what a scheme starts at zero, so that nothing is without effect."""
    generator = torch.Generator().manual_seed(3)
    for weights in where.parameters():
        if not bool(weights.any()):
            torch.nn.init.normal_(weights, std=0.5, generator=generator)
    return where.requires_grad_(False)


@pytest.mark.every_nth(7)
@each(slow=varied)
@pytest.mark.parametrize("positions", POSITIONS)
def test_gathered_keys_need_no_order(case: Case, positions: str) -> None:
    """No length is stated: documents beyond and within the trained length of 8 have their own on every rank."""
    where, p = drawn(case.build(max_length=8 if case.row.follows_length else 64)), POSITIONS[positions]()
    whole = attend(where, p)
    for order in SHARD_ORDERS:
        slots = p.shard_slots(RANKS, order)
        q, k, v, *gates = zip(*(shard(where, p, own) for own in slots), strict=True)
        of_queries = where.score is not None and bool(gates) and gates[0][0].dim() == 4  # Inkling's; FoX's are of keys
        for keys, ordered in ((p.take(slots.flatten()), False), (p, True)):
            gathered = [in_sequence(x, slots) if ordered else torch.cat(x, dim=2) for x in (k, v, *gates)]
            parts = []
            for rank, own in enumerate(p.shards(RANKS, order)):
                of_rank = gates[0][rank] if of_queries else next(iter(gathered[2:]), None)
                here, own_q, all_k = where.at(own, keys), q[rank], gathered[0]
                if where.query_key is not None and where.query_key.by_content:
                    own_q, all_k = here.query_key(own_q, all_k, increments=of_rank)
                    of_rank = None
                parts.append(here.attention(own_q, all_k, gathered[1], gates=of_rank))
            torch.testing.assert_close(in_sequence(parts, slots), whole, rtol=0, atol=1e-5)


@each(lambda case: case.row.follows_length and "original_length" not in case.options)
def test_a_slice_does_not_say_which_length_is_meant(case: Case) -> None:
    """A step of decoding has the length so far, the same tokens as a shard that of the sequence: a slice is neither."""
    where, p, q = case.build(max_length=8), ww.positions(TOKENS), draw(1, 2, 6, HEAD_DIM)
    so_far, of_whole = (where.at(6, regime_length=length).query_key(q, q)[0] for length in (6, TOKENS))
    assert (so_far - of_whole).abs().max() > 1e-2
    for queries, keys in ((p[:6], None), (p[2:8], None), (p[2:8], p[:8]), (p[4:6], ww.positions(6))):
        with pytest.raises(ww.errors.PositionError, match=r"a slice p\[a:b\]: up to there it has \d tokens"):
            where.at(queries, keys)
    for p_of_length, length, wanted in ((p[:6], 6, so_far), (p[:6], TOKENS, of_whole), (ww.positions(6), None, so_far)):
        assert torch.equal(where.at(p_of_length, regime_length=length).query_key(q, q)[0], wanted)
    for shard in (p.shards(2)[0], p.take(torch.arange(6)), p.take(torch.arange(8))[:6]):
        assert torch.equal(where.at(shard).query_key(q, q)[0], of_whole)
    assert torch.equal(where.at(p[:6], p).query_key(q, q)[0], of_whole)  # the keys are the whole
    assert torch.equal(where.at(ww.positions(8)[:6]).query_key(q, q)[0], so_far)  # both within the trained length


def test_slices_of_documents_have_the_windows_of_the_whole() -> None:
    """Chunks and first tokens count from the start of a document, of which a slice may have a later part."""
    p = ww.Positions.packed([10, 6])
    q, k, v = draw(3, 1, HEADS, 16, HEAD_DIM)
    for window in (ww.Window(4, chunked=True), ww.Window(2, first=1)):
        where = ww.Where(window=window)
        parts = [
            where.at(p[6:], block).attention_with_lse(q[:, :, 6:], k[:, :, s], v[:, :, s])
            for s in (slice(0, 6), slice(6, 16))
            for block in (p[s],)
        ]
        wanted = where.at(p).attention(q, k, v)[:, :, 6:]
        torch.testing.assert_close(where.at(p).merge(parts), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["fox", "cope"])
def test_sums_over_missing_keys_are_refused(name: str) -> None:
    """Keys of the first and the third of three ranks: those between some queries and keys are missing."""
    where, p = drawn(ww.scheme(name, DIM, HEADS, 64)), ww.positions(TOKENS)
    first, second, third = p.shard_slots(RANKS)
    q, k, v, *gates = (torch.cat(x, dim=2) for x in zip(*(shard(where, p, s) for s in (first, third)), strict=True))
    with pytest.raises(ww.errors.PositionError, match=r"after the one of order 3 some are not among"):
        where.at(p.take(third), p.take(torch.cat([first, third]))).attention(
            q[:, :, 4:], k, v, gates=next(iter(gates), None)
        )
    # A sum of gates lacks the same number for all keys, which softmax ignores, but not beside a sink; nor does a count.
    beside = where if name == "cope" else drawn(ww.Where(score=where.score, sink=ww.Sink(HEADS)))
    of_first = [gates[0][:, :, :4]] if gates else [None]
    with pytest.raises(ww.errors.PositionError, match=r"after the one of order 3 some are not among"):
        beside.at(p.take(second), p.take(first)).attention(q[:, :, :4], k[:, :, :4], v[:, :, :4], gates=of_first[0])


@pytest.mark.parametrize("of_whole", [lambda p: p[4:8], lambda p: p.shards(RANKS)[1]], ids=["slice", "shard"])
def test_increments_of_some_tokens_are_refused(of_whole) -> None:
    where, p = drawn(ww.scheme("carope", DIM, HEADS, 64)), of_whole(ww.positions(TOKENS))
    here, x = where.at(p), draw(1, 4, DIM)
    q = x.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
    with pytest.raises(ww.errors.PositionError, match="sums over all tokens"):
        here.query_key(q, q, increments=here.increments(x))
