"""Windows and chunks: the mask by its definition, engines, what is skipped, and a cache that forgets."""

import gc
import weakref

import jaxtyping
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere import Window
from whatwhere.where import attention as module

from ..attention import LargestTensor

TOKENS = 20
LEFT = torch.arange(TOKENS) >= torch.tensor([[0], [6]])
POSITIONS = {
    "run": lambda: ww.positions(TOKENS),
    "from 5": lambda: ww.positions(TOKENS, start=5),
    "other starts": lambda: ww.positions(TOKENS, start=torch.tensor([0, 9])),
    "packed": lambda: ww.Positions.packed([7, 3, 10]),
    "left padding": lambda: ww.Positions.from_mask(LEFT),
    "right padding": lambda: ww.Positions.from_mask(LEFT.flip(-1)),
    "position ids": lambda: ww.Positions.from_position_ids(torch.tensor([*range(9), *range(11)])),
    "sampled": lambda: ww.Positions.randomized(TOKENS, 60, batch=2, generator=torch.Generator().manual_seed(0)),
}
WINDOWS = [
    Window(5), Window(1), Window(4, chunked=True), Window(4, first=2), Window(6, chunked=True, first=1),
    Window(5, by="coordinates"), Window(7, chunked=True, by="coordinates"), Window(100),
]  # fmt: skip


def by_loops(p: ww.Positions, window: Window, causal: bool) -> Tensor:
    """The mask of documents, causality and the window, pair by pair, from the reference."""
    mask = torch.zeros(p.batch, 1, p.tokens, p.tokens, dtype=torch.bool)
    documents = torch.zeros_like(p.order) if p.segment is None else p.segment
    for b in range(p.batch):
        for document in set(documents[b].tolist()) - {-1}:
            slots = (documents[b] == document).nonzero()[:, 0]
            order = p.order[b, slots] - (0 if p.segment is None else p.order[b, slots].min())
            t = (order if window.by == "order" else p.index[0, b, slots]).numpy()
            near = ww.reference.window_mask(t, t, window.size, window.chunked, window.first)
            earlier = order[:, None] >= order if causal else torch.ones(len(slots), len(slots), dtype=torch.bool)
            mask[b, 0, slots[:, None], slots] = torch.from_numpy(near) & earlier
    return mask


def sampled(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def formula(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    groups = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(groups, 1).mT * q.shape[-1] ** -0.5 + bias
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)
    return weights @ v.repeat_interleave(groups, 1)


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("positions", POSITIONS)
def test_every_engine_applies_the_window(positions: str, window: Window, causal: bool) -> None:
    p = POSITIONS[positions]()
    mask = by_loops(p, window, causal)
    assert torch.equal(p.mask(causal=causal) & window.mask(p), mask)
    q, k, v = sampled((2, 4, TOKENS, 8), (2, 2, TOKENS, 8), (2, 2, TOKENS, 6))
    here = ww.Where(window=window).at(p)
    for engine in ("dense", "sdpa"):
        y = here.attention(q, k, v, causal=causal, engine=engine)
        torch.testing.assert_close(y, formula(q, k, v, mask))
    every = torch.ones(1, 1, TOKENS, TOKENS, dtype=torch.bool)
    torch.testing.assert_close(here.attention(q, k, v, causal=causal, mask=every), formula(q, k, v, mask))


LONG = 600
LONG_POSITIONS = {
    "run": lambda: ww.positions(LONG, start=3),
    "packed": lambda: ww.Positions.packed([201, 399]),
    "left padding": lambda: ww.Positions.from_mask(torch.arange(LONG) >= torch.tensor([[0], [60]])),
}
LONG_WINDOWS = [Window(50), Window(64, chunked=True), Window(40, first=2), Window(50, by="coordinates")]


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", LONG_WINDOWS, ids=str)
@pytest.mark.parametrize("positions", LONG_POSITIONS)
@pytest.mark.parametrize("score", [None, "kerple"])
def test_long_sequences_skip_keys_and_stay_exact(
    score: str | None, positions: str, window: Window, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blockwise attention and chunks of queries, forward and backward, in float64 against the dense formula."""
    if score and not causal:
        return  # KERPLE supports both, but nothing differs
    calls: list[str] = []
    for name in ("attention_by_blocks", "_in_chunks"):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, real=real, name=name: calls.append(name) or real(*a))
    p = LONG_POSITIONS[positions]()
    torch.manual_seed(0)
    where = ww.Where(score=ww.KERPLE(4) if score else None, window=window, sink=ww.Sink(4)).double()
    torch.nn.init.normal_(where.sink.weight)
    q, k, v = (x.requires_grad_() for x in sampled((2, 4, LONG, 8), (2, 2, LONG, 8), (2, 2, LONG, 6)))
    (g,) = sampled((2, 4, LONG, 6))
    results = []
    for engine in ("sdpa", "dense"):
        y = where.at(p).attention(q, k, v, causal=causal, engine=engine)
        y.backward(g if p.segment is None else g.masked_fill(p.segment[:, None, :, None] < 0, 0))
        results.append([y, *(x.grad for x in (q, k, v, *where.parameters()))])
        for x in (q, k, v, *where.parameters()):
            x.grad = None
    toeplitz = positions == "run" and not window.chunked and not window.first
    assert calls == (["attention_by_blocks"] if toeplitz else ["_in_chunks"])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("window", LONG_WINDOWS, ids=str)
@pytest.mark.parametrize("positions", LONG_POSITIONS)
def test_no_table_of_all_pairs(positions: str, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest tensor grows with tokens x window: less than a fourth of all pairs, forward and backward."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    q, k, v = (x.requires_grad_() for x in sampled((2, 1, LONG, 8), (2, 1, LONG, 8), (2, 1, LONG, 8)))
    ww.Where(window=window).at(LONG_POSITIONS[positions]()).attention(q, k, v)  # the kernel is tried once, by a table
    with LargestTensor() as seen:
        ww.Where(window=window).at(LONG_POSITIONS[positions]()).attention(q, k, v).sum().backward()
    assert 0 < seen.numbers < LONG * LONG / 4


@pytest.mark.parametrize("window", LONG_WINDOWS, ids=str)
def test_a_step_of_decoding_reads_the_keys_of_its_window(window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[int] = []
    real = module._with_table
    monkeypatch.setattr(module, "_with_table", lambda q, k, *rest: keys.append(k.shape[2]) or real(q, k, *rest))
    p = ww.positions(LONG)
    q, k, v = sampled((2, 4, LONG, 8), (2, 2, LONG, 8), (2, 2, LONG, 8))
    y = ww.Where(window=window).at(p[-1:], p).attention(q[:, :, -1:], k, v)
    torch.testing.assert_close(y, formula(q, k, v, p.mask() & window.mask(p))[:, :, -1:])
    assert keys == [24 if window.chunked else window.size + window.first]  # 600 - 9 x 64 = 24


def test_a_window_is_left_out_where_it_masks_nothing_and_there_alone() -> None:
    (q,) = sampled((2, 2, 8, 8))
    for window, p in (
        (Window(8), ww.positions(8, start=40)),
        (Window(7), ww.positions(8)),
        (Window(8, chunked=True), ww.positions(8, start=16)),
        (Window(8, chunked=True), ww.positions(8, start=15)),
        (Window(8, by="coordinates"), ww.positions(8, start=torch.tensor([3, 90]))),
        (Window(8, by="coordinates"), ww.Positions.from_coordinates(torch.arange(8) * 2)),
        (Window(8, first=1), ww.positions(8)),
    ):
        y = ww.Where(window=window).at(p).attention(q, q, q)
        torch.testing.assert_close(y, formula(q, q, q, by_loops(p, window, causal=True)))


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("window", [w for w in WINDOWS if w.size < 100], ids=str)
@pytest.mark.parametrize("positions", [name for name in POSITIONS if name != "sampled"])
def test_forgotten_keys_are_those_that_no_later_query_sees(positions: str, window: Window) -> None:
    """By the mask of the whole sequence: kept are all that a later query sees, and of others the starts alone."""
    p = POSITIONS[positions]()
    mask = by_loops(p, window, causal=True)[:, 0]
    for t in range(1, TOKENS):
        kept = set(window.kept(p[:t]).tolist())
        needed = set(mask[:, t:, :t].any(0).any(0).nonzero()[:, 0].tolist())
        assert needed <= kept
        if p.segment is None and p.batch == 1 and (positions, window.first) != ("from 5", 2):
            assert len(kept) <= window.size + window.first + window.chunked


def test_kept_needs_coordinates_that_grow() -> None:
    falling = ww.Positions.from_coordinates(torch.tensor([3, 4, 0, 1]))
    with pytest.raises(ww.errors.PositionError, match="do not grow within a document"):
        Window(2, by="coordinates").kept(falling)
    assert Window(2).kept(falling).tolist() == [3]
    assert Window(3, by="coordinates").kept(ww.Positions.packed([5, 4])).tolist() == [3, 4, 7, 8]
    assert not len(Window(3).kept(ww.positions(0)))


def test_later_tokens_of_packed_position_ids_are_next_to_their_document() -> None:
    """Order, from which windows count, goes on within the last document."""
    p = ww.Positions.from_position_ids(torch.tensor([0, 1, 2, 3, 0, 1])).append(2)
    assert p.order.tolist() == [[0, 1, 2, 3, 0, 1, 2, 3]]
    whole = ww.Positions.from_position_ids(torch.tensor([0, 1, 2, 3, 0, 1, 2, 3]))
    assert torch.equal(Window(2).mask(p) & p.mask(), Window(2).mask(whole) & whole.mask())
    with pytest.raises(ww.errors.PositionError, match="must be later, but the first has order 1"):
        p.append(torch.tensor([1]))


@pytest.mark.parametrize("window", [None, Window(3), Window(4, chunked=True)], ids=str)
def test_tables_of_a_pass_are_freed_with_it(window: Window | None) -> None:
    """By reference counting alone: tables that wait for the garbage collector are memory in use."""
    p = ww.Positions.packed([5, 7])
    (q,) = sampled((1, 2, 12, 8))
    here = ww.Where(ww.ALiBi(2), window=window).at(p)
    for engine in ("sdpa", "dense"):
        here.attention(q, q, q, engine=engine)
    cache = weakref.ref(here._cache)
    gc.disable()
    try:
        del here
        assert cache() is None
    finally:
        gc.enable()
