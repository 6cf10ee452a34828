"""What surgery refuses, with nothing written: requests that contradict each other, and models that it cannot change."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from tests.refusals import require_refused, short_refusals
from whatwhere import surgery

from .conftest import Save

REFUSALS = r"""
resize() -> SettingError: got no size
resize(vocab_size=40, rows="zero") -> SettingError: knows only: mean, subtokens
resize(vocab_size=40, rows="subtokens") -> SettingError: Add some: --add-token
resize(add_tokens=["w3"]) -> TokenError: 'w3' is token #3 already
resize(add_tokens=[""]) -> TokenError: is empty
resize(add_tokens=["a", "a"]) -> TokenError: occurs twice among the tokens to add
resize(add_tokens=["a", "b", "c"], vocab_size=37) -> SettingError: is too small for the tokens
resize(positions=9) -> CheckpointError: no table of learned positions
resize(multiple_of=0) -> SettingError: --multiple-of got 0
resize(vocab_size=34) -> ShapeError: 34 rows are too few for the tokenizer, which has 35
resize(vocab_size=10**12) -> ShapeError: rows of model.embed_tokens.weight take … GB, but the disk has
resize(without_tokenizer, add_tokens=["a"]) -> CheckpointError: there is no tokenizer.json beside the table, so a token
resize(file, vocab_size=40) -> CheckpointError: does not end in .safetensors
resize(of("llama", pad_token_id=33, tokenizer=False), vocab_size=32) ->
    CheckpointError: pad_token_id of config.json is 33, but 32 rows have the ids 0..31
resize(of("moshi"), vocab_size=64) -> CheckpointError: rows more than its output projection
resize(of("mllama_text_model"), vocab_size=64) -> CheckpointError: rows more than its output projection
extend(to=64) -> SettingError: --to 64 is not longer than the trained length, 64
extend(to=128, scaling="longrope") -> SettingError: knows only: linear, dynamic, yarn, llama3
extend(file, to=128) -> CheckpointError: does not end in .safetensors
extend(without_config, to=128) -> CheckpointError: no config.json, which extend changes
extend(of("gpt2"), to=128) -> SettingError: Learned positions: whatwhere resize --positions
extend(of("gemma3_text"), to=128) -> SettingError: would change in more than its length, or not at all
extend(of("bloom"), to=128) -> SettingError: ALiBi and T5's bias need nothing
extend(of("llama", rope_parameters=LINEAR), to=128) -> SettingError: scaled already, by Linear(factor=2.0), which yarn
extend(of("llama", rope_parameters=LINEAR), to=128, scaling="linear") -> SettingError: is scaled already
trim() -> SettingError: needs texts, ids or scripts
trim(keep_ids=[1], corpus=[empty]) -> SettingError: Pass one of --corpus
trim(keep_ids=[]) -> TokenError: trim got no ids
trim(keep_ids=[37]) -> TokenError: id 37 is outside
trim(keep_ids=[-1]) -> TokenError: id -1 is outside
trim(corpus=[empty]) -> TextError: holds no token
trim(corpus=[empty.parent / "no"]) -> CheckpointError: cannot be read
trim(corpus=[binary]) -> TextError: is not UTF-8
trim(without_tokenizer, corpus=[empty]) -> CheckpointError: the tokens of a text are not known
trim(with_prefix, keep_ids=[2]) -> CheckpointError: drop a prefix of continuations
trim(of("moshi"), keep_ids=[0, 1, 2, 3]) -> CheckpointError: rows more than its output projection
trim(of("llama", vocab_offset=30), keep_ids=[3]) -> CheckpointError: ids from vocab_offset on are images and sound
repair(ids=[999]) -> TokenError: id 999 is outside
repair(ids=[]) -> TokenError: repair got no ids
repair(rows="median") -> SettingError: covariance, subtokens
repair(ids=range(37)) -> CheckpointError: no row that is not to be repaired
repair() -> SettingError: nothing to repair
move(folder, method="best") -> SettingError: knows only: subtokens, omp
move(no_tokens) -> CheckpointError: has no tokens
move(folder / "tokenizer.json", method="omp") -> CheckpointError: holds no token table for its 35 tokens
layout("half") -> CheckpointError: has the half layout already: as its model type has
layout("neighbors") -> SettingError: knows only: interleaved, half
layout("interleaved", of("gpt2")) -> CheckpointError: does not rotate queries and keys
layout("interleaved", of("bloom")) -> CheckpointError: does not rotate
layout("interleaved", of("gpt_neox")) -> CheckpointError: query_key_value.bias' holds queries, keys and values
layout("interleaved", of("phi3")) -> CheckpointError: qkv_proj.weight' holds queries, keys and values
layout("interleaved", of("deepseek_v3")) -> CheckpointError: 0 query and 0 key projections that are known
layout("interleaved", of("qwen2_vl_text")) -> CheckpointError: does not rotate queries and keys by Rotary alone
dtype("int8") -> SettingError: knows only: float32
format("npy") -> SettingError: knows only: safetensors, projector
format("projector", dtype="float16") -> SettingError: Omit --dtype
format("projector", without_tokenizer) -> CheckpointError: Use --format safetensors
"""

LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}


@pytest.fixture
def names(save: Save, tmp_path: Path) -> dict[str, Any]:
    """Return the operations on a tiny Llama, or on another model, and files that they refuse."""
    folder, _ = save("llama")
    out, file = tmp_path / "out", folder / "model.safetensors"

    def of(model_type: str, tokenizer: bool = True, vocab_offset: int | None = None, **settings: Any) -> Path:
        save(model_type, **settings)
        if not tokenizer:
            (folder / "tokenizer.json").unlink()
        if vocab_offset is not None:
            config = json.loads((folder / "config.json").read_text())
            config |= {"model_type": "gemma3n", "vision_config": {"vocab_offset": vocab_offset}}
            (folder / "config.json").write_text(json.dumps(config))
        return folder

    def operation(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda path=folder, **settings: function(path, out, **settings)

    def by_kind(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda kind, path=folder, **settings: function(path, out, kind, **settings)

    for name in ("without_tokenizer", "without_config", "with_prefix"):
        (tmp_path / name).mkdir()
        for path in folder.iterdir():
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
    (tmp_path / "without_tokenizer" / "tokenizer.json").unlink()
    (tmp_path / "without_config" / "config.json").unlink()
    prefixed = models.BPE({"a": 0, "##b": 1, "ab": 2}, [("a", "##b")], continuing_subword_prefix="##")
    Tokenizer(prefixed).save(str(tmp_path / "with_prefix" / "tokenizer.json"))
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    Tokenizer(models.WordLevel({})).save(str(tmp_path / "no_tokens"))
    names = ("without_tokenizer", "without_config", "with_prefix", "empty", "binary", "no_tokens")
    paths = {name: tmp_path / name for name in names}
    return {
        **paths, "folder": folder, "file": file, "of": of, "resize": operation(surgery.resize_checkpoint),
        "extend": operation(surgery.extend_checkpoint), "LINEAR": LINEAR,
        "trim": operation(surgery.trim_checkpoint), "repair": operation(surgery.repair_checkpoint),
        "move": by_kind(surgery.move_to_tokenizer), "layout": by_kind(surgery.convert_layout),
        "dtype": by_kind(surgery.convert_dtype), "format": by_kind(surgery.convert_format),
    }  # fmt: skip


@short_refusals(REFUSALS)
@pytest.mark.usefixtures("our_own_checks")
def test_what_cannot_be_done_is_refused_with_nothing_written(
    names: dict[str, Any], tmp_path: Path, call: str, error: str, parts: str
) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    require_refused(call, error, parts, names)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
