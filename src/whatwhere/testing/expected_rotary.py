"""The expected rotation, and the explanation of a wrong one by the mistakes that are known."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import exp, floor, log, log2

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere import reference
from whatwhere.errors import ShapeError
from whatwhere.testing.harness import Fault, explained, float32_tolerance
from whatwhere.where.scaling import Scaling

OwnFormula = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(x, positions) -> x mapped, in float64: x is (batch, heads, tokens, head_dim), positions are (tokens)."""


@dataclass(frozen=True)
class Formula:
    """The settings of the expected rotation, computed by the NumPy reference, or by a function of its own."""

    head_dim: int
    rotary_dim: int
    theta: float
    interleaved: bool
    scaling: Scaling | None = None
    own: OwnFormula | None = None

    @property
    def magnitude(self) -> float:
        """The factor of the features that rotate."""
        return 1.0 if self.scaling is None else self.scaling.magnitude

    @property
    def frequencies(self) -> list[float]:
        """The angle by which each pair rotates per position, in radians."""
        if self.scaling is None:
            return reference.inverse_frequencies(self.rotary_dim, self.theta)
        return [float(w) for w in self.scaling.frequencies(self.rotary_dim, self.theta)]

    @property
    def layout(self) -> str:
        """The name of the layout."""
        return "interleaved" if self.interleaved else "half"

    @property
    def other(self) -> "Formula":
        """The same rotation in the other layout."""
        return replace(self, interleaved=not self.interleaved)

    def pairs(self) -> list[tuple[int, int]]:
        """Return the two features of each pair."""
        half = self.rotary_dim // 2
        return [(2 * i, 2 * i + 1) if self.interleaved else (i, i + half) for i in range(half)]

    def partners(self) -> dict[int, int]:
        """Return the partner of each feature that rotates."""
        rotating = [pair for pair, w in zip(self.pairs(), self.frequencies, strict=True) if w]
        return dict(rotating) | {b: a for a, b in rotating}

    def rotate(
        self,
        x: Float[Tensor, "batch heads tokens head_dim"],
        positions: Int64[Tensor, " tokens"],
        frequencies: list[float] | None = None,
        magnitude: float | None = None,
    ) -> Float64[Tensor, "batch heads tokens head_dim"]:
        """Return x rotated by the formula, or with other frequencies or another magnitude."""
        if self.own is not None:
            mapped = torch.as_tensor(np.asarray(self.own(x.detach().double().numpy(), positions.numpy()), np.float64))
            if mapped.shape == x.shape:
                return mapped
            raise ShapeError(
                f"check_rotary got an `expected` that returns the shape {tuple(mapped.shape)}, but needs that of x, "
                f"here {tuple(x.shape)}."
            )
        rotated = reference.rotary(
            x.detach().double().flatten(0, 1).numpy(),
            positions.numpy(),
            interleaved=self.interleaved,
            rotary_dim=self.rotary_dim,
            frequencies=self.frequencies if frequencies is None else frequencies,
        )
        rotated[..., : self.rotary_dim] *= self.magnitude if magnitude is None else magnitude
        return torch.from_numpy(rotated).view(x.shape)

    def rotate_back(
        self, x: Float[Tensor, "batch heads tokens head_dim"], positions: Int64[Tensor, " tokens"]
    ) -> Float64[Tensor, "batch heads tokens head_dim"]:
        """Return x times the transposed matrix of each position: what a gradient becomes."""
        if self.own is None:
            return self.rotate(x, -positions)
        units = torch.eye(self.head_dim)[:, None, None].expand(-1, 1, len(positions), -1)
        return torch.einsum("itd,bhtd->bhti", self.rotate(units, positions)[:, 0], x.double())


def check_layout(formula: Formula, rotated: Float[Tensor, "features head_dim"]) -> None:
    """Raise Fault unless the layout is the expected one, from each unit vector rotated at position 1.

    A feature contributes to its partner and to no other, whatever the angle.
    """
    crossed = rotated.double().nan_to_num().abs().fill_diagonal_(0)
    partners = {a: int(row.argmax()) for a, row in enumerate(crossed) if row.amax() > 0}
    needed, other = formula.partners(), formula.other
    if partners == needed:
        return
    if partners == other.partners():
        raise Fault(
            f"this is the {other.layout} layout: feature 0 is paired with feature {partners[0]}. Pass interleaved="
            f"{other.interleaved} if the weights are in this layout; else queries and keys are silently scrambled",
        )
    if not partners:
        raise Fault("no feature changes another at position 1: nothing is rotated there")
    first = next(a for a in range(formula.head_dim) if partners.get(a) != needed.get(a))
    raise Fault(
        f"{len(partners)} features rotate, {len(needed)} are expected; feature {first} is paired with "
        f"{partners.get(first, 'none')}, in the {formula.layout} layout with {needed.get(first, 'none')}",
    )


def explain_rotation(
    formula: Formula,
    x: Float[Tensor, "batch heads tokens head_dim"],
    positions: Int64[Tensor, " tokens"],
    result: Float[Tensor, "batch heads tokens head_dim"],
) -> str:
    """Return the known mistake that explains a wrong rotation, or its angles; "" where none fits."""
    tolerance = float32_tolerance(int(positions.amax())) * max(1.0, formula.magnitude)
    known = explained(result, _mistakes(formula, x, positions), tolerance)
    return known if known or formula.own is not None else _explain_frequencies(formula, x, positions, result)


def _mistakes(formula: Formula, x: Tensor, positions: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the mistakes that are common, each with the rotation that it gives."""
    step = 2.0 ** (floor(log2(max(int(positions.amax()), 1))) - 23)
    yield f"angles in float32 explain it: their spacing here is {step:.2g} radians", formula.rotate(x, positions)
    if formula.own is not None:  # which may be defined at these positions alone
        return
    yield f"it is correct in the {formula.other.layout} layout", formula.other.rotate(x, positions)
    rounded = positions.bfloat16().long()
    became = f"{int(positions[-1]):,} becomes {int(rounded[-1]):,}"
    yield f"positions in bfloat16 explain it: {became}", formula.rotate(x, rounded)
    yield "it rotates the other way: its sine has the opposite sign", formula.rotate(x, -positions)
    yield "it is one position ahead: it counts from 1", formula.rotate(x, positions + 1)
    if formula.rotary_dim < formula.head_dim:
        whole = reference.inverse_frequencies(formula.head_dim, formula.theta)[: formula.rotary_dim // 2]
        explanation = "its exponents are divided by head_dim, those of a partial rotation by rotary_dim"
        yield explanation, formula.rotate(x, positions, frequencies=whole)
    if formula.scaling is not None:
        yield "the scaling is not applied", replace(formula, scaling=None).rotate(x, positions)
        yield "the scaling's magnitude is not applied", formula.rotate(x, positions, magnitude=1.0)


def _explain_frequencies(formula: Formula, x: Tensor, positions: Tensor, result: Tensor) -> str:
    """Explain a wrong result by its angles at position 1: another theta or layout, or a pair that differs."""
    at = (positions == 1).nonzero().flatten()
    if not len(at) or not result.isfinite().all():
        return ""
    before, after = (v[:, :, at[0]].double().flatten(0, 1) for v in (x, result))
    for layout in (formula, formula.other) if formula.scaling is None else ():
        measured = _angles(layout, before, after)
        if len(measured) > 1 and 0 < measured[1] < 1:
            theta = exp(-log(measured[1]) * formula.rotary_dim / 2)
            fitted = reference.inverse_frequencies(formula.rotary_dim, theta)
            if all(abs(w - fit) <= 1e-3 * fit + 1e-6 for w, fit in zip(measured, fitted, strict=True)):
                if layout is formula and abs(theta / formula.theta - 1) < 1e-3:
                    return "its angles at position 1 are correct; it is wrong at other positions, or in norm"
                suffix = "" if layout is formula else f", in the {layout.layout} layout"
                return f"its angles are those of theta={float(f'{theta:.4g}'):,.10g}{suffix}"
    for n, (w, needed) in enumerate(zip(_angles(formula, before, after), formula.frequencies, strict=True)):
        if abs(w - needed) > 1e-3 * needed:
            return f"pair {n} rotates by {w:.4g} per position, where {needed:.4g} is needed"
    return ""


def _angles(formula: Formula, before: Tensor, after: Tensor) -> list[float]:
    """Return the angle by which each pair was rotated, estimated over all rows."""
    angles = []
    for a, b in formula.pairs():
        across = (before[:, a] * after[:, b] - before[:, b] * after[:, a]).sum()
        along = (before[:, a] * after[:, a] + before[:, b] * after[:, b]).sum()
        angles.append(torch.atan2(across, along).item())
    return angles
