"""A named set of tokens on the token map: exactly these rows, in groups, and how many stay in their own."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from whatwhere.analysis.token_map import FOUR_GROUPS, GroupNeighbors, group_neighbors, parse_groups
from whatwhere.errors import SettingError, TokenError
from whatwhere.models.checkpoint.lookup import Table, find_token, spellings
from whatwhere.studio.session import Session

MOST_NAMED = 1000
_ENOUGH = 8
"""Words of the tutorial that a vocabulary must have, for them to be the example."""


@dataclass(frozen=True)
class MissingToken:
    """A word that is no token.

    Args:
        text: as it was written.
        reason: such as the pieces that the tokenizer splits it into.
    """

    text: str
    reason: str


@dataclass(frozen=True)
class NamedTokens:
    """The named tokens of a map, and their nearest neighbors among each other.

    Args:
        groups: the group of each token, as an index of group_names.
        group_names: as they were given, or numbers.
        missing: words that are no token of the table.
        neighbors: of each token within the set, whose rows are in the order of the map.
    """

    groups: Int[np.ndarray, " tokens"]
    group_names: Sequence[str]
    missing: Sequence[MissingToken]
    neighbors: GroupNeighbors


def named_tokens(session: Session, table: Table, written: str) -> tuple[Int[np.ndarray, " tokens"], NamedTokens]:
    """Return the rows of the tokens that a text names, and the groups that it gives them.

    Raises:
        SettingError: If fewer than three of them are tokens, or too many are named.
    """
    groups = parse_groups(written)
    if sum(map(len, groups.values())) > MOST_NAMED:
        raise SettingError(f"more than {MOST_NAMED:,} tokens are named.\nName fewer, or take the map of all.")
    found: dict[int, int] = {}  # row -> group, the first that names it
    missing = []
    for number, words in enumerate(groups.values()):
        for word in words:
            try:
                found.setdefault(table.row(find_token(session.checkpoint, word, table.rows)), number)
            except TokenError as problem:
                missing.append(MissingToken(word, _reason(problem)))
    if len(found) < 3:
        known = "; ".join(f"{each.text}: {each.reason}" for each in missing[:4])
        raise SettingError(f"a map needs three tokens or more, but got {len(found)}.\n{known or 'Name others.'}")
    rows = np.array(list(found))
    neighbors = group_neighbors(table.weight[rows], list(found.values()))
    return rows, NamedTokens(np.array(list(found.values())), list(groups), missing, neighbors)


def example(session: Session) -> str:
    """Return tokens to begin with: the fifth tutorial's where the vocabulary has most of them, else a few."""
    vocabulary = frozenset(session.words)
    if sum(_has(vocabulary, word) for words in FOUR_GROUPS.values() for word in words) >= _ENOUGH:
        return "; ".join(f"{name}: {', '.join(words)}" for name, words in FOUR_GROUPS.items())
    if "Max" in session.words[:20]:
        return f"digits: {', '.join('0123456789')}; operators: Max, Min, First, Last"
    return ""


def _has(vocabulary: frozenset[str], word: str) -> bool:
    return not vocabulary.isdisjoint(spellings(word))


def _reason(problem: TokenError) -> str:
    """Return why a word is no token, without the sentence that names the file."""
    first, *rest = str(problem).split("\n")
    return " ".join(rest) or first
