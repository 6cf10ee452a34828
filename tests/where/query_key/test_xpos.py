"""xPos: rotary whose scores fade, with a center that stays where it is."""

import math

import pytest
import torch

import whatwhere as ww

LIMIT = 33_994  # of float32: 512 * ln(2 ** 120) / ln(3.5), where 3.5 = 1 / zeta_0


def test_factors_stay_finite_up_to_the_maximum_distance_and_beyond_it_is_an_error():
    xpos, q = ww.XPos(64), 100 * torch.ones(1, 1, 2, 64)
    assert (
        xpos.max_distance(torch.float32)
        == xpos.max_distance(torch.bfloat16)
        == xpos.max_distance(torch.float64)
        == LIMIT
    )
    for dtype in (torch.float32, torch.bfloat16):
        mapped = xpos(q.to(dtype), q.to(dtype), torch.tensor([LIMIT - 1, LIMIT]))
        assert all(bool(x.isfinite().all()) and bool((x != 0).any(-1).all()) for x in mapped)
    scores = mapped[0].double() @ mapped[1].double().mT
    assert float(scores[0, 0, 1, 1]) == pytest.approx(64 * 100**2, rel=1e-2)
    for p in (torch.tensor([5, LIMIT + 1]), ww.positions(2, start=LIMIT)):
        with pytest.raises(ww.errors.PositionError, match="position 33995 is 33995 away from XPos's center 0"):
            xpos(q, q, p)
    middle = ww.XPos(64, center=LIMIT)
    assert bool(middle(q, q, torch.tensor([0, 2 * LIMIT]))[1].isfinite().all())
    with pytest.raises(ww.errors.PositionError, match=f"position {2 * LIMIT + 1} is {LIMIT + 1} away"):
        middle(q, q, torch.tensor([0, 2 * LIMIT + 1]))
    with pytest.raises(ww.errors.PositionError, match="position 0 is 40000 away from XPos's center 40000"):
        ww.XPos(64, center=40_000)(q, q, torch.tensor([0, 1]))


def test_float16_ends_earlier():
    xpos = ww.XPos(64)
    limit = xpos.max_distance(torch.float16)
    assert limit == math.floor(512 * math.log(2**8) / math.log(3.5))
    q = torch.full((1, 1, 1, 64), 100.0, dtype=torch.float16)
    assert all(bool(x.isfinite().all()) for x in xpos(q, q, torch.tensor([limit])))
    for ask in (q, q.float()), (q.float(), q):
        with pytest.raises(
            ww.errors.PositionError,
            match=r"(?s)torch.float16 can represent its factors.*or pass q.float\(\) and k.float",
        ):
            xpos(*ask, torch.tensor([limit + 1]))
    assert bool(xpos(q.float(), q.float(), torch.tensor([limit + 1]))[1].isfinite().all())


@pytest.mark.compile
def test_beyond_the_maximum_distance_a_compiled_map_stops_too():
    xpos, q = torch.compile(ww.XPos(8), fullgraph=True, backend="eager"), torch.ones(1, 1, 1, 8)
    xpos(q, q, torch.tensor([LIMIT]))
    with pytest.raises(RuntimeError, match="outside"):
        xpos(q, q, torch.tensor([LIMIT + 1]))
