"""The pipeline: a text on its way through the input layer, every step with its numbers."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from whatwhere.errors import SettingError, TextError, TokenError, WhatWhereError
from whatwhere.studio.api.settings import MOST_FEATURES, flag, known, one_of, scheme, text, whole
from whatwhere.studio.api.static_tables import ExportedView, Sheet
from whatwhere.studio.schemes import DEFAULT_DIM, ShownScheme, default_scheme, token_factor, token_tensor
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from whatwhere.analysis.walkthrough import AttentionScores, Walkthrough

MOST_TOKENS = 48
"""More would be too small to read."""
TOKENS = ("words", "loaded")
SENTENCE = "The cat sat on the mat."
_FEW, _LONG = 6, 30
"""Tokens of a first text, where that sentence cannot be read, and characters that each stays below."""
_SETTINGS = ("text", "tokens", "scheme", "dim", "heads", "head", "causal", "seed")
_LOOKED_UP = "there is no tokenizer.json: each word is looked up whole, where the model may write it as several tokens"


def begin(session: Session) -> dict[str, Any]:
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
    if "Max" in session.words[:20]:
        return "Max(1,6,First(2,9))"
    reader = _tokenizer(session)
    if reader is None:
        return " ".join(map(str, session.table().ids[:_FEW].tolist()))  # rows that hold numbers
    if not _looks_up(session):
        return SENTENCE
    asked_words = SENTENCE.replace(".", " .").split()
    there = [word if _has(reader, word) else word.lower() for word in asked_words]
    there = [word for word in there if _has(reader, word)]
    if not any(word.isalnum() for word in there):
        meant = (each.strip() for each in session.texts if isinstance(each, str) and len(each) < _LONG)
        there = list(islice((each for each in meant if each.isalnum() and _has(reader, each)), _FEW))
    return " ".join(there).replace(" .", ".") or SENTENCE


def _has(reader: "Tokenizer", word: str) -> bool:
    return reader.token_to_id(word) is not None


def exported(session: Session) -> ExportedView | None:
    """Leave the first text on an exported page, with all its steps."""
    asked_first = begin(session)
    try:
        found = walk(session, asked_first)
    except WhatWhereError:
        return None
    reading = {name: asked_first[name] for name in ("text", "tokens")}
    vectors = [", ".join(f"{value:.4g}" for value in row[:4]) + ", ..." for row in found["vectors"]]
    ids = [str(number) for number in found["ids"]]
    cells = list(zip(map(str, range(len(ids))), found["words"], ids, vectors, strict=True))
    sheet = Sheet(str(asked_first["text"]), ("position", "token", "id", "vector"), cells)
    return ExportedView(
        "Pipeline", [("schemes.list", {}), ("pipeline.read", reading), ("pipeline.walk", asked_first)], [sheet]
    )


def walk(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Follow a text from tokens to scores, in the loaded model or in a layer that nothing has trained.

    Args:
        settings: text; tokens ("loaded" or "words", which numbers the words of the text itself); scheme ("model", a
            run, or a name of the catalogue); dim, heads (0 takes what goes with the session); head; causal; seed.
    """
    known(settings, *_SETTINGS)
    loaded = one_of(settings, "tokens", TOKENS) == "loaded"
    name, seed = text(settings, "scheme"), whole(settings, "seed", 0, 0, 1 << 31)
    causal = flag(settings, "causal", True)
    all_ids, all_words = _read(session, text(settings, "text"), loaded)
    from whatwhere.analysis.walkthrough import attention_scores, follow, random_embedding

    tensor = token_tensor(session, name) if loaded else None
    width = None if tensor is None else session.checkpoint.entry(tensor).shape[1]
    most = min(len(all_ids), MOST_TOKENS)
    dim = width or whole(settings, "dim", 0, 0, MOST_FEATURES) or DEFAULT_DIM
    here = scheme(session, settings, most, dim)
    most = min(most, here.max_length or most)
    ids, words = all_ids[:most], all_words[:most]
    table = random_embedding(max(all_ids) + 1, here.dim, seed) if tensor is None else _table(session, tensor, ids)
    found = follow(table, here.where, ids if tensor is None else range(most), ids, tokens=words, scheme=name)
    met = attention_scores(found.vectors, here.where, here.num_heads, here.head_dim, causal=causal)
    return {
        **labels(session, ids, words, loaded),
        "tensor": tensor,
        "factor": token_factor(session) if loaded else 1.0,
        **_told(here, _LOOKED_UP if loaded and _looks_up(session) and session.marking != "plain" else None),
        **_followed(found),
        **_meeting(met, whole(settings, "head", 0, 0, here.num_heads - 1)),
        "pairs": _pairs(here),
        "seed": seed,
        "python": here.python,
    }


def read(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Split a text into tokens and number them: what needs no vector, and so is there at once.

    Args:
        settings: text; tokens ("loaded" or "words").
    """
    known(settings, "text", "tokens")
    loaded = one_of(settings, "tokens", TOKENS) == "loaded"
    ids, words = _read(session, text(settings, "text"), loaded)
    return {"count": len(ids), **labels(session, ids[:MOST_TOKENS], words[:MOST_TOKENS], loaded)}


def _read(session: Session, written: str, loaded: bool) -> tuple[list[int], list[str]]:
    from whatwhere.what import text as texts

    tokenizer = _tokenizer(session) if loaded else texts.words(written)
    if tokenizer is None:
        return _numbers(written)
    if not (loaded and _looks_up(session)):
        return texts.encode(tokenizer, written)
    try:
        ids, _ = texts.encode(tokenizer, written)
    except TextError as problem:
        raise TextError(
            f"{str(problem).splitlines()[0]}\nThere is no tokenizer.json beside the table, so whole words are looked "
            "up in its vocabulary. Take others, or the words of the text with fresh vectors."
        ) from None
    return ids, [session.words[n] for n in ids]


def _told(here: ShownScheme, also: str | None) -> dict[str, Any]:
    return {
        "title": here.title,
        "doors": here.doors(),
        "notes": [*here.notes, *filter(None, [also])],
        "dim": here.dim,
        "num_heads": here.num_heads,
        "head_dim": here.head_dim,
    }


def _followed(found: "Walkthrough") -> dict[str, Any]:
    return {
        name: None if (values := getattr(found, name)) is None else _array(values)
        for name in ("rows", "position_rows", "vectors", "angles")
    }


def _meeting(met: "AttentionScores", head: int) -> dict[str, Any]:
    return {
        "head": head,
        "scale": met.scale,
        "causal": met.causal,
        "q": _array(met.q[head]),
        "mapped_q": _array(met.mapped_q[head]),
        "mapped_k": _array(met.mapped_k[head]),
        "products": _array(met.products[head]),
        "mapped_products": _array(met.mapped_products[head]),
        "bias": None if met.bias is None else _array(met.bias[head]),
        "scores": _array(met.scores[head]),
    }


def _pairs(here: ShownScheme) -> dict[str, Any] | None:
    from whatwhere.analysis.walkthrough import rotary_pairs

    pairs = rotary_pairs(here.where.query_key)
    if pairs is None:
        return None
    speeds: Any = here.where.query_key
    first, second = (part.numpy() for part in pairs)
    return {"first": first, "second": second, "frequencies": speeds.inverse_frequencies.numpy()}


def labels(session: Session, ids: Sequence[int], words: list[str], loaded: bool) -> dict[str, Any]:
    """Return what a reader is shown of the tokens of a text."""
    there = range(len(session.texts) if loaded else 0)
    meant = [session.texts[n] if n in there else word for n, word in zip(ids, words, strict=True)]
    return {
        "ids": np.array(ids),
        "words": words,
        "texts": [each if isinstance(each, str) else None for each in meant],
        "kinds": [session.kinds[n] if n in there else "word" for n in ids],
    }


def _table(session: Session, tensor: str, ids: Sequence[int]) -> Any:
    """Read the rows of some tokens, as a table that multiplies them as the model does."""
    import torch

    from whatwhere.what.embedding import TokenEmbedding

    entry = session.checkpoint.entry(tensor)
    if (largest := max(ids)) >= entry.shape[0]:
        raise TokenError(f"id {largest} lies outside the table, which has {entry.shape[0]:,} rows.")
    rows = np.asarray(session.checkpoint.array(tensor, rows=list(ids)), np.float32)
    table = TokenEmbedding(len(rows), entry.shape[1], scale=token_factor(session), device="meta")
    table.weight = torch.nn.Parameter(torch.from_numpy(rows.copy()), requires_grad=False)
    return table


def _tokenizer(session: Session) -> "Tokenizer | None":
    """Return what reads a text: the file's own, else one of its vocabulary; None where ids must be given."""
    if session.tokenizer is not None or not session.words:
        return session.tokenizer
    return session.once("reader", lambda: _of_words(session.words, session.texts))


def _looks_up(session: Session) -> bool:
    """Return whether whole words are looked up in the vocabulary, for want of a tokenizer."""
    words = session.words
    return bool(words) and session.tokenizer is None and not _are_expressions(words) and not _are_bytes(words)


def _are_expressions(words: Sequence[str]) -> bool:
    if tuple(words[:2]) != ("[PAD]", "[EOS]"):  # before anything is imported: the comparison brings torch with it
        return False
    from whatwhere.comparison.tasks import EXPRESSION_TOKENS

    return tuple(words) == EXPRESSION_TOKENS


def _are_bytes(words: Sequence[str]) -> bool:
    return len(words) == 256 and words[0] == "0x00"  # those of a comparison on text


def _of_words(words: Sequence[str], meant: Sequence[str | bytes]) -> "Tokenizer":
    from whatwhere.what import text as texts

    if _are_expressions(words):
        from whatwhere.comparison.tasks import expression_tokenizer

        return expression_tokenizer()
    if _are_bytes(words):
        return texts.train("byte", "a")
    numbered = {word: n for n, word in reversed(list(enumerate(words))) if word}
    for n, each in reversed(list(enumerate(meant))):
        # "▁cat" is how a text begins the word cat; "cat" goes on with another.
        if isinstance(each, str) and each[:1] == " " and each[1:].isalnum() and numbered.get(words[n]) == n:
            numbered[each[1:]] = numbered.pop(words[n])
    lower = all(word == word.lower() for word in list(numbered)[:1000])
    return texts.from_vocabulary(numbered, lowercase=lower and all(word == word.lower() for word in numbered))


def _numbers(written: str) -> tuple[list[int], list[str]]:
    """Read ids, where nothing says which token is which."""
    parts = written.replace(",", " ").split()
    if not parts or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise SettingError(
            "this file names no tokens, so a text cannot be read.\n"
            'Give ids instead, as in "105 6587", or take the words of the text with fresh vectors.'
        )
    return [int(part) for part in parts], [f"#{int(part)}" for part in parts]


def _array(values: Any) -> np.ndarray:
    return np.asarray(values.detach().float().numpy())
