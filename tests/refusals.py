"""Tables of refusals as text: a name and the call, and on the line below the error and what its message has."""

import re
from typing import Any

import pytest

import whatwhere as ww


def refusals(table: str) -> pytest.MarkDecorator:
    """Parametrize a test by the call, the error and the parts of the message of each row."""
    rows = re.findall(r"^(\S.*?): (.*)\n    (\w+): (.*)$", table, re.MULTILINE)
    assert 2 * len(rows) == len(table.strip().splitlines())
    return pytest.mark.parametrize(("call", "error", "parts"), [row[1:] for row in rows], ids=[row[0] for row in rows])


def refused(call: str, error: str, names: dict[str, Any]) -> str:
    """Return the message with which a call is refused, whose names are those of a test module."""
    with pytest.raises(ww.WhatWhereError) as caught:
        eval(call, names)
    assert type(caught.value).__name__ == error
    return str(caught.value)
