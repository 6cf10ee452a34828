"""The schemes: construction, settings, devices and dtypes. What they compute is the laws' business."""

import pickle
from copy import deepcopy
from math import cos, sin

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere import reference
from whatwhere.kernels.rotary import rotate
from whatwhere.where.score.alibi import slopes

FIXED = [ww.Sinusoidal(8), ww.Rotary(8), ww.ALiBi(4)]
ALL = [*FIXED, ww.Learned(8, 16)]


def named(scheme):
    return type(scheme).__name__


@pytest.mark.parametrize("scheme", FIXED, ids=named)
def test_fixed_schemes_have_no_parameters_and_no_state(scheme):
    assert not list(scheme.parameters())
    assert not scheme.state_dict()


@pytest.mark.parametrize("scheme", ALL, ids=named)
def test_schemes_are_copied_and_pickled(scheme):
    for other in (deepcopy(scheme), pickle.loads(pickle.dumps(scheme))):
        assert repr(other) == repr(scheme)
        assert all(torch.equal(a, b) for a, b in zip(other.parameters(), scheme.parameters(), strict=True))


@pytest.mark.parametrize(
    ("scheme", "text"),
    [
        (ww.Sinusoidal(8), "Sinusoidal(dim=8, theta=10000.0, layout='interleaved')"),
        (ww.Sinusoidal(8, 50.0, "half"), "Sinusoidal(dim=8, theta=50.0, layout='half')"),
        (ww.Learned(8, 16), "Learned(dim=8, max_length=16, std=0.02)"),
        (ww.Rotary(8), "Rotary(head_dim=8, theta=10000.0, interleaved=False, rotary_dim=8)"),
        (
            ww.Rotary(8, 5e5, interleaved=True, rotary_dim=4),
            "Rotary(head_dim=8, theta=500000.0, interleaved=True, rotary_dim=4)",
        ),
        (ww.ALiBi(12), "ALiBi(num_heads=12)"),
    ],
)
def test_repr_shows_the_settings(scheme, text):
    assert repr(scheme) == text


@pytest.mark.parametrize("dim", [0, -2, 2.0, 7])
@pytest.mark.usefixtures("our_own_checks")
def test_sinusoidal_refuses_a_bad_dim(dim):
    with pytest.raises(ww.errors.ShapeError, match="dim"):
        ww.Sinusoidal(dim)


@pytest.mark.parametrize("layout", ["interleaved", "half", "tensor2tensor"])
def test_sinusoidal_is_the_function_of_its_layout(layout):
    p = ww.positions(3, start=torch.tensor([0, 9]))
    made = ww.Sinusoidal(8, 50.0, layout)(p)
    assert made.shape == (2, 3, 8)
    assert torch.equal(made, ww.frequencies.sinusoid(p.index[0], 8, 50.0, layout))


@pytest.mark.parametrize("layout", ["interleaved", "half", "tensor2tensor"])
def test_a_sinusoid_may_have_cosines_first(layout):
    scheme = ww.Sinusoidal(8, layout=layout, cosines_first=True)
    wanted = reference.sinusoid(np.array([0, 5, 900]), 8, layout=layout, cosines_first=True)
    assert wanted[0].tolist() == ([1, 0] * 4 if layout == "interleaved" else [1] * 4 + [0] * 4)
    assert np.allclose(scheme(torch.tensor([0, 5, 900]))[0], wanted, atol=1e-7)
    assert "cosines_first=True" in repr(scheme)


def test_a_sinusoid_may_start_later():
    p = ww.positions(5, start=2)
    assert torch.equal(ww.Sinusoidal(8, offset=2)(ww.positions(5)), ww.Sinusoidal(8)(p))
    assert repr(ww.Sinusoidal(8, offset=2)) == "Sinusoidal(dim=8, theta=10000.0, layout='interleaved', offset=2)"
    with pytest.raises(ww.errors.SettingError, match="offset=-1"):
        ww.Sinusoidal(8, offset=-1)


def test_shared_positions_have_one_batch_row():
    for scheme in (ww.Sinusoidal(8), ww.Learned(8, 16)):
        assert scheme(ww.positions(3)).shape == (1, 3, 8)
        assert scheme(torch.arange(3)).shape == (1, 3, 8)
        assert scheme(torch.zeros(2, 3, dtype=torch.int64)).shape == (2, 3, 8)


def test_learned_rows_are_initialized_with_their_std():
    torch.manual_seed(0)
    for std in (0.02, 0.5):
        weight = ww.Learned(200, 300, std=std).weight.detach()
        # 60,000 values: one standard error of the deviation is 0.3 %.
        assert abs(float(weight.std()) / std - 1) < 0.015


def test_learned_returns_the_row_of_each_position():
    scheme = ww.Learned(4, 10)
    p = ww.positions(3, start=torch.tensor([7, 0]))
    assert torch.equal(scheme(p), scheme.weight[torch.tensor([[7, 8, 9], [0, 1, 2]])])


def test_learned_sums_gradients_in_float32():
    scheme = ww.Learned(1, 2, dtype=torch.bfloat16)
    scheme(torch.zeros(4096, 1, dtype=torch.int64)).sum().backward()
    assert scheme.weight.grad.tolist() == [[4096], [0]]


def test_learned_has_a_device_and_a_dtype():
    scheme = ww.Learned(4, 10, device="meta", dtype=torch.float16)
    assert (scheme.weight.device.type, scheme.weight.dtype) == ("meta", torch.float16)
    assert scheme(ww.positions(3, device="meta")).shape == (1, 3, 4)


def test_learned_accepts_a_slice_of_longer_positions():
    scheme = ww.Learned(4, 10)
    assert torch.equal(scheme(ww.positions(1000)[3:10]), scheme.weight[None, 3:10])
    randomized = ww.Positions.randomized(4, max_length=10)
    assert torch.equal(scheme(randomized), scheme.weight[randomized.index[0]])


def test_learned_is_reset():
    scheme = ww.Learned(4, 10)
    before = scheme.weight.detach().clone()
    scheme.reset_parameters()
    assert bool((scheme.weight != before).any(-1).all())


def test_fixed_schemes_follow_the_positions_to_their_device():
    p = ww.positions(3, device="meta")
    q = torch.empty(1, 4, 3, 8, device="meta")
    assert ww.Sinusoidal(8)(p).device.type == "meta"
    assert ww.Rotary(8)(q, q, p)[0].device.type == "meta"
    assert ww.ALiBi(4)(p).device.type == "meta"


def turn(a, b, angle):
    return a * cos(angle) - b * sin(angle), a * sin(angle) + b * cos(angle)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("rotary_dim", [2, 4, 6])
def test_rotary_rotates_the_pairs_of_its_layout_and_no_others(interleaved, rotary_dim):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 1, 1, 6, generator=generator)
    rotated, _ = ww.Rotary(6, 100.0, interleaved=interleaved, rotary_dim=rotary_dim)(q, q, torch.tensor([7]))
    x, expected = q.flatten().tolist(), q.flatten().tolist()
    for i in range(rotary_dim // 2):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + rotary_dim // 2)
        expected[a], expected[b] = turn(x[a], x[b], 7 * 100.0 ** (-2 * i / rotary_dim))
    assert rotated.flatten().tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_rotary_rotates_in_float32_at_least_and_keeps_the_dtype(dtype):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 2, 50, 8, generator=generator).to(dtype)
    rotated, _ = ww.Rotary(8)(q, q, ww.positions(50, start=9000))
    exact, _ = ww.Rotary(8)(q.double(), q.double(), ww.positions(50, start=9000))
    assert rotated.dtype == dtype
    # One rounding of the result is eps / 2 of values up to 4.
    assert float((rotated.double() - exact).abs().max()) <= max(2 * torch.finfo(dtype).eps, 1e-12) + 5e-7


def test_rotary_takes_grouped_and_unequal_keys():
    rope = ww.Rotary(4)
    q, k = torch.ones(2, 4, 3, 4), torch.ones(2, 1, 5, 4)
    rotated_q, rotated_k = rope(q, k, ww.positions(3), key_positions=ww.positions(5))
    assert (rotated_q.shape, rotated_k.shape) == (q.shape, k.shape)
    assert torch.equal(rotated_q[0, 0], rotated_k[0, 0, :3])


def test_rotary_shows_its_frequencies_in_float64():
    made = ww.Rotary(8, 100.0, rotary_dim=4).inverse_frequencies
    assert made.dtype == torch.float64
    assert made.tolist() == pytest.approx([1.0, 0.1])


def test_a_head_may_be_odd_where_only_a_part_rotates():
    assert ww.Rotary(5, rotary_dim=4).rotary_dim == 4


def test_rotate_by_nothing_changes_nothing():
    x = torch.randn(2, 3, 4, 6)
    still = torch.ones(1, 1, 4, 3), torch.zeros(1, 1, 4, 3)
    assert torch.equal(rotate(x, *still, interleaved=True), x)
    assert torch.equal(rotate(x, *still, interleaved=False), x)


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8, 16, 64])
def test_slopes_of_a_power_of_two_are_a_geometric_series(num_heads):
    assert slopes(num_heads) == [2 ** (-8 * h / num_heads) for h in range(1, num_heads + 1)]


@pytest.mark.parametrize("num_heads", [3, 5, 6, 7, 12, 20, 40])
def test_slopes_of_other_numbers_are_the_authors(num_heads):
    below = 1
    while 2 * below <= num_heads:
        below *= 2
    assert slopes(num_heads) == slopes(below) + slopes(2 * below)[0::2][: num_heads - below]
    assert len(set(slopes(num_heads))) == num_heads


def test_alibi_is_minus_slope_times_distance():
    scheme, p = ww.ALiBi(3), ww.positions(3, start=4)
    keys = ww.positions(5)
    table = scheme(p, keys)
    for h, slope in enumerate(slopes(3)):
        for i in range(3):
            assert table[0, h, i].tolist() == [-slope * abs(4 + i - j) for j in range(5)]


def test_alibi_accepts_custom_slopes():
    alibi = ww.ALiBi(2, slopes=[1.0, 0.25])
    assert alibi.slopes.tolist() == [1.0, 0.25]
    assert alibi(ww.positions(3))[0, :, 2].tolist() == [[-2, -1, 0], [-0.5, -0.25, 0]]
    assert repr(alibi) == "ALiBi(num_heads=2, slopes=(1.0, 0.25))"
    assert torch.equal(ww.ALiBi(6, slopes=slopes(6))(ww.positions(5)), ww.ALiBi(6)(ww.positions(5)))
    with pytest.raises(ww.errors.ShapeError, match="ALiBi got 3 slopes for 2 heads"):
        ww.ALiBi(2, slopes=[1.0, 0.5, 0.25])
    with pytest.raises(ww.errors.SettingError, match=r"slopes\[1\]=0"):
        ww.ALiBi(2, slopes=[1.0, 0.0])


def test_alibi_causal_folds_the_mask_in():
    p = ww.Positions.packed([2, 2])
    plain, causal = ww.ALiBi(2)(p), ww.ALiBi(2)(p, causal=True)
    seen = p.mask().expand(1, 2, 4, 4)
    assert torch.equal(causal[seen], plain[seen])
    assert bool((causal[~seen] == -torch.inf).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_alibi_in_a_dtype_is_never_infinite(dtype):
    table = ww.ALiBi(2)(ww.positions(1, start=10**8), ww.positions(2), dtype=dtype)
    assert table.dtype == dtype
    assert bool(table.isfinite().all())


def test_alibi_score_mod_adds_the_same_numbers():
    scheme, p = ww.ALiBi(3), ww.positions(4, start=torch.tensor([0, 7]))
    keys = ww.positions(6, start=torch.tensor([0, 3]))
    mod, table = scheme.score_mod(p, keys), scheme(p, keys)
    b, h, i, j = (torch.arange(n) for n in (2, 3, 4, 6))
    score = torch.randn(2, 3, 4, 6)
    made = mod(score, b[:, None, None, None], h[:, None, None], i[:, None], j)
    assert torch.equal(made, score + table)
