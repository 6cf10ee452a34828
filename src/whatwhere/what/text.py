"""Text to ids and back, on the `tokenizers` library, whose Tokenizer every function here returns as it is.

`tokenizer.encode("the cat").ids`, `.tokens`, `tokenizer.decode(ids)`, `tokenizer.save("tokenizer.json")`.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal
from unicodedata import category

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from whatwhere.errors import SettingError, TextError

Kind = Literal["word", "bpe", "byte", "character"]
KINDS: tuple[Kind, ...] = ("word", "bpe", "byte", "character")
UNKNOWN = "[UNK]"
LARGEST_FILE = 1 << 30
"""tokenizer.json files above this many bytes are refused; the largest in use are about 30 MB."""

EXPRESSION_TOKENS: tuple[str, ...] = (
    *("[PAD]", "[EOS]"),
    *"0123456789",
    *("First", "Second", "Last", "Max", "Min"),
    *"(),",
)


def train(
    kind: Kind,
    texts: str | Iterable[str] | None = None,
    *,
    files: Sequence[str | Path] = (),
    vocab_size: int = 30_000,
    lowercase: bool = False,
) -> Tokenizer:
    """Make a tokenizer from texts or files.

    Args:
        kind: `word` splits at white space and between words and signs, and keeps the signs; unknown words become
            [UNK]. `bpe` is byte-pair encoding over bytes (Sennrich et al. 2016; GPT-2's bytes), `byte` the 256 bytes
            alone: neither knows an unknown. `character` takes each character, [UNK] for the others.
        texts: one string or several.
        files: UTF-8 files, read whole.
        vocab_size: at most so many tokens; the rare ones are left out. `byte` always has 256.
        lowercase: make `The` and `the` the same token.

    >>> tokenizer = train("word", "The cat sat on the mat.")
    >>> tokenizer.encode("the cat sat.").tokens
    ['the', 'cat', 'sat', '.']
    """
    if kind not in KINDS:
        raise SettingError(f"train got kind={kind!r}, but knows only: {', '.join(KINDS)}.")
    smallest = 256 if kind in ("byte", "bpe") else 2
    if vocab_size < smallest:
        raise SettingError(f"a {kind} tokenizer needs vocab_size of at least {smallest}, but got {vocab_size}.")
    corpus = [] if texts is None else [texts] if isinstance(texts, str) else list(texts)
    corpus += [read_text(file) for file in files]
    if not any(text.strip() for text in corpus):
        raise TextError("there is no text to train on: every text is empty.\nPass texts=... or files=[...].")
    for text in corpus:
        _require_unicode(text)
    if kind in ("byte", "bpe"):
        return _train_bytes(kind, corpus, vocab_size, lowercase)
    tokenizer = Tokenizer(models.WordLevel({UNKNOWN: 0}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = _split(kind)
    tokenizer.decoder = decoders.Fuse() if kind == "character" else None
    _normalize(tokenizer, lowercase)
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=[UNKNOWN], show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def from_vocabulary(vocabulary: Mapping[str, int], *, lowercase: bool = False, unknown: str | None = None) -> Tokenizer:
    """Make a word tokenizer with given ids, as tutorials list them.

    Args:
        vocabulary: the id of each word; ids are whole numbers, each used once.
        lowercase: compare words in lower case; the vocabulary must be in lower case too.
        unknown: the word that stands for all others; None makes an unknown word an error (see `encode`).

    >>> tokenizer = from_vocabulary({"The": 0, "cat": 1, "sat": 2, ".": 3})
    >>> tokenizer.encode("The cat sat.").ids
    [0, 1, 2, 3]
    """
    if not vocabulary:
        raise TextError('the vocabulary is empty; it needs words with their ids, as in {"The": 0, "cat": 1}.')
    seen: dict[int, str] = {}
    for word, number in vocabulary.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise TextError(f"the word {word!r} has id {number!r}, but ids are whole numbers from 0.")
        if number in seen:
            raise TextError(f"the words {seen[number]!r} and {word!r} share id {number}; each id names one word.")
        seen[number] = word
    if unknown is not None and unknown not in vocabulary:
        raise TextError(f"the unknown word {unknown!r} is not in the vocabulary; add it with an id of its own.")
    upper = next((word for word in vocabulary if lowercase and word != word.lower() and word != unknown), None)
    if upper is not None:
        raise TextError(f"lowercase=True never meets {upper!r}: write the vocabulary in lower case.")
    # Without an unknown word the library would drop what it does not know; a name that no text holds makes it refuse.
    model = models.WordLevel(dict(vocabulary), unk_token=unknown or "\0no unknown word\0")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _split("word")
    _normalize(tokenizer, lowercase)
    return tokenizer


def expressions() -> Tokenizer:
    """Give the 20 tokens of the first tutorial's expressions, with its ids.

    [PAD] 0, [EOS] 1, digits 2-11, First 12, Second 13, Last 14, Max 15, Min 16, ( 17, ) 18, comma 19. White space is
    left out; anything else is an error.

    >>> expressions().encode("Max(1,6,2)").ids
    [15, 17, 3, 19, 8, 19, 4, 18]
    """
    vocabulary = {token: number for number, token in enumerate(EXPRESSION_TOKENS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="\0no unknown word\0"))
    # Letters stay together, every other sign stands alone: 16 is the digits 1 and 6.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(Regex(r"\[PAD\]|\[EOS\]|\p{L}+|[^\p{L}]"), behavior="isolated"),
        ]
    )
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def load(file: str | Path) -> Tokenizer:
    """Read a `tokenizer.json`, as Hugging Face models carry it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     expressions().save(f"{folder}/tokenizer.json")
    ...     load(f"{folder}/tokenizer.json").get_vocab_size()
    20
    """
    content = read_text(file)
    try:
        return Tokenizer.from_str(content)
    # The library raises bare Exceptions, and panics of its Rust code derive from BaseException alone.
    except BaseException as problem:
        if isinstance(problem, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise TextError(
            f"{file} is not a tokenizer of the tokenizers library: {problem}.\n"
            "Give the tokenizer.json of a model, or one that tokenizer.save(...) wrote."
        ) from None


def read_bytes(file: str | Path) -> bytes:
    """Read a file of a bearable size that is not empty, or say what is wrong with it."""
    path = Path(file)
    try:
        size = path.stat().st_size
        with path.open("rb") as opened:
            # Pipes and devices have no size, and some have no end.
            content = b"" if size > LARGEST_FILE else opened.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as problem:  # ValueError: a path with a null byte
        reason = getattr(problem, "strerror", None) or problem
        raise TextError(f"{file!s} cannot be read: {reason}.\nCheck the path.") from problem
    if max(size, len(content)) > LARGEST_FILE:
        raise TextError(
            f"{file} has {max(size, len(content)):,} bytes; files above {LARGEST_FILE:,} are refused.\n"
            "Give a part of it."
        )
    if not content:
        raise TextError(f"{file} is empty.")
    return content


def read_text(file: str | Path) -> str:
    """Read a UTF-8 file, or say what is wrong with it and where."""
    content = read_bytes(file)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise TextError(
            f"{file} is not UTF-8: byte 0x{content[problem.start]:02x} at place {problem.start} does not fit.\n"
            f"If it is Latin-1, convert it: iconv -f latin1 -t utf8 {Path(file).name}"
        ) from problem


def encode(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[str]]:
    """Give ids and tokens of a text, and raise TextError rather than drop anything.

    >>> encode(from_vocabulary({"the": 0, "cat": 1}), "the cat")
    ([0, 1], ['the', 'cat'])
    >>> encode(from_vocabulary({"the": 0}), "the dog")
    Traceback (most recent call last):
    whatwhere.errors.TextError: the tokenizer does not know 'dog' and has no unknown token.
    Add the word to the vocabulary, or name a word for all unknown ones: unknown="[UNK]".
    """
    _require_text(text)
    try:
        encoded = tokenizer.encode(text)
    except Exception as problem:
        word = _first_unknown(tokenizer, text)
        if word is None:
            raise TextError(f"the tokenizer refuses this text: {problem}.") from None
        raise TextError(
            f"the tokenizer does not know {word!r} and has no unknown token.\n"
            'Add the word to the vocabulary, or name a word for all unknown ones: unknown="[UNK]".'
        ) from None
    if not encoded.ids:
        raise TextError(f"the tokenizer makes no token of {text!r}.")
    lost = _first_lost(text, encoded.offsets)
    if lost is not None:
        raise TextError(
            f"the tokenizer has no token for {text[lost]!r} at place {lost} and would leave it out.\n"
            "Give a tokenizer that knows it, or that has an unknown token."
        )
    return encoded.ids, encoded.tokens


def words(text: str, lowercase: bool = False) -> Tokenizer:
    """Make a word tokenizer of one text alone, ids in order of first appearance, as tutorials do by hand.

    >>> words("The cat sat on the mat.").encode("The cat sat on the mat.").ids
    [0, 1, 2, 3, 4, 5, 6]
    """
    _require_text(text)
    # The library's own rule: Python lowers a final sigma otherwise.
    shown = normalizers.Lowercase().normalize_str(text) if lowercase else text
    tokens = [token for token, _ in _split("word").pre_tokenize_str(shown)]
    return from_vocabulary({token: n for n, token in enumerate(dict.fromkeys(tokens))}, lowercase=lowercase)


def _train_bytes(kind: Kind, corpus: list[str], vocab_size: int, lowercase: bool) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if kind == "byte":
        tokenizer = Tokenizer(models.BPE({sign: byte for byte, sign in enumerate(_byte_signs())}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
        _normalize(tokenizer, lowercase)
        tokenizer.train_from_iterator(corpus, trainer)
    _normalize(tokenizer, lowercase)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _byte_signs() -> list[str]:
    """Give the printable sign that stands for each byte in GPT-2's alphabet: itself, or one from 256 upward."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _split(kind: Kind) -> pre_tokenizers.PreTokenizer:
    if kind == "character":
        return pre_tokenizers.Split(Regex("[\\s\\S]"), behavior="isolated")
    return pre_tokenizers.Whitespace()  # words, and runs of signs; white space alone is left out


def _normalize(tokenizer: Tokenizer, lowercase: bool) -> None:
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()


def _require_text(text: str) -> None:
    if not text.strip():
        raise TextError("the text is empty: there is nothing to encode.")
    _require_unicode(text)


def _require_unicode(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise TextError(
            f"the text has half a character, {text[problem.start]!r}, at place {problem.start}: it was read in a wrong "
            "encoding.\nRead the file as UTF-8."
        ) from None


def _first_lost(text: str, spans: Sequence[tuple[int, int]]) -> int | None:
    """Find the first sign that no token covers; white space, and controls that tokenizers clean away, may go."""
    covered = bytearray(len(text))
    for start, end in spans:
        covered[start:end] = b"\1" * (end - start)
    for place, sign in enumerate(text):
        if not covered[place] and not sign.isspace() and category(sign)[0] != "C":
            return place
    return None


def _first_unknown(tokenizer: Tokenizer, text: str) -> str | None:
    shown = text if tokenizer.normalizer is None else tokenizer.normalizer.normalize_str(text)
    if tokenizer.pre_tokenizer is None:
        return None
    parts = [part for part, _ in tokenizer.pre_tokenizer.pre_tokenize_str(shown)]
    return next((part for part in parts if tokenizer.token_to_id(part) is None), None)
