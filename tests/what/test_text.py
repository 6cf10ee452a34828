"""Text to ids and back: the four kinds, given vocabularies, and files of all sorts."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import whatwhere as ww
from whatwhere import text
from whatwhere.what.expressions import expression_tokenizer, is_expression
from whatwhere.what.text import encode

few = settings(deadline=None, max_examples=60)
SENTENCE = "The cat sat on the mat."
BPE = text.train("bpe", "low lower lowest new newer newest " * 20, vocab_size=280)
BYTE = text.train("byte", "a")


@pytest.mark.parametrize(
    ("kind", "learned", "size", "read", "tokens"),
    [
        ("word", SENTENCE, 30, SENTENCE, ["The", "cat", "sat", "on", "the", "mat", "."]),
        ("word", SENTENCE, 30, "The dog sat.", ["The", "[UNK]", "sat", "."]),
        ("word", "a a a b b c", 3, "a b c", ["a", "b", "[UNK]"]),  # the rarest are dropped
        ("character", "ab ba\n", 30, "b a\nz", ["b", " ", "a", "\n", "[UNK]"]),
    ],
)
def test_words_and_characters_are_split(kind, learned, size, read, tokens):
    tokenizer = text.train(kind, learned, vocab_size=size)
    assert tokenizer.encode(read).tokens == tokens
    assert tokenizer.token_to_id("[UNK]") == 0
    if kind == "character":
        assert tokenizer.decode(tokenizer.encode("ab\n ba").ids) == "ab\n ba"


@pytest.mark.parametrize("kind", text.KINDS)
def test_lowercase_makes_one_token_of_two(kind):
    folded = text.train(kind, SENTENCE, lowercase=True, vocab_size=300)
    assert folded.encode("THE Cat").ids == folded.encode("the cat").ids
    exact = text.train(kind, SENTENCE, vocab_size=300)
    assert exact.encode("The").ids != exact.encode("the").ids


@few
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_byte_ids_are_the_bytes_and_merged_ones_decode_to_them(content):
    assert BYTE.encode(content).ids == list(content.encode())
    for tokenizer in (BYTE, BPE):
        assert tokenizer.decode(tokenizer.encode(content).ids) == content


@pytest.mark.parametrize("kind", text.KINDS)
def test_training_on_texts_and_on_files_is_the_same(kind, tmp_path):
    parts, files = ["the cat sat\n", "on the mât\n"], [tmp_path / "0.txt", tmp_path / "1.txt"]
    for file, part in zip(files, parts, strict=True):
        file.write_text(part, encoding="utf-8")
    from_files = text.train(kind, files=files, vocab_size=270)
    from_texts = text.train(kind, parts, vocab_size=270)
    from_both = text.train(kind, parts[0], files=files[1:], vocab_size=270)
    assert from_files.get_vocab() == from_texts.get_vocab() == from_both.get_vocab()


def test_from_vocabulary_with_an_unknown_word():
    tokenizer = text.from_vocabulary({"the": 0, "cat": 1, "?": 2}, unknown="?", lowercase=True)
    assert text.encode(tokenizer, "The dog") == ([0, 2], ["the", "?"])


def test_words_numbers_a_text_by_first_appearance():
    assert text.words("to be or not to be").encode("to be or not to be").ids == [0, 1, 2, 3, 0, 1]
    assert text.encode(text.words("The cat the mat", lowercase=True), "The cat the mat")[0] == [0, 1, 0, 2]
    assert text.encode(text.words("ΟΔΟΣ", lowercase=True), "ΟΔΟΣ")[0] == [0]  # whose last letter is lowered otherwise


def test_encode_names_the_first_unknown_word_and_lists_a_small_vocabulary():
    with pytest.raises(ww.errors.TextError) as caught:
        text.encode(text.from_vocabulary({"the": 1, "cat": 0, "\x1b[2J": 2}), "the black dog")
    assert "'black'" in str(caught.value)
    assert "It knows: cat the ⟨U+001B⟩[2J" in str(caught.value)
    many = {str(number): number for number in range(text.MOST_LISTED + 1)}
    with pytest.raises(ww.errors.TextError) as caught:
        text.encode(text.from_vocabulary(many), "0 dog")
    assert "It knows" not in str(caught.value)


@pytest.mark.parametrize("kind", text.KINDS)
def test_a_saved_tokenizer_is_loaded_as_it_was(kind, tmp_path):
    tokenizer = text.train(kind, SENTENCE, vocab_size=300)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = text.load(tmp_path / "tokenizer.json")
    assert isinstance(loaded, Tokenizer)
    assert loaded.to_str() == tokenizer.to_str()


def _with(**parts):
    return json.dumps(json.loads(text.words(SENTENCE).to_str()) | parts)


HOSTILE = {
    "cut short": text.words(SENTENCE).to_str()[:200],
    "another object": "{}",
    "null": "null",
    "a list": "[1, 2]",
    "no JSON": "cat sat mat",
    "nested without end": "[" * 100_000,
    "objects without end": '{"model":' * 100_000,
    "an unknown model": _with(model={"type": "Evil", "vocab": {}}),
    "a negative id": _with(model={"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}),
    "an id beyond 32 bits": _with(model={"type": "WordLevel", "vocab": {"a": 2**40}, "unk_token": "a"}),
    "a merge of nothing": _with(model={"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "zz"]]}),
    "a broken expression": _with(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "(((("}, "behavior": "Isolated", "invert": False}
    ),
    "a panic of the library": _with(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    "zero bytes": "\0" * 100,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_tokenizer_file_is_refused_by_name(content, tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ww.errors.TextError) as caught:
        text.load(file)
    assert str(caught.value).startswith(f"{file} is not a tokenizer of the tokenizers library: ")
    assert str(caught.value).endswith("Pass the tokenizer.json of a model, or one that tokenizer.save(...) wrote.")


def test_a_file_above_the_limit_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "LARGEST_FILE", 4)
    (tmp_path / "five").write_bytes(b"12345")
    (tmp_path / "four").write_bytes(b"1234")
    with pytest.raises(ww.errors.TextError, match="has 5 bytes; files above 4 are refused"):
        text.read_text(tmp_path / "five")
    assert text.read_text(tmp_path / "four") == "1234"


def test_controls_and_spaces_may_go_but_nothing_else():
    tokenizer = text.words("a\u200db c")
    assert text.encode(tokenizer, "  a\u200db\tc \n")[0] == [0, 1]


@pytest.mark.parametrize("word", ["cafe\u0301", "\u0301", "a\u0328b"])
def test_what_a_normalizer_leaves_out_needs_no_token(word):
    """BERT in lower case takes accents away, also those that are characters of their own, as macOS writes them."""
    vocabulary = {"[UNK]": 0, "cafe": 1, "ab": 2, "the": 3}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    right = [3] + [vocabulary[plain] for plain in ("cafe", "ab") if plain[0] == word[0]]
    assert text.encode(tokenizer, f"the {word}")[0] == right
    assert text.single_token(tokenizer, word) == (right[1] if len(right) > 1 else None)


def test_what_a_tokenizer_joins_needs_no_token_of_its_own():
    """NFC (Qwen) makes one letter of two characters, ALBERT one sign of two; RoBERTa's space moves an offset."""
    tokenizer = text.train("bpe", 'caf\u00e9 "' * 20, vocab_size=300)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace("\u0060\u0060", '"')])
    assert text.encode(tokenizer, "cafe\u0301 ``")[0] == text.encode(tokenizer, 'caf\u00e9 "')[0]
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.post_processor = processors.RobertaProcessing(("b", 1), ("a", 0), add_prefix_space=True)
    tokenizer.add_special_tokens(["<s>"])
    assert text.encode(tokenizer, "a<s>a")[0] == tokenizer.encode("a<s>a").ids
    removing = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    removing.pre_tokenizer = pre_tokenizers.Split("x", "removed")
    for lossy in (removing, Tokenizer(models.BPE({"a": 0}, []))):
        with pytest.raises(ww.errors.TextError, match="would leave it out"):
            text.encode(lossy, "axa")


def test_a_tokenizer_is_read_without_what_training_changes(tmp_path):
    """No BPE dropout, which makes ids random; and nothing is cut or padded, as many published files do."""
    made = text.train("bpe", "low lower lowest newest widest " * 20, vocab_size=290)
    right = made.encode("lowest newest").ids
    made.enable_truncation(1)
    made.enable_padding(length=9, pad_token="a", pad_id=0)
    contents = json.loads(made.to_str())
    contents["model"]["dropout"] = 0.5
    (tmp_path / "tokenizer.json").write_text(json.dumps(contents))
    assert len({tuple(Tokenizer.from_str(json.dumps(contents)).encode("lowest newest").ids) for _ in range(50)}) > 1
    read = text.load(tmp_path / "tokenizer.json")
    assert all(read.encode("lowest newest").ids == right for _ in range(50))


# The tokenizer of the first tutorial's expressions


def test_expressions_have_the_tutorials_ids() -> None:
    digits = {str(digit): 2 + digit for digit in range(10)}
    words = {"First": 12, "Second": 13, "Last": 14, "Max": 15, "Min": 16}
    symbols = {"[PAD]": 0, "[EOS]": 1, "(": 17, ")": 18, ",": 19}
    assert expression_tokenizer().get_vocab() == digits | words | symbols


@pytest.mark.parametrize(
    ("expression", "ids"),
    [
        ("Max(1,6,2)", [15, 17, 3, 19, 8, 19, 4, 18]),
        ("Max( 1, 6 ,\n2 )", [15, 17, 3, 19, 8, 19, 4, 18]),
        ("Second(10,9)", [13, 17, 3, 2, 19, 11, 18]),
        ("First(0)[EOS][PAD]", [12, 17, 2, 18, 1, 0]),
        ("Last(Min(3,4),5)", [14, 17, 16, 17, 5, 19, 6, 18, 19, 7, 18]),
    ],
)
def test_expressions_are_read_character_by_character(expression: str, ids: list[int]) -> None:
    assert encode(expression_tokenizer(), expression)[0] == ids
    assert expression_tokenizer().decode(ids) == "".join(expression.split())


@pytest.mark.parametrize("expression", ["Sum(1,2)", "Max(1;2)", "max(1,2)", "Max(1.5)"])
def test_expressions_have_no_other_tokens(expression: str) -> None:
    with pytest.raises(ww.errors.TextError, match="the tokenizer does not know"):
        encode(expression_tokenizer(), expression)


WHOLE = ("Max(1,6,2)", " First( 2 ,Max(1,2) )\n", "Min(Max(1,2),Last(3))", "Second(0)")
OTHER = (
    "", "1", "Max", ")", "Max()", "Max(1,,2)", "Max(12)", "max(1)", "Max(1;2)", "Max(1,2", "Max(1,2))", "Max(1,2),3",
    "Max(1,2)Min(1)", "Max(1,6,2).", "The Max(1,2)", "Max(1)[EOS]",
)  # fmt: skip


@pytest.mark.parametrize("content", [*WHOLE, *OTHER])
def test_a_whole_expression_is_recognized_and_nothing_else(content: str) -> None:
    assert is_expression(content) is (content in WHOLE)
