"""The costs of a table in docs/scale.md: bytes against what was measured."""

import socket
from pathlib import Path

import pytest

from .processes import PYTORCH, on_ranks

costs = pytest.importorskip("docs.generate.table_costs")
TableSettings, table_costs = costs.TableSettings, costs.table_costs


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
