"""A table that would be vast is made in pieces: the same numbers, whatever the scheme and wherever tokens stand."""

import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere import attention

TOKENS, HEADS, KEY_HEADS, HEAD_DIM = 23, 4, 2, 16
SCHEMES = [name for name, row in ww.catalogue.items() if row.door == "score"]
RULERS = {
    "plain": lambda: ww.positions(TOKENS),
    "packed": lambda: ww.packed([9, 1, 13]),
    "left padding": lambda: ww.from_mask(torch.arange(TOKENS) >= torch.tensor([[0], [6]])),
}


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """Make pieces of some rows; note how many queries each is for."""
    queries: list[int] = []
    real = attention.tabulate

    def watched(element, batch, heads, rows, keys, device, first):
        queries.append(rows)
        return real(element, batch, heads, rows, keys, device, first)

    monkeypatch.setattr(attention, "_MANY", 1)
    monkeypatch.setattr(attention, "_PIECE", 7 * HEADS * TOKENS)
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
    here = ww.Where(score=ww.ALiBi(HEADS)).at(ww.packed([TOKENS - 1, 1]))
    weights = here.attention(q, k, v, dropout=0.5)  # (..., query, key), of the first 16 keys
    assert bool((weights[:, :, 15:-1] == 0).any())
    (g,) = torch.autograd.grad(weights.sum(), v)
    of_groups = weights.sum(2).unflatten(1, (KEY_HEADS, -1)).sum(2)
    torch.testing.assert_close(g[:, :, :HEAD_DIM, 0], of_groups)
    assert asked


def test_nothing_is_made_in_pieces_below_a_gigabyte():
    q, _, _ = drawn()
    scores = attention.Scores(lambda b, h, i, j: b, None, False, lambda dtype: None, batch=2)
    assert scores.numbers(q, q) == 2 * HEADS * TOKENS * TOKENS
    assert attention.Scores(None, None, False, lambda dtype: None).numbers(q, q) == 0
