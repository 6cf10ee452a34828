"""Fewer tokens: what is kept is encoded and answered as before."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.surgery import read_ids, trim_checkpoint
from whatwhere.surgery.tokenizer_json import built, needed, trimmed
from whatwhere.surgery.trim import ids_of_scripts

from ..models.tiny import config_of, model_of
from .conftest import (
    SHARDS,
    SINGLE,
    Save,
    change_json,
    json_of,
    loaded,
    logits,
    old_ids,
    require_others_unchanged,
    tensor,
)

TEXTS = [
    "the cat sat on the mat, and the mat was flat.",
    "a rotation of queries and keys, by position",
    "naïve café: 東京 — 100 % of it",
    "electroencephalography is a long word",
]
TRAINING = [*TEXTS * 3, "position positions positioned rotary rotate rotated matter mattress catch caught " * 5]


def trained(model: Any, trainer: Any, split: Any, decoder: Any = None) -> Tokenizer:
    """Return a tokenizer that is trained on the texts."""
    made = Tokenizer(model)
    made.pre_tokenizer = split
    if decoder is not None:
        made.decoder = decoder
    made.train_from_iterator(TRAINING, trainer)
    return made


def wordpiece() -> Tokenizer:
    """BERT's kind."""
    trainer = trainers.WordPieceTrainer(vocab_size=250, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    made = trained(
        models.WordPiece(unk_token="[UNK]"), trainer, pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    )
    made.normalizer = normalizers.BertNormalizer()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    made.enable_padding(pad_id=0, pad_token="[PAD]")
    made.enable_truncation(6)
    return made


def byte_pairs() -> Tokenizer:
    """GPT-2's kind."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<|end|>"], initial_alphabet=alphabet)
    made = trained(models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel())
    made.post_processor = processors.RobertaProcessing(("<|end|>", 0), ("<|end|>", 0))
    return made


def pairs_with_suffix() -> Tokenizer:
    """CLIP's kind."""
    trainer = trainers.BpeTrainer(vocab_size=250, special_tokens=["[UNK]"], end_of_word_suffix="</w>")
    return trained(models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"), trainer, pre_tokenizers.Whitespace())


def unigram() -> Tokenizer:
    """T5's kind."""
    trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>")
    return trained(models.Unigram(), trainer, pre_tokenizers.Metaspace(), decoders.Metaspace())


def words() -> Tokenizer:
    """Whole words."""
    trainer = trainers.WordLevelTrainer(special_tokens=["[UNK]"])
    return trained(models.WordLevel(unk_token="[UNK]"), trainer, pre_tokenizers.Whitespace())


def smaller(tokenizer: Tokenizer, ids: Iterable[int]) -> tuple[Tokenizer, list[int]]:
    """Return a tokenizer trimmed to ids and those that they need, and the old id of each of its tokens."""
    said = json.loads(tokenizer.to_str())
    stay = sorted(needed(said, ids))
    return built(trimmed(said, {old: new for new, old in enumerate(stay)})), stay


KINDS: list[Callable[[], Tokenizer]] = [wordpiece, byte_pairs, pairs_with_suffix, unigram, words]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    made: Tokenizer = request.param()
    made.add_tokens(["<extra>"])
    return made


@pytest.mark.parametrize("kept", [[0], [1], [0, 2, 3]])
def test_texts_of_kept_tokens_are_encoded_as_before(tokenizer: Tokenizer, kept: list[int]) -> None:
    """Each text that the vocabulary was kept for, token by token; by the library's own tokenizer."""
    before = built(json.loads(tokenizer.to_str()))
    texts = [TEXTS[n] for n in kept]
    ids = {number for text in texts for number in before.encode(text).ids}
    after, stay = smaller(tokenizer, ids)
    assert ids <= set(stay)
    assert len(stay) < before.get_vocab_size()
    new_ids = {old: new for new, old in enumerate(stay)}
    assert after.get_vocab_size() == len(stay)
    for text in [*texts, "<extra>"]:
        one, other = before.encode(text), after.encode(text)
        assert other.ids == [new_ids[number] for number in one.ids]
        assert other.tokens == one.tokens
        assert after.decode(other.ids) == before.decode(one.ids)


@pytest.mark.parametrize("tokenizer", [wordpiece, byte_pairs], indirect=True)
def test_a_text_in_kept_scripts_is_encoded_as_before(tokenizer: Tokenizer) -> None:
    said = json.loads(tokenizer.to_str())
    before, rows = built(said), tokenizer.get_vocab_size()
    ids = ids_of_scripts(said, ["latin", "Greek"], rows)
    gone = {before.decode([n], skip_special_tokens=False) for n in set(range(rows)) - set(ids)}
    assert all({*text} & {*"東京"} for text in gone), "the vocabulary is latin but for these letters"
    after, stay = smaller(tokenizer, ids)
    for text in (TEXTS[0], TEXTS[1], TEXTS[3]):
        assert [stay[n] for n in after.encode(text).ids] == before.encode(text).ids
    with pytest.raises(SettingError, match=r"no script 'latim', .*\nDid you mean latin"):
        ids_of_scripts(said, ["latim"], rows)


def fallback() -> Tokenizer:
    """Llama 2's kind: bytes are tokens beside those of characters."""
    bytes_of = {f"<0x{n:02X}>": n + 1 for n in range(256)}
    made = Tokenizer(models.BPE({"<unk>": 0, **bytes_of, "a": 257}, [], unk_token="<unk>", byte_fallback=True))
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return made


@pytest.mark.parametrize("kind", [byte_pairs, fallback])
def test_bytes_encode_any_text_still(kind: Any) -> None:
    after, stay = smaller(kind(), [0])
    assert len(stay) == 257
    for text in TEXTS:
        assert after.decode(after.encode(text).ids) == text


def test_a_long_token_keeps_the_merges_that_build_it_and_no_others() -> None:
    merges = [("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc"), ("c", "d"), ("abc", "d")]
    names = ["a", "b", "c", "d", "ab", "bc", "abc", "cd", "abcd"]
    said = json.loads(Tokenizer(models.BPE({name: n for n, name in enumerate(names)}, merges)).to_str())
    stay = needed(said, [8])
    assert {names[n] for n in stay} == {"a", "b", "c", "d", "ab", "abc", "abcd"}
    made = trimmed(said, {old: new for new, old in enumerate(sorted(stay))})
    assert [tuple(merge) for merge in made["model"]["merges"]] == [("a", "b"), ("ab", "c"), ("abc", "d")]
    older = {**said, "model": {**said["model"], "merges": [" ".join(merge) for merge in merges]}}
    assert needed(older, [8]) == stay


def test_texts_of_kept_pieces_are_encoded_as_before_in_random_vocabularies() -> None:
    random, texts = Random(0), 0
    for _ in range(150):
        letters = "abcd"
        words = {"".join(random.choices(letters, k=random.randint(1, 3))) for _ in range(9)}
        pieces = [("<unk>", 0.0), *((word, -random.uniform(0, 20)) for word in sorted(words))]
        made = Tokenizer(models.Unigram(pieces, unk_id=0))
        before = built(json.loads(made.to_str()))
        after, stay = smaller(made, random.sample(range(len(pieces)), len(pieces) // 2))
        new_ids = {old: new for new, old in enumerate(stay)}
        for text in ("".join(random.choices(letters, k=random.randint(1, 8))) for _ in range(40)):
            ids = before.encode(text).ids
            if set(ids) <= set(stay):
                texts += 1
                assert after.encode(text).ids == [new_ids[n] for n in ids]
    assert texts > 500


def folder_with(save: Save, tokenizer: Tokenizer, model_type: str, size: str = SINGLE, **settings: Any) -> Path:
    """Save a model whose table fits a tokenizer, and the tokenizer as transformers does."""
    folder, _ = save(model_type)
    for path in folder.iterdir():
        path.unlink()
    torch.manual_seed(0)
    model_of(config_of(model_type, vocab_size=tokenizer.get_vocab_size(), **settings)).save_pretrained(
        folder, max_shard_size=size
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "model_type", "size"),
    [
        (wordpiece, "bart", SHARDS),
        (byte_pairs, "gpt2", SINGLE),
        (pairs_with_suffix, "llama", SHARDS),
        (unigram, "t5", SINGLE),
        (words, "gemma", SINGLE),
    ],
)
def test_a_trimmed_model_answers_as_before(
    save: Save, tmp_path: Path, kind: Callable[[], Tokenizer], model_type: str, size: str
) -> None:
    tokenizer = kind()
    special = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    if model_type == "t5":
        special["decoder_start_token_id"] = 1
    folder = folder_with(save, tokenizer, model_type, size, **special)
    (folder / "vocab.txt").write_text("old")
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(f"{TEXTS[0]}\n{TEXTS[1]}\n")
    out = tmp_path / "out"
    report = trim_checkpoint(folder, out, corpus=[corpus])
    assert report.measured.corpus.encoded_as_before is True
    assert {one.name: one.why for one in report.not_copied}["vocab.txt"].startswith("it has the old vocabulary")
    before, after = (
        sum(tensor.nbytes for file in one.glob("*.safetensors") for tensor in load_file(file).values())
        for one in (folder, out)
    )
    assert report.measured.bytes_saved == before - after > 0
    rows, kept = tokenizer.get_vocab_size(), old_ids(out)
    assert json_of(out, "id_map.json")["rows_before"] == rows
    assert report.measured.tokens_kept == len(kept) < rows
    assert {0, 1, 2} <= set(kept)
    name = Checkpoint.open(folder).token_table or ""
    assert torch.equal(tensor(out, name), tensor(folder, name)[kept])
    like = model_of(config_of(model_type, vocab_size=rows, **special))
    before, after = loaded(folder, like), loaded(out, like)
    theirs, ours = (AutoTokenizer.from_pretrained(one) for one in (folder, out))
    one, other = (torch.tensor([result.encode(TEXTS[0], add_special_tokens=False)]) for result in (theirs, ours))
    assert torch.equal(torch.tensor(kept)[other], one)
    assert torch.equal(logits(after, other), logits(before, one)[..., kept])
    assert after.config.pad_token_id == kept.index(1)
    assert len(ours) == len(kept)
    require_others_unchanged(folder, out, report)


def test_ids_from_a_file_and_one_file_of_weights(save: Save, tmp_path: Path) -> None:
    folder, _ = save("llama", bos_token_id=0, pad_token_id=1, eos_token_id=[2, 4])
    for text in ("[5, 3,\n 8]", "5\n3\n8\n", "5 3 8"):
        (tmp_path / "ids").write_text(text)
        assert read_ids(tmp_path / "ids") == [5, 3, 8]
    (tmp_path / "ids").write_text("5 three")
    with pytest.raises(CheckpointError, match="more than whole numbers"):
        read_ids(tmp_path / "ids")
    out = tmp_path / "out.safetensors"
    report = trim_checkpoint(folder / "model.safetensors", out, keep_ids=[8, 3, 5])
    assert json.loads((tmp_path / "out.id_map.json").read_text())["old_ids"] == [3, 5, 8]
    assert torch.equal(tensor(out, "lm_head.weight"), tensor(folder, "lm_head.weight")[[3, 5, 8]])
    assert "there is no tokenizer.json" in report.notes[0]
    trim_checkpoint(folder, tmp_path / "out", keep_ids=[8])
    assert old_ids(tmp_path / "out") == [0, 1, 2, 4, 8]
    assert json_of(tmp_path / "out")["eos_token_id"] == [2, 3]


def test_a_table_at_the_values_follows_and_an_unknown_one_is_refused(save: Save, tmp_path: Path) -> None:
    """NeoMME adds rows of a second table to values; a table of another name may be indexed by anything."""
    folder, _ = save("llama")
    tensors = load_file(folder / "model.safetensors")
    rows = len(tensors["model.embed_tokens.weight"])
    values = torch.arange(rows * 4.0).view(rows, 4)
    save_file(tensors | {"model.value_embeddings.weight": values}, folder / "model.safetensors")
    keep = [0, 1, 2, 9]
    trim_checkpoint(folder, tmp_path / "out", keep_ids=keep)
    assert torch.equal(tensor(tmp_path / "out", "model.value_embeddings.weight"), values[old_ids(tmp_path / "out")])
    save_file(tensors | {"model.style_embedding_bank.weight": values}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="style_embedding_bank"):
        trim_checkpoint(folder, tmp_path / "other", keep_ids=keep)
    assert not (tmp_path / "other").exists()


def test_dropout_stays_in_the_file_and_changes_no_count(save: Save, tmp_path: Path) -> None:
    """A published tokenizer.json has 0.1, by which the corpus has other tokens each time."""
    folder = folder_with(save, tokenizer := byte_pairs(), "llama")
    model = {**json_of(folder, "tokenizer.json")["model"], "dropout": 0.9}
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    change_json(folder, "tokenizer.json", model=model, truncation=truncation)
    (tmp_path / "corpus.txt").write_text(" ".join(TRAINING))
    tokenizer.no_truncation()
    right = tokenizer.encode(" ".join(TRAINING), add_special_tokens=False).ids
    report = trim_checkpoint(folder, tmp_path / "out", corpus=[tmp_path / "corpus.txt"])
    assert (report.measured.tokens_requested, report.measured.corpus.tokens) == (len(set(right)), len(right))
    written = json_of(tmp_path / "out", "tokenizer.json")
    assert (written["model"]["dropout"], written["truncation"]) == (0.9, truncation)
