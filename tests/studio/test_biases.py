"""Biases: the matrix, the curves and the reach of every head, beside the reference."""

from collections.abc import Callable
from math import ceil, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whatwhere import positions, reference
from whatwhere.studio.api import biases as api
from whatwhere.studio.session import Session
from whatwhere.where.catalogue import random_scheme

from .conftest import csv_rows, opened

BUCKETS, FAR, HEADS = 8, 20, 3


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Open a model that has learned biases, of both its parts; they fall steeply."""
    folder = tmp_path_factory.mktemp("t5")
    rng = np.random.default_rng(5)
    falling = -2.0 * np.arange(BUCKETS)[:, None] + rng.standard_normal((BUCKETS, HEADS))
    names = [f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight" for part in ("encoder", "decoder")]
    tensors = {names[0]: rng.standard_normal((BUCKETS, HEADS)), names[1]: falling, "shared.weight": np.ones((9, 6))}
    config = {
        "model_type": "t5", "vocab_size": 9, "d_model": 6, "num_heads": HEADS, "d_kv": 2, "d_ff": 8, "num_layers": 2,
        "num_decoder_layers": 2, "relative_attention_num_buckets": BUCKETS, "relative_attention_max_distance": FAR,
    }  # fmt: skip
    return opened(folder, config, **tensors)


def learned(session: Session, part: str) -> np.ndarray:
    return session.checkpoint.array(f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight")


def test_alibi_by_the_papers_slopes(fresh: Session) -> None:
    result = api.shown(fresh, {"head": 2, "tokens": 7})
    slopes = reference.alibi_slopes(8)
    assert (result.scheme, result.heads, result.missing) == ("alibi", 8, "nothing is loaded")
    right = reference.alibi_bias(np.arange(7), np.arange(7), 8)[2]
    np.testing.assert_allclose(result.matrix, right, rtol=1e-6)
    np.testing.assert_allclose(result.past, -np.outer(slopes, result.distances), rtol=1e-6)
    assert result.ranges.distance.tolist() == [ceil(log(100) / slope) for slope in slopes]
    assert result.ranges.half.tolist() == [ceil(log(2) / slope) for slope in slopes]
    tenth = api.shown(fresh, {"share": "0.1"}).ranges.distance
    assert tenth.tolist() == [ceil(log(10) / slope) for slope in slopes]


def test_weights_are_shares_of_each_heads_greatest(fresh: Session) -> None:
    result = api.shown(fresh, {"scheme": "sandwich", "weights": True, "tokens": 9, "heads": 4, "head": 1})
    bias = reference.sandwich_bias(np.arange(9), np.arange(9), 4)[1]
    np.testing.assert_allclose(result.matrix, np.exp(bias - bias.max()), rtol=1e-4)
    assert result.past.max(axis=1).tolist() == [1.0] * 4


@pytest.mark.parametrize(("number", "part"), [(0, "decoder"), (1, "encoder")])
def test_the_models_own_table_first(t5: Session, number: int, part: str) -> None:
    result = api.shown(t5, {"scheme": f"own-{number}", "tokens": 30, "head": 1} | ({} if number else {"scheme": ""}))
    table, both = learned(t5, part), part == "encoder"
    assert result.choices[number].title == f"this model: T5, {part}, layers 0–1"
    assert result.tensor == f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    right = reference.t5_bias(table, np.arange(30), np.arange(30), FAR, both)[1]
    if not both:
        right[np.triu_indices(30, 1)] = np.nan  # a decoder's table says nothing of later keys
    np.testing.assert_array_equal(result.matrix, right.astype(np.float32))
    buckets = [reference.t5_bucket(d, BUCKETS, FAR, both) for d in result.distances.tolist()]
    np.testing.assert_array_equal(result.past, table[buckets].T)
    if both:
        later = [reference.t5_bucket(-d, BUCKETS, FAR, both) for d in result.distances.tolist()]
        np.testing.assert_array_equal(result.later, table[later].T)
    else:
        assert result.later is result.ranges_later is None


@pytest.mark.parametrize(
    ("scheme", "options", "settings"),
    [
        ("t5", "num_buckets=6 max_distance=24", {"num_buckets": 6, "max_distance": 24}),
        ("kerple", "kind=power", {"kind": "power"}),
        ("fire", "threshold=3 c=0.5 width=4", {"threshold": 3.0, "c": 0.5, "width": 4}),
    ],
)
def test_learned_schemes_are_drawn_from_the_seed_and_turned_by_their_settings(
    fresh: Session, scheme: str, options: str, settings: dict[str, Any]
) -> None:
    chosen = {"scheme": scheme, "options": options, "heads": 2, "tokens": 6}
    result, other = (api.shown(fresh, {**chosen, "seed": seed}) for seed in (4, 5))
    right = random_scheme(scheme, 2, 2, 4096, 4, **settings).score
    assert result.random
    assert settings.items() <= {parameter.name: parameter.value for parameter in result.parameters}.items()
    lower = np.tril_indices(6)
    expected = right(positions(6), causal=right.causal_only)[0, 0].detach().numpy()
    np.testing.assert_allclose(result.matrix[lower], expected[lower], rtol=1e-6)
    assert not np.allclose(other.matrix[lower], result.matrix[lower])
    said: dict[str, Any] = {}
    exec(result.python, said)
    assert repr(said["scheme"]) == repr(right)
    assert all((said["scheme"].state_dict()[name] == value).all() for name, value in right.state_dict().items())


def test_biases_that_depend_on_what_tokens_say_are_left_out_and_said(tmp_path: Path) -> None:
    config = {
        "model_type": "deberta-v2", "vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2,
        "relative_attention": True, "position_buckets": 4, "max_position_embeddings": 16, "pos_att_type": "p2c|c2p",
        "max_relative_positions": -1, "share_att_key": True, "position_biased_input": False,
    }  # fmt: skip
    result = api.shown(opened(tmp_path, config, **{"embeddings.word_embeddings.weight": np.ones((9, 8))}), {})
    assert result.scheme == "alibi"
    (unavailable,) = result.unavailable.items()
    assert unavailable[0] == "this model: DeBERTa, layers 0–1"
    assert "queries and keys" in unavailable[1]


def test_the_runs_of_a_comparison_have_their_biases(results: Path) -> None:
    result = api.shown(Session.open(results), {"tokens": 5, "head": 1})
    assert result.choices[0].title == "run: rotary+alibi, seed 0"
    assert (result.scheme, result.heads, result.missing) == ("own-0", 2, None)
    right = np.where(np.tri(5), reference.alibi_bias(np.arange(5), np.arange(5), 2)[1], np.nan)  # a decoder
    np.testing.assert_allclose(result.matrix, right, rtol=1e-6)


def test_the_page_shows_what_the_api_answers(look: Callable[..., dict[str, Any]], t5: Session) -> None:
    result = look(t5, "biases.mjs")
    own = api.shown(t5, {"tokens": 8})
    assert result["choices"][:3] == [
        "this model: T5, decoder, layers 0–1",
        "this model: T5, encoder, layers 0–1",
        "alibi",
    ]
    assert "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight" in result["own"]
    cells = {(int(row["query"]), int(row["key"])): float(row["bias"]) for row in csv_rows(result["matrix"])}
    assert cells == {(i, j): own.matrix[i, j] for i in range(8) for j in range(i + 1)}
    assert result["cell"].startswith("query 2, key 1: ")
    # Seven tokens away by 1/16; no color stands for numbers above 0, which there are none of.
    assert result["bar"].split() == ["bias", "−0.438", "0"]
    alibi = api.shown(t5, {"scheme": "alibi"})
    assert result["reach"] == [f"{distance:,}" for distance in alibi.ranges.distance.tolist()]
    # The finding leads, and its figure is the first.
    assert result["answer"].startswith("By the bias alone, head 0 has a range of 10 tokens and head 7 one of 1,179: ")
    assert result["first"] == "Effective range of each head, to 1 % of its largest weight"
    rows = csv_rows(result["csv"])
    assert [int(row["half"]) for row in rows] == alibi.ranges.half.tolist()
    assert "1,179" in result["svg"]
    said: dict[str, Any] = {}
    *lines, last = result["how"].splitlines()
    exec("\n".join(lines), said)  # what the page says gives the same numbers
    right = reference.alibi_bias(np.arange(8), np.arange(8), 8)[3]
    np.testing.assert_allclose(eval(last, said).numpy(), right, rtol=1e-6)
    assert result["address"] == "#/biases?scheme=alibi&head=3&tokens=8"
    assert result["seed"] == "#/biases?scheme=t5&tokens=8&seed=1"
