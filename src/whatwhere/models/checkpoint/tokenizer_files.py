"""Files of a tokenizer: its tokens by id, and the tokenizer itself, also of files older than tokenizer.json."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from itertools import chain
from json import dumps
from logging import ERROR
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from whatwhere.errors import CheckpointError, TextError
from whatwhere.escape import quoted, visible
from whatwhere.models.checkpoint.base import NO_TOKENIZER
from whatwhere.models.checkpoint.files import File, is_whole_number, parse_json, read_json
from whatwhere.models.configuration.keys import Json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"
MAX_TOKENIZER_BYTES = 200_000_000
RENUMBERED = "the tokenizers library gives"
_MAX_UNUSED_IDS = 1 << 16
_SETTINGS, _LISTED = "tokenizer_config.json", "added_tokens.json"
_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def tokenizer_in(folder: Path) -> "Tokenizer | str":
    """Build the tokenizer of a folder for reading, as transformers builds it; or return why there is none."""
    path = folder / TOKENIZER
    if not path.is_file():
        return _older(folder)
    return _renumbered(contents := read_tokenizer(path), own := built(contents, path)) or own


def built(contents: Json, path: Path = Path(TOKENIZER)) -> "Tokenizer":
    """Build the tokenizer of a file for reading, without dropout, truncation and padding, which validates the file."""
    from whatwhere.what.text import tokenizer_of_json

    try:
        return tokenizer_of_json(dumps(contents))
    except ValueError as problem:
        raise CheckpointError(f"{path}: the tokenizers library cannot read it: {problem}.\nCreate it again.") from None


def tokenizer_json_in(folder: Path) -> Json | str:
    """Return the contents of tokenizer.json, or what they are for older files of a folder; or why there are none."""
    if (folder / TOKENIZER).is_file():
        contents = read_tokenizer(folder / TOKENIZER)
        if why := _renumbered(contents, built(contents, folder / TOKENIZER)):
            raise CheckpointError(f"{folder}: {why}.\nWrite a {TOKENIZER} in which each id has a token.")
        return contents
    older = _older(folder)
    return older if isinstance(older, str) else parse_json(older.to_str().encode(), str(folder))


def _renumbered(contents: Json, tokenizer: "Tokenizer") -> str | None:
    """Return what is wrong with an added token whose id the library changes, as it does behind gaps; or None."""
    for content, stated in _numbered(contents.get("added_tokens") or []):
        if (own := tokenizer.token_to_id(content)) != stated and content:  # of none, which is in no text, it has no id
            return f"{RENUMBERED} {quoted(content)} the id {own}, but {TOKENIZER}, where ids have no token, {stated}"
    return None


def tokenizer_beside(path: Path, words: Sequence[str]) -> "Tokenizer | str":
    """Build the tokenizer of the folder of a file that lists its own tokens; or return why there is none."""
    own = tokenizer_in(path.parent) if (path.parent / TOKENIZER).is_file() else ""
    if isinstance(own, str):
        return f"the tokenizer in the header of {path.name} is not built, and there is no {TOKENIZER} beside it"
    if any(number >= len(words) or words[number] != token for token, number in own.get_vocab().items()):
        return f"the {TOKENIZER} beside {path.name} has other tokens than its header"
    return own


def unchanged_tokenizer(file: str, digest: str) -> "Tokenizer":
    """Load the tokenizer of the text of a comparison; TextError where the file is not that of the SHA-256."""
    from whatwhere.what.text import load, read_bytes

    if sha256(read_bytes(file)).hexdigest() != digest:
        raise TextError(f"{file} has changed since the text was tokenized.\nPut the file back, of SHA-256 {digest}.")
    return load(file)


def tokenizer_of_task(task: Any) -> "Tokenizer | str":
    """Load the tokenizer of a comparison's task for texts as it was trained on; or return why there is none."""
    about = task.get("tokenized") if isinstance(task, dict) else None
    if not isinstance(about, dict):
        return NO_TOKENIZER
    try:
        built = unchanged_tokenizer(str(about.get("tokenizer")), str(about.get("tokenizer_sha256")))
    except TextError as problem:
        return str(problem).splitlines()[0].removesuffix(".")
    built.post_processor = None  # the tokens that a model puts around texts
    return built


# Older files


def _older(folder: Path) -> "Tokenizer | str":
    """Build the tokenizer of files older than tokenizer.json, as transformers reads them; or return why not."""
    name = next((name for name in _READERS if (folder / name).is_file()), None)
    if name is None:
        return NO_TOKENIZER
    settings = optional_json(folder / _SETTINGS)
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
    copies = TemporaryDirectory()  # of files whose sizes are checked, and that may be at huggingface.co
    try:
        with quiet(), copies:
            for path in map(folder.joinpath, {*_READERS, *_BESIDE}):
                if path.is_file():
                    Path(copies.name, path.name).write_bytes(_whole(path))
            read = AutoTokenizer.from_pretrained(copies.name, trust_remote_code=False, local_files_only=True)
        built: Tokenizer = read.backend_tokenizer
    except BaseException as problem:  # a panic in Rust is not an Exception
        if isinstance(problem, KeyboardInterrupt | SystemExit | MemoryError | CheckpointError):
            raise
        reason = (
            visible(" ".join(str(problem).replace(copies.name, str(folder)).split()))[:200] or type(problem).__name__
        )
        return f"{NO_TOKENIZER}, and transformers builds none of {name}: {reason}"
    numbers = built.get_vocab()
    last = {word: n for n, word in enumerate(words)}  # of equal lines, which are read without blanks at their ends
    if any(word and n not in (numbers.get(word), numbers.get(word.rstrip())) for word, n in last.items()):
        return f"{NO_TOKENIZER}, and that which transformers builds has other tokens than {name}"
    return built


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings of transformers."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)


def optional_json(path: Path) -> Json:
    """Read a small file of a tokenizer; without one, return an empty object."""
    return read_json(path, MAX_TOKENIZER_BYTES) if path.is_file() else {}


# Tokens by id


def tokens_in(folder: Path) -> Callable[[], list[str] | None]:
    """Return a function that reads the tokens by id from the first known file of a tokenizer."""
    name = next((name for name in _READERS if (folder / name).is_file()), None)
    return lambda: None if name is None else _READERS[name](folder / name)


def read_tokenizer(path: Path) -> Json:
    """Read a tokenizer.json, with the added and special tokens of the files beside it, as transformers reads them.

    A token that tokenizer.json lacks gets the next id, whatever id a file states: CheckpointError if these differ.
    """
    contents = parse_json(_whole(path), str(path))
    added = contents.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise _wrong(path, "added_tokens is not a list of objects")
    ids, free = dict(pieces := pieces_of(contents, path)), len(pieces)
    for token in added:
        _require_token(path, content := token.get("content"), number := token.get("id"))
        ids[content], free = number, max(free, number + 1)
    tokens = {token["content"]: token for token in added}
    for token in (beside := _added_beside(path, tokens)):
        if (content := token["content"]) not in ids:
            ids[content], free = free, free + 1
        if content not in tokens or "id" in token:
            tokens[content] = {**token, "id": ids[content]}
    decoder = optional_json(path.with_name(_SETTINGS)).get("added_tokens_decoder")
    listed = {} if isinstance(decoder, Mapping) else optional_json(path.with_name(_LISTED))  # transformers reads one
    for content, stated in [*_numbered(beside), *listed.items()]:
        if ids.get(content) != stated:
            raise CheckpointError(
                f"{path.with_name(_LISTED if listed.get(content) == stated else _SETTINGS)} states the id "
                f"{visible(str(stated))} for {quoted(content)}, for which transformers has {ids.get(content, 'none')}."
                f"\nList it, and tokens of ids before its own, in added_tokens of {TOKENIZER}, or correct this file."
            )
    return {**contents, "added_tokens": sorted(tokens.values(), key=itemgetter("id"))} if beside else contents


def pieces_of(contents: Json, path: Path = Path(TOKENIZER)) -> list[tuple[Any, Any]]:
    """Return the tokens of the vocabulary of a tokenizer.json with their ids, without added ones."""
    model = contents.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):  # Unigram: [piece, log probability]; the id is the index in the list
        return [(str(row[0]) if isinstance(row, list) and row else None, n) for n, row in enumerate(vocabulary)]
    if not isinstance(vocabulary, dict):
        raise _wrong(path, "it has no vocabulary where model.vocab should be")
    return list(vocabulary.items())


def _from_tokenizer(path: Path) -> list[str]:
    contents = read_tokenizer(path)
    return by_id(path, pieces_of(contents, path), _numbered(contents.get("added_tokens") or []))


def _from_json(path: Path) -> list[str]:
    return by_id(path, read_json(path, MAX_TOKENIZER_BYTES).items(), _numbered(_added_beside(path, {})))


def _from_text(path: Path) -> list[str]:
    """Read vocab.txt, as BERT has it: one token on each line; bytes that are not UTF-8 become U+FFFD."""
    lines = [line.rstrip(b"\r\n").decode("utf-8", "replace") for line in BytesIO(_whole(path))]
    return by_id(path, [(line, n) for n, line in enumerate(lines)], _numbered(_added_beside(path, {})))


def _numbered(tokens: Iterable[Json]) -> list[tuple[Any, Any]]:
    return [(token["content"], token["id"]) for token in tokens if "id" in token]


def _added_beside(path: Path, own: Mapping[str, Json]) -> list[Json]:
    """Return the tokens that files beside a vocabulary add to its own, as transformers does; special ones lack ids."""
    settings, listed = optional_json(path.with_name(_SETTINGS)), optional_json(path.with_name(_LISTED))
    if isinstance(decoder := settings.get("added_tokens_decoder"), Mapping):
        numbered = [(token, int(n)) for n, token in decoder.items() if n.isdecimal() and len(n) < 10]
    else:
        numbered = [(own.get(content, content), n) for content, n in listed.items()]
        settings = {**settings, **optional_json(path.with_name("special_tokens_map.json"))}
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens")
    named = [settings.get(role) for role in _ROLES]
    named += [value for key, value in settings.items() if key.endswith("_token") and key not in _ROLES]
    named += extra.values() if isinstance(extra, Mapping) else extra if isinstance(extra, list) else ()
    objects = [_as_object(token) for token in named if token]
    special = {token["content"]: token for token in objects if isinstance(token["content"], str)}
    tokens = []
    for given, number in [
        *((_as_object(token), n) for token, n in numbered),
        *((one, None) for one in special.values()),
    ]:
        _require_token(path, given["content"], 0 if number is None else number)
        flags = {flag: given.get(flag, False) for flag in ("single_word", "lstrip", "rstrip")}
        is_special = given.get("special", False) or given["content"] in special
        flags |= {"normalized": given.get("normalized", not is_special), "special": is_special}
        tokens.append({"content": given["content"], **flags, **({} if number is None else {"id": number})})
    return sorted(tokens, key=lambda token: token.get("id", 1 << 63))


def _as_object(token: Any) -> Json:
    return {"content": None, **token} if isinstance(token, Mapping) else {"content": token}


def _from_sentencepiece(path: Path) -> list[str]:
    """Read the pieces of a SentencePiece model: its protobuf message begins with them, and each with its text."""
    content, at = _whole(path), 0
    texts = []
    while content[at : at + 1] == b"\x0a":
        piece, at = _field(path, content, at + 1)
        texts.append(_field(path, piece, 1)[0].decode("utf-8", "replace") if piece[:1] == b"\x0a" else "")
    if not texts:
        raise _wrong(path, "it is not a SentencePiece model: it holds no pieces")
    return texts


def _field(path: Path, message: bytes, at: int) -> tuple[bytes, int]:
    """Return the content of a field, and its end; its size is a number of which each byte has 7 bits, lowest first."""
    size = shift = 0
    while at < len(message) and shift < 64:
        byte, at = message[at], at + 1
        size, shift = size | (byte & 127) << shift, shift + 7
        if byte < 128 and size <= len(message) - at:
            return message[at : at + size], at + size
        if byte < 128:
            break
    raise _wrong(path, "it is not a SentencePiece model, or is truncated")


_READERS: Mapping[str, Callable[[Path], list[str]]] = {
    "tokenizer.json": _from_tokenizer,
    "vocab.txt": _from_text,
    "vocab.json": _from_json,
    "spiece.model": _from_sentencepiece,
    "sentencepiece.bpe.model": _from_sentencepiece,
    "tokenizer.model": _from_sentencepiece,
}
_BESIDE = ("merges.txt", "config.json", _SETTINGS, "special_tokens_map.json", _LISTED)
"""Files that a vocabulary is read with."""


def _whole(path: Path) -> bytes:
    file = File(path)
    if file.size > MAX_TOKENIZER_BYTES:
        raise _wrong(path, f"it has {file.size:,} bytes, but a vocabulary has at most {MAX_TOKENIZER_BYTES:,}")
    if not file.size:
        raise _wrong(path, "it is empty")
    return file.head(file.size)


def by_id(path: Path, *parts: Iterable[tuple[Any, Any]]) -> list[str]:
    """Return tokens by id; that of an unused id is the empty string."""
    tokens: dict[int, str] = {}
    for token, number in chain(*parts):
        _require_token(path, token, number)
        tokens[number] = printable(token)
    count = max(tokens, default=-1) + 1
    if count > 16 * len(tokens) + _MAX_UNUSED_IDS:
        raise _wrong(path, f"it numbers {len(tokens):,} tokens up to {count - 1:,}")
    return [tokens.get(number, "") for number in range(count)]


def _require_token(path: Path, token: Any, number: Any) -> None:
    if not isinstance(token, str) or not is_whole_number(number):
        raise _wrong(path, f"the token {quoted(str(token))} has the number {quoted(str(number))}")


def printable(token: str) -> str:
    """Return a token with "?" for lone surrogates, which JSON can express and UTF-8 cannot."""
    return token.encode("utf-8", "replace").decode()


def _wrong(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path}: {what}.\nCreate or download the tokenizer again, or move this file away.")
