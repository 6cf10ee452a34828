"""Configurations made of other configurations; encoders with windows on both sides; a table or rotary positions."""

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING

import whatwhere as ww
from whatwhere.models.probe import probe
from whatwhere.models.probe.differences import differences
from whatwhere.models.probe.tiny import tiny_model

from .tiny import config_of, model_of

BERT: dict[str, Any] = {
    "model_type": "bert", "vocab_size": 9, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip


def test_each_part_is_read_as_the_model_that_it_is() -> None:
    config = CONFIG_MAPPING["encoder-decoder"](
        encoder={**BERT, "max_position_embeddings": 16}, decoder={**BERT, "is_decoder": True}
    )
    decoder, encoder = ww.from_huggingface(config), ww.from_huggingface(config, part="encoder")
    assert (decoder.part, decoder.causal, decoder.max_length) == ("decoder", True, 512)
    assert (encoder.part, encoder.causal, encoder.max_length) == ("encoder", False, 16)
    assert "decoder.hidden_size" in decoder.used


def test_the_text_of_an_omni_model_is_inside_its_thinker() -> None:
    text = {"vocab_size": 9, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "rope_parameters": {"rope_theta": 1e6, "mrope_section": [2, 3, 3]}}  # fmt: skip
    config = CONFIG_MAPPING["qwen2_5_omni"](thinker_config={"text_config": text})
    description = ww.from_huggingface(config)
    assert (description.model_type, description.part, description.vocab_size) == ("qwen2_5_omni_text", None, 9)
    plan = description.query_key[0]
    assert plan is not None
    assert plan.settings["sections"] == (2, 3, 3)
    assert "thinker_config.text_config.hidden_size" in description.used


def test_of_dia_the_encoder_is_read() -> None:
    """Its decoder writes nine codes at once; the encoder is probed by itself."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    config = CONFIG_MAPPING["dia_encoder"](hidden_size=64, num_hidden_layers=2, **heads, head_dim=16)
    description = ww.from_huggingface(CONFIG_MAPPING["dia"](encoder_config=config))
    assert (description.part, description.causal, description.scale) == ("encoder", False, 1.0)
    inner = ww.from_huggingface(config)
    assert description.query_key == inner.query_key
    assert differences(probe(tiny_model(config)), inner) == []


def test_rope_parameters_beside_the_text_of_music_flamingo_are_those_of_its_sounds() -> None:
    config = CONFIG_MAPPING["musicflamingo"]()
    plan = ww.from_huggingface(config).query_key[0]
    assert plan is not None
    assert (config.rope_parameters["rope_theta"], plan.settings["theta"]) == (1200.0, 10_000.0)


@pytest.mark.parametrize("window", [4, [4, 2]])
def test_windows_of_longformer_end_where_theirs_do(window: Any) -> None:
    """By which tokens of the text change the output of one layer at one of them."""
    description = ww.from_huggingface(config_of("longformer", attention_window=window, num_hidden_layers=2))
    sizes = [each.size for each in description.windows if each is not None]
    assert sizes == ([3, 3] if window == 4 else [3, 2])
    model = model_of(config_of("longformer", attention_window=4, num_hidden_layers=1)).longformer
    ids = torch.arange(4, 20)[None]
    with torch.no_grad():
        before = model(ids)[0][0, 8]
        changes = [model(ids.clone().index_fill_(1, torch.tensor([slot]), 30))[0][0, 8] for slot in range(16)]
    seen = [slot for slot, after in enumerate(changes) if not torch.allclose(before, after, atol=1e-6)]
    assert seen == [6, 7, 8, 9, 10]


def test_positions_of_longformer_are_counted_from_the_padding_id() -> None:
    config = config_of("longformer")
    embeddings, layer = model_of(config).longformer.embeddings, ww.from_huggingface(config).input_layer()
    ids = torch.arange(4, 13)[None]
    layer.tokens.weight = embeddings.word_embeddings.weight
    layer.where.input.weight = embeddings.position_embeddings.weight
    ours = embeddings.LayerNorm(layer(ids) + embeddings.token_type_embeddings.weight[0])
    torch.testing.assert_close(ours, embeddings(ids))


def test_layers_of_muse_are_counted_from_the_last() -> None:
    """Without a list, and by the list of the model's own configuration; theta 0 is not a rotation."""
    config = config_of("muse_glimmer_text", num_hidden_layers=6)
    bare = {**config.to_dict(), "layer_types": None, "layer_rope_theta": None}
    rotated = [plan is not None for plan in ww.from_huggingface(bare).query_key]
    assert rotated == [theta != 0 for theta in config.layer_rope_theta] == [True, False, True, True, True, False]
    assert rotated == [window is not None for window in ww.from_huggingface(config).windows]


AXES = ("cosmos3_edge_text", "glm4v_moe_text", "glm4v_text", "glm_ocr_text", "paddleocr_vl_text", "qwen2_5_omni_text",
        "qwen2_5_vl_text", "qwen2_vl_text", "qwen3_5_text", "qwen3_omni_moe_text", "qwen3_vl_text")  # fmt: skip


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("model_type", AXES)
def test_pairs_read_the_coordinate_that_theirs_do(model_type: str) -> None:
    """Cosines and sines of their own module, at tokens whose time, height and width differ."""
    config = config_of(model_type)
    plan = ww.from_huggingface(config).query_key[-1]
    module = next(each for name, each in model_of(config).named_modules() if name.endswith("rotary_emb"))
    coordinates = torch.tensor([[0, 3, 7, 9], [1, 5, 2, 30], [4, 0, 11, 6]])[:, None]
    theirs = module(torch.zeros(1), coordinates)
    assert plan is not None
    scheme: Any = plan.build()
    pairs = scheme.rotary_dim // 2
    here = ww.Where(query_key=scheme).at(ww.Positions(coordinates, torch.arange(4)[None]))
    first, second = (slice(0, None, 2), slice(1, None, 2)) if scheme.interleaved else (slice(pairs), slice(pairs, None))
    unit = torch.zeros(1, 1, 4, scheme.head_dim)
    rotated = unit[..., : scheme.rotary_dim]
    rotated[..., first] = 1.0
    ours = here.query_key(unit, unit)[0][0, 0, :, : scheme.rotary_dim]
    torch.testing.assert_close(ours[:, first], theirs[0][0][:, first].float(), rtol=0, atol=2e-6)
    torch.testing.assert_close(ours[:, second], theirs[1][0][:, first].float(), rtol=0, atol=2e-6)
