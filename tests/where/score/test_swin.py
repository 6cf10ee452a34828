"""Swin and Swin v2: one bias for each distance within a window of a grid."""

import jaxtyping
import numpy as np
import pytest
import torch

import whatwhere as ww
from tests.gradients import require_gradients
from tests.samples import draw_float64 as draw
from whatwhere import reference

QUERIES, KEYS = np.array([[0, 3, 2, 40], [1, 0, 4, 2]]), np.array([[0, 1, 2, 7, 3], [2, 2, 0, 1, 4]])
AT_QUERIES, AT_KEYS = (ww.Positions.from_coordinates(torch.tensor(index)[:, None]) for index in (QUERIES, KEYS))


def weights(scheme):
    return [weight.detach().numpy() for weight in scheme.parameters()]


@pytest.mark.parametrize("window", [3, (4, 2), (1, 5)])
def test_swin_is_the_reference_forward_and_backward(window):
    scheme, g = ww.Swin(2, window, std=1.0, dtype=torch.float64), draw(2, 4, 5)
    bias = scheme(AT_QUERIES, AT_KEYS)[0]
    np.testing.assert_allclose(
        bias.detach().numpy(), reference.swin_bias(*weights(scheme), QUERIES, KEYS, *scheme.window_size), rtol=1e-14
    )
    bias.backward(g)
    require_gradients(
        (scheme.weight.grad,),
        lambda weight: reference.swin_bias(weight, QUERIES, KEYS, *scheme.window_size),
        (scheme.weight,),
        g,
    )


@pytest.mark.parametrize(("window", "trained"), [(3, None), ((4, 2), (3, 9)), ((1, 5), (1, 2))])
def test_swin_v2_is_the_reference_forward_and_backward(window, trained):
    scheme, g = ww.SwinV2(2, window, trained, hidden=7, dtype=torch.float64), draw(2, 4, 5)
    bias = scheme(AT_QUERIES, AT_KEYS)[0]
    table = reference.swin_v2_table(*weights(scheme), scheme.window_size, scheme.trained_size)
    np.testing.assert_allclose(
        bias.detach().numpy(), reference.swin_bias(table, QUERIES, KEYS, *scheme.window_size), rtol=1e-12
    )
    bias.backward(g)

    def by_reference(*given):
        table = reference.swin_v2_table(*given, scheme.window_size, scheme.trained_size)
        return reference.swin_bias(table, QUERIES, KEYS, *scheme.window_size)

    require_gradients([weight.grad for weight in scheme.parameters()], by_reference, weights(scheme), g)


def test_query_minus_key_rows_first():
    scheme = ww.Swin(1, (2, 3))
    with torch.no_grad():
        scheme.weight.copy_(torch.arange(15.0)[:, None])
    bias = scheme(ww.Positions.grid(2, 3))[0, 0]
    assert bias[0, 0] == 7  # no distance: the middle of the table
    assert bias[1, 0] == 8  # a query one column on
    assert bias[3, 0] == 12  # a query one row on
    assert bias[0, 5] == 0  # a key one row and two columns on
    assert not torch.equal(bias, bias.T)


def test_distances_beyond_the_window_are_its_largest():
    scheme = ww.Swin(2, 4, std=1.0)
    bias = scheme(ww.Positions.grid(9, 9))[0].unflatten(-1, (9, 9))[:, 40]  # of the query in the middle
    near = scheme(ww.Positions.grid(7, 7))[0].unflatten(-1, (7, 7))[:, 24]
    assert torch.equal(bias[:, 1:-1, 1:-1], near)
    assert torch.equal(bias[:, 0], bias[:, 1])
    assert torch.equal(bias[:, :, -1], bias[:, :, -2])


def test_the_trained_size_keeps_the_bias_of_a_distance():
    small, grown, moved = ww.SwinV2(2, 4), ww.SwinV2(2, 8, 4), ww.SwinV2(2, 8)
    for scheme in (grown, moved):
        scheme.load_state_dict(small.state_dict())
    p = ww.Positions.grid(4, 4)
    torch.testing.assert_close(grown(p), small(p), rtol=0, atol=1e-5)
    assert (moved(p) - small(p)).abs().max() > 1e-2


def test_windows_of_an_image_are_a_batch_or_documents():
    """Four windows as sequences of a batch, or packed as documents of one: the same attention."""
    where, window = ww.Where(ww.Swin(2, 2, std=1.0)), ww.Positions.grid(2, 2)
    q, k, v = (draw(4, 2, 4, 8, seed=n).float() for n in range(3))
    apart = where.at(window).attention(q, k, v, causal=False)
    packed = ww.Positions.from_coordinates(window.index.repeat(1, 1, 4), segment=torch.arange(4).repeat_interleave(4))
    joined = [x.transpose(0, 1).flatten(1, 2)[None] for x in (q, k, v)]  # (1, heads, windows * tokens, features)
    together = where.at(packed).attention(*joined, causal=False)
    torch.testing.assert_close(together[0].unflatten(1, (4, 4)).transpose(0, 1), apart, rtol=0, atol=1e-6)


def test_settings_that_are_not_defined_are_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ww.errors.ShapeError, match=r"Swin got window_size\[0\]=0, but needs a whole number"):
        ww.Swin(2, 0)
    with pytest.raises(ww.errors.ShapeError, match=r"SwinV2 got window_size=\(1, 2, 3\), but needs height and width"):
        ww.SwinV2(2, (1, 2, 3))
    with pytest.raises(ww.errors.ShapeError, match=r"trained_size=\(1, 4\) for window_size=\(8, 8\)"):
        ww.SwinV2(2, 8, (1, 4))
    with pytest.raises(ww.errors.SettingError, match="Swin got std=0"):
        ww.Swin(2, std=0)
    with pytest.raises(ww.errors.PositionError, match="Swin needs whole positions"):
        ww.Swin(2)(ww.Positions.centered_grid(2, 2))
    with pytest.raises(ww.errors.PositionError, match="Swin measures along 2 axes, but these positions have 3"):
        ww.Swin(2)(ww.Positions.grid(2, 2, 2))
