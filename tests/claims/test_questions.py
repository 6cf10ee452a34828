"""The twenty questions: their code runs and prints what it says, also that of the variants."""

import doctest
import re

import pytest

from whatwhere.claims.first_questions import PREAMBLE
from whatwhere.claims.question import Question
from whatwhere.claims.registry import QUESTIONS, claim
from whatwhere.report.errata import answers_page


def failures(code: str) -> int:
    """Run a doctest; return how many of its examples fail."""
    examples = doctest.DocTestParser().get_doctest(code, {}, "code", None, 0)
    assert examples.examples
    printed: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    failed = runner.run(examples, out=printed.append).failed
    print("".join(printed))
    return failed


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.id)
def test_code_prints_what_it_says(question: Question) -> None:
    assert not failures(PREAMBLE + question.code + question.variant_code)


def test_code_that_prints_something_else_is_detected() -> None:
    assert failures(PREAMBLE + ">>> tuple(layer(ids)[0].shape)\n(8, 65)\n") == 1
    assert failures(">>> 1 / 0\nTraceback (most recent call last):\nZeroDivisionError: modulo by zero\n") == 1


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.id)
def test_a_question_is_complete(question: Question) -> None:
    assert re.fullmatch(r"\S.*[.?]", question.asks)
    assert re.fullmatch(r"\S.*\?|\S.*\.", question.think)
    for text in (question.answer, question.variant_answer):
        assert text.endswith(".")
        assert len(text.split()) <= 60
        assert not re.search(r"[a-z)]\. [A-Z]", text), "an answer is one sentence"
    assert question.variant.endswith("?") or question.variant.startswith("Compute")
    assert question.claims
    assert all(claim(id) for id in question.claims)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.id)
def test_a_takeaway_agrees_or_names_the_claim_in_which_it_errs(question: Question) -> None:
    named = re.findall(r"\((\d\.\d+[a-z]?)\)", question.takeaway)
    assert question.takeaway.startswith(("The takeaway ", "No takeaway speaks of "))
    assert set(named) <= set(question.claims)
    if re.search(r"\berrs?\b", question.takeaway):
        assert any(claim(id).verdict in ("fails", "depends") for id in named)
    else:
        assert re.match("The takeaway agrees|No takeaway", question.takeaway)


def test_the_page_shows_each_takeaway_with_links() -> None:
    page = answers_page()
    assert page.count("<summary>Answer</summary>") == 20
    assert "The tutorial's factor for i = 2, 1.37, errs: it is 1.7783 ([0.24](errata.md#claim-0-24))." in page


def test_there_are_twenty() -> None:
    assert [each.id for each in QUESTIONS] == [f"q.{number}" for number in range(1, 21)]
    assert len({each.anchor for each in QUESTIONS}) == 20
