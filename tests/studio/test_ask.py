"""Ask in the studio: beside `ask` itself, what it refuses, and the view on the page."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.comparison import made_up
from whatwhere.comparison import ask
from whatwhere.comparison.answers import Answers
from whatwhere.errors import SettingError
from whatwhere.report.section import Table
from whatwhere.studio.api import about
from whatwhere.studio.api import ask as api
from whatwhere.studio.session import Session

from .conftest import csv_rows

TEXT = "First(6,2,1)"
MOVED = "0,1,2,3,4,5,6,2"


def same(shown: Answers, right: Answers) -> None:
    for one, other in zip(shown.answers, right.answers, strict=True):
        np.testing.assert_equal({**vars(one)}, {**vars(other)})
    assert (shown.without, shown.tokens, shown.correct) == (right.without, right.tokens, right.correct)


@pytest.mark.parametrize(("seeds", "seed"), [("median", None), ("all", "all"), ("1", 1)])
@pytest.mark.parametrize("moved", ["", MOVED, "0,1,2,3,4,5,6,999"])
def test_answers_are_those_of_ask(
    session: Session, results: Path, seeds: str, seed: Literal["all"] | int | None, moved: str
) -> None:
    shown = api.answers(session, {"text": TEXT, "seeds": seeds, "positions": moved})
    usual = ask(results, TEXT, seed=seed)
    same(shown.answers, ask(results, TEXT, seed=seed, positions=[*map(int, moved.split(","))]) if moved else usual)
    assert (shown.usual is None) == (moved == "")
    if shown.usual is not None:
        same(shown.usual, usual)
    assert (shown.seeds, shown.causal) == ((0, 1), True)
    assert [shown.answers.tokens[n] for n in shown.digits] == ["6", "2", "1"]
    named = [*shown.answers.answers, *shown.answers.without]
    assert [run.rpartition("-")[2] for run in shown.runs] == [str(one.seed) for one in named]
    if seeds == "all":
        assert sorted(shown.runs) == sorted(session.runs)
    assert [one.scheme for one in shown.answers.without] == (
        ["learned"] * (1 + (seeds == "all")) if "999" in moved else []
    )


def test_other_tasks_have_no_digits(tmp_path: Path) -> None:
    from whatwhere.comparison import compare

    sizes: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 4, "test_sequences": 8, "steps": 2}
    for task, lengths, answer in (("text", [64], None), ("recall", [3], "K")):
        folder = tmp_path / task
        compare(["none"], task=task, lengths=lengths, seeds=1, out=folder, workers=1, progress=False, **sizes)
        session = Session.open(folder)
        text = "aKcR?a"
        assert "ask" in about(session, {}).views
        shown = api.answers(session, {"text": text})
        assert (shown.answers.correct, shown.digits, shown.runs) == (answer, None, ["none-0"])
        exported = api.exported(session)
        assert exported.begin["text"] == api.EXAMPLES[task][0]


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


def test_an_exported_page_answers_its_questions_by_the_median_runs(session: Session, results: Path) -> None:
    view = api.exported(session)
    texts = api.EXAMPLES["expressions"]
    assert (texts[0], max(text.count(",") + 1 for text in texts if text.startswith("Last"))) == (TEXT, 12)
    assert [given["text"] for _, given in view.queries] == [text for text in texts for _ in range(2)]
    for (_, given), section in zip(view.queries, view.sections, strict=True):
        text, moved = given["text"], given["positions"]
        positions = [*range(1, 3 + 2 * text.count(",") + 2)] if moved else None
        right = ask(results, text, positions=positions)
        same(api.answers(session, given).answers, right)
        (table,) = (part for part in section.parts if isinstance(part, Table))
        assert len(table.rows) == len(right.answers)


def test_the_view_asks_and_moves_and_saves(
    look: Callable[..., dict[str, Any]], session: Session, results: Path
) -> None:
    result = look(session, "ask.mjs", text=TEXT, refused=True)
    right = {each.scheme: each for each in ask(results, TEXT, seed=1).answers}
    assert result["tokens"] == ["First", *"(6,2,1)"]
    assert result["positions"] == [str(n) for n in range(8)]
    rows = csv_rows(result["csv"])
    assert {row["run"]: float(row["probability"]) for row in rows} == {
        f"{scheme}, seed 1": each.top[0].probability for scheme, each in right.items()
    }
    moved = ask(results, TEXT, schemes=["learned"], seed=1, positions=list(map(int, MOVED.split(",")))).answers[0]
    weights = csv_rows(result["weights"])
    assert len(weights) == 2 * 2 * 8 * 9 // 2
    last = [
        float(row["weight"])
        for row in weights
        if row["query"] == "“)” at 7" and (row["layer"], row["head"]) == ("1", "0")
    ]
    np.testing.assert_allclose(last, moved.attention[1][0, 7], rtol=1e-6)
    assert f"positions={MOVED.replace(',', '%2C')}" in result["address"]
    assert result["reset"] == result["positions"]
    svg = ElementTree.fromstring(result["svg"])
    assert {"layer 0, head 0", "layer 1, head 1", "First"} <= set(svg.itertext())
    assert "query 0, First, key 0, First: 1" in result["cell"]
    assert result["refused"].startswith("the tokenizer does not know 'Sum'")
