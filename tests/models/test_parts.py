"""Configurations made of other configurations; encoders with windows on both sides; a table or rotary positions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from transformers import CONFIG_MAPPING, EncoderDecoderModel, MarianMTModel

import whatwhere as ww
from whatwhere.analysis.walkthrough import walk_model
from whatwhere.models.probe import probe
from whatwhere.models.probe.differences import differences
from whatwhere.models.probe.tiny import tiny_model
from whatwhere.records import Missing

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


# Files that hold several models


def test_of_an_encoder_and_a_decoder_the_tables_of_one_are_read(tmp_path: Path) -> None:
    """Of BERT and GPT-2: the encoder reads a text; the decoder is read where it is named."""
    encoder = CONFIG_MAPPING["bert"](**{**BERT, "vocab_size": 40, "max_position_embeddings": 24}, eos_token_id=3)
    tokens = {"vocab_size": 55, "bos_token_id": 1, "eos_token_id": 2}
    decoder = CONFIG_MAPPING["gpt2"](**tokens, n_positions=16, n_embd=64, n_layer=1, n_head=4)
    config = CONFIG_MAPPING["encoder-decoder"](encoder=encoder.to_dict(), decoder=decoder.to_dict())
    model = EncoderDecoderModel(config)
    model.save_pretrained(tmp_path)
    read = ww.Checkpoint.open(tmp_path)
    parts = {"encoder": model.encoder.embeddings, "decoder": model.decoder.transformer}
    for opened in (read, ww.Checkpoint.open(tmp_path, part="decoder"), read.model("decoder")):
        own = parts[opened.description.part or ""]
        words = own.word_embeddings if opened is read else own.wte
        positions = own.position_embeddings if opened is read else own.wpe
        assert np.array_equal(opened.array(opened.token_table), words.weight.detach())
        assert np.array_equal(opened.array(opened.position_table), positions.weight.detach())
        assert (opened.description.vocab_size, opened.description.max_length) == (
            len(words.weight),
            len(positions.weight),
        )
    checked = ww.check(tmp_path)
    assert not checked.failed()
    assert "decoder.transformer.wte.weight (--run decoder)" in str(ww.inspect(tmp_path, ["tables"]).tables)
    variance = ww.inspect(tmp_path, ["variance"]).variance
    assert getattr(variance, "norm", None) == "embeddings.LayerNorm.weight"


def test_a_text_of_two_vocabularies_is_that_of_the_encoder(tmp_path: Path) -> None:
    sizes = {"vocab_size": 37, "decoder_vocab_size": 21, "d_model": 64, "scale_embedding": True}
    config = config_of("marian", **sizes, share_encoder_decoder_embeddings=False, tie_word_embeddings=False)
    model = MarianMTModel(config)
    model.save_pretrained(tmp_path)
    ids = torch.tensor([3, 36, 5])
    walked = walk_model(tmp_path, ids=ids.tolist())
    torch.testing.assert_close(walked.rows, model.model.encoder.embed_tokens(ids).detach() * 8)
    assert [ww.read(tmp_path, part=part).description.vocab_size for part in (None, "decoder")] == [37, 21]
    assert not ww.check(tmp_path).failed()
    decoder = ww.Checkpoint.open(tmp_path, part="decoder")
    assert (decoder.token_table, decoder.words) == ("model.decoder.embed_tokens.weight", None)


def test_a_table_is_not_compared_with_the_configuration_of_another_model(tmp_path: Path) -> None:
    """MusicGen's configuration is read for its codes, and its text has the token table of T5."""
    codec = {"num_filters": 4, "hidden_size": 8, "codebook_size": 32, "codebook_dim": 8, "upsampling_ratios": [2]}
    text = CONFIG_MAPPING["t5"](vocab_size=44, d_model=64, d_kv=16, d_ff=96, num_layers=1, num_heads=4)
    music = CONFIG_MAPPING["musicgen_decoder"](vocab_size=32, hidden_size=64, num_hidden_layers=1, ffn_dim=96)
    config = CONFIG_MAPPING["musicgen"](
        text_encoder=text.to_dict(), decoder=music.to_dict(), audio_encoder={"model_type": "encodec", **codec}
    )
    table = np.random.default_rng(0).standard_normal((44, 64)).astype(np.float32)
    save_file({"text_encoder.shared.weight": table}, tmp_path / "model.safetensors")
    config.save_pretrained(tmp_path)
    checked = ww.check(tmp_path)
    assert (checked.findings, checked.unchecked["sizes"]) == (
        [], "the configuration that is read is not of the model whose token table is text_encoder.shared.weight"
    )  # fmt: skip
    assert isinstance(ww.inspect(tmp_path, ["variance"]).variance, Missing)
    walked = walk_model(tmp_path, ids=[7])
    assert np.array_equal(walked.vectors[0], table[7])


def test_rows_of_models_without_attention_and_with_a_projection(tmp_path: Path) -> None:
    ids = torch.tensor([3, 36])
    mamba = model_of(config_of("mamba"))
    mamba.save_pretrained(tmp_path / "mamba")
    walked = walk_model(tmp_path / "mamba", ids=ids.tolist())
    torch.testing.assert_close(walked.vectors, mamba.get_input_embeddings()(ids).detach())
    assert "in their order" in walked.notes[0]
    assert "in their order" in str(ww.inspect(tmp_path / "mamba", ["positions"]).positions)
    opt = model_of(config_of("opt", word_embed_proj_dim=32))
    opt.save_pretrained(tmp_path / "opt")
    decoder = opt.model.decoder
    walked = walk_model(tmp_path / "opt", ids=ids.tolist())
    expected = decoder.project_in(decoder.embed_tokens(ids)).detach()
    torch.testing.assert_close(walked.rows, expected)
    torch.testing.assert_close(walked.vectors, expected + decoder.embed_positions.weight[2:4].detach())
