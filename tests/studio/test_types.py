"""The TypeScript types of the answers, which are written from dataclasses."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

from reliability.browser import WEB
from whatwhere.studio.api import JOBS, QUERIES

from ..running import script

PROGRAM = WEB.parents[3] / "page_types.py"

pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="not in a checkout")


@dataclass(frozen=True)
class Leaf:
    weights: Float[np.ndarray, " n"]


def tree() -> Leaf:
    raise NotImplementedError


@pytest.fixture(scope="module")
def page_types() -> ModuleType:
    return script(PROGRAM)


def test_types_of_the_page_are_those_of_the_answers(page_types: ModuleType) -> None:
    committed = (WEB / "src" / "types.ts").read_text(encoding="utf-8")
    assert page_types.typescript({**QUERIES, **JOBS}) == committed, "run python page_types.py"


def test_an_answer_that_is_no_dataclass_is_refused_by_its_name(page_types: ModuleType) -> None:
    def untyped() -> dict[str, Any]:
        raise NotImplementedError

    def sometimes() -> Leaf | None:
        raise NotImplementedError

    def unknown():  # type: ignore[no-untyped-def]
        raise NotImplementedError

    for function, reason in (
        (untyped, "returns dict[str, typing.Any]"),
        (sometimes, "returns tests.studio.test_types.Leaf | None"),
        (unknown, "has no return annotation"),
    ):
        with pytest.raises(TypeError) as refused:
            page_types.typescript({"trees.one": tree, "trees.other": function})
        assert str(refused.value).startswith(f"trees.other {reason}, but every answer is a dataclass")
