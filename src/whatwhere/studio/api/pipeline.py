"""The pipeline: a text on its way through the input layer, every step with its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.models.model_text import encode_text, looks_up, no_reader, reader_of, token_rows
from whatwhere.report.section import Section, Table
from whatwhere.report.text import number
from whatwhere.studio.api import ask
from whatwhere.studio.api.settings import MOST_FEATURES, ExportedView, flag, known, one_of, scheme, text, whole
from whatwhere.studio.schemes import DEFAULT_DIM, DoorScheme, default_scheme, factor_of, of_first_runs, token_tensor
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from whatwhere.where.binding import Where

MAX_TOKENS = 48
"""More would be too small to read."""
TOKENS = ("words", "loaded")
SENTENCE = "The cat sat on the mat."
_FEW, _LONG = 6, 30
"""Tokens of a first text, where that sentence cannot be read, and characters that each stays below."""
_SETTINGS = ("text", "tokens", "scheme", "run", "dim", "heads", "head", "causal", "seed")
_LOOKED_UP = "there is no tokenizer.json: each word is looked up whole, where the model may write it as several tokens"
_EXPRESSION = "the text is an expression of the first tutorial, and has the ids of its tokenizer"
_SHOWN = 4
"""Features of a vector in the table of an exported page."""


@dataclass(frozen=True, eq=False)
class TextTokens:
    """The first tokens of a text.

    Args:
        count: number of tokens of the whole text.
        ids: of the tokens that are shown.
        words: the tokens, as the vocabulary writes them.
        texts: the text of each; None where its bytes are no text.
        kinds: the type of each: word, special, number ...
    """

    count: int
    ids: Int[np.ndarray, " tokens"]
    words: Sequence[str]
    texts: Sequence[str | None]
    kinds: Sequence[str]


@dataclass(frozen=True, eq=False)
class RotaryPairs:
    """The pairs of features that are rotated.

    Args:
        first, second: the features of each pair.
        frequencies: radians per position.
    """

    first: Int[np.ndarray, " pairs"]
    second: Int[np.ndarray, " pairs"]
    frequencies: Float[np.ndarray, " pairs"]


@dataclass(frozen=True, eq=False)
class TextWalkthrough(TextTokens):
    """Each step of a text from tokens to attention scores.

    Args:
        tensor: name of the token table; None where its rows are random.
        factor: by which the model multiplies the rows.
        title: of the positional encoding.
        doors: its schemes.
        notes: sentences on what differs from the model.
        dim, num_heads, head_dim: of the layer.
        rows: the row of each token, times the factor.
        position_rows: the vector added at each position; None without an input encoding.
        vectors: their sum, the input of the first block.
        angles: by which queries and keys are rotated, in radians; None without a rotary.
        head: of the numbers that follow.
        scale: the softmax scale.
        causal: whether later keys are masked.
        q: the query of each token, which is its key too.
        mapped_q, mapped_k: as the scheme of queries and keys maps them.
        products: dot products of queries and keys before that, times the scale.
        mapped_products: the same after it.
        bias: added to the scores; None without a score scheme.
        scores: the attention scores.
        pairs: of features that are rotated; None without a rotary.
        seed: of random numbers.
        python: lines that build the encoding as `where`; PATH is the path of what is open.
    """

    tensor: str | None
    factor: float
    title: str
    doors: Sequence[DoorScheme]
    notes: Sequence[str]
    dim: int
    num_heads: int
    head_dim: int
    rows: Float[np.ndarray, "tokens dim"]
    position_rows: Float[np.ndarray, "tokens dim"] | None
    vectors: Float[np.ndarray, "tokens dim"]
    angles: Float[np.ndarray, "tokens pairs"] | None
    head: int
    scale: float
    causal: bool
    q: Float[np.ndarray, "tokens head_dim"]
    mapped_q: Float[np.ndarray, "tokens mapped_dim"]
    mapped_k: Float[np.ndarray, "tokens mapped_dim"]
    products: Float[np.ndarray, "tokens tokens"]
    mapped_products: Float[np.ndarray, "tokens tokens"]
    bias: Float[np.ndarray, "tokens tokens"] | None
    scores: Float[np.ndarray, "tokens tokens"]
    pairs: RotaryPairs | None
    seed: int
    python: str


def begin(session: Session) -> dict[str, str | int | bool]:
    """Return the settings that the view begins with."""
    loaded = session.kind != "fresh" and bool(session.tables)
    return {
        "text": _first_text(session) if loaded else SENTENCE,
        "tokens": "loaded" if loaded else "words",
        "scheme": default_scheme(session, "sinusoidal+rotary+alibi", for_odd="learned+alibi"),
        "dim": 0 if loaded else DEFAULT_DIM,
        "heads": 0 if loaded else 2,
        "head": 0,
        "causal": _is_causal(session),
        "seed": 0,
    }


def _is_causal(session: Session) -> bool:
    """Return whether the model's queries attend to earlier keys only; of a model of two parts, the decoder's."""
    config = session.checkpoint.config
    if config is None or session.kind != "checkpoint":
        return True
    try:
        return session.checkpoint.description.causal
    except WhatWhereError:  # a model type that is not known, or a configuration that is refused
        architectures = config.get("architectures")
        names = architectures if isinstance(architectures, list) else []
        return not any(str(name).endswith("ForMaskedLM") for name in names)


def _first_text(session: Session) -> str:
    """Return a text that what is open can read."""
    if session.runs and (first := ask.begin(session)["text"]):
        return first
    reader = _tokenizer(session)
    if reader is None:
        return " ".join(map(str, session.table().ids[:_FEW].tolist()))  # rows that hold numbers
    if not looks_up(session.checkpoint):
        return SENTENCE
    words = [word if _has(reader, word) else word.lower() for word in SENTENCE.replace(".", " .").split()]
    words = [word for word in words if _has(reader, word)]
    if not any(word.isalnum() for word in words):
        texts = (each.strip() for each in session.texts if isinstance(each, str) and len(each) < _LONG)
        words = list(islice((each for each in texts if each.isalnum() and _has(reader, each)), _FEW))
    return " ".join(words).replace(" .", ".") or SENTENCE


def _has(reader: "Tokenizer", word: str) -> bool:
    return reader.token_to_id(word) is not None


def exported(session: Session) -> ExportedView | None:
    """Return the first text with all its steps, for an exported page."""
    first = begin(session)
    try:
        steps = walk(session, first)
    except WhatWhereError:
        return None
    reading = {name: first[name] for name in ("text", "tokens")}
    walks = (("pipeline.walk", each) for each in of_first_runs(session, first))
    queries = [("schemes.list", {}), ("pipeline.read", reading), *walks]
    vectors = [", ".join(number(float(value)) for value in row[:_SHOWN]) + ", ..." for row in steps.vectors]
    cells = zip(map(str, range(len(steps.ids))), steps.words, map(str, steps.ids.tolist()), vectors, strict=True)
    table = Table(str(first["text"]), ("position", "token", "id", "vector"), [*cells], numeric=(0, 2))
    return ExportedView("Pipeline", queries, sections=[Section("pipeline", "A text and its vectors", [table])])


def walk(session: Session, settings: Mapping[str, Any]) -> TextWalkthrough:
    """Follow a text from tokens to scores, in the loaded model or in a layer with random parameters.

    Args:
        settings: text; tokens ("loaded" or "words", which numbers the words of the text itself); scheme ("model", a
            run, or a name of the catalogue); run, whose token table goes with a scheme of the catalogue; dim, heads (0
            takes those of the open model); head; causal; seed.
    """
    known(settings, *_SETTINGS)
    loaded = one_of(settings, "tokens", TOKENS) == "loaded"
    name, seed = text(settings, "scheme"), whole(settings, "seed", 0, 0, 1 << 31)
    causal = flag(settings, "causal", True)
    all_ids, all_words = _read(session, text(settings, "text"), loaded)
    from whatwhere.analysis.walkthrough import attention_scores, follow, random_embedding
    from whatwhere.what.expressions import is_expression

    tensor = token_tensor(session, name, text(settings, "run", "")) if loaded else None
    width = None if tensor is None else session.checkpoint.entry(tensor).shape[1]
    count = min(len(all_ids), MAX_TOKENS)
    shown = scheme(session, settings, count, width or whole(settings, "dim", 0, 0, MOST_FEATURES) or DEFAULT_DIM)
    count = min(count, shown.max_length or count)
    ids, words = all_ids[:count], all_words[:count]
    table = (
        random_embedding(max(all_ids) + 1, shown.dim, seed)
        if tensor is None
        else token_rows(session.checkpoint, tensor, ids, factor_of(session))
    )
    steps = follow(table, shown.where, ids if tensor is None else range(count), ids, tokens=words, scheme=name)
    scores = attention_scores(steps.vectors, shown.where, shown.num_heads, shown.head_dim, causal=causal)
    head = whole(settings, "head", 0, 0, shown.num_heads - 1)
    recognized = not loaded and is_expression(text(settings, "text"))
    looked_up = loaded and looks_up(session.checkpoint) and session.marking != "plain"
    return TextWalkthrough(
        **vars(_tokens(session, ids, words, loaded, len(all_ids))),
        tensor=tensor,
        factor=factor_of(session) if loaded else 1.0,
        title=shown.title,
        doors=shown.doors(),
        notes=[*shown.notes, *([_LOOKED_UP] if looked_up else []), *([_EXPRESSION] if recognized else [])],
        dim=shown.dim,
        num_heads=shown.num_heads,
        head_dim=shown.head_dim,
        rows=_array(steps.rows),
        position_rows=None if steps.position_rows is None else _array(steps.position_rows),
        vectors=_array(steps.vectors),
        angles=None if steps.angles is None else _array(steps.angles),
        head=head,
        scale=scores.scale,
        causal=scores.causal,
        q=_array(scores.q[head]),
        mapped_q=_array(scores.mapped_q[head]),
        mapped_k=_array(scores.mapped_k[head]),
        products=_array(scores.products[head]),
        mapped_products=_array(scores.mapped_products[head]),
        bias=None if scores.bias is None else _array(scores.bias[head]),
        scores=_array(scores.scores[head]),
        pairs=_pairs(shown.where),
        seed=seed,
        python=shown.python,
    )


def read(session: Session, settings: Mapping[str, Any]) -> TextTokens:
    """Split a text into tokens and number them: this needs no vector, and is there at once.

    Args:
        session: what is open.
        settings: text; tokens ("loaded" or "words").
    """
    known(settings, "text", "tokens")
    loaded = one_of(settings, "tokens", TOKENS) == "loaded"
    ids, words = _read(session, text(settings, "text"), loaded)
    return _tokens(session, ids[:MAX_TOKENS], words[:MAX_TOKENS], loaded, len(ids))


def _read(session: Session, written: str, loaded: bool) -> tuple[list[int], list[str]]:
    from whatwhere.what.expressions import tokenizer_of
    from whatwhere.what.text import encode

    if not loaded:
        return encode(tokenizer_of(written)[0], written)
    tokenizer = _tokenizer(session)
    return _numbers(session, written) if tokenizer is None else encode_text(session.checkpoint, tokenizer, written)


def _pairs(where: "Where") -> RotaryPairs | None:
    from whatwhere.analysis.walkthrough import rotary_pairs

    pairs = rotary_pairs(where.query_key)
    if pairs is None:
        return None
    rotary: Any = where.query_key
    return RotaryPairs(pairs[0].numpy(), pairs[1].numpy(), rotary.inverse_frequencies.numpy())


def _tokens(session: Session, ids: Sequence[int], words: list[str], loaded: bool, count: int) -> TextTokens:
    known_ids = range(len(session.texts) if loaded else 0)
    meant = [session.texts[n] if n in known_ids else word for n, word in zip(ids, words, strict=True)]
    return TextTokens(
        count=count,
        ids=np.array(ids),
        words=words,
        texts=[each if isinstance(each, str) else None for each in meant],
        kinds=[session.kinds[n] if n in known_ids else "word" for n in ids],
    )


def _tokenizer(session: Session) -> "Tokenizer | None":
    """Return what reads a text: the file's own, else one of its vocabulary; None where ids must be given."""
    return session.once("reader", lambda: reader_of(session.checkpoint))


def _numbers(session: Session, written: str) -> tuple[list[int], list[str]]:
    """Read token ids, for files without a vocabulary."""
    parts = written.replace(",", " ").split()
    if not parts or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise SettingError(
            f"{no_reader(session.checkpoint)}.\n"
            'Give ids instead, as in "105 6587", or take the words of the text with fresh vectors.'
        )
    return [int(part) for part in parts], [f"#{int(part)}" for part in parts]


def _array(values: Any) -> np.ndarray:
    return np.asarray(values.detach().float().numpy())
