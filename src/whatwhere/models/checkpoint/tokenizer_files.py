"""Files of a tokenizer: its tokens by id, and the tokenizer itself, also of files older than tokenizer.json."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import NO_TOKENIZER
from whatwhere.models.checkpoint.files import File, is_whole_number, parse_json, read_json
from whatwhere.models.configuration.keys import Json

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

TOKENIZER = "tokenizer.json"
MAX_TOKENIZER_BYTES = 200_000_000
_MAX_UNUSED_IDS = 1 << 16
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Lone surrogates, which JSON can express and UTF-8 cannot."""

_BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_ROBERTA = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"}
_END = "<|endoftext|>"
_KINDS: Mapping[str, tuple[Mapping[str, str], str, str]] = {
    "gpt2": (
        {"bos": _END, "eos": _END, "unk": _END},
        "GPT2 CodeGen",
        "gpt2 gpt_neo gptj opt codegen phi blip-2 instructblip",
    ),
    "roberta": (
        _ROBERTA,
        "Roberta Bart Longformer LED",
        "roberta roberta-prelayernorm bart longformer led ibert lilt data2vec-text mega mra bridgetower clap",
    ),
    "deberta": ({"bos": "[CLS]", "eos": "[SEP]", **_BERT}, "Deberta", "deberta"),
    "clip": (
        {"bos": "<|startoftext|>", "eos": _END, "unk": _END, "pad": _END},
        "CLIP",
        "clip clipseg groupvit owlvit owlv2 xclip oneformer omdet-turbo",
    ),
    "bert": (
        _BERT,
        "Bert DistilBert Electra MobileBert SqueezeBert ConvBert Lxmert LayoutLM RetriBert DPRQuestionEncoder "
        "DPRContextEncoder DPRReader",
        "bert distilbert electra mobilebert squeezebert convbert lxmert layoutlm retribert dpr align bark blip bros "
        "chinese_clip ernie flava git megatron-bert nezha nomic_bert qdqbert realm tvp vilt visual_bert",
    ),
    "mpnet": ({**_ROBERTA, "unk": "[UNK]"}, "MPNet", "mpnet"),
}
"""Tokenizers that are built of older files: the special tokens that each has where no file names them; its classes of
transformers, without "Tokenizer" at the end; and its model types, where no file names the class."""
_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_WORDS_OF_CLIP = r"""<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
"""What CLIP takes for a word."""


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
    """Build the tokenizer of files older than tokenizer.json, or return why not."""
    names = [name for name in _READERS if (folder / name).is_file()]
    if not names:
        return NO_TOKENIZER
    settings, config = (_optional(folder / name) for name in ("tokenizer_config.json", "config.json"))
    kind = _kind(settings, config)
    if kind not in _KINDS:
        return f"{NO_TOKENIZER}, and {kind}, of {names[0]}, is not built here"
    needed = ("vocab.txt",) if kind in ("bert", "mpnet") else ("vocab.json", "merges.txt")
    if missing := [name for name in needed if not (folder / name).is_file()]:
        return f"{NO_TOKENIZER}, and no {missing[0]}"
    try:
        return _built(kind, folder, settings)
    except CheckpointError:
        raise
    except BaseException as problem:  # a panic in Rust is no Exception
        if isinstance(problem, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise _wrong(folder / needed[0], f"no tokenizer can be built of {' and '.join(needed)}: {problem}") from None


def _kind(settings: Json, config: Json) -> str:
    """Return the kind of a tokenizer, or what it is if it is not built here."""
    if isinstance(own := settings.get("auto_map"), list) or (isinstance(own, Mapping) and "AutoTokenizer" in own):
        return "a tokenizer with code of its own"
    stated = settings.get("tokenizer_class") or config.get("tokenizer_class")
    if stated is not None:
        name = str(stated).removesuffix("Fast").removesuffix("Tokenizer")
        return next((kind for kind, row in _KINDS.items() if name in row[1].split()), quoted(str(stated)))
    model_type = config.get("model_type")
    unknown = f"the tokenizer of the model type {quoted(str(model_type))}"
    return next((kind for kind, row in _KINDS.items() if model_type in row[2].split()), unknown)


def _built(kind: str, folder: Path, settings: Json) -> "Tokenizer | str":
    stated, added = _special_tokens(folder, settings)
    named = {name: stated.get(f"{name}_token", _KINDS[kind][0].get(name)) for name in _ROLES}
    text = {name: _content(token) for name, token in named.items() if token is not None}
    make = _wordpiece if kind in ("bert", "mpnet") else _byte_pairs
    tokenizer = make(kind, folder, settings, text.get("unk"))
    # A token that the class alone names is one where the vocabulary has it: the table has no row for another.
    own = [n for n in text if stated.get(f"{n}_token") or tokenizer.token_to_id(text[n]) is not None]
    extra = stated.get("extra_special_tokens") or stated.get("additional_special_tokens") or []
    special = [_marked(kind, name, named[name]) for name in own] + list(extra)
    texts = set(map(_content, special))
    # In this order those that the vocabulary lacks get their ids.
    every = {_content(token): _added(token, _content(token) in texts) for _, token in sorted(added.items())}
    for token in special:
        every.setdefault(_content(token), _added(token, True))
    tokenizer.add_tokens(list(every.values()))
    for number, token in added.items():
        if tokenizer.token_to_id(_content(token)) != number:
            return f"the added token {quoted(_content(token))} would not get its id, {number}"
    ends = ["bos", "eos"] if kind in ("gpt2", "clip") else ["cls", "sep"]
    used = [name for name in ends if kind != "gpt2" or settings.get(f"add_{name}_token")]
    if missing := [name for name in used if name not in own]:
        return f"the vocabulary lacks the {missing[0]}_token, which belongs around each text"
    first, last = ([(text[n], tokenizer.get_vocab()[text[n]])] if n in used else [] for n in ends)
    tokenizer.post_processor = _around(kind, settings, first, last)
    return tokenizer


def _wordpiece(kind: str, folder: Path, settings: Json, unknown: str | None) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    lines = _text(folder / "vocab.txt").removesuffix("\n").split("\n")
    vocabulary = {line.rstrip(): n for n, line in enumerate(lines)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown or "[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def _byte_pairs(kind: str, folder: Path, settings: Json, unknown: str | None) -> "Tokenizer":
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    lines = [line for line in _text(folder / "merges.txt").split("\n") if not line.startswith("#version")]
    merges = [(a, b) for a, _, b in (line.removesuffix("\r").partition(" ") for line in lines) if a]
    end = {"end_of_word_suffix": "</w>", "unk_token": unknown} if kind == "clip" else {}
    tokenizer = Tokenizer(models.BPE(dict(read_json(folder / "vocab.json", MAX_TOKENIZER_BYTES)), merges, **end))
    tokenizer.decoder = decoders.ByteLevel()
    if kind != "clip":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=settings.get("add_prefix_space", False))
        return tokenizer
    blanks = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), blanks, normalizers.Lowercase()])
    words = pre_tokenizers.Split(Regex(_WORDS_OF_CLIP), behavior="removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return tokenizer


def _around(kind: str, settings: Json, first: list[tuple[str, int]], last: list[tuple[str, int]]) -> Any:
    """Return what puts tokens around a text, and around two."""
    from tokenizers import processors

    if kind in ("roberta", "clip", "mpnet"):
        trim = settings.get("trim_offsets", True) if kind == "roberta" else kind == "mpnet"
        space = kind == "roberta" and settings.get("add_prefix_space", False)
        return processors.RobertaProcessing(last[0], first[0], trim, space)
    begin, end = ([text for text, _ in marks] for marks in (first, last))
    between = {"gpt2": [f"{text}:1" for text in begin], "deberta": end, "bert": []}[kind]
    behind = [f"{text}:{int(kind != 'deberta')}" for text in ("$B", *end)]
    single = [*begin, "$A", *end]
    pair = " ".join([*single, *between, *behind])
    return processors.TemplateProcessing(single=" ".join(single), pair=pair, special_tokens=[*first, *last])


def _marked(kind: str, name: str, token: Any) -> Any:
    """Return a special token with the flags that the class of MPNet gives those without any."""
    if kind != "mpnet" or isinstance(token, Mapping):
        return token
    return {"content": token, "normalized": True, "lstrip": name == "mask"}


def _special_tokens(folder: Path, settings: Json) -> tuple[Json, dict[int, Any]]:
    decoder = settings.get("added_tokens_decoder")
    if isinstance(decoder, Mapping):
        return settings, {int(number): token for number, token in decoder.items() if number.isdecimal()}
    added = {number: token for token, number in _optional(folder / "added_tokens.json").items()}
    return {**settings, **_optional(folder / "special_tokens_map.json")}, added


def _content(token: Any) -> str:
    return str(token.get("content", "") if isinstance(token, Mapping) else token)


def _added(token: Any, special: bool) -> "AddedToken":
    from tokenizers import AddedToken

    if not isinstance(token, Mapping):
        return AddedToken(token, special=special)
    flags = {name: bool(token[name]) for name in ("single_word", "lstrip", "rstrip", "normalized") if name in token}
    return AddedToken(token["content"], special=special or bool(token.get("special")), **flags)


def _optional(path: Path) -> Json:
    return read_json(path, MAX_TOKENIZER_BYTES) if path.is_file() else {}


def _text(path: Path) -> str:
    try:
        return _whole(path).decode("utf-8")
    except UnicodeDecodeError:
        raise _wrong(path, "it is not UTF-8") from None


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
    return _by_id(path, pairs, [(token.get("content"), token.get("id")) for token in added])


def _from_json(path: Path) -> list[str]:
    return _by_id(path, read_json(path, MAX_TOKENIZER_BYTES).items(), _added_beside(path))


def _from_text(path: Path) -> list[str]:
    """Read vocab.txt, as BERT has it: one token on each line; bytes that are not UTF-8 become U+FFFD."""
    lines = [line.rstrip(b"\r\n").decode("utf-8", "replace") for line in BytesIO(_whole(path))]
    return _by_id(path, [(line, n) for n, line in enumerate(lines)], _added_beside(path))


def _added_beside(path: Path) -> list[tuple[str, int]]:
    _, added = _special_tokens(path.parent, _optional(path.with_name("tokenizer_config.json")))
    return [(_content(token), number) for number, token in added.items()]


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


def _by_id(path: Path, *parts: Iterable[tuple[Any, Any]]) -> list[str]:
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
