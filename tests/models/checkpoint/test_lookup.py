"""Tokens by their text or number, and tables less the rows that cannot be used."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from whatwhere.errors import CheckpointError, TokenError
from whatwhere.escape import byte_alphabet, visible_token
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.lookup import find_token, read_table, table_name

from .samples import write_folder

BYTES = ["the", "Ġking", "king", "ĠParis", "ĉ", "Ċ", "æĿ±", "Ġ", "!"]
PIECES = ["<unk>", "▁king", "king", "▁Paris", "<0x0A>", "東", "▁", "#5", "▁New▁York"]


def saved(folder: Path, words: list[str], tokenizer: Tokenizer | None = None, rows: int = 9) -> Checkpoint:
    """Save a table with its words, or with a tokenizer."""
    beside: dict[str, Any] = (
        {"vocab__json": {word: n for n, word in enumerate(words)}}
        if tokenizer is None
        else {"tokenizer__json": tokenizer.to_str().encode()}
    )
    return Checkpoint.open(write_folder(folder, {"wte.weight": np.arange(2 * rows).reshape(rows, 2)}, **beside))


@pytest.mark.parametrize(
    ("words", "text", "token"),
    [
        (BYTES, "king", "king"), (BYTES, " king", "Ġking"), (BYTES, "Paris", "ĠParis"), (BYTES, "\n", "Ċ"),
        (BYTES, "東", "æĿ±"), (BYTES, "Ġking", "Ġking"), (BYTES, " ", "Ġ"), (BYTES, "#4", "ĉ"),
        (PIECES, "king", "king"), (PIECES, " king", "▁king"), (PIECES, "Paris", "▁Paris"), (PIECES, "東", "東"),
        (PIECES, "New York", "▁New▁York"), (PIECES, "#5", "東"), (PIECES, "#7", "#5"), (PIECES, "<unk>", "<unk>"),
        (BYTES, "␣king", "Ġking"), (BYTES, "↵", "Ċ"), (BYTES, "⇥", "ĉ"), (PIECES, "␣New␣York", "▁New▁York"),
        (PIECES, " #5", "#5"),
    ],
)  # fmt: skip
def test_a_text_finds_its_token(words: list[str], text: str, token: str, tmp_path: Path) -> None:
    assert find_token(saved(tmp_path, words), text) == words.index(token)


def test_a_tokenizer_encodes_what_is_no_token(tmp_path: Path) -> None:
    """It may lower, and pad; what it answers to what it does not know is not an answer."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "king": 1, "[PAD]": 2}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.enable_padding(length=8, pad_id=2, pad_token="[PAD]")
    checkpoint = saved(tmp_path, [], tokenizer, rows=3)
    assert find_token(checkpoint, "KING") == 1
    for wrong in ("kin", "ring"):  # the first letter may be the wrong one
        with pytest.raises(TokenError, match=rf"is '{wrong}'\.\nSimilar are 'king'\."):
            find_token(checkpoint, wrong)
    assert find_token(checkpoint, "[UNK]") == 0


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (None, "kingdom", r"The tokenizer splits it into 2: 'king' \(#1\), '##dom' \(#2\)\."),
        (["the", "##ing", "##s", "king", " "], "ing", r"Similar are '##ing', 'king'\."),
        (["the", "##ing", "##s", "king", " "], "  ", "Pass an id"),
    ],
)
def test_what_is_no_token_is_said_with_what_is_near(
    words: list[str] | None, text: str, message: str, tmp_path: Path
) -> None:
    pieces = models.WordPiece({"[UNK]": 0, "king": 1, "##dom": 2}, unk_token="[UNK]")
    with pytest.raises(TokenError, match=message):
        find_token(saved(tmp_path, words or [], None if words else Tokenizer(pieces), rows=5 if words else 3), text)


def test_letters_of_bytes_are_no_text_without_a_tokenizer_either(tmp_path: Path) -> None:
    words = [*byte_alphabet(), "Ã©", "ĠÅĤ", "Ġthe"]
    checkpoint = saved(tmp_path, words, rows=len(words))
    for text, token in (("é", "Ã©"), ("ł", "ĠÅĤ"), ("Ġthe", "Ġthe"), ("a", "a"), ("<0xE9>", "é")):
        assert find_token(checkpoint, text) == words.index(token)
    for text in "üĠÃ":
        with pytest.raises(TokenError, match="so: pass that id"):
            find_token(checkpoint, text)


def test_a_printed_token_can_be_passed_back(tmp_path: Path) -> None:
    """Whatever its spelling: combining marks, parts of characters, and characters that nobody sees."""
    letters = {byte: letter for letter, byte in byte_alphabet().items()}
    more = [" cat", "ु", " \u202e\r", "ل"]
    words = [*letters.values(), *("".join(letters[byte] for byte in text.encode()) for text in more), "ĠÙ", "ÙĦÙ"]
    checkpoint = saved(tmp_path, words, rows=len(words))
    table = read_table(checkpoint)
    for number in range(len(words)):
        assert find_token(checkpoint, visible_token(table.readable(number))) == number, words[number]


def test_a_word_of_several_rows_is_not_the_first(tmp_path: Path) -> None:
    (path := tmp_path / "x.txt").write_text("a 1 2\nb 3 4\na 5 6\n")
    with pytest.raises(TokenError, match=r"'a' is the word of 2 rows, first #0, #2.\nPass one of these ids"):
        find_token(Checkpoint.open(path), "a")


def test_ids_stay_in_the_table(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, [*BYTES, "more"], rows=9)
    assert find_token(checkpoint, "#8") == 8
    assert find_token(checkpoint, "#9", rows=10) == 9
    with pytest.raises(TokenError, match="9 rows"):
        find_token(checkpoint, "#9")
    with pytest.raises(TokenError, match=r"is token 9, but the table has 9 rows.*\n.*do not belong together"):
        find_token(checkpoint, "more")


def test_tables_by_what_they_are_for(tmp_path: Path) -> None:
    zeros, norm = np.zeros((3, 2)), np.zeros(2)
    checkpoint = Checkpoint.open(write_folder(tmp_path, {"wte.weight": zeros, "lm_head.weight": zeros, "norm": norm}))
    names = [table_name(checkpoint, which) for which in ("input", "output", "lm_head.weight")]
    assert names == ["wte.weight", "lm_head.weight", "lm_head.weight"]
    unknown = Checkpoint.open(write_folder(tmp_path, {"a": zeros, "b": zeros, "norm": norm}))
    with pytest.raises(CheckpointError, match=r"Pass its name: --table NAME, of 'a', 'b'\."):
        table_name(unknown, "input")


def test_rows_that_are_not_finite_are_listed_separately(tmp_path: Path) -> None:
    table = np.arange(40, dtype=np.float32).reshape(10, 4)
    table[3, 1], table[7, 0] = np.nan, -np.inf
    np.save(tmp_path / "t.npy", table)
    result = read_table(Checkpoint.open(tmp_path / "t.npy"))
    assert (result.ids.tolist(), result.broken.tolist(), result.rows) == ([0, 1, 2, 4, 5, 6, 8, 9], [3, 7], 10)
    assert np.array_equal(result.weight, table[result.ids])
    assert (result.row(4), result.word(3)) == (3, "#4")
    for row, message in ((3, "not finite, so it cannot be compared"), (10, "10 rows")):
        with pytest.raises(TokenError, match=message):
            result.row(row)
    np.save(tmp_path / "t.npy", np.arange(6, dtype=np.int8).reshape(3, 2))  # whole numbers are vectors too
    assert read_table(Checkpoint.open(tmp_path / "t.npy")).weight.dtype == np.float64


# With a tokenizer, which is asked first


def byte_level(alphabet: bool = True) -> Tokenizer:
    """Make a tokenizer of bytes, in which "é" and " ł" are tokens, and other letters several."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    special = ["<|end|>", "<｜a▁b｜>"]
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=letters, show_progress=False, special_tokens=special)
    made.train_from_iterator(["é é café ł ł the the king"] * 9, trainer)
    return made


@pytest.mark.parametrize("alphabet", [True, False])
def test_letters_of_bytes_are_no_text(alphabet: bool, tmp_path: Path) -> None:
    """Every character by which a byte is written is the token that the tokenizer makes of it, or none."""
    tokenizer = byte_level(alphabet)
    checkpoint = saved(tmp_path, [], tokenizer, rows=tokenizer.get_vocab_size())
    for letter in byte_alphabet():
        ids, after_a_space = (tokenizer.encode(text).ids for text in (letter, f" {letter}"))
        found = (ids, after_a_space)
        single = [each[0] for each in found if len(each) == 1 and tokenizer.decode(each).strip() == letter]
        if not single:
            with pytest.raises(TokenError, match="no token of"):
                find_token(checkpoint, letter)
        else:
            assert find_token(checkpoint, letter) == single[0], letter
    known = tokenizer.get_vocab()
    assert find_token(checkpoint, "é") == known["Ã©"] != known.get("é")
    assert find_token(checkpoint, "ł") == known["ÅĤ"] != known.get("ł")
    for text in ("Ġthe", "ĠcafÃ©", "<|end|>", "<｜a▁b｜>"):
        assert find_token(checkpoint, text) == known[text], text
    assert (find_token(checkpoint, " the"), find_token(checkpoint, " ")) == (known["Ġthe"], known["Ġ"])
    if alphabet:
        assert find_token(checkpoint, "<0xE9>") == known["é"]
        message = r"splits it into 2: '<0xC3>' .*\n.*writes '<0xFC>' \(#\d+\) so: pass that id"
        with pytest.raises(TokenError, match=message):
            find_token(checkpoint, "ü")


def test_the_tokenizer_says_what_a_text_is(tmp_path: Path) -> None:
    """Of pieces the one that begins a word, of an uncased vocabulary the lower case; of both what is written so too."""
    pieces = [("<unk>", 0.0), ("▁", -3.0), ("king", -1.0), ("▁king", -2.0), ("<0x0A>", -9.0), ("s", -4.0)]
    unigram = Tokenizer(models.Unigram(pieces, 0, byte_fallback=False))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    checkpoint = saved(tmp_path / "a", [], unigram, rows=6)
    for text, number in (("king", 3), ("▁king", 3), ("▁", 1), ("<0x0A>", 4), ("<unk>", 0), ("s", 5)):
        assert find_token(checkpoint, text) == number, text
    with pytest.raises(TokenError, match=r"splits it into 2: '␣king' \(#3\), 's' \(#5\)"):
        find_token(checkpoint, "kings")
    with pytest.raises(TokenError, match="no token of"):
        find_token(checkpoint, "東")  # unknown
    vocabulary = {"[UNK]": 0, "paris": 1, "##ing": 2, "#": 3, "ing": 4, "[unused0]": 5, "Lyon": 6}
    uncased = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    uncased.normalizer, uncased.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    checkpoint = saved(tmp_path / "b", [], uncased, rows=7)
    for text, number in (("Paris", 1), ("PÁRIS", 1), ("##ing", 2), ("ing", 4), ("[unused0]", 5), ("#5", 5)):
        assert find_token(checkpoint, text) == number, text
    assert find_token(checkpoint, "Lyon") == 6  # no text is encoded to it, but it is its text
