"""A claim of a tutorial as an object: what it says, its verdict, what is right, and the function that measures it."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

Kind = Literal["exact", "trained", "design", "model"]
"""Decided by arithmetic, by the runs of a comparison, by building what a claim describes, or by the rows of a model."""

Verdict = Literal["holds", "fails", "depends", "not measured"]
"""`depends` where some of the measured quantities agree with the claim, and some do not."""

Value = bool | int | float | str

SOURCES = {
    "first": "Transformer Deep Dive: Stage 1 & 2",
    "second": "Embeddings in Transformers",
    "third": "Embeddings",
    "fourth": "Transformers from Scratch - Part 2: Architecture and Embeddings",
    "fifth": "Embeddings: Giving Meaning to Token IDs",
}
"""The titles of the five tutorials, in the order in which ids count them from 0."""
ABOUT = {
    "first": "the embedding layer and positional encoding, on 20-token expressions",
    "second": "embeddings and positional encoding in PyTorch",
    "third": "token, learned, sinusoidal, rotary and ALiBi embeddings",
    "fourth": "architecture and embeddings",
    "fifth": "the token table",
}
"""What each is about."""

ID = re.compile(r"([0-4])\.([1-9]\d*)([a-z]?)")
"""The tutorial's number and the claim's; a letter names a part of a claim that is decided by itself."""


_NUMBER = re.compile(r"-?[\d.]+(?:e-?\d+|/\d+)?")


@dataclass(frozen=True)
class Measured:
    """A measured quantity beside what a claim states of it.

    Args:
        quantity: what it is, such as "PE(2, 4)".
        value: what was measured; of a trained claim the median over the runs.
        claimed: what the claim states; None for a quantity that explains and does not decide.
        tolerance: by how much a number may differ from what is claimed, such as half its last printed digit.
        expected: what must come out, from a formula, a paper or counting: never a copy of the value. None where what is
            claimed is right, or nothing is known beforehand.
        within: by how much a number may differ from what is expected.

    Examples:
        >>> pe = Measured("PE(1, 2)", 0.68156, claimed=0.755, tolerance=5e-4, expected=0.6816, within=5e-5)
        >>> pe.agrees, pe.is_expected
        (False, True)
    """

    quantity: str
    value: Value
    claimed: Value | None = None
    tolerance: float = 0.0
    expected: Value | None = None
    within: float = 0.0

    @property
    def agrees(self) -> bool | None:
        """Whether the value is what is claimed; None where nothing is."""
        return None if self.claimed is None else _equal(self.value, self.claimed, self.tolerance)

    @property
    def is_expected(self) -> bool:
        """Whether the value is what must come out; True where nothing is known beforehand."""
        return self.expected is None or _equal(self.value, self.expected, self.within)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of a tutorial.

    Args:
        id: stable: the tutorial's number, counted from 0, and the claim's, as in "0.13".
        says: the claim, in a sentence of ours.
        verdict: of the committed measurement.
        right: the correct statement, or under which condition the claim holds; what decides where it is right.
        kind: how it is decided.
        quote: an excerpt of the tutorial, word for word.
    """

    id: str
    says: str
    verdict: Verdict
    right: str
    kind: Kind
    quote: str = ""

    @property
    def source(self) -> str:
        """The tutorial that makes the claim, a key of SOURCES."""
        return list(SOURCES)[int(self.id[0])]

    @property
    def order(self) -> tuple[int, int, str]:
        """What ids are sorted by: the tutorial's number, the claim's, and the letter."""
        parts = ID.fullmatch(self.id)
        return (int(parts[1]), int(parts[2]), parts[3]) if parts else (len(SOURCES), 0, self.id)

    @property
    def anchor(self) -> str:
        """The anchor of the claim on pages, such as "claim-0-13"."""
        return f"claim-{self.id.replace('.', '-')}"


@dataclass(frozen=True, kw_only=True)
class MeasuredClaim(Claim):
    """A claim that arithmetic, a small program, or the token table of a real model decides.

    Args:
        measure: returns what was measured, in about a second at most; of the kind "model" on a checkpoint.
    """

    measure: Callable[..., Sequence[Measured]]


_TEXTS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("claims.toml").read_text(encoding="utf-8")
)


def text(id: str) -> dict[str, Any]:
    """Return what claims.toml has of a claim: the arguments of Claim."""
    return {"id": id, **_TEXTS[id]}


def measured_claims(
    measures: Mapping[str, Callable[..., Sequence[Measured]]], kind: Kind = "exact"
) -> tuple[Claim, ...]:
    """Return claims by what measures them."""
    return tuple(MeasuredClaim(**text(id), measure=measure, kind=kind) for id, measure in measures.items())


def meets(line: str, value: float) -> bool:
    """Return whether a number meets a condition in words.

    Examples:
        >>> [meets(line, 0.5) for line in ("above 50 %", "at least 50 %", "from 1/4 to 2", "between −1 and 0.5", "0.5")]
        [False, True, True, False, True]
    """
    bound, *other = (float(Fraction(number)) for number in _NUMBER.findall(line.replace("−", "-").replace(" %", "e-2")))
    match line.split()[0]:
        case "above":
            return value > bound
        case "below":
            return value < bound
        case "at":
            return value >= bound
        case "from":
            return bound <= value <= other[0]
        case "between":
            return bound < value < other[0]
        case _:
            return abs(value - bound) < 1e-6


def verdict_of(measured: Sequence[Measured]) -> Verdict:
    """Return the verdict that measured quantities give a claim.

    Examples:
        >>> verdict_of([Measured("rows", 7, claimed=7), Measured("rows by AdamW", 20, claimed=7)])
        'depends'
    """
    votes = [each.agrees for each in measured if each.agrees is not None]
    if not votes:
        return "not measured"
    return "holds" if all(votes) else "depends" if any(votes) else "fails"


def _equal(value: Value, other: Value, tolerance: float) -> bool:
    if isinstance(value, bool | str) or isinstance(other, bool | str):
        return value == other
    return abs(value - other) <= tolerance
