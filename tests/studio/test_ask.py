"""Ask in the studio: beside `ask` itself, what it refuses, and the view on the page."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.comparison import made_up
from whatwhere.comparison import ask
from whatwhere.errors import SettingError
from whatwhere.studio.api import ask as api
from whatwhere.studio.api.about import about
from whatwhere.studio.session import Session

from .conftest import csv_rows

TEXT = "First(6,2,1)"
MOVED = "0,1,2,3,4,5,6,2"


def test_answers_are_those_of_ask(session: Session, results: Path) -> None:
    shown = api.answers(session, {"text": TEXT, "seeds": "all"})
    right = ask(results, TEXT, seed="all")
    assert (shown.tokens, shown.correct, shown.trained) == (right.tokens, "6", (6, 8))
    assert (shown.at, shown.seeds, shown.usual) == (7, (0, 1), tuple(range(8)))
    assert [one.run for one in shown.runs] == sorted(session.runs)
    for one, answer in zip(shown.runs, right.answers, strict=True):
        assert [(each.token, each.probability) for each in one.top] == [(t.token, t.probability) for t in answer.top]
        assert (one.correct, one.correct_probability) == (answer.correct, answer.correct_probability)
        assert one.usual is one.usual_correct_probability is one.missing is None
    assert [one.seed for one in api.answers(session, {"text": TEXT, "seeds": "1"}).runs] == [1, 1]


def test_a_changed_position_is_shown_beside_the_usual_one(session: Session, results: Path) -> None:
    usual = {one.run: one for one in api.answers(session, {"text": TEXT}).runs}
    moved = api.answers(session, {"text": TEXT, "positions": MOVED})
    assert moved.positions == tuple(map(int, MOVED.split(",")))
    assert moved.usual == tuple(range(8))
    for one in moved.runs:
        before = usual[one.run]
        assert (one.usual, one.usual_correct_probability) == (before.top[0], before.correct_probability)
        assert one.correct_probability != before.correct_probability, "both schemes see positions"


def test_a_run_without_a_row_says_so(session: Session) -> None:
    shown = api.answers(session, {"text": TEXT, "positions": "0,1,2,3,4,5,6,999"})
    without = {one.scheme: one for one in shown.runs if one.missing is not None}
    assert list(without) == ["learned"]
    assert "999" in str(without["learned"].missing)
    assert without["learned"].top == []


def test_attention_is_that_of_ask(session: Session, results: Path) -> None:
    for positions in ("", MOVED):
        shown = api.attention(session, {"text": TEXT, "run": "learned-1", "positions": positions})
        given = [int(part) for part in positions.split(",")] if positions else None
        right = ask(results, TEXT, schemes=["learned"], seed=1, positions=given).answers[0]
        np.testing.assert_array_equal(shown.layers, np.stack(right.attention))
        np.testing.assert_allclose(shown.layers.sum(-1), 1, rtol=1e-6)
        assert (shown.positions, shown.at, shown.causal) == (right.positions, right.at, True)
        assert [shown.tokens[n] for n in shown.digits] == ["6", "2", "1"]


def test_other_tasks_have_no_digits(tmp_path: Path) -> None:
    from whatwhere.comparison import compare

    sizes: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 4, "test_sequences": 8, "steps": 2}
    for task, lengths, answer in (("text", [64], None), ("recall", [3], "K")):
        folder = tmp_path / task
        compare(["none"], task=task, lengths=lengths, seeds=1, out=folder, workers=1, progress=False, **sizes)
        session = Session.open(folder)
        text = "aKcR?a"
        assert "ask" in about(session, {}).views
        assert api.answers(session, {"text": text}).correct == answer
        shown = api.attention(session, {"text": text, "run": "none-0"})
        assert shown.digits is None
        assert (shown.at, shown.layers.shape) == (5, (2, 2, 6, 6))
        exported = api.exported(session)
        assert exported.begin["text"] == api.FIRST[task]


def test_where_nothing_can_be_asked_the_reason_is_known(
    fresh: Session, session: Session, results: Path, tmp_path: Path
) -> None:
    assert "ask" in about(session, {}).views
    without = Path(shutil.copytree(results, tmp_path / "without"))
    shutil.rmtree(without / "models")
    own = made_up.change(
        Path(shutil.copytree(results, tmp_path / "own")), lambda data: data["task"].update(name="mine")
    )
    for each, words in ((fresh, "open the folder"), (Session.open(without), "keeps no"), (Session.open(own), "task")):
        reason = api.cannot_ask(each)
        assert reason is not None
        assert "ask" not in about(each, {}).views
        assert words in reason
        with pytest.raises(SettingError) as problem:
            api.answers(each, {"text": TEXT})
        assert str(problem.value) == reason


def test_an_exported_page_holds_the_first_question(session: Session) -> None:
    view = api.exported(session)
    assert [name for name, _ in view.queries] == ["ask.answers", "ask.attention", "ask.attention"]
    assert {settings["run"] for name, settings in view.queries if name == "ask.attention"} == {
        one.run for one in api.answers(session, {"text": "Max(1,6,2)", "seeds": "0"}).runs
    }
    assert len(view.sections[0].parts) == 3


def test_the_view_asks_and_moves_and_saves(
    look: Callable[..., dict[str, Any]], session: Session, results: Path
) -> None:
    result = look(session, "ask.mjs", text=TEXT, refused=True)
    right = {each.scheme: each for each in ask(results, TEXT, seed=1).answers}
    assert result["tokens"] == ["First", *"(6,2,1)"]
    assert result["positions"] == [str(n) for n in range(8)]
    rows = csv_rows(result["csv"])
    assert {row["scheme"]: float(row["probability"]) for row in rows} == {
        scheme: each.top[0].probability for scheme, each in right.items()
    }
    moved = ask(results, TEXT, schemes=["learned"], seed=1, positions=list(map(int, MOVED.split(",")))).answers[0]
    weights = csv_rows(result["weights"])
    assert len(weights) == 2 * 2 * 8 * 9 // 2
    last = [
        float(row["weight"]) for row in weights if row["query"] == "7 )" and (row["layer"], row["head"]) == ("1", "0")
    ]
    np.testing.assert_allclose(last, moved.attention[1][0, 7], rtol=1e-6)
    assert f"positions={MOVED.replace(',', '%2C')}" in result["address"]
    assert result["reset"] == result["positions"]
    svg = ElementTree.fromstring(result["svg"])
    assert {"layer 0, head 0", "layer 1, head 1", "First"} <= set(svg.itertext())
    assert "query 0, First, key 0, First: 1" in result["cell"]
    assert result["refused"].startswith("the tokenizer does not know 'Sum'")
