"""Asking trained models: correct answers, the run of the median, positions by hand, and the attention behind them."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import whatwhere as ww
from whatwhere.comparison import Comparison, ask, compare, load_model, read_results
from whatwhere.comparison.answers import median_run
from whatwhere.comparison.tasks import Expressions, Recall

from . import made_up
from .conftest import QUICK


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    schemes = ["none", "rotary+alibi", "learned", "fox"]
    return compare(schemes, seeds=3, steps=4, out=tmp_path_factory.mktemp("ask") / "a", **QUICK)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Second( 6, 2, 1 )", "2"),
        ("Second(4)", "4"),
        ("6,2", None),
        ("Max()", None),
        ("Max(6,2", None),
        ("Max(6(2)", None),
        ("Max(Max(1,2),3)", None),
        ("(", None),
    ],
)
def test_the_correct_answer_of_an_expression(text: str, expected: str | None) -> None:
    task = Expressions()
    ids, tokens = task.encode(text)
    assert tokens == [task.tokens[n] for n in ids]
    answer = task.answer(ids)
    assert (None if answer is None else task.tokens[answer]) == expected


@pytest.mark.parametrize("text", ["aK", "aKbL?", "aKaL?a", "aKbL?c", "KabL?a", "akbl?a", "aK?b?a", "?a", "a"])
def test_what_is_no_recall_sequence_has_no_correct_answer(text: str) -> None:
    task = Recall()
    assert task.answer(task.encode(text)[0]) is None


def test_a_model_is_asked_as_it_was_tested(results: Comparison) -> None:
    """Logits, by one forward pass of the reloaded model, are those of the answers."""
    answers = ask(results, "First(6,2,1)", seed="all")
    assert (answers.correct, answers.chosen, answers.trained) == ("6", "all", (6, 8))
    assert [(one.scheme, one.seed) for one in answers.answers] == [
        (scheme, seed) for scheme in results.schemes for seed in range(3)
    ]
    for one in answers.answers:
        run = next(run for run in results.runs if (run.scheme, run.seed) == (one.scheme, one.seed))
        with torch.no_grad():
            expected = load_model(results, run)(torch.tensor([answers.ids]))[0, -1].softmax(-1)
        assert one.top[0].id == expected.argmax()
        assert one.correct == (expected.argmax() == 8)
        assert one.top[0].probability == pytest.approx(expected.max().item(), rel=1e-4)
        assert one.correct_probability == pytest.approx(expected[8].item(), rel=1e-4)
        assert [part.probability for part in one.top] == sorted((p.probability for p in one.top), reverse=True)
        assert (one.positions, one.at) == (tuple(range(8)), 7)


@pytest.mark.parametrize("positions", [None, [0, 1, 2, 3, 4, 5, 6, 2], [7, 6, 5, 4, 3, 2, 1, 0]])
def test_the_attention_weights_reproduce_the_answer(positions: list[int] | None, results: Comparison) -> None:
    """With them in place of softmax(scores), the layers compute the same probabilities."""
    for one in ask(results, "Max(6,2,1)", positions=positions).answers:
        run = next(run for run in results.runs if (run.scheme, run.seed) == (one.scheme, one.seed))
        model = load_model(results, run)
        ids, p = torch.tensor([[15, 17, 8, 19, 4, 19, 3, 18]]), torch.tensor(one.positions)
        with torch.no_grad():
            x = model.input(ids, p)
            for block, weights in zip(model.blocks, one.attention, strict=True):
                np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
                assert not np.triu(weights, 1).any(), "causal, by the order of the tokens"
                v = block.qkv(block.norm_attention(x))[..., 32:].unflatten(-1, (2, 8)).transpose(1, 2)
                x = x + block.out((torch.from_numpy(weights) @ v).transpose(1, 2).flatten(-2))
                x = x + block.feed(block.norm_feed(x))
            expected = model.lm_head(model.norm(x))[0, one.at].softmax(-1)
        assert one.top[0].probability == pytest.approx(expected[one.top[0].id].item(), rel=1e-4)


def test_a_length_without_a_row_is_refused_with_the_reason(results: Comparison) -> None:
    answers = ask(results, "Max(6,2,1,5)")
    assert [one.scheme for one in answers.answers] == ["none", "rotary+alibi", "fox"]
    assert [(one.scheme, "8" in one.reason) for one in answers.without] == [("learned", True)]
    with pytest.raises(ww.errors.PositionError, match="8"):
        ask(results, "Max(6,2,1,5)", schemes=["learned"])


def test_models_of_text_predict_the_next_byte(tmp_path: Path) -> None:
    sizes = QUICK | {"trained": [16], "lengths": [32], "steps": 2}
    text = compare(["none", "alibi"], task="text", seeds=1, out=tmp_path / "text", **sizes)
    answers = ask(text, "a é")
    assert (answers.ids, answers.tokens) == ((97, 32, 0xC3, 0xA9), ("a", "0x20", "0xc3", "0xa9"))
    assert answers.correct is None
    for one in answers.answers:
        run = next(run for run in text.runs if run.scheme == one.scheme)
        with torch.no_grad():
            expected = load_model(text, run)(torch.tensor([answers.ids]))[0, -1].softmax(-1)
        assert (one.top[0].id, one.at, one.correct) == (int(expected.argmax()), 3, None)
        assert one.top[0].probability == pytest.approx(expected.max().item(), rel=1e-4)
    for written, words in (("", "empty"), ("a" * 1025, "1,025 tokens"), ("\ud800", "half a character")):
        with pytest.raises(ww.errors.TextError, match=words):
            ask(text, written)


def test_the_median_run_is_that_of_the_longest_length(tmp_path: Path) -> None:
    def score(data: Any) -> None:
        for run in data["runs"]:
            run["scores"]["32"]["all"] = None if run["scheme"] == "learned" else (0.5, 0.9, 0.7, 0.6)[run["seed"]]
            run["in_length"] = (0.9, 0.8, 0.7, 0.6)[run["seed"]]

    again = made_up.change(made_up.made_up_folder(tmp_path, schemes=("none", "learned"), seeds=4), score)
    comparison = ww.comparison.read_results(again)
    assert [median_run(comparison, name).seed for name in ("none", "learned")] == [3, 2]


def test_what_cannot_be_asked_is_refused_with_the_way_out(results: Comparison, tmp_path: Path) -> None:
    for text, words in (("Sum(1,2)", "Sum"), ("", "empty"), ("Max(a)", "'a'")):
        with pytest.raises(ww.errors.TextError, match=words):
            ask(results, text)
    with pytest.raises(
        ww.errors.SettingError, match=r"no scheme 'alibi'\. It has: 'none', 'rotary\+alibi', 'learned', 'fox'"
    ):
        ask(results, "Max(1)", schemes=["alibi"])
    with pytest.raises(ww.errors.SettingError, match=r"no seed 7\. It has 0, 1, 2, or all"):
        ask(results, "Max(1)", seed=7)
    for positions in ([0, 1], [0, 1, 2, -1], [0, 1, 2, 2**63]):
        with pytest.raises(ww.errors.PositionError, match=r"4 tokens need as many positions(.|\n)*0,1,2,3"):
            ask(results, "Max(1)", positions=positions)
    other = made_up.change(made_up.made_up_folder(tmp_path / "other"), lambda data: data["task"].update(name="mine"))
    with pytest.raises(ww.errors.SettingError, match="nobody knows how"):
        ask(other, "abc")
    with pytest.raises(ww.errors.TextError, match="recall has no token '1'"):
        ask(recall(tmp_path), "a1")
    with pytest.raises(ww.errors.ResultsError, match="holds no trained model"):
        ask(recall(tmp_path), "aK?a")


def test_a_model_whose_numbers_are_not_finite_gives_no_answer(results: Comparison, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(results.folder, folder)
    again = read_results(folder)
    run = next(run for run in again.runs if run.scheme == "none" and run.seed == 0)
    tensors = load_file(folder / run.file)
    tensors["lm_head.weight"][:] = float("nan")
    save_file(tensors, folder / run.file)
    answers = ask(again, "Max(1)", schemes=["none", "learned"], seed=0)
    assert [(one.scheme, "not finite" in one.reason) for one in answers.without] == [("none", True)]
    assert [one.scheme for one in answers.answers] == ["learned"]


def recall(path: Path) -> Path:
    folder = made_up.made_up_folder(path / "recall", "recall", schemes=("none",))
    return made_up.change(folder, no_models)


def no_models(data: Any) -> None:
    data["task"]["tokens"] = list(Recall.tokens)
    for run in data["runs"]:
        run["file"] = ""
