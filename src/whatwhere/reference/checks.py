"""What the reference refuses."""

import numpy as np


def require_rows(what: str, index: np.ndarray, rows: int) -> None:
    """Raise IndexError unless every number is a row."""
    # NumPy would take row -1 for the last one, without a word.
    for value in np.ravel(index):
        if not 0 <= value < rows:
            raise IndexError(f"{what} {value} is outside the table, which has {rows} rows (0..{rows - 1}).")


def require_even(name: str, value: int) -> None:
    """Raise ValueError unless an even number of features is given."""
    if value < 2 or value % 2:
        raise ValueError(
            f"{name} is {value}, but must be even and at least 2: a sine and a cosine share one frequency."
        )


def require_shape(name: str, x: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless the shape is as needed."""
    if x.shape != shape:
        raise ValueError(f"{name} has shape {x.shape}, but {shape} is needed.")
