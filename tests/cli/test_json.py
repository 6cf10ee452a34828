"""What commands print with --json has a schema, which the outputs in all tests fit (running.json_of)."""

import pytest
from jsonschema import Draft202012Validator, ValidationError

from docs.book.reference import commands
from docs.generate.json_schemas import PRINTED

from ..running import json_of, schema, whatwhere


def test_every_command_has_json_and_a_schema_of_it() -> None:
    names = {name for name, _ in commands()}
    assert names == set(PRINTED)
    assert all("--json" in whatwhere(name, "--help").out for name in names)


@pytest.mark.parametrize("command", PRINTED)
def test_schemas_are_valid(command: str) -> None:
    Draft202012Validator.check_schema(schema(command).schema)


def test_a_schema_refuses_what_no_command_prints() -> None:
    right = json_of("plan", "--vocab", "1000", "--dim", "8", "--ranks", "2")
    for wrong in (
        {**right, "more": 1},
        {"headline": right["headline"]},
        {**right, "plan": {**right["plan"], "holdings": 1}},
    ):
        with pytest.raises(ValidationError):
            schema("plan").validate(wrong)
