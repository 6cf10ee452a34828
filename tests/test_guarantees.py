"""What docs/guarantees.md promises, measured again: which results of attention are the same bits, for every scheme."""

from importlib import import_module
from types import ModuleType

import pytest

import whatwhere as ww


@pytest.fixture(scope="module")
def guarantees() -> ModuleType:
    return import_module("docs.generate.guarantees")


def test_every_scheme_has_a_row(guarantees: ModuleType) -> None:
    rows = guarantees.read_data().rows
    assert [row.scheme for row in rows] == list(ww.catalogue)
    ways = tuple((cell, tokens) for tokens in guarantees.LENGTHS for cell in guarantees.WAYS)
    assert {tuple((cell.way, cell.tokens) for cell in row.cells) for row in rows} == {ways}
    cells = [cell for row in rows for cell in row.cells]
    assert all(getattr(cell, dtype) <= most for cell in cells for dtype, most in guarantees.MOST.items())


@pytest.mark.parametrize("tokens", [48, pytest.param(640, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ww.catalogue)
def test_a_row_of_the_table(name: str, tokens: int, guarantees: ModuleType) -> None:
    (promised,) = (row for row in guarantees.read_data().rows if row.scheme == name)
    cells = [cell for cell in promised.cells if cell.tokens == tokens]
    for cell, now in zip(cells, guarantees.measure(name, [tokens]).cells, strict=True):
        for dtype, most in guarantees.MOST.items():
            limit = 0.0 if guarantees.same_bits(cell) else most
            assert getattr(now, dtype) <= limit, f"{cell.way} in {dtype}, where {limit:.1e} is promised"
