"""SAM's bias equals that of transformers' SAM, in its whole attention."""

import pytest
import torch
from torch import nn
from transformers import SamVisionConfig
from transformers.models.sam.modeling_sam import SamVisionAttention

import whatwhere as ww


@pytest.mark.parametrize("window", [0, 5])
def test_attention(window: int) -> None:
    """Over the whole image, of 6 by 6 patches, and within a window."""
    torch.manual_seed(0)
    config = SamVisionConfig(hidden_size=24, num_attention_heads=3, image_size=24, patch_size=4)
    module, size = SamVisionAttention(config, window).double().eval(), window or 6
    nn.init.normal_(module.rel_pos_h)
    nn.init.normal_(module.rel_pos_w)
    scheme = ww.SAM(8, 3, size).double()
    scheme.load_state_dict({"rows": module.rel_pos_h, "columns": module.rel_pos_w})
    x = torch.randn(2, size, size, 24, dtype=torch.float64)
    with torch.no_grad():
        wanted = module(x)[0]
        heads = module.qkv(x).flatten(1, 2).unflatten(-1, (3, 3, 8)).permute(2, 0, 3, 1, 4)
        here = ww.Where(scheme).at(ww.Positions.grid(size, size))
        for engine in ("dense", "sdpa"):
            y = here.attention(*heads, causal=False, engine=engine).transpose(1, 2).flatten(-2)
            ours = module.proj(y).unflatten(1, (size, size))
            torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5)  # their softmax is float32
