"""A walk through the input layer: nothing is lost on the way, and every step is the formula's."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import whatwhere as ww
from whatwhere.analysis.walkthrough import walk
from whatwhere.what.expressions import expression_tokenizer

TEXT = "The cat sat on the mat."


def test_every_character_becomes_a_token_and_a_repeated_word_shares_its_row() -> None:
    result = walk("the cat and the dog.")
    assert result.tokens == ["the", "cat", "and", "the", "dog", "."]
    assert result.ids == [0, 1, 2, 0, 3, 4]
    assert torch.equal(result.rows[0], result.rows[3])
    assert not torch.equal(result.vectors[0], result.vectors[3])


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "learned+rotary", "sinusoidal+alibi"])
def test_the_vectors_are_rows_plus_positions(scheme: str) -> None:
    result = walk(TEXT, scheme=scheme, dim=12)
    assert result.position_rows.abs().sum() > 0
    assert torch.equal(result.vectors, result.rows + result.position_rows)


@pytest.mark.parametrize("scheme", ["none", "rotary", "alibi", "rotary+alibi"])
def test_schemes_of_other_doors_leave_the_vectors_as_they_are(scheme: str) -> None:
    result = walk(TEXT, scheme=scheme)
    assert result.position_rows is None
    assert torch.equal(result.vectors, result.rows)


def test_angles_are_positions_times_frequencies_and_biases_slopes_times_distances() -> None:
    rotated, biased = walk(TEXT, scheme="rotary", dim=24, num_heads=3), walk(TEXT, scheme="alibi", dim=8, num_heads=4)
    expected = [[p * 10_000.0 ** (-2 * i / 8) for i in range(4)] for p in range(7)]
    np.testing.assert_allclose(rotated.angles.numpy(), expected, rtol=1e-14)
    assert biased.bias.tolist() == [[-d * m for m in (2**-2, 2**-4, 2**-6, 2**-8)] for d in range(7)]
    assert rotated.bias is biased.angles is None
    mixed = walk(TEXT, scheme="sinusoidal+alibi", num_heads=1)
    assert mixed.bias[3, 0].item() == -3 / 256


def test_the_token_rows_are_the_same_under_every_scheme() -> None:
    rows = [walk(TEXT, scheme=name).rows for name in ww.catalogue]
    assert all(torch.equal(rows[0], other) for other in rows)


def test_ids_skip_the_tokenizer() -> None:
    result = walk(ids=[105, 6587, 105])
    assert result.tokens is None
    assert result.ids == [105, 6587, 105]
    assert torch.equal(result.rows[0], result.rows[2])
    # The table has a row for the largest id, and for every id below it.
    assert torch.equal(result.rows, walk(ids=[105, 6587, 105], vocab_size=6588).rows)


def test_a_given_tokenizer_encodes_the_text_and_names_ids() -> None:
    assert walk("Max(1,6,2)", tokenizer=expression_tokenizer()).ids == [15, 17, 3, 19, 8, 19, 4, 18]
    assert walk(ids=[15, 17, 3, 18], tokenizer=expression_tokenizer()).tokens == ["Max", "(", "1", ")"]


def test_a_saved_walkthrough_contains_what_was_shown(tmp_path: Path) -> None:
    result = walk(TEXT, scheme="rotary+alibi")
    result.save(tmp_path / "walk.safetensors")
    tensors = load_file(tmp_path / "walk.safetensors")
    assert set(tensors) == {"ids", "rows", "vectors", "angles", "bias"}
    assert tensors["ids"].tolist() == result.ids
    for name in ("rows", "vectors", "angles", "bias"):
        assert torch.equal(tensors[name], getattr(result, name))
    with safe_open(tmp_path / "walk.safetensors", "pt") as opened:
        assert opened.metadata() == {"scheme": "rotary+alibi"}
