"""FoX and CoPE, carried by Where and Here, against their papers' formulas in plain loops.

That every engine, a cache, packing and padding give the same numbers is tested by the laws, to which both are listed.
"""

from itertools import accumulate, pairwise, product
from math import ceil, exp, floor, sqrt

import pytest
import torch
from torch import Tensor

import whatwhere as ww

from .cases import DIM, HEADS, KEY_HEADS
from .model import HEAD_DIM, draw
from .schemes import CoPE, FoX

DOCUMENTS = (3, 1, 5)
ENGINES = ["dense", "sdpa", pytest.param("flex", marks=pytest.mark.compile)]


def fox_attention(q: Tensor, k: Tensor, v: Tensor, forget: Tensor) -> Tensor:
    """o_i = sum_j softmax_j(<q_i, k_j> / sqrt(d) + sum_{l = j+1..i} log f_l) v_j, one head of one document."""
    rows = []
    for i in range(len(q)):
        scores = []
        for j in range(i + 1):
            forgotten = sum(float(forget[m].log()) for m in range(j + 1, i + 1))
            scores.append(float(q[i] @ k[j]) / sqrt(len(q[i])) + forgotten)
        rows.append(gather(scores, v))
    return torch.stack(rows)


def cope_attention(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """o_i = sum_j softmax_j(<q_i, k_j> + <q_i, e[p_ij]>) v_j, one head of one document."""
    rows = []
    for i in range(len(q)):
        scores = []
        for j in range(i + 1):
            gates = [1 / (1 + exp(-float(q[i] @ k[m]))) for m in range(j, i + 1)]
            p = min(sum(gates), len(table) - 1)
            low, high = float(q[i] @ table[floor(p)]), float(q[i] @ table[ceil(p)])
            scores.append(float(q[i] @ k[j]) + (p - floor(p)) * high + (1 - p + floor(p)) * low)
        rows.append(gather(scores, v))
    return torch.stack(rows)


def gather(scores: list[float], v: Tensor) -> Tensor:
    weights = [exp(score - max(scores)) for score in scores]
    return sum(weight / sum(weights) * v[j] for j, weight in enumerate(weights))


def vectors() -> tuple[Tensor, ...]:
    """Token vectors, and q, k, v of all documents in one sequence."""
    n = sum(DOCUMENTS)
    heads = [draw(2, count, n, HEAD_DIM, seed=seed) for seed, count in enumerate((HEADS, KEY_HEADS, KEY_HEADS))]
    return draw(2, n, DIM, seed=3), *heads


def by_loops(formula, q: Tensor, k: Tensor, v: Tensor, extra) -> Tensor:
    """Apply a formula to each document of each head; `extra(batch, head, tokens)` gives its last argument."""
    y, groups = torch.empty(q.shape, dtype=torch.float64), q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double(), v.double()
    ends = list(accumulate(DOCUMENTS, initial=0))
    for b, h, (first, end) in product(range(q.shape[0]), range(q.shape[1]), pairwise(ends)):
        document, g = slice(first, end), h // groups
        y[b, h, document] = formula(q[b, h, document], k[b, g, document], v[b, g, document], extra(b, h, document))
    return y.float()


@pytest.mark.parametrize("engine", ENGINES)
def test_fox_is_the_papers_formula(engine):
    torch.manual_seed(0)
    fox = FoX(DIM, HEADS)
    x, q, k, v = vectors()
    with torch.no_grad():
        forget = torch.einsum("btd,hd->bht", x.double(), fox.weight.double()) + fox.bias.double()[:, None]
        expected = by_loops(fox_attention, q, k, v, lambda b, h, document: forget.sigmoid()[b, h, document])
        here = ww.Where(score=fox).at(ww.packed(DOCUMENTS))
        actual = here.attention(q, k, v, gates=here.gates(x), engine=engine)
    torch.testing.assert_close(actual, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_cope_is_the_papers_formula(engine):
    torch.manual_seed(0)
    cope = CoPE(HEAD_DIM, HEADS, max_position=3)
    _, q, k, v = vectors()
    with torch.no_grad():
        table = cope.weight.double()
        expected = by_loops(cope_attention, q, k, v, lambda b, h, document: table)
        here = ww.Where(score=cope).at(ww.packed(DOCUMENTS))
        actual = here.attention(q, k, v, engine=engine)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_query_against_a_cache_of_gates(engine):
    """A decode step gets the gates of all keys, and the query finds its own among them."""
    torch.manual_seed(0)
    where, p = ww.Where(score=FoX(DIM, HEADS)), ww.positions(9)
    x, q, k, v = vectors()
    with torch.no_grad():
        everything = where.at(p)
        cached = everything.gates(x)
        prefill = everything.attention(q, k, v, gates=cached)
        step = where.at(p[8:], p).attention(q[:, :, 8:], k, v, gates=cached, engine=engine)
    torch.testing.assert_close(step, prefill[:, :, 8:], rtol=0, atol=1e-6)


def test_gates_matter():
    """Other gates, other numbers: they do reach the scheme."""
    torch.manual_seed(0)
    x, q, k, v = vectors()
    here = ww.Where(score=FoX(DIM, HEADS)).at(ww.positions(9))
    open_gates = torch.zeros(2, HEADS, 9)
    plain = ww.Where().at(ww.positions(9)).attention(q, k, v)
    torch.testing.assert_close(here.attention(q, k, v, gates=open_gates), plain, rtol=0, atol=1e-6)
    assert (here.attention(q, k, v, gates=here.gates(x)) - plain).abs().max() > 0.1


def test_the_scheme_decides_the_softmax_scale():
    assert ww.Where(score=CoPE(HEAD_DIM, HEADS)).at(ww.positions(2)).scale == 1.0
    assert ww.Where(score=FoX(DIM, HEADS)).at(ww.positions(2)).scale is None


@pytest.mark.parametrize("scheme", [FoX(DIM, HEADS), CoPE(HEAD_DIM, HEADS)], ids=lambda scheme: type(scheme).__name__)
def test_positions_alone_give_no_table(scheme):
    with pytest.raises(ww.DoorError, match="depends on queries and keys"):
        scheme(ww.positions(4))
