"""The setting `positions`: positions that are sampled in training and in the tests alike."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.comparison import measure
from whatwhere.comparison.model import Transformer, with_max_length
from whatwhere.comparison.settings import Settings, make_settings
from whatwhere.comparison.tasks import Expressions
from whatwhere.comparison.train import build, train

TASK = Expressions((1, 2, 3))  # 4 to 8 tokens
DRAWN = ("randomized", "random_offset")
SMALL: dict[str, Any] = {"dim": 16, "heads": 2, "layers": 1, "feedforward": 16, "test_sequences": 40, "device": "cpu"}


def small_settings(**given: Any) -> Settings:
    settings = make_settings("expressions", given.pop("lengths", (5,)), **(SMALL | {"steps": 3, "batch": 6} | given))
    return with_max_length(settings, TASK)


class Watched(Transformer):
    """A model that remembers where the tokens stood."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(20, [ww.Where()] * settings.layers, settings)
        self.seen: list[ww.Positions | None] = []
        self.read: list[Tensor] = []

    def forward(self, ids: Tensor, at: int | None = None, p: ww.Positions | None = None) -> Tensor:
        self.seen.append(p)
        self.read.append(ids)
        return super().forward(ids, at, p)


def watched(settings: Settings) -> Watched:
    torch.manual_seed(0)
    return Watched(settings)


def trained(settings: Settings, seed: int = 0) -> list[ww.Positions | None]:
    model = watched(settings)
    train(model, seed, TASK, settings)
    return model.seen


def require_sampled(settings: Settings, p: ww.Positions, shift: int = 0) -> None:
    """Every sequence stands elsewhere; gaps are 1, or larger if randomized."""
    index = p.index[0] - shift
    assert settings.max_length is not None
    assert ((index >= 0) & (index < settings.max_length)).all()
    gaps = index.diff()
    assert (gaps >= 1).all()
    assert bool((gaps > 1).any()) == (settings.positions == "randomized")
    assert len({tuple(row) for row in index.tolist()}) > 1


def test_consecutive_positions_are_not_sampled() -> None:
    settings = small_settings()
    assert (settings.positions, settings.max_length) == ("plain", None)
    assert trained(settings) == [None] * 3
    model = watched(settings)
    measure.scores(model, TASK, 3, settings)
    assert all(torch.equal(p.index, ww.positions(8).index) for p in model.seen if p is not None)
    assert None not in model.seen


@pytest.mark.parametrize("positions", DRAWN)
def test_training_samples_anew_for_each_step_and_sequence(positions: str) -> None:
    settings = small_settings(positions=positions)
    first, other = trained(settings), trained(settings, seed=1)
    for p in first:
        assert p is not None
        require_sampled(settings, p)
    assert len({str(p.index.tolist()) for p in [*first, *other] if p is not None}) == 6
    again = trained(settings)
    assert [str(p.index) for p in again if p is not None] == [str(p.index) for p in first if p is not None]


@pytest.mark.parametrize("positions", DRAWN)
def test_drawing_leaves_the_batches_as_they_are(positions: str) -> None:
    """Schemes are compared on the same sequences, wherever these stand."""
    result = []
    for settings in (small_settings(), small_settings(positions=positions)):
        model = watched(settings)
        train(model, 3, TASK, settings)
        result.append(model.read)
    assert all(torch.equal(a, b) for a, b in zip(*result, strict=True))


@pytest.mark.parametrize("positions", DRAWN)
def test_the_tests_sample_the_same_positions_for_every_model_and_the_shift_test_shifts_them(positions: str) -> None:
    settings, models = small_settings(positions=positions), [watched(small_settings()), watched(small_settings())]
    for model in models:
        measure.scores(model, TASK, 5, settings)
    first, second = ([p for p in model.seen if p is not None] for model in models)
    assert [str(p.index) for p in first] == [str(p.index) for p in second]
    for p in first:
        require_sampled(settings, p)
    model = watched(settings)
    measure.shift_test(model, TASK, settings)
    still, *moved = (p for p in model.seen if p is not None)
    for p in (still, *moved):
        assert any(torch.equal(p.index, still.index + shift) for shift in measure.SHIFTS)
    assert [int((p.index - still.index).max()) for p in moved] == list(measure.SHIFTS)


def test_a_learned_table_has_a_row_for_every_position_that_is_sampled() -> None:
    assert build("learned", 0, TASK, small_settings()).wheres[0].input.weight.shape[0] == 8
    settings = small_settings(positions="randomized", max_length=50)
    model = build("learned", 0, TASK, settings)
    assert model.wheres[0].input.weight.shape[0] == 50
    result = measure.shift_test(model, TASK, settings)
    assert result[0].score is not None
    assert result[60].score is None
    assert measure.scores(model, TASK, 12, settings)["all"] is not None


def test_max_length_is_twice_the_longest_sequence_unless_it_is_given() -> None:
    assert small_settings(positions="randomized", lengths=(5, 9)).max_length == 2 * 20
    assert small_settings(positions="randomized", lengths=()).max_length == 2 * 8
    assert small_settings(positions="random_offset", max_length=33).max_length == 33
    with pytest.raises(
        ww.errors.SettingError, match="max_length=11 for positions='randomized', but the longest sequence has 12"
    ):
        small_settings(positions="randomized", max_length=11)


@pytest.mark.parametrize("positions", DRAWN)
def test_compare_records_how_positions_are_sampled(positions: str, tmp_path: Path) -> None:
    settings = SMALL | {"steps": 2, "trained": (1, 2), "positions": positions, "workers": 1, "progress": False}
    report = ww.compare(["learned", "rotary", "ssmax"], lengths=[4], seeds=1, out=tmp_path / "a", **settings)
    result = report.record.settings
    assert (result.positions, result.max_length, result.test_positions) == (positions, 20, "same")
    again = ww.compare(
        ["learned", "rotary", "ssmax"], lengths=[4], seeds=1, out=tmp_path / "a", **settings, max_length=20
    )
    assert again.summary == report.summary
    with pytest.raises(ww.errors.ResultsError, match="max_length is 20, here 21"):
        ww.compare(["learned"], lengths=[4], seeds=1, out=tmp_path / "a", **settings, max_length=21)


def test_compare_warns_of_tests_at_consecutive_positions(tmp_path: Path) -> None:
    settings = SMALL | {"steps": 1, "trained": (1, 2), "workers": 1, "progress": False}
    settings |= {"positions": "randomized", "test_positions": "plain"}
    with pytest.warns(ww.errors.RandomPositionsWarning, match="Leave test_positions out"):
        ww.compare(["none"], lengths=[], seeds=1, out=tmp_path, **settings)
