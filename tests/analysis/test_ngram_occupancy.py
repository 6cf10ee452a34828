"""Occupancy and collisions of hashed tables: equal to counting one by one, and to a uniform hash's expectation."""

import random
from collections import Counter

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.analysis import token_tables as occupancy
from whatwhere.what.ngram_hash import multipliers_of_qwen4_exp, polynomial_hashes, xor_hashes

VOCABULARY = 50_000


def embedding(rows: list[list[int]], **settings) -> ww.HashedNGramEmbedding:
    hashes = xor_hashes(multipliers_of_qwen4_exp(VOCABULARY, n=len(rows) + 1, layer=0), rows)
    return ww.HashedNGramEmbedding(hashes, 1_000, padding_id=3, device="meta", **settings)


def by_hand(documents: list[list[int]], n: int, multipliers: tuple[int, ...], size: int) -> dict[tuple[int, ...], int]:
    """Return the row of each n-gram of a text by the reference, one document and one token at a time."""
    found = {}
    for ids in documents:
        rows = ww.reference.ngram_rows(np.array(ids), list(multipliers), size, 3)
        padded = [3] * (n - 1) + ids
        found |= {tuple(padded[at : at + n]): int(row) for at, row in enumerate(rows)}
    return found


def test_counts_are_those_of_counting_one_by_one() -> None:
    generator = random.Random(0)
    documents = [[generator.randrange(12) for _ in range(size)] for size in (40, 1, 0, 25)]
    table = embedding([[31, 37], [41]])
    counted = occupancy.ngram_occupancy(table, documents)
    assert (counted.documents, counted.tokens, counted.left_out) == (3, 66, False)
    joint: list[Counter[tuple[int, ...]]] = []
    for found, each in zip(counted.hashes, table.hashes, strict=True):
        rows = by_hand(documents, each.n, each.multipliers, each.rows)
        counts = Counter(rows.values())
        assert (found.ngrams, found.occupied, found.fullest) == (len(rows), len(counts), max(counts.values()))
        assert found.sharing == sum(many for many in counts.values() if many > 1) > 0
    first, second = (by_hand(documents, 2, each.multipliers, each.rows) for each in table.hashes[:2])
    joint = Counter((first[gram], second[gram]) for gram in first)
    assert counted.joint[0].confused == sum(many for many in joint.values() if many > 1)
    assert counted.occupied == sum(each.occupied for each in counted.hashes)


def test_confused_in_all_tables_is_counted() -> None:
    """Hashes that differ by nothing confuse all that share a row."""
    table = ww.HashedNGramEmbedding(polynomial_hashes([2], 7, (31, 31)), 4, padding_id=0, device="meta")
    counted = occupancy.ngram_occupancy(table, [list(range(60))])
    assert counted.joint[0].confused == counted.hashes[0].sharing == 60


def test_expectations_are_those_of_a_uniform_hash() -> None:
    """20,000 n-grams in 10,007 rows, three standard deviations of about 30 and 55."""
    ids = torch.randint(0, VOCABULARY, (20_000,), generator=torch.Generator().manual_seed(1)).tolist()
    [found] = occupancy.ngram_occupancy(embedding([[10_007]]), [ids]).hashes
    assert found.expected_occupied == pytest.approx(ww.reference.expected_occupied(found.ngrams, 10_007), rel=1e-9)
    assert abs(found.occupied - found.expected_occupied) < 90
    assert abs(found.sharing - found.expected_sharing) < 165
    generator, sharing = random.Random(0), []
    for _ in range(2_000):
        counts = Counter(generator.randrange(50) for _ in range(40))
        sharing.append(sum(many for many in counts.values() if many > 1))
    assert np.mean(sharing) == pytest.approx(occupancy.expected_sharing(40, 50), abs=0.4)


def test_a_poor_hash_is_far_from_uniform() -> None:
    """With an even multiplier and a power of two as size, most rows are never read."""
    table = ww.HashedNGramEmbedding(xor_hashes((64, 64), [[1024]]), 4, padding_id=0, device="meta")
    ids = torch.randint(0, VOCABULARY, (5_000,), generator=torch.Generator().manual_seed(1)).tolist()
    [found] = occupancy.ngram_occupancy(table, [ids]).hashes
    assert found.occupied <= 16 < 900 < found.expected_occupied


def test_a_long_text_is_cut_and_an_empty_one_refused() -> None:
    counted = occupancy.ngram_occupancy(embedding([[31]]), [[1, 2], [3, 4, 5], [6]], max_tokens=4)
    assert (counted.documents, counted.tokens, counted.left_out) == (2, 4, True)
    whole = occupancy.ngram_occupancy(embedding([[31]]), [[1, 2], [3, 4]], max_tokens=4)
    assert not whole.left_out
    with pytest.raises(ww.errors.TextError, match="no tokens"):
        occupancy.ngram_occupancy(embedding([[31]]), [[]])
