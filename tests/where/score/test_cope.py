"""CoPE: positions that count only the keys that matter."""

from itertools import accumulate, pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import whatwhere as ww
from tests.samples import draw_float64 as draw
from whatwhere import reference

HEADS, KEY_HEADS, HEAD_DIM = 4, 2, 6
DOCUMENTS = (3, 1, 5)
ENGINES = ["dense", "sdpa", pytest.param("flex", marks=pytest.mark.compile)]


def sampled(max_distance: int = 3, scale: float | None = None) -> ww.CoPE:
    torch.manual_seed(0)
    return ww.CoPE(HEAD_DIM, HEADS, max_distance, scale, std=0.5).double()


def vectors(tokens: int = 9) -> tuple[Tensor, ...]:
    return tuple(
        draw(2, count, tokens, HEAD_DIM, seed=seed) for seed, count in enumerate((HEADS, KEY_HEADS, KEY_HEADS))
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("max_distance", "scale"), [(3, None), (64, None), (3, 1.0), (1, None)])
@torch.no_grad()
def test_it_is_the_papers_formula(max_distance, scale, engine):
    scheme = sampled(max_distance, scale)
    q, k, v = vectors()
    factor = HEAD_DIM**-0.5 if scale is None else scale
    weight, wide = scheme.weight.numpy(), [part.repeat_interleave(2, dim=1).numpy() for part in (k, v)]
    expected = np.zeros(q.shape)
    for b in range(2):
        for first, end in pairwise(accumulate(DOCUMENTS, initial=0)):
            part = slice(first, end)
            parts = (q[b, :, part].numpy(), wide[0][b, :, part], wide[1][b, :, part])
            bias = reference.cope_bias(*parts[:2], weight, factor)
            expected[b, :, part] = reference.attention(*parts, bias, np.tri(end - first, dtype=bool), factor)
    here = ww.Where(score=scheme).at(ww.Positions.packed(DOCUMENTS))
    actual = here.attention(q, k, v, engine=engine)
    assert_close(actual, torch.from_numpy(expected), rtol=0, atol=1e-12)


def tabulated(scheme: ww.CoPE, q: Tensor, k: Tensor) -> Tensor:
    p, slots = ww.positions(q.shape[2]), torch.arange(q.shape[2])
    element = scheme.bind(p, p, q=q, k=k)
    return element(torch.tensor(0), torch.arange(HEADS)[:, None, None], slots[:, None], slots).tril()


@torch.no_grad()
def test_gates_that_are_all_open_make_it_a_table_of_distances():
    """Every key counts 1: p_ij = i - j + 1, the relative position that the paper starts from."""
    scheme = sampled(max_distance=64)
    q, k = torch.full((1, HEADS, 7, HEAD_DIM), 50.0, dtype=torch.float64), torch.ones(1, HEADS, 7, HEAD_DIM).double()
    q = q * (1 + torch.arange(7)[:, None])
    table = tabulated(scheme, q, k)
    for i in range(7):
        for j in range(i + 1):
            expected = q[0, 0, i] @ scheme.weight[i - j + 1]
            assert_close(table[0, i, j], expected, rtol=1e-9, atol=0)


@torch.no_grad()
def test_counts_beyond_the_last_row_are_the_last():
    scheme, tokens = sampled(max_distance=2), 40
    q, k = torch.zeros(1, HEADS, tokens, HEAD_DIM).double(), torch.zeros(1, HEADS, tokens, HEAD_DIM).double()
    q[..., 0] = 1
    table = tabulated(scheme, q, k)  # all gates are a half
    weight = scheme.weight[:, 0]
    assert_close(table[0, 20, 20], weight.mean(), rtol=0, atol=1e-12)
    assert_close(table[0, 20, :20], weight[1].expand(20), rtol=0, atol=1e-12)


@torch.no_grad()
def test_it_starts_at_zero_as_the_papers_listing_does():
    q, k, v = vectors()
    scheme = ww.CoPE(HEAD_DIM, HEADS, 8).double()
    assert not scheme.weight.any()
    p = ww.positions(9)
    assert_close(ww.Where(score=scheme).at(p).attention(q, k, v), ww.Where().at(p).attention(q, k, v))


def test_it_learns_from_zero():
    q, k, v = vectors()
    scheme = ww.CoPE(HEAD_DIM, HEADS, 8).double()
    ww.Where(score=scheme).at(ww.positions(9)).attention(q, k, v).square().sum().backward()
    assert bool((scheme.weight.grad[:4] != 0).all())


def test_the_scale_of_the_gates_is_that_of_the_softmax():
    assert ww.Where(score=sampled()).at(ww.positions(2)).scale == HEAD_DIM**-0.5
    assert ww.Where(score=sampled(scale=1.0)).at(ww.positions(2)).scale == 1.0
    with pytest.raises(ww.errors.SettingError, match="different softmax scales"):
        ww.Where(query_key=Unscaled(HEAD_DIM), score=sampled())


class Unscaled(ww.QueryKeyMap):
    """Change nothing, and ask for a softmax scale of 1."""

    scale = 1.0

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim

    def bind(self, positions, lengths=None):
        return ()

    def map_query(self, q, bound):
        return q

    def map_key(self, k, bound):
        return k


@torch.no_grad()
def test_counting_is_done_in_float32():
    """In bfloat16 a count of 256 halves would stand still at 128 + 1/2."""
    tokens = 600
    scheme = ww.CoPE(2, 1, 512, std=0.5)
    q = torch.zeros(1, 1, tokens, 2)
    q[..., 0] = 1
    p, zero = ww.positions(tokens), torch.zeros(1, dtype=torch.int64)
    made = [
        scheme.bind(p, p, q=x, k=0 * x)(zero, zero, zero + tokens - 1, torch.arange(tokens)) for x in (q, q.bfloat16())
    ]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made.append(scheme.bind(p, p, q=q, k=0 * q)(zero, zero, zero + tokens - 1, torch.arange(tokens)))
    assert {table.dtype for table in made} == {torch.float32}
    assert torch.equal(made[1], made[0])
    assert torch.equal(made[2], made[0])
    counts = torch.arange(tokens, 0, -1) / 2
    whole = scheme.weight[:, 0]
    assert_close(made[0], torch.lerp(whole[counts.floor().long()], whole[counts.ceil().long()], counts % 1))
