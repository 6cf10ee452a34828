"""Files of ours, damaged behind a checksum that fits: refused in one clear error, or read.

Damage that is led by what it reaches is that of `python -m reliability fuzz`.
"""

import json
import random
from collections.abc import Callable

import numpy as np
import pytest
from safetensors.numpy import load, save

from reliability.fuzz_targets import Target, targets
from reliability.readable_files import OWN

from .models.checkpoint.damage import EDITS, revalue

ATTEMPTS = 10


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Target]]:
    """Make the valid files once."""
    return {name: targets(tmp_path_factory.mktemp("own"), [name]) for name in OWN}


@pytest.mark.parametrize("name", OWN)
def test_damage_behind_a_checksum_is_refused_or_read(name: str, made: dict[str, list[Target]]) -> None:
    for target in made[name]:
        draw, refused = random.Random(0), 0
        assert not target.withstands(target.content), target.name
        for _ in range(ATTEMPTS):
            edit = revalue if draw.random() < 0.7 else draw.choice(EDITS)
            content = edit(target.content, draw.randrange(2**16), draw.randrange(2**41)) or b"\0"
            refused += target.withstands(content)
        assert refused or "claim" in target.name or "tokenized" in target.name or "block" in target.name, target.name


def without(key: str) -> Callable[[bytes], bytes]:
    """Return a change that leaves a key of JSON out."""
    return lambda content: json.dumps({k: v for k, v in json.loads(content).items() if k != key}).encode()


def updated_later(content: bytes) -> bytes:
    """Let a row state that it was last updated far after the last step."""
    state = load(content)["state"].copy()
    state[:, -1] = np.int32(2**30).view(np.float32)
    return save({"state": state})


def one_number(content: bytes) -> bytes:
    """Keep one number of the state of each row."""
    return save({"state": load(content)["state"][:, :1].copy()})


DEEP = b'{"x": ' + b"[" * 3000 + b"]" * 3000 + b"}"
FIRST_LINE = b"whatwhere: a file at huggingface.co, read by byte ranges\n"


@pytest.mark.parametrize(
    ("name", "target", "change", "refused"),
    [
        ("the cache of huggingface.co", "a pointer to a file at huggingface.co",
         lambda content: content.replace(b'"size": 420', b'"size": [1]'), True),
        ("the cache of huggingface.co", "a pointer to a file at huggingface.co",
         lambda content: FIRST_LINE + DEEP[:3900], True),
        ("tables in training", "steps of a table in training", without("before"), True),
        ("tables in training", "state of a table in training", updated_later, True),
        ("tables in training", "state of a table in training", one_number, True),
    ],
)  # fmt: skip
def test_what_fuzzing_has_found(
    name: str, target: str, change: Callable[[bytes], bytes], refused: bool, made: dict[str, list[Target]]
) -> None:
    (one,) = (each for each in made[name] if each.name == target)
    changed = change(one.content)
    assert changed != one.content
    assert one.withstands(changed) is refused
