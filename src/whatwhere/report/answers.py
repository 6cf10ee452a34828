"""The answers of trained models as a table: the result of ask."""

from collections.abc import Iterator

from whatwhere.comparison.answers import Answer, Answers
from whatwhere.escape import visible
from whatwhere.report.comparison_sentences import name_text
from whatwhere.report.section import Part, Table
from whatwhere.report.text import count, percent, ranges

LEARNED = 0.99
"""The share of right answers in length from which on a run has learned its task."""
_CHOSEN = {
    "median": "of each scheme, the run of the median score",
    "all": "every run",
    "given": "the runs of the requested seed",
}


def parts(answers: Answers) -> Iterator[Part]:
    """Return the answers, as `ask` returns them, as text and a table."""
    tokens = " ".join(map(visible, answers.tokens))
    right = "the task knows no correct answer to it" if answers.correct is None else f"correct is {answers.correct}"
    length = count(len(answers.tokens), "token")
    if len(answers.tokens) > answers.trained[-1]:
        length += ", longer than any in training"
    else:
        length += f" (trained with {ranges(answers.trained)} tokens)"
    yield f"{tokens}: {length}; {right}."
    if len({answer.positions for answer in answers.answers}) == 1:
        yield f"Positions {', '.join(map(str, answers.answers[0].positions))}."
    columns = ("scheme", "seed", "answer", "probability", "correct", "then", "right in length")
    rows = [*map(_row, answers.answers)]
    yield Table(f"Answers, {_CHOSEN[answers.chosen]}", columns, rows, numeric=(1, 3, 6), shorten="never")
    shares = [answer.in_length for answer in answers.answers if answer.in_length is not None]
    if unlearned := [share for share in shares if not share >= LEARNED]:  # NaN too
        several = f"{len(unlearned)} of these {len(answers.answers)} runs"
        yield (
            f"{several if len(answers.answers) > 1 else 'This run'} did not learn the task, which takes "
            f"{percent(LEARNED, 0)} right in length: such an answer shows nothing of the scheme."
        )
    for one in answers.without:
        yield f"{name_text(one.scheme)}, seed {one.seed}: no answer. {visible(one.reason.splitlines()[0])}"


def _row(answer: Answer) -> list[str]:
    first, *rest = answer.top
    then = ", ".join(f"{visible(one.token)} {percent(one.probability)}" for one in rest)
    right = "–" if answer.correct is None else "yes" if answer.correct else "no"
    return [
        name_text(answer.scheme), str(answer.seed), visible(first.token), percent(first.probability), right, then,
        "–" if answer.in_length is None else percent(answer.in_length),
    ]  # fmt: skip
