"""One run: what its record, its tensors, its drawing and its trace hold, and the channel that ends it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.comparison import measure
from whatwhere.comparison.folder import Folder
from whatwhere.comparison.model import build_wheres
from whatwhere.comparison.read import read_results
from whatwhere.comparison.results import SchemeView
from whatwhere.comparison.run import STOP, Job, Run, Stopped, run, view_of
from whatwhere.comparison.saved_model import saved_tensors
from whatwhere.comparison.settings import Settings, make_settings
from whatwhere.comparison.tasks import Expressions
from whatwhere.comparison.train import build, one_thread, train
from whatwhere.errors import ResultsError

from .conftest import SMALL
from .made_up import made_up_folder

DIM, HEADS, TASK = 16, 2, Expressions(trained=(2, 3))  # 3 arguments are 8 tokens, 4 are 10


def small_settings(**given: Any) -> Settings:
    return make_settings("expressions", given.pop("lengths", [4]), **SMALL | {"steps": 5} | given)


def test_a_result_contains_every_length_and_every_snapshot() -> None:
    result = run(Job("learned", 7, TASK, small_settings(lengths=[4, 2, 9]))).result
    assert (result.scheme, result.seed, result.steps) == ("learned", 7, 5)
    assert list(result.scores) == [2, 3, 4, 9]
    known = [result.scores[length]["all"] for length in (2, 3)]
    assert result.in_length == pytest.approx(sum(score for score in known if score is not None) / 2)
    assert [snapshot.percent for snapshot in result.token_table] == [0, 20, 100]
    assert [snapshot.number_line is None for snapshot in result.token_table] == [True, False, False]
    assert 0 < result.seconds_per_step * 5 < result.seconds
    assert [step for step, _ in result.held_out] == [0, 1, 2, 3, 4, 5]


def test_held_out_losses_and_tables_are_those_of_the_model_then_and_leave_the_training_as_it_is() -> None:
    settings = small_settings(steps=30)
    done, seen, tables = run(Job("learned", 7, TASK, settings)), list[tuple[int, float]](), {}
    model, sets = build("learned", 7, TASK, settings), measure.validation_sets(TASK, settings)

    def look(step: int) -> None:
        if step in (0, 6, 30):
            tables[step] = model.input.tokens.weight.detach().clone().numpy()
        if step % 3 == 0:
            losses = []
            for each in sets:
                with torch.no_grad():
                    p = model(each.ids, each.at).double().softmax(-1)
                losses.append(-p.gather(-1, each.targets[:, None]).log().mean().item())
            seen.append((step, sum(losses) / len(losses)))

    with one_thread():
        assert train(model, 7, TASK, settings, look).losses == done.result.losses
    assert [step for step, _ in done.result.held_out] == [step for step, _ in seen]
    assert [loss for _, loss in done.result.held_out] == pytest.approx([loss for _, loss in seen], rel=1e-5)
    assert set(done.tensors) == {"input.tokens.weight@0", "input.tokens.weight@20", *saved_tensors(model)}
    for name, step in (("@0", 0), ("@20", 6), ("", 30)):
        np.testing.assert_array_equal(done.tensors[f"input.tokens.weight{name}"], tables[step])


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


def view(scheme: Any, **given: Any) -> SchemeView:
    (where,) = build_wheres(scheme, DIM, HEADS, 8, 1)
    return view_of(where, TASK, small_settings(**given))


def test_the_doors_and_the_drawing_of_a_scheme() -> None:
    assert view("none") == SchemeView((), None, None)
    assert view("learned+rotary+alibi").doors == ("input", "query_key", "score")
    result = view("learned")
    assert len(result.fingerprint.values) == 8, "a table is drawn to its end"
    assert result.by_distance.distances == tuple(range(8))


def test_a_stop_file_ends_a_run(tmp_path: Path) -> None:
    job = Job("none", 0, TASK, small_settings(), channel=tmp_path / "0")
    run(job)
    assert job.channel is not None
    assert 1 <= int(job.channel.read_text().split()[0]) <= 5
    (tmp_path / STOP).touch()
    with pytest.raises(Stopped):
        run(job)


def test_a_channel_that_cannot_be_written_costs_no_run(tmp_path: Path) -> None:
    job = Job("none", 0, TASK, small_settings(), channel=tmp_path / "no folder" / "0")
    assert run(job).result.scores == run(replace(job, channel=None)).result.scores


# The trace of a run: tables through the training, and attention by distance beside NumPy


@pytest.fixture(scope="module")
def traced() -> Run:
    """Return one run: learned positions, seed 2."""
    return run(Job("learned", 2, TASK, small_settings()))


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
