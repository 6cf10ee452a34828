"""Models of transformers, tiny and at random, saved as one file, as shards and as GGUF; and one that people use."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from torch import nn

import whatwhere as ww
from whatwhere.models.checkpoint import Checkpoint

from ..tiny import config_of, model_of
from .forms import FORMS, LAYERS, TYPES, VOCABULARY, WORDS, saved, write_gguf


@pytest.fixture(scope="module", params=TYPES)
def model(request: pytest.FixtureRequest) -> tuple[str, nn.Module]:
    """Make a model, twice as wide as needed for shards to be several."""
    torch.manual_seed(0)
    return request.param, model_of(config_of(request.param))


@pytest.fixture(params=FORMS)
def opened(request: pytest.FixtureRequest, model: tuple[str, nn.Module], tmp_path: Path) -> tuple[str, Checkpoint]:
    """Save the model in one of three forms, and open it."""
    model_type, made = model
    if request.param == "gguf":
        write_gguf(tmp_path / "model.gguf", made, model_type)
        return "gguf", Checkpoint.open(tmp_path / "model.gguf")
    made.save_pretrained(tmp_path, max_shard_size="40KB" if request.param == "shards" else "5GB")
    assert len(list(tmp_path.glob("*.safetensors"))) > (request.param == "shards")
    Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)})).save(str(tmp_path / "tokenizer.json"))
    return request.param, Checkpoint.open(tmp_path)


def test_what_it_is(opened: tuple[str, Checkpoint], model: tuple[str, nn.Module]) -> None:
    """Tensors, tables, tokens, head and description are those of the model, whatever it was saved as."""
    form, checkpoint = opened
    model_type, made = model
    for name, value in saved(made).items() if form != "gguf" else ():
        assert np.array_equal(checkpoint.array(name), value.numpy())
        assert torch.equal(checkpoint.tensor(name), value)
    embedding = made.get_input_embeddings().weight.detach().numpy()
    assert np.array_equal(checkpoint.array(checkpoint.token_table), embedding)
    assert np.array_equal(checkpoint.array(checkpoint.token_table, [36, 3]), embedding[[36, 3]])
    assert checkpoint.words == WORDS
    assert not checkpoint.names.guessed
    head = made.get_output_embeddings().weight
    tied = head is made.get_input_embeddings().weight
    assert tied is (model_type != "llama")
    assert checkpoint.tied is tied
    if not tied:
        assert np.array_equal(checkpoint.array(checkpoint.output_projection), head.detach().numpy())
    assert (checkpoint.position_table is not None) is (model_type == "gpt2")
    assert checkpoint.position_offset == 0
    if model_type == "gpt2":
        assert np.array_equal(checkpoint.array(checkpoint.position_table), made.transformer.wpe.weight.detach())
    right, result = ww.from_huggingface(made.config), checkpoint.description
    assert (result.layers, result.vocab_size, result.tied) == (LAYERS, VOCABULARY, tied)
    for name in ("dim", "num_heads", "key_heads", "head_dim", "scales", "score", "input"):
        assert getattr(result, name) == getattr(right, name), name
    if form == "gguf" and model_type == "llama":
        plans = [{**plan.settings, "interleaved": False} for plan in result.query_key if plan is not None]
        assert all(plan is not None and plan.settings["interleaved"] for plan in result.query_key)
        assert plans == [plan.settings for plan in right.query_key if plan is not None]
        assert "pairs of neighbors (interleaved=True)" in result.notes[-1]
    else:
        assert result.query_key == right.query_key


def test_a_part_of_a_model_of_two(tmp_path: Path) -> None:
    model_of(config_of("t5", num_decoder_layers=2)).save_pretrained(tmp_path)
    encoder = ww.read(tmp_path, part="encoder")
    assert isinstance(encoder, Checkpoint)
    assert (encoder.description.part, encoder.description.layers) == ("encoder", LAYERS)
    assert ww.Checkpoint.open(tmp_path).description.layers == 2


# What read gives


def test_what_read_returns(tmp_path: Path) -> None:
    """A configuration alone is a Description, anything with tensors a Checkpoint."""
    config = json.loads(config_of("llama").to_json_string())
    (tmp_path / "config.json").write_text(json.dumps(config))
    description = ww.from_huggingface(config)
    assert ww.read(tmp_path) == ww.read(tmp_path / "config.json") == ww.read(config) == description
    model_of(config_of("llama")).save_pretrained(tmp_path)
    for path in (tmp_path, str(tmp_path), tmp_path / "model.safetensors"):
        result = ww.read(path)
        assert isinstance(result, Checkpoint)
        assert result.description.head_dim == description.head_dim
    assert ww.read(tmp_path / "config.json") == ww.from_huggingface(tmp_path)
