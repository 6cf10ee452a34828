"""Checkpoints of another size: transformers loads them, old logits stay to the bit, the rest byte for byte."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from whatwhere.analysis.checkpoint_difference import difference
from whatwhere.analysis.configuration_difference import ConfigurationDifference
from whatwhere.errors import TokenError
from whatwhere.surgery import resize_checkpoint
from whatwhere.where.input.learned import resized_rows

from ..models.checkpoint.forms import VOCABULARY
from .conftest import (
    SHARDS,
    SINGLE,
    WORDS,
    Save,
    json_of,
    loaded,
    logits,
    metadata,
    require_others_unchanged,
    save_tokenizer,
    tensor,
)

IDS = torch.tensor([[3, 5, 36, 0, 11]])


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "t5", "bloom", "gemma", "bert", "bart"])
@pytest.mark.parametrize("size", [SINGLE, SHARDS])
def test_rows_are_added_and_all_else_stays(save: Save, tmp_path: Path, model_type: str, size: str) -> None:
    folder, model = save(model_type, size)
    (folder / "1_Pooling").mkdir()  # a part for sentence-transformers
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "modules.json").write_text('[{"path": "1_Pooling"}]')
    report = resize_checkpoint(folder, tmp_path / "out", vocab_size=41, rows="noise")
    assert (tmp_path / "out" / "1_Pooling" / "config.json").read_text() == "{}"
    made = loaded(tmp_path / "out", model)
    before, after = logits(model, IDS), logits(made, IDS)
    assert after.shape[-1] == made.config.vocab_size == 41
    assert torch.equal(after[..., :VOCABULARY], before)
    model.resize_token_embeddings(41, mean_resizing=False)
    assert {n: p.shape for n, p in made.named_parameters()} == {n: p.shape for n, p in model.named_parameters()}
    table = made.get_input_embeddings().weight.detach()
    assert table[VOCABULARY:].std().item() == pytest.approx(table[:VOCABULARY].std().item(), rel=0.2)
    require_others_unchanged(folder, tmp_path / "out", report)
    for file in folder.glob("*.safetensors"):
        assert metadata(tmp_path / "out" / file.name) == metadata(file)
    assert (tmp_path / "out" / "notes.txt").read_text() == "kept"
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    assert report.bytes == sum(file.stat().st_size for file in (tmp_path / "out").glob("*.safetensors"))


def test_an_index_counts_what_was_written(save: Save, tmp_path: Path) -> None:
    folder, _ = save("llama", SHARDS)
    resize_checkpoint(folder / "model.safetensors.index.json", tmp_path / "out", multiple_of=64)
    old, new = (json_of(one, "model.safetensors.index.json") for one in (folder, tmp_path / "out"))
    assert new["weight_map"] == old["weight_map"]
    grown = 2 * (64 - VOCABULARY) * 64  # table and head
    assert new["metadata"]["total_parameters"] == old["metadata"]["total_parameters"] + grown
    assert new["metadata"]["total_size"] == old["metadata"]["total_size"] + 4 * grown


@pytest.mark.parametrize("rows", ["mean", "subtokens", "noise", "covariance"])
def test_tokens_are_added_with_their_rows(save: Save, tmp_path: Path, rows: str) -> None:
    """They stand where the tokenizer numbers them, over rows that only padded the table."""
    folder, model = save("llama")
    PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")).save_pretrained(folder)
    out = tmp_path / "out"
    report = resize_checkpoint(folder, out, add_tokens=["w1 w2", "w4"[:1] + "ow", "new"], rows=rows)  # type: ignore[arg-type]
    assert report.measured.new_ids == (35, 36, 37)
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert len(tokenizer) == 38
    assert tokenizer.encode("w3 w1 w2 new wow") == [3, 35, 37, 36]
    table, old = tensor(out, "model.embed_tokens.weight"), model.get_input_embeddings().weight.detach()
    assert table.shape == (38, 64)
    assert torch.equal(table[:35], old[:35])
    expected = {"mean": old[:35].double().mean(0), "subtokens": (old[1].double() + old[2]) / 2}
    for name, right in expected.items():
        assert torch.allclose(table[35].double(), right, atol=1e-7) is (rows == name)
    if rows == "subtokens":  # an unknown word is the unknown token, whose row it gets
        assert torch.equal(table[37], old[0])
    assert not torch.equal(table[35], old[35])
    assert loaded(out, model).config.vocab_size == 38


def test_rows_of_added_tokens_differ_and_are_of_usual_norm_unless_it_is_said(save: Save, tmp_path: Path) -> None:
    folder, _ = save("llama")
    PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")).save_pretrained(folder)
    texts = ["one more", "and two", "and three"]
    tables = []
    for n, seed in enumerate((0, 0, 1)):
        report = resize_checkpoint(folder, tmp_path / str(n), add_tokens=texts, seed=seed)
        assert any(f"sampled by noise, seed {seed}" in note for note in report.notes)
        tables.append(tensor(tmp_path / str(n), "model.embed_tokens.weight"))
    old, new = tables[0][:35].norm(dim=1), tables[0][35:38]
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])
    assert len({tuple(row.tolist()) for row in new}) == 3
    assert (new.norm(dim=1) > old.min() / 2).all()
    equal = resize_checkpoint(folder, tmp_path / "mean", add_tokens=texts, rows="mean").notes
    assert any("#35, #36, #37 are equal" in note for note in equal)
    alone = resize_checkpoint(folder, tmp_path / "alone", add_tokens=texts[:1], rows="mean").notes
    same = resize_checkpoint(folder, tmp_path / "same", add_tokens=["w1 w2", "w2 w1", "w3 w1"], rows="subtokens").notes
    assert not any("are equal" in note for note in alone)
    assert any("#35, #36 are equal" in note for note in same)
    settings = difference(folder, tmp_path / "0").configuration
    assert isinstance(settings, ConfigurationDifference)
    assert [one.name for one in (*settings.keys, *settings.facts)] == ["vocab_size"]


def test_added_tokens_are_written_for_older_tokenizers_too(save: Save, tmp_path: Path) -> None:
    folder, _ = save("gpt2")
    (folder / "vocab.json").write_text("{}")
    (folder / "added_tokens.json").write_text('{"w34": 34}')
    resize_checkpoint(folder, tmp_path / "out", add_tokens=["new"])
    assert json_of(tmp_path / "out", "added_tokens.json") == {"w34": 34, "new": 35}
    assert (tmp_path / "out" / "vocab.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("normalizer", "text"),
    [
        (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), "a<tool>b"),
        (normalizers.Lowercase(), "a<TOOL>b"),
    ],
)
def test_an_added_token_is_found_inside_a_word(
    save: Save, tmp_path: Path, normalizer: normalizers.Normalizer, text: str
) -> None:
    """Llama 2's normalizer puts "▁" before a text, and before an added token that it normalizes."""
    folder, _ = save("llama")
    made = Tokenizer(models.WordLevel({"[UNK]": 0, "▁a": 1, "b": 2, "a": 3}, unk_token="[UNK]"))
    made.normalizer = normalizer
    made.save(str(folder / "tokenizer.json"))
    (number,) = resize_checkpoint(folder, tmp_path / "out", add_tokens=["<tool>"]).measured.new_ids
    reader = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "out" / "tokenizer.json"))
    assert reader.encode(text).count(number) == 1


@pytest.mark.parametrize(("model_type", "key", "offset"), [("gpt2", "n_positions", 0), ("roberta", None, 2)])
def test_positions_are_interpolated(save: Save, tmp_path: Path, model_type: str, key: str, offset: int) -> None:
    folder, model = save(model_type)
    name = "transformer.wpe.weight" if offset == 0 else "roberta.embeddings.position_embeddings.weight"
    resize_checkpoint(folder, tmp_path / "out", positions=100, rule="cubic", align="cells")
    old, new = tensor(folder, name), tensor(tmp_path / "out", name)
    assert torch.equal(new[:offset], old[:offset])
    assert torch.equal(new[offset:], resized_rows(old[offset:], 100, "cubic", "cells"))
    made = loaded(tmp_path / "out", model)
    assert getattr(made.config, key or "max_position_embeddings") == 100 + offset
    assert logits(made, torch.ones(1, 99, dtype=torch.int64) * 5).isfinite().all()


def test_the_length_of_a_decoder_alone_is_changed(tmp_path: Path) -> None:
    """Whisper's encoder keeps its positions."""
    (folder := tmp_path / "in").mkdir()
    part = "model.{}.embed_positions.weight"
    tables = {part.format("decoder"): torch.randn(40, 8), part.format("encoder"): torch.randn(50, 8)}
    save_file(tables | {"model.decoder.embed_tokens.weight": torch.randn(30, 8)}, folder / "model.safetensors")
    config = {"model_type": "whisper", "vocab_size": 30, "d_model": 8, "max_source_positions": 50}
    for lengths, noted in (({"max_target_positions": 40}, False), ({}, True)):
        (folder / "config.json").write_text(json.dumps(config | lengths))
        report = resize_checkpoint(folder, out := tmp_path / f"out-{noted}", positions=80)
        assert any("no key of config.json states 40 positions" in note for note in report.notes) == noted
        assert json.loads((out / "config.json").read_text()) == config | dict.fromkeys(lengths, 80)
        assert tensor(out, part.format("decoder")).shape == (80, 8)
        assert torch.equal(tensor(out, part.format("encoder")), tables[part.format("encoder")])


def test_both_halves_and_old_buffers_are_interpolated(save: Save, tmp_path: Path) -> None:
    folder, model = save("bart")
    report = resize_checkpoint(folder, tmp_path / "out", positions=30)
    assert {one.name.split(".")[1] for one in report.changed} == {"encoder", "decoder"}
    assert loaded(tmp_path / "out", model).config.max_position_embeddings == 30
    folder, gpt2 = save("gpt2")
    state = {name.removeprefix("transformer."): value for name, value in gpt2.state_dict().items() if "lm_" not in name}
    state |= {"h.0.attn.bias": torch.ones(64, 64).bool().tril()[None, None], "position_ids": torch.arange(64)[None]}
    save_file(state, folder / "one.safetensors")
    resize_checkpoint(folder / "one.safetensors", tmp_path / "one.safetensors", positions=48)
    made = load_file(tmp_path / "one.safetensors")
    assert made["wpe.weight"].shape == (48, 64)
    assert torch.equal(made["position_ids"], torch.arange(48)[None])
    assert torch.equal(made["h.0.attn.bias"], torch.ones(48, 48, dtype=torch.bool).tril()[None, None])


def test_a_token_that_the_tokenizer_gives_is_not_added_again(save: Save, tmp_path: Path) -> None:
    folder, _ = save("llama", vocab_size=300)
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=262, initial_alphabet=letters, show_progress=False)
    made.train_from_iterator(["café é the"] * 9, trainer)
    made.save(str(folder / "tokenizer.json"))
    known = made.get_vocab()
    for text, why in (
        ("é", f"is token #{known['Ã©']} already: the tokenizer encodes"),
        ("ü", rf"is how the vocabulary writes token #{known['ü']}, which is not this text"),
        ("a", f"is token #{known['a']} already"),
    ):
        with pytest.raises(TokenError, match=why):
            resize_checkpoint(folder, tmp_path / "out", add_tokens=[text])
    report = resize_checkpoint(folder, tmp_path / "out", add_tokens=["über"])
    assert report.measured.new_ids == (262,)


def test_rows_that_fill_a_multiple_are_the_mean_and_tokens_differ(save: Save, tmp_path: Path) -> None:
    """Ids without a token are padding; tokens, also those that had no row, are not."""
    folder, model = save("llama")
    old = model.get_input_embeddings().weight.detach()
    tokens = len(WORDS)
    resize_checkpoint(folder, tmp_path / "out", add_tokens=["<a>", "<b>", "<c>"], multiple_of=64)
    new = tensor(tmp_path / "out", "model.embed_tokens.weight")
    added, padding = new[tokens : tokens + 3], new[tokens + 3 :]
    mean = old[:tokens].double().mean(0)
    assert len(padding) > 1
    assert torch.allclose(padding.double(), mean.expand_as(padding), atol=1e-6)
    assert len(added.unique(dim=0)) == 3
    assert (added.norm(dim=1) > 0.5 * old.norm(dim=1).median()).all()
    save_tokenizer(folder, [*WORDS, *(f"more{n}" for n in range(9))])
    resize_checkpoint(folder, tmp_path / "more", vocab_size=tokens + 12)
    rows = tensor(tmp_path / "more", "model.embed_tokens.weight")[len(old) :]
    last = tokens + 9 - len(old)  # of the tokens that had no row
    assert len(rows[:last].unique(dim=0)) == last
    assert torch.equal(rows[last], rows[-1])
