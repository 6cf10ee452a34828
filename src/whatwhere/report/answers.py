"""The answers of trained models as a table: the result of ask."""

from whatwhere.comparison.answers import Answer, Answers
from whatwhere.escape import visible
from whatwhere.report.comparison_sentences import name_text
from whatwhere.report.section import Paragraph, Part, Table
from whatwhere.report.text import percent, ranges

_CHOSEN = {
    "median": "of each scheme, the run of the median score",
    "all": "every run",
    "given": "the runs of the requested seed",
}


def sections(answers: Answers) -> list[Part]:
    """Return the answers as text and a table.

    Args:
        answers: as `ask` returns them.
    """
    tokens = " ".join(visible(token) for token in answers.tokens)
    right = "the task knows no correct answer to it" if answers.correct is None else f"correct is {answers.correct}"
    longest, count = answers.trained[-1], len(answers.tokens)
    trained = f"trained with {ranges(answers.trained)} tokens"
    length = f"{count} tokens ({trained})" if count <= longest else f"{count} tokens, longer than any in training"
    parts: list[Part] = [
        Paragraph(f"{tokens}: {length}; {right}."),
        Table(
            f"Answers, {_CHOSEN[answers.chosen]}",
            ("scheme", "seed", "answer", "probability", "correct", "then"),
            [_row(answer) for answer in answers.answers],
            numeric=(1, 3),
            shorten="never",
        ),
    ]
    if len({answer.positions for answer in answers.answers}) == 1:
        parts.insert(1, Paragraph(f"Positions {', '.join(map(str, answers.answers[0].positions))}."))
    return parts + [
        Paragraph(f"{name_text(one.scheme)}, seed {one.seed}: no answer. {visible(_first_line(one.reason))}")
        for one in answers.without
    ]


def _row(answer: Answer) -> list[str]:
    first, *rest = answer.top
    then = ", ".join(f"{visible(one.token)} {percent(one.probability)}" for one in rest)
    right = "–" if answer.correct is None else "yes" if answer.correct else "no"
    return [
        name_text(answer.scheme), str(answer.seed), visible(first.token), percent(first.probability), right, then,
    ]  # fmt: skip


def _first_line(text: str) -> str:
    return text.splitlines()[0]
