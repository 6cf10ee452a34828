"""A named set of tokens: groups against counting by hand, and the fifth tutorial's words in a real model."""

from pathlib import Path

import numpy as np
import pytest

from whatwhere.analysis.token_map import FOUR_GROUPS, group_neighbors, parse_groups
from whatwhere.errors import SettingError, ShapeError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.lookup import find_token


def test_neighbors_against_counting() -> None:
    rows = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 2.0], [-1.0, 0.0]])
    found = group_neighbors(rows, [0, 0, 1, 0, 2])
    # Cosines: 01 .8, 02 .6, 03 0, 04 -1, 12 .96, 13 .6, 14 -.8, 23 .8, 24 -.6, 34 0.
    assert found.nearest.tolist() == [1, 2, 1, 2, 3]
    assert found.cosines == pytest.approx([0.8, 0.96, 0.96, 0.8, 0.0])
    assert (found.stay, found.compared) == (1, 3)  # groups 1 and 2 have one token each
    assert found.within == pytest.approx((0.0, 0.8))
    assert found.between == pytest.approx((-1.0, 0.96))


def test_the_words_of_the_fifth_tutorial_stay_in_their_groups(minilm: Path) -> None:
    checkpoint = Checkpoint.open(minilm)
    ids = [find_token(checkpoint, word) for words in FOUR_GROUPS.values() for word in words]
    groups = [n for n, words in enumerate(FOUR_GROUPS.values()) for _ in words]
    assert checkpoint.token_table is not None
    rows = np.asarray(checkpoint.array(checkpoint.token_table, rows=ids), np.float64)
    found = group_neighbors(rows, groups)
    assert (found.stay, found.compared) == (16, 16)
    assert found.cosines.min() > 0.2
    # A random table has no such groups.
    none = group_neighbors(np.random.default_rng(0).standard_normal(rows.shape), groups)
    assert none.stay < 8


def test_how_a_set_is_written() -> None:
    assert parse_groups("king,queen , man") == {"1": ["king", "queen", "man"]}
    assert parse_groups("a: x, #12\nb:y,;") == {"a": ["x", "#12"], "b": ["y"]}
    for empty in ("", " , ;", "a:"):
        with pytest.raises(SettingError, match="no tokens are named"):
            parse_groups(empty)
    with pytest.raises(SettingError, match="two groups"):
        parse_groups("a: x; a: y")


def test_too_few_rows(our_own_checks: None) -> None:
    for rows, groups in ((np.ones((1, 3)), [0]), (np.ones((3, 3)), [0, 1])):
        with pytest.raises(ShapeError, match="one for each row"):
            group_neighbors(rows, groups)
