"""One rotary implementation, asked."""

from dataclasses import dataclass
from functools import cached_property, partial

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere.testing import probe
from whatwhere.testing.laws import Turn
from whatwhere.testing.probe import Faulty, Measured, NotOffered, single
from whatwhere.testing.turns import Formula, told_turn

NEAR = 15
"""The last of the first positions that are asked for."""


@dataclass(frozen=True, eq=False)
class Rotation:
    """Hold one implementation beside its formula."""

    fn: Turn
    formula: Formula
    longest: int
    device: torch.device

    def ask(self, x: Tensor, positions: Tensor) -> Tensor:
        """Call the implementation with copies on its device; give what it says on the CPU."""
        answer = probe.ask(self.fn, x.to(self.device, copy=True), positions.to(self.device, copy=True))
        return probe.require_shape(answer, tuple(x.shape), "(batch, heads, tokens, head_dim), as x has,").cpu()

    def draw(self, tokens: int, seed: int = 0) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Draw queries or keys: two sequences of three heads."""
        return probe.draw(2, 3, tokens, self.formula.head_dim, seed=seed)

    def off(self, positions: Int64[Tensor, " tokens"], tolerance: float) -> Measured:
        """Compare with the formula at these positions."""
        x = self.draw(len(positions))
        answer = self.ask(x, positions)
        errors = by_token(answer.double() - self.formula.turn(x, positions))
        note = partial(told_turn, self.formula, x, positions, answer)
        return Measured(errors, positions, tolerance * self.formula.magnitude, note)

    @cached_property
    def first(self) -> Measured:
        """Compare with the formula at the first positions; kept, since other laws ask whether it is right."""
        return self.off(torch.arange(NEAR + 1), single(NEAR))

    @property
    def right(self) -> bool:
        """True where the formula is right at the first positions."""
        try:
            return not bool(self.first.wrong.any())
        except (NotOffered, Faulty):
            return False

    def require_right(self) -> None:
        """Raise NotOffered where the formula is wrong from the start: nothing more is to be learned then."""
        if not self.right:
            raise NotOffered("the law `formula` fails from the first positions on")


def by_token(difference: Float[Tensor, "batch heads tokens features"]) -> Float64[Tensor, " tokens"]:
    """Give the largest difference of each token."""
    return difference.double().abs().amax((0, 1, 3))
