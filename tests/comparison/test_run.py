"""One run: what its record, its tensors and its drawing hold, and the channel that ends it."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.comparison import run as running
from whatwhere.comparison.model import Transformer, build_wheres
from whatwhere.comparison.results import SchemeView
from whatwhere.comparison.run import STOP, Job, Stopped, run, view_of
from whatwhere.comparison.saved_model import saved_tensors
from whatwhere.comparison.settings import Settings, make_settings
from whatwhere.comparison.tasks import Expressions, Recall
from whatwhere.comparison.train import build, one_thread, train

DIM, HEADS, TASK = 16, 2, Expressions(trained=(2, 3))  # 3 arguments are 8 tokens, 4 are 10


def small_settings(**given: Any) -> Settings:
    small = {
        "dim": DIM,
        "heads": HEADS,
        "feedforward": 16,
        "batch": 8,
        "test_sequences": 20,
        "device": "cpu",
        "steps": 5,
    }
    return make_settings("expressions", given.pop("lengths", [4]), **small | given)


def test_a_result_contains_every_length_and_every_snapshot() -> None:
    result = run(Job("learned", 7, TASK, small_settings(lengths=[4, 2, 9]))).result
    assert (result.scheme, result.seed, result.steps) == ("learned", 7, 5)
    assert list(result.scores) == [2, 3, 4, 9]
    known = [result.scores[length]["all"] for length in (2, 3)]
    assert result.in_length == pytest.approx(sum(score for score in known if score is not None) / 2)
    assert [snapshot.percent for snapshot in result.token_table] == [0, 20, 100]
    assert [snapshot.number_line is None for snapshot in result.token_table] == [True, False, False]
    assert 0 < result.seconds_per_step * 5 < result.seconds


def own(dim: int, num_heads: int, max_length: int) -> list[ww.Where]:
    return [ww.Where(input=ww.Learned(dim, 10)), ww.Where()]


@pytest.mark.parametrize(
    ("scheme", "expected"), [("none", 0), ("rotary", 0), ("alibi", 0), ("learned", 8 * DIM), (("own", own), 10 * DIM)]
)
def test_parameters_of_positions_are_counted_separately_and_once(scheme: Any, expected: int) -> None:
    counts = run(Job(scheme, 0, TASK, small_settings(steps=1))).result.parameters
    none = run(Job("none", 0, TASK, small_settings(steps=1))).result.parameters
    assert (counts.tokens, counts.positions) == (20 * DIM, expected)
    assert counts.total - none.total == expected


def test_the_tables_are_those_before_after_a_fifth_and_after_all_steps() -> None:
    settings, tables = small_settings(), []
    model = build("learned", 1, TASK, settings)

    def look(percent: int, model: Transformer) -> None:
        tables.append([value.detach().clone() for value in model.input.state_dict().values()])

    with one_thread():
        train(model, 1, TASK, settings, look, lambda step: None)
    result = run(Job("learned", 1, TASK, settings)).tensors
    assert set(result) == {"input.tokens.weight@0", "input.tokens.weight@20", *saved_tensors(model)}
    for name, (table, _) in zip(
        ("input.tokens.weight@0", "input.tokens.weight@20", "input.tokens.weight"), tables, strict=True
    ):
        assert torch.equal(torch.from_numpy(result[name]), table)
    assert torch.equal(torch.from_numpy(result["input.where.input.weight"]), tables[-1][1])
    assert not torch.equal(tables[0][0], tables[1][0])


def test_other_tasks_have_no_snapshots() -> None:
    assert run(Job("none", 0, Recall(trained=(1, 2)), small_settings(steps=1))).result.token_table == ()


def view(scheme: Any, **given: Any) -> SchemeView:
    (where,) = build_wheres(scheme, DIM, HEADS, 8, 1)
    return view_of(where, TASK, small_settings(**given))


def test_the_drawing_of_sinusoids() -> None:
    result = view("sinusoidal")
    angle = np.arange(10)[:, None] * 10_000.0 ** (-np.arange(0, DIM, 2) / DIM)
    rows = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(10, DIM)
    assert result.doors == ("input",)
    np.testing.assert_allclose(result.fingerprint.values, rows, atol=1e-6)
    # Each pair has length 1, so the cosine of two rows is the mean of the cosines of the angles between them.
    (curve,) = result.by_distance.curves.values()
    np.testing.assert_allclose(curve, np.cos(angle).mean(1), atol=1e-6)
    assert result.by_distance.distances == tuple(range(10))


def test_the_drawing_of_rotary() -> None:
    result = view("rotary")
    angle = np.arange(10)[:, None] * 10_000.0 ** (-np.arange(4) / 4)
    assert result.doors == ("query_key",)
    np.testing.assert_allclose(result.fingerprint.values, np.cos(angle), atol=1e-6)
    (curve,) = result.by_distance.curves.values()
    np.testing.assert_allclose(curve, np.cos(angle).mean(1), atol=1e-6)


def test_the_drawing_of_alibi() -> None:
    result = view("alibi")
    assert result.doors == ("score",)
    expected = -np.arange(10)[:, None] * np.array([2.0**-4, 2.0**-8])
    np.testing.assert_allclose(result.fingerprint.values, expected, atol=1e-7)
    np.testing.assert_allclose(np.array(list(result.by_distance.curves.values())).T, expected, atol=1e-7)


def test_a_scheme_without_positions_has_no_picture() -> None:
    assert view("none") == SchemeView((), None, None)


def test_mixtures_name_all_their_doors() -> None:
    assert view("learned+rotary+alibi").doors == ("input", "query_key", "score")


class Short(ww.InputEncoding):
    """A table of one's own, which ends where training did and does not say so beforehand."""

    dim = DIM

    def forward(self, positions: Any) -> Tensor:
        if positions.tokens > 8:
            raise ww.errors.PositionError("there are 8 rows")
        return torch.eye(8, DIM)[None, : positions.tokens]


@pytest.mark.parametrize("scheme", ["learned", ("short", lambda d, h, m: ww.Where(input=Short()))])
def test_a_table_is_drawn_to_its_end(scheme: Any) -> None:
    result = view(scheme)
    assert len(result.fingerprint.values) == 8
    assert result.by_distance.distances == tuple(range(8))


@pytest.mark.parametrize(("lengths", "rows"), [([], 8), ([2], 8), ([5], 12)])
def test_the_longest_length_that_occurs_has_a_picture(lengths: list[int], rows: int) -> None:
    assert len(view("rotary", lengths=lengths).fingerprint.values) == rows


def test_a_stop_file_ends_a_run(tmp_path: Path) -> None:
    job = Job("none", 0, TASK, small_settings(), channel=tmp_path / "0")
    run(job)
    assert job.channel is not None
    assert 1 <= int(job.channel.read_text()) <= 5
    (tmp_path / STOP).touch()
    with pytest.raises(Stopped):
        run(job)


def test_a_run_whose_channel_is_taken_away_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who would read its result has ended."""
    monkeypatch.setattr(running, "_REPORT_EVERY", 0.0)
    (tmp_path / "channels").mkdir()
    write = running._channel_writer(tmp_path / "channels" / "0")
    write(1)
    assert (tmp_path / "channels" / "0").read_text() == "1"
    shutil.rmtree(tmp_path / "channels")
    with pytest.raises(Stopped):
        write(2)


def test_a_channel_that_cannot_be_written_costs_no_run(tmp_path: Path) -> None:
    job = Job("none", 0, TASK, small_settings(), channel=tmp_path / "no folder" / "0")
    assert run(job).result.scores == run(replace(job, channel=None)).result.scores
