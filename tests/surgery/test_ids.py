"""Ids and sizes wherever a folder names them: what surgery writes loads in transformers, and means what it meant."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import GenerationConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from whatwhere.errors import CheckpointError, SettingError, ShapeError
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.names import find_token_tables
from whatwhere.surgery import move_to_tokenizer, resize_checkpoint, trim_checkpoint
from whatwhere.what.resizing import keep, resize
from whatwhere.what.token_ids import renumbered, token_ids, why_fixed

from ..models.checkpoint.forms import LAYERS, VOCABULARY
from ..models.tiny import config_of, model_of
from .conftest import EVERY_WORD, Save, change_json, json_of, loaded, logits, old_ids, save_tokenizer

# Ids in generation_config.json


def test_languages_tasks_and_times_of_whisper_stay_what_they_were(save: Save, tmp_path: Path) -> None:
    folder, _ = save("whisper", decoder_start_token_id=0)
    (folder / "tokenizer.json").unlink()
    generation: dict[str, Any] = {
        "lang_to_id": {"<|en|>": 20, "<|de|>": 21}, "task_to_id": {"transcribe": 24}, "no_timestamps_token_id": 31,
        "suppress_tokens": [7, 8], "forced_decoder_ids": [[1, None], [2, 24]], "bad_words_ids": [[9, 10]],
        "sequence_bias": [[[11], -3.0]],
    }  # fmt: skip
    change_json(folder, "generation_config.json", **generation)
    trim_checkpoint(folder, tmp_path / "out", keep_ids=[3])
    old = old_ids(tmp_path / "out")
    new = json_of(tmp_path / "out", "generation_config.json")
    assert {word: old[n] for word, n in new["lang_to_id"].items()} == generation["lang_to_id"]
    assert {word: old[n] for word, n in new["task_to_id"].items()} == generation["task_to_id"]
    assert [old[n] for n in new["suppress_tokens"]] == [7, 8]
    assert [(at, n if n is None else old[n]) for at, n in new["forced_decoder_ids"]] == [(1, None), (2, 24)]
    assert [[old[n] for n in word] for word in new["bad_words_ids"]] == [[9, 10]]
    assert [([old[n] for n in word], bias) for word, bias in new["sequence_bias"]] == [([11], -3.0)]
    first = new["no_timestamps_token_id"]
    assert old[first - 1 :] == list(range(30, VOCABULARY))  # <|nospeech|>, <|notimestamps|>, and a token for each time
    GenerationConfig.from_pretrained(tmp_path / "out")


def test_times_that_would_be_scattered_are_refused(save: Save, tmp_path: Path) -> None:
    folder, _ = save("whisper", decoder_start_token_id=0)
    words = EVERY_WORD
    save_tokenizer(folder, words)
    change_json(folder, "generation_config.json", no_timestamps_token_id=31)
    for name, order, fits in (
        ("swapped", [*words[:33], words[34], words[33], *words[35:]], False),
        ("fewer", words[:35], False),
        ("moved", [*words[:20], *words[30:], *words[20:30]], True),
    ):
        save_tokenizer(tmp_path / name, order)
        if fits:
            move_to_tokenizer(folder, tmp_path / "out", tmp_path / name)
            assert json_of(tmp_path / "out", "generation_config.json")["no_timestamps_token_id"] == 21
        else:
            with pytest.raises(CheckpointError, match="counts timestamps from no_timestamps_token_id, 31"):
                move_to_tokenizer(folder, tmp_path / "out", tmp_path / name)


def test_ids_of_other_vocabularies_stay() -> None:
    config = {
        "codebook_pad_token_id": 2, "t2u_eos_token_id": 3, "pad_token_id": 2, "label2id": {"a": 2},
        "audio_config": {"pad_token_id": 2}, "text_config": {"pad_token_id": 2, "vocab_size": 9},
        "decoder": {"pad_token_id": 2, "vocab_size": 100}, "vocabulary_map": {"<image>": 4},
    }  # fmt: skip
    assert token_ids(config, 9) == {"pad_token_id": [2, 2], "vocabulary_map": [4]}
    new = renumbered(config, 9, {2: 0, 4: 1}.get)
    changed = {"pad_token_id": 0, "text_config": {"pad_token_id": 0, "vocab_size": 9}, "vocabulary_map": {"<image>": 1}}
    assert new == {**config, **changed}


NO_IDS = re.compile(
    r"(^|_)(num|n|max|samples|mean|default|scale|use|router|intermediate|local|hybrid|target|ple|layer|loss|ignore)_"
    r"|ignore_index|layer_ids|^(head_in|decode|merge|eval|altup_active|moe_layer_(start|end))_(index|idx)$"
    r"|tag_pad_id|subs_pad_id|insert_layer_id|lang_id|default_prompt_id|pred_(num|zero)|audio_stream|vision_use"
    r"|^(codebook|codec|t2u|tts_codec)_|^mask_token$|^cls_token$|^langs$"
)
"""Keys of transformers that end as those of ids do, and are counts, layers, flags, or ids of other vocabularies."""


def test_all_keys_of_transformers_that_hold_ids_are_known() -> None:
    """Every field of every configuration that ends as an id does is renumbered, or known to be something else."""
    unknown = set()
    for model_type in CONFIG_MAPPING:
        try:
            fields = CONFIG_MAPPING[model_type].default_config_fields()
        except ValueError:  # its own parts are not installed
            continue
        for key in fields:
            ends = re.search(r"(_id|_ids|_index|_idx|_tokens|_token|_to_id)$", key)
            if ends and not NO_IDS.search(key) and not token_ids({key: 3}, 9):
                unknown.add(key)
    assert not unknown
    generation = {key for key in vars(GenerationConfig()) if re.search(r"(_id|_ids|suppress_tokens)$", key)}
    assert {key for key in generation if not token_ids({key: [[3]] if "words" in key else 3}, 9)} == set()


# Sizes


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [41, 36])
def test_marian_loads_with_another_number_of_tokens(save: Save, tmp_path: Path, tied: bool, size: int) -> None:
    """Its configuration names the decoder's vocabulary by itself."""
    folder, model = save("marian", pad_token_id=1, decoder_start_token_id=1, tie_word_embeddings=tied)
    assert json_of(folder)["decoder_vocab_size"] == VOCABULARY
    (folder / "tokenizer.json").unlink()
    resize_checkpoint(folder, tmp_path / "out", vocab_size=size)
    ids = torch.tensor([[3, 5, 7, 0, 11]])
    made = loaded(tmp_path / "out", model)
    least = min(size, VOCABULARY)
    torch.testing.assert_close(logits(made, ids)[..., :least], logits(model, ids)[..., :least])
    trim_checkpoint(folder, tmp_path / "trimmed", keep_ids=[0, 3, 5, 7, 11])
    old = old_ids(tmp_path / "trimmed")
    result = logits(loaded(tmp_path / "trimmed", model), torch.tensor([[old.index(n) for n in ids[0].tolist()]]))
    torch.testing.assert_close(result, logits(model, ids)[..., old])
    resize(model, size)
    assert model.config.decoder_vocab_size == model.config.vocab_size == size


def require_fixed(folder: Path, match: str) -> None:
    """Check that no operation changes the vocabulary of a model, or writes anything."""
    out = folder.parent / "out"
    with pytest.raises(CheckpointError, match=match):
        resize_checkpoint(folder, out, vocab_size=40)
    with pytest.raises(CheckpointError, match=match):
        trim_checkpoint(folder, out, keep_ids=[3])
    with pytest.raises(CheckpointError, match=match):
        move_to_tokenizer(folder, out, folder)
    assert not out.exists()


@pytest.mark.parametrize("model_type", ["marian", "fsmt"])
def test_two_vocabularies_are_not_mistaken_for_one(
    save: Save, tmp_path: Path, model_type: str, our_own_checks: None
) -> None:
    both = {"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY, "decoder_start_token_id": 1}
    more = both if model_type == "fsmt" else {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
    folder, model = save(model_type, **more)
    require_fixed(folder, "a vocabulary for its encoder and another for its decoder")
    with pytest.raises(SettingError, match="a vocabulary for its encoder and another for its decoder"):
        resize(model, 40)


def test_ids_and_sizes_that_a_file_leaves_to_their_defaults_are_written(save: Save, tmp_path: Path) -> None:
    """A pad_token_id of 1 by default would be another token in the trimmed table, and vocab_size is 50,265 there."""
    folder, model = save("olmo2", pad_token_id=1)
    change_json(folder, pad_token_id=None, vocab_size=None)
    (folder / "tokenizer.json").unlink()
    (folder / "generation_config.json").unlink()
    trim_checkpoint(folder, tmp_path / "out", keep_ids=[9, 11])
    made = loaded(tmp_path / "out", model)
    assert old_ids(tmp_path / "out")[made.config.pad_token_id] == 1
    assert made.config.vocab_size == len(old_ids(tmp_path / "out"))
    nested = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}, "vision_config": {}}
    (folder / "config.json").write_text(json.dumps(nested))
    resize_checkpoint(folder, tmp_path / "nested", vocab_size=40)
    assert json_of(tmp_path / "nested")["text_config"]["vocab_size"] == 40


def test_a_live_table_with_more_rows_than_32_bits_count_is_refused(save: Save) -> None:
    with pytest.raises(ShapeError, match="is more than the 2,147,483,647 rows"):
        resize(save("llama")[1], 2**40)


# Tables besides that of the tokens


def gemma(model_type: str, rows: int) -> nn.Module:
    torch.manual_seed(0)
    more: dict[str, Any] = {"vocab_size_per_layer_input": rows, "hidden_size_per_layer_input": 8}
    if model_type == "gemma4_text":
        more |= {"global_head_dim": 16, "num_kv_shared_layers": 0, "num_global_key_value_heads": 2}
    return model_of(config_of(model_type, pad_token_id=5, **more))


@pytest.mark.parametrize(
    ("model_type", "rows"), [("gemma3n_text", VOCABULARY), ("gemma3n_text", 30), ("gemma4_text", 37)]
)
def test_vectors_for_each_layer_move_with_their_tokens(tmp_path: Path, model_type: str, rows: int) -> None:
    """Also where Gemma 3n has none for the last tokens, and reads the first row for them."""
    model = gemma(model_type, rows)
    model.save_pretrained(tmp_path / "model")
    ids = torch.tensor([[9, 11, 33, 9, 12, 20]])
    before = logits(model, ids)
    trim_checkpoint(tmp_path / "model", tmp_path / "trimmed", keep_ids=[9, 11, 12, 20, 33])
    old = old_ids(tmp_path / "trimmed")
    assert 0 < len(old) < 12
    made = loaded(tmp_path / "trimmed", model)
    assert made.config.vocab_size_per_layer_input == made.config.vocab_size == len(old)
    torch.testing.assert_close(logits(made, torch.tensor([[old.index(n) for n in ids[0]]])), before[..., old])
    resize_checkpoint(tmp_path / "model", tmp_path / "resized", vocab_size=41)
    made = loaded(tmp_path / "resized", model)
    torch.testing.assert_close(logits(made, ids)[..., :VOCABULARY], before)
    assert logits(made, torch.tensor([[40, 3]])).isfinite().all()
    save_tokenizer(tmp_path / "model", EVERY_WORD)
    order = [*range(20, VOCABULARY), *range(20)]
    save_tokenizer(tmp_path / "other", [f"w{n}" for n in order])
    move_to_tokenizer(tmp_path / "model", tmp_path / "moved", tmp_path / "other")
    made = loaded(tmp_path / "moved", model)
    torch.testing.assert_close(logits(made, torch.tensor([[order.index(n) for n in ids[0]]])), before[..., order])
    live = [33, 5, 9, 11, 0, 12, 20, 2]
    keep(model, live)
    after = logits(model, torch.tensor([[live.index(n) for n in ids[0]]]))
    torch.testing.assert_close(after, before[..., live])
    assert (model.config.vocab_size_per_layer_input, model.config.pad_token_id) == (8, 1)
    model.save_pretrained(tmp_path / "live")
    assert torch.equal(
        logits(loaded(tmp_path / "live", model), torch.tensor([[0, 2]])), logits(model, torch.tensor([[0, 2]]))
    )


class Hashed(nn.Module):
    """A model that looks up a hash of token ids."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(VOCABULARY, 4)
        self.ngram_embedding = nn.Embedding(64, 4)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens


def test_tables_by_a_hash_of_ids_are_refused(save: Save, tmp_path: Path) -> None:
    folder, model = save("llama")
    state = load_file(folder / "model.safetensors")
    state["model.layers.1.ple.ple_embedding.ngram_embedding.weight"] = torch.zeros(64, 8)
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    require_fixed(folder, "is looked up by a hash of token ids")
    with pytest.raises(SettingError, match=r"ngram_embedding\.weight is looked up by a hash"):
        resize(Hashed(model.config), 40)
    for name in (  # by which inspect finds such tables
        "m.ngram_embedding.weight", "ngram_embedding.shard_0.weight", "encoder_hash_tok_embedding.weight",
        "layers.1.multi_head_embedding.embedding.weight", "model.ngram_embeddings.embedders.0.weight",
    ):  # fmt: skip
        tables = {name: Entry(name, (40, 4), "float32", 640, Path("model.safetensors"))}
        assert [table.kind for table in find_token_tables(tables, None)] == ["hashed n-grams"]
        assert "hash of token ids" in str(why_fixed({}, tables, renumbering=True))


def test_as_many_positions_as_tokens_are_no_table_of_tokens(save: Save, tmp_path: Path) -> None:
    """The table of positions stays; of other tensors with as many rows four are named, and the others counted."""
    folder, model = save("bert", max_position_embeddings=VOCABULARY, hidden_size=VOCABULARY - 1, num_attention_heads=4)
    report = trim_checkpoint(folder, tmp_path / "out", keep_ids=[*range(20)])
    kept = torch.tensor(old_ids(tmp_path / "out"))
    new = torch.arange(6)[None]
    after = logits(loaded(tmp_path / "out", model), new)
    assert torch.equal(after, logits(model.eval(), kept[new])[..., kept])
    assert "as many rows" not in " ".join(report.notes)
    folder, _ = save("llama", hidden_size=VOCABULARY - 1, intermediate_size=VOCABULARY, head_dim=8)
    note = next(one for one in trim_checkpoint(folder, tmp_path / "other", keep_ids=[3]).notes if "many rows" in one)
    assert note.count("_proj") == 4
    assert note.endswith(f" and {2 * LAYERS - 4} more")


def test_other_files_that_name_ids_are_reported(save: Save, tmp_path: Path) -> None:
    folder, _ = save("llama")
    (folder / "processor_config.json").write_text('{"image_token_id": 4, "audio_config": {"pad_token_id": 2}}')
    report = trim_checkpoint(folder, tmp_path / "out", keep_ids=[3])
    assert "image_token_id of processor_config.json hold old ids" in report.notes
