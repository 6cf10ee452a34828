"""What a rotation should be, and which known reading it is where it is another."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import exp, floor, log, log2

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere import reference
from whatwhere.testing.probe import Verdict, single
from whatwhere.where.scaling import Scaling


@dataclass(frozen=True)
class Formula:
    """Hold what a rotation was said to be, and give it by the NumPy reference."""

    head_dim: int
    rotary_dim: int
    theta: float
    interleaved: bool
    scaling: Scaling | None = None

    @property
    def magnitude(self) -> float:
        """What the features that turn are multiplied by."""
        return 1.0 if self.scaling is None else self.scaling.magnitude

    @property
    def frequencies(self) -> list[float]:
        """How far each pair turns per position, in radians."""
        if self.scaling is None:
            return reference.inverse_frequencies(self.rotary_dim, self.theta)
        return [float(w) for w in self.scaling.frequencies(self.rotary_dim, self.theta)]

    @property
    def layout(self) -> str:
        """The layout's name."""
        return "interleaved" if self.interleaved else "half-split"

    @property
    def other(self) -> "Formula":
        """The same in the other layout."""
        return replace(self, interleaved=not self.interleaved)

    def pairs(self) -> list[tuple[int, int]]:
        """Give the two features of each pair."""
        half = self.rotary_dim // 2
        return [(2 * i, 2 * i + 1) if self.interleaved else (i, i + half) for i in range(half)]

    def partners(self) -> dict[int, int]:
        """Give the partner of each feature that turns."""
        turning = [pair for pair, w in zip(self.pairs(), self.frequencies, strict=True) if w]
        return dict(turning) | {b: a for a, b in turning}

    def turn(
        self,
        x: Float[Tensor, "batch heads tokens head_dim"],
        positions: Int64[Tensor, " tokens"],
        frequencies: list[float] | None = None,
        magnitude: float | None = None,
    ) -> Float64[Tensor, "batch heads tokens head_dim"]:
        """Turn x as the formula says, or with other frequencies or another magnitude."""
        turned = reference.rotary(
            x.detach().double().flatten(0, 1).numpy(),
            positions.numpy(),
            interleaved=self.interleaved,
            rotary_dim=self.rotary_dim,
            frequencies=self.frequencies if frequencies is None else frequencies,
        )
        turned[..., : self.rotary_dim] *= self.magnitude if magnitude is None else magnitude
        return torch.from_numpy(turned).view(x.shape)


def told_layout(formula: Formula, rotated: Float[Tensor, "features head_dim"]) -> Verdict:
    """Tell the layout from what becomes of each unit vector at position 1.

    A feature leaks into its partner and nowhere else, whatever the angle.
    """
    leaks = rotated.double().nan_to_num().abs().fill_diagonal_(0)
    partners = {a: int(row.argmax()) for a, row in enumerate(leaks) if row.amax() > 0}
    needed, other = formula.partners(), formula.other
    if partners == needed:
        return Verdict(True)
    if partners == other.partners():
        return Verdict(
            False,
            f"this is the {other.layout} layout: feature 0 turns with feature {partners[0]}. Say interleaved="
            f"{other.interleaved} if the weights are made for it; else queries and keys are scrambled without an error",
        )
    if not partners:
        return Verdict(False, "no feature leaks into another at position 1: nothing turns there")
    odd = next(a for a in range(formula.head_dim) if partners.get(a) != needed.get(a))
    return Verdict(
        False,
        f"{len(partners)} features turn, {len(needed)} are asked for; feature {odd} turns with "
        f"{partners.get(odd, 'none')}, in the {formula.layout} layout with {needed.get(odd, 'none')}",
    )


def told_turn(
    formula: Formula,
    x: Float[Tensor, "batch heads tokens head_dim"],
    positions: Int64[Tensor, " tokens"],
    answer: Float[Tensor, "batch heads tokens head_dim"],
) -> str:
    """Name the reading that a wrong rotation is right by, or what its angles are; nothing where none fits."""
    allowed = single(int(positions.amax())) * max(1.0, formula.magnitude)
    for words, reading in _readings(formula, x, positions):
        if (answer.double() - reading()).abs().amax() <= allowed:
            return words
    return _told_frequencies(formula, x, positions, answer)


def _readings(formula: Formula, x: Tensor, positions: Tensor) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Give the readings that circulate, each with what it makes of x."""
    step = 2.0 ** (floor(log2(max(int(positions.amax()), 1))) - 23)
    yield (
        f"angles in float32 explain it: here they come in steps of {step:.2g} radians",
        partial(formula.turn, x, positions),
    )
    yield f"it is right in the {formula.other.layout} layout", partial(formula.other.turn, x, positions)
    rounded = positions.bfloat16().long()
    yield (
        f"positions in bfloat16 explain it: {int(positions[-1]):,} becomes {int(rounded[-1]):,}",
        partial(formula.turn, x, rounded),
    )
    yield "it turns the other way: its sine has the other sign", partial(formula.turn, x, -positions)
    yield "it is one position ahead: it counts from 1", partial(formula.turn, x, positions + 1)
    if formula.rotary_dim < formula.head_dim:
        whole = reference.inverse_frequencies(formula.head_dim, formula.theta)[: formula.rotary_dim // 2]
        words = "its exponents run over head_dim, those of a partial rotation over rotary_dim"
        yield words, partial(formula.turn, x, positions, frequencies=whole)
    if formula.scaling is not None:
        yield "the scaling is not applied", partial(replace(formula, scaling=None).turn, x, positions)
        yield "the scaling's magnitude is not applied", partial(formula.turn, x, positions, magnitude=1.0)


def _told_frequencies(formula: Formula, x: Tensor, positions: Tensor, answer: Tensor) -> str:
    """Read how far each pair turned at position 1 off the answer, in both layouts."""
    at = (positions == 1).nonzero().flatten()
    if not len(at) or not answer.isfinite().all() or formula.scaling is not None:
        return ""
    before, after = (v[:, :, at[0]].double().flatten(0, 1) for v in (x, answer))
    for layout in (formula, formula.other):
        found = _angles(layout, before, after)
        if len(found) > 1 and 0 < found[1] < 1:
            theta = exp(-log(found[1]) * formula.rotary_dim / 2)
            fitted = reference.inverse_frequencies(formula.rotary_dim, theta)
            if all(abs(w - fit) <= 1e-3 * fit + 1e-6 for w, fit in zip(found, fitted, strict=True)):
                if layout is formula and abs(theta / formula.theta - 1) < 1e-3:
                    return "its angles at position 1 are right; it is off elsewhere, or in length"
                where = "" if layout is formula else f", in the {layout.layout} layout"
                return f"its angles are those of theta={float(f'{theta:.4g}'):,.10g}{where}"
    for n, (w, needed) in enumerate(zip(_angles(formula, before, after), formula.frequencies, strict=True)):
        if abs(w - needed) > 1e-3 * needed:
            return f"pair {n} turns by {w:.4g} a position, where {needed:.4g} is needed"
    return ""


def _angles(formula: Formula, before: Tensor, after: Tensor) -> list[float]:
    """Give the angle between each pair before and after, over all rows."""
    angles = []
    for a, b in formula.pairs():
        across = (before[:, a] * after[:, b] - before[:, b] * after[:, a]).sum()
        along = (before[:, a] * after[:, a] + before[:, b] * after[:, b]).sum()
        angles.append(torch.atan2(across, along).item())
    return angles
