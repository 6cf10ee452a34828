"""The window tables equal those of transformers' Swin and Swin v2."""

import pytest
import torch
from transformers import Swinv2Config
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

import whatwhere as ww


@pytest.mark.parametrize("window", [(7, 7), (2, 5), (1, 1)])
def test_swin(window: tuple[int, int]) -> None:
    module, scheme = SwinRelativePositionBias(3, window), ww.Swin(3, window)
    torch.nn.init.normal_(module.relative_position_bias_table)
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
        q, k = (torch.nn.functional.normalize(part, dim=-1) for part in (q, k))
        here = ww.Where(scheme, scale=1.0).at(ww.Positions.grid(*window))
        ours = here.attention(10 * q, k, v, causal=False).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5)
