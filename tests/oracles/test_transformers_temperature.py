"""The query temperature of transformers' Llama 4, Ministral 3 and Inkling 2: what it counts, and from where."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Inkling2TextConfig, Llama4TextConfig
from transformers.models.inkling2 import modeling_inkling2 as inkling2
from transformers.models.llama4 import modeling_llama4 as llama4
from transformers.models.ministral3 import modeling_ministral3 as ministral3

import whatwhere as ww
from whatwhere import temperature
from whatwhere.position.positions import PositionsLike

TOKENS, HIDDEN = 40, 24
SIZES: dict[str, Any] = {
    "hidden_size": HIDDEN, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 2,
    "attn_implementation": "record",
}  # fmt: skip
RECORDED: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def calls(recorded: list[dict[str, Any]]) -> None:
    global RECORDED
    RECORDED = recorded


def queries(module: nn.Module, *inputs: Any, **settings: Any) -> Tensor:
    """Return the queries that reach the attention of a module."""
    with torch.no_grad():
        module(*inputs, **settings)
    found: Tensor = RECORDED.pop()["q"]
    return found


def x(batch: int = 1) -> Tensor:
    """Sample what enters a layer."""
    return torch.randn(batch, TOKENS, HIDDEN)


def require_factor(warm: Tensor, plain: Tensor, curve: temperature.Curve, p: PositionsLike = TOKENS) -> None:
    """Check that one is the other times the curve; theirs is computed in float32."""
    scheme = ww.QueryTemperature(plain.shape[-1], curve)
    torch.testing.assert_close(scheme(plain, plain, p)[0], warm, rtol=1e-6, atol=1e-6)
    assert (warm - plain).abs().max() > 1e-2


def llama4_pair() -> tuple[nn.Module, nn.Module]:
    """Return an attention of Llama 4 without rotary positions, with and without its temperature."""
    config = Llama4TextConfig(**SIZES, no_rope_layers=[0, 0], attn_scale=0.1, floor_scale=8)
    warm = llama4.Llama4TextAttention(config, 0)
    config.attn_temperature_tuning = False
    plain = llama4.Llama4TextAttention(config, 0)
    plain.load_state_dict(warm.state_dict())
    return warm, plain


def test_llama4_with_left_padding_takes_the_slot() -> None:
    """Its module has no positions: a padded sequence has the factors of its slots, not those of its positions."""
    (warm, plain), given = llama4_pair(), x()
    hot, cold = queries(warm, given, None, None), queries(plain, given, None, None)
    curve, padded = temperature.SteppedLog(0.1, 8), ww.Positions.from_mask(torch.arange(TOKENS)[None] >= 5)
    require_factor(hot, cold, curve)
    positional = ww.QueryTemperature(8, curve)(cold, cold, padded)[0]
    assert (positional - hot).abs().max() > 1e-2
    torch.testing.assert_close(
        positional[:, :, 5:13] / cold[:, :, 5:13], curve.at(torch.arange(8)).float()[:, None].expand(1, 2, 8, 8)
    )


def test_llama4_counts_from_one_and_ministral3_from_zero() -> None:
    """With one period and strength, their factors differ where a step begins."""
    p, given = torch.arange(TOKENS)[None], x()
    (warm, plain) = llama4_pair()
    from_one = queries(warm, given, None, None) / queries(plain, given, None, None)
    from_zero = ministral3.get_llama_4_attn_scale(p, 0.1, 8)
    differ = ((from_one - from_zero).abs() > 1e-3).all(dim=1).all(dim=-1)[0].nonzero().flatten()
    assert differ.tolist() == [7, 15, 23, 31, 39]


@pytest.mark.parametrize("start", [0, 1000])
def test_inkling2(start: int) -> None:
    """The same curve of its positions."""
    p, given, made = torch.arange(start, start + TOKENS)[None], x(), []
    for floor in (6, 10**9):
        torch.manual_seed(3)
        config = Inkling2TextConfig(
            **SIZES, d_rel=4, rel_extent=16, layer_types=["hybrid", "hybrid"], log_scaling_n_floor=floor
        )
        module = inkling2.Inkling2FullAttention(config, 0)
        for weight in module.parameters():
            nn.init.normal_(weight, std=0.5)
        made.append(queries(module, given, given, given, None, position_ids=p))
    require_factor(*made, temperature.ClampedLog(0.1, 6), p)
