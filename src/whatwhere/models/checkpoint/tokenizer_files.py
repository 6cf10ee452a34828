"""Files of a tokenizer: its tokens by id, and the tokenizer itself, also of files older than tokenizer.json."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted, visible
from whatwhere.models.checkpoint.base import NO_TOKENIZER
from whatwhere.models.checkpoint.files import File, is_whole_number, parse_json, read_json
from whatwhere.models.configuration.keys import Json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"
MAX_TOKENIZER_BYTES = 200_000_000
_MAX_UNUSED_IDS = 1 << 16
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Lone surrogates, which JSON can express and UTF-8 cannot."""


def tokenizer_in(folder: Path) -> "Tokenizer | str":
    """Build the tokenizer of a folder for reading, as transformers builds it; or return why there is none."""
    from whatwhere.what.text import tokenizer_of_json

    path = folder / TOKENIZER
    if not path.is_file():
        return _older(folder)
    try:
        return tokenizer_of_json(_whole(path))
    except ValueError as problem:
        raise File(path).wrong(f"the tokenizers library cannot read it: {problem}", "Create it again.") from None


def tokenizer_json_in(folder: Path) -> Json | str:
    """Return the contents of tokenizer.json, or what they are for older files of a folder; or why there are none."""
    if (folder / TOKENIZER).is_file():
        return read_json(folder / TOKENIZER, MAX_TOKENIZER_BYTES)
    built = _older(folder)
    return built if isinstance(built, str) else parse_json(built.to_str().encode(), str(folder))


def tokenizer_beside(path: Path, words: Sequence[str]) -> "Tokenizer | str":
    """Build the tokenizer of the folder of a file that lists its own tokens; or return why there is none."""
    built = tokenizer_in(path.parent) if (path.parent / TOKENIZER).is_file() else ""
    if isinstance(built, str):
        return f"the tokenizer in the header of {path.name} is not built, and there is no {TOKENIZER} beside it"
    if any(number >= len(words) or words[number] != token for token, number in built.get_vocab().items()):
        return f"the {TOKENIZER} beside {path.name} has other tokens than its header"
    return built


# Older files


def _older(folder: Path) -> "Tokenizer | str":
    """Build the tokenizer of files older than tokenizer.json, as transformers reads them; or return why not."""
    name = next((name for name in _READERS if (folder / name).is_file()), None)
    if name is None:
        return NO_TOKENIZER
    settings = _optional(folder / "tokenizer_config.json")
    if isinstance(own := settings.get("auto_map"), list) or (isinstance(own, Mapping) and "AutoTokenizer" in own):
        return f"{NO_TOKENIZER}, and that of {name} has code of its own"
    if name == "vocab.json":
        if not (merges := folder / "merges.txt").is_file():
            return f"{NO_TOKENIZER}, and no merges.txt"
        _whole(merges)  # an error if it is empty: every text would be letters
    words = _READERS[name](folder / name)  # before a different program reads it
    try:
        from transformers import AutoTokenizer
    except ImportError:
        return f"{NO_TOKENIZER}, and transformers, which builds that of {name}, is not installed"
    try:
        with quiet():
            read = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        built: Tokenizer = read.backend_tokenizer
    except BaseException as problem:  # a panic in Rust is no Exception
        if isinstance(problem, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        reason = visible(" ".join(str(problem).split()))[:200] or type(problem).__name__
        return f"{NO_TOKENIZER}, and transformers builds none of {name}: {reason}"
    texts = {number: token for token, number in built.get_vocab().items()}
    if any(word and texts.get(n) != word for n, word in enumerate(words)):
        return f"{NO_TOKENIZER}, and that which transformers builds has other tokens than {name}"
    return built


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings of transformers."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)


def _optional(path: Path) -> Json:
    return read_json(path, MAX_TOKENIZER_BYTES) if path.is_file() else {}


# Tokens by id


def tokens_in(folder: Path) -> Callable[[], list[str] | None]:
    """Return a function that reads the tokens by id from the first known file of a tokenizer."""
    for name, read in _READERS.items():
        path = folder / name
        if path.is_file():
            return lambda read=read, path=path: read(path)  # type: ignore[misc]
    return lambda: None


def _from_tokenizer(path: Path) -> list[str]:
    contents = read_json(path, MAX_TOKENIZER_BYTES)
    model = contents.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    added = contents.get("added_tokens") or []
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(vocabulary, dict):
        pairs = vocabulary.items()
    elif isinstance(vocabulary, list):  # Unigram: [piece, log probability]; the id is the index in the list
        pairs = [(row[0] if isinstance(row, list) and row else None, n) for n, row in enumerate(vocabulary)]
    else:
        raise _wrong(path, "it has no vocabulary where model.vocab should be")
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise _wrong(path, "added_tokens is not a list of objects")
    return by_id(path, pairs, [(token.get("content"), token.get("id")) for token in added])


def _from_json(path: Path) -> list[str]:
    return by_id(path, read_json(path, MAX_TOKENIZER_BYTES).items(), _added_beside(path))


def _from_text(path: Path) -> list[str]:
    """Read vocab.txt, as BERT has it: one token on each line; bytes that are not UTF-8 become U+FFFD."""
    lines = [line.rstrip(b"\r\n").decode("utf-8", "replace") for line in BytesIO(_whole(path))]
    return by_id(path, [(line, n) for n, line in enumerate(lines)], _added_beside(path))


def _added_beside(path: Path) -> list[tuple[Any, Any]]:
    decoder = _optional(path.with_name("tokenizer_config.json")).get("added_tokens_decoder")
    if not isinstance(decoder, Mapping):
        return list(_optional(path.with_name("added_tokens.json")).items())
    added = ((token.get("content") if isinstance(token, Mapping) else token, n) for n, token in decoder.items())
    return [(token, int(n)) for token, n in added if n.isdecimal()]


def _from_sentencepiece(path: Path) -> list[str]:
    """Read the pieces of a SentencePiece model: in each field 1 of the protobuf message, its field 1."""
    messages = [message for number, message in _fields(path, _whole(path)) if number == 1]
    if not messages:
        raise _wrong(path, "it is not a SentencePiece model: it holds no pieces")
    texts = (next((text for number, text in _fields(path, message) if number == 1), b"") for message in messages)
    return [text.decode("utf-8", "replace") for text in texts]


_READERS: Mapping[str, Callable[[Path], list[str]]] = {
    "tokenizer.json": _from_tokenizer,
    "vocab.txt": _from_text,
    "vocab.json": _from_json,
    "spiece.model": _from_sentencepiece,
    "sentencepiece.bpe.model": _from_sentencepiece,
    "tokenizer.model": _from_sentencepiece,
}


def _whole(path: Path) -> bytes:
    file = File(path)
    if file.size > MAX_TOKENIZER_BYTES:
        raise _wrong(path, f"it has {file.size:,} bytes, but a vocabulary has at most {MAX_TOKENIZER_BYTES:,}")
    if not file.size:
        raise _wrong(path, "it is empty")
    return file.head(file.size)


def by_id(path: Path, *parts: Iterable[tuple[Any, Any]]) -> list[str]:
    """Return tokens by id, of tables that can be read twice; the token of an unused id is the empty string."""
    count = given = 0
    for token, number in chain(*parts):
        if not isinstance(token, str) or not is_whole_number(number):
            raise _wrong(path, f"the token {quoted(str(token))} has the number {quoted(str(number))}")
        count, given = max(count, number + 1), given + 1
    if count > 16 * given + _MAX_UNUSED_IDS:
        raise _wrong(path, f"it numbers {given:,} tokens up to {count - 1:,}")
    tokens = [""] * count
    for token, number in chain(*parts):
        # Lone surrogates, which JSON can express and UTF-8 cannot, become a replacement character.
        tokens[number] = _SURROGATE.sub("?", token)
    return tokens


def _fields(path: Path, message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the fields of a protobuf message that are strings or messages."""
    at = 0

    def number() -> int:
        """Return the next number, of which each byte has 7 bits, the lowest first."""
        nonlocal at
        ends = (n for n, byte in enumerate(message[at : at + 10]) if byte < 128)
        if (last := next(ends, None)) is None:
            raise _wrong(path, "it is not a SentencePiece model, or is truncated")
        value = sum((byte & 127) << (7 * n) for n, byte in enumerate(message[at : at + last + 1]))
        at += last + 1
        return value

    while at < len(message):
        field, wire = divmod(number(), 8)
        if wire == 0:
            number()
            continue
        if wire not in (1, 2, 5):
            raise _wrong(path, "it is not a SentencePiece model")
        size = number() if wire == 2 else 8 if wire == 1 else 4
        if size > len(message) - at:
            raise _wrong(path, "it is not a SentencePiece model, or is truncated")
        if wire == 2:
            yield field, message[at : at + size]
        at += size


def _wrong(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path}: {what}.\nCreate or download the tokenizer again, or move this file away.")
