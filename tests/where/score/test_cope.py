"""CoPE: positions that count only the keys that matter."""

import torch
from torch import Tensor
from torch.testing import assert_close

import whatwhere as ww
from tests.samples import draw_float64 as draw

HEADS, KEY_HEADS, HEAD_DIM = 4, 2, 6


def sampled(max_distance: int = 3, scale: float | None = None) -> ww.CoPE:
    torch.manual_seed(0)
    return ww.CoPE(HEAD_DIM, HEADS, max_distance, scale, std=0.5).double()


def vectors(tokens: int = 9) -> tuple[Tensor, ...]:
    return tuple(
        draw(2, count, tokens, HEAD_DIM, seed=seed) for seed, count in enumerate((HEADS, KEY_HEADS, KEY_HEADS))
    )


@torch.no_grad()
def test_it_starts_at_zero_as_the_papers_listing_does():
    q, k, v = vectors()
    scheme = ww.CoPE(HEAD_DIM, HEADS, 8).double()
    assert not scheme.weight.any()
    p = ww.positions(9)
    assert_close(ww.Where(score=scheme).at(p).attention(q, k, v), ww.Where().at(p).attention(q, k, v))


def test_the_scale_of_the_gates_is_that_of_the_softmax():
    assert ww.Where(score=sampled()).at(ww.positions(2)).scale == HEAD_DIM**-0.5
    assert ww.Where(score=sampled(scale=1.0)).at(ww.positions(2)).scale == 1.0


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
