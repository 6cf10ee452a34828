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
from whatwhere.models.probe.tiny import tiny_model

from ..tiny import active_config, config_of, inputs_of, model_of
from . import small

TOKENS = 9
WITH_WINDOWS = [
    name
    for name, family in MODEL_TYPES.items()
    if family.windows is not None and family.windows.by != "both_sides"  # those of Longformer: in test_parts
]
CAUSAL_ALONE = (
    "bloom", "diffusion_gemma_text", "falcon_mamba", "glm5_next_text", "gpt_neo", "kosmos_2_text_model", "llama4_text",
    "mamba", "mamba2", "moonshine", "mpt", "nemotron", "openai-gpt", "pix2struct_text_model", "rwkv", "stablelm",
    "xlstm",
)  # fmt: skip
"""Types whose code does not read `is_causal: false` with every attention; chunks of Llama 4 stay causal, and BLOOM's
bias, slope * key, is ALiBi for earlier keys alone."""


def of(model_type: str, **keys: Any) -> dict[str, Any]:
    return small.of(model_type, num_hidden_layers=2, **keys)


def attended(config: Any) -> list[Tensor]:
    """Return, for each layer with attention, which keys have any weight, in the causal part."""
    model, ids = tiny_model(config), torch.arange(TOKENS)[None] + 5
    with torch.no_grad():
        weights = model(ids, output_attentions=True).attentions
    return [(layer[0] > 0).any(0) for layer in weights if layer is not None and layer.shape[-2:] == (TOKENS, TOKENS)]


def expected(description: Description, layer: int) -> Tensor:
    window = description.windows[layer]
    return torch.ones(TOKENS, TOKENS, dtype=torch.bool) if window is None else window.mask(ww.positions(TOKENS))[0, 0]


# Eager attention of ModernBERT's decoder fails without a mask.
@pytest.mark.every_nth(3)
@pytest.mark.parametrize("model_type", sorted({*WITH_WINDOWS} - {*CAUSAL_ALONE, "modernbert-decoder"}))
def test_windows_to_both_sides_are_theirs(model_type: str) -> None:
    """Those of earlier tokens alone are what the probe measures, in test_models."""
    indexed = {"index_topk": 16} if model_type == "dots3_note_text" else {}  # whose indexer hides further keys
    config = active_config(model_type, is_causal=False, **indexed)
    description = ww.from_huggingface(config)
    types = description.layer_types or ("",) * description.layers
    layers = [layer for layer, kind in enumerate(types) if kind not in ("linear_attention", "conv")]
    assert any(description.windows)
    for layer, theirs in zip(layers, attended(config), strict=True):
        ours = expected(description, layer)
        assert torch.equal(ours if bool(theirs.triu(1).any()) else ours.tril(), theirs)


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


@pytest.mark.every_nth(7)
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


@pytest.mark.parametrize(("model_type", "decodes"), [("xlm", {"causal": True}), ("xlnet", {"attn_type": "uni"})])
def test_masks_of_their_own_are_not_turned(model_type: str, decodes: dict[str, Any]) -> None:
    config = config_of(model_type, is_causal=False, **decodes)
    assert not sees_later(model_of(config))
    with pytest.raises(ww.errors.SettingError, match="is_causal is False, but"):
        ww.from_huggingface(config)


def test_null_is_false_for_transformers() -> None:
    config = {**config_of("llama").to_dict(), "is_causal": None}
    assert sees_later(model_of(CONFIG_MAPPING["llama"].from_dict(dict(config))))
    assert not ww.from_huggingface(config).causal


def test_the_direction_beside_a_text_is_the_text_s_own() -> None:
    text = config_of("llama").to_dict()
    assert ww.from_huggingface({"model_type": "llava", "is_causal": True, "text_config": text}).causal
    turned = {"model_type": "llava", "text_config": {**text, "is_causal": False}}
    assert not ww.from_huggingface(turned).causal


@pytest.mark.every_nth(3)
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
