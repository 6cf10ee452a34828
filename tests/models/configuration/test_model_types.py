"""The data file of model types: rows name functions with settings that they take, and defaults are transformers'."""

import json
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from docs.generate.families import layout, update
from whatwhere.models.configuration.model_types import DATA, FILE, READ_TYPES, ModelType
from whatwhere.models.configuration.positions import POSITIONS
from whatwhere.models.configuration.scores import SCALES, TEMPERATURES
from whatwhere.models.configuration.sizes import HEADS, KEY_HEADS

ROWS = json.loads(FILE.read_text(encoding="utf-8"))


def test_every_function_is_named_by_a_row() -> None:
    kinds = READ_TYPES.values()
    assert {rule.name for kind in kinds for rule in kind.positions} == set(POSITIONS)
    assert {kind.scale.name for kind in kinds} == set(SCALES)
    assert {kind.temperature for kind in kinds} - {None} == set(TEMPERATURES)
    assert {kind.heads.name for kind in kinds if kind.heads} == set(HEADS)
    assert {kind.key_heads for kind in kinds} - {None} == set(KEY_HEADS)


def test_a_misspelled_field_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `windoes`"):
        msgspec.convert({"windoes": {}}, ModelType)


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("name", ROWS["types"])
def test_defaults_are_those_of_transformers(name: str) -> None:
    row = deepcopy(ROWS["types"][name])
    assert update(name, row) == []


def test_other_defaults_are_replaced() -> None:
    row: dict[str, Any] = deepcopy(ROWS["types"]["gemma2"])
    row["defaults"]["sliding_window"], row["nested"]["hidden_size"] = 7, 8
    row["rope"] = {"sets": {"": {"theta": 3.0}}}
    assert [line.split(" is ")[0] for line in update("gemma2", row)] == ["sliding_window", "hidden_size", "theta"]
    assert row == {**ROWS["types"]["gemma2"], "rope": {"sets": {"": {"theta": 10_000.0}}}}


def test_the_file_is_as_the_generator_writes_it() -> None:
    assert FILE.read_text(encoding="utf-8") == layout(ROWS)
    assert not {*DATA.types} & {*DATA.unlike}
