"""The steps of an optimizer beside a table, in a file with a checksum: settings, and rows that are to be copied."""

import json
from array import array
from collections.abc import MutableSequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from whatwhere.errors import CheckpointError, ResultsError
from whatwhere.records import Schema, from_json
from whatwhere.what.matrix_file import own_errors
from whatwhere.what.shared_flush import Marker
from whatwhere.what.table_identity import Identity

_SCHEMA = Schema(
    "whatwhere-steps",
    3,
    "Remove its folder to train the table from step 0; where another version wrote it, bring all rows up to date with "
    "that version first.",
)
_SETTINGS = 6
_MOST_STEPS = 1 << 31
"""Rows store the step of their last update in 32 bits."""


@dataclass
class Steps:
    """The steps of an optimizer, as they are stored beside the table.

    Args:
        algorithm: of the optimizer.
        base: the step up to which every row is up to date.
        number: of the last step.
        eps, betas: at the base.
        settings: of the steps after the base, where rows may have missed them: for each run of steps with the same
            settings their number, lr, beta1, beta2, eps and weight_decay, one run after another.
    """

    algorithm: str
    base: int = 0
    number: int = 0
    eps: float = 0.0
    betas: tuple[float, float] = (0.0, 0.0)
    settings: MutableSequence[float] = field(default_factory=lambda: array("d"))

    @property
    def outdated(self) -> bool:
        """Whether rows may have missed steps."""
        return bool(self.settings)

    @property
    def runs(self) -> Float64[np.ndarray, "runs settings"]:
        """The settings, a run in each row."""
        return np.array(self.settings, np.float64).reshape(-1, _SETTINGS)

    def record(self, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        """Add a step to the settings.

        Args:
            lr, betas, eps, weight_decay: of the step.

        Examples:
            >>> steps = Steps("adamw")
            >>> for lr in (0.1, 0.1, 0.2):
            ...     steps.record(lr, (0.9, 0.99), 1e-8, 0.0)
            >>> steps.runs[:, :2].tolist()
            [[2.0, 0.1], [1.0, 0.2]]
        """
        own = array("d", (lr, *betas, eps, weight_decay))
        if self.settings[1 - _SETTINGS :] == own:
            self.settings[-_SETTINGS] += 1
        else:
            self.settings.extend((1, *own))


@dataclass(frozen=True)
class Stated:
    """What the file of steps says in JSON, beside its arrays.

    Args:
        tensor, shape, type: of the table.
        algorithm, base, number, eps, betas: of `Steps`.
        file: the one that the steps belong to.
        marker: that decides whether the flush has happened, where it is one of several tables.
    """

    tensor: str
    shape: tuple[int, ...]
    type: str
    algorithm: str
    base: int
    number: int
    eps: float
    betas: tuple[float, float]
    file: Identity
    marker: Marker | None


def read_steps(path: Path) -> tuple[Stated, Float64[np.ndarray, "runs settings"], Int64[np.ndarray, " rows"]]:
    """Return what a file of steps says, the settings, and the rows that are to be copied from the log.

    Args:
        path: of the file.

    Raises:
        CheckpointError: If it cannot be read, is damaged, or of another version.
    """
    with own_errors(path):
        content = path.read_bytes()
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(content)
        settings, pending = tensors["settings"], tensors["pending"]
        numbers = _SCHEMA.opened(json.loads(tensors["steps"].tobytes()), str(path), CheckpointError)
        if numbers["arrays"] != _digest(settings, pending):
            raise CheckpointError(f"{path} is damaged: its settings or rows are others.\n{_SCHEMA.way_out}")
        whole = settings.dtype == np.float64 and settings.ndim == 2 and settings.shape[1] == _SETTINGS
        if not whole or pending.dtype != np.int64 or pending.ndim != 1 or len(np.unique(pending)) < len(pending):
            raise ValueError("its settings or rows have another shape or type, or a row occurs twice")
        stated = from_json(Stated, numbers, "it")
        if not 0 <= stated.base <= stated.number < _MOST_STEPS:
            raise ValueError(f"it is at step {stated.number}, from {stated.base}")
        if len(settings) and (settings[:, 0].min() < 1 or settings[:, 0].sum() != stated.number - stated.base):
            raise ValueError(f"it has no settings of each step from {stated.base} to {stated.number}")
        values = np.append(settings[:, 1:].ravel(), [stated.eps, *stated.betas])
        if not (np.isfinite(values) & (values >= 0)).all() or max(stated.betas) >= 1:
            raise ValueError("a setting of a step is negative or not finite, or beta is not below 1")
        return stated, settings, pending
    except CheckpointError:
        raise
    except ResultsError as problem:
        first = str(problem).partition("\n")[0].rstrip(".")
        raise CheckpointError(f"{path} has no steps of an optimizer: {first}.\n{_SCHEMA.way_out}") from None
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as problem:
        raise CheckpointError(f"{path} has no steps of an optimizer: {problem}.\n{_SCHEMA.way_out}") from None


def steps_content(stated: Stated, settings: Float64[np.ndarray, "runs settings"], pending: np.ndarray) -> bytes:
    """Return the content of a file of steps.

    Args:
        stated: what it says in JSON.
        settings, pending: the arrays beside it.
    """
    sealed = _SCHEMA.sealed({**vars(stated), "arrays": _digest(settings, pending)})
    text = np.frombuffer(json.dumps(sealed).encode(), np.uint8)
    from safetensors.numpy import save

    content: bytes = save({"steps": text, "settings": settings, "pending": pending})
    return content


def _digest(*arrays: np.ndarray) -> str:
    return sha256(b"".join(f"{each.dtype.str} {each.shape}".encode() + each.tobytes() for each in arrays)).hexdigest()
