"""cos and sin of every rope_type are transformers' own, within the trained length and beyond it."""

from copy import deepcopy
from importlib import import_module
from math import log
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, PreTrainedConfig

import whatwhere as ww

from ..tiny import config_of, model_of

# They take angles in float32: at position p a cosine is off by up to p * 6e-8 from the rounding of the angle, and as
# much from that of the frequency; its own rounding, and that of the magnitude, add a little.
PER_POSITION, AT_REST = 1.2e-7, 2e-7
ORIGINAL = 64
SHORT, BEYOND = torch.arange(ORIGINAL)[None], torch.arange(4 * ORIGINAL)[None]
LISTS = {"short_factor": [1.0 + n / 8 for n in range(8)], "long_factor": [1.0 + n for n in range(8)]}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
LONGROPE: dict[str, Any] = {**YARN, "rope_type": "longrope", **LISTS}


def rotary_of(config: PreTrainedConfig) -> nn.Module:
    """Build the module of a configuration's own model that computes cos and sin."""
    package = type(config).__module__.rsplit(".", 1)[0]
    source = import_module(f"{package}.modeling_{package.rsplit('.', 1)[1]}")
    names = [name for name in vars(source) if name.endswith("RotaryEmbedding") and "Vision" not in name]
    return getattr(source, names[0])(config)


def scheme_of(config: PreTrainedConfig | dict[str, Any], layer: int = 0) -> ww.Rotary | ww.MultimodalRotary:
    scheme = ww.from_huggingface(config).wheres()[layer].query_key
    assert isinstance(scheme, ww.Rotary | ww.MultimodalRotary)
    return scheme


def require_equal(scheme: ww.Rotary | ww.MultimodalRotary, theirs: tuple[Tensor, Tensor], at: Tensor) -> None:
    """Compare cos and sin within what float32 angles allow, and at position 0 to the bit."""
    p = ww.Positions.from_position_ids(at)
    farthest = at if at.dim() == 2 else at.amax(0)
    bound = (PER_POSITION * farthest + AT_REST)[..., None] * scheme.magnitude
    for ours, wanted in zip(scheme.bind_among(p, (p,)), theirs, strict=True):
        mine, wanted = ours[:, 0], wanted[..., : ours.shape[-1]]  # theirs has each pair twice
        assert mine.shape == wanted.shape
        assert bool(((mine - wanted).abs() <= bound).all())
        assert torch.equal(mine[farthest == 0], wanted[farthest == 0])


@pytest.mark.parametrize(
    ("mscales", "magnitude"),
    [
        ({"mscale": 1.0, "mscale_all_dim": 0.0}, 0.1 * log(64) + 1),  # Devstral 2
        ({"mscale": 1.0}, 0.1 * log(64) + 1),
        ({"mscale_all_dim": 0.0}, 0.1 * log(64) + 1),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 0.5, "mscale_all_dim": 0.0, "attention_factor": 1.25}, 1.25),
        ({"mscale": 0.5, "factor": 1.0}, 1.0),
    ],
)
def test_one_magnitude_by_both_formulas(mscales: dict[str, float], magnitude: float) -> None:
    """DeepSeek's code takes mscale 1 and mscale_all_dim 0 where they are absent; transformers needs both above 0."""
    config = config_of("llama", rope_parameters={**YARN, "rope_theta": 1e4, "factor": 64.0, **mscales})
    assert scheme_of(config).magnitude == pytest.approx(magnitude, rel=1e-12)
    assert rotary_of(config).attention_scaling == pytest.approx(magnitude, rel=1e-12)


WHOLE_AT_NULL = ("glm", "glm4", "glm4_moe", "glm4v_moe_text", "moonshine", "qwen3_5_text", "qwen3_next")


@pytest.mark.parametrize("model_type", [*WHOLE_AT_NULL, "recurrent_gemma"])
def test_a_fraction_of_null_is_the_whole_head(model_type: str) -> None:
    """Absent, it has the default of the type, which is a part."""
    sections = {"glm4v_moe_text": [2, 3, 3], "qwen3_5_text": [3, 3, 2]}.get(model_type)
    rope = {} if sections is None else {"rope_parameters": {"rope_type": "default", "mrope_section": sections}}
    names = ("rope_parameters", "partial_rotary_factor")
    config = {name: value for name, value in config_of(model_type).to_dict().items() if name not in names} | rope
    theirs = rotary_of(CONFIG_MAPPING[model_type].from_dict({**deepcopy(config), "partial_rotary_factor": None}))
    plan = next(plan for plan in ww.from_huggingface({**config, "partial_rotary_factor": None}).query_key if plan)
    assert plan.rotary_dim == 2 * len(theirs.inv_freq) == plan.settings["head_dim"]


@pytest.mark.parametrize("model_type", ["nemotron", "persimmon", "phi", "stablelm", "gpt_neox"])
def test_a_fraction_of_null_with_which_transformers_fails_is_refused(model_type: str) -> None:
    key = "rotary_pct" if model_type == "gpt_neox" else "partial_rotary_factor"
    config = {name: value for name, value in config_of(model_type).to_dict().items() if name != "rope_parameters"}
    with pytest.raises((KeyError, TypeError)):
        model_of(CONFIG_MAPPING[model_type].from_dict({**config, key: None}))
    with pytest.raises(ww.errors.SettingError, match=f"{key} is null, with which transformers fails"):
        ww.from_huggingface({**config, key: None})


def test_bamba_rotates_half_of_a_head_whatever_the_key_says() -> None:
    config = {name: value for name, value in config_of("bamba").to_dict().items() if name != "rope_parameters"}
    for fraction in (None, 0.5):
        plan = next(p for p in ww.from_huggingface({**config, "partial_rotary_factor": fraction}).query_key if p)
        assert plan.rotary_dim == 8


def test_hunyuan_raises_theta_once() -> None:
    """Its kind is called dynamic, but alpha is a fixed rise."""
    parameters = {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "mscale": 1.0}
    config = config_of("hunyuan_v1_dense", head_dim=16, rope_parameters={"rope_theta": 10_000.0, **parameters})
    scheme = scheme_of(config)
    assert scheme.scaling == ww.scaling.NTK(1000.0)
    require_equal(scheme, rotary_of(config)(torch.zeros(1), BEYOND), BEYOND)


@pytest.mark.parametrize("name", ["su", "longrope", "yarn"])
@pytest.mark.parametrize("at", [SHORT, BEYOND], ids=["short", "beyond"])
def test_phi3_has_three_names_for_longrope(name: str, at: Tensor) -> None:
    """Its trained length stands beside, and the factor is that of the two lengths; they forget it with `su`."""
    older = {"type": name, **LISTS}
    lengths = {"max_position_embeddings": 256, "original_max_position_embeddings": ORIGINAL}
    config = config_of("phi3", rope_scaling={**older, "type": "longrope" if name == "su" else name}, **lengths)
    read = scheme_of({**config.to_dict(), "rope_parameters": None, "rope_scaling": older})
    assert read.magnitude == (1 + log(4) / log(ORIGINAL)) ** 0.5
    require_equal(read, rotary_of(config)(torch.zeros(1), at), at)
    assert repr(scheme_of(config)) == repr(read)


def test_the_magnitude_of_phimoe() -> None:
    """Not beyond the trained length: there transformers keeps the short factors, which is not LongRoPE."""
    parameters = {**LONGROPE, "rope_theta": 10_000.0, "short_mscale": 1.25, "long_mscale": 1.25}
    config = config_of("phimoe", rope_parameters=parameters)
    scheme = scheme_of(config)
    assert scheme.magnitude == 1.25
    require_equal(scheme, rotary_of(config)(torch.zeros(1), SHORT), SHORT)


def test_latent_attention_scales_by_the_square_of_the_gain() -> None:
    parameters = {**YARN, "rope_theta": 10_000.0, "mscale": 1.0, "mscale_all_dim": 1.0}
    config = config_of("deepseek_v3", rope_parameters=parameters)
    description = ww.from_huggingface(config)
    source = import_module("transformers.models.deepseek_v3.modeling_deepseek_v3")
    assert description.scale == pytest.approx(source.DeepseekV3Attention(config, 0).scaling, rel=1e-12)
    assert description.scale == pytest.approx(16**-0.5 * (0.1 * log(4) + 1) ** 2)
    assert description.wheres()[0].scale == description.scale
