"""A question about a tutorial as an object: what it asks, its answer in a sentence, and code that shows it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question with its answer and a variant to solve.

    Args:
        id: stable: "q." and the tutorial's number of the question.
        asks: the question, in words of ours.
        think: what to think about before reading on.
        answer: in a sentence.
        code: that shows it, as a doctest; what it needs before it is PREAMBLE of the questions.
        claims: ids of the claims that it refers to.
        takeaway: whether the tutorial's summary agrees, and where it or the tutorial errs, with the id of the claim.
        variant: a question of the same kind.
        variant_answer: in a sentence.
        variant_code: that computes it, as a doctest.
        command: that measures what training decides, or "".
    """

    id: str
    asks: str
    think: str
    answer: str
    code: str
    claims: tuple[str, ...]
    takeaway: str
    variant: str
    variant_answer: str
    variant_code: str
    command: str = ""

    @property
    def anchor(self) -> str:
        """The anchor of the question on pages, such as "question-14"."""
        return f"question-{self.id.removeprefix('q.')}"
