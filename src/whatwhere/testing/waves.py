"""What a sinusoid should be, and which known reading it is where it is another."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import atan2, exp, floor, log, log2

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere import reference
from whatwhere.testing.probe import ROTATION, NotOffered, Verdict, single
from whatwhere.where.frequencies import LAYOUTS, Layout


@dataclass(frozen=True)
class Sinusoid:
    """Hold what an encoding was said to be, and give it by the NumPy reference."""

    dim: int
    layout: Layout
    theta: float

    def at(self, positions: Int64[Tensor, " tokens"]) -> Float64[Tensor, "tokens dim"]:
        """Give the vectors of these positions."""
        return torch.from_numpy(reference.sinusoid(positions.numpy(), self.dim, self.theta, self.layout))

    def first_turn(self, row: Float[Tensor, " dim"]) -> float:
        """Read how far the second pair turned off the row of position 1."""
        sine, cosine = (2, 3) if self.layout == "interleaved" else (1, self.dim // 2 + 1)
        return atan2(float(row[sine]), float(row[cosine]))


def told_layout(formula: Sinusoid, row: Float[Tensor, " dim"]) -> Verdict:
    """Tell the layout from position 0, where every sine is 0 and every cosine 1, whatever the frequencies."""
    if (row.double() - formula.at(torch.tensor([0]))[0]).abs().amax() <= ROTATION:
        return Verdict(True)
    known: dict[str, Tensor] = {}
    layouts: tuple[Layout, ...] = ("interleaved", "halves")
    for layout in layouts:
        zeros = replace(formula, layout=layout).at(torch.tensor([0]))[0]
        known |= {f"{layout} layout": zeros, f"{layout} layout with cosines first": 1 - zeros}
    for name, zeros in known.items():
        if (row.double() - zeros).abs().amax() <= ROTATION:
            return Verdict(False, f"this is the {name}, by where position 0 has zeros and ones", first=0)
    raise NotOffered("position 0 has other numbers than zeros and ones, so it does not tell the layout")


def told_sinusoid(formula: Sinusoid, positions: Int64[Tensor, " tokens"], answer: Float[Tensor, "tokens dim"]) -> str:
    """Name the reading that wrong vectors are right by; nothing where none fits."""
    allowed = single(int(positions.amax()))
    for words, reading in _readings(formula, positions):
        if (answer.double() - reading).abs().amax() <= allowed:
            return words
    share = float(answer.double()[0].norm() / formula.at(positions)[0].norm())
    if (answer.double() - share * formula.at(positions)).abs().amax() <= allowed:
        return f"it is {share:.4g} times the formula"
    return _told_theta(formula, positions, answer)


def _readings(formula: Sinusoid, positions: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Give the readings that circulate, each with its vectors."""
    step = 2.0 ** (floor(log2(max(int(positions.amax()), 1))) - 23)
    yield f"angles in float32 explain it: here they come in steps of {step:.2g} radians", formula.at(positions)
    for layout in LAYOUTS:
        if layout != formula.layout and (layout != "tensor2tensor" or formula.dim >= 4):
            yield f"this is the {layout} layout", replace(formula, layout=layout).at(positions)
    yield "positions in bfloat16 explain it", formula.at(positions.bfloat16().long())
    for ahead in (1, 2):
        yield f"it is {ahead} ahead: its first position is {ahead}", formula.at(positions + ahead)
    pairs = (-1, 2) if formula.layout == "interleaved" else (2, -1)
    swapped = formula.at(positions).unflatten(-1, pairs).flip(-1 if formula.layout == "interleaved" else -2)
    yield "its cosines come first", swapped.flatten(-2)


def _told_theta(formula: Sinusoid, positions: Tensor, answer: Tensor) -> str:
    """Read theta off the row of position 1."""
    at = (positions == 1).nonzero().flatten()
    pairs = formula.dim // 2 - (formula.layout == "tensor2tensor")
    turn = formula.first_turn(answer[at[0]]) if len(at) and formula.dim >= 4 else 0.0
    if not 0 < turn < 1:
        return ""
    theta = exp(-log(turn) * pairs)
    if (answer.double() - replace(formula, theta=theta).at(positions)).abs().amax() > 1e-3:
        return ""
    return f"its angles are those of theta={float(f'{theta:.4g}'):,.10g}"
