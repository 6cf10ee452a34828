"""Parameter counts: the tutorials' tables, and real configurations."""

import pytest
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, OPTConfig, OPTModel

import whatwhere as ww
from whatwhere.analysis.size import InputParameters


@pytest.mark.parametrize(
    ("vocab_size", "dim", "millions"),
    [(50_000, 64, 3.2), (50_000, 128, 6.4), (50_000, 768, 38.4), (50_000, 1280, 64.0), (50_000, 12_288, 614.4)],
)
def test_table_of_the_fifth_tutorial(vocab_size, dim, millions):
    assert ww.parameters({"vocab_size": vocab_size, "dim": dim}).tokens == millions * 1e6


@pytest.mark.parametrize(
    ("config", "tokens", "positions", "total"),
    [
        ({"vocab_size": 20, "dim": 64}, 1280, 0, 1280),
        ({"vocab_size": 50_257, "dim": 768, "max_length": 1024}, 38_597_376, 786_432, 39_383_808),
        ({"vocab_size": 50_257, "dim": 12_288, "max_length": 2048}, 617_558_016, 25_165_824, 642_723_840),
        ({"vocab_size": 30_522, "dim": 768, "max_length": 512, "segments": 2}, 23_440_896, 393_216, 23_835_648),
        ({"vocab_size": 128_256, "dim": 4096, "tied": False}, 525_336_576, 0, 1_050_673_152),
        ({"vocab_size": 129_280, "dim": 7168, "tied": False}, 926_679_040, 0, 1_853_358_080),
    ],
    ids=["tutorial 1", "GPT-2", "GPT-3", "BERT", "LLaMA-3 8B", "DeepSeek-V3"],
)
def test_published_models(config, tokens, positions, total):
    counted = ww.parameters(config)
    assert (counted.tokens, counted.positions, counted.total) == (tokens, positions, total)


@pytest.mark.parametrize(
    ("config", "build", "tables"),
    [
        (GPT2Config(vocab_size=99, n_embd=8, n_positions=16, n_layer=1, n_head=2), GPT2Model, ("wte", "wpe")),
        (
            BertConfig(
                vocab_size=99, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=16
            ),
            BertModel,
            ("word_embeddings", "position_embeddings", "token_type_embeddings"),
        ),
        (
            OPTConfig(
                vocab_size=99,
                hidden_size=8,
                word_embed_proj_dim=8,
                num_hidden_layers=1,
                num_attention_heads=2,
                max_position_embeddings=16,
                ffn_dim=8,
            ),
            OPTModel,
            ("embed_tokens", "embed_positions"),
        ),
    ],
    ids=["gpt2", "bert", "opt"],
)
def test_real_models_have_the_counted_tables(config, build, tables):
    model = build(config)
    built = {n: p.numel() for n, p in model.named_parameters() if n.split(".")[-2] in tables}
    counted = ww.parameters(config)
    assert counted.total == sum(built.values())
    assert len(built) == len(tables)


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
        ({"model_type": "mamba", "vocab_size": 10}, "model_type='mamba'"),
        ({"vocab_size": 10}, "dim=0"),
        (torch.nn.Linear(2, 2), "got Linear"),
        (7, "got int"),
    ],
)
def test_errors_name_what_was_given(given, message):
    with pytest.raises(ww.WhatWhereError, match=message):
        ww.parameters(given)
