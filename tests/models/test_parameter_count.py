"""Parameter counts: the tutorials' tables, and real configurations."""

import re
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.ibert.quant_modules import QuantEmbedding

import whatwhere as ww
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.base import Contents, Entry
from whatwhere.models.checkpoint.names import find_names
from whatwhere.models.configuration.model_types import MODEL_TYPES
from whatwhere.models.load_where import wrong_shapes
from whatwhere.models.parameter_count import InputParameters, are_sinusoids

from .tiny import config_of, model_of, tables_of

HEADS = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2}
"""Sizes of the smallest model, by Llama's and BERT's keys."""


@pytest.mark.parametrize(
    ("config", "tokens", "positions", "total"),
    [
        ({"vocab_size": 50_000, "dim": 64}, 3_200_000, 0, 3_200_000),
        ({"vocab_size": 50_257, "dim": 768, "max_length": 1024}, 38_597_376, 786_432, 39_383_808),
        ({"vocab_size": 30_522, "dim": 768, "max_length": 512, "segments": 2}, 23_440_896, 393_216, 23_835_648),
        ({"vocab_size": 128_256, "dim": 4096, "tied": False}, 525_336_576, 0, 1_050_673_152),
    ],
    ids=["tutorial 5", "GPT-2", "BERT", "LLaMA-3 8B"],
)
def test_published_models(config, tokens, positions, total):
    counted = ww.parameters(config)
    assert (counted.tokens, counted.positions, counted.total) == (tokens, positions, total)


def test_null_is_what_is_absent():
    bert = {"model_type": "bert", "vocab_size": 9, "max_position_embeddings": 8} | HEADS
    assert ww.parameters(bert | {"type_vocab_size": None, "tie_word_embeddings": None}) == ww.parameters(bert)


def test_rotary_configuration_has_no_positions():
    assert ww.parameters(LlamaConfig(vocab_size=99, hidden_size=8, num_attention_heads=2)).positions == 0


def test_layers_are_counted():
    layer = ww.InputLayer(vocab_size=10, dim=4, input=ww.Learned(dim=4, max_length=6))
    assert ww.parameters(layer) == InputParameters(tokens=40, positions=24)
    assert ww.parameters(layer.tokens).total == 40
    assert ww.parameters(ww.Where(query_key=ww.Rotary(4))).total == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vocab_size": 10, "dims": 4}, "does not know 'dims'"),
        ({"model_type": "fnet", "vocab_size": 10}, "model_type 'fnet' is not one"),
        ({"vocab_size": 10}, "has no dim"),
        ({"vocab_size": 10, "dim": 4, "max_length": -8}, "max_length is -8"),
        ({"vocab_size": 10, "dim": 4, "tied": "no"}, "tied is 'no'"),
        ({"model_type": "llama", "vocab_size": 9, "tie_word_embeddings": 0} | HEADS, "tie_word_embeddings is 0"),
        ({"vocab_size": True, "dim": 4}, "vocab_size is True"),
        ({"model_type": "bert", "vocab_size": 9, "max_position_embeddings": None} | HEADS, "is missing"),
        (torch.nn.Linear(2, 2), "got Linear"),
    ],
)
def test_errors_name_what_was_given(given, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # whose check of annotations would come first
    with pytest.raises(ww.errors.WhatWhereError, match=message):
        ww.parameters(given)


def test_a_part_of_a_model_that_has_two():
    """BART's encoder and decoder have a table of positions each, of 1,024 rows and 2 before them."""
    sizes = {"d_model": 4, "vocab_size": 9, "decoder_layers": 1, "decoder_attention_heads": 2}
    bart = {"model_type": "bart", "encoder_layers": 1, "encoder_attention_heads": 2, **sizes}
    assert ww.parameters(bart) == ww.parameters(bart, part="encoder") == InputParameters(36, 4104)
    with pytest.raises(ww.errors.SettingError, match="part='both' is not one of 'bart'"):
        ww.parameters(bart, part="both")


# Every model type, whose tables are also those of its names

TABLES = re.compile(r"(^|\.)(wpe|pos_emb|position_embeddings|embed_positions|positions_embed)$")
SEGMENTS = ("token_type_embeddings", "segment_emb")


def counted(model: nn.Module, part: str | None) -> InputParameters:
    """Return the parameters of a model of transformers that `parameters` counts, by the names of its modules."""
    table, head = tables_of(model)
    tokens = table.weight
    inside = [(name, module) for name, module in model.named_modules() if part is None or f"{part}." in f"{name}."]
    inside = [(name, module) for name, module in inside if "entity" not in name]
    tables = [m.weight for name, m in inside if TABLES.search(name) and isinstance(m, nn.Embedding | QuantEmbedding)]
    segments = [module.weight for name, module in inside if name.endswith(SEGMENTS)]
    return InputParameters(
        tokens.numel(),
        sum(table.numel() for table in tables if isinstance(table, nn.Parameter) and table.requires_grad),
        sum(table.numel() for table in segments),
        head.weight.numel() if head is not None and head.weight is not tokens else 0,
    )


def require_names(model: nn.Module) -> None:
    """Require that the tables found by name are those of `get_input_embeddings` and `get_output_embeddings`."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    names = find_names({name: tuple(value.shape) for name, value in parameters.items()})
    table, head = tables_of(model)
    assert not names.guessed
    if isinstance(model.get_input_embeddings(), nn.ModuleList):  # a table for each stream of codes
        assert names.token_table is None
    else:
        found = [parameters.get(name or "") for name in (names.token_table, names.output_projection)]
        assert found[0] is table.weight
        assert found[1] is (None if head is None else head.weight)


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_parameters_are_those_of_the_model(model_type: str, tied: bool) -> None:
    if model_type == "dbrx" and tied:
        return  # its class refuses the flag
    config = config_of(model_type, tie_word_embeddings=tied)
    with torch.device("meta"):
        model = model_of(config)
    stored = {name: Entry(name, tuple(x.shape), "float32", 0, Path()) for name, x in model.state_dict().items()}
    stated = config.to_dict()
    for settings in (stated, {key: x for key, x in stated.items() if key not in ("layer_types", "layers_block_type")}):
        assert not [*wrong_shapes(Checkpoint(Path(), Contents("folder", stored, config=settings)))]
    if tied or model_type not in ("marian", "seamless_m4t", "seamless_m4t_v2"):  # whose parts have a table each then
        require_names(model)
    for part in MODEL_TYPES[model_type].parts or (None,):
        ours, theirs = ww.parameters(config, part=part), counted(model, part)
        if tables_of(model)[1] is None:  # transformers has no such head for this type
            ours = InputParameters(ours.tokens, ours.positions, ours.segments)
        assert ours == theirs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [5, 30, 1500])
@pytest.mark.parametrize("layout", ["interleaved", "half", "tensor2tensor"])
def test_a_table_of_sinusoids_is_known_in_any_layout(layout: Any, rows: int, dtype: torch.dtype) -> None:
    table = ww.Sinusoidal(64, layout=layout)(torch.arange(rows))[0].to(dtype).float().numpy()
    assert are_sinusoids(table)
    padded = np.concatenate([table[:1], 0 * table[:1], table[2:]])  # as fairseq writes one
    assert are_sinusoids(padded) == (rows > 6)
    rng = np.random.default_rng(0)
    assert not are_sinusoids(table + rng.normal(0, 0.1, table.shape))
    assert not are_sinusoids(np.full_like(table, np.nan))
    for other in (np.zeros_like(table), np.ones_like(table), np.arange(float(table.size)).reshape(table.shape)):
        assert not are_sinusoids(other)
