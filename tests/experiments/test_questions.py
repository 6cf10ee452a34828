"""docs/answers.md: each of the twenty questions names its claims with their verdicts. test_docs.py runs the code."""

import re
from pathlib import Path

import pytest

from experiments.tutorials.all_claims import claim

PAGE = (Path(__file__).parents[2] / "docs" / "answers.md").read_text(encoding="utf-8")
QUESTIONS = re.split(r'^<a id="question-\d+"></a>$', PAGE, flags=re.MULTILINE)[1:]
VERDICTS = {"holds": "holds", "fails": "fails", "depends": "holds in part", "not measured": "not decided"}


@pytest.mark.parametrize("number", range(1, 21))
def test_a_question_names_its_claims_and_where_the_takeaway_errs(number: int) -> None:
    text = QUESTIONS[number - 1]
    listed = re.search(r"^Claims: (.+)\.$", text, re.MULTILINE)
    takeaway = re.search(r"^(The takeaway .+|No takeaway speaks of .+)$", text, re.MULTILINE)
    assert listed
    assert takeaway
    named = re.findall(r"\[(\S+)\]\(errata\.md#(\S+)\) \((.+?)\)", listed[1])
    assert named == [(id, claim(id).anchor, VERDICTS[claim(id).verdict]) for id, *_ in named] != []
    linked = re.findall(r"\(\[(\S+)\]\(errata\.md#\S+\)\)", takeaway[1])
    assert set(linked) <= {id for id, *_ in named}
    if re.search(r"\berrs?\b", takeaway[1]):
        assert any(claim(id).verdict in ("fails", "depends") for id in linked)
