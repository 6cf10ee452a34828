"""Biases read from a configuration are those of transformers' own modules."""

import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.falcon import modeling_falcon as falcon

import whatwhere as ww

from ..tiny import config_of


@pytest.mark.parametrize("heads", [4, 6, 71])
def test_falcon_divides_and_rounds_its_slopes(heads: int) -> None:
    """Their product is rounded to bfloat16 as well; at key 1 it is the slope itself."""
    config = config_of("falcon", alibi=True, num_attention_heads=heads, hidden_size=16 * heads)
    description = ww.from_huggingface(config)
    theirs = falcon.build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)[:, 0, 1]
    ours = description.wheres()[0].score
    assert isinstance(ours, ww.ALiBi)
    torch.testing.assert_close(ours.slopes, theirs * 16**-0.5, rtol=1e-6, atol=0)
    assert (description.key_heads, description.query_key) == (1, (None,) * description.layers)


def test_falcon_attention() -> None:
    """Slopes of a power of two and few tokens: there nothing of theirs is rounded away."""
    config = config_of("falcon", alibi=True, multi_query=False)
    module = falcon.FalconAttention(config, layer_idx=0).eval()
    x = torch.randn(2, 9, 64)
    alibi = falcon.build_alibi_tensor(torch.ones(2, 9, dtype=torch.long), 4, torch.float32)
    mask = torch.zeros(2, 1, 9, 9).masked_fill(~ww.positions(9).mask(), torch.finfo(torch.float32).min)
    theirs = module(x, alibi, mask)[0]
    q, k, v = (part.transpose(1, 2) for part in module._split_heads(module.query_key_value(x)))
    here = ww.from_huggingface(config).wheres()[0].at(ww.positions(9))
    ours = module.dense(here.attention(q, k, v).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_layers_of_inkling_are_those_of_its_list() -> None:
    """Published files list the layers with windows; without a list every sixth has none."""
    config = {"model_type": "inkling_text", "vocab_size": 9, "hidden_size": 64, "num_hidden_layers": 6}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "swa_num_attention_heads": 16}
    for listed in (None, [0, 2, 5]):
        theirs = CONFIG_MAPPING["inkling_text"](**{**config, "local_layer_ids": listed})
        read = ww.from_huggingface({**config, "local_layer_ids": listed, "rel_extent": 7, "sliding_window_size": 5})
        assert read.layer_types == tuple(theirs.layer_types)
        windows = [layer_type == "hybrid_sliding" for layer_type in theirs.layer_types]
        assert [plan.settings["extent"] for plan in read.score if plan] == [5 if each else 7 for each in windows]
        assert [heads.num_heads for heads in read.heads] == [16 if each else 4 for each in windows]
    with pytest.raises(ww.errors.SettingError, match=r"layer_types\[1\] is 'full_attention', but the layers"):
        ww.from_huggingface({**config, "layer_types": ["hybrid", "full_attention"] * 3})
    for off in ({"log_scaling_n_floor": None}, {"log_scaling_n_floor": 9, "log_scaling_alpha": 0.0}):
        assert not any(ww.from_huggingface({**config, **off}).temperatures)
