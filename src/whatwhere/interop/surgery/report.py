"""What an operation did and measured, in plain numbers and words."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Changed:
    """Say what became of one tensor.

    Args:
        name: of it.
        before, after: shape and type, as in "30522 x 384 float32".
        what: was done, in a few words.
    """

    name: str
    before: str
    after: str
    what: str


@dataclass(frozen=True)
class Report:
    """Hold what was done to a checkpoint.

    Args:
        command: that did it.
        path, out: read, and written.
        changed: tensors.
        kept: how many others were copied byte for byte.
        bytes: of the weights that were written.
        measured: numbers, by what they are.
        notes: what the user should know.
        left_out: files of the folder that were not copied.
    """

    command: str
    path: str
    out: str
    changed: tuple[Changed, ...]
    kept: int
    bytes: int
    measured: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Give all of it in what JSON has."""
        return asdict(self)


def told(shape: tuple[int, ...], dtype: str) -> str:
    """Say shape and type.

    >>> told((30522, 384), "float32")
    '30522 x 384 float32'
    """
    return f"{' x '.join(map(str, shape)) or 'a number'} {dtype}"
