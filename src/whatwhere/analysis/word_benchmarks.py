"""Word embedding benchmarks: accuracy on analogy files, correlation with similarity judgments."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.analogies import Rule, answers
from whatwhere.analysis.exact_scores import summed
from whatwhere.analysis.nearest_neighbors import Search
from whatwhere.errors import TextError


@dataclass(frozen=True)
class SectionScore:
    """The score of one section of a file.

    Args:
        name: of the section.
        questions: in the file.
        scored: questions whose words are all in the vocabulary; the others are not scored.
        correct: correct answers.
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
    """The score of a file of analogies.

    Args:
        total: of the whole file.
        sections: of each section.
    """

    total: SectionScore
    sections: tuple[SectionScore, ...]


@dataclass(frozen=True)
class SimilarityScore:
    """Correlation of cosines with human judgments.

    Args:
        pairs: in the file.
        scored: pairs whose words are both in the vocabulary.
        spearman, pearson: correlation over the scored pairs; None for fewer than three, or where all are equal.
    """

    pairs: int
    scored: int
    spearman: float | None
    pearson: float | None


def score_analogies(search: Search, ids: Mapping[str, int], file: Path, rule: Rule = "add") -> AnalogyScore:
    """Return the accuracy on questions `a b c d`, one per line, below lines `: section` (questions-words.txt).

    An answer is correct where d is the nearest row, except a, b and c. Words are looked up as they are, else in lower
    case. The format is Mikolov's, https://arxiv.org/abs/1301.3781.

    Args:
        search: of the table, by cosine.
        ids: of words.
        file: UTF-8 text.
        rule: as in `analogy`.

    Raises:
        TextError: a line has not four words, or the file no analogies.
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
    """Return the correlation with judgments `word word number`, separated by tabs, commas or blanks.

    This is the format of WordSim-353, SimLex-999 and MEN. Lines that begin with #, and a heading without a number, are
    ignored; where a line has more columns, the judgment is the first number from the third column on.

    Args:
        search: of the table, by cosine.
        ids: of words.
        file: UTF-8 text.

    Raises:
        TextError: a line has no number, or the file no pairs.
    """
    judged: list[tuple[str, str, float]] = []
    for number, line in _lines(file):
        # Not blanks where there are tabs or commas: a heading has blanks and numbers within its cells.
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
    """Return whether a file has analogies rather than judged pairs, by its first line."""
    for _, line in _lines(file):
        return line.startswith(":") or (len(line.split()) == 4 and _number(line.split()[2]) is None)
    return False


def _lines(file: Path) -> list[tuple[int, str]]:
    try:
        text = file.read_text(encoding="utf-8")
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
    """Return ranks; equal values get the mean of their ranks."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[group]


def _correlation(u: Float[np.ndarray, " n"], v: Float[np.ndarray, " n"]) -> float | None:
    if len(u) < 3 or np.ptp(u) == 0 or np.ptp(v) == 0:
        return None
    return float(np.corrcoef(u, v)[0, 1])
