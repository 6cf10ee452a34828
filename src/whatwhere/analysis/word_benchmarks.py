"""Word analogies (3CosAdd, 3CosMul), and scores on the usual test sets: analogy files and similarity judgments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float64, Int64

from whatwhere.analysis.float64_similarity import summed
from whatwhere.analysis.nearest_neighbors import Nearest, Search, as_array, row_ids
from whatwhere.atomic import open_bytes
from whatwhere.errors import SettingError, ShapeError, TextError

Rule = Literal["add", "multiply"]
RULES: tuple[Rule, ...] = ("add", "multiply")

_QUERIES = 1024
_PRODUCTS = 1 << 24
"""Cosines that are computed at a time, in float64."""
_BLOCK = 8192
_EPSILON = 1e-3
"""Levy and Goldberg's, which prevents a division by zero."""
_TOLERANCE = 1e-6
"""Above the rounding error of the score, which is up to a million times that of a cosine."""


@dataclass(frozen=True, eq=False)
class Analogy:
    """The answers to one question, without and with its own three words as candidates.

    Args:
        without_inputs: the words of the question are excluded, as benchmarks do.
        with_inputs: they are candidates, and one of them is often the nearest.
    """

    without_inputs: Nearest
    with_inputs: Nearest


def analogy(weight: Any, a: int, b: int, c: int, k: int = 10, *, rule: Rule = "add", centered: bool = False) -> Analogy:
    """Return the k rows that best complete `a is to b as c is to ...`.

        add         argmax_x  cos(x, b/|b| - a/|a| + c/|c|)                    3CosAdd, Mikolov et al. 2013
        multiply    argmax_x  s(x, b) s(x, c) / (s(x, a) + 0.001)              3CosMul, Levy and Goldberg 2014
                              with s = (cos + 1) / 2

    https://aclanthology.org/N13-1090, https://aclanthology.org/W14-1618.

    Args:
        weight: the table, (rows, dim), a tensor or an array.
        a, b, c: ids.
        k: number of answers.
        rule: `add` or `multiply`, see above.
        centered: subtract the mean row first.

    Returns:
        The nearest rows, with and without a, b and c.

    Raises:
        TokenError: If an id is not a row of the table.
        SettingError: If the rule is unknown.

    Examples:
        >>> table = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
        >>> analogy(table, 0, 1, 2, k=1).without_inputs.ids
        array([[3]])
    """
    table = as_array(weight)
    question = row_ids([a, b, c], len(table))[None]
    search = Search(table, "cosine", centered)
    return Analogy(answers(search, question, k, rule), answers(search, question, k, rule, inputs=True))


def answers(
    search: Search,
    questions: Int64[np.ndarray, "questions 3"],
    k: int = 1,
    rule: Rule = "add",
    inputs: bool = False,
) -> Nearest:
    """Return the answers to many questions: for each the k best rows, as in `analogy`.

    Args:
        search: of the table, by cosine.
        questions: ids of a, b and c.
        k: number of answers.
        rule: `add` or `multiply`.
        inputs: whether the words of a question are candidates for its answer.

    Raises:
        SettingError: If the rule is unknown, or the search is not by cosine.
        ShapeError: If the questions are not (questions, 3).
        TokenError: If an id is not a row of the table.
    """
    if rule not in RULES:
        raise SettingError(f"analogies got rule={rule!r}, but need one of: {', '.join(RULES)}.")
    if search.metric != "cosine":
        raise SettingError(f"analogies need a search by cosine, but this one is by {search.metric}.")
    if questions.ndim != 2 or questions.shape[1] != 3:
        raise ShapeError(f"questions have shape {questions.shape}, but need (questions, 3): the ids of a, b and c.")
    row_ids(questions, len(search.table))
    step = _QUERIES if rule == "add" else max(1, min(_QUERIES, _PRODUCTS // len(search.table)))
    starts = range(0, max(1, len(questions)), step)
    parts = [_answer(search, questions[first : first + step], k, rule, inputs) for first in starts]
    return Nearest(np.concatenate([part.ids for part in parts]), np.concatenate([part.scores for part in parts]))


def _answer(search: Search, questions: np.ndarray, k: int, rule: Rule, inputs: bool) -> Nearest:
    words, inverse = np.unique(questions, return_inverse=True)
    units = search.unit_rows(words)[inverse.reshape(questions.shape)]  # (questions, 3, dim)
    if rule == "add":
        a, b, c = units.swapaxes(0, 1)
        # The search subtracts the mean from its queries, but these are centered already: add it first.
        return search.nearest(b - a + c + search.mean, k, None if inputs else questions)
    return _by_product(search, units, k, None if inputs else questions.tolist())


def _by_product(search: Search, units: np.ndarray, k: int, without: Sequence[Sequence[int]] | None) -> Nearest:
    """Return the best rows by 3CosMul, in float64.

    Rows whose scores equal the k-th best up to rounding are scored again, with one fixed order of summation.
    """
    k = min(k, len(search.table) - max((len(set(ids)) for ids in without or ()), default=0))
    ids, scores = np.empty((len(units), k), np.int64), np.empty((len(units), k))
    if not k:
        return Nearest(ids, scores)
    product = _products(search, units)
    for n, row in enumerate(product):
        if without is not None:
            row[list(without[n])] = -np.inf
        near = np.flatnonzero(row >= np.partition(row, -k)[-k] - _TOLERANCE)
        rows = search.unit_rows(near)
        exact = _combine(*(summed(rows * word) for word in units[n]))
        best = np.lexsort((near, -exact))[:k]
        ids[n], scores[n] = near[best], exact[best]
    return Nearest(ids, scores)


def _products(search: Search, units: np.ndarray) -> Float64[np.ndarray, "questions rows"]:
    products = np.empty((len(units), len(search.table)))
    for first in range(0, len(search.table), _BLOCK):
        part = np.arange(first, min(first + _BLOCK, len(search.table)))
        rows = search.unit_rows(part)
        products[:, part[0] : part[-1] + 1] = _combine(*(units[:, n] @ rows.T for n in range(3)))
    return products


def _combine(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Float64[np.ndarray, "*shape"]:
    a, b, c = ((1 + cosine) / 2 for cosine in (a, b, c))
    score: np.ndarray = b * c / (a + _EPSILON)
    return score


# Test sets


@dataclass(frozen=True)
class SectionScore:
    """The accuracy on one section of a file of analogies.

    Args:
        name: of the section.
        questions: number of questions in the file.
        scored: number of those whose words are all in the vocabulary; the others are not scored.
        correct: number of correct answers.
    """

    name: str
    questions: int
    scored: int
    correct: int

    @property
    def accuracy(self) -> float | None:
        """Share of correct answers; None where no question could be scored."""
        return self.correct / self.scored if self.scored else None


@dataclass(frozen=True)
class AnalogyScore:
    """The accuracy on a file of analogies.

    Args:
        total: over the whole file.
        sections: in the order of the file.
    """

    total: SectionScore
    sections: tuple[SectionScore, ...]


@dataclass(frozen=True)
class SimilarityScore:
    """Correlation of cosines with human judgments.

    Args:
        pairs: number of pairs in the file.
        scored: number of pairs whose words are both in the vocabulary.
        spearman, pearson: correlation over the scored pairs; None for fewer than three, or if all values are equal.
    """

    pairs: int
    scored: int
    spearman: float | None
    pearson: float | None


def score_analogies(search: Search, ids: Mapping[str, int], file: Path, rule: Rule = "add") -> AnalogyScore:
    """Compute the accuracy on questions `a b c d`, one per line, below lines `: section` (questions-words.txt).

    An answer is correct if d is the nearest row other than a, b and c. Words are looked up as they are written, else in
    lower case. The format is Mikolov's, https://arxiv.org/abs/1301.3781.

    Args:
        search: of the table, by cosine.
        ids: word -> row of the table.
        file: UTF-8 text.
        rule: as in `analogy`.

    Raises:
        TextError: If a line does not have four words, or the file has no analogies.
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
    looked_up = {name: [_look_up(words, ids) for words in questions] for name, questions in sections.items()}
    known = {name: [row for row in rows if row is not None] for name, rows in looked_up.items()}
    table = np.array([row for rows in known.values() for row in rows], np.int64).reshape(-1, 4)
    correct = _correct(search, table, rule)
    ends = np.cumsum([len(rows) for rows in known.values()])
    scores = tuple(
        SectionScore(name, len(sections[name]), len(rows), int(correct[end - len(rows) : end].sum()))
        for (name, rows), end in zip(known.items(), ends, strict=True)
    )
    questions = sum(score.questions for score in scores)
    return AnalogyScore(SectionScore("all", questions, len(table), int(correct.sum())), scores)


def score_similarity(search: Search, ids: Mapping[str, int], file: Path) -> SimilarityScore:
    """Compute the correlation with human judgments `word word number`, separated by tabs, commas or spaces.

    This is the format of WordSim-353, SimLex-999 and MEN. Lines that begin with #, and a heading without a number, are
    skipped. In lines with more columns the judgment is the first number from the third column on.

    Args:
        search: of the table, by cosine.
        ids: word -> row of the table.
        file: UTF-8 text.

    Raises:
        TextError: If a line has no number, or the file has no pairs.
    """
    judged: list[tuple[str, str, float]] = []
    for number, line in _lines(file):
        # Spaces separate cells only where there are no tabs or commas: the cells of a heading may contain them.
        separator = next((character for character in ("\t", ",") if character in line), None)
        cells = [cell.strip() for cell in line.split(separator)]
        value = next((_number(cell) for cell in cells[2:] if _number(cell) is not None), None)
        if value is None:
            if judged:
                raise TextError(f"line {number} of {file.name} has no number for its two words: {line[:80]!r}.")
            continue  # the heading
        judged.append((cells[0], cells[1], value))
    if not judged:
        raise TextError(f"{file.name} holds no judged pairs: lines such as 'tiger<tab>cat<tab>7.35'.")
    rows = [(_look_up(pair[:2], ids), pair[2]) for pair in judged]
    known = [(row, value) for row, value in rows if row is not None]
    pairs = np.array([row for row, _ in known], np.int64).reshape(-1, 2)
    judgments = np.array([value for _, value in known])
    cosines = _cosines(search, pairs)
    return SimilarityScore(
        len(judged), len(known), _correlation(_ranks(cosines), _ranks(judgments)), _correlation(cosines, judgments)
    )


def is_analogies(file: Path) -> bool:
    """Return whether the first line of a file is an analogy or its section, rather than a judged pair."""
    for _, line in _lines(file):
        return line.startswith(":") or (len(line.split()) == 4 and _number(line.split()[2]) is None)
    return False


def _lines(file: Path) -> list[tuple[int, str]]:
    try:
        with open_bytes(file) as opened:
            text = opened.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(f"{file.name} is not UTF-8 text: {error.reason} at byte {error.start}.") from None
    numbered = ((n, line.strip()) for n, line in enumerate(text.splitlines(), 1))
    return [(n, line) for n, line in numbered if line and not line.startswith("#")]


def _look_up(words: tuple[str, ...], ids: Mapping[str, int]) -> list[int] | None:
    rows = [ids.get(word, ids.get(word.lower())) for word in words]
    return None if None in rows else [row for row in rows if row is not None]


def _correct(search: Search, questions: Int64[np.ndarray, "questions 4"], rule: Rule) -> np.ndarray:
    if not len(questions):
        return np.zeros(0, bool)
    correct: np.ndarray = answers(search, questions[:, :3], 1, rule).ids[:, 0] == questions[:, 3]
    return correct


def _cosines(search: Search, pairs: Int64[np.ndarray, "pairs 2"]) -> Float[np.ndarray, " pairs"]:
    one, other = search.unit_rows(pairs).swapaxes(0, 1)
    return summed(one * other)


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _ranks(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return ranks from 1; equal values have the mean of their ranks."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[group]


def _correlation(u: Float[np.ndarray, " n"], v: Float[np.ndarray, " n"]) -> float | None:
    if len(u) < 3 or np.ptp(u) == 0 or np.ptp(v) == 0:
        return None
    return float(np.corrcoef(u, v)[0, 1])
