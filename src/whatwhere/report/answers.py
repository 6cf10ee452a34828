"""The answers of trained models as a table: the result of ask."""

from whatwhere.comparison.answers import Answer, Answers
from whatwhere.escape import visible
from whatwhere.report.comparison_sentences import name_text
from whatwhere.report.section import Paragraph, Part, Table
from whatwhere.report.text import count, percent, ranges

LEARNED = 0.99
"""The share of right answers in length from which on a run has learned its task."""
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
    longest, tokens_text = answers.trained[-1], count(len(answers.tokens), "token")
    trained = f"trained with {ranges(answers.trained)} tokens"
    longer = len(answers.tokens) > longest
    length = f"{tokens_text}, longer than any in training" if longer else f"{tokens_text} ({trained})"
    parts: list[Part] = [
        Paragraph(f"{tokens}: {length}; {right}."),
        Table(
            f"Answers, {_CHOSEN[answers.chosen]}",
            ("scheme", "seed", "answer", "probability", "correct", "then", "right in length"),
            [_row(answer) for answer in answers.answers],
            numeric=(1, 3, 6),
            shorten="never",
        ),
    ]
    if len({answer.positions for answer in answers.answers}) == 1:
        parts.insert(1, Paragraph(f"Positions {', '.join(map(str, answers.answers[0].positions))}."))
    shares = [answer.in_length for answer in answers.answers if answer.in_length is not None]
    if unlearned := [share for share in shares if not share >= LEARNED]:  # NaN too
        several = f"{len(unlearned)} of these {len(answers.answers)} runs"
        runs = several if len(answers.answers) > 1 else "This run"
        parts.append(
            Paragraph(
                f"{runs} did not learn the task, which takes {percent(LEARNED, 0)} right in length: such an answer "
                "shows nothing of the scheme."
            )
        )
    return parts + [
        Paragraph(f"{name_text(one.scheme)}, seed {one.seed}: no answer. {visible(one.reason.splitlines()[0])}")
        for one in answers.without
    ]


def _row(answer: Answer) -> list[str]:
    first, *rest = answer.top
    then = ", ".join(f"{visible(one.token)} {percent(one.probability)}" for one in rest)
    right = "–" if answer.correct is None else "yes" if answer.correct else "no"
    return [
        name_text(answer.scheme), str(answer.seed), visible(first.token), percent(first.probability), right, then,
        "–" if answer.in_length is None else percent(answer.in_length),
    ]  # fmt: skip
