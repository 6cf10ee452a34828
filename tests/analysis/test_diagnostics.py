"""Diagnostics: rows are found where they were planted, none where there are none, and some in a real model."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from whatwhere.analysis.diagnostics import diagnostics, far_below, hubs, initial_scale, unreachable


def trained(rows: int = 3000, dim: int = 64, offset: float = 0.0) -> np.ndarray:
    g = np.random.default_rng(0)
    return (g.standard_normal((rows, dim)) * g.uniform(0.7, 1.3, (rows, 1)) + offset).astype(np.float32)


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_untrained_rows_are_found(offset: float) -> None:
    table = trained(dim=256, offset=offset)
    planted = np.arange(500, 560)
    g = np.random.default_rng(1)
    table[planted] = 0.15 * g.standard_normal(256) + 0.05 * g.standard_normal((60, 256))
    result = diagnostics(table)
    assert set(result.under_trained.tolist()) == set(planted.tolist())
    assert result.proximity[planted].min() > np.delete(result.proximity, planted).max()


@pytest.mark.parametrize("offset", [0.0, 0.5])
@pytest.mark.parametrize("rows", [20, 300, 5000])
def test_where_all_rows_are_trained_none_is_suspected(rows: int, offset: float) -> None:
    result = diagnostics(trained(rows, offset=offset))
    assert result.under_trained.size == 0
    assert result.zero.size == result.non_finite.size == result.beyond_vocabulary.size == 0
    assert result.duplicates == ()
    if not offset:  # a direction that all rows share makes real hubs
        assert hubs(trained(rows, offset=offset), np.arange(rows))[0] == []


def power_law(rows: int, dim: int, power: float, offset: float = 0.0) -> np.ndarray:
    """Return rows whose norms follow a power of their rank, as norms do that depend on a token's frequency."""
    g = np.random.default_rng(rows)
    sizes = (1 + g.permutation(rows)) ** power * np.sqrt(dim)
    directions = g.standard_normal((rows, dim)) + offset
    return (directions / np.linalg.norm(directions, axis=1, keepdims=True) * sizes[:, None]).astype(np.float32)


PLANTED = {
    "random": (30, lambda g, rows: 0.02 * g.standard_normal(rows.shape), "low norm"),
    "a fiftieth": (10, lambda g, rows: rows / 50, "low norm"),
    "four orders below": (1, lambda g, rows: rows / 1e4, "low norm"),
    "forty times": (3, lambda g, rows: rows * 40, "high norm"),
    "a bit of the exponent": (1, lambda g, rows: rows * 2.0**64, "high norm"),
    "the mean": (10, lambda g, rows: 1e-3 * g.standard_normal(rows.shape), "near the mean"),
}


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("power", [0.0, 0.1, -0.1])
@pytest.mark.parametrize("case", PLANTED)
def test_rows_far_from_the_others_are_found_and_no_more(case: str, power: float, offset: float) -> None:
    table = power_law(3000, 64, power, offset)
    count, change, why = PLANTED[case]
    planted = np.arange(700, 700 + count)
    mean = np.delete(table, planted, axis=0).mean(axis=0)
    table[planted] = change(np.random.default_rng(1), table[planted]) + (mean if why == "near the mean" else 0)
    result = diagnostics(table)
    assert {*result.far, *result.under_trained.tolist()} == {*planted.tolist()}
    assert why != "high norm" or not result.proximity[planted].any()
    if not offset:  # else short rows have a direction in common: that from the mean to 0
        short = "low norm" if why == "near the mean" else why
        assert result.far == dict.fromkeys(planted.tolist(), short)
    elif why != "low norm":
        assert result.far == dict.fromkeys(planted.tolist(), why)


@pytest.mark.parametrize("dim", [2, 384])
@pytest.mark.parametrize("rows", [1, 2, 10, 40, 300, 5000])
@pytest.mark.parametrize("power", [0.0, 0.1, -0.1, 0.5, -0.5])
def test_no_row_of_a_sound_table_is_far(rows: int, dim: int, power: float) -> None:
    table = power_law(rows, dim, power) * np.exp(0.1 * np.random.default_rng(0).standard_normal((rows, 1)))
    table[:1] = 0  # padding
    for dtype in (np.float32, np.float16):
        assert diagnostics((table / 100).astype(dtype)).far == {}


def test_gaps_as_wide_by_chance_are_as_rare_as_promised() -> None:
    """Of norms that follow a power law, one table in a thousand has a row that far; here of 1,000 tables."""
    g = np.random.default_rng(0)
    for rows in (5, 10, 100, 1000):
        tables = [g.uniform(size=rows) ** 1.5 for _ in range(1000)]
        assert sum(len(far_below(norms)) > 0 for norms in tables) <= 6  # of Poisson with mean 1: 0.01 %
        assert sum(len(far_below(1 / norms)) > 0 for norms in tables) <= 6
    assert far_below(np.append(1 + g.uniform(size=9), 1e-5)).tolist() == [9]


def test_zero_nan_duplicate_and_padding_rows_are_reported() -> None:
    table = trained(200)
    table[7] = 0
    table[8, 3], table[9, 0] = np.nan, -np.inf
    table[[20, 150]] = table[4]
    table[30] = table[31]
    result = diagnostics(table, tokens=190)
    assert result.zero.tolist() == [7]
    assert result.non_finite.tolist() == [8, 9]
    assert result.duplicates == ((4, 20, 150), (30, 31))
    assert result.beyond_vocabulary.tolist() == list(range(190, 200))
    assert np.isnan(result.norms[8])
    assert result.proximity[7] == result.cosine[7] == 0


def test_a_row_that_is_everybodys_neighbor_is_a_hub() -> None:
    g = np.random.default_rng(0)
    common = g.standard_normal(32)
    table = g.standard_normal((1000, 32)) + 2 * common
    table[12] = common
    found, queries, expected = hubs(table, np.arange(1000))
    assert found[0][0] == 12
    assert found[0][1] > 10 * expected
    assert (queries, expected) == (1000, 10)


def area(score: np.ndarray, truth: np.ndarray) -> float:
    """Return the area under the curve of true against false alarms, by ranks."""
    rank = np.empty(len(score))
    rank[np.argsort(score, kind="stable")] = np.arange(1, len(score) + 1)
    result = truth.sum()
    return float((rank[truth].sum() - result * (result + 1) / 2) / (result * (len(truth) - result)))


def test_a_real_models_unreachable_tokens_are_found_by_its_table_alone(minilm: Path) -> None:
    from safetensors import safe_open
    from tokenizers import Tokenizer

    with safe_open(minilm / "model.safetensors", "numpy") as file:
        table = file.get_tensor("embeddings.word_embeddings.weight")
    tokenizer = Tokenizer.from_file(str(minilm / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    lost = unreachable(tokenizer, range(tokenizer.get_vocab_size()))
    unused = {n for n in range(len(table)) if tokenizer.id_to_token(n).startswith("[unused")}
    assert len(unused) == 994
    assert unused < set(lost.tolist())
    assert {tokenizer.token_to_id(word) for word in ("king", "##ing", "a", "[CLS]", "[MASK]")}.isdisjoint(lost.tolist())
    truth = np.zeros(len(table), bool)
    truth[lost] = True
    result = diagnostics(table, tokenizer.get_vocab_size())
    assert area(result.proximity, truth) >= 0.998
    assert np.isin(lost, result.under_trained).mean() > 0.99
    assert result.far == {}
    g = np.random.default_rng(0)
    table[5000:5030], table[6000:6010] = 0.02 * g.standard_normal((30, 384)), table[6000:6010] / 50
    table[7000], table[7100] = table[7000] / 1e4, table[7100] * 8
    mask = tokenizer.token_to_id("[MASK]")  # its norm is a fifth of the median, below those of random rows
    planted = dict.fromkeys((*range(5000, 5030), *range(6000, 6010), 7000, mask), "low norm") | {7100: "high norm"}
    assert diagnostics(table).far == planted


def test_every_token_of_a_tokenizer_that_cuts_bytes_is_reachable() -> None:
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(["the cat sat on the mat, the cat sat", "a naïve café"] * 20, vocab_size=320)
    assert unreachable(tokenizer._tokenizer, range(320)).size == 0


def test_a_token_without_merges_is_unreachable() -> None:
    from tokenizers import Tokenizer, models

    vocabulary = {"a": 0, "b": 1, "0": 2, "x": 3, "(": 4, " ": 5, "ab": 6, "abb": 7}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    assert unreachable(tokenizer, range(20)).tolist() == [7]
    assert unreachable(tokenizer, range(7)).size == 0


# The guess of the initial scale


@pytest.mark.parametrize(
    ("spread", "rule"),
    [(0.02, "BERT"), (1.0, "PyTorch"), (256**-0.5, "1 / sqrt(dim)"), ((2 / (5 * 256)) ** 0.5, "GPT-NeoX")],
)
def test_untrained_rows_show_how_they_were_initialized(spread: float, rule: str) -> None:
    g = np.random.default_rng(0)
    table = 3 * g.standard_normal((400, 256))
    idle = np.arange(50, 90)
    push = 0.5 * g.standard_normal(256)  # what moved all idle rows alike
    table[idle] = spread * g.standard_normal((40, 256)) + push
    result = initial_scale(table.astype(np.float32), idle)
    assert rule in result.rule
    assert (result.rows, result.under_trained) == (40, True)
    assert result.std == pytest.approx(spread, rel=0.02)
    assert result.expected_std == pytest.approx(spread)


def test_the_configuration_takes_precedence_and_unusual_spreads_have_no_rule() -> None:
    g = np.random.default_rng(1)
    table = 0.02 * g.standard_normal((300, 64))
    assert initial_scale(table, np.arange(0), configured=0.02).rule == "the configuration's initializer_range"
    strange = initial_scale(20 * table, np.arange(0), configured=0.02)
    assert (strange.rule, strange.expected_std, strange.under_trained, strange.rows) == (None, None, False, 300)
    assert strange.std == pytest.approx(float((20 * table).std(axis=0, ddof=1).mean()), rel=0.01)


def test_equal_rows_are_sought_in_little_memory() -> None:
    table = np.random.default_rng(0).standard_normal((60_000, 2)).astype(np.float32)
    tracemalloc.start()
    try:
        diagnostics(table)
        assert tracemalloc.get_traced_memory()[1] < 140 * len(table)
    finally:
        tracemalloc.stop()
