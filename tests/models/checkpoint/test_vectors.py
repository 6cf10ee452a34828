"""Word vectors: text with and without a header, binary, and every lie of a header."""

import gzip
from pathlib import Path

import numpy as np
import pytest

import whatwhere as ww
from whatwhere.models.checkpoint import Checkpoint

from .damage import refused
from .samples import WEIGHT, WORDS, binary, lines

BOM = b"\xef\xbb\xbf"
PLAIN = [word.replace(" ", "_") for word in WORDS]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def check(checkpoint: Checkpoint, words: list[str] = WORDS, weight: np.ndarray = WEIGHT) -> None:
    assert checkpoint.token_table == "vectors"
    assert checkpoint.words == words
    assert checkpoint.tensors["vectors"].shape == weight.shape
    assert np.array_equal(checkpoint.array("vectors"), weight)
    assert np.array_equal(checkpoint.array("vectors", [6, 0, 1]), weight[[6, 0, 1]])
    assert np.array_equal(checkpoint.array("vectors", slice(2, 4)), weight[2:4])
    assert np.array_equal(checkpoint.tensor("vectors").numpy(), weight)


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.txt", b"7 4\n" + lines(WORDS), "word2vec"),
        ("a.vec", b"7 4\n" + lines(WORDS), "fasttext"),
        ("a.vec", b"7 4\n" + lines(WORDS).replace(b"\n", b" \n"), "fasttext"),  # as fastText writes
        ("a.txt", b"7\t4\r\n" + lines(WORDS).replace(b"\n", b"\r\n"), "word2vec"),
        ("a.txt", lines(WORDS), "glove"),
        ("glove.840B.300d", lines(WORDS, "\t"), "glove"),
        ("a.tsv", lines(WORDS, "\t"), "projector"),
        ("a.txt", BOM + lines(WORDS), "glove"),
    ],
)
def test_text(name: str, content: bytes, format: str, tmp_path: Path) -> None:
    """GloVe's 840B has the token ". . .", whose blanks are not separators: numbers are counted from the end."""
    checkpoint = Checkpoint.open(write(tmp_path / name, content))
    assert checkpoint.format == format
    check(checkpoint)


def test_binary(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write(tmp_path / "a.bin", binary()))
    assert checkpoint.format == "word2vec-binary"
    check(checkpoint, PLAIN)
    without_breaks = b"7 4\n" + b"".join(w.encode() + b" " + r.tobytes() for w, r in zip(PLAIN, WEIGHT, strict=True))
    check(Checkpoint.open(write(tmp_path / "b.bin", without_breaks)), PLAIN)


@pytest.mark.parametrize(("is_binary", "dim"), [(True, 3), (True, 5000), (False, 20)])
def test_many_chunks(is_binary: bool, dim: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words lie across the places where the file is read anew."""
    monkeypatch.setattr("whatwhere.models.checkpoint.word_vectors._CHUNK", 12_000)
    rows = 50_000 // dim
    weight = np.random.default_rng(0).standard_normal((rows, dim)).astype(np.float32)
    words = [f"word{row % 7 * 'x'}{row}" for row in range(rows)]
    content = f"{rows} {dim}\n".encode()
    for word, row in zip(words, weight, strict=True):
        values = row.tobytes() if is_binary else " ".join(f"{value:.9g}" for value in row.tolist()).encode()
        content += word.encode() + b" " + values + b"\n"
    checkpoint = Checkpoint.open(write(tmp_path / "a.bin", content))
    assert checkpoint.words == words
    assert np.array_equal(checkpoint.array("vectors"), weight)
    assert np.array_equal(checkpoint.array("vectors", [rows - 1, 1]), weight[[rows - 1, 1]])


def test_words_that_are_no_text_or_nothing(tmp_path: Path) -> None:
    text = b"\xff\xfe 1 2\n 3 4\n\xc2\xa0 5 6\n1 7 8\n"
    checkpoint = Checkpoint.open(write(tmp_path / "a.txt", b"4 2\n" + text))
    assert checkpoint.words == ["\ufffd\ufffd", "", "\xa0", "1"]
    assert np.array_equal(checkpoint.array("vectors"), np.arange(1, 9).reshape(4, 2))


def test_numbers_that_are_none(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write(tmp_path / "a.txt", b"a nan inf -1e99 2\nb 1 2 3 4\n"))
    first = checkpoint.array("vectors")[0]
    assert np.isnan(first[0])
    assert first[1:].tolist() == [np.inf, -np.inf, 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"3000000 300\nking 0.1 0.2\n", "take at least 1,800,000,000 bytes, but 13 follow"),
        (b"999999999999999 999999999999999\n" + lines(WORDS), "claims 999,999,999,999,999 vectors"),
        (b"0 4\n" + lines(WORDS), "claims 0 vectors of 4 numbers"),
        (b"8 4\n" + lines(WORDS), "claims 8 vectors, but 7 lines follow"),
        (b"7 4\n" + lines(WORDS).replace(b"cat -1.0", b"cat"), "line 3: it has 3 numbers, and others 4"),
        (b"7 4\n" + lines(WORDS).replace(b"cat -1.0", b"cat x"), "line 3: 'x000' is not a number"),
        (b"7 4\n" + lines(WORDS).replace(b"cat -1.0", b"cat" * 30_000 + b" 1"), "line 3: it is too long"),
        (lines(WORDS) + b"a 1\n" * 200 + b"b 2 3 4 5\n", "its format is not known"),
        (b"the 1 2 3 4\n" * 100 + b"a\n" * 100, "too short for 4 numbers each"),
        (b"the 1 2 3 4\n" * 101 + b"sat 1 2 3\n", "line 102: it has 3 numbers, and others 4"),
        (b"x" * 100, "its format is not known"),
        (b"", "it is empty"),
        (b"9 9\n" + b"\0" * 100, "take at least 333 bytes, but 100 follow"),
        (b"2 2\n" + b"\0" * 100, "no word and 2 numbers are left for row 0"),
        (binary()[:-4] + b"\n\n", "no word and 4 numbers are left for row 6"),
        (binary() + b"x", "2 bytes follow the 7 vectors"),
        *((b"2 2\ncat 1 2\nsat 3 " + number + b"\n", f"line 3: '{number.decode()}' is not a number")
          for number in (b"1_0", b"1_000.5", b"1e1_0", b"0x10")),
        (b"cat!1.0 2.0 3.0\n. . . 1.0 2.0 3.0\ndog 1.0 2.0 3.0\n", "line 2: it has more than 2 numbers"),
        ((793_712_314).to_bytes(4, "little") + bytes(100), "a model of fastText"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "it is HDF5"),
        (gzip.compress(b"2 2\na 1 2\nb 3 4\n", mtime=0), "Decompress it: gunzip FILE."),
    ],
)  # fmt: skip
def test_claims(content: bytes, message: str, tmp_path: Path) -> None:
    """A header that claims 3,000,000 x 300 in a file of 40 bytes once made a reader ask for 1.5 TB."""
    refused(write(tmp_path / "a.txt", content), message, read=lambda path: Checkpoint.open(path).array("vectors"))


def test_a_file_of_line_breaks_is_no_hang(tmp_path: Path) -> None:
    """Blank lines at the end are looked at once, and those within are too short for vectors."""
    path = write(tmp_path / "a.txt", b"a 1 2 3\n" + b"\n" * 3_000_000)
    assert Checkpoint.open(path).array("vectors").tolist() == [[1, 2, 3]]
    path = write(tmp_path / "b.txt", b"a 1 2 3\n" * 100 + b"\n" * 3_000_000 + b"b 1 2 3\n")
    with pytest.raises(ww.errors.CheckpointError, match="too short for 3 numbers each"):
        Checkpoint.open(path)


def test_labels_with_a_byte_order_mark(tmp_path: Path) -> None:
    write(tmp_path / "vectors.tsv", BOM + b"1\t2\n3\t4\n")
    write(tmp_path / "metadata.tsv", BOM + b"a\nb\n")
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.words == ["a", "b"]
    assert checkpoint.array("vectors").tolist() == [[1, 2], [3, 4]]


def test_pickles_of_gensim(tmp_path: Path) -> None:
    """Each names the class that reads it and what writes its vectors; vectors beside it have no words."""
    models = pytest.importorskip("gensim.models")
    model = models.Word2Vec([["a", "b"]] * 9, vector_size=4, min_count=1)
    model.save(str(tmp_path / "w.model"), pickle_protocol=4)
    model.wv.save(str(tmp_path / "v.kv"), separately=["vectors"], pickle_protocol=4)
    for name, loaded in (("w.model", "Word2Vec.load(PATH).wv"), ("v.kv", "KeyedVectors.load(PATH)")):
        for allowed in (False, True):
            refused(tmp_path / name, f"{loaded}.save_word2vec_format", allow_pickle=allowed)
    vectors = Checkpoint.open(tmp_path / "v.kv.vectors.npy")
    assert np.array_equal(vectors.array(vectors.token_table), model.wv.vectors)
    with pytest.raises(ww.errors.TokenError, match="save_word2vec_format"):
        ww.neighbors(tmp_path / "v.kv.vectors.npy", "a")
