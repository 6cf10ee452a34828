"""Tables of refusals as text: a call, its error, and what the message has."""

import re
from typing import Any

import pytest

import whatwhere as ww


def refused(call: str, error: str, names: dict[str, Any]) -> str:
    """Return the message with which a call is refused, whose names are those of a test module."""
    with pytest.raises(ww.WhatWhereError) as caught:
        eval(call, names)
    assert type(caught.value).__name__ == error
    return str(caught.value)


def short_refusals(table: str) -> pytest.MarkDecorator:
    """Parametrize a test by rows of `call -> error: parts of the message`, whose right side may be on the next line."""
    rows = re.findall(r"^(\S.*) ->\s+(\w+): (.*)$", table, re.MULTILINE)
    assert len(rows) == table.count(" ->")
    return pytest.mark.parametrize(("call", "error", "parts"), rows, ids=[row[0] for row in rows])


def require_refused(call: str, error: str, parts: str, names: dict[str, Any]) -> None:
    """Require that a call raises an error with these parts, divided by an ellipsis, in its message."""
    message = refused(call, error, names)
    assert all(part in message for part in parts.split(" … ")), message
