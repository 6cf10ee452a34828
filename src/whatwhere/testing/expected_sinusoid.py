"""The expected sinusoid, and the explanation of a wrong one by the mistakes that are known."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import atan2, exp, floor, log, log2

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere import reference
from whatwhere.testing.harness import ROTATION, NotSupported, Verdict, float32_tolerance
from whatwhere.where.frequencies import LAYOUTS, Layout


@dataclass(frozen=True)
class Sinusoid:
    """The settings of the expected encoding, computed by the NumPy reference."""

    dim: int
    layout: Layout
    theta: float

    def at(self, positions: Int64[Tensor, " tokens"]) -> Float64[Tensor, "tokens dim"]:
        """Return the vectors of these positions."""
        return torch.from_numpy(reference.sinusoid(positions.numpy(), self.dim, self.theta, self.layout))

    def second_angle(self, row: Float[Tensor, " dim"]) -> float:
        """Return the angle of the second pair in the vector of position 1."""
        sine, cosine = (2, 3) if self.layout == "interleaved" else (1, self.dim // 2 + 1)
        return atan2(float(row[sine]), float(row[cosine]))


def check_layout(formula: Sinusoid, row: Float[Tensor, " dim"]) -> Verdict:
    """Return whether the layout is the expected one, from position 0: every sine is 0 there, and every cosine 1.

    Raises:
        NotSupported: the vector of position 0 fits no layout.
    """
    if (row.double() - formula.at(torch.tensor([0]))[0]).abs().amax() <= ROTATION:
        return Verdict(True)
    known: dict[str, Tensor] = {}
    layouts: tuple[Layout, ...] = ("interleaved", "half")
    for layout in layouts:
        zeros = replace(formula, layout=layout).at(torch.tensor([0]))[0]
        known |= {f"{layout} layout": zeros, f"{layout} layout with cosines first": 1 - zeros}
    for name, zeros in known.items():
        if (row.double() - zeros).abs().amax() <= ROTATION:
            return Verdict(False, f"this is the {name}, by the zeros and ones of position 0", first=0)
    raise NotSupported("position 0 has other numbers than zeros and ones, so it does not show the layout")


def explain_sinusoid(
    formula: Sinusoid, positions: Int64[Tensor, " tokens"], result: Float[Tensor, "tokens dim"]
) -> str:
    """Return the known mistake that explains wrong vectors; "" where none fits."""
    tolerance = float32_tolerance(int(positions.amax()))
    for explanation, mistake in _mistakes(formula, positions):
        if (result.double() - mistake).abs().amax() <= tolerance:
            return explanation
    factor = float(result.double()[0].norm() / formula.at(positions)[0].norm())
    if (result.double() - factor * formula.at(positions)).abs().amax() <= tolerance:
        return f"it is {factor:.4g} times the formula"
    return _explain_theta(formula, positions, result)


def _mistakes(formula: Sinusoid, positions: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the mistakes that are common, each with the vectors that it gives."""
    step = 2.0 ** (floor(log2(max(int(positions.amax()), 1))) - 23)
    yield f"angles in float32 explain it: their spacing here is {step:.2g} radians", formula.at(positions)
    for layout in LAYOUTS:
        if layout != formula.layout and (layout != "tensor2tensor" or formula.dim >= 4):
            yield f"this is the {layout} layout", replace(formula, layout=layout).at(positions)
    yield "positions in bfloat16 explain it", formula.at(positions.bfloat16().long())
    for ahead in (1, 2):
        yield f"it is {ahead} ahead: its first position is {ahead}", formula.at(positions + ahead)
    pairs = (-1, 2) if formula.layout == "interleaved" else (2, -1)
    swapped = formula.at(positions).unflatten(-1, pairs).flip(-1 if formula.layout == "interleaved" else -2)
    yield "its cosines come first", swapped.flatten(-2)


def _explain_theta(formula: Sinusoid, positions: Tensor, result: Tensor) -> str:
    """Return theta by the vector of position 1, where it explains the result."""
    at = (positions == 1).nonzero().flatten()
    pairs = formula.dim // 2 - (formula.layout == "tensor2tensor")
    angle = formula.second_angle(result[at[0]]) if len(at) and formula.dim >= 4 else 0.0
    if not 0 < angle < 1:
        return ""
    theta = exp(-log(angle) * pairs)
    if (result.double() - replace(formula, theta=theta).at(positions)).abs().amax() > 1e-3:
        return ""
    return f"its angles are those of theta={float(f'{theta:.4g}'):,.10g}"
