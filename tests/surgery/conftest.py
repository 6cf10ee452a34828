"""Tiny models, saved as one file and as shards, with a tokenizer."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

from whatwhere.models.checkpoint import Checkpoint
from whatwhere.surgery import Report

from ..models.checkpoint.forms import VOCABULARY

EVERY_WORD = [f"w{n}" for n in range(VOCABULARY)]
WORDS = EVERY_WORD[:-2]  # fewer than the table has rows
SINGLE, SHARDS = "5GB", "40KB"
Save = Callable[..., tuple[Path, nn.Module]]


def save_tokenizer(folder: Path, words: list[str]) -> None:
    """Save a tokenizer of whole words, the first of which is the unknown one, in a folder, which is made."""
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token=words[0]))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))


@pytest.fixture
def save(tmp_path: Path) -> Save:

    from ..models.tiny import config_of, model_of  # needs transformers, which some tests do without

    def save(model_type: str, size: str = SINGLE, **settings: Any) -> tuple[Path, nn.Module]:
        torch.manual_seed(0)
        model = model_of(config_of(model_type, **settings))
        folder = tmp_path / "model"
        model.save_pretrained(folder, max_shard_size=size)
        assert len(list(folder.glob("*.safetensors"))) > (size == SHARDS)
        save_tokenizer(folder, WORDS)
        (folder / "notes.txt").write_text("kept")
        return folder, model

    return save


def loaded(folder: Path, like: nn.Module) -> nn.Module:
    """Load a folder as transformers does, and see that nothing is missing or of another size."""
    model, loading = type(like).from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["mismatched_keys"]
    assert not loading["unexpected_keys"]
    result: nn.Module = model.eval()
    return result


def logits(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    more = {"decoder_input_ids": ids.flip(1)} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        result: torch.Tensor = model(input_ids=ids, **more).logits
    return result


def digests(path: Path) -> dict[str, str]:
    """Hash the bytes of each tensor, as the format's own reader gives them, with its type and shape."""
    result = {}
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        with safe_open(file, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118
                tensor = opened.get_tensor(name)
                raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                result[name] = f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(raw).hexdigest()}"
    return result


def require_others_unchanged(before: Path, after: Path, report: Report) -> None:
    """Check that all tensors but those that a report names as changed are the same byte for byte, and no others."""
    old, new = digests(before), digests(after)
    assert old.keys() == new.keys()
    assert {name for name in old if old[name] != new[name]} == {one.name for one in report.changed}
    assert report.kept == len(old) - len(report.changed)


def json_of(folder: Path, name: str = "config.json") -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / name).read_text())
    return result


def change_json(folder: Path, name: str = "config.json", **values: Any) -> None:
    """Write a small file with other values of some keys, without those that are None."""
    new = {**json_of(folder, name), **values}
    (folder / name).write_text(json.dumps({key: value for key, value in new.items() if value is not None}))


def old_ids(folder: Path) -> list[int]:
    result: list[int] = json_of(folder, "id_map.json")["old_ids"]
    return result


def metadata(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as opened:
        result: dict[str, str] = opened.metadata()
    return result


def tensor(folder: Path, name: str) -> torch.Tensor:
    return Checkpoint.open(folder).tensor(name)
