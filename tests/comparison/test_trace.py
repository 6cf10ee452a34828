"""The trace of a run: which tables it keeps, what is kept of large ones, and attention by distance beside NumPy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from whatwhere.comparison import measure
from whatwhere.comparison.folder import Folder
from whatwhere.comparison.read import read_results
from whatwhere.comparison.run import Job, Run, run
from whatwhere.comparison.settings import Settings, make_settings
from whatwhere.comparison.tasks import Expressions
from whatwhere.comparison.train import build
from whatwhere.errors import ResultsError

from .made_up import made_up_folder

DIM, HEADS, TASK = 16, 2, Expressions(trained=(2, 3))  # 3 arguments are 8 tokens, 4 are 10


def small_settings(**given: Any) -> Settings:
    small: dict[str, Any] = {
        "dim": DIM,
        "heads": HEADS,
        "feedforward": 16,
        "batch": 8,
        "test_sequences": 20,
        "device": "cpu",
        "steps": 5,
    }
    return make_settings("expressions", given.pop("lengths", [4]), **small | given)


@pytest.fixture(scope="module")
def traced() -> Run:
    """Return one run: learned positions, seed 2."""
    return run(Job("learned", 2, TASK, small_settings()))


@pytest.mark.parametrize(("steps", "kept"), [(1, 2), (3, 3), (49, 26), (99, 51), (100, 26), (800, 26), (12_500, 26)])
def test_a_few_dozen_tables_are_kept_evenly(steps: int, kept: int) -> None:
    recorder = measure.Recorder(torch.zeros(2, 3), steps)
    for step in range(1, steps + 1):
        recorder.record(step, torch.full((2, 3), float(step)))
    result = recorder.tensors()
    at = result["steps"].tolist()
    assert (at[0], at[-1], len(at)) == (0, steps, kept)
    assert len(set(np.diff(at[:-1]).tolist())) <= 1
    assert result["tables"].tolist() == [[[float(step)] * 3] * 2 for step in at]


def test_tables_that_are_too_large_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LARGEST", 26 * 6 - 1)
    assert measure.Recorder(torch.zeros(2, 3), 800).tensors() == {}
    monkeypatch.setattr(measure, "LARGEST", 26 * 6)
    assert measure.Recorder(torch.zeros(2, 3), 800).tensors()["steps"].tolist() == [0]


def test_the_trace_of_a_run_joins_its_losses_and_its_tables(traced: Run) -> None:
    steps = traced.trace["steps"].tolist()
    assert steps == [0, 2, 4, 5]
    assert set(steps[1:]) <= {step for step, _ in traced.result.losses}
    np.testing.assert_array_equal(traced.trace["tables"][0], traced.tensors["input.tokens.weight@0"])
    np.testing.assert_array_equal(traced.trace["tables"][-1], traced.tensors["input.tokens.weight"])
    # Learned positions have no rows for 4 arguments, so there is attention at 3 alone.
    assert set(traced.trace) == {"steps", "tables", "attention@3", "uniform@3"}
    assert traced.trace["attention@3"].shape == (2, HEADS, 8)
    assert traced.trace["uniform@3"][1].tolist() == [0.125] * 8, "the last layer is asked at the last of 8 tokens alone"
    assert traced.trace["uniform@3"][0].tolist() == pytest.approx(
        averaged(np.tril(1 / np.arange(1, 9)[:, None] * np.ones(8)), 8)
    )


def test_a_trace_is_kept_read_again_and_not_looked_for_elsewhere(traced: Run, tmp_path: Path) -> None:
    kept = Folder(tmp_path / "a", TASK, small_settings(), [Job("learned", 0, TASK, small_settings())]).keep(traced)
    comparison = replace(read_results(made_up_folder(tmp_path / "made up")), folder=tmp_path / "a")
    result = comparison.trace(kept.result)
    assert set(result) == set(traced.trace)
    for name, values in traced.trace.items():
        np.testing.assert_array_equal(result[name], values)
    assert comparison.trace(replace(kept.result, trace="")) == {}
    assert comparison.trace(replace(kept.result, trace="traces/gone.safetensors")) == {}
    with pytest.raises(ResultsError, match="outside its own folder"):
        comparison.trace(replace(kept.result, trace="../b"))


def blind(scheme: str, **given: Any) -> Any:
    """Build a model whose tokens have no queries: what is left of the scores is what the scheme adds."""
    settings = small_settings(**given)
    model = build(scheme, 0, TASK, settings)
    with torch.no_grad():
        for block in model._layers:
            block.qkv.weight[:DIM] = 0
    return model, settings


def averaged(weights: np.ndarray, tokens: int) -> list[float]:
    """Average over the queries that have a token so far back, in plain loops."""
    return [float(np.mean([weights[i, i - d] for i in range(d, tokens)])) for d in range(tokens)]


def test_attention_of_alibi_follows_its_slopes() -> None:
    model, settings = blind("alibi")
    result = measure.attention_by_distance(model, TASK, 4, settings)
    for head, slope in enumerate((2.0**-4, 2.0**-8)):
        scores = np.exp([[-slope * (i - j) if j <= i else -np.inf for j in range(10)] for i in range(10)])
        weights = scores / scores.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(result[0, head], averaged(weights, 10), rtol=1e-5)
        np.testing.assert_allclose(result[1, head], weights[9, ::-1], rtol=1e-5)  # the last token alone is asked


def test_heads_without_content_or_positions_attend_uniformly() -> None:
    for direction, at in (("decoder", 9), ("encoder", 0)):
        model, settings = blind("none", direction=direction)
        task = Expressions(trained=(2, 3), direction=direction)
        causal = direction == "decoder"
        result = measure.attention_by_distance(model, task, 4, settings)
        for layer, slot in ((0, None), (1, at)):
            even = measure.uniform_attention(10, slot, causal)
            assert len(even) == (10 if causal else 19)
            np.testing.assert_allclose(result[layer], [even] * HEADS, rtol=1e-5)
    assert np.isnan(even[10:]).all(), "an encoder's first token has nothing before it"
    np.testing.assert_allclose(even[:10], 0.1)


@pytest.mark.parametrize("scheme", ["none", "learned+rotary+alibi", "fox", "shaw", "rotary/none"])
def test_the_weights_are_those_that_the_forward_pass_uses(scheme: str) -> None:
    settings = small_settings()
    model = build(scheme, 0, Expressions(trained=(2, 4)), settings).eval()
    exam = TASK.test_set(4, 3)
    block = model._layers[-1]
    seen: dict[str, torch.Tensor] = {}
    block.out.register_forward_hook(lambda module, given, out: seen.update(gathered=given[0]))
    block.qkv.register_forward_hook(lambda module, given, out: seen.update(values=out[..., -DIM:]))
    with torch.no_grad():
        weights = model.weights(exam.ids)[-1]
        model(exam.ids)
    values = seen["values"].unflatten(-1, (HEADS, -1)).transpose(1, 2)
    torch.testing.assert_close((weights @ values).transpose(1, 2).flatten(-2), seen["gathered"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
