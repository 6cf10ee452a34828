"""Text to ids and back, by the `tokenizers` library: functions here return its Tokenizer as it is.

`tokenizer.encode("the cat").ids`, `.tokens`, `tokenizer.decode(ids)`, `tokenizer.save("tokenizer.json")`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal
from unicodedata import category

from tokenizers import Encoding, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from whatwhere.atomic import IS_LFS_POINTER, LFS_POINTER, open_bytes
from whatwhere.errors import SettingError, TextError
from whatwhere.escape import byte_alphabet, visible

Kind = Literal["word", "bpe", "byte", "character"]
KINDS: tuple[Kind, ...] = ("word", "bpe", "byte", "character")
UNKNOWN = "[UNK]"
NO_UNKNOWN = "\0no unknown word\0"
"""A token that no text contains: where it is the unknown one, unknown words are refused instead of dropped."""
MOST_LISTED = 40  # vocabularies up to this size are listed where a word is unknown
LARGEST_FILE = 1 << 30  # files above this many bytes are refused; the largest tokenizer.json in use has about 30 MB
_COMPRESSED = b"\x1f\x8b", b"PK\3\4", b"BZh9", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"
_UTF16 = b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"  # or UTF-32
_CHUNK = 1 << 20
_NOWHERE = "\U00012000"  # a letter of cuneiform, which vocabularies lack
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def train(
    kind: Kind,
    texts: str | Iterable[str] | None = None,
    *,
    files: Sequence[str | Path] = (),
    vocab_size: int = 30_000,
    lowercase: bool = False,
) -> Tokenizer:
    """Train a tokenizer on texts or files.

    Args:
        kind: `word` splits at white space and between words and punctuation, which it keeps; unknown words become
            [UNK]. `bpe` is byte-pair encoding over bytes (Sennrich et al. 2016; GPT-2's bytes), `byte` the 256 bytes
            alone: for both no text is unknown. `character` makes a token of each character; unknown ones become [UNK].
        texts: one string or several.
        files: UTF-8 files, read whole.
        vocab_size: the maximum number of tokens; the rarest are dropped. `byte` always has 256.
        lowercase: make `The` and `the` the same token.

    Raises:
        SettingError: If the kind is unknown, or the vocabulary too small.
        TextError: If all texts are empty, or a file cannot be read.

    Examples:
        >>> tokenizer = train("word", "The cat sat on the mat.")
        >>> tokenizer.encode("the cat sat.").tokens
        ['the', 'cat', 'sat', '.']
    """
    if kind not in KINDS:
        raise SettingError(f"train got kind={kind!r}, but knows only: {', '.join(KINDS)}.\nPass one of these.")
    by_bytes = kind in ("byte", "bpe")
    smallest = 256 if by_bytes else 2
    if vocab_size < smallest:
        raise SettingError(
            f"a {kind} tokenizer needs vocab_size of at least {smallest}, but got {vocab_size}.\n"
            "Pass a larger one, or kind='word'."
        )
    corpus = [] if texts is None else [texts] if isinstance(texts, str) else list(texts)
    corpus += [read_text(file) for file in files]
    if not any(text.strip() for text in corpus):
        raise TextError("there is no text to train on: every text is empty.\nPass texts=... or files=[...].")
    for text in corpus:
        _require_unicode(text)
    trainer: trainers.Trainer
    if by_bytes:
        tokenizer = Tokenizer(models.BPE(byte_alphabet(), []) if kind == "byte" else models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "bpe")
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size, initial_alphabet=sorted(byte_alphabet()), show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.WordLevel({UNKNOWN: 0}, unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = _split(kind)
        tokenizer.decoder = decoders.Fuse() if kind == "character" else None
        trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=[UNKNOWN], show_progress=False)
    tokenizer.normalizer = normalizers.Lowercase() if lowercase else None
    if kind != "byte":  # whose 256 tokens are all there are
        tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def from_vocabulary(vocabulary: Mapping[str, int], *, lowercase: bool = False, unknown: str | None = None) -> Tokenizer:
    """Create a word tokenizer from words and their ids, as tutorials list them.

    Args:
        vocabulary: the id of each word; ids are whole numbers, each used once.
        lowercase: compare words in lower case; the vocabulary must be in lower case too.
        unknown: the token of unknown words; None makes an unknown word an error (see `encode`).

    Raises:
        TextError: If the vocabulary is empty, an id is used twice or not valid, or a word can never occur.

    Examples:
        >>> tokenizer = from_vocabulary({"The": 0, "cat": 1, "sat": 2, ".": 3})
        >>> tokenizer.encode("The cat sat.").ids
        [0, 1, 2, 3]
    """
    if not vocabulary:
        raise TextError('the vocabulary is empty, but needs words with their ids.\nPass some: {"The": 0, "cat": 1}.')
    by_id: dict[int, str] = {}
    for word, number in vocabulary.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise TextError(
                f"the word {word!r} has id {number!r}, but ids are whole numbers from 0.\nPass an int for each word."
            )
        if number in by_id:
            raise TextError(
                f"the words {by_id[number]!r} and {word!r} share id {number}, but each id is that of one word.\n"
                "Give one of them another id."
            )
        by_id[number] = word
    if unknown is not None and unknown not in vocabulary:
        raise TextError(f"unknown={unknown!r} is not in the vocabulary.\nAdd it with an id of its own.")
    upper = next((word for word in vocabulary if lowercase and word != word.lower() and word != unknown), None)
    if upper is not None:
        raise TextError(f"with lowercase=True no text has the word {upper!r}.\nWrite the vocabulary in lower case.")
    # Without any unknown token the library would drop unknown words.
    model = models.WordLevel(dict(vocabulary), unk_token=unknown or NO_UNKNOWN)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _split("word")
    tokenizer.normalizer = normalizers.Lowercase() if lowercase else None
    return tokenizer


def load(file: str | Path) -> Tokenizer:
    """Read a `tokenizer.json`, such as that of a Hugging Face model: without BPE dropout, truncation and padding.

    Raises:
        TextError: If the file cannot be read, or is not a tokenizer.
    """
    content = read_text(file)
    try:
        return tokenizer_of_json(content)
    except ValueError as problem:
        raise TextError(
            f"{file} is not a tokenizer of the tokenizers library: {problem}.\n"
            "Pass the tokenizer.json of a model, or one that tokenizer.save(...) wrote."
        ) from None


def tokenizer_of_json(content: str | bytes) -> Tokenizer:
    """Build the tokenizer of a tokenizer.json for reading; ValueError if the library cannot read it.

    Without BPE dropout, which makes ids random for training, and without truncation and padding of texts.
    """
    try:
        tokenizer = Tokenizer.from_str(content) if isinstance(content, str) else Tokenizer.from_buffer(content)
    # The library raises bare Exceptions, and panics of its Rust code derive from BaseException alone.
    except BaseException as problem:
        if isinstance(problem, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise ValueError(str(problem)[:300]) from None
    if isinstance(tokenizer.model, models.BPE):
        tokenizer.model.dropout = None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def read_bytes(file: str | Path) -> bytes:
    """Read a file; TextError if it cannot be read, is empty, a pointer of Git LFS, or larger than LARGEST_FILE."""
    path = Path(file)
    try:
        size = path.stat().st_size
        with open_bytes(path) as opened:
            # Pipes have no size; read(n) would reserve n bytes, whatever there is to read.
            parts, left = list[bytes](), 0 if size > LARGEST_FILE else LARGEST_FILE + 1
            while left and (part := opened.read(min(_CHUNK, left))):
                parts.append(part)
                left -= len(part)
            content = parts[0] if len(parts) == 1 else b"".join(parts)
    except TextError:
        raise
    except (OSError, ValueError) as problem:  # ValueError: a path with a null byte
        reason = getattr(problem, "strerror", None) or problem
        raise TextError(f"{file!s} cannot be read: {reason}.\nCheck the path.") from problem
    if max(size, len(content)) > LARGEST_FILE:
        raise TextError(
            f"{file} has {max(size, len(content)):,} bytes; files above {LARGEST_FILE:,} are refused.\n"
            "Pass a part of it."
        )
    if content.startswith(LFS_POINTER):
        raise TextError(f"{file}: {IS_LFS_POINTER[0]}.\n{IS_LFS_POINTER[1]}")
    if not content:
        raise TextError(f"{file} is empty, but needs text.\nCheck the path.")
    return content


def require_text(file: Path) -> None:
    """Raise TextError where the first bytes of a file are those of a compressed one, or of UTF-16 or UTF-32."""
    with suppress(OSError), open_bytes(file) as opened:  # whoever reads all of it says why it cannot be read
        if (first := opened.read(6)).startswith(_COMPRESSED + _UTF16):
            kind = "UTF-16" if first.startswith(_UTF16) else "a compressed file"
            raise TextError(f"{file} is {kind}, whose bytes are not those of its text.\nMake it UTF-8 first.")


def read_text(file: str | Path) -> str:
    """Read a UTF-8 file; TextError as `read_bytes`, and if it is not UTF-8."""
    content = read_bytes(file)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise TextError(
            f"{file} is not UTF-8: byte 0x{content[problem.start]:02x} at offset {problem.start} does not fit.\n"
            f"If it is Latin-1, convert it: iconv -f latin1 -t utf8 {Path(file).name}"
        ) from problem


def encode(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[str]]:
    """Encode a text as ids and tokens, or raise TextError: no part of it is dropped silently.

    Raises:
        TextError: If a text is empty, or has a part for which the tokenizer has no token.

    Examples:
        >>> encode(from_vocabulary({"the": 0, "cat": 1}), "the cat")
        ([0, 1], ['the', 'cat'])
        >>> encode(from_vocabulary({"the": 0}), "the dog")
        Traceback (most recent call last):
        whatwhere.errors.TextError: the tokenizer does not know 'dog' and has no unknown token. It knows: the
        Write the text in its tokens, or add the word, or a token for all unknown words: unknown="[UNK]".
    """
    _require_text(text)
    try:
        encoded = tokenizer.encode(text)
    except Exception as problem:
        word = _first_unknown(tokenizer, text)
        if word is None:
            raise TextError(f"the tokenizer refuses this text: {problem}.\nCheck that it is complete.") from None
        known = tokenizer.get_vocab()
        listed = f" It knows: {' '.join(map(visible, sorted(known, key=known.__getitem__)))}"
        raise TextError(
            f"the tokenizer does not know {word!r} and has no unknown token.{listed * (len(known) <= MOST_LISTED)}\n"
            'Write the text in its tokens, or add the word, or a token for all unknown words: unknown="[UNK]".'
        ) from None
    if not encoded.ids:
        raise TextError(f"the tokenizer makes no token of {text!r}.\nPass other text, or another tokenizer.")
    # Offsets also miss what a tokenizer joins or takes away on purpose, as accents.
    if _first_lost(text, encoded.offsets) is not None and may_drop(tokenizer):
        require_covered(text, encoded.offsets)
    return encoded.ids, encoded.tokens


def encodings(tokenizer: Tokenizer, texts: Sequence[str], *, characters: bool = True) -> list[Encoding]:
    """Return the encodings of texts, without the tokens that a model puts around texts.

    Args:
        characters: the encodings know which characters their tokens cover, which takes longer.

    Raises:
        TextError: If the tokenizer refuses a text; the library itself raises a bare Exception.
    """
    encode = tokenizer.encode_batch if characters else tokenizer.encode_batch_fast
    try:
        result: list[Encoding] = encode(list(texts), add_special_tokens=False)
    except Exception as problem:
        raise TextError(
            f"the tokenizer refuses this text: {problem}.\nTake one with a token for what is unknown."
        ) from None
    return result


def ids_of_each(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of each text, as `encodings` has them: none where the tokenizer refuses it."""
    try:
        return [encoding.ids for encoding in encodings(tokenizer, texts, characters=False)]
    except TextError:
        return [[]] if len(texts) == 1 else [ids for text in texts for ids in ids_of_each(tokenizer, [text])]


def single_token(tokenizer: Tokenizer, text: str) -> int | None:
    """Return the id of the token that a text is encoded to; None where they are several, none, or the unknown one."""
    try:
        (encoding,) = encodings(tokenizer, [text])
    except TextError:
        return None
    ids = encoding.ids
    if len(ids) != 1 or (_first_lost(text, encoding.offsets) is not None and may_drop(tokenizer)):
        return None
    # Of a character in bytes, those that a vocabulary lacks are dropped: what is left is not a character.
    if _REPLACEMENT in tokenizer.decode(ids, skip_special_tokens=False) and _REPLACEMENT not in text:
        return None
    # Not every model tells its unknown token, but a letter that no vocabulary has is encoded to it.
    token, unknown = tokenizer.id_to_token(ids[0]), ids_of_each(tokenizer, [_NOWHERE])[0][-1:]
    return (
        None if token != text and (ids == unknown or token == getattr(tokenizer.model, "unk_token", None)) else ids[0]
    )


def may_drop(tokenizer: Tokenizer) -> bool:
    """Return whether parts of a text can be left out: by BPE without unknown token and all bytes, or in splitting."""
    contents = json.loads(tokenizer.to_str())
    model, splitting = contents["model"], str(contents.get("pre_tokenizer"))
    if "'Removed'" in splitting:
        return True
    if model.get("type") != "BPE" or model.get("unk_token") is not None:
        return False
    by_bytes = "ByteLevel" in splitting and set(byte_alphabet()) <= set(model["vocab"])
    return not (by_bytes or (model.get("byte_fallback") and all(f"<0x{n:02X}>" in model["vocab"] for n in range(256))))


def require_covered(text: str, spans: Sequence[tuple[int, int]]) -> None:
    """Raise TextError unless the spans of tokens cover all characters of a text but white space and controls.

    Raises:
        TextError: If a character is not covered.
    """
    lost = _first_lost(text, spans)
    if lost is not None:
        raise TextError(
            f"the tokenizer has no token for {text[lost]!r} at character {lost} and would leave it out.\n"
            "Use a tokenizer that has one, or a token for what is unknown."
        )


def words(text: str, lowercase: bool = False) -> Tokenizer:
    """Create the word tokenizer of a single text, with ids in order of first appearance, as tutorials do by hand.

    Args:
        text: whose words become the vocabulary.
        lowercase: make `The` and `the` the same token.

    Raises:
        TextError: If the text is empty.

    Examples:
        >>> words("The cat sat on the mat.").encode("The cat sat on the mat.").ids
        [0, 1, 2, 3, 4, 5, 6]
    """
    _require_text(text)
    # By the library and not by str.lower, which treats a final sigma otherwise.
    normalized = normalizers.Lowercase().normalize_str(text) if lowercase else text
    tokens = [token for token, _ in _split("word").pre_tokenize_str(normalized)]
    return from_vocabulary({token: n for n, token in enumerate(dict.fromkeys(tokens))}, lowercase=lowercase)


def _split(kind: Kind) -> pre_tokenizers.PreTokenizer:
    if kind == "character":
        return pre_tokenizers.Split(Regex("[\\s\\S]"), behavior="isolated")
    return pre_tokenizers.Whitespace()  # words, and runs of punctuation, without white space


def _require_text(text: str) -> None:
    if not text.strip():
        raise TextError("the text is empty: there is nothing to encode.\nPass some text.")
    _require_unicode(text)


def _require_unicode(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise TextError(
            f"the text has half a character (a lone surrogate), {text[problem.start]!r}, at character {problem.start}: "
            "it was read in a wrong encoding.\nRead the file as UTF-8."
        ) from None


def _first_lost(text: str, spans: Sequence[tuple[int, int]]) -> int | None:
    """Return the index of the first character that no token covers, except white space and controls, or None."""
    covered = bytearray(len(text))
    for start, end in spans:
        covered[start:end] = b"\1" * (end - start)
    for position, character in enumerate(text):
        if not covered[position] and not character.isspace() and category(character)[0] != "C":
            return position
    return None


def _first_unknown(tokenizer: Tokenizer, text: str) -> str | None:
    normalized = text if tokenizer.normalizer is None else tokenizer.normalizer.normalize_str(text)
    if tokenizer.pre_tokenizer is None:
        return None
    parts = [part for part, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]
    return next((part for part in parts if tokenizer.token_to_id(part) is None), None)
