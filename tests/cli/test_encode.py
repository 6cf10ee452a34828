"""encode: which tokenizer reads a text, and where its rows come from."""

import math
from pathlib import Path

import numpy as np
import pytest

import whatwhere as ww
from whatwhere.what import text
from whatwhere.what.text import words

from ..running import error_of, json_of, whatwhere
from .conftest import Saved

EXPRESSION = "Max(1,6,2)"
IDS = [15, 17, 3, 19, 8, 19, 4, 18]


def test_the_first_tutorials_first_example_has_its_ids() -> None:
    assert json_of("encode", EXPRESSION)["ids"] == IDS
    assert json_of("encode", EXPRESSION, "--tokenizer", "expressions")["ids"] == IDS
    assert json_of("encode", EXPRESSION, "--tokenizer", "words")["ids"] == [0, 1, 2, 3, 4, 3, 5, 6]
    shown = whatwhere("encode", EXPRESSION).out
    assert "--tokenizer words" in shown.splitlines()[0]
    assert "random samples of N(0, 1), seed 0" in shown.splitlines()[1]
    assert "words numbers" not in whatwhere("encode", "The cat sat.").out


def test_a_tokenizer_may_be_the_folder_of_one(tmp_path: Path) -> None:
    words("one two three").save(str(tmp_path / "tokenizer.json"))
    assert json_of("encode", "three one", "--tokenizer", tmp_path)["ids"] == [2, 0]
    assert "Pass words, expressions, or the path" in error_of("encode", "x", "--tokenizer", tmp_path / "none")


def test_the_rows_of_a_model_are_those_of_its_table(saved: Saved) -> None:
    result = json_of("encode", "--ids", "3,1,3", "--from", saved.path)
    factor = math.sqrt(saved.table.shape[1]) if saved.type == "gemma" else 1.0
    np.testing.assert_allclose(np.array(result["rows"]), factor * saved.table[[3, 1, 3]], rtol=2e-6)
    checkpoint = ww.read(saved.path)
    assert result["table"] == checkpoint.token_table
    if saved.positions is None:
        assert result["position_rows"] is None
    else:
        np.testing.assert_allclose(np.array(result["position_rows"]), saved.positions[:3], rtol=1e-6)
    assert f"rows: {checkpoint.token_table}, as trained" in whatwhere("encode", "--ids", "3", "--from", saved.path).out


def test_a_run_of_a_comparison_has_its_own_rows(results: Path) -> None:
    checkpoint = ww.read(results)
    shown = json_of("encode", EXPRESSION, "--from", results, "--run", "learned-0")
    assert shown["ids"] == IDS
    np.testing.assert_allclose(
        np.array(shown["rows"]), checkpoint.array("learned-0/input.tokens.weight", rows=IDS), rtol=1e-6, atol=1e-8
    )
    positions = checkpoint.array("learned-0/input.where.input.weight", rows=slice(8))
    np.testing.assert_allclose(np.array(shown["position_rows"]), positions, atol=1e-8)
    other = json_of("encode", EXPRESSION, "--from", results, "--run", "rotary+alibi-1")
    assert other["table"].startswith("rotary_alibi-")
    assert other["table"].endswith("-1/input.tokens.weight")
    np.testing.assert_allclose(np.array(other["rows"]), checkpoint.array(other["table"], rows=IDS), atol=1e-8)
    assert "Name one, as in --run learned-0" in error_of("encode", EXPRESSION, "--from", results)
    assert "has no run 'rotary-7'" in error_of("encode", EXPRESSION, "--from", results, "--run", "rotary-7")


@pytest.mark.parametrize("option", ["--dim 8", "--heads 2", "--tokenizer words"])
def test_what_is_the_models_own_cannot_be_chosen(option: str, results: Path) -> None:
    message = error_of("encode", EXPRESSION, "--from", results, "--run", "learned-0", *option.split())
    assert option.split()[0] in message


def test_a_head_of_odd_features_is_explained_by_the_options_given() -> None:
    message = error_of("encode", "a cat", "--dim", "6", "--scheme", "rotary")
    assert "--dim 6 in 2 heads is 3 features for each head" in message
    assert "Pass --dim 4 or 8" in message
    assert whatwhere("encode", "a cat", "--dim", "4", "--scheme", "rotary").status == 0


def test_people_read_the_text_of_a_token_and_machines_its_spelling(tmp_path: Path) -> None:
    made = text.train("bpe", "le café the cat " * 20, vocab_size=280)
    made.save(str(tmp_path / "tokenizer.json"))
    said = whatwhere("encode", "the café ü", "--tokenizer", tmp_path).out
    result = json_of("encode", "the café ü", "--tokenizer", tmp_path)
    assert result["tokens"][:1] == ["the"]
    assert "ĠcafÃ©" in result["tokens"]
    assert "Ġ" not in said
    assert "␣café" in said
    assert "<0xC3>" in said
    assert [each for each in result["texts"] if each is not None][:2] == ["the", " café"]
