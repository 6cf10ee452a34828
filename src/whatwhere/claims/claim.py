"""A claim of a tutorial as an object: what it says, its verdict, what is right, and the function that measures it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["exact", "trained", "design"]
"""How a claim is decided: by arithmetic, by the runs of a comparison, or by building what it describes."""

Verdict = Literal["holds", "fails", "depends", "not measured"]
"""`depends` where some of the measured quantities agree with the claim, and some do not."""

Value = bool | int | float | str

SOURCES = {
    "first": "Embedding layer and positional encoding: the 20-token expressions",
    "second": "Embeddings and positional encoding in PyTorch",
    "third": "Token, learned, sinusoidal, rotary and ALiBi embeddings",
    "fourth": "Architecture and embeddings",
    "fifth": "Giving meaning to token ids",
}
"""The five tutorials, by the number that claims name them with: what each is about."""


@dataclass(frozen=True)
class Measured:
    """A measured quantity beside what a claim states of it.

    Args:
        quantity: what it is, such as "PE(2, 4)".
        value: what was measured; of a trained claim the median over the runs.
        claimed: what the claim states; None for a quantity that explains and does not decide.
        tolerance: by how much a number may differ from what is claimed, such as half its last printed digit.

    Examples:
        >>> Measured("PE(1, 2)", 0.6816, claimed=0.755, tolerance=5e-4).agrees
        False
    """

    quantity: str
    value: Value
    claimed: Value | None = None
    tolerance: float = 0.0

    @property
    def agrees(self) -> bool | None:
        """Whether the value is what is claimed; None where nothing is."""
        if self.claimed is None:
            return None
        if isinstance(self.value, bool | str) or isinstance(self.claimed, bool | str):
            return self.value == self.claimed
        return abs(self.value - self.claimed) <= self.tolerance


@dataclass(frozen=True)
class Claim:
    """A claim of a tutorial.

    Args:
        id: stable: the tutorial's number, counted from 0, and the claim's, as in "0.13".
        source: which tutorial, a key of SOURCES.
        says: the claim, in a sentence of ours.
        verdict: of the committed measurement.
        right: the correct statement, or under which condition the claim holds.
        chapter: of the course, by its file name without the ending.
        kind: how it is decided.
    """

    id: str
    source: str
    says: str
    verdict: Verdict
    right: str
    chapter: str
    kind: Kind


@dataclass(frozen=True)
class ExactClaim(Claim):
    """A claim that arithmetic or a small program decides; `measure` takes no time to speak of.

    Args:
        measure: returns what was measured.
    """

    measure: Callable[[], Sequence[Measured]]


def verdict_of(measured: Sequence[Measured]) -> Verdict:
    """Return the verdict that measured quantities give a claim.

    Args:
        measured: of them, those with a claimed value decide.

    Examples:
        >>> verdict_of([Measured("rows", 7, claimed=7), Measured("rows by AdamW", 20, claimed=7)])
        'depends'
    """
    votes = [each.agrees for each in measured if each.agrees is not None]
    if not votes:
        return "not measured"
    return "holds" if all(votes) else "depends" if any(votes) else "fails"
