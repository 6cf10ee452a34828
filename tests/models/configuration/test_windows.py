"""Windows: which layers attend to near tokens only is what transformers' own models do, or is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING

import whatwhere as ww
from whatwhere import Window
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.model_types import MODEL_TYPES

from ..checkpoint.forms import LAYERS
from ..tiny import config_of, inputs_of, model_of
from . import small

TOKENS = 9
WITH_WINDOWS = [
    name
    for name, family in MODEL_TYPES.items()
    if family.windows is not None and family.windows.by != "both_sides"  # those of Longformer: in test_parts
]
SMALL = {"sliding_window": 3, "use_sliding_window": True, "max_window_layers": 2}
KEYS: dict[str, dict[str, Any]] = {
    "dots1": {"sliding_window": 3, "max_window_layers": 2},
    "gpt_neo": {"window_size": 3},
    "lfm3": {"sliding_window": 3, "layer_types": ["conv", "sliding_attention", "full_attention", "conv"]},
    "llama4_text": {"attention_chunk_size": 4},
    "mellum": {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "modernbert": {"local_attention": 6},
    "modernbert-decoder": {"local_attention": 6},
    "recurrent_gemma": {"attention_window_size": 3},
    "smollm3": {"sliding_window": 3, "use_sliding_window": True},
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text", "qwen3"), SMALL),
    "qwen3_moe": {"sliding_window": 3, "use_sliding_window": True},
}
CAUSAL_ALONE = (
    "bloom", "diffusion_gemma_text", "falcon_mamba", "glm5_next_text", "gpt_neo", "kosmos_2_text_model", "llama4_text",
    "mamba", "mamba2", "moonshine", "mpt", "nemotron", "openai-gpt", "pix2struct_text_model", "rwkv", "stablelm",
    "xlstm",
)  # fmt: skip
"""Types whose code does not read `is_causal: false` with every attention; chunks of Llama 4 stay causal, and BLOOM's
bias, slope * key, is ALiBi for earlier keys alone."""


def of(model_type: str, **keys: Any) -> dict[str, Any]:
    """Return a small configuration of two layers."""
    return small.of(model_type, num_hidden_layers=2, **keys)


def attended(config: Any) -> list[Tensor]:
    """Return, for each layer with attention, which keys have any weight, in the causal part."""
    model = model_of(config)
    ids = torch.arange(TOKENS)[None] + 4
    with torch.no_grad():
        weights = model(ids, output_attentions=True).attentions
    return [(layer[0] > 0).any(0) for layer in weights if layer is not None and layer.shape[-2:] == (TOKENS, TOKENS)]


def expected(description: Description, layer: int) -> Tensor:
    """Return which keys a layer may attend to, as described."""
    window = description.windows[layer]
    return torch.ones(TOKENS, TOKENS, dtype=torch.bool) if window is None else window.mask(ww.positions(TOKENS))[0, 0]


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("model_type", WITH_WINDOWS)
def test_windows_are_theirs(model_type: str, is_causal: bool) -> None:
    if not is_causal and model_type in (*CAUSAL_ALONE, "modernbert-decoder"):
        pytest.skip("refused in test_direction, or eager attention of transformers fails without a mask")
    direction = {} if is_causal else {"is_causal": False}  # most configurations have no such key
    config = config_of(model_type, **KEYS.get(model_type, {"sliding_window": 3}), **direction)
    description = ww.from_huggingface(config)
    assert any(description.windows)
    linear = [kind not in ("linear_attention", "conv") for kind in description.layer_types or ("",) * LAYERS]
    layers = [layer for layer in range(LAYERS) if linear[layer]]
    seen = attended(config)
    for layer, theirs in zip(layers, seen, strict=True):
        bidirectional = bool(theirs.triu(1).any())
        ours = expected(description, layer)
        assert torch.equal(ours if bidirectional else ours.tril(), theirs)
    assert {"sliding_window", "local_attention", "attention_chunk_size", "window_size", "attention_window_size",
            "sliding_window_size"} & set(description.used)  # fmt: skip


def sees_later(model: Any) -> bool:
    """Return whether an output depends on a later token of the text, in the decoder if there is one."""
    inputs = inputs_of(model, torch.arange(6)[None] + 4)
    name = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    with torch.no_grad():
        before, after = (
            model(**{**inputs, name: torch.cat([inputs[name][:, :-1], torch.tensor([[last]])], dim=1)})
            for last in (20, 30)
        )
    before, after = (each.logits if "logits" in each else each.last_hidden_state for each in (before, after))
    return bool((before - after)[:, :-1].abs().max() > 1e-6 * before.abs().max())


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_direction(model_type: str) -> None:
    """`is_causal: false` makes the masks of nearly every type bidirectional, in code that the types share."""
    config = config_of(model_type, is_causal=False)
    if model_type in CAUSAL_ALONE:
        with pytest.raises(ww.errors.SettingError, match="is_causal is False, but"):
            ww.from_huggingface(config)
        return
    description = ww.from_huggingface(config)
    assert not description.causal
    model: Any = model_of(config)
    kinds = ("eager", "sdpa") if model._supports_sdpa else ("eager",)
    for kind in kinds if model_type != "modernbert-decoder" else ("sdpa",):  # whose eager attention needs a mask
        model.set_attn_implementation(kind)
        assert sees_later(model) or model_type == "mra"  # whose blocks are longer than this text


@pytest.mark.parametrize("model_type", ["bert", "roberta", "big_bird", "rembert"])
def test_a_text_encoder_that_decodes_is_turned_too(model_type: str) -> None:
    config = config_of(model_type, is_causal=False, is_decoder=True)
    assert ww.from_huggingface(config).causal is (not sees_later(model_of(config))) is False
    assert ww.from_huggingface({**config.to_dict(), "is_causal": True}).causal


@pytest.mark.parametrize(("model_type", "decodes"), [("xlm", {"causal": True}), ("xlnet", {"attn_type": "uni"})])
def test_masks_of_their_own_are_not_turned(model_type: str, decodes: dict[str, Any]) -> None:
    config = config_of(model_type, is_causal=False, **decodes)
    assert not sees_later(model_of(config))
    with pytest.raises(ww.errors.SettingError, match="is_causal is False, but"):
        ww.from_huggingface(config)


def test_falcon_with_alibi_is_not_turned() -> None:
    assert not ww.from_huggingface(config_of("falcon", is_causal=False)).causal
    with pytest.raises(ww.errors.SettingError, match="is_causal is False, but the bias of 'falcon'"):
        ww.from_huggingface(config_of("falcon", is_causal=False, alibi=True))


def test_null_is_false_for_transformers() -> None:
    config = {**config_of("llama").to_dict(), "is_causal": None}
    assert sees_later(model_of(CONFIG_MAPPING["llama"].from_dict(dict(config))))
    assert not ww.from_huggingface(config).causal


def test_the_direction_beside_a_text_is_the_text_s_own() -> None:
    text = config_of("llama").to_dict()
    assert ww.from_huggingface({"model_type": "llava", "is_causal": True, "text_config": text}).causal
    with pytest.raises(ww.errors.SettingError, match="is_causal is False beside text_config"):
        ww.from_huggingface({"model_type": "llava", "is_causal": False, "text_config": text})
    turned = {"model_type": "llava", "text_config": {**text, "is_causal": False}}
    assert not ww.from_huggingface(turned).causal


def test_an_encoder_is_not_made_causal() -> None:
    with pytest.raises(ww.errors.SettingError, match="is_causal is True, but whatwhere reads 'eurobert' with False"):
        ww.from_huggingface({**config_of("eurobert").to_dict(), "is_causal": True})


def test_windows_that_count_both_sides() -> None:
    """EmbeddingGemma: `use_bidirectional_attention` halves the window."""
    config = config_of("gemma3_text", sliding_window=6, use_bidirectional_attention=True)
    description = ww.from_huggingface(config)
    assert description.windows[0] == Window(4)
    for layer, theirs in enumerate(attended(config)):
        assert torch.equal(expected(description, layer), theirs)
    both = config_of("gemma3_text", sliding_window=6, use_bidirectional_attention=True, is_causal=False)
    description = ww.from_huggingface(both)
    for layer, theirs in enumerate(attended(both)):
        assert torch.equal(expected(description, layer), theirs)


@pytest.mark.parametrize(
    "model_type", [name for name in MODEL_TYPES if name not in (*WITH_WINDOWS, "longformer", "moshi")]
)
def test_a_type_without_windows_refuses_them(model_type: str) -> None:
    config = config_of(model_type).to_dict()
    with pytest.raises(ww.errors.SettingError, match="sliding_window=3 is not a key"):
        ww.from_huggingface({**config, "sliding_window": 3})
    assert not any(ww.from_huggingface({**config, "sliding_window": None, "use_sliding_window": False}).windows)


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        (of("qwen2", sliding_window=8, max_window_layers=1), (None, None)),  # switched off, as in most files
        (of("qwen2", sliding_window=8, max_window_layers=1, use_sliding_window=True), (None, Window(8))),
        (of("qwen3", use_sliding_window=False, sliding_window=None, max_window_layers=28), (None, None)),
        (of("gpt_oss", head_dim=16, layer_types=["full_attention", "sliding_attention"]), (None, Window(128))),
        (of("ministral", sliding_window=None), (None, None)),
        (of("mistral"), (Window(4096), Window(4096))),
        (of("gpt_neo", num_layers=2, attention_types=[[["global"], 1], [["local"], 1]], window_size=5),
         (None, Window(5))),
    ],
)  # fmt: skip
def test_which_layers(config: dict[str, Any], windows: tuple[Window | None, ...]) -> None:
    if config["model_type"] == "gpt_neo":
        config = {key: value for key, value in config.items() if key != "num_hidden_layers"}
    description = ww.read(config)
    assert description.windows == windows


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a window that is not said": (
        of("gemma2", head_dim=16, sliding_window=None), "layer 0 is of the type sliding_attention, but sliding_window",
    ),
    "a window that is switched off": (
        of("qwen2", layer_types=["sliding_attention"] * 2), "use_sliding_window is off",
    ),
    "kinds that its code does not read": (
        of("mistral", layer_types=["full_attention", "sliding_attention"]), "'mistral' does not read it",
    ),
    "no size": (of("mistral", sliding_window="wide"), "whole number of at least 1"),
    "no size at all": (of("mistral", sliding_window=0), "whole number of at least 1"),
    "two halves": (of("modernbert", local_attention=8, sliding_window=3), "sliding_window is 3, but .* with 4 only"),
    "kinds of a type that has one": (of("llama", layer_types=["full_attention"] * 2), "layer_types"),
    "no pattern": (of("gpt_neo", attention_types="local"), "must be a list"),
    "a pattern of another length": (of("gpt_neo", attention_types=[[["local"], 3]]), "needs pairs such as"),
    "a pattern too short": (of("gpt_neo", attention_types=[[["local"], 1]]), "names 1 layers, but there are 2"),
    "an unknown word": (of("gpt_neo", attention_types=[[["near"], 2]]), "needs pairs such as"),
    "two lists": (
        of("gpt_neo", attention_types=[[["local"], 2]], attention_layers=["local", "global"]), "keep one of them",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_windows_that_are_refused(case: str) -> None:
    config, message = REFUSED[case]
    with pytest.raises(ww.errors.SettingError, match=message):
        ww.from_huggingface(config)
