"""Checkpoints that commands are run on."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models

from ..models.checkpoint.forms import FORMS, TYPES, WORDS, write_gguf


class Saved(NamedTuple):
    """A tiny model as a file or folder, and the tables that it was saved with.

    Args:
        lm_head: the output projection, where it is another than the token table.
    """

    type: str
    form: str
    path: Path
    table: np.ndarray
    lm_head: np.ndarray | None
    positions: np.ndarray | None


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Saved]:
    """Save a Llama, GPT-2, T5, Bloom and Gemma, tiny and at random, in each of three forms."""
    from ..models.tiny import config_of, model_of  # needs transformers, which most tests of commands do without

    made = {}
    for model_type in TYPES:
        torch.manual_seed(0)
        model = model_of(config_of(model_type))
        table, head = (part.weight.detach() for part in (model.get_input_embeddings(), model.get_output_embeddings()))
        positions = model.transformer.wpe.weight.detach().numpy() if model_type == "gpt2" else None
        lm_head = None if model_type != "llama" else head.numpy()
        for form in FORMS:
            folder = tmp_path_factory.mktemp(f"{model_type}-{form}")
            if form == "gguf":
                write_gguf(folder / "model.gguf", model, model_type)
            else:
                model.save_pretrained(folder, max_shard_size="40KB" if form == "shards" else "5GB")
                words = models.WordLevel({word: n for n, word in enumerate(WORDS)})
                Tokenizer(words).save(str(folder / "tokenizer.json"))
            path = folder / "model.gguf" if form == "gguf" else folder
            made[model_type, form] = Saved(model_type, form, path, table.numpy(), lm_head, positions)
    return made


@pytest.fixture(params=TYPES)
def model_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=FORMS)
def saved(request: pytest.FixtureRequest, model_type: str, zoo: dict[tuple[str, str], Saved]) -> Saved:
    return zoo[model_type, request.param]
