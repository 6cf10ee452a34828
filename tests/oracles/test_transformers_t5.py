"""T5 equals Hugging Face transformers' and x-transformers' T5 biases, bucket by bucket."""

import torch
from transformers.models.t5.modeling_t5 import T5Attention
from x_transformers import x_transformers as xt

import whatwhere as ww

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
