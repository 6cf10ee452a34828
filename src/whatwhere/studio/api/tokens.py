"""The token card: what one token is, what its row is like, and which rows are near it."""

import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

from whatwhere.analysis.diagnostics import unreachable_among
from whatwhere.analysis.word_benchmarks import RULES, answers
from whatwhere.models.checkpoint.lookup import Table, find_token, word_of
from whatwhere.studio.api.about import analogy as usual_analogy
from whatwhere.studio.api.about import examples
from whatwhere.studio.api.settings import flag, known, one_of, text, whole
from whatwhere.studio.api.static_tables import ExportedView, Sheet
from whatwhere.studio.session import Session

MOST_NEIGHBORS, MOST_FOUND = 200, 200
MOST_ROWS = 20
"""Neighbors whose rows are sent: more than a picture shows."""
_MOST_BINS = 60


def find(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Find tokens by a part of their text: equal first, then those that begin so, then those that hold it.

    Args:
        settings: text, or #id; most (30).
    """
    known(settings, "text", "most")
    asked, most = text(settings, "text").strip(), whole(settings, "most", 30, 1, MOST_FOUND)
    folded = session.once("folded", lambda: [_bare(session, n) for n in range(len(session.words))])
    wanted = asked.casefold()
    rows = session.table().rows
    if asked.startswith("#") and asked[1:].isdigit() and len(asked) < 12:
        found = [n for n in [int(asked[1:])] if n < rows]
    elif not wanted:
        found = []
    else:
        inside = [n for n, word in enumerate(folded[:rows]) if wanted in word]
        found = sorted(inside, key=lambda n: _distance(session.words[n], folded[n], asked, n))
    shown = found[:most]
    return {"count": len(found), "ids": np.array(shown, np.int32), **labels(session, shown)}


def card(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Describe what a token is: its text, bytes, kind, whether a text leads to it, and how long its row is among all.

    Args:
        settings: token, as text or #id.
    """
    known(settings, "token")
    number = find_token(session.checkpoint, text(settings, "token"))
    meant = session.texts[number] if number < len(session.texts) else ""
    raw = meant.encode() if isinstance(meant, str) else meant
    characters = [] if isinstance(meant, bytes) else [_character(char) for char in meant[:64]]
    named = labels(session, [number])
    return {
        "id": number,
        "word": named["words"][0],
        "text": named["texts"][0],
        "kind": named["kinds"][0],
        "script": session.scripts[number] if number < len(session.scripts) else None,
        "bytes": np.frombuffer(raw[:256], np.uint8),
        "byte_count": len(raw),
        "characters": characters,
        "reachable": _reachable(session, number),
        "tables": {which: _row(session.table(which), session.norms(which), number) for which in session.tables},
    }


def neighbors(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nearest rows by cosine in the full space: of each table, as it is and less its mean row.

    Args:
        settings: token, as text or #id; k (10).
    """
    known(settings, "token", "k")
    number = find_token(session.checkpoint, text(settings, "token"))
    k = whole(settings, "k", 10, 1, MOST_NEIGHBORS)
    lists = []
    for which in session.tables:
        table = session.table(which)
        row = table.row(number)
        for centered in (False, True):
            search = session.search(which, centered)
            near = search.nearest(table.weight[row][None], k, without=[[row]])
            ids, rows = table.ids[near.ids[0]], near.ids[0]
            lists.append(
                {
                    "table": which,
                    "name": table.name,
                    "centered": centered,
                    "ids": ids,
                    "cosines": near.scores[0],
                    "norms": session.norms(which)[rows],
                    "rows": table.weight[[row, *rows[:MOST_ROWS]]].astype(np.float32),
                    **labels(session, ids.tolist()),
                }
            )
    return {"id": number, "word": word_of(session.words, number), "mean": _means(session), "lists": lists}


def analogy(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Complete `a is to b as c is to ...`, with the words of the question among the answers and without.

    Args:
        settings: a, b, c as text or #id; k (10); rule ("add" or "multiply"); centered.
    """
    known(settings, "a", "b", "c", "k", "rule", "centered")
    asked = [find_token(session.checkpoint, text(settings, name)) for name in "abc"]
    table, k = session.table(), whole(settings, "k", 10, 1, MOST_NEIGHBORS)
    rule = RULES[RULES.index(one_of(settings, "rule", RULES))]
    search = session.search("input", flag(settings, "centered"))
    question = np.array([[table.row(number) for number in asked]])
    found = {}
    for name, inputs in (("without", False), ("with", True)):
        near = answers(search, question, k, rule, inputs)
        ids = table.ids[near.ids[0]]
        found[name] = {"ids": ids, "scores": near.scores[0], **labels(session, ids.tolist())}
    return {"ids": np.array(asked), **labels(session, asked), **found}


def exported(session: Session) -> ExportedView | None:
    """Leave the cards of the examples on an exported page, and one analogy."""
    if not session.tables:
        return None
    asked: list[tuple[str, Mapping[str, Any]]] = []
    sheets = []
    sound = set(session.table().ids.tolist())
    for token in examples(session):
        number = find_token(session.checkpoint, token)
        if number not in sound:
            continue
        for said in (token, f"#{number}"):  # as it is typed, and as links say it
            asked += [("tokens.card", {"token": said}), ("tokens.neighbors", {"token": said, "k": 10})]
        near = neighbors(session, {"token": token, "k": 10})["lists"][0]
        rows = zip(near["words"], near["ids"], near["cosines"], near["norms"], strict=True)
        cells = [(word, str(each), f"{cosine:.4f}", f"{norm:.4g}") for word, each, cosine, norm in rows]
        sheets.append(Sheet(f"Nearest to {token}", ("token", "id", "cosine", "length"), cells))
    words = usual_analogy(session)
    if words and sound.issuperset(find_token(session.checkpoint, word) for word in words):
        named = dict(zip("abc", words, strict=True))
        asked.append(("tokens.analogy", {**named, "rule": "add", "centered": False, "k": 5}))
    return ExportedView("Token card", asked, sheets)


def _distance(word: str, bare: str, asked: str, number: int) -> tuple[bool, bool, bool, int, int]:
    """Order what holds a text: the word itself, its other spellings, what begins so; short ones first."""
    wanted = asked.casefold()
    return word != asked, bare != wanted, not bare.startswith(wanted), len(bare), number


def _bare(session: Session, number: int) -> str:
    meant = session.texts[number]
    return meant.strip().casefold() if isinstance(meant, str) else session.words[number].casefold()


def labels(session: Session, ids: list[int]) -> dict[str, Any]:
    """Return what a reader is shown of tokens: as the vocabulary writes them, and the text that is meant."""
    meant = [session.texts[n] if n < len(session.texts) else "" for n in ids]
    return {
        "words": [word_of(session.words, n) for n in ids],
        "texts": [each if isinstance(each, str) else None for each in meant],
        "kinds": [session.kinds[n] if n < len(session.kinds) else "no token" for n in ids],
    }


def _character(char: str) -> dict[str, str]:
    return {
        "code": f"U+{ord(char):04X}",
        "name": unicodedata.name(char, "no name"),
        "category": unicodedata.category(char),
    }


def _reachable(session: Session, number: int) -> bool | None:
    tokenizer = session.tokenizer
    if tokenizer is None or tokenizer.id_to_token(number) is None:
        return None
    return not len(unreachable_among(tokenizer, [number]))


def _row(table: Table, norms: np.ndarray, number: int) -> dict[str, Any]:
    """Describe how long a row is among all, with the histogram of lengths that it stands in."""
    here: dict[str, Any] = {"name": table.name, "dtype": table.dtype, "rows": table.rows, "broken": False}
    bins = min(_MOST_BINS, int(np.ceil(2 * len(norms) ** (1 / 3))))  # Rice's rule: few tokens make no comb
    counts, edges = np.histogram(norms, bins)
    here |= {"counts": counts, "edges": edges, "median": float(np.median(norms))}
    if number in table.broken:
        return here | {"broken": True, "norm": None, "percentile": None, "row": None}
    row = table.row(number)
    below = np.count_nonzero(norms < norms[row]) / len(norms)
    return here | {"norm": norms[row], "percentile": 100 * below, "row": table.weight[row]}


def _means(session: Session) -> dict[str, float]:
    """Return the length of the mean row of each table: how much there is to center."""
    return {which: float(np.linalg.norm(session.search(which, centered=True).mean)) for which in session.tables}
