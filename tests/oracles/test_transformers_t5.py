"""T5 equals Hugging Face transformers' and x-transformers' T5 biases, bucket by bucket, and a whole module."""

import pytest
import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention
from x_transformers import x_transformers as xt

import whatwhere as ww

from .shared import merge, split

FAR = 4096
BUCKETS = (2, 3, 4, 8, 12, 16, 24, 31, 32, 48, 64, 100, 128, 256)
DISTANCES = (20, 31, 32, 50, 64, 100, 127, 128, 129, 200, 256, 384, 512, 800, 1000, 1024, 2048, 4096)
SETTINGS = [
    (buckets, distance, both_ways)
    for buckets in BUCKETS
    for distance in DISTANCES
    for both_ways in (False, True)
    if distance > buckets // (4 if both_ways else 2) and not (both_ways and (buckets % 2 or buckets < 4))
]


def attention_of(is_decoder: bool, num_buckets: int = 32, max_distance: int = 128) -> T5Attention:
    """Return a first layer of a small T5, with random weights."""
    config = T5Config(
        d_model=24, d_kv=8, num_heads=3, is_decoder=is_decoder, dropout_rate=0.0,
        relative_attention_num_buckets=num_buckets, relative_attention_max_distance=max_distance,
    )  # fmt: skip
    return T5Attention(config, has_relative_attention_bias=True, layer_idx=0, is_causal=is_decoder).eval()


def like(module: T5Attention) -> ww.T5:
    """Return our scheme with a module's settings and table."""
    scheme = ww.T5(
        module.n_heads,
        module.relative_attention_num_buckets,
        module.relative_attention_max_distance,
        bidirectional=not module.is_decoder,
    )
    scheme.load_state_dict(module.relative_attention_bias.state_dict())
    return scheme


def test_buckets() -> None:
    """Every distance up to 4,096, both ways, for all settings of the lists."""
    relative = torch.arange(-FAR, FAR + 1)  # theirs is key minus query
    assert len(SETTINGS) > 350
    for num_buckets, max_distance, both_ways in SETTINGS:
        theirs = T5Attention._relative_position_bucket(relative, both_ways, num_buckets, max_distance)
        ours = ww.T5(1, num_buckets, max_distance, both_ways).buckets(-relative)
        assert torch.equal(ours, theirs), (num_buckets, max_distance, both_ways)
        theirs = xt.RelativePositionBias._relative_position_bucket(relative, not both_ways, num_buckets, max_distance)
        assert torch.equal(ours, theirs), (num_buckets, max_distance, both_ways)


def test_pin_an_edge_missed_in_float32() -> None:
    """8 (27 / 8) ** (3 / 9) is 12, so the fourth far bucket begins there; on some processors they compute 2.9999998."""
    theirs = T5Attention._relative_position_bucket(-torch.tensor([12]), False, 17, 27)
    assert int(theirs) in (10, 11)
    assert int(ww.T5(1, 17, 27).buckets(torch.tensor([12]))) == 11


@pytest.mark.parametrize("is_decoder", [False, True])
def test_bias(is_decoder: bool) -> None:
    module = attention_of(is_decoder, num_buckets=16, max_distance=40)
    theirs = module.compute_bias(60, 60)
    p = ww.positions(60)
    if is_decoder:
        theirs = theirs.masked_fill(~p.mask(), -torch.inf)
    assert torch.equal(like(module)(p, causal=is_decoder), theirs)


def test_bias_of_a_decoding_step() -> None:
    module = attention_of(is_decoder=True)
    theirs = module.compute_bias(1, 200, past_seen_tokens=199)
    assert torch.equal(like(module)(ww.positions(1, start=199), ww.positions(200), causal=True), theirs)


@pytest.mark.parametrize("is_decoder", [False, True])
def test_attention(is_decoder: bool) -> None:
    """A whole module with its weights: the softmax scale is 1, and padding stands on the right."""
    module = attention_of(is_decoder).double()
    x = torch.randn(2, 50, 24, dtype=torch.float64)
    mask = torch.arange(50) < torch.tensor([[50], [31]])
    p = ww.Positions.from_mask(mask)
    added = torch.zeros(2, 1, 50, 50, dtype=torch.float64).masked_fill(~p.mask(causal=is_decoder), -1e30)
    wanted = module(x, mask=added)[0]
    here = ww.Where(score=like(module).double()).at(p)
    y = here.attention(*(split(part(x)) for part in (module.q, module.k, module.v)), causal=is_decoder)
    mine = module.o(merge(y))
    torch.testing.assert_close(mine[mask], wanted[mask], rtol=0, atol=1e-6)  # their softmax is float32


@pytest.mark.parametrize("causal", [True, False])
def test_x_transformers(causal: bool) -> None:
    """They multiply the bias, by sqrt(head_dim) where they divide scores by it; here the factor is 1."""
    theirs = xt.RelativePositionBias(scale=1.0, causal=causal, num_buckets=16, max_distance=50, heads=3)
    scheme = ww.T5(3, 16, 50, bidirectional=not causal)
    scheme.load_state_dict(theirs.relative_attention_bias.state_dict())
    queries, keys = ww.positions(20, start=80), ww.positions(100)
    wanted = theirs(20, 100)
    if causal:
        wanted = wanted.masked_fill(~queries.mask(keys)[0], -torch.inf)
    assert torch.equal(scheme(queries, keys, causal=causal)[0], wanted)
