"""The table of names holds for every model type that can be read, and offsets are those of the configuration reader."""

import json
import warnings
from pathlib import Path

import pytest
import torch

from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.names import find_names
from whatwhere.models.configuration.model_types import MODEL_TYPES, learned_offset
from whatwhere.models.configuration.read import from_huggingface

from ..tiny import config_of, model_of, tables_of
from .samples import safetensors


def test_every_model_type() -> None:
    """The token table is that of `get_input_embeddings`, the output projection that of `get_output_embeddings`."""
    for model_type in MODEL_TYPES:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")
            model = model_of(config_of(model_type))
        parameters = dict(model.named_parameters(remove_duplicate=False))
        result = find_names({name: tuple(value.shape) for name, value in parameters.items()})
        assert not result.guessed, model_type
        if isinstance(model.get_input_embeddings(), torch.nn.ModuleList):  # a table for each stream of codes
            assert result.token_table is None, model_type
            continue
        table, head = tables_of(model)
        assert parameters[result.token_table or ""] is table.weight, model_type
        if head is None:
            assert result.output_projection is None, model_type
        else:
            assert parameters[result.output_projection or ""] is head.weight, model_type


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_offsets_are_those_of_the_configuration(model_type: str) -> None:
    description = from_huggingface(config_of(model_type))
    has_table = description.input is not None and description.input.scheme == "learned"
    expected = description.position_offset if has_table else None
    assert learned_offset(config_of(model_type).to_dict()) == expected


@pytest.mark.parametrize(
    ("model_type", "name", "offset"),
    [
        ("opt", "model.decoder.embed_positions.weight", 2),
        ("bart", "model.decoder.embed_positions.weight", 2),
        ("roberta", "roberta.embeddings.position_embeddings.weight", 2),
        ("gpt2", "transformer.wpe.weight", 0),
        ("luke", "luke.embeddings.position_embeddings.weight", 2),
        ("lilt", "lilt.embeddings.position_embeddings.weight", None),
        (None, "position_embeddings.weight", None),
    ],
)
def test_position_offset(model_type: str | None, name: str, offset: int | None, tmp_path: Path) -> None:
    tensors = {"embed_tokens.weight": ("F32", (5, 2), bytes(40)), name: ("F32", (8, 2), bytes(64))}
    (tmp_path / "model.safetensors").write_bytes(safetensors(tensors))
    if model_type is not None:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, "pad_token_id": 1}))
    checkpoint = Checkpoint.open(tmp_path)
    assert (checkpoint.position_table, checkpoint.position_offset) == (name, offset)


@pytest.mark.parametrize(
    ("names", "table", "output"),
    [
        (("vision_tower.embeddings.weight", "language_model.model.embed_tokens.weight"), 1, None),
        (("model.layers.61.embed_tokens.weight", "model.embed_tokens.weight"), 1, None),
        (("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), 1, None),
        (("decoder.embed_tokens.weight", "shared.weight"), 1, None),
        (("0.auto_model.embeddings.word_embeddings.weight", "0.auto_model.embeddings.LayerNorm.weight"), 0, None),
        (("embeddings", "mapping"), 0, None),
        (("bert.embeddings.word_embeddings.weight", "layer.0.attention.output.weight"), 0, None),
        (("tok_embeddings.weight", "output.weight"), 0, 1),  # a name that means otherwise behind a prefix
    ],
)
def test_of_several_names_one_is_meant(names: tuple[str, ...], table: int, output: int | None) -> None:
    found = find_names(dict.fromkeys(names, (9, 4)))
    expected = (names[table], None if output is None else names[output], False)
    assert (found.token_table, found.output_projection, found.guessed) == expected


@pytest.mark.parametrize(
    ("name", "rows", "is_output"),
    [("lm_head.weight", 8, True), ("lm_head.weight", 10, False), ("output.weight", 8, False)],
)
def test_output_projections_of_fewer_tokens(name: str, rows: int, is_output: bool) -> None:
    assert find_names({"wte.weight": (9, 4), name: (rows, 4)}).output_projection == (name if is_output else None)


def test_by_rows() -> None:
    shapes = {"a": (64, 4), "b": (40, 4), "c": (36, 4), "d": (38,), "e": (38, 4, 2)}
    assert find_names(shapes, num_tokens=37).token_table == "b"
    assert find_names(shapes, num_tokens=36).token_table == "c"
    assert find_names(shapes, num_tokens=65).token_table is None
    assert find_names({"a": (5000, 4)}, num_tokens=37).token_table is None  # no padding is as wide as that
    assert find_names({"a": (5000, 4)}).token_table == "a"
    assert find_names(shapes).token_table is None
