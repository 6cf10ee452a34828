"""KVCache: what it holds after each operation is what a forward pass puts there, for every scheme, or it is refused."""

import warnings
from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

import whatwhere as ww
from whatwhere.errors import PositionError, RegimeWarning, SettingError, ShapeError

from ..laws.cases import CASES, DIM, HEADS, KEY_HEADS, Case

HEAD_DIM, T = DIM // HEADS, 12
each = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Raw(NamedTuple):
    """Hidden vectors, and queries, keys and values before positions."""

    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor

    def at(self, slots: Any) -> "Raw":
        return Raw(self.x[:, slots], *(each[:, :, slots] for each in self[1:]))

    def then(self, other: "Raw") -> "Raw":
        return Raw(
            torch.cat([self.x, other.x], 1), *(torch.cat(pair, 2) for pair in zip(self[1:], other[1:], strict=True))
        )


def raw(tokens: int = T, batch: int = 2, seed: int = 0) -> Raw:
    sizes = (HEADS, KEY_HEADS, KEY_HEADS)
    heads = (draw(batch, n, tokens, HEAD_DIM, seed=seed + i) for i, n in enumerate(sizes, 1))
    return Raw(draw(batch, tokens, DIM, seed=seed), *heads)


def put(cache: ww.KVCache, text: Raw, step: Any = None, **how: Any) -> Tensor:
    """Read tokens behind what is in the cache, and return what attention computes of them."""
    here = cache.at(text.x.shape[1] if step is None else step)
    increments, gates = here.increments(text.x), here.gates(text.x)
    every = increments if cache.increments is None else torch.cat([cache.increments, increments], 2)
    q, k = here.query_key(text.q, text.k, increments=every)
    keys = cache.append(here, k, text.v, gates=gates, increments=increments)
    y: Tensor = here.attention(q, *keys, gates=cache.gates, **how)
    return y


def filled(where: ww.Where, text: Raw, p: Any = None, **how: Any) -> ww.KVCache:
    cache = where.cache(**how)
    put(cache, text, p)
    return cache


def in_one_pass(where: ww.Where, text: Raw, n: int = 1) -> Tensor:
    """Return what the last tokens of a text get from a forward pass."""
    here = where.at(text.x.shape[1])
    y: Tensor = here.attention(*here.query_key(text.q, text.k), text.v, gates=here.gates(text.x))
    return y[:, :, -n:]


def same(y: Tensor, z: Tensor, allowed: float = 1e-5) -> None:
    torch.testing.assert_close(y, z, rtol=0, atol=allowed)


def is_mapped(cache: ww.KVCache, text: Raw, p: ww.Positions) -> None:
    """Hold the keys alone."""
    same(cache.k, cache.where.at(p).query_key(text.q, text.k)[1], 6e-6)


def close(cache: ww.KVCache, text: Raw, p: ww.Positions, allowed: float = 1e-6) -> None:
    """Hold the keys, values and gates against those of a forward pass at these positions, in float64."""
    where, length = cache.where, cache.regime_length
    assert torch.equal(cache.positions.index, p.index.expand_as(cache.positions.index))
    assert torch.equal(cache.v, text.v)
    here, exact = where.at(p, regime_length=length), text.k.double()
    mapped = here.query_key(text.q.double(), exact, increments=here.increments(text.x))[1]
    torch.testing.assert_close(cache.k.double(), mapped, rtol=0, atol=allowed * float(mapped.detach().abs().amax()))
    if cache.gates is not None:
        torch.testing.assert_close(cache.gates, here.gates(text.x))
    # And so a step of decoding attends to the same.
    later = raw(1, len(text.x), seed=50)
    step, everything = cache.next(), text.then(later)
    at_all = p.append(step)
    fresh = where.at(at_all, regime_length=length)
    increments = fresh.increments(everything.x)
    q, k = fresh.query_key(everything.q, everything.k, increments=increments)
    expected = fresh.attention(q, k, everything.v, gates=fresh.gates(everything.x))[:, :, -1:]
    same(put(cache.fork(), later), expected, 20 * allowed)


def _paste(c: ww.KVCache, t: Raw) -> tuple[ww.KVCache, Raw, ww.Positions]:
    other = raw(5, seed=20)
    return c.paste(filled(c.where, other, regime_length=c.regime_length)), t.then(other), ww.positions(T + 5)


OPERATIONS: dict[str, Callable[[ww.KVCache, Raw], tuple[ww.KVCache, Raw, ww.Positions]]] = {
    "crop": lambda c, t: (c.crop(7), t.at(slice(7)), ww.positions(7)),
    "slice": lambda c, t: (c[:5], t.at(slice(5)), ww.positions(5)),
    "fork": lambda c, t: (c.fork([1, 1, 0]), Raw(*(x[[1, 1, 0]] for x in t)), ww.positions(T)),
    "select": lambda c, t: (c.select(torch.tensor([1])), Raw(*(x[1:] for x in t)), ww.positions(T)),
    "shift": lambda c, t: (c.shift(9), t, ww.positions(T, start=9)),
    "drop": lambda c, t: (c.drop(2, 6), t.at([0, 1, *range(6, T)]), ww.positions(T - 4)),
    "paste": _paste,
    "regime": lambda c, t: (c.regime(700), t, ww.positions(T)),
}
"""What each leaves: the cache, its text, and where that is."""


@pytest.mark.every_nth(7)
@each
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_cache_holds_what_a_forward_pass_puts_there(case: Case, operation: str) -> None:
    """Keys to 1e-6 of float64, and what a step of decoding sees; or the reason why not."""
    where = case.build()
    text = raw()
    cache = filled(where, text, regime_length=case.regime)
    summed = where.query_key is not None and where.query_key.by_content
    if operation in ("shift", "drop", "paste") and (where.input or (summed and operation != "shift")):
        before = cache.k.clone()
        with pytest.raises(SettingError, match="inside its hidden vector" if where.input else "sum over all tokens"):
            OPERATIONS[operation](cache, text)
        assert torch.equal(cache.k, before)
        assert cache.tokens == T
        return
    fope = case.row.name == "fope"  # whose map shrinks some pairs, and errors grow when it is undone
    close(*OPERATIONS[operation](cache, text), allowed=3e-5 if fope else 1e-6)


def _norms(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.hypot(a, b).repeat(*(1,) * (x.dim() - 1), 2)


def test_bfloat16_keys_are_as_exact_as_the_guide_says() -> None:
    """In units of the last place of a pair's norm: half a one each time that a key is rounded, the first one rotated.

    Kept in float32 they are rounded once more however often they move; mapped in float32 too, as a forward pass does.
    """
    text = Raw(*(x.to(torch.bfloat16) for x in raw(40)))
    where = ww.Where(ww.Rotary(HEAD_DIM))

    def errors(shifts: int, dtype: torch.dtype | None, mapped: torch.dtype = torch.bfloat16) -> tuple[float, float]:
        """Return the distances from exact keys, and from those that a forward pass puts there."""
        cache = filled(where, text._replace(k=text.k.to(mapped)), keys_dtype=dtype)
        for _ in range(shifts):
            cache.shift(1)
        assert cache.k.dtype == torch.bfloat16
        here = where.at(ww.positions(40, start=shifts))
        exact, fresh = (here.query_key(text.q.to(x), text.k.to(x))[1].double() for x in (torch.float64, torch.bfloat16))
        unit = 2.0 ** (_norms(exact).log2().floor() - 7)
        return float(((cache.k - exact).abs() / unit).amax()), float(((cache.k - fresh).abs() / unit).amax())

    assert errors(0, None)[0] <= 0.5
    assert errors(1, None)[0] <= 0.5 + 0.5**0.5
    assert errors(300, None)[0] > 5
    assert errors(300, torch.float32)[0] <= 0.5 + 0.5**0.5
    exact, fresh = errors(300, torch.float32, mapped=torch.float32)
    assert exact <= 0.501
    assert fresh <= 1


def test_a_step_writes_into_room_that_is_there() -> None:
    text, where = raw(), ww.Where(ww.Rotary(HEAD_DIM))
    cache = filled(where, text.at(slice(4)), capacity=T)
    address = cache.k.data_ptr()
    for t in range(4, T):
        put(cache, text.at(slice(t, t + 1)))
    assert cache.k.data_ptr() == address
    close(cache, text, ww.positions(T))
    put(cache, raw(1, seed=9))  # beyond the capacity
    assert cache.tokens == T + 1
    address = cache.k.data_ptr()
    assert {cache.fork().tokens, cache[:].tokens, where.cache().paste(cache).tokens} == {T + 1}
    put(cache, raw(1, seed=9))  # what was read of it are copies
    assert cache.k.data_ptr() == address


OTHERS: dict[str, Callable[[ww.KVCache], ww.KVCache]] = {
    "fork": lambda cache: cache.fork(),
    "slice": lambda cache: cache[:6],
    "paste": lambda cache: cache.where.cache().paste(cache),
    "copy": copy,
    "deepcopy": deepcopy,
}


@pytest.mark.parametrize("capacity", [0, 20])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", OTHERS)
def test_nothing_that_was_given_or_that_another_cache_holds_is_written_to(name: str, first: int, capacity: int) -> None:
    text, where = raw(), ww.Where(ww.Rotary(HEAD_DIM))
    here = where.at(T)
    k, cache = here.query_key(text.q, text.k)[1], where.cache(capacity=capacity)
    cache.append(here, k, text.v)
    given, pair = (k.clone(), text.v.clone()), (cache, OTHERS[name](cache))
    for writer, other in (pair[:: -1 if first else 1], pair[:: 1 if first else -1]) * 2:
        kept = other.k.clone(), other.v.clone()
        put(writer.crop(3), raw(3, seed=5))
        assert torch.equal(other.k, kept[0])
        assert torch.equal(other.v, kept[1])
    assert torch.equal(k, given[0])
    assert torch.equal(text.v, given[1])


def test_gradients_flow_through_a_cache() -> None:
    text, where = raw(6), ww.Where(ww.Rotary(HEAD_DIM))
    k = text.k.clone().requires_grad_()
    first, last = text._replace(k=k).at(slice(5)), text.at(slice(5, 6))
    cache = filled(where, first)
    put(cache, last).sum().backward()
    again = text.k.clone().requires_grad_()
    in_one_pass(where, text._replace(k=again)).sum().backward()
    assert k.grad is not None
    assert again.grad is not None
    same(k.grad[:, :, :5], again.grad[:, :, :5])


def test_inference_mode_and_other_modes_may_alternate() -> None:
    text, where = raw(4), ww.Where(ww.Rotary(HEAD_DIM))
    cache = where.cache()
    for t in range(4):
        with torch.inference_mode(t % 2 == 0):
            put(cache, text.at(slice(t, t + 1)))
    with torch.no_grad():
        close(cache, text, ww.positions(4))


@pytest.mark.compile
@pytest.mark.parametrize("capacity", [0, 12])
@pytest.mark.parametrize("inferred", [True, False])
@pytest.mark.parametrize(("backend", "forked"), [("aot_eager", False), ("eager", False), ("eager", True)])
def test_steps_of_decoding_are_one_graph(backend: str, forked: bool, inferred: bool, capacity: int) -> None:
    where, text = ww.Where(ww.Rotary(HEAD_DIM), ww.ALiBi(HEADS), window=5), raw()
    cache = where.cache(capacity=capacity)
    with torch.inference_mode(inferred):
        put(cache, text.at(slice(8 if forked else 6)))
        cache = cache.fork().crop(6) if forked else cache

    def step(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        here = cache.at(1)
        q, k = here.query_key(q, k)
        y: Tensor = here.attention(q, *cache.append(here, k, v))
        return y

    compiled, graphs = torch.compile(step, fullgraph=True, backend=backend), counters["stats"]["unique_graphs"]
    with torch.no_grad():
        found = [compiled(*text.at(slice(t, t + 1))[1:]) for t in range(6, T)]
        same(torch.cat(found, 2), in_one_pass(where, text, T - 6))
        close(cache, text, ww.positions(T))
    assert counters["stats"]["unique_graphs"] - graphs <= 3  # not one for each length


# The public situations.


def images(n: int = 1) -> ww.Positions:
    types = torch.tensor([0, 0, 1, 1, 1, 1, 0, 0, 0] + [0] * n)
    return ww.Positions.multimodal(types, image_grids=torch.tensor([[1, 4, 4]]))


@pytest.mark.parametrize(
    ("a", "b", "left"),
    [
        (6, 8, [[0, 1, 2, 2, 2, 2, 4, 5], [0, 1, 2, 2, 3, 3, 4, 5], [0, 1, 2, 3, 2, 3, 4, 5]]),  # text behind an image
        (2, 6, [[0, 1, 2, 3, 4, 5]] * 3),  # an image
        (1, 7, [[0, 1, 2, 3]] * 3),  # with text around it
        # Of an image its first row is left.
        (4, 7, [[0, 1, 2, 2, 4, 5, 6], [0, 1, 2, 2, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6]]),
    ],
)
def test_a_context_shift_with_images(a: int, b: int, left: list[list[int]]) -> None:
    """M-RoPE: what follows begins where the dropped tokens began, or behind what is left of an image, on all axes."""
    where = ww.Where(ww.MultimodalRotary(HEAD_DIM, (2, 3, 3)))
    text, p = raw(10), images()
    cache = filled(where, text, p).drop(a, b)
    expected = ww.Positions.from_coordinates(torch.tensor(left)[:, None])
    assert torch.equal(cache.positions.index, expected.index)
    is_mapped(cache, text.at([*range(a), *range(b, 10)]), expected)
    assert cache.next().index.flatten().tolist() == [max(max(row) for row in left) + 1] * 3


def test_axes_are_shifted_each_by_its_own_number() -> None:
    where = ww.Where(ww.AxialRotary(HEAD_DIM))
    text, p = raw(6), ww.Positions.grid(2, 3)
    cache = filled(where, text, p).shift([3, 5])
    is_mapped(cache, text, ww.Positions.from_coordinates(p.index + torch.tensor([3, 5])[:, None, None]))


def test_a_sliding_cache_with_sinks() -> None:
    """Both kinds: positions as they were, with a window that keeps the first; and positions within the cache."""
    where, text = ww.Where(ww.Rotary(HEAD_DIM), window=ww.Window(4, first=2)), raw(30)
    cache = where.cache()
    outputs = [put(cache.forget() if t else cache, text.at(slice(t, t + 1))) for t in range(30)]
    assert cache.tokens == 6
    same(torch.cat(outputs, 2), in_one_pass(where, text, 30))

    plain = ww.Where(ww.Rotary(HEAD_DIM))
    cache = plain.cache(keys_dtype=torch.float32)
    for t in range(30):
        put(cache.drop(2, 3) if cache.tokens == 8 else cache, text.at(slice(t, t + 1)))
    close(cache, text.at([0, 1, *range(24, 30)]), ww.positions(8), allowed=3e-6)


def test_prefixes_are_joined_at_new_offsets() -> None:
    where = ww.Where(ww.Rotary(HEAD_DIM), ww.ALiBi(HEADS))
    texts = [raw(n, 1, seed=10 * n) for n in (4, 6, 3)]
    chunks = [filled(where, text) for text in texts]
    joined, whole = where.cache(), texts[0].then(texts[1]).then(texts[2])
    for chunk in chunks:
        joined.paste(chunk)
    close(joined, whole, ww.positions(13))
    assert [chunk.positions.start for chunk in chunks] == [0, 0, 0]
    apart = where.cache().paste(chunks[0], at=5).paste(chunks[1], at=100)
    p = ww.Positions.from_position_ids(torch.tensor([*range(5, 9), *range(100, 106)]))
    is_mapped(apart, texts[0].then(texts[1]), p)
    rows = filled(where, raw(5), ww.Positions.from_mask(torch.tensor([[0, 0, 1, 1, 1], [1] * 5])))
    rows.paste(chunks[1])  # one prefix behind texts of different lengths
    assert rows.next().index.flatten().tolist() == [9, 11]


def test_rejected_drafts_in_a_rotating_cache() -> None:
    """A window of 4: five drafts are read, two accepted, and nothing that the next query sees has been forgotten."""
    where, text = ww.Where(ww.Rotary(HEAD_DIM), window=4), raw(12)
    cache, drafts = filled(where, text.at(slice(8))).forget(), raw(5, seed=70)
    put(cache, text.at(slice(8, 10)).then(drafts.at(slice(2, 5))))
    cache.crop(-3).forget()
    same(put(cache, text.at(slice(10, 12))), in_one_pass(where, text, 2))

    spared = filled(where, text.at(slice(10))).forget(spare=2)
    assert spared.tokens == 5
    assert torch.equal(spared.crop(-2).positions.index, ww.positions(3, start=5).index)
    with pytest.raises(PositionError, match=r"go back to slot 3\.\nForget less"):
        spared.crop(2)
    with pytest.raises(PositionError, match="forgotten"):
        spared[:1]
    with pytest.raises(SettingError, match="drop would bring keys into the window"):
        spared.drop(0, 1)


PARENTS = [-1, 0, 0, 1, 1, 2, -1]


@pytest.mark.parametrize("window", [None, 3])
def test_one_call_verifies_a_tree_of_drafts(window: int | None) -> None:
    """Each draft sees what it would see in a text with its ancestors alone."""
    where, text, drafts = ww.Where(ww.Rotary(HEAD_DIM), ww.ALiBi(HEADS), window=window), raw(5), raw(7, seed=80)
    cache = filled(where, text)
    step, mask = cache.tree(torch.tensor(PARENTS))
    assert step.index.flatten().tolist() == [5, 6, 6, 7, 7, 7, 5]
    ys = put(cache, drafts, step, mask=mask)
    for leaf in range(7):
        path, at = [leaf], leaf
        while (at := PARENTS[at]) >= 0:
            path.insert(0, at)
        same(ys[:, :, leaf : leaf + 1], in_one_pass(where, text.then(drafts.at(path))))
    accepted = cache.fork().crop(5, torch.tensor([0, 2, 5]))
    close_to = text.then(drafts.at([0, 2, 5]))
    if window is None:
        close(accepted, close_to, ww.positions(8))
    rows = cache.crop(5, torch.tensor([[0, 1, 3], [6, -1, -1]]))
    assert rows.next().index.flatten().tolist() == [8, 6]
    later = raw(1, seed=90)
    y = put(rows, later)
    for row, path in enumerate(([0, 1, 3], [6])):
        same(y[row : row + 1], in_one_pass(where, text.then(drafts.at(path)).then(later))[row : row + 1])


LONG = ww.scaling.LongRoPE((1.0,) * 8, tuple(1.0 + n for n in range(8)), original_length=8, factor=4.0)


@pytest.mark.parametrize("scaling", [LONG, ww.scaling.DynamicNTK(2.0, 8)], ids=["longrope", "dynamic"])
@pytest.mark.parametrize(
    "then", [lambda rope: rope, lambda rope: ww.SSMax(HEAD_DIM, HEADS, then=rope)], ids=["", "then"]
)
def test_the_trained_length_is_crossed_during_decoding(
    scaling: Any, then: Callable[[ww.Rotary], ww.QueryKeyMap]
) -> None:
    """It warns once, and names the way out, which then gives what a forward pass of the longer text computes."""
    where, text = ww.Where(then(ww.Rotary(HEAD_DIM, scaling=scaling))), raw(11)
    cache = filled(where, text.at(slice(7)))
    put(cache, text.at(slice(7, 8)))
    with pytest.warns(
        RegimeWarning, match=r"trained on 8 tokens.*\n.*cache\.regime\(n\) and cache\.at\(step\)"
    ) as said:
        put(cache, text.at(slice(8, 9)))
    assert len(said) == 1
    put(cache, text.at(slice(9, 10)))  # no second time
    cache.regime(11)
    close(cache, text.at(slice(10)), ww.positions(10))
    y = put(cache, text.at(slice(10, 11)))
    here = where.at(11, regime_length=11)
    expected = here.attention(*here.query_key(text.q, text.k), text.v)[:, :, 10:]
    same(y, expected, 2e-5)
    is_mapped(cache.regime(), text, ww.positions(11))


def test_texts_of_one_regime_do_not_warn() -> None:
    text = raw(20, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scaling in (LONG, ww.scaling.YaRN(4.0, 8)):
            where = ww.Where(ww.Rotary(HEAD_DIM, scaling=scaling))
            cache = filled(where, text.at(slice(12)))  # beyond it from the start
            put(cache, text.at(slice(12, 13)))
            put(filled(where, text.at(slice(4))), text.at(slice(4, 8)))  # up to it
            put(filled(where, text.at(slice(4)), regime_length=20), text.at(slice(4, 20)))  # stated
    dynamic = ww.Where(ww.Rotary(HEAD_DIM, scaling=ww.scaling.DynamicNTK(2.0, 8)))
    cache = filled(dynamic, text.at(slice(12)))
    with pytest.warns(RegimeWarning):  # whose frequencies change with each token
        put(cache, text.at(slice(12, 13)))


@pytest.mark.parametrize("score", [None, ww.ALiBi(HEADS), ww.FoX(DIM, HEADS)], ids=["", "alibi", "fox"])
@pytest.mark.parametrize("window", [None, 4])
def test_left_padded_rows_that_end_at_different_steps(score: ww.ScoreBias | None, window: int | None) -> None:
    """Each row computes what it computes alone, whether the ended one is padded from there on or taken out."""
    where = ww.Where(query_key=ww.Rotary(HEAD_DIM), score=score, window=window)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    lengths, prompt = (3, 6), raw(6)
    cache = filled(where, prompt, ww.Positions.from_mask(mask))
    texts = [Raw(*(x[row : row + 1] for x in prompt)).at(slice(6 - n, 6)) for row, n in enumerate(lengths)]
    for t in range(5):
        step = raw(1, seed=100 + t)
        if t == 2:
            cache.crop(torch.tensor([7, 8]))  # row 0 had ended one token before
        if t == 3:
            cache.select([1]).forget()
            assert cache.tokens <= (9 if window is None else 3)
        rows = [0, 1] if t < 3 else [1]
        y = put(cache, Raw(*(x[rows] for x in step)))
        for at, row in enumerate(rows):
            new = Raw(*(x[row : row + 1] for x in step))
            texts[row] = (texts[row].at(slice(-1)) if (t, row) == (2, 0) else texts[row]).then(new)
            same(y[at : at + 1], in_one_pass(where, texts[row]))


def test_padding_that_all_rows_have_is_forgotten() -> None:
    mask = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])
    where, text = ww.Where(ww.Rotary(HEAD_DIM)), raw(5)
    cache = filled(where, text, ww.Positions.from_mask(mask)).forget()
    assert cache.tokens == 3
    assert cache.next().index.flatten().tolist() == [2, 3]


def test_packed_documents_close_up_each_by_itself() -> None:
    where, text = ww.Where(ww.Rotary(HEAD_DIM)), raw(9)
    cache = filled(where, text, ww.Positions.packed([5, 4])).drop(3, 6)
    assert cache.positions.index.flatten().tolist() == [0, 1, 2, 0, 1, 2]
    close(cache, text.at([0, 1, 2, 6, 7, 8]), ww.Positions.packed([3, 3]))


def test_rows_are_dropped_and_shifted_each_by_its_own_tokens() -> None:
    """Slots 1 to 3: of the padded row one token, of the other two."""
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    where, text = ww.Where(ww.Rotary(HEAD_DIM)), raw(6)
    cache = filled(where, text, ww.Positions.from_mask(mask)).drop(1, 3)
    assert cache.positions.index[0].tolist() == [[0, 0, 1, 2], [0, 1, 2, 3]]
    kept = [0, 3, 4, 5]
    close(cache, text.at(kept), ww.Positions.from_mask(mask[:, kept]))
    cache.shift(torch.tensor([2, 7])).shift(torch.tensor([-2, -7]))
    close(cache, text.at(kept), ww.Positions.from_mask(mask[:, kept]))
    with pytest.raises(PositionError, match="negative"):
        cache.shift(-1)


class Scaled(ww.QueryKeyMap):
    """A map of one's own that has no rerotate."""

    head_dim = HEAD_DIM

    def bind(self, positions: ww.Positions, lengths: Any = None) -> tuple[Tensor, ...]:
        return (1.0 + positions.index[0][:, None, :, None],)

    def map_query(self, q: Tensor, bound: tuple[Tensor, ...]) -> Tensor:
        return q * bound[0]

    def map_key(self, k: Tensor, bound: tuple[Tensor, ...]) -> Tensor:
        return k / bound[0]


def _other_rows(c: ww.KVCache, t: Raw) -> None:
    step, fork = t.at(slice(1)), c.fork()
    put(fork, step)
    put(fork, step)
    put(fork.select([1]), step)


def _without_gates(c: ww.KVCache, t: Raw) -> None:
    gated = ww.Where(c.where.query_key, ww.FoX(DIM, HEADS)).cache()
    for n in (T, 1, 1):
        step = t.at(slice(n))
        put(gated, step)
    gated.append(1, step.k, step.v)


def _refusals() -> dict[str, tuple[type[Exception], str, Callable[[ww.KVCache, Raw], object]]]:
    rope = ww.Where(ww.Rotary(HEAD_DIM))
    return {
        "capacity": (SettingError, "capacity=-1", lambda c, t: rope.cache(capacity=-1)),
        "dtype of keys": (SettingError, "keys_dtype=torch.int32", lambda c, t: rope.cache(keys_dtype=torch.int32)),
        "empty": (ShapeError, "this cache is empty", lambda c, t: rope.cache().k),
        "crop": (PositionError, "crop got n=13, but needs a number of the 12 slots", lambda c, t: c.crop(13)),
        "crop below": (PositionError, "crop got n=-13", lambda c, t: c.crop(-13)),
        "crop rows": (PositionError, "one for each of 2 sequences", lambda c, t: c.crop(torch.tensor([1, 2, 3]))),
        "drafts": (PositionError, "behind slot 10 there are 2", lambda c, t: c.crop(10, torch.tensor([2]))),
        "spare": (PositionError, "forget got spare=13", lambda c, t: c.forget(13)),
        "axes": (ShapeError, "one for each of 1 axes", lambda c, t: c.shift([1, 2])),
        "half": (ShapeError, "a whole number", lambda c, t: c.shift(torch.tensor(0.5))),
        "index": (PositionError, "sliced along tokens", lambda c, t: c[torch.tensor(3)]),
        "other scheme": (
            SettingError, "paste got a cache of XPos", lambda c, t: c.paste(filled(ww.Where(ww.XPos(HEAD_DIM)), t)),
        ),
        "documents": (
            PositionError, "several.\nPaste slices",
            lambda c, t: c.paste(filled(c.where, t, ww.Positions.packed([6, 6]))),
        ),
        "batch": (ShapeError, "and the cache has", lambda c, t: c.paste(filled(c.where, raw(2, 3)))),
        "tokens": (ShapeError, "14 keys were bound, but the cache has 12", lambda c, t: c.append(
            rope.at(ww.positions(1, start=13), 14), t.k[:, :, :1], t.v[:, :, :1])),
        "shape": (ShapeError, "v has shape", lambda c, t: c.append(1, t.k[:, :, :1], t.v[:, :, :2])),
        "rows": (ShapeError, "k has shape (2, ", _other_rows),
        "dtype": (SettingError, "float32.\nPass k.to(torch.float32)", lambda c, t: c.append(
            1, t.k[:, :, :1].bfloat16(), t.v[:, :, :1])),
        "earlier": (PositionError, "must be later", lambda c, t: c.append(
            ww.positions(1), t.k[:, :, :1], t.v[:, :, :1])),
        "gates": (SettingError, "needs gates, k, v of each token, but got k, v", lambda c, t: ww.Where(
            ww.FoX(DIM, HEADS)).cache().append(T, t.k, t.v)),
        "gates once": (SettingError, "needs gates, k, v of each token, but got k, v", _without_gates),
        "needless gates": (SettingError, "but got gates, k, v", lambda c, t: c.append(
            1, t.k[:, :, :1], t.v[:, :, :1], gates=t.x[:, None, :1])),
        "own map": (SettingError, "Scaled has no rerotate", lambda c, t: filled(ww.Where(Scaled()), t).shift(1)),
        "regime": (ShapeError, "regime", lambda c, t: c.regime(0)),
    }  # fmt: skip


@pytest.mark.parametrize("name", _refusals())
@pytest.mark.usefixtures("our_own_checks")
def test_what_does_not_fit_is_refused_and_changes_nothing(name: str) -> None:
    text = raw()
    cache = filled(ww.Where(ww.Rotary(HEAD_DIM)), text)
    before = cache.k.clone()
    kind, words, act = _refusals()[name]
    with pytest.raises(kind) as caught:
        act(cache, text)
    assert words in str(caught.value)
    assert torch.equal(cache.k, before)
    assert cache.tokens == T


def test_a_key_that_fope_has_shrunk_to_nothing_stays_where_it_is() -> None:
    rope = ww.FoPE(HEAD_DIM, original_length=100, gain=0.0)
    with torch.no_grad():
        rope.cosines.zero_()
        rope.sines.zero_()
    cache = filled(ww.Where(rope), raw())
    with pytest.raises(SettingError, match=r"FoPE has shrunk pair 0 of the key in slot 0"):
        cache.shift(1)


def test_positions_that_do_not_count_on_are_the_callers() -> None:
    where, text = ww.Where(ww.Rotary(HEAD_DIM), window=3), raw(6)
    p = ww.Positions.randomized(6, 50, generator=torch.Generator().manual_seed(0))
    cache = filled(where, text, p).forget()
    assert cache.tokens == 2
    other = filled(where, text).forget()
    for unknown in (cache, other.paste(cache, at=60)):
        with pytest.raises(PositionError, match="do not count on by 1"):
            unknown.next()


ODD = torch.tensor([0, 2, 4, 6, 8, 10])


@pytest.mark.parametrize(
    ("own", "other", "forgetful", "at", "following"),
    [
        (6, 6, "own", 6, 12),
        (6, 6, "other", 6, 8),  # the two keys that it still has, right behind
        (6, 6, "other", 100, 102),  # or as far behind as what it has forgotten
        (6, 6, "both", 100, 102),
        (ODD, 6, "other", 11, None),
        (6, ODD, "own", 6, None),
        (6, 6, "own", 100, 106),
        (6, 6, "neither", 100, 106),
        (ODD, 6, "neither", 100, None),
        (6, ODD, "neither", 100, None),
        (6, 6, "own", 0, None),
        (6, 6, "other", 0, None),
        (6, 6, "neither", 0, None),
    ],
)
def test_the_next_position_behind_a_paste_is_known_as_without_forgotten_keys(
    own: Any, other: Any, forgetful: str, at: int, following: int | None
) -> None:
    where = ww.Where(ww.Rotary(HEAD_DIM), window=3)
    a, b = filled(where, raw(6), own), filled(where, raw(6), other)
    for name, cache in (("own", a), ("other", b)):
        if forgetful in (name, "both"):
            cache.forget()
    a.paste(b, at=at)
    if following is not None:
        assert a.next().index.unique().tolist() == [following]
        put(a, raw(2))
        assert a.fork([1]).shift(3).next().index.tolist() == [[[following + 5]]]
        assert a.paste(filled(where, raw(2))).next().index.unique().tolist() == [following + 4]
        if forgetful == "neither":
            assert a.crop(-5).next().index.unique().tolist() == [following - 1]
        return
    for start in (200, 201):
        with pytest.raises(PositionError, match="do not count on by 1"):
            a.next()
        put(a, raw(1), ww.positions(1, start=start))  # one that is stated says nothing of later ones


def test_a_paste_that_is_cropped_away_leaves_no_trace() -> None:
    where = ww.Where(ww.Rotary(HEAD_DIM), window=3)
    for at in (2, 100):  # among the tokens, and beyond them
        a = filled(where, raw(4)).paste(filled(where, raw(3)), at=at)
        assert a[:4].next().index.unique().tolist() == a.fork()[:3].shift(1).next().index.unique().tolist() == [4]
        assert a.fork().drop(4, 7).next().index.unique().tolist() == [4]
        put(a.crop(4), raw(1))
        assert a.next().index.unique().tolist() == [5]
        put(a, raw(1), ww.positions(1, start=40))
        with pytest.raises(PositionError, match="do not count on by 1"):
            a.next()
    gone = filled(where, raw(8)).forget()  # positions 6 and 7
    gone.paste(filled(where, raw(3)), at=5)
    for unknown in (gone, gone[1:], gone[:3]):
        with pytest.raises(PositionError, match="do not count on by 1"):
            unknown.next()
    put(gone.crop(2), raw(1))
    assert gone.next().index.unique().tolist() == [9]


@pytest.mark.parametrize(
    "step", [ww.positions(1, start=40), ww.Positions.from_coordinates(torch.tensor([1, 2]), order=torch.tensor([7, 8]))]
)
def test_positions_behind_a_paste_at_the_end_have_to_count_on(step: ww.Positions) -> None:
    where = ww.Where(ww.Rotary(HEAD_DIM))
    a = filled(where, raw(4)).paste(filled(where, raw(3)), at=4)
    assert a.next().index.unique().tolist() == [7]
    put(a, raw(step.tokens), step)
    with pytest.raises(PositionError, match="do not count on by 1"):
        a.next()


def test_a_cache_is_pasted_into_itself_and_may_begin_with_nothing() -> None:
    where, text = ww.Where(ww.Rotary(HEAD_DIM, scaling=ww.scaling.DynamicNTK(2.0, 8))), raw(4)
    cache = filled(where, text)
    assert cache.paste(cache).regime(40).k.shape[2] == 8
    empty = where.cache(capacity=8)
    empty.append(ww.positions(0), text.k[:, :, :0], text.v[:, :, :0])
    put(empty, text)
    assert torch.equal(empty.k, filled(where, text).k)


def test_pasted_keys_have_the_dtype_of_those_that_are_there() -> None:
    where, text = ww.Where(ww.Rotary(HEAD_DIM)), raw(4)
    cache, other = where.cache(), where.cache()
    cache.append(4, text.k, text.v.bfloat16())
    other.append(4, text.k.bfloat16(), text.v.bfloat16())
    assert cache.paste(other).k.dtype == torch.float32


def test_what_a_whole_model_makes_of_an_operation() -> None:
    """Two layers: a shift is exact; a drop, a second paste or another regime is not, as the second layer shows."""
    where, text = ww.Where(ww.Rotary(HEAD_DIM)), draw(1, T, DIM)
    weights = [draw(3, DIM, DIM, seed=n) * DIM**-0.5 for n in (1, 2)]

    def read(x: Tensor, caches: list[ww.KVCache]) -> Tensor:
        for (a, b, c), cache in zip(weights, caches, strict=True):
            q, k, v = ((x @ w).unflatten(-1, (HEADS, -1)).transpose(1, 2) for w in (a, b, c))
            here = cache.at(x.shape[1])
            q, k = here.query_key(q, k)
            x = x + here.attention(q, *cache.append(here, k, v)).transpose(1, 2).flatten(2)
        return x

    def after(*parts: Tensor, where: ww.Where = where, length: int | None = None) -> list[ww.KVCache]:
        caches = [where.cache(regime_length=length), where.cache(regime_length=length)]
        for part in parts:
            read(part, caches)
        return caches

    def distance(changed: list[ww.KVCache], fresh: list[ww.KVCache]) -> list[float]:
        last = draw(1, 1, DIM, seed=8)
        y, z = read(last, changed), read(last, fresh)
        layers = [float((a.k - b.k).abs().amax()) for a, b in zip(changed, fresh, strict=True) if a.tokens == b.tokens]
        return [*layers, float((y - z).abs().amax())]

    kept = torch.cat([text[:, :3], text[:, 7:]], 1)
    shifted = [cache.shift(50) for cache in after(text)]
    y, z = read(kept[:, :1], shifted), read(kept[:, :1], after(text))
    assert (y - z).abs().max() < 1e-5
    first, second, end = distance([cache.drop(3, 7) for cache in after(text)], after(kept))
    assert first < 1e-5 < 0.1 < min(second, end)
    one, two = after(text[:, :6]), after(text[:, 6:])
    first, second, end = distance([a.paste(b) for a, b in zip(one, two, strict=True)], after(text))
    assert first < 1e-5 < 0.1 < min(second, end)
    dynamic = ww.Where(ww.Rotary(HEAD_DIM, scaling=ww.scaling.DynamicNTK(2.0, 8)))
    stated = after(text[:, :8], where=dynamic, length=40)
    first, second, end = distance([cache.regime(40) for cache in after(text[:, :8], where=dynamic)], stated)
    assert first < 1e-5 < 0.01 < min(second, end)
    alone = [where.cache().paste(cache, at=30) for cache in after(text)]
    y, z = read(kept[:, :1], alone), read(kept[:, :1], after(text))
    assert (y - z).abs().max() < 1e-5
