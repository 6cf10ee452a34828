"""A large table of scores is computed by blocks of queries: the same numbers, for every scheme and positions."""

import jaxtyping
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.where import attention

from ..attention import LargestTensor, queries_keys_values

TOKENS, HEADS, KEY_HEADS, HEAD_DIM = 23, 4, 2, 16
SCHEMES = [name for name, row in ww.catalogue.items() if row.door == "score"]
POSITIONS = {
    "consecutive": lambda: ww.positions(TOKENS),
    "packed": lambda: ww.Positions.packed([9, 1, 13]),
    "left padding": lambda: ww.Positions.from_mask(torch.arange(TOKENS) >= torch.tensor([[0], [6]])),
}


@pytest.fixture
def blocks(monkeypatch) -> list[int]:
    """Let tables be computed by small blocks; record the number of queries in each."""
    queries: list[int] = []
    real = attention.tabulate

    def watched(element, batch, heads, rows, keys, device, first):
        queries.append(rows)
        return real(element, batch, heads, rows, keys, device, first)

    monkeypatch.setattr(attention, "_MAX_TABLE", 1)
    monkeypatch.setattr(attention, "_CHUNK", 7 * HEADS * TOKENS)
    monkeypatch.setattr(attention, "tabulate", watched)
    return queries


def gates_of(where: ww.Where, p: ww.Positions) -> Tensor | None:
    x = torch.randn(2, p.tokens, HEADS * HEAD_DIM, generator=torch.Generator().manual_seed(1))
    return where.at(p).gates(x)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("name", [*SCHEMES, "none"])
def test_blocks_of_queries_equal_the_whole_formula(name, positions, blocks):
    p, where = POSITIONS[positions](), ww.scheme(name, dim=HEADS * HEAD_DIM, num_heads=HEADS, max_length=TOKENS)
    for weight in where.parameters():
        torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(2))
    q, k, v = queries_keys_values(HEADS, KEY_HEADS, TOKENS, HEAD_DIM)
    leaves = [q, k, v, *where.parameters()]
    upstream = torch.randn(2, HEADS, TOKENS, HEAD_DIM, generator=torch.Generator().manual_seed(3))
    result = []
    for engine in ("sdpa", "dense"):
        y = where.at(p).attention(q, k, v, gates=gates_of(where, p), engine=engine)
        # Results at padding do not matter.
        g = upstream if p.segment is None else upstream.masked_fill(p.segment[:, None, :, None] < 0, 0)
        result.append([y, *torch.autograd.grad(y, leaves, g, allow_unused=True)])
    assert bool(blocks) == (name != "none" or positions != "consecutive")
    assert max(blocks, default=0) <= 7 * 2  # packed positions are the same for both sequences: twice as many rows
    for one, other in zip(*result, strict=True):
        if one is not None or other is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)


def test_blocks_while_decoding_and_with_a_custom_mask(blocks):
    q, k, v = queries_keys_values(HEADS, KEY_HEADS, TOKENS, HEAD_DIM)
    p, where = ww.positions(TOKENS), ww.Where(score=ww.ALiBi(HEADS))
    window = torch.ones(2, 1, TOKENS, TOKENS, dtype=torch.bool).triu(-3)
    window[1, 0, 5] = False  # a query that attends to no key
    whole, by_blocks = (where.at(p).attention(q, k, v, mask=window, engine=engine) for engine in ("dense", "sdpa"))
    torch.testing.assert_close(by_blocks, whole, rtol=0, atol=1e-5)
    assert not by_blocks[1, :, 5].any()
    last = where.at(p[-9:], p).attention(q[:, :, -9:], k, v, mask=window[:, :, -9:])
    torch.testing.assert_close(last, whole[:, :, -9:], rtol=0, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(where.at(p).attention(q, k, v, mask=window), whole, rtol=0, atol=1e-5)
    assert blocks


def test_backward_drops_what_forward_dropped(blocks):
    """The gradient of v is the weights that were kept; the output shows them where v is one-hot."""
    q, k, _ = queries_keys_values(HEADS, KEY_HEADS, TOKENS, HEAD_DIM)
    v = torch.zeros(2, KEY_HEADS, TOKENS, HEAD_DIM)
    v[:, :, :HEAD_DIM] = torch.eye(HEAD_DIM)
    v.requires_grad_()
    here = ww.Where(score=ww.ALiBi(HEADS)).at(ww.Positions.packed([TOKENS - 1, 1]))
    weights = here.attention(q, k, v, dropout=0.5)  # (..., query, key), of the first 16 keys
    assert bool((weights[:, :, 15:-1] == 0).any())
    (g,) = torch.autograd.grad(weights.sum(), v)
    of_groups = weights.sum(2).unflatten(1, (KEY_HEADS, -1)).sum(2)
    torch.testing.assert_close(g[:, :, :HEAD_DIM, 0], of_groups)
    assert blocks


@pytest.mark.parametrize("scheme", [lambda: ww.FIRE(1), lambda: ww.KERPLE(1), lambda: ww.FoX(HEAD_DIM, 1)])
@pytest.mark.parametrize("p", [ww.positions(600), ww.Positions.packed([320, 280])], ids=["consecutive", "packed"])
def test_no_table_is_allocated(scheme, p, monkeypatch):
    """No tensor has the size of tokens x tokens, forward and backward; of the dense formula one has."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    for name, size in {"_MIN_BLOCKWISE": 1 << 20, "_MAX_TABLE": 1, "_CHUNK": 1 << 15}.items():
        monkeypatch.setattr(attention, name, size)
    where = ww.Where(score=scheme())
    q, k, v = (torch.randn(1, 1, 600, HEAD_DIM, requires_grad=True) for _ in range(3))
    gates = where.at(p).gates(torch.randn(1, 600, HEAD_DIM))
    sizes = []
    for engine in ("sdpa", "dense"):
        with LargestTensor() as seen:
            where.at(p).attention(q, k, v, gates=gates, engine=engine).sum().backward(retain_graph=True)
        sizes.append(seen.numbers)
    assert sizes[0] < 600 * 600 / 2 <= sizes[1]
