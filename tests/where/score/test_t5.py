"""T5: a learned bias for each bucket of distances."""

import pytest
import torch

import whatwhere as ww
from tests.samples import draw


def sampled(num_heads: int = 3, seed: int = 0, **settings) -> ww.T5:
    torch.manual_seed(seed)
    return ww.T5(num_heads, std=1.0, **settings)


def test_an_edge_that_is_a_whole_distance_is_not_missed():
    """8 (27 / 8) ** (m / 9) is 12 at m = 3 and 18 at m = 6; float32 logarithms fall below 3 on some processors."""
    buckets = ww.T5(1, num_buckets=17, max_distance=27).buckets(torch.tensor([11, 12, 17, 18]))
    assert buckets.tolist() == [10, 11, 13, 14]


def test_buckets_take_any_whole_numbers():
    for dtype in (torch.int32, torch.int16, torch.int64):
        made = ww.T5(1).buckets(torch.tensor([[3, 400]], dtype=dtype))
        assert made.tolist() == [[3, 31]]
        assert made.dtype == torch.int64
    assert ww.T5(1).buckets(torch.tensor([2**62])).tolist() == [31]


@pytest.mark.parametrize("scale", [1.0, 0.5, None])
def test_it_sets_the_softmax_scale(scale):
    here = ww.Where(score=sampled(scale=scale)).at(ww.positions(6))
    q, k, v = (draw(1, 3, 6, 4, seed=n) for n in range(3))
    assert here.scale == scale
    logits = q @ k.mT * (0.5 if scale is None else scale) + here.where.score(ww.positions(6), causal=True)
    torch.testing.assert_close(here.attention(q, k, v), logits.softmax(-1) @ v)


def test_gradients_of_a_bucket_are_summed_in_float32():
    """A bfloat16 sum of ones ends at 256."""
    scheme = ww.T5(1, dtype=torch.bfloat16)
    scheme(ww.positions(1, start=5000), ww.positions(4096), causal=True).sum().backward()
    assert float(scheme.weight.grad[31, 0]) == 4096


def test_a_table_in_bfloat16_loses_no_more_than_its_weights():
    scheme = sampled(dtype=torch.bfloat16)
    table = scheme(ww.positions(1, start=50), ww.positions(51), causal=True)
    assert table.dtype == torch.float32
    assert torch.equal(table[0, :, 0, 50], scheme.weight[0].float())


def test_an_encoder_must_be_declared_bidirectional():
    q = draw(1, 3, 4, 8)
    with pytest.raises(ww.errors.SettingError, match=r"T5\(num_heads=3, bidirectional=True\)"):
        ww.Where(score=ww.T5(3)).at(ww.positions(4)).attention(q, q, q, causal=False)
    with pytest.raises(ww.errors.SettingError, match="causal=True"):
        ww.T5(3)(ww.positions(4))
    assert ww.T5(3, bidirectional=True)(ww.positions(4)).shape == (1, 3, 4, 4)


def test_the_catalogue_initializes_it_as_hugging_face_does():
    assert ww.scheme("t5", dim=64, num_heads=4, max_length=9).score.std == 0.125
    assert ww.scheme("t5", dim=64, num_heads=4, max_length=9, std=0.5).score.std == 0.5
