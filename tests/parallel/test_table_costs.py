"""The costs of a table in docs/scale.md: expected rows against sums and draws, bytes against what was measured."""

import socket
from pathlib import Path

import numpy as np
import pytest

from .processes import PYTORCH, on_ranks

costs = pytest.importorskip("docs.generate.table_costs")
TableSettings, expected_rows, table_costs = costs.TableSettings, costs.expected_rows, costs.table_costs


def summed(vocab_size, tokens, exponent):
    share = np.arange(1.0, vocab_size + 1) ** -exponent
    share /= share.sum()
    return (1 - (1 - share) ** tokens).sum()


@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("vocab_size", [7, 5000, 3_000_000])
def test_expected_rows_are_the_sum_over_the_vocabulary(vocab_size, exponent):
    for tokens in (1, 100, 100_000):
        np.testing.assert_allclose(
            expected_rows(vocab_size, tokens, exponent), summed(vocab_size, tokens, exponent), rtol=1e-5
        )


def test_a_single_rank_sends_nothing_and_holds_the_whole_table():
    costs = table_costs(TableSettings(1000, 16, 1, shards=1))
    assert {way.sent for way in costs} == {0}
    assert costs[0].kept == 1000 * 16 * (4 + 8 + 4)


def test_ways_by_rows_do_not_grow_with_the_ranks():
    sent = {n: {way.name: way.sent for way in table_costs(TableSettings(131_072, 4096, n))} for n in (64, 1024)}
    assert sent[1024]["rows to their owners"] < 1.02 * sent[64]["rows to their owners"]
    assert sent[1024]["replicated, rows gathered"] > 15 * sent[64]["replicated, rows gathered"]
    assert sent[64]["replicated, rows gathered"] < sent[64]["replicated"] < sent[1024]["replicated, rows gathered"]


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="Linux counts the bytes of connections")
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_memory_and_bytes_sent_are_those_that_were_measured(ranks: int, tmp_path: Path) -> None:
    measure = pytest.importorskip("docs.generate.holdings").held_and_sent
    rows, dim = 40_000, 16
    of_all = [way.name for way in table_costs(TableSettings(9, 2, 2, shards=2))]
    for ways in on_ranks(ranks, tmp_path / "ranks", measure):
        for way in ways:
            kept, peak, sent = way.planned
            if way.way == "FSDP" or way.shards < ranks:
                # gloo makes an all-reduce of a reduce-scatter, of float32 gradients of the rows that a group has
                groups = ranks if way.way == "FSDP" else ranks // way.shards
                elements = rows * dim * groups // ranks
                sent += (groups - 1) * elements // groups * 4
                # and before 2.15 the CPU converts bfloat16 gradients for it by one copy more; then float32 takes none
                if PYTORCH < (2, 15):
                    peak += elements * 2 if way.compute_bytes == 2 else 0
                else:
                    peak -= elements * 4 if way.compute_bytes == 4 else 0
            assert way.measured[0] == pytest.approx(kept, rel=1e-3), way
            assert way.measured[1] == pytest.approx(peak, rel=0.05), way
            assert way.measured[2] == pytest.approx(sent, rel=0.1, abs=6000), way  # and headers
        assert [way.way for way in ways[:5]] == of_all
        found = [(way.way, way.shards, way.compute_bytes) for way in ways[5:]]
        half = "vocabulary shards", ranks // 2
        assert found == [(*half, 4), ("FSDP", ranks, 2), (*half, 2)]


def test_a_rank_that_holds_rows_holds_whole_ones():
    costs = table_costs(TableSettings(1, 16, 100, shards=5))
    row = 16 * 4
    kept = {way.name: way.kept for way in costs}
    assert kept["FSDP"] == kept["vocabulary shards"] == row * (1 + 2 + 1)
    assert kept["rows to their owners"] == row * (1 + 2)
    assert min(way.peak for way in costs) >= row * 3
    assert {way.name: way.kept for way in table_costs(TableSettings(11, 16, 4, shards=4))}["FSDP"] == 3 * row * 4
