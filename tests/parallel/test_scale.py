"""The table of docs/scale.md in small: schemes of each door, trained on several processes, against one process."""

from pathlib import Path

import pytest

from whatwhere.where.catalogue import catalogue

from .processes import on_ranks

scale = pytest.importorskip("docs.generate.scale")

ON_RANKS = ("DDP", "FSDP2", "head shards", "context, gathered", "context, ring")
FEW = ("learned", "rotary", "rotary-mixed", "fire", "fox")
BOUND = 3e-5
"""Of losses, which are about 5, and of gradients as a share of the largest; the table has 1e-5 at most, of `fire`."""


Found = dict[str, tuple[float | None, str]]


def differences_of(names: tuple[str, ...]) -> tuple[dict[str, Found], list[Found]]:
    """Return the differences by scheme and way, and those where a process lacks the gradients of the others."""
    found = {name: scale.differences(name, ON_RANKS) for name in names}
    scale.example.sum_shared_gradients = lambda wheres, mesh: None  # in this process, which ends
    broken = [scale.differences("fire", ["head shards"])]
    scale.example.replicated = lambda x, mesh: x
    return found, [*broken, scale.differences("rotary", ["head shards"])]


def require_small(ranks: int, names: tuple[str, ...], folder: Path) -> None:
    for found, broken in on_ranks(ranks, folder, differences_of, names):
        assert tuple(found) == names
        for name, by_way in found.items():
            assert tuple(by_way) == ON_RANKS
            for way, (difference, error) in by_way.items():
                if (name, way) == ("cope", "context, ring"):
                    assert "no process of a ring has" in error
                else:
                    assert difference is not None, (name, way, error)
                    assert difference < BOUND, (name, way, difference)
        for difference, error in (each["head shards"] for each in broken):
            assert error == ""
            assert difference is not None
            assert difference > 100 * BOUND


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_schemes_of_each_door_on_processes_are_those_of_one(ranks: int, tmp_path: Path) -> None:
    require_small(ranks, FEW, tmp_path / "ranks")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(9))
def test_all_schemes_on_processes_are_those_of_one(part: int, tmp_path: Path) -> None:
    others = [name for name in catalogue if name not in FEW]
    require_small(4, tuple(others[part::9]), tmp_path / "ranks")
