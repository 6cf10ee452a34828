"""Calls of one rotary implementation, compared with its formula."""

from dataclasses import dataclass
from functools import cached_property, partial

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere.testing import harness
from whatwhere.testing.expected_rotary import Formula, explain_rotation
from whatwhere.testing.harness import ImplementationError, Measurement, NotSupported, float32_tolerance
from whatwhere.testing.laws import Rotate

NEAR = 15
"""The last of the first positions."""


@dataclass(frozen=True, eq=False)
class RotaryProbe:
    """A rotary implementation and the formula that it should follow.

    Args:
        fn: rotates queries.
        formula: what is expected.
        last: the last position that it supports.
        device: of its inputs.
        keys: rotates keys; None where it was not passed.
    """

    fn: Rotate
    formula: Formula
    last: int
    device: torch.device
    keys: Rotate | None = None

    def call(self, x: Tensor, positions: Tensor, keys: bool = False) -> Tensor:
        """Call the implementation with copies on its device, for queries or keys, and return the result on the CPU."""
        fn = self.keys if keys and self.keys is not None else self.fn
        result = harness.call(fn, x.to(self.device, copy=True), positions.to(self.device, copy=True))
        return harness.require_shape(result, tuple(x.shape), "(batch, heads, tokens, head_dim), as x has,").cpu()

    def sample(self, tokens: int, seed: int = 0) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Sample queries or keys: two sequences of three heads."""
        return harness.sample(2, 3, tokens, self.formula.head_dim, seed=seed)

    def compare(self, positions: Int64[Tensor, " tokens"], tolerance: float) -> Measurement:
        """Return the errors against the formula at these positions."""
        x = self.sample(len(positions))
        result = self.call(x, positions)
        errors = by_token(result.double() - self.formula.rotate(x, positions))
        note = partial(explain_rotation, self.formula, x, positions, result)
        return Measurement(errors, positions, tolerance * self.formula.magnitude, note)

    @cached_property
    def first(self) -> Measurement:
        """The errors at the first positions; cached, since other laws depend on them."""
        return self.compare(torch.arange(NEAR + 1), float32_tolerance(NEAR))

    @property
    def correct(self) -> bool:
        """Whether the implementation follows the formula at the first positions."""
        try:
            return not bool(self.first.exceeded.any())
        except (NotSupported, ImplementationError):
            return False

    def require_correct(self) -> None:
        """Raise NotSupported where the formula fails from the start, which says more than any further law."""
        if not self.correct:
            raise NotSupported("the law `formula` fails from the first positions on")


def by_token(difference: Float[Tensor, "batch heads tokens features"]) -> Float64[Tensor, " tokens"]:
    """Return the largest absolute difference of each token."""
    return difference.double().abs().amax((0, 1, 3))
