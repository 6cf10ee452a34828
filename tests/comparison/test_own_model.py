"""A model of the caller's own: checked before any run, trained, kept, asked, and recorded."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whatwhere as ww
from tests.comparison import own_decoder
from tests.comparison.own_decoder import Decoder
from whatwhere.comparison import Comparison, ask, compare, load_model, measure
from whatwhere.comparison.own_model import OwnModel, check_model, is_model_builder
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions, Text
from whatwhere.comparison.train import one_thread
from whatwhere.errors import ResultsError, SettingError
from whatwhere.report.comparison import sections, settings
from whatwhere.where.catalogue import catalogue
from whatwhere.where.score_bias import DistanceBias

SMALL: dict[str, Any] = {"dim": 16, "heads": 2, "batch": 8, "test_sequences": 20, "steps": 2}
CALL: dict[str, Any] = {"lengths": [4], "trained": [2, 3], "workers": 1, "progress": False}
TASK = Expressions((1, 2, 3))
SETTINGS = make_settings("expressions", [8], dim=32, heads=2)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(["learned", "alibi"], seeds=[3], out=tmp_path_factory.mktemp("own"), model=Decoder, **SMALL, **CALL)


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("scheme", [*catalogue, "rotary/none", "none/rotary", "rotary+alibi", "learned+rotary/t5"])
def test_a_right_model_passes_with_every_scheme(scheme: str) -> None:
    assert check_model(Decoder, scheme, TASK, SETTINGS).reads == ("dim", "heads", "layers")


@pytest.mark.parametrize(
    ("model", "scheme", "message"),
    [
        (own_decoder.SeesLaterTokens, "none", "sees later tokens"),
        (own_decoder.LEAKS_OF_TRAINING, "rotary", "sees later tokens in training"),
        (own_decoder.CountsItself, "rotary", "do not change with positions"),
        (own_decoder.FirstOfAll, "none/rotary", "do not change with positions"),
        (own_decoder.FirstOfAll, "rotary/none", "do not change with positions"),
        (own_decoder.NoBias, "rotary+alibi", "do not change with positions"),
        (own_decoder.NoBias, "t5", "no gradient reaches wheres.0.score"),
        (own_decoder.OwnPositions, "none", "has a positional encoding of its own"),
        (own_decoder.Bag, "none", "no gradient reaches left.weight, left.bias of Bag"),
        (own_decoder.ROUNDS, "none", "no gradient reaches number of"),
        (own_decoder.NoAttention, "none", "no working attention"),
        (own_decoder.OneLogit, "none", r"logits of every token are needed: \(2, 8, 20\)"),
        (own_decoder.Broken, "none", "RuntimeError when it was called: mat1"),
        (own_decoder.Noisy, "none", "other logits when it is called again"),
        (own_decoder.NotFinite, "none", "not finite"),
        (lambda vocab_size, wheres, settings: 3, "none", "returned int, but must return a torch.nn.Module"),
        (lambda vocab_size, wheres, settings: wheres[9], "none", "IndexError when it was built"),
    ],
)
def test_a_faulty_model_is_refused(model: Any, scheme: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        check_model(model, scheme, TASK, make_settings("expressions", [8]))


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("model", own_decoder.LEAKING.values(), ids=own_decoder.LEAKING)
@pytest.mark.parametrize("task", [TASK, Expressions((1, 2)), Text(b"the cat sat on the mat. " * 40, trained=(19,))])
def test_a_model_that_sees_a_little_of_later_tokens_is_refused(model: Any, task: Any) -> None:
    settings = make_settings(task.name, [24], dim=16, heads=2)
    with pytest.raises(SettingError, match="sees later tokens: those"):
        check_model(model, "rotary", task, settings)


@pytest.mark.parametrize("model", own_decoder.RIGHT.values(), ids=own_decoder.RIGHT)
def test_what_rounds_with_later_tokens_or_begins_at_zero_is_right(model: Any) -> None:
    check_model(model, "rotary", TASK, SETTINGS)


class Curve(DistanceBias):
    """Minus a learned number times the distance, as `used` takes the number."""

    def __init__(self, used: Callable[[nn.Parameter], Tensor], trained: bool = True) -> None:
        super().__init__()
        self.num_heads, self.used = 2, used
        self.slope, self.factor = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(()))
        self.slope.requires_grad_(trained)

    def curve(self, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
        slope = self.used(self.slope)
        return lambda head, distance: -slope[head] * distance * self.factor


@pytest.mark.parametrize(
    "used",
    [Tensor.detach, lambda slope: slope.data, lambda slope: 0 * slope, lambda slope: torch.tensor(slope.tolist())],
)
@pytest.mark.parametrize("model", [None, Decoder])
def test_a_scheme_whose_numbers_get_no_gradient_is_refused(used: Any, model: Any, tmp_path: Path) -> None:
    scheme = ("mine", lambda dim, heads, rows: ww.Where(score=Curve(used)))
    with pytest.raises(SettingError, match=r"no gradient reaches .*wheres.0.score.slope"):
        compare([scheme], seeds=1, out=tmp_path / "a", model=model, **SMALL, **CALL)
    assert not (tmp_path / "a").exists()


class Foresees(ww.SelectiveRoPE):  # type: ignore[misc]
    """It rotates by what later tokens hold too."""

    def increments(self, x: Tensor) -> Tensor:
        return super().increments(x + 1e-3 * x.mean(1, keepdim=True))


@pytest.mark.parametrize("model", [None, Decoder])
def test_a_scheme_that_sees_later_tokens_is_refused(model: Any, tmp_path: Path) -> None:
    for built, leaks in ((ww.SelectiveRoPE, False), (Foresees, True)):
        scheme = ("mine", lambda dim, heads, rows, built=built: ww.Where(query_key=built(dim, dim // heads, heads)))
        with pytest.raises(SettingError, match="sees later tokens") if leaks else nullcontext():
            compare([scheme], seeds=1, out=tmp_path / str(leaks), model=model, **SMALL, **CALL)


@pytest.mark.parametrize("model", [None, Decoder])
def test_numbers_that_are_no_parameters_but_want_a_gradient_are_refused(model: Any, tmp_path: Path) -> None:
    class Listed(Curve):
        def __init__(self) -> None:
            super().__init__(lambda slope: slope * self.more[0])
            self.more = [nn.Parameter(torch.ones(2))]

    scheme = ("mine", lambda dim, heads, rows: ww.Where(score=Listed()))
    with pytest.raises(SettingError, match=r"of shape \(2,\) that requires a gradient, but is not a parameter"):
        compare([scheme], seeds=1, out=tmp_path / "a", model=model, **SMALL, **CALL)


class Alone(ww.InputEncoding):  # type: ignore[misc]
    """A table in a list, without any parameter of the module; one that counts its calls; one that is sampled."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.dim, self.kind, self.calls = 16, kind, 0
        self.table, self.sampled = [nn.Parameter(torch.randn(64, 16))], float(np.random.default_rng().random())

    def forward(self, positions: Any) -> Tensor:
        self.calls += 1
        rows = self.table[0][ww.position.positions.as_positions(positions).index[0]]
        other = {"list": rows, "counts": rows.detach() * self.calls, "random": torch.rand_like(rows)}
        other |= {"numpy": rows.detach() * self.sampled, "length": rows.detach() * rows.shape[1]}
        return other[self.kind]


def test_a_scheme_that_declares_to_follow_the_length_is_compared(tmp_path: Path) -> None:
    def dynamic(dim: int, heads: int, rows: int) -> ww.Where:
        return ww.Where(ww.Rotary(dim // heads, scaling=ww.scaling.DynamicNTK(factor=2.0, original_length=4)))

    sizes = {"steps": 1, "dim": 16, "heads": 2, "workers": 1, "progress": False}
    assert ww.compare([("dynamic", dynamic)], lengths=[8], seeds=1, out=tmp_path, **sizes).runs


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("list", "not a parameter"),
        ("counts", "keep nothing from call to call"),
        ("random", "Sample only where"),
        ("numpy", "when it is built again"),
        ("length", "sees how many tokens follow"),
    ],
)
def test_a_scheme_without_parameters_that_is_not_a_function_of_positions_is_refused(
    kind: str, message: str, tmp_path: Path
) -> None:
    scheme = ("mine", lambda dim, heads, rows: ww.Where(input=Alone(kind)))
    with pytest.raises(SettingError, match=message):
        compare([scheme], seeds=1, out=tmp_path / "a", **SMALL, **CALL)


class Dropped(Decoder):
    """A decoder that samples in training."""

    def forward(self, ids: Tensor, positions: Any = None, **more: Any) -> Tensor:
        return nn.functional.dropout(super().forward(ids, positions, **more), 0.2, self.training)


def test_dropout_is_that_of_the_seed(tmp_path: Path) -> None:
    losses = []
    for n in range(2):
        torch.manual_seed(n)
        (run,) = compare(["rotary"], seeds=1, out=tmp_path / str(n), model=Dropped, **SMALL, **CALL).runs
        losses.append(run.losses)
    assert losses[0] == losses[1]


def test_a_scheme_that_begins_at_zero_or_is_not_to_be_trained_is_taken(tmp_path: Path) -> None:
    """At the start both gradients are zero: each is a product with the other number."""
    full = [(lambda slope: slope, True), (Tensor.detach, False), (lambda slope: (slope + 1).clamp(0, 1), True)]
    for n, (used, trained) in enumerate(full):
        scheme = ("mine", lambda dim, heads, rows, used=used, trained=trained: ww.Where(score=Curve(used, trained)))
        (run,) = compare([scheme], seeds=1, out=tmp_path / str(n), **SMALL, **CALL).runs
        assert run.parameters.positions == (3 if trained else 1)


def test_an_encoder_needs_later_tokens() -> None:
    encoder = make_settings("expressions", [8], dim=32, heads=2, direction="encoder")
    check_model(own_decoder.SeesLaterTokens, "rotary", Expressions((1, 2, 3), "encoder"), encoder)
    with pytest.raises(SettingError, match="the token after it, which direction='encoder' needs"):
        check_model(Decoder, "rotary", Expressions((1, 2, 3), "encoder"), encoder)


@pytest.mark.parametrize("changed", [{"tied": True}, {"feedforward": 8}, {"table": "rank2"}, {"init": 0.5}])
def test_a_setting_that_the_model_does_not_read_is_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    (name,) = changed
    with pytest.raises(SettingError, match=f"{name}=.* changes nothing: Decoder does not read settings.{name}"):
        compare(["none"], seeds=1, out=tmp_path / "a", model=Decoder, **{**SMALL, **CALL}, **changed)
    assert not (tmp_path / "a").exists()


def test_a_reloaded_model_scores_what_the_run_did(results: Comparison) -> None:
    for run in results.runs:
        model = load_model(results, run, model=Decoder)
        with one_thread():
            again = {n: measure.scores(model, Expressions((2, 3)), n, results.record.settings) for n in run.scores}
        assert again == run.scores
        assert not model.training


def test_schemes_start_from_the_same_tokens_and_layers() -> None:
    first, second = (
        dict(OwnModel(20, [where, where], SETTINGS, Decoder, seed=5).model.blocks.named_parameters())
        for where in (ww.Where(), ww.Where(ww.T5(2)))
    )
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = OwnModel(20, [ww.Where()], SETTINGS, Decoder, seed=6).model.input.tokens.weight
    assert not torch.equal(other, OwnModel(20, [ww.Where()], SETTINGS, Decoder, seed=5).model.input.tokens.weight)


def test_what_is_counted_and_recorded(results: Comparison) -> None:
    learned, alibi = results.runs
    assert learned.parameters.tokens == 20 * 16
    assert (learned.parameters.positions, alibi.parameters.positions) == (8 * 16, 0)
    assert learned.parameters.total - alibi.parameters.total == 8 * 16
    assert set(results.tables(alibi)) >= {"input.tokens.weight", "input.tokens.weight@0"}
    record = results.record
    assert record.model is not None
    assert (record.model.name, record.model.reads) == ("Decoder", ("dim", "heads", "layers"))
    assert record.command is not None
    assert "--module tests.comparison.own_decoder:Decoder" in record.command


def test_the_report_names_the_model_and_no_setting_that_it_does_not_read(results: Comparison) -> None:
    text = repr(sections(results))
    assert "one model (your own, Decoder; learning rate 0.002; dim 16; layers 2; heads 2)" in text
    rows = dict(settings(results).rows)
    assert rows["model"] == "Decoder, not whatwhere's"
    assert rows["dim"] == "16"
    assert not {"feedforward", "table", "tied", "init"} & rows.keys()


def test_models_are_asked_by_the_same_function(results: Comparison) -> None:
    answers = ask(results, "First(6,2,1)", model=Decoder, schemes=["alibi"])
    assert answers.correct == "6"
    assert answers.answers[0].attention == ()
    with pytest.raises(SettingError, match=r"built by 'Decoder'(.|\n)*model=Decoder"):
        ask(results, "First(6,2,1)", schemes=["alibi"])


def test_another_model_needs_another_folder(results: Comparison) -> None:
    with pytest.raises(ResultsError, match="there model is 'Decoder', here None"):
        compare(["learned"], seeds=[3], out=results.folder, **SMALL, **CALL)
    with pytest.raises(SettingError, match="leave model out"):
        load_model(Comparison(results.folder, replace(results.record, model=None)), results.runs[0], model=Decoder)
    other = type("Decoder", (own_decoder.NoBias,), {})
    with pytest.raises(ResultsError, match="or the model, has changed"):
        compare(["learned"], seeds=[3], out=results.folder, model=other, **SMALL, **CALL)


def test_a_builder_of_models_is_known_by_its_arguments() -> None:
    assert is_model_builder(Decoder)
    assert is_model_builder(own_decoder.zero_at_first)
    assert not is_model_builder(lambda dim, num_heads, max_length: ww.Where())
    assert not is_model_builder(int)
