"""The schemes: construction, settings, devices and dtypes. What they compute is the laws' business."""

from copy import deepcopy

import pytest
import torch

import whatwhere as ww
from tests.samples import draw, table
from whatwhere.where.score.alibi import slopes


def test_a_sinusoid_may_start_later():
    p = ww.positions(5, start=2)
    assert torch.equal(ww.Sinusoidal(8, offset=2)(ww.positions(5)), ww.Sinusoidal(8)(p))
    assert repr(ww.Sinusoidal(8, offset=2)) == "Sinusoidal(dim=8, theta=10000.0, layout='interleaved', offset=2)"


def test_learned_sums_gradients_in_float32():
    scheme = ww.Learned(1, 2, dtype=torch.bfloat16)
    scheme(torch.zeros(4096, 1, dtype=torch.int64)).sum().backward()
    assert scheme.weight.grad.tolist() == [[4096], [0]]


def test_fixed_schemes_follow_the_positions_to_their_device():
    p = ww.positions(3, device="meta")
    q = torch.empty(1, 4, 3, 8, device="meta")
    assert ww.Sinusoidal(8)(p).device.type == "meta"
    assert ww.Rotary(8)(q, q, p)[0].device.type == "meta"
    assert ww.ALiBi(4)(p).device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_rotary_rotates_in_float32_at_least_and_keeps_the_dtype(dtype):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 2, 50, 8, generator=generator).to(dtype)
    rotated, _ = ww.Rotary(8)(q, q, ww.positions(50, start=9000))
    exact, _ = ww.Rotary(8)(q.double(), q.double(), ww.positions(50, start=9000))
    assert rotated.dtype == dtype
    # One rounding of the result is eps / 2 of values up to 4.
    assert float((rotated.double() - exact).abs().max()) <= max(2 * torch.finfo(dtype).eps, 1e-12) + 5e-7


def test_alibi_accepts_custom_slopes():
    alibi = ww.ALiBi(2, slopes=[1.0, 0.25])
    assert alibi.slopes.tolist() == [1.0, 0.25]
    assert alibi(ww.positions(3))[0, :, 2].tolist() == [[-2, -1, 0], [-0.5, -0.25, 0]]
    assert repr(alibi) == "ALiBi(num_heads=2, slopes=(1.0, 0.25))"
    assert torch.equal(ww.ALiBi(6, slopes=slopes(6))(ww.positions(5)), ww.ALiBi(6)(ww.positions(5)))


@pytest.mark.parametrize(
    "scheme",
    [ww.Shaw(64, 2, 3, 2, std=1.0), ww.DeBERTa(64, 2, 9, 6, std=1.0), ww.TransformerXL(16, 2, std=1.0)],
    ids=lambda scheme: type(scheme).__name__,
)
def test_bfloat16_contents_meet_tables_in_float32(scheme):
    """In bfloat16 a turned sinusoid of position 100,000 would be off by 2 ** -9, and no longer relative."""
    p, content = ww.positions(5, start=100_000), draw(2, 1, 2, 5, scheme.head_dim).bfloat16()
    wanted, made = table(deepcopy(scheme).double(), p, p, *content.double()), table(scheme, p, p, *content)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = table(scheme, p, p, *content)
    assert made.dtype == inside.dtype == torch.float32
    for bias in (made, inside):
        torch.testing.assert_close(bias.double(), wanted, rtol=0, atol=2e-5)
