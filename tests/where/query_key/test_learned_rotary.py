"""LearnedRotary: rotary positions whose frequencies are trained."""

import pytest
import torch

import whatwhere as ww
from tests.samples import draw


def trained(head_dim=8, dtype=torch.float32, **settings):
    """Return a scheme whose alpha is no longer 0."""
    scheme = ww.LearnedRotary(head_dim, dtype=dtype, **settings)
    with torch.no_grad():
        scheme.alpha.copy_(draw(*scheme.alpha.shape, seed=9))
    return scheme


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


def test_frequencies_are_on_the_device_of_alpha() -> None:
    scheme = ww.LearnedRotary(8, device="meta")
    assert scheme.inverse_frequencies.is_meta
    dynamic = ww.LearnedRotary(8, scaling=ww.scaling.DynamicNTK(2.0, 16), device="meta")
    assert dynamic.frequencies(torch.tensor([16, 32])).is_meta
    assert trained().to(torch.float64).frequencies(device="cpu").is_cpu


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


@pytest.mark.parametrize("scaling", [None, ww.scaling.YaRN(factor=4.0, original_length=64)])
def test_rotating_back_undoes_the_map(scaling):
    rope, p = ww.Rotary(12, rotary_dim=6, rotary_start=4, scaling=scaling), ww.positions(5, start=1000)
    q, bound = draw(2, 3, 5, 12), rope.bind(p)
    torch.testing.assert_close(rope.rotate_back(rope.map_query(q, bound), bound), q, rtol=0, atol=1e-5)
    assert (rope.map_query(q, bound) - q).abs().max() > 0.1


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


def test_bfloat16_of_alpha_moves_far_angles():
    scheme = trained()
    near, far = ww.positions(2), ww.positions(2, start=100_000)
    with torch.no_grad():
        exact = [scheme.bind(p)[0] for p in (near, far)]
        rounded = [scheme.bfloat16().bind(p)[0] for p in (near, far)]
    close, apart = ((one - other).abs().max() for one, other in zip(exact, rounded, strict=True))
    assert close < 1e-2
    assert apart > 0.5
