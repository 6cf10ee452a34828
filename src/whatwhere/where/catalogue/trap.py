"""The form of a trap: what goes wrong with a scheme, and what shows it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Trap:
    """A mistake that users of a scheme make, or a limit that surprises them.

    Args:
        says: what happens, in a sentence or two.
        shown_by: ids of what shows it: a claim of a tutorial such as "2.5", a statement of the evidence such as
            "E1.3", or a test, as "tests/FILE::NAME".
    """

    says: str
    shown_by: tuple[str, ...]
