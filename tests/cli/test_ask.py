"""ask on the command line: a table for people, the attention for programs, and no traceback."""

from pathlib import Path

import pytest

from ..running import error_of, json_of, whatwhere


def test_a_question_and_its_answers(results: Path) -> None:
    done = whatwhere("ask", results, "First(6,2,1)")
    assert "First ( 6 , 2 , 1 ): 8 tokens (trained with 6, 8 tokens); correct is 6." in done.out
    assert "of each scheme, the run of the median score" in done.out
    rows = [line.split() for line in done.out.splitlines() if line.strip().startswith(("learned", "rotary"))]
    assert [row[0] for row in rows] == ["learned", "rotary+alibi"]
    assert "2 of these 2 runs did not learn the task" in " ".join(done.out.split())


def test_json_has_the_attention(results: Path) -> None:
    answers = json_of("ask", results, "First(6)", "--run", "learned-1", "--positions", "0,5,6,7")
    assert (answers["correct"], answers["chosen"], len(answers["answers"])) == ("6", "given", 1)
    answer = answers["answers"][0]
    assert (answer["seed"], answer["positions"]) == (1, [0, 5, 6, 7])
    assert [[len(part) for part in layer] for layer in answer["attention"]] == [[4] * 2] * 2
    assert answer["attention"][0][0][0] == [1, 0, 0, 0]


def test_a_run_is_named_by_its_scheme_and_seed_or_by_its_file(results: Path) -> None:
    answers = json_of("ask", results, "First(6)", "--run", "rotary+alibi-1")["answers"]
    assert [(answer["scheme"], answer["seed"]) for answer in answers] == [("rotary+alibi", 1)]
    file = next(path.stem for path in (results / "runs").glob("rotary_alibi-*-1.json"))
    assert json_of("ask", results, "First(6)", "--run", file)["answers"] == answers


def test_what_has_no_row_is_named_below_the_others(results: Path) -> None:
    done = whatwhere("ask", results, "Max(1,2,3,4,5,6,7)", "--seed", "all")
    assert "16 tokens, longer than any in training" in done.out
    assert "learned, seed 0: no answer." in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Sum(1)"], "It knows: [PAD] [EOS] 0 1 2 3 4 5 6 7 8 9 First Second Last Max Min ( ) ,\n"),
        (["Max(1)", "--seed", "x"], "--seed got 'x', but needs a whole number, or all."),
        (["Max(1)", "--run", "rotary-0"], "no run 'rotary-0'; it has learned-0, "),
        (["Max(1)", "--run", "learned-0", "--seed", "1"], "--run names a scheme and a seed.\nLeave"),
        (["Max(1)", "--positions", "0,1"], "4 tokens need as many positions"),
    ],
)
def test_errors_have_no_traceback(arguments: list[str], words: str, results: Path) -> None:
    assert words in error_of("ask", results, *arguments)
