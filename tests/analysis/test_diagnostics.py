"""Diagnostics: rows are found where they were planted, none where there are none, and some in a real model."""

from pathlib import Path

import numpy as np
import pytest

from whatwhere.analysis.diagnostics import diagnostics, unreachable
from whatwhere.errors import ShapeError


def trained(rows: int = 3000, dim: int = 64, offset: float = 0.0) -> np.ndarray:
    """Return rows that training has separated."""
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
        assert result.hubs.rows == ()


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
    result = diagnostics(table)
    assert result.hubs.rows[0][0] == 12
    assert result.hubs.rows[0][1] > 10 * result.hubs.expected


def test_small_and_empty_tables() -> None:
    assert diagnostics(np.ones((1, 4))).under_trained.size == 0
    assert diagnostics(np.zeros((5, 4))).zero.tolist() == [0, 1, 2, 3, 4]
    assert diagnostics(np.full((3, 2), np.nan)).non_finite.tolist() == [0, 1, 2]


@pytest.mark.usefixtures("our_own_checks")
def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(rows, dim\)"):
        diagnostics(np.ones(4))


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
    lost = unreachable(tokenizer)
    unused = {n for n in range(len(table)) if tokenizer.id_to_token(n).startswith("[unused")}
    assert len(unused) == 994
    assert unused < set(lost.tolist())
    assert {tokenizer.token_to_id(word) for word in ("king", "##ing", "a", "[CLS]", "[MASK]")}.isdisjoint(lost.tolist())
    truth = np.zeros(len(table), bool)
    truth[lost] = True
    result = diagnostics(table, tokenizer.get_vocab_size())
    assert area(result.proximity, truth) >= 0.998
    assert np.isin(lost, result.under_trained).mean() > 0.99


def test_every_token_of_a_tokenizer_that_cuts_bytes_is_reachable() -> None:
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(["the cat sat on the mat, the cat sat", "a naïve café"] * 20, vocab_size=320)
    assert unreachable(tokenizer._tokenizer).size == 0


def test_a_token_without_merges_is_unreachable() -> None:
    from tokenizers import Tokenizer, models

    vocabulary = {"a": 0, "b": 1, "0": 2, "x": 3, "(": 4, " ": 5, "ab": 6, "abb": 7}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    assert unreachable(tokenizer).tolist() == [7]
    assert unreachable(tokenizer, rows=7).size == 0
