"""The TypeScript types of the answers, which are written from dataclasses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np
import pytest
from jaxtyping import Float

from reliability.browser import WEB
from whatwhere.records import MaybeNaN
from whatwhere.studio.api import JOBS, QUERIES

from ..running import script

if TYPE_CHECKING:
    from whatwhere.records import Missing

Row = TypeVar("Row")
PROGRAM = WEB.parents[3] / "page_types.py"

pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="not in a checkout")


@dataclass(frozen=True)
class Leaf:
    weights: Float[np.ndarray, " n"]
    biases: Sequence[MaybeNaN]
    kind: Literal["a", "b"] | None


@dataclass(frozen=True)
class Rows(Generic[Row]):
    rows: Sequence[Row]


@dataclass(frozen=True)
class Tree(Leaf):
    leaves: Mapping[str, Leaf]
    named: Mapping[Literal["left", "right"], "Tree"]
    point: tuple[int, float]
    many: tuple[str | bool, ...]
    missing: "Leaf | Missing"
    rows: Rows[str]


def tree() -> Tree:
    raise NotImplementedError


@pytest.fixture(scope="module")
def page_types() -> ModuleType:
    return script(PROGRAM)


def test_types_of_the_page_are_those_of_the_answers(page_types: ModuleType) -> None:
    committed = (WEB / "src" / "types.ts").read_text(encoding="utf-8")
    assert page_types.typescript({**QUERIES, **JOBS}) == committed, "run python page_types.py"


def test_each_python_type_has_one_of_typescript(page_types: ModuleType) -> None:
    written = page_types.typescript({"trees.one": tree})
    assert (
        written.partition("\n\n")[2]
        == """\
import type { Tensor } from "./wire";

/** Types of answers, by the name of the query or job. */
export interface Queries {
  "trees.one": Tree;
}

/** tests.studio.test_types */
export interface Leaf { weights: Tensor; biases: (number | null)[]; kind: "a" | "b" | null }
export interface Rows<Row> { rows: Row[] }
export interface Tree extends Leaf {
  leaves: Record<string, Leaf>;
  named: Partial<Record<"left" | "right", Tree>>;
  point: [number, number];
  many: (string | boolean)[];
  missing: Leaf | Missing;
  rows: Rows<string>;
}

/** whatwhere.records */
export interface Missing { missing: string }
"""
    )


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
