"""The run of a comparison that views look at: one setting of their queries, and one choice on the page."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.comparison import made_up
from whatwhere.analysis.token_map import make_map
from whatwhere.comparison import read_results
from whatwhere.comparison.tasks import Recall
from whatwhere.models.model_text import encode_text, looks_up, reader_of
from whatwhere.studio.api import EXPORTS, JOBS, QUERIES, about
from whatwhere.studio.session import Session

from .conftest import quiet


def saved(results: Path, run: str) -> np.ndarray:
    return load_file(results / "models" / f"{run}.safetensors")["input.tokens.weight"]


def test_each_view_answers_for_the_chosen_run(session: Session, results: Path) -> None:
    for run in session.runs:
        table = saved(results, run)
        norms = np.linalg.norm(table.astype(np.float64), axis=1)
        card = QUERIES["tokens.card"](session, {"token": "Max", "run": run})
        np.testing.assert_array_equal(card.tables["input"].row, table[15])
        assert card.tables["output"].name == "lm_head.weight"
        near = QUERIES["tokens.neighbors"](session, {"token": "Max", "k": 3, "run": run}).lists[0]
        unit = table / norms[:, None]
        np.testing.assert_allclose(near.cosines, np.sort(unit @ unit[15])[::-1][1:4], atol=1e-6)
        overview = JOBS["overview.inspected"](session, {"run": run}, quiet)
        assert [each.name for each in overview.sections] == ["warnings", "norms", "spectrum", "diagnostics", "sizes"]
        assert f"{np.median(norms):.3g}" in str(overview.sections[1])
        examined = JOBS["diagnostics.examine"](session, {"run": run}, quiet)
        edges = examined.sections[-1].parts[0].x
        assert [edges[0], edges[-1]] == pytest.approx([norms.min(), norms.max()], rel=1e-6)
        made = QUERIES["maps.points"](session, {"run": run})
        np.testing.assert_allclose(made.coordinates, make_map(table, "pca", 4).coordinates, rtol=1e-3, atol=1e-5)
        walked = QUERIES["pipeline.walk"](session, {"text": "Max(1)", "tokens": "loaded", "scheme": "none", "run": run})
        np.testing.assert_array_equal(walked.rows, table[[15, 17, 3, 18]])


def test_texts_are_read_by_the_tokenizer_of_the_task(session: Session, fresh: Session, tmp_path: Path) -> None:
    ids = [15, 17, 3, 19, 8, 19, 4, 18]
    for opened, tokens in ((session, "loaded"), (fresh, "loaded"), (fresh, "words")):
        assert QUERIES["pipeline.read"](opened, {"text": "Max(1,6,2)", "tokens": tokens}).ids.tolist() == ids
    assert QUERIES["tokens.card"](session, {"token": "Max", "run": session.run}).reachable is True
    folder = made_up.made_up_folder(tmp_path / "recall", "recall", schemes=("none",))
    made_up.change(folder, lambda data: data["task"].update(tokens=list(Recall.tokens)))
    checkpoint = Session.open(folder).checkpoint
    reader = reader_of(checkpoint)
    assert encode_text(checkpoint, reader, "aK cR?c") == Recall().encode("aK cR?c")
    assert not looks_up(checkpoint)


def test_an_exported_page_holds_the_first_run_of_each_scheme(session: Session) -> None:
    first = {"learned-0", next(run for run in session.runs if run.startswith("rotary") and run.endswith("0"))}
    assert about(session, {}).run == session.run == "learned-0"
    for name in ("overview", "tokens", "map", "diagnostics", "pipeline", "replay", "attention"):
        view = EXPORTS[name](session)
        assert {settings["run"] for _, settings in view.queries if "run" in settings} == first, name


def test_views_begin_with_a_run_that_has_positions_and_can_be_built(results: Path) -> None:
    measured = read_results(results).runs
    for own, builds, first in ((False, {}, "rotary"), (True, {}, "learned"), (True, {"mine": None}, "rotary")):
        session = Session.open(results)
        session.checkpoint.builds = builds
        bases = [replace(run, base="none@dim=8" if run.base == "learned" else run.base, own=own) for run in measured]
        session.once("results", lambda bases=bases: SimpleNamespace(runs=bases))
        assert session.run.startswith(first)


def test_one_choice_serves_all_views(look: Callable[..., dict[str, Any]], session: Session, results: Path) -> None:
    beyond = next(run for run in session.runs if run.startswith("rotary"))
    result = look(session, "runs.mjs", run="learned-1", beyond=beyond)
    assert result["titles"] == about(session, {}).run_titles
    assert sorted(result["titles"]) == [f"{scheme}, seed {n}" for scheme in ("learned", "rotary+alibi") for n in (0, 1)]
    assert set(result["chosen"].values()) == {"learned-1"}
    assert len(result["chosen"]) == 8
    norm = np.linalg.norm(saved(results, "learned-1")[15].astype(np.float64))
    assert float(result["norm"]) == pytest.approx(norm, rel=5e-3)
    assert (result["where"], result["scroll"], result["without"]) == ("learned-1", 0, 0)
    assert result["own"] == result["other"], "a run's own positions are chosen with it"
    assert result["trained"][:2] == ["The fingerprint of each position", "Single features by position"]
    assert {"Cosine of each pair of positions", "By distance"} <= {*result["trained"]}
    assert result["refused"] == []
    assert result["complaints"] == []
