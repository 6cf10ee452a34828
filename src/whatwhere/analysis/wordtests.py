"""Score a token table by files of analogies and of judged similarities, in the formats that everybody uses."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.analogies import Rule, answers
from whatwhere.analysis.neighbors import Search
from whatwhere.errors import TextError


@dataclass(frozen=True)
class Part:
    """Hold the score of one section of a file.

    Args:
        asked: questions in the file; those with a word that the table lacks are not scored.
        scored: questions of which all words are there.
        right: of these.
    """

    name: str
    asked: int
    scored: int
    right: int

    @property
    def accuracy(self) -> float | None:
        """Share of right answers; None where nothing could be scored."""
        return self.right / self.scored if self.scored else None


@dataclass(frozen=True)
class AnalogyScore:
    """Hold the score of a file of analogies, whole and by section."""

    total: Part
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class SimilarityScore:
    """Hold how well cosines follow people's judgments.

    Args:
        pairs, scored: in the file, and of these those whose two words are there.
        spearman, pearson: correlation over the scored pairs; None for fewer than three, or where all are equal.
    """

    pairs: int
    scored: int
    spearman: float | None
    pearson: float | None


def score_analogies(search: Search, ids: Mapping[str, int], file: Path, rule: Rule = "add") -> AnalogyScore:
    """Score questions of the form `a b c d`, one a line, below lines `: section` (questions-words.txt).

    An answer is right where d is the nearest row, with a, b and c left out. Words are looked up as they are, else in
    lower case. The format is Mikolov's, https://arxiv.org/abs/1301.3781.

    Args:
        search: of the table, by cosine.
        ids: of words.
    """
    sections: dict[str, list[tuple[str, ...]]] = {}
    name = ""
    for number, line in _lines(file):
        if line.startswith(":"):
            name = line[1:].strip()
            continue
        words = tuple(line.split())
        if len(words) != 4:
            raise TextError(
                f"line {number} of {file.name} has {len(words)} words, but an analogy has 4: {line[:80]!r}."
            )
        sections.setdefault(name, []).append(words)
    if not sections:
        raise TextError(f"{file.name} holds no analogies: lines of four words, below lines such as ': capitals'.")
    found = {name: [_looked_up(words, ids) for words in asked] for name, asked in sections.items()}
    known = {name: [row for row in rows if row is not None] for name, rows in found.items()}
    table = np.array([row for rows in known.values() for row in rows], np.int64).reshape(-1, 4)
    right = _right(search, table, rule)
    ends = np.cumsum([len(rows) for rows in known.values()])
    parts = tuple(
        Part(name, len(sections[name]), len(rows), int(right[end - len(rows) : end].sum()))
        for (name, rows), end in zip(known.items(), ends, strict=True)
    )
    asked = sum(part.asked for part in parts)
    return AnalogyScore(Part("all", asked, len(table), int(right.sum())), parts)


def score_similarity(search: Search, ids: Mapping[str, int], file: Path) -> SimilarityScore:
    """Score pairs `word word number`, between tabs, commas or blanks (WordSim-353, SimLex-999, MEN).

    Lines that begin with #, and a heading without a number, are passed over; where a line has more columns, the third
    counts that is a number.
    """
    judged: list[tuple[str, str, float]] = []
    for number, line in _lines(file):
        sign = next((sign for sign in ("\t", ",") if sign in line), None)  # a heading's cells hold blanks and numbers
        cells = [cell.strip() for cell in line.split(sign)]
        value = next((_number(cell) for cell in cells[2:] if _number(cell) is not None), None)
        if value is None:
            if judged:
                raise TextError(f"line {number} of {file.name} gives no number for its two words: {line[:80]!r}.")
            continue  # the heading
        judged.append((cells[0], cells[1], value))
    if not judged:
        raise TextError(f"{file.name} holds no judged pairs: lines such as 'tiger<tab>cat<tab>7.35'.")
    rows = [(_looked_up(pair[:2], ids), pair[2]) for pair in judged]
    known = [(row, value) for row, value in rows if row is not None]
    pairs = np.array([row for row, _ in known], np.int64).reshape(-1, 2)
    given = np.array([value for _, value in known])
    cosines = _cosines(search, pairs)
    return SimilarityScore(
        len(judged), len(known), _correlation(_ranks(cosines), _ranks(given)), _correlation(cosines, given)
    )


def is_analogies(file: Path) -> bool:
    """Tell by its first lines whether a file holds analogies rather than judged pairs."""
    for _, line in _lines(file):
        return line.startswith(":") or (len(line.split()) == 4 and _number(line.split()[2]) is None)
    return False


def _lines(file: Path) -> list[tuple[int, str]]:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise TextError(f"{file.name} is not UTF-8 text: {problem.reason} at byte {problem.start}.") from None
    numbered = ((n, line.strip()) for n, line in enumerate(text.splitlines(), 1))
    return [(n, line) for n, line in numbered if line and not line.startswith("#")]


def _looked_up(words: tuple[str, ...], ids: Mapping[str, int]) -> list[int] | None:
    found = [ids.get(word, ids.get(word.lower())) for word in words]
    return None if None in found else [n for n in found if n is not None]


def _right(search: Search, questions: Int64[np.ndarray, "questions 4"], rule: Rule) -> np.ndarray:
    if not len(questions):
        return np.zeros(0, bool)
    right: np.ndarray = answers(search, questions[:, :3], 1, rule).ids[:, 0] == questions[:, 3]
    return right


def _cosines(search: Search, pairs: Int64[np.ndarray, "pairs 2"]) -> Float[np.ndarray, " pairs"]:
    rows = search.table[pairs].astype(np.float64) - search.mean
    lengths = search.lengths[pairs].prod(axis=1)
    inner = (rows[:, 0] * rows[:, 1]).sum(axis=1)
    return np.where(lengths > 0, inner / np.where(lengths > 0, lengths, 1.0), 0.0)


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _ranks(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Give ranks; equal values share the mean of theirs."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[group]


def _correlation(u: Float[np.ndarray, " n"], v: Float[np.ndarray, " n"]) -> float | None:
    if len(u) < 3 or np.ptp(u) == 0 or np.ptp(v) == 0:
        return None
    return float(np.corrcoef(u, v)[0, 1])
