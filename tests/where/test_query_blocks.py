"""A large table is made by blocks of query rows: the same numbers, whatever the scheme and the positions."""

import jaxtyping
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import whatwhere as ww
from whatwhere.where import attention

TOKENS, HEADS, KEY_HEADS, HEAD_DIM = 23, 4, 2, 16
SCHEMES = [name for name, row in ww.catalogue.items() if row.door == "score"]
RULERS = {
    "plain": lambda: ww.positions(TOKENS),
    "packed": lambda: ww.Positions.packed([9, 1, 13]),
    "left padding": lambda: ww.Positions.from_mask(torch.arange(TOKENS) >= torch.tensor([[0], [6]])),
}


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """Make pieces of some rows; note how many queries each is for."""
    queries: list[int] = []
    real = attention.tabulate

    def watched(element, batch, heads, rows, keys, device, first):
        queries.append(rows)
        return real(element, batch, heads, rows, keys, device, first)

    monkeypatch.setattr(attention, "_MAX_TABLE", 1)
    monkeypatch.setattr(attention, "_CHUNK", 7 * HEADS * TOKENS)
    monkeypatch.setattr(attention, "tabulate", watched)
    return queries


def drawn(tokens: int = TOKENS) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(2, n, tokens, HEAD_DIM, generator=g, requires_grad=True) for n in (HEADS, KEY_HEADS, KEY_HEADS)]


def gates_of(where: ww.Where, p: ww.Positions) -> Tensor | None:
    x = torch.randn(2, p.tokens, HEADS * HEAD_DIM, generator=torch.Generator().manual_seed(1))
    return where.at(p).gates(x)


@pytest.mark.parametrize("ruler", RULERS)
@pytest.mark.parametrize("name", [*SCHEMES, "none"])
def test_pieces_give_the_numbers_of_the_formula(name, ruler, asked):
    p, where = RULERS[ruler](), ww.scheme(name, dim=HEADS * HEAD_DIM, num_heads=HEADS, max_length=TOKENS)
    for weight in where.parameters():
        torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(2))
    q, k, v = drawn()
    leaves = [q, k, v, *where.parameters()]
    upstream = torch.randn(2, HEADS, TOKENS, HEAD_DIM, generator=torch.Generator().manual_seed(3))
    found = []
    for engine in ("sdpa", "dense"):
        y = where.at(p).attention(q, k, v, gates=gates_of(where, p), engine=engine)
        # What padding looks at is nobody's business.
        g = upstream if p.segment is None else upstream.masked_fill(p.segment[:, None, :, None] < 0, 0)
        found.append([y, *torch.autograd.grad(y, leaves, g, allow_unused=True)])
    assert bool(asked) == (name != "none" or ruler != "plain")
    assert max(asked, default=0) <= 7 * 2  # packed positions are alike for both sequences: twice as many rows
    for one, other in zip(*found, strict=True):
        if one is not None or other is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)


def test_pieces_while_decoding_and_with_a_mask_of_ones_own(asked):
    q, k, v = drawn()
    p, where = ww.positions(TOKENS), ww.Where(score=ww.ALiBi(HEADS))
    window = torch.ones(2, 1, TOKENS, TOKENS, dtype=torch.bool).triu(-3)
    window[1, 0, 5] = False  # a query that may look at nothing
    whole, by_parts = (where.at(p).attention(q, k, v, mask=window, engine=engine) for engine in ("dense", "sdpa"))
    torch.testing.assert_close(by_parts, whole, rtol=0, atol=1e-5)
    assert not by_parts[1, :, 5].any()
    last = where.at(p[-9:], p).attention(q[:, :, -9:], k, v, mask=window[:, :, -9:])
    torch.testing.assert_close(last, whole[:, :, -9:], rtol=0, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(where.at(p).attention(q, k, v, mask=window), whole, rtol=0, atol=1e-5)
    assert asked


def test_backward_drops_what_forward_dropped(asked):
    """The gradient of v is the weights that were kept, which the output tells where v is one at one key."""
    q, k, _ = drawn()
    v = torch.zeros(2, KEY_HEADS, TOKENS, HEAD_DIM)
    v[:, :, :HEAD_DIM] = torch.eye(HEAD_DIM)
    v.requires_grad_()
    here = ww.Where(score=ww.ALiBi(HEADS)).at(ww.Positions.packed([TOKENS - 1, 1]))
    weights = here.attention(q, k, v, dropout=0.5)  # (..., query, key), of the first 16 keys
    assert bool((weights[:, :, 15:-1] == 0).any())
    (g,) = torch.autograd.grad(weights.sum(), v)
    of_groups = weights.sum(2).unflatten(1, (KEY_HEADS, -1)).sum(2)
    torch.testing.assert_close(g[:, :, :HEAD_DIM, 0], of_groups)
    assert asked


@pytest.mark.parametrize("start", [0, 1000])
def test_fire_counts_from_where_the_text_begins(start, asked):
    q, k, v = drawn()
    where = ww.Where(score=ww.FIRE(HEADS, threshold=40.0))
    leaves = [q, k, v, *where.parameters()]
    found = []
    for engine in ("sdpa", "dense"):
        y = where.at(ww.positions(TOKENS, start=start)).attention(q, k, v, engine=engine)
        found.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)
    assert asked


class Largest(TorchDispatchMode):
    """Note the size of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


@pytest.mark.parametrize("scheme", [lambda: ww.FIRE(1), lambda: ww.KERPLE(1), lambda: ww.FoX(HEAD_DIM, 1)])
@pytest.mark.parametrize("p", [ww.positions(2200), ww.Positions.packed([1200, 1000])], ids=["plain", "packed"])
def test_no_table_is_held(scheme, p, monkeypatch):
    """Nothing of the size of tokens x tokens, forward and backward; the dense formula holds it."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    monkeypatch.setattr(attention, "_MIN_BLOCKWISE", 1 << 20)
    where = ww.Where(score=scheme())
    q, k, v = (torch.randn(1, 1, 2200, HEAD_DIM, requires_grad=True) for _ in range(3))
    gates = where.at(p).gates(torch.randn(1, 2200, HEAD_DIM))
    sizes = []
    for engine in ("sdpa", "dense"):
        with Largest() as seen:
            where.at(p).attention(q, k, v, gates=gates, engine=engine).sum().backward(retain_graph=True)
        sizes.append(seen.numbers)
    assert sizes[0] < 2200 * 2200 / 2 <= sizes[1]


def test_a_table_of_few_numbers_is_made_once_for_all_layers():
    q, k, v = drawn()
    bias = ww.FIRE(HEADS)
    evaluated = []
    real = bias.bind

    def bind(*positions, **content):
        element = real(*positions, **content)
        return lambda *at: evaluated.append(1) or element(*at)

    bias.bind = bind
    for here in ww.bind([ww.Where(score=bias)] * 3, ww.positions(TOKENS)):
        here.attention(q, k, v)
    assert len(evaluated) == 1


def test_the_size_of_a_table():
    q, _, _ = drawn()
    scores = attention.Scores(lambda b, h, i, j: b, None, False, lambda dtype: None, batch=2)
    assert scores.numbers(q, q) == 2 * HEADS * TOKENS * TOKENS
    assert attention.Scores(None, None, False, lambda dtype: None).numbers(q, q) == 0
