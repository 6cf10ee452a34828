"""What each query refuses, in words that say what was given and what is needed."""

from typing import Any

import pytest

from whatwhere.errors import WhatWhereError
from whatwhere.studio.api import JOBS, QUERIES

from .conftest import quiet

ASK, WALK = {"text": "First(6,2,1)"}, {"text": "A cat", "tokens": "loaded", "scheme": "model"}
LEARNED = {"text": "Max(1)", "tokens": "loaded", "scheme": "none"}
REFUSED: dict[tuple[str, str], list[tuple[dict[str, Any], str]]] = {
    # kinds of settings, each once
    ("real", "tokens.card"): [
        ({"token": 7}, "token must be a text, but is 7"),
        ({}, "must be a text"),
        ({"token": "a" * 20_001}, "20,001 characters"),
        ({"token": "\ud800"}, "half a character"),
        ({"token": "a", "path": "/etc"}, "no setting 'path'"),
        ({"token": "nosuchtoken"}, "no token of"),
        ({"token": "#30522"}, "30,522 rows"),
    ],
    ("real", "about"): [({"x": 1}, "it has: none")],
    ("real", "tokens.neighbors"): [
        ({"token": "king", "k": 0}, "k must be a whole number from 1 to 200"),
        ({"token": "king", "k": True}, "from 1 to 200"),
        ({"token": "king", "k": 2.0}, "from 1 to 200"),
        ({"token": "king", "k": [[[]]]}, "from 1 to 200"),
    ],
    ("real", "tokens.analogy"): [
        ({**dict.fromkeys("abc", "king"), "rule": "sum"}, "rule must be one of add, multiply"),
        ({**dict.fromkeys("abc", "king"), "rule": []}, "one of add, multiply"),
        ({**dict.fromkeys("abc", "king"), "centered": 1}, "centered must be true or false"),
    ],
    # what views say themselves
    ("real", "maps.points"): [({"method": "mds"}, "pca, tsne, umap"), ({"table": "output"}, "one of input")],
    ("real", "pipeline.walk"): [
        (WALK | {"text": " "}, "empty"),
        (WALK | {"scheme": "rotery"}, "rotary"),
        (WALK | {"scheme": "rotary", "heads": 5}, "does not divide"),
        (WALK | {"head": 12}, "from 0 to 11"),
        (WALK | {"scheme": "cope", "causal": False}, "supports causal attention only"),
    ],
    ("fresh", "pipeline.walk"): [(LEARNED | {"run": "learned-0"}, "not a folder of a comparison")],
    ("fresh", "tokens.card"): [({"token": "Max", "run": "none-7"}, "no setting 'run'")],
    ("fresh", "positions.shown"): [({"scheme": "rotary", "door": "window"}, "door must be one of")],
    ("fresh", "biases.shown"): [
        ({"scheme": "fox"}, "scheme must be one of alibi, t5"),
        ({"scheme": "t5", "options": "num_buckets=1"}, "num_buckets must be a whole number from 2"),
        ({"scheme": "t5", "options": "max_distance=9"}, "max_distance"),
        ({"scheme": "alibi", "options": "slopes=3"}, "sets nothing here"),
    ],
    ("fresh", "rotary.lab"): [
        ({"a": "scaling=cubic"}, "scaling must be one of none, linear"),
        ({"a": "from=7"}, "from must be one of plain"),
        ({"a": "theta=1e999"}, "theta must be a number from 0.001"),
        ({"a": "head_dim=64.5"}, "head_dim must be a whole number from 2 to 4,096"),
        ({"a": "theta"}, "'theta' sets nothing here"),
        ({"b": "truncate=1"}, "truncate must be one of true, false"),
    ],
    ("fresh", "compare.results"): [({}, "not a folder of a comparison")],
    ("fresh", "compare.difference"): [({}, "whatwhere studio A B")],
    ("session", "tokens.card"): [({"token": "Max", "run": "none-7"}, "no run 'none-7'")],
    ("session", "pipeline.walk"): [(LEARNED | {"run": "../x"}, r"no run '\.\./x'")],
    ("session", "replay.frames"): [({"run": "x"}, "has no run 'x'"), ({}, "must be a text")],
    ("session", "ask.answers"): [
        ({"text": ""}, "empty"),
        ({"text": "Sum(1,2)"}, "Sum"),
        ({"text": "1" * 81}, "81 tokens"),
        (ASK | {"positions": "0,1"}, "8 tokens need as many"),
        (ASK | {"positions": "0,1,2,3,4,5,6,-7"}, "whole numbers from 0"),
        (ASK | {"positions": "0,1,2,3,4,5,6,1e3"}, "whole numbers from 0"),
        (ASK | {"positions": "0,1,2,3,4,5,6,99999999"}, "1,000,000"),
        (ASK | {"positions": "7," * 5000}, "whole numbers from 0"),
        (ASK | {"seeds": "9"}, "no seed 9"),
        (ASK | {"seeds": "best"}, "seeds must be"),
    ],
}


@pytest.mark.parametrize(("opened", "name"), REFUSED, ids=map(" ".join, REFUSED))
def test_what_is_refused(request: pytest.FixtureRequest, opened: str, name: str) -> None:
    session = request.getfixturevalue(opened)
    report = [quiet] if name in JOBS else []
    for settings, words in REFUSED[opened, name]:
        with pytest.raises(WhatWhereError, match=words):
            {**QUERIES, **JOBS}[name](session, settings, *report)
