"""Tables by their names, of several models and parts, or by their rows."""

from pathlib import Path

import numpy as np
import pytest

from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.names import find_names

from .samples import write_folder


@pytest.mark.parametrize(
    ("model_type", "name", "offset"),
    [
        ("opt", "model.decoder.embed_positions.weight", 2),
        ("roberta", "roberta.embeddings.position_embeddings.weight", 2),
        ("gpt2", "transformer.wpe.weight", 0),
        ("luke", "luke.embeddings.position_embeddings.weight", 2),
        ("lilt", "lilt.embeddings.position_embeddings.weight", None),
        (None, "position_embeddings.weight", None),
    ],
)
def test_position_offset(model_type: str | None, name: str, offset: int | None, tmp_path: Path) -> None:
    config = {} if model_type is None else {"config__json": {"model_type": model_type, "pad_token_id": 1}}
    tensors = {"embed_tokens.weight": np.zeros((5, 2)), name: np.zeros((8, 2))}
    checkpoint = Checkpoint.open(write_folder(tmp_path, tensors, **config))
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


def test_of_several_runs_all_tables_are_those_of_one() -> None:
    names = "none-2/tokens.weight", "learned-2/tokens.weight", "learned-2/where.input.weight"
    for run, positions in (("none-2", None), ("learned-2", names[2])):
        found = find_names(dict.fromkeys(names, (9, 4)), token_table=f"{run}/tokens.weight")
        assert (found.token_table, found.position_table) == (f"{run}/tokens.weight", positions)
