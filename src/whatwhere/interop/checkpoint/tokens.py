"""The tokens of a folder as strings, read from the files of its tokenizer without building it."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint.files import File, read_json, shown, whole_number

LARGEST = 200_000_000
_SPARSE = 1 << 16


def words_of(folder: Path) -> Callable[[], list[str] | None]:
    """Give a reader of the words, by the first of the files that are known."""
    for name, read in _READERS.items():
        path = folder / name
        if path.is_file():
            return lambda read=read, path=path: read(path)  # type: ignore[misc]
    return lambda: None


def _from_tokenizer(path: Path) -> list[str]:
    """Read tokenizer.json of the tokenizers library: the vocabulary of its model, and what was added."""
    said = read_json(path, LARGEST)
    model = said.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    added = said.get("added_tokens") or []
    pairs: list[tuple[Any, Any]]
    if isinstance(vocabulary, dict):
        pairs = list(vocabulary.items())
    elif isinstance(vocabulary, list):  # Unigram: [piece, log probability], numbered as they stand
        pairs = [(row[0] if isinstance(row, list) and row else None, n) for n, row in enumerate(vocabulary)]
    else:
        raise _wrong(path, "it has no vocabulary where model.vocab should be")
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise _wrong(path, "added_tokens is no list of objects")
    return _placed(path, [*pairs, *((token.get("content"), token.get("id")) for token in added)])


def _from_json(path: Path) -> list[str]:
    """Read vocab.json of GPT-2's kind, and added_tokens.json beside it."""
    pairs = list(read_json(path, LARGEST).items())
    beside = path.with_name("added_tokens.json")
    return _placed(path, pairs + (list(read_json(beside, LARGEST).items()) if beside.is_file() else []))


def _from_text(path: Path) -> list[str]:
    """Read vocab.txt of BERT's kind: a token on each line; bytes that are not UTF-8 become U+FFFD."""
    file = File(path)
    if file.size > LARGEST:
        raise _wrong(path, f"it has {file.size:,} bytes, but a vocabulary has at most {LARGEST:,}")
    lines = file.head(file.size).removesuffix(b"\n").split(b"\n") if file.size else []
    return [line.rstrip(b"\r").decode("utf-8", "replace") for line in lines]


def _from_sentencepiece(path: Path) -> list[str]:
    """Read the pieces of a SentencePiece model: field 1 of each field 1 of the message, in order."""
    file = File(path)
    if file.size > LARGEST:
        raise _wrong(path, f"it has {file.size:,} bytes, but a vocabulary has at most {LARGEST:,}")
    pieces = []
    for number, piece in _fields(path, file.head(file.size)):
        if number == 1:
            texts = [text for inner, text in _fields(path, piece) if inner == 1]
            pieces.append(texts[0].decode("utf-8", "replace") if texts else "")
    if not pieces:
        raise _wrong(path, "it is no SentencePiece model: it holds no pieces")
    return pieces


_READERS: Mapping[str, Callable[[Path], list[str]]] = {
    "tokenizer.json": _from_tokenizer,
    "vocab.txt": _from_text,
    "vocab.json": _from_json,
    "spiece.model": _from_sentencepiece,
    "sentencepiece.bpe.model": _from_sentencepiece,
    "tokenizer.model": _from_sentencepiece,
}


def _placed(path: Path, pairs: list[tuple[Any, Any]]) -> list[str]:
    """Put tokens at their numbers; a number that no token has gets an empty string."""
    for token, number in pairs:
        if not isinstance(token, str) or not whole_number(number):
            raise _wrong(path, f"the token {shown(str(token))} has the number {shown(str(number))}")
    count = max((number for _, number in pairs), default=-1) + 1
    if count > 16 * len(pairs) + _SPARSE:
        raise _wrong(path, f"it numbers {len(pairs):,} tokens up to {count - 1:,}")
    words = [""] * count
    for token, number in pairs:
        # Half of a surrogate pair, which JSON can say and UTF-8 cannot, would break whatever prints it.
        words[number] = token.encode("utf-8", "replace").decode()
    return words


def _fields(path: Path, message: bytes) -> Iterator[tuple[int, bytes]]:
    """Give the fields of a protobuf message that are strings or messages, and pass over numbers."""
    at = 0
    while at < len(message):
        key, at = _varint(path, message, at)
        number, wire = key >> 3, key & 7
        size = {1: 8, 5: 4}.get(wire, 0)
        if wire == 0:
            _, at = _varint(path, message, at)
        elif wire == 2:
            size, at = _varint(path, message, at)
        elif not size:
            raise _wrong(path, "it is no SentencePiece model")
        if size > len(message) - at:
            raise _wrong(path, "it is no SentencePiece model, or is cut off")
        if wire == 2:
            yield number, message[at : at + size]
        at += size


def _varint(path: Path, message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at + place >= len(message):
            break
        byte = message[at + place]
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at + place + 1
    raise _wrong(path, "it is no SentencePiece model, or is cut off")


def _wrong(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path}: {what}.\nMake or download the tokenizer anew, or move this file away.")
