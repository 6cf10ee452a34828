"""The window tables equal those of transformers' Swin, Swin v2 and SAM."""

import pytest
import torch
from torch import nn
from transformers import SamVisionConfig, Swinv2Config
from transformers.models.sam.modeling_sam import SamVisionAttention
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

import whatwhere as ww


@pytest.mark.parametrize("window", [(7, 7), (2, 5), (1, 1)])
def test_swin(window: tuple[int, int]) -> None:
    module, scheme = SwinRelativePositionBias(3, window), ww.Swin(3, window)
    nn.init.normal_(module.relative_position_bias_table)
    scheme.load_state_dict({"weight": module.relative_position_bias_table.detach()})
    assert torch.equal(scheme(ww.Positions.grid(*window)), module())


@pytest.mark.parametrize(
    ("window", "trained"), [((8, 8), (0, 0)), ((6, 4), (0, 0)), ((12, 12), (8, 8)), ((1, 1), (0, 0))]
)
def test_swin_v2(window: tuple[int, int], trained: tuple[int, int]) -> None:
    """Its whole attention, of queries and keys that are norms of 1 times a scale."""
    module = Swinv2SelfAttention(Swinv2Config(attention_probs_dropout_prob=0.0), 24, 3, window, trained).eval()
    scheme = ww.SwinV2(3, window, trained if trained[0] else None)
    first, _, last = module.continuous_position_bias_mlp
    scheme.load_state_dict({"weight_in": first.weight, "bias_in": first.bias, "weight_out": last.weight})
    tokens = window[0] * window[1]
    x = torch.randn(2, tokens, 24)
    with torch.no_grad():
        wanted = module(x)[0]
        q, k, v = (part(x).unflatten(-1, (3, 8)).transpose(1, 2) for part in (module.query, module.key, module.value))
        q, k = (nn.functional.normalize(part, dim=-1) for part in (q, k))
        here = ww.Where(scheme, scale=1.0).at(ww.Positions.grid(*window))
        ours = here.attention(10 * q, k, v, causal=False).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("window", [0, 5])
def test_sam(window: int) -> None:
    """In its whole attention, over the whole image, of 6 by 6 patches, and within a window."""
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
