"""LearnedRotary: rotary positions whose frequencies are trained."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from tests.gradients import require_gradients
from tests.samples import draw
from whatwhere import reference

FAR = (0, 1, 40, 1_000_000)


def trained(head_dim=8, dtype=torch.float32, **settings):
    """Return a scheme whose alpha is no longer 0."""
    scheme = ww.LearnedRotary(head_dim, dtype=dtype, **settings)
    with torch.no_grad():
        scheme.alpha.copy_(draw(*scheme.alpha.shape, seed=9))
    return scheme


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"interleaved": True, "theta": 500.0},
        {"rotary_dim": 4, "rotary_start": 3},
        {"rotary_start": 2, "interleaved": True},
        {"scaling": ww.scaling.YaRN(factor=4.0, original_length=64)},
    ],
    ids=str,
)
def test_it_is_the_reference_forward_and_backward(settings):
    scheme = trained(dtype=torch.float64, **settings)
    x, g = (draw(3, len(FAR), 8, seed=n, dtype=torch.float64) for n in (1, 2))
    base, alpha = ww.Rotary(8, **settings).frequencies().numpy(), scheme.alpha.detach().numpy()
    w, start, interleaved = base * np.exp(alpha), scheme.rotary_start, scheme.interleaved
    settled = (scheme.theta, interleaved, scheme.rotary_dim, list(w), scheme.magnitude, start)
    q = x[None].clone().requires_grad_()
    mapped, _ = scheme(q, x[None].detach(), torch.tensor(FAR)[None])
    # An angle near 1e6 in float64 is exact to 1e-10.
    np.testing.assert_allclose(mapped[0].detach().numpy(), reference.rotary(x.numpy(), FAR, *settled), atol=1e-8)
    mapped.backward(g[None])
    require_gradients((q.grad[0],), lambda x: reference.rotary(x, FAR, *settled), (x,), g)


def test_the_gradient_of_alpha_is_that_of_differences():
    scheme, p = trained(dtype=torch.float64), ww.positions(5, start=7)
    q, k = (draw(1, 2, 5, 8, seed=n, dtype=torch.float64) for n in (3, 4))

    def scores(alpha):
        mapped_q, mapped_k = torch.func.functional_call(scheme, {"alpha": alpha}, (q, k, p))
        return mapped_q @ mapped_k.mT

    assert torch.autograd.gradcheck(scores, scheme.alpha.detach().clone().requires_grad_())


def test_in_float32_the_gradient_of_alpha_is_rounded_only():
    """Angles are float64 on the way back too: at position 100,000 float32 would lose them."""
    far = torch.tensor([[100_000, 100_001, 100_005]])
    wide, low = trained(dtype=torch.float64), trained()
    with torch.no_grad():
        wide.alpha.copy_(low.alpha)
    q, k, g = (draw(1, 2, 3, 8, seed=n) for n in range(3))
    for scheme, dtype in ((wide, torch.float64), (low, torch.float32)):
        mapped, _ = scheme(q.to(dtype), k.to(dtype), far)
        (mapped * g.to(dtype)).sum().backward()
    torch.testing.assert_close(low.alpha.grad.double(), wide.alpha.grad, rtol=1e-5, atol=1e-1)
    assert wide.alpha.grad.abs().max() > 1e4


def test_it_starts_as_rotary_and_leaves_it():
    scheme, rotary, p = ww.LearnedRotary(8), ww.Rotary(8), ww.positions(6, start=50)
    q, k = draw(1, 2, 6, 8, seed=1), draw(1, 2, 6, 8, seed=2)
    with torch.no_grad():
        torch.testing.assert_close(scheme(q, k, p), rotary(q, k, p), rtol=0, atol=1e-6)
    optimizer = torch.optim.AdamW(scheme.parameters(), lr=0.1)
    mapped_q, mapped_k = scheme(q, k, p)
    (mapped_q @ mapped_k.mT).square().sum().backward()
    optimizer.step()
    with torch.no_grad():
        assert (scheme(q, k, p)[0] - rotary(q, k, p)[0]).abs().max() > 0.1
    assert (scheme.inverse_frequencies / rotary.inverse_frequencies).log().detach().numpy() == pytest.approx(
        scheme.alpha.detach().numpy(), abs=1e-6
    )


def test_bfloat16_of_alpha_moves_far_angles():
    scheme = trained()
    near, far = ww.positions(2), ww.positions(2, start=100_000)
    with torch.no_grad():
        exact = [scheme.bind(p)[0] for p in (near, far)]
        rounded = [scheme.bfloat16().bind(p)[0] for p in (near, far)]
    close, apart = ((one - other).abs().max() for one, other in zip(exact, rounded, strict=True))
    assert close < 1e-2
    assert apart > 0.5


def test_cached_keys_have_the_old_frequencies():
    scheme, p = trained(), ww.positions(5)
    k = draw(1, 1, 5, 8)
    with torch.no_grad():
        old = scheme.bind(p)
        cached = scheme.map_key(k, old)
        scheme.alpha.add_(0.1)
        new = scheme.bind(p)
        wanted = scheme.map_key(k, new)
        assert (cached - wanted).abs().max() > 0.1
        torch.testing.assert_close(scheme.rerotate(cached, old, new), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_rotated_slice_anywhere_in_the_head(interleaved):
    """Its rotation is that of a head of these features alone; the others are copied, in place too."""
    rope = ww.Rotary(12, rotary_dim=6, rotary_start=4, interleaved=interleaved)
    alone = ww.Rotary(6, interleaved=interleaved)
    q, k, p = draw(2, 3, 5, 12, seed=1), draw(2, 1, 5, 12, seed=2), ww.positions(5, start=90)
    mapped = rope(q, k, p)
    inner = alone(q[..., 4:10], k[..., 4:10], p)
    for given, got, part in zip((q, k), mapped, inner, strict=True):
        assert torch.equal(got[..., 4:10], part)
        assert torch.equal(got[..., :4], given[..., :4])
        assert torch.equal(got[..., 10:], given[..., 10:])
    mine = q.clone(), k.clone()
    assert all(map(torch.equal, rope(*mine, p, in_place=True), mapped))
    assert all(map(torch.equal, mine, mapped))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_gradients_of_a_rotated_slice_in_place(dtype):
    rope, p, x = ww.Rotary(12, rotary_dim=6, rotary_start=4), ww.positions(5), draw(1, 2, 5, 12, dtype=dtype)
    slopes = []
    for in_place in (False, True):
        leaf = x.clone().requires_grad_()
        q, k = rope(2 * leaf, 3 * leaf, p, in_place=in_place)
        (q * draw(1, 2, 5, 12, seed=3, dtype=dtype) + k).sum().backward()
        slopes.append(leaf.grad)
    assert torch.equal(*slopes)


@pytest.mark.parametrize("scaling", [None, ww.scaling.YaRN(factor=4.0, original_length=64)])
def test_rotating_back_undoes_the_map(scaling):
    rope, p = ww.Rotary(12, rotary_dim=6, rotary_start=4, scaling=scaling), ww.positions(5, start=1000)
    q, bound = draw(2, 3, 5, 12), rope.bind(p)
    torch.testing.assert_close(rope.rotate_back(rope.map_query(q, bound), bound), q, rtol=0, atol=1e-5)
    assert (rope.map_query(q, bound) - q).abs().max() > 0.1


def test_a_slice_that_does_not_fit_is_refused():
    with pytest.raises(ww.errors.ShapeError, match="got rotary_start=12, but needs a feature of the head"):
        ww.Rotary(12, rotary_start=12)
    with pytest.raises(ww.errors.ShapeError, match="got rotary_dim=10 from rotary_start=4, but a head has only"):
        ww.Rotary(12, rotary_dim=10, rotary_start=4)
    with pytest.raises(ww.errors.ShapeError, match="got head_dim - rotary_start=9, but needs an even number"):
        ww.Rotary(12, rotary_start=3)
    assert repr(ww.Rotary(12, rotary_start=4)) == (
        "Rotary(head_dim=12, theta=10000.0, interleaved=False, rotary_dim=8, rotary_start=4)"
    )
