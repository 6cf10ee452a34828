"""Tables by their names, of several models and parts, or by their rows."""

from pathlib import Path

import numpy as np
import pytest

from whatwhere.analysis.inspection import inspect
from whatwhere.analysis.lint import check
from whatwhere.analysis.token_neighbors import neighbors
from whatwhere.analysis.token_table import Sizes
from whatwhere.analysis.walkthrough import walk_model
from whatwhere.errors import SettingError
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


SEVERAL = (
    "encoder.embeddings.word_embeddings.weight", "encoder.embeddings.position_embeddings.weight",
    "decoder.transformer.wte.weight", "decoder.transformer.wpe.weight", "decoder.lm_head.weight",
)  # fmt: skip
TWO_READERS = (
    "embedders.0.text_model.embeddings.token_embedding.weight",
    "embedders.0.text_model.embeddings.position_embedding.weight",
    "embedders.1.model.token_embedding.weight", "embedders.1.model.positional_embedding",
)  # fmt: skip
OMNI = "talker.model.embed_tokens.weight", "thinker.model.embed_tokens.weight", "thinker.lm_head.weight"


@pytest.mark.parametrize(
    ("names", "module", "expected", "models"),
    [
        (SEVERAL, "", (SEVERAL[2], SEVERAL[4], SEVERAL[3]), ("decoder", "encoder")),
        (SEVERAL, "encoder", (SEVERAL[0], None, SEVERAL[1]), ("encoder", "decoder")),
        (TWO_READERS, "", (TWO_READERS[2], None, TWO_READERS[3]), ("embedders.1", "embedders.0")),
        (OMNI, "thinker", (OMNI[1], OMNI[2], None), ("thinker", "talker")),
        (("model.embed_tokens.weight", "model.layers.9.embed_tokens.weight"), "", (None,) * 3, ()),
    ],
)
def test_all_tables_are_those_of_one_model(
    names: tuple[str, ...], module: str, expected: tuple[str | None, ...], models: tuple[str, ...]
) -> None:
    found = find_names(dict.fromkeys(names, (9, 4)), module=module)
    if models:
        assert (found.token_table, found.output_projection, found.position_table) == expected
    assert (found.models, found.undecided) == (models, False)


@pytest.mark.parametrize("wrapper", ["", "module."])
def test_of_models_that_only_one_module_tells_apart_none_is_taken_silently(wrapper: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    own, average = rng.standard_normal((2, 9, 4))
    tensors = {"ema.embed_tokens.weight": average, f"model.{wrapper}embed_tokens.weight": own}
    file = write_folder(tmp_path, {**tensors, f"model.{wrapper}lm_head.weight": own})
    for read in (inspect, check, lambda path: neighbors(path, "#3")):
        with pytest.raises(SettingError, match=r"has 2 models, .*: ema, model\.\nName one, as in --run ema"):
            read(file)
    with pytest.raises(SettingError, match="has 2 models"):
        walk_model(file, ids=[3])
    with pytest.raises(SettingError, match="has 2 models"):
        Checkpoint.open(file).model("optimizer")
    assert Checkpoint.open(file).model("model").tied is True
    assert Checkpoint.open(file).model("ema").tied is None
    np.testing.assert_allclose(walk_model(file, ids=[3], run="ema").rows[0], average[3], rtol=1e-6)
    np.testing.assert_allclose(walk_model(file, ids=[3], run="model").rows[0], own[3], rtol=1e-6)
    sizes = inspect(file, ["sizes"], run="ema").sizes
    assert isinstance(sizes, Sizes)
    assert [part.tensor for part in sizes.parts if part.tensor] == ["ema.embed_tokens.weight"]


def test_what_is_of_no_model_alone_is_of_each(tmp_path: Path) -> None:
    tensors = {f"{name}.embed_tokens.weight": np.full((9, 4), n, "f4") for n, name in enumerate(("model", "draft"))}
    whole = Checkpoint.open(write_folder(tmp_path, {**tensors, "lm_head.weight": np.ones((9, 4), "f4") / 2}))
    own = whole.model("model")
    assert (own.output_projection, own.tied) == ("lm_head.weight", False)
    assert sorted(own.tensors) == ["lm_head.weight", "model.embed_tokens.weight"]


def test_of_several_runs_all_tables_are_those_of_one() -> None:
    names = "none-2/tokens.weight", "learned-2/tokens.weight", "learned-2/where.input.weight"
    for run, positions in (("none-2", None), ("learned-2", names[2])):
        found = find_names(dict.fromkeys(names, (9, 4)), token_table=f"{run}/tokens.weight")
        assert (found.token_table, found.position_table) == (f"{run}/tokens.weight", positions)
