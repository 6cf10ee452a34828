"""Tables of cosines and sines: exact to float32 at any position, and used by every scheme that has them."""

from collections.abc import Callable
from ctypes import c_char_p
from math import pi
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.kernels import backend, cos_sin
from whatwhere.where.frequencies import inverse_frequencies, rotary_tables, sinusoid

from .cases import require_near_tables

pytestmark = pytest.mark.skipif(not backend.COMPILED, reason="no kernels were compiled, or they are disabled")

LAST = 1_048_575
ROUNDING = 2**-25
"""float32 rounds numbers below 1 by so much at most; float64 angles at LAST add 1e-10."""


def in_pytorch(function: Callable[..., Any], *args: Any) -> Any:
    with ww.pytorch_only():
        return function(*args)


def require_near(result: tuple[Tensor, ...], wanted: tuple[Tensor, ...], farthest: float = 1e4) -> None:
    require_near_tables(dict(enumerate(result)), dict(enumerate(wanted)), farthest)


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0, 0.5])
def test_tables_are_exact(theta, level):
    """Against mpmath, at the first, some middle and the last positions of the longest models."""
    index = torch.tensor([0, 1, 2, 1000, 65_537, 524_287, LAST - 1, LAST])
    frequencies = inverse_frequencies(64, theta)
    cos, sin = cos_sin.tables(index[None, None], frequencies)
    for n, p in enumerate(index.tolist()):
        for i, w in enumerate(frequencies.tolist()):
            exact = mpmath.mpf(p) * mpmath.mpf(w)
            error = ROUNDING + 2**-53 * abs(p * w) + 1e-15
            assert abs(float(cos[0, 0, n, i]) - mpmath.cos(exact)) <= error
            assert abs(float(sin[0, 0, n, i]) - mpmath.sin(exact)) <= error


def test_angles_near_multiples_of_a_quarter_turn(level):
    """Where subtracting a multiple of pi/2 leaves almost nothing, up to the last angle that is not computed by libm."""
    quarters = [1, 2, 3, 4, 5, 1001, 65_535, 10_000_003, 683_565_270, 683_565_275]
    near = torch.tensor([n * pi / 2 for n in quarters], dtype=torch.float64)
    near = torch.cat([torch.nextafter(near, -near), near, torch.nextafter(near, 2 * near)])
    cos, sin = cos_sin.tables(torch.ones(1, 1, 1, dtype=torch.int64), near)
    for angle, c, s in zip(near.tolist(), cos.flatten().tolist(), sin.flatten().tolist(), strict=True):
        for result, exact in ((c, mpmath.cos(angle)), (s, mpmath.sin(angle))):
            assert abs(result - exact) <= 2**-24 * abs(exact) + 1e-16


@pytest.mark.parametrize("start", [0, 2**20, 2**30 - 100, 2**33, -150])
def test_any_position(start, level):
    index, frequencies = torch.arange(start, start + 200)[None, None], inverse_frequencies(80)
    assert cos_sin._kernel(index, frequencies) is not None
    require_near(cos_sin.tables(index, frequencies), in_pytorch(rotary_tables, index, frequencies), abs(start) + 200)


@pytest.mark.parametrize("start", [0, 1_000_000, 2**33, 2**60, -150])
def test_a_position_has_the_same_numbers_in_every_table(start, level):
    """One token or many, in any order, on one axis or several, at any level: every bit is equal."""
    index, frequencies = torch.arange(start, start + 300)[None, None], inverse_frequencies(80)
    together = cos_sin.tables(index, frequencies)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    shuffled = cos_sin.tables(index[..., order], frequencies)
    axes = cos_sin.tables(index.expand(2, 1, 300), frequencies, 1.0, (0, 1) * 20)
    own = cos_sin.tables(index, frequencies.expand(300, 40).clone()[None])
    lowest = backend.Library(backend.FILE, "baseline").function("cos_sin", c_char_p)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cos_sin, "_kernel", lambda *tensors: lowest)
        baseline = cos_sin.tables(index, frequencies)
    for n, part in enumerate(together):
        assert part.abs().max() <= 1
        assert torch.equal(shuffled[n], part[:, :, order])
        assert torch.equal(axes[n], part)
        assert torch.equal(own[n], part)
        assert torch.equal(baseline[n], part)
        for t in (0, 63, 64, 299):
            assert torch.equal(cos_sin.tables(index[..., t : t + 1], frequencies)[n], part[:, :, t : t + 1])


def test_infinite_and_nan_frequencies_make_nan(level):
    frequencies = torch.tensor([float("inf"), float("nan"), 1.0], dtype=torch.float64)
    cos, sin = cos_sin.tables(torch.tensor([[[0, 1]]]), frequencies)
    for part in (cos, sin):
        assert part.isnan().tolist() == [[[[True, True, False]] * 2]]


def test_integers_of_other_types_are_left_to_pytorch():
    index = torch.arange(5, dtype=torch.int32)[None, None]
    assert cos_sin._kernel(index, inverse_frequencies(8)) is None
    given = (index.long(), inverse_frequencies(8))
    require_near(rotary_tables(*given), in_pytorch(rotary_tables, *given))
    assert torch.equal(sinusoid(index, 8), sinusoid(index.long(), 8))


def test_changed_settings_change_the_tables():
    """Frequencies are kept from one binding to the next, as long as they are those of the settings."""
    rope, q, p = ww.Rotary(8), torch.randn(1, 2, 6, 8), ww.positions(6)
    before = rope(q, q, p)[0]
    assert torch.equal(rope(q, q, p)[0], before)
    rope.theta = 50.0
    assert torch.equal(rope(q, q, p)[0], ww.Rotary(8, theta=50.0)(q, q, p)[0])
    rope.scaling = ww.scaling.Linear(2.0)
    assert torch.equal(rope(q, q, p)[0], ww.Rotary(8, theta=50.0, scaling=ww.scaling.Linear(2.0))(q, q, p)[0])
    assert not rope.state_dict()
    assert torch.equal(
        rope.bfloat16()(q, q, p)[0], ww.Rotary(8, theta=50.0, scaling=ww.scaling.Linear(2.0))(q, q, p)[0]
    )


def test_fake_tensors_of_a_trace_are_not_kept():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        rope = ww.Rotary(8)
        rope.bind(ww.positions(3))
    q = torch.randn(1, 2, 6, 8)
    assert torch.equal(rope(q, q, ww.positions(6))[0], ww.Rotary(8)(q, q, ww.positions(6))[0])
