"""Inkling's bias equals that of transformers' Inkling and Inkling 2, in the attention of all kinds of their layers."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers import Inkling2TextConfig, InklingTextConfig
from transformers.models.inkling import modeling_inkling as inkling
from transformers.models.inkling2 import modeling_inkling2 as inkling2

import whatwhere as ww
from whatwhere import temperature

from .shared import table_of

TOKENS, HIDDEN, HEADS, WINDOW, FEATURES, EXTENT = 30, 24, 4, 6, 5, 9
SIZES: dict[str, Any] = {
    "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": 8,
    "swa_num_attention_heads": HEADS, "swa_num_key_value_heads": 2, "swa_head_dim": 8, "sliding_window_size": WINDOW,
    "d_rel": FEATURES, "rel_extent": EXTENT, "num_hidden_layers": 2, "log_scaling_n_floor": 7, "log_scaling_alpha": 0.5,
    "layer_types": ["hybrid_sliding", "hybrid"], "attn_implementation": "record",
}  # fmt: skip


def layer(config: Any, n: int) -> nn.Module:
    """Return the attention of a layer, with random weights."""
    torch.manual_seed(n)
    module = inkling.InklingAttention(config, n).double().eval()
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.5)
    return module


@pytest.mark.parametrize("n", [0, 1])
def test_attention_of_inkling(n: int, recorded: list[Any]) -> None:
    config = InklingTextConfig(**SIZES)
    module, x = layer(config, n), torch.randn(2, TOKENS, HIDDEN, dtype=torch.float64)
    curve = temperature.ClampedLog(alpha=0.5, length=7) if n else None
    scheme = ww.Inkling(HIDDEN, HEADS, FEATURES, EXTENT if n else WINDOW, temperature=curve).double()
    scheme.load_state_dict({"weight": module.r_proj.weight, "profiles": module.rel_logits_proj.proj})
    with torch.no_grad():
        module(x, None)
        theirs = recorded.pop()
        here = ww.Where(scheme, scale=theirs["scaling"], window=None if n else WINDOW).at(TOKENS)
        for engine in ("dense", "sdpa"):
            y = here.attention(theirs["q"], theirs["k"], theirs["v"], gates=here.gates(x), engine=engine)
            # Their softmax is float32, and the temperature.
            torch.testing.assert_close(y, theirs["y"].transpose(1, 2), rtol=0, atol=1e-5)


@pytest.mark.parametrize("threshold", [0.5, 1e6])
def test_the_largest_norm_of_inkling_2(threshold: float, recorded: list[Any]) -> None:
    config = Inkling2TextConfig(**SIZES, rel_l2_clip_threshold=threshold)
    torch.manual_seed(0)
    module = inkling2.Inkling2SlidingAttention(config, 0).eval()
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.5)
    x = torch.randn(2, TOKENS, HIDDEN)
    scheme = ww.Inkling(HIDDEN, HEADS, FEATURES, WINDOW, max_norm=threshold)
    gain, profiles = module.rel_l2_clip.scale, module.rel_logits_proj.proj
    scheme.load_state_dict({"weight": module.r_proj.weight, "profiles": profiles, "gain": gain})
    with torch.no_grad():
        module(x, None)
        theirs, p = recorded.pop()["position_bias"], ww.positions(TOKENS)
        element = scheme.bind(p, p, gates=scheme.gates(x))
        made = table_of(element, *theirs.shape)
    torch.testing.assert_close(made, theirs, rtol=1e-5, atol=1e-5)


def test_the_temperature_multiplies_the_bias_too(recorded: list[Any]) -> None:
    module, x = layer(InklingTextConfig(**SIZES), 1), torch.randn(1, TOKENS, HIDDEN, dtype=torch.float64)
    with torch.no_grad():
        module(x, None)
        theirs = recorded.pop()["position_bias"]
        tau = temperature.ClampedLog(alpha=0.5, length=7).at(torch.arange(TOKENS))
        bias = []
        for curve in (temperature.ClampedLog(alpha=0.5, length=7), None):
            scheme = ww.Inkling(HIDDEN, HEADS, FEATURES, EXTENT, temperature=curve).double()
            scheme.load_state_dict({"weight": module.r_proj.weight, "profiles": module.rel_logits_proj.proj})
            element = scheme.bind(ww.positions(TOKENS), ww.positions(TOKENS), gates=scheme.gates(x))
            bias.append(table_of(element, 1, HEADS, TOKENS, TOKENS))
    torch.testing.assert_close(bias[0], theirs, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(bias[1] * tau[:, None], theirs, rtol=1e-6, atol=1e-6)
    assert (bias[1] - theirs).abs().max() > 0.1
