"""The pipeline: a text on its way through the input layer, every step with its numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.models.model_text import encode_text, looks_up, no_reader, reader_of, token_rows
from whatwhere.report.section import Section
from whatwhere.report.text import number
from whatwhere.studio.api import ask
from whatwhere.studio.api.settings import ExportedView, Features, Heads, Seed, columns, query
from whatwhere.studio.api.tokens import FirstTokens
from whatwhere.studio.schemes import (
    DEFAULT_DIM,
    SchemeSummary,
    default_scheme,
    factor_of,
    of_first_runs,
    scheme_of,
    token_tensor,
)
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from whatwhere.where.binding import Where

MAX_TOKENS = 48  # more would be too small to read
Tokens = Literal["words", "loaded"]
SENTENCE = "The cat sat on the mat."
_FEW, _LONG = 6, 30  # tokens of a first text, where that sentence cannot be read, and characters that each stays below
_LOOKED_UP = "there is no tokenizer.json: each word is looked up whole, where the model may write it as several tokens"
_EXPRESSION = "the text is an expression of the first tutorial, and has the ids of its tokenizer"
_LAYER = """results = ww.comparison.read_results(PATH)
run = next(run for run in results.runs if run.file == {!r})
block = ww.comparison.load_model(results, run).blocks[0]
x, projections = block.norm_attention(x).detach(), block.qkv.weight.chunk(3)[:2]"""
_SHOWN = 4  # features of a vector in the table of an exported page


@dataclass(frozen=True, eq=False)
class RotaryPairs:
    """The two features of each pair that is rotated, and its radians per position."""

    first: Int[np.ndarray, " pairs"]
    second: Int[np.ndarray, " pairs"]
    frequencies: Float[np.ndarray, " pairs"]


@dataclass(frozen=True, eq=False)
class TextWalkthrough(SchemeSummary, FirstTokens):
    """Each step of a text from tokens to the scores of one head, as in Walkthrough and AttentionScores."""

    tensor: str | None  # the token table; None where its rows are random
    factor: float  # by which the model multiplies them
    layer: str  # Python that makes of x what the first layer of a run projects, and by what; "" where q = k = x
    rows: Float[np.ndarray, "tokens dim"]
    position_rows: Float[np.ndarray, "tokens dim"] | None
    vectors: Float[np.ndarray, "tokens dim"]
    angles: Float[np.ndarray, "tokens pairs"] | None
    head: int
    scale: float
    causal: bool
    q: Float[np.ndarray, "tokens head_dim"]
    k: Float[np.ndarray, "tokens head_dim"]
    mapped_q: Float[np.ndarray, "tokens mapped_dim"]
    mapped_k: Float[np.ndarray, "tokens mapped_dim"]
    products: Float[np.ndarray, "tokens tokens"]
    mapped_products: Float[np.ndarray, "tokens tokens"]
    bias: Float[np.ndarray, "tokens tokens"] | None
    scores: Float[np.ndarray, "tokens tokens"]
    weights: Float[np.ndarray, "tokens tokens"]
    pairs: RotaryPairs | None
    seed: int


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
        "causal": is_causal(session),
        "seed": 0,
    }


def is_causal(session: Session) -> bool:
    """Return whether the model's queries attend to earlier keys only; of a model of two parts, the decoder's."""
    config, settings = session.checkpoint.config, session.checkpoint.metadata.get("settings")
    if config is None or session.kind != "checkpoint":
        return not (session.kind == "results" and isinstance(settings, dict) and settings.get("direction") == "encoder")
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
    known = reader.get_vocab(with_added_tokens=True)
    words = [word if word in known else word.lower() for word in SENTENCE.replace(".", " .").split()]
    words = [word for word in words if word in known]
    if not any(word.isalnum() for word in words):
        texts = (each.strip() for each in session.texts if isinstance(each, str) and len(each) < _LONG)
        words = list(islice((each for each in texts if each.isalnum() and each in known), _FEW))
    return " ".join(words).replace(" .", ".") or SENTENCE


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
    values = {"position": range(len(vectors)), "token": steps.words, "id": map(str, steps.ids), "vector": vectors}
    sections = [Section("pipeline", "A text and its vectors", [columns(str(first["text"]), values)])]
    return ExportedView(queries, sections=sections)


@query("pipeline.walk")
def walk(
    session: Session,
    *,
    text: str,
    tokens: Tokens = "words",  # of the text itself, numbered, with random rows
    scheme: str,  # "model", a run, or a name of the catalogue
    run: str = "",  # whose token table goes with a scheme of the catalogue
    dim: Features = 0,
    heads: Heads = 0,
    head: Annotated[int, 0, 1023] = 0,
    causal: bool = True,
    seed: Seed = 0,
) -> TextWalkthrough:
    """Follow a text from tokens to scores: in a run, in the loaded model, or in a layer with random parameters."""
    loaded = tokens == "loaded"
    all_ids, all_words = _read(session, text, loaded)
    from whatwhere.analysis.walkthrough import attention_scores, follow, random_embedding
    from whatwhere.what.expressions import is_expression

    tensor = token_tensor(session, scheme, run) if loaded else None
    dim = session.checkpoint.entry(tensor).shape[1] if tensor else dim or DEFAULT_DIM
    count = min(len(all_ids), MAX_TOKENS)
    shown = scheme_of(session, scheme, dim=dim, num_heads=heads, max_length=count, seed=seed)
    count = min(count, shown.max_length or count)
    ids, words = all_ids[:count], all_words[:count]
    rows: Sequence[int]
    table: Any
    if tensor is None:
        table, rows = random_embedding(max(all_ids) + 1, shown.dim, seed), ids
    else:
        table, rows = token_rows(session.checkpoint, tensor, ids, factor_of(session)), range(count)
    steps = follow(table, shown.where, rows, ids, tokens=words, scheme=scheme)
    x, projections = _first_layer(session, scheme, steps.vectors) if loaded else (steps.vectors, None)
    scores = attention_scores(x, shown.where, shown.num_heads, shown.head_dim, causal=causal, projections=projections)
    if head >= shown.num_heads:
        raise SettingError(f"head must be a whole number from 0 to {shown.num_heads - 1}, but is {head}.")
    notes = list(shown.notes)
    if loaded and looks_up(session.checkpoint) and session.marking != "plain":
        notes.append(_LOOKED_UP)
    if not loaded and is_expression(text):
        notes.append(_EXPRESSION)
    of_head = {
        name: None if each is None else each[head]
        for name, each in vars(scores).items()
        if name not in ("scale", "causal")
    }
    return TextWalkthrough(
        **vars(_tokens(session, ids, words, loaded, len(all_ids))),
        tensor=tensor,
        factor=factor_of(session) if loaded else 1.0,
        layer="" if projections is None else _LAYER.format(f"models/{scheme}.safetensors"),
        **shown.summary() | {"notes": notes},
        rows=_array(steps.rows),
        position_rows=_array(steps.position_rows),
        vectors=_array(steps.vectors),
        angles=_array(steps.angles),
        head=head,
        scale=scores.scale,
        causal=scores.causal,
        **{name: _array(each) for name, each in of_head.items()},
        pairs=_pairs(shown.where),
        seed=seed,
    )


def _first_layer(session: Session, scheme: str, vectors: "Tensor") -> "tuple[Tensor, tuple[Tensor, Tensor] | None]":
    """Return what the first layer of a run projects, behind its norm, and W_Q and W_K; else the vectors alone."""
    from torch import from_numpy
    from torch.nn.functional import layer_norm

    names = [f"{scheme}/blocks.0.{name}" for name in ("norm_attention.weight", "norm_attention.bias", "qkv.weight")]
    if not session.checkpoint.tensors.keys() >= {*names}:  # not a run, or a model of the user's own
        return vectors, None
    weight, bias, qkv = (from_numpy(session.checkpoint.array(name)) for name in names)
    query, key, _ = qkv.chunk(3)
    return layer_norm(vectors, weight.shape, weight, bias), (query, key)


@query("pipeline.read")
def read(session: Session, *, text: str, tokens: Tokens = "words") -> FirstTokens:
    """Split a text into tokens and number them: this needs no vector, and is there at once."""
    loaded = tokens == "loaded"
    ids, words = _read(session, text, loaded)
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


def _tokens(session: Session, ids: Sequence[int], words: list[str], loaded: bool, count: int) -> FirstTokens:
    known_ids = range(len(session.texts) if loaded else 0)
    meant = [session.texts[n] if n in known_ids else word for n, word in zip(ids, words, strict=True)]
    return FirstTokens(
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


def _array(values: Any) -> Any:
    return None if values is None else values.detach().float().numpy()
