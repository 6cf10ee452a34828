"""A text as the ids of a tokenizer, which are made once, kept in a file beside its record, and read by windows.

    tokens/KEY.ids       the ids, little-endian, of 2 bytes for up to 65,536 tokens, else of 4
    tokens/KEY.json      what they are, and their checksum; written last, so that ids without it are made again

KEY is a digest of the text, the tokenizer and the version of this format. The file is read as any long text is: see
byte_text.py. A text is encoded in pieces that end at line borders. Not every tokenizer splits there: at each border
its ids of the characters on both sides must be those of either side, or the piece goes on.
"""

import codecs
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
from filelock import FileLock
from jaxtyping import Int64, UInt

from whatwhere.atomic import atomic_file, write_atomic
from whatwhere.comparison.byte_text import ByteText, OnRead, keep_in_file, open_files
from whatwhere.comparison.read import read_json
from whatwhere.comparison.results import TokenizedText
from whatwhere.errors import ResultsError, TextError
from whatwhere.models.checkpoint.tokenizer_files import unchanged_tokenizer
from whatwhere.records import Schema, from_json
from whatwhere.what import text as texts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SCHEMA = Schema("whatwhere-tokens", 3, "Remove it: it is made again.")
_PIECE = 1 << 16  # characters of a piece, at least
_IDS = 1  # the way of making them: ids of another are made again
LONGEST_PIECE = 1 << 22  # characters of a piece, at most: encoding takes about a hundred bytes for each
_SIDE = 256  # characters on either side of a border by which it is checked
_NEXT = 1 << 12  # characters from a border where no token ends to the next that is tried
_AT_ONCE = 16  # pieces that threads of the tokenizer encode together
BYTES = tuple(chr(n) if 32 < n < 127 else f"0x{n:02x}" for n in range(256))
_BORDER = re.compile(r"(?<=\n)(?=\S)|(?<=\S)(?=\n)")


@dataclass(frozen=True)
class _Record:
    """The content of KEY.json."""

    sha256: str
    text: TokenizedText
    border: tuple[int, int]


@final
@dataclass(frozen=True)
class TokenText:
    """A text as ids: those of its bytes, whose `about` is None, or of a tokenizer's tokens, which are in a file."""

    stored: ByteText
    about: TokenizedText | None = None
    vocab_size: int = 256
    text_sha256: str = ""
    source: ByteText | None = None  # the text itself, which a process that only trains does without
    border: tuple[int, int] = (0, 0)  # the last id up to the held-out ones where a piece begins, and its byte

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The type of the stored ids."""
        return np.dtype(np.uint8) if self.about is None else _dtype(self.vocab_size)

    @property
    def identity(self) -> str:
        """What two runs must share to be compared."""
        if self.about is None:
            return f"sha256 {self.stored.sha256}"
        return f"sha256 {self.text_sha256}, tokenizer {self.about.tokenizer_sha256}, ids {_IDS}"

    @property
    def tokens(self) -> tuple[str, ...]:
        """The vocabulary, as it is shown."""
        return shown_tokens(self.about)

    def __len__(self) -> int:
        return len(self.stored) // self.dtype.itemsize

    def windows(self, starts: Sequence[int], count: int) -> UInt[np.ndarray, "windows ids"]:
        """Return `count` ids from each start."""
        size = self.dtype.itemsize
        ids = self.stored.windows([start * size for start in starts], count * size).view(self.dtype)
        if self.about is not None:
            _require_known(ids, self.vocab_size, self.stored.files[0])
        return ids

    def counts(self, end: int) -> Int64[np.ndarray, " vocab_size"]:
        """Return how often each token occurs among the first `end` ids."""
        counts = np.zeros(self.vocab_size, np.int64)
        for chunk in self.stored.chunks(end * self.dtype.itemsize):
            counts += np.bincount(np.frombuffer(chunk, self.dtype), minlength=self.vocab_size)
        return counts

    def in_file(self, folder: Path, on_read: OnRead) -> "TokenText":
        """Return the same ids in a copy that a folder has, as `keep_in_file` makes it, without the text."""
        return replace(self, stored=keep_in_file(self.stored, folder, on_read), source=None)

    def bytes_of(self, first: int, stop: int) -> int | None:
        """Return how many bytes of the text held-out ids from `first` up to `stop` stand for; None without the text.

        What a tokenizer drops between two tokens, such as white space, counts with the second; a character of several
        tokens with the first of them.
        """
        if self.about is None:
            return stop - first
        if self.source is None:
            return None
        encoder = unchanged_tokenizer(self.about.tokenizer, self.about.tokenizer_sha256)
        (at, start), ends = self.border, list[int]()
        for part in _byte_ends(encoder, pieces(encoder, _characters(self.source, start=start))):
            ends += [int(part[n - at]) for n in (first - 1, stop - 1) if at <= n < at + len(part)]
            at += len(part)
            if at >= stop:
                break
        return ends[1] - ends[0]


def first_held_out(count: int) -> int:
    """Return the first of so many ids, or bytes, that training never shows: the last tenth is for tests."""
    return count * 9 // 10


def tokenized(
    text: ByteText, tokenizer: Path, cache: Path | None = None, on_read: OnRead = lambda count: None
) -> TokenText:
    """Return the ids of a text, which are made where no earlier call, of this or another process, has made them."""
    file = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    digest = sha256(texts.read_bytes(file)).hexdigest()
    encoder = texts.load(file)
    size = 1 + max(encoder.get_vocab(with_added_tokens=True).values(), default=-1)
    if not size:
        raise TextError("the tokenizer has no token.\nPass another one.")
    key = sha256(f"ids {_IDS} {text.sha256} {digest}".encode()).hexdigest()
    if cache is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "whatwhere"
    cache = cache.absolute()
    ids, record = cache / "tokens" / f"{key}.ids", cache / "tokens" / f"{key}.json"
    try:
        ids.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(ids.with_suffix(".lock")):
            found = _kept(ids, record)
            if found is None:
                for left in ids.parent.glob(f".{key}.*.part"):
                    left.unlink()  # of a process that was killed
                found = _make(text, encoder, file, digest, size, ids, record, on_read)
    except OSError as problem:
        raise ResultsError(
            f"{cache} cannot be written: {problem.strerror}.\nMake room, or choose another folder: XDG_CACHE_HOME."
        ) from problem
    stored, kept = found
    about = replace(kept.text, tokenizer=str(file.resolve()))
    return TokenText(stored, about, size, text.sha256, text, kept.border)


@lru_cache(maxsize=4)
def shown_tokens(about: TokenizedText | None) -> tuple[str, ...]:
    """Return the token of each id, up to the greatest; the bytes, where there is no tokenizer."""
    if about is None:
        return BYTES
    numbers = unchanged_tokenizer(about.tokenizer, about.tokenizer_sha256).get_vocab(with_added_tokens=True)
    by_id = {number: token for token, number in numbers.items()}
    return tuple(by_id.get(number, f"[no token {number}]") for number in range(max(by_id) + 1))


def _kept(ids: Path, record: Path) -> tuple[ByteText, _Record] | None:
    """Return ids that were made before; None where they are absent, incomplete or damaged."""
    try:
        content = from_json(_Record, read_json(record, _SCHEMA), str(record))
        stored = open_files([ids])
    except (OSError, ResultsError, TextError):
        return None
    return (stored, content) if content.sha256 == stored.sha256 else None


def _make(
    text: ByteText, encoder: "Tokenizer", file: Path, digest: str, size: int, ids: Path, record: Path, on_read: OnRead
) -> tuple[ByteText, _Record]:
    """Tokenize a text into its two files."""
    unknown, lost = _unknown_id(encoder), 0
    sizes, counts = list[int](), list[int]()  # bytes and tokens of each piece

    def measured() -> Iterator[str]:
        for piece in pieces(encoder, _characters(text, on_read)):
            sizes.append(len(piece.encode()))
            yield piece

    record.unlink(missing_ok=True)
    with atomic_file(ids, follow=False) as unfinished:
        with unfinished.open("wb") as opened:
            for some in encoded(encoder, measured()):
                _require_known(some, size, file)
                counts.append(len(some))
                opened.write(some.astype(_dtype(size)).tobytes())
                lost += 0 if unknown is None else int((some == unknown).sum())
        if not unfinished.stat().st_size:
            raise TextError("the tokenizer makes no token of this text.\nPass other text, or another tokenizer.")
    stored = open_files([ids])
    count = len(stored) // _dtype(size).itemsize
    about = TokenizedText(
        tokenizer=str(file.resolve()),
        tokenizer_sha256=digest,
        tokens=count,
        bytes_per_token=len(text) / count,
        unknown=None if unknown is None else lost / count,
    )
    before = int(np.searchsorted(np.cumsum(counts), first_held_out(count), side="right"))
    made = _Record(stored.sha256, about, (sum(counts[:before]), sum(sizes[:before])))
    write_atomic(record, json.dumps(_SCHEMA.wrap(made)), follow=False)
    return stored, made


def pieces(tokenizer: "Tokenizer", parts: Iterable[str], longest: int = LONGEST_PIECE) -> Iterator[str]:
    """Cut a text at borders of lines where tokens end, whatever its parts."""
    pending, start = "", _PIECE
    for part in parts:
        pending += part
        while (found := _BORDER.search(pending, start, len(pending) - _SIDE)) is not None:
            if _is_border(tokenizer, pending, found.start()):
                yield pending[: found.start()]
                pending, start = pending[found.start() :], _PIECE
            else:
                start = found.start() + _NEXT
        start = max(start, len(pending) - _SIDE - 1)
        if len(pending) > longest:
            raise TextError(
                f"a text of more than {longest:,} characters is tokenized in pieces, but this tokenizer makes other "
                "tokens of lines by themselves than of the lines together, or the text has no line ends.\nTake a "
                "tokenizer that splits at line ends, as byte-level BPE and WordPiece do, break the lines, or leave it "
                "out: bytes need no pieces."
            )
    if pending:
        yield pending


def encoded(tokenizer: "Tokenizer", parts: Iterable[str]) -> Iterator[UInt[np.ndarray, " ids"]]:
    """Yield the ids of each piece of a text, without tokens that a model puts around texts."""
    drops = texts.may_drop(tokenizer)
    left = iter(parts)
    while some := list(islice(left, _AT_ONCE)):
        for part, encoding in zip(some, texts.encodings(tokenizer, some, characters=drops), strict=True):
            if drops:
                texts.require_covered(part, encoding.offsets)
            yield np.array(encoding.ids, np.uint32)


def _byte_ends(tokenizer: "Tokenizer", parts: Iterable[str]) -> Iterator[Int64[np.ndarray, " ids"]]:
    """Yield of each piece the byte behind each token, counted from the first piece."""
    start = 0
    for part in parts:
        (encoding,) = texts.encodings(tokenizer, [part])
        codes = np.frombuffer(part.encode("utf-32-le"), "<u4")
        behind = np.cumsum([start, *(1 + (codes > 0x7F) + (codes > 0x7FF) + (codes > 0xFFFF))])
        ends = behind[[end for _, end in encoding.offsets]] if encoding.ids else behind[:0]
        yield np.maximum.accumulate(ends)
        start = int(behind[-1])


def _characters(text: ByteText, on_read: OnRead = lambda count: None, start: int = 0) -> Iterator[str]:
    decoder, read = codecs.getincrementaldecoder("utf-8")(), start
    for chunk in text.chunks(len(text), start):
        begins = read - len(decoder.getstate()[0])
        read += len(chunk)
        try:
            characters = decoder.decode(chunk, final=read == len(text))
        except UnicodeDecodeError as problem:
            raise TextError(
                f"{', '.join(map(str, text.files)) or 'the text'} is not UTF-8: the byte at offset "
                f"{begins + problem.start:,} does not fit.\n"
                "Convert it, or leave the tokenizer out: bytes can be anything."
            ) from None
        yield characters
        on_read(len(chunk))


def _is_border(tokenizer: "Tokenizer", text: str, at: int) -> bool:
    before, after = text[max(0, at - _SIDE) : at], text[at : at + _SIDE]
    try:
        sides = texts.encodings(tokenizer, [before, after, before + after])
    except TextError:  # half a word at an end may have no token
        return False
    first, second, both = (each.ids for each in sides)
    return first + second == both


def _dtype(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def _unknown_id(tokenizer: "Tokenizer") -> int | None:
    model = json.loads(tokenizer.to_str())["model"]
    if isinstance(model.get("unk_id"), int):
        return int(model["unk_id"])
    return None if model.get("unk_token") is None else tokenizer.token_to_id(model["unk_token"])


def _require_known(ids: UInt[np.ndarray, "..."], vocab_size: int, file: Path) -> None:
    if ids.size and (largest := int(ids.max())) >= vocab_size:
        raise TextError(
            f"{file} gives the id {largest}, but the vocabulary has {vocab_size} tokens, the last #{vocab_size - 1}.\n"
            "Take a complete tokenizer.json."
        )
