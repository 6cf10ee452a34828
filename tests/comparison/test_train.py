"""Training: the schedule, AdamW and the clipping by hand, seeds, looks, and training that goes astray."""

import copy
from dataclasses import replace
from math import cos, log, pi
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.run import Job, Run, run
from whatwhere.comparison.settings import Settings, make_settings
from whatwhere.comparison.tasks import Batch, Expressions
from whatwhere.comparison.train import Trained, build, deterministic, train

SMALL: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 12, "device": "cpu"}


def small_settings(**given: Any) -> Settings:
    return make_settings("expressions", [8], **SMALL | given)


def trained(model: Transformer, settings: Settings, seed: int = 0, task: Expressions | None = None) -> Trained:
    return train(model, seed, Expressions() if task is None else task, settings)


class Watched(torch.optim.AdamW):
    """AdamW that remembers what it was given at each step."""

    made: list["Watched"]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rates: list[float] = []
        self.gradients: list[list[Tensor]] = []
        Watched.made.append(self)

    def step(self, *args: Any, **options: Any) -> Any:
        (group,) = self.param_groups
        self.rates.append(group["lr"])
        self.gradients.append([torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in group["params"]])
        return super().step(*args, **options)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    Watched.made = []
    monkeypatch.setattr(torch.optim, "AdamW", Watched)
    return Watched.made


def test_the_learning_rate_of_the_demo(watched: list[Watched], monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 2e-3 over 66 steps, then down a cosine to 5 % of it: 1e-4."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # checks make steps long, as layers do
    monkeypatch.setattr(Transformer, "forward", lambda self, ids, *_: self.lm_head(self.input.tokens(ids[:, 0])))
    settings = small_settings(steps=800, dim=2, heads=1, layers=1, feedforward=1, batch=1)
    trained(build("none", 0, Expressions(), settings), settings)
    rates = dict(enumerate(watched[0].rates, start=1))
    assert len(rates) == 800
    assert rates[1] == pytest.approx(2e-3 / 66)
    assert rates[33] == pytest.approx(1e-3)
    assert rates[66] == pytest.approx(2e-3)
    assert rates[433] == pytest.approx((2e-3 + 1e-4) / 2)  # half way from 66 to 800
    assert rates[66 + 367 // 2] == pytest.approx(1e-4 + 1.9e-3 * (1 + cos(pi * (367 // 2) / 734)) / 2)
    assert rates[800] == pytest.approx(1e-4)


def test_a_constant_schedule_and_a_short_one(watched: list[Watched]) -> None:
    adamw = {"betas": (0.8, 0.9), "weight_decay": 0.3}
    constant = small_settings(steps=3, schedule="constant", learning_rate=1e-3, **adamw)
    for settings in (constant, small_settings(steps=2)):
        trained(build("none", 0, Expressions(), settings), settings)
    assert watched[0].rates == [1e-3] * 3
    assert adamw.items() <= watched[0].defaults.items()
    assert watched[1].rates == pytest.approx([2e-3, 1e-4])


def gradients_by_hand(model: Transformer, batch: Batch) -> tuple[float, list[Tensor], float]:
    """Differentiate the mean of -log p(answer) over the expressions that are asked; give the norm of it all, too."""
    scored = batch.targets >= 0
    assert 0 < int(scored.sum()) < len(scored), "some are held out"
    logits = model(batch.ids)[:, -1]
    loss = -logits.log_softmax(-1)[scored].gather(1, batch.targets[scored][:, None]).mean()
    result = torch.autograd.grad(loss, list(model.parameters()))
    return loss.item(), list(result), float(torch.cat([g.flatten() for g in result]).double().norm())


@pytest.mark.parametrize(("loudness", "clips"), [(30.0, True), (0.1, False)])
def test_gradients_are_clipped_at_norm_one(loudness: float, clips: bool, watched: list[Watched]) -> None:
    settings = small_settings(steps=1, batch=64)
    model = build("learned", 5, Expressions(), settings)
    with torch.no_grad():
        model.norm.weight *= loudness
    batch = Expressions().sample(64, torch.Generator().manual_seed(1005))
    loss, expected, norm = gradients_by_hand(copy.deepcopy(model), batch)
    assert norm > 1.5 if clips else norm < 0.9
    result = trained(model, settings, seed=5)
    assert result.losses == ((1, pytest.approx(loss, rel=1e-5)),)
    for actual, raw in zip(watched[0].gradients[0], expected, strict=True):
        torch.testing.assert_close(actual, raw / norm if clips else raw, rtol=1e-4, atol=1e-6)


def test_batches_are_the_same_for_all_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    def sampled(scheme: str, seed: int) -> list[Tensor]:
        task, settings, seen = Expressions(), small_settings(steps=5), []
        sample = task.sample
        monkeypatch.setattr(task, "sample", lambda *a: (seen.append(sample(*a)), seen[-1])[1])
        trained(build(scheme, seed, task, settings), settings, seed, task)
        return [batch.ids for batch in seen]

    first = sampled("none", 2)
    assert [len(ids) for ids in first] == [12] * 5
    assert all(map(torch.equal, first, sampled("learned", 2)))
    other = sampled("none", 3)
    assert not all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_losses_hold_the_first_and_the_last_step_and_start_at_chance() -> None:
    settings = small_settings(steps=120, init=0.01)
    result = trained(build("none", 0, Expressions(), settings), settings)
    steps = [step for step, _ in result.losses]
    assert (steps[0], steps[-1]) == (1, 120)
    assert 50 <= len(steps) <= 62
    assert result.losses[0][1] == pytest.approx(log(20), abs=0.5)
    assert result.losses[-1][1] < result.losses[0][1] - 0.3


@pytest.mark.parametrize("steps", [1, 2, 60])
def test_training_that_diverges_is_reported(steps: int) -> None:
    settings = small_settings(steps=steps, learning_rate=1e38)
    words = r"not finite: training diverged at learning_rate=1e\+38\.\nPass a smaller one(.|\n)*the scheme itself"
    with pytest.raises(ww.errors.SettingError, match=words):
        run(Job("learned", 0, Expressions(), settings))


def test_what_is_not_finite_first_is_named_with_its_step_and_the_weights_are_kept() -> None:
    settings = small_settings(steps=50)  # the loss of step 2 is kept by no one, but seen
    name = "blocks.0.feed.2.weight"

    def poisoned(what: str) -> str:
        model, before = build("none", 0, Expressions(), settings), dict[str, Tensor]()

        def poison(step: int) -> None:
            if step != 1:
                return
            weight = dict(model.named_parameters())[name]
            if what == "weight":
                weight.data[0, 0] = float("nan")
            elif what == "gradient":
                weight.register_hook(lambda gradient: gradient / 0)
            else:
                weight.data.fill_(3e38)
            before.update({key: value.clone() for key, value in model.state_dict().items()})

        with pytest.raises(ww.errors.SettingError) as problem:
            train(model, 0, Expressions(), settings, poison)
        for key, value in model.state_dict().items():
            torch.testing.assert_close(value, before[key], rtol=0, atol=0, equal_nan=True)
        return str(problem.value)

    for what, said in (
        ("weight", f"the weight {name} is, after step 1, not finite: training diverged"),
        ("gradient", f"the gradient of {name} is, at step 2, not finite: training diverged"),
        ("loss", "the loss is, at step 2, not finite: training diverged"),
    ):
        assert poisoned(what).startswith(said)


def test_two_runs_with_one_seed_have_equal_bytes_on_one_thread_and_on_two() -> None:
    """Runs compute on one thread, whatever the number of threads around them."""
    before = torch.get_num_threads()
    found = []
    for threads in (1, 1, 2):
        torch.set_num_threads(threads)
        try:
            found.append(run(Job("rotary", 0, Expressions(), small_settings(steps=3))))
        finally:
            torch.set_num_threads(before)
    first = found[0]
    for other in found[1:]:
        assert other.result.losses == first.result.losses
        assert other.result.scores == first.result.scores
        assert bytes_of(other) == bytes_of(first)


def bytes_of(run: Run) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in run.tensors.items()}


def test_deterministic_algorithms_are_used_while_a_run_wants_them() -> None:
    seen = []

    def on_step(step: int, loss: float | None) -> None:
        seen.append((torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()))

    settings = small_settings(steps=2)
    plain = run(Job("rotary", 0, Expressions(), settings), on_step)
    other = run(Job("rotary", 0, Expressions(), replace(settings, deterministic=True)), on_step)
    assert seen == [(False, 1), (False, 1), (True, 1), (True, 1)]
    assert not torch.are_deterministic_algorithms_enabled()
    assert bytes_of(other) == bytes_of(plain)


def test_what_is_not_deterministic_is_refused() -> None:
    with (
        pytest.raises(ww.errors.SettingError, match=r"not deterministic: put_.*\nLeave out --deterministic"),
        deterministic(True),
    ):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(RuntimeError, match=r"^another$"), deterministic(True):
        raise RuntimeError("another")
