"""check_input_encoding: check an input encoding, sinusoidal or by a formula of your own, given as a function."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import atan2, exp, floor, log, log2

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from whatwhere import reference
from whatwhere.checks import require_choice, require_even, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.testing import harness
from whatwhere.testing.harness import FAR, NEAR, Encode, Fault, FormulaLaws, Measurement, NotSupported, Trial
from whatwhere.testing.report import Report
from whatwhere.where.frequencies import LAYOUTS, Layout, layout_frequencies

_EXACT = "float32 rounds a sine by 2**-24, and six times that is allowed; the angle is exact"
_ROUNDED = (
    "float32 rounds a sine by 2**-24, six times that is allowed, and an angle at position p by some 4 p times that"
)
_BFLOAT16 = 2.0**-8
_COARSE = "bfloat16 rounds a sine by 2**-9, and twice that is allowed"


def check_input_encoding(
    fn: Encode,
    dim: int,
    *,
    layout: Layout = "interleaved",
    theta: float = 10_000.0,
    expected: Callable[[np.ndarray], np.ndarray] | None = None,
    module: nn.Module | None = None,
    max_length: int | None = None,
    device: torch.device | str = "cpu",
) -> Report:
    """Check an input encoding against a formula in float64, that of the sinusoid or your own, and by the laws.

        interleaved     PE[p, 2i] = sin(p w_i)   PE[p, 2i+1] = cos(p w_i)        w_i = theta ** (-2i / dim)
        half            PE[p, i]  = sin(p w_i)   PE[p, dim/2 + i] = cos(p w_i)   the same w_i
        tensor2tensor   as half                                                  w_i = theta ** (-i / (dim/2 - 1))

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, as `whatwhere.reference.sinusoid` writes it out. For what
    the function does not support, such as positions that are not consecutive, it may raise NotImplementedError: the
    law then does not apply. Any other exception is a failure.

    Args:
        fn: positions -> vectors; positions are int64 (tokens), vectors (tokens, dim).
        dim: features; of a sinusoid an even number.
        layout: which of the three is expected.
        theta: above 0.
        expected: a formula of your own in place of the sinusoid: positions -> vectors, of NumPy arrays, in float64.
            What sinusoids alone keep (their layout, numbers within -1..1, inner products by distance) is not checked.
        module: the module behind fn, if there is one; the last law converts it to bfloat16 and restores its tensors.
        max_length: how many positions fn supports, at least 64; None checks up to position 1,000,000.
        device: of the inputs of fn.

    Returns:
        A report with one finding for each law.

    Raises:
        ShapeError: If dim is odd, or too small for the layout; or `expected` returns a wrong shape.
        SettingError: If a setting is out of its range, max_length below 64, or layout or theta beside `expected`.

    Examples:
        >>> from whatwhere import Sinusoidal
        >>> encoding = Sinusoidal(dim=16)
        >>> check_input_encoding(lambda positions: encoding(positions)[0], dim=16, module=encoding).passed
        True
    """
    require_whole("check_input_encoding", dim=dim)
    settings: dict[str, object] = {"dim": dim, "layout": layout, "theta": theta}
    if expected is None:
        require_even("check_input_encoding", "a sine and a cosine share one frequency", dim=dim)
        require_choice("check_input_encoding", "layout", layout, LAYOUTS)
        require_positive("check_input_encoding", theta=theta)
        layout_frequencies(dim, theta, layout)  # tensor2tensor needs two pairs
    elif (layout, theta) != ("interleaved", 10_000.0):
        raise SettingError(
            "check_input_encoding got expected=, a whole formula, and layout or theta beside it, which nothing would "
            "read.\nPass the formula alone."
        )
    else:
        settings = {"dim": dim, "expected": "function"}
    last = harness.last_position("check_input_encoding", max_length)
    laws = _Laws(fn, _Formula(dim, layout, theta, expected, last), last, torch.device(device))
    return Report("check_input_encoding", settings, harness.run_all([*laws.trials(), laws.bfloat16_module(module)]))


@dataclass(frozen=True)
class _Formula:
    """The settings of the expected sinusoid, computed by the NumPy reference, or a function of its own."""

    dim: int
    layout: Layout
    theta: float
    own: Callable[[np.ndarray], np.ndarray] | None
    last: int  # position, beyond which a formula of one's own may not be defined

    def at(self, positions: Int64[Tensor, " tokens"]) -> Float64[Tensor, "tokens dim"]:
        if self.own is None:
            return torch.from_numpy(reference.sinusoid(positions.numpy(), self.dim, self.theta, self.layout))
        vectors = torch.as_tensor(np.array(self.own(positions.numpy()), np.float64))
        if vectors.shape == (len(positions), self.dim):
            return vectors
        raise ShapeError(
            f"check_input_encoding got an `expected` that returns the shape {tuple(vectors.shape)}, but needs (tokens, "
            f"dim), here {(len(positions), self.dim)}."
        )

    def require_sinusoid(self) -> None:
        if self.own is not None:
            raise NotSupported("the formula that is expected is not the sinusoid")

    def second_angle(self, row: Float[Tensor, " dim"]) -> float:
        """Return the angle of the second pair in the vector of position 1."""
        sine, cosine = (2, 3) if self.layout == "interleaved" else (1, self.dim // 2 + 1)
        return atan2(float(row[sine]), float(row[cosine]))


@dataclass(frozen=True, eq=False)
class _Laws(FormulaLaws):
    fn: Encode
    formula: _Formula
    last: int
    device: torch.device

    def trials(self) -> Iterator[Trial]:
        """Yield the laws in the order of the checks: the first call is an ordinary one, which fills caches."""
        last, products = harness.LAST_POSITION, "the inner product of two vectors depends on their distance only"
        yield Trial("formula", f"positions 0..{NEAR} have the vectors of the formula", lambda: self.first, _ROUNDED)
        yield Trial("layout", "sines and cosines are at the features of the layout", self.layout)
        yield Trial("shape", "vectors are (tokens, dim), of floating point", self.shape)
        yield Trial("input kept", "positions are not modified", self.input_unmodified)
        yield Trial("bounded", "every number is within -1..1", self.bounded, "a sine may be rounded up by 2**-24")
        yield Trial("any order", "permuting positions permutes rows", self.any_order, _EXACT)
        yield Trial("any positions", "positions may repeat, skip and decrease", self.any_positions, _ROUNDED)
        yield Trial("inner product", products, self.products, f"of 2 dim: {_ROUNDED}")
        for law, position in (("far", min(FAR, self.last)), ("very far", last)):
            statement = f"positions up to {position:,} have the vectors of the formula"
            yield Trial(law, statement, partial(self.at, position), _EXACT)
        yield Trial("autocast", "autocast to bfloat16 rounds no angle", self.autocast, _COARSE)
        yield Trial("call order", "no call affects a later one", self.call_order, _ROUNDED)

    def call(self, positions: Int64[Tensor, " tokens"]) -> Float[Tensor, "tokens dim"]:
        result = harness.call(self.fn, positions.to(self.device, copy=True))
        vectors = harness.require_shape(result, (len(positions), self.formula.dim), "(tokens, dim)").cpu()
        if not vectors.is_floating_point():
            raise Fault(f"it returned {vectors.dtype}, but vectors of floating point are needed")
        return vectors

    def compare(self, positions: Int64[Tensor, " tokens"], tolerance: float) -> Measurement:
        result, right = self.call(positions), self.formula.at(positions)
        largest = right.abs().amax(-1).clamp(min=1)  # of large numbers errors are relative
        errors = (result.double() - right).abs().amax(-1) / largest
        return Measurement(errors, positions, tolerance, partial(_explain, self.formula, positions, result))

    def layout(self) -> None:
        self.formula.require_sinusoid()
        _check_layout(self.formula, self.call(torch.arange(2))[0])

    def shape(self) -> None:
        self.call(torch.arange(4))

    def input_unmodified(self) -> None:
        positions = torch.arange(3, 7, device=self.device)
        harness.call(self.fn, positions)
        same = torch.equal(positions.cpu(), torch.arange(3, 7))
        harness.require(same, "it modifies the positions that it is called with")

    def bounded(self) -> Measurement:
        self.formula.require_sinusoid()
        near, far = torch.arange(NEAR + 1), harness.contiguous(harness.LAST_POSITION, 12, self.last)
        vectors = torch.cat([self.call(near), self.call(far)]).double()
        return Measurement((vectors.abs().amax(-1) - 1).clamp(min=0), torch.cat([near, far]), harness.UNIT)

    def any_order(self) -> Measurement:
        positions = torch.tensor([0, 1, 2, 3, 5, 8, 13, 21, 34, 55, self.last])
        order = torch.randperm(len(positions), generator=torch.Generator().manual_seed(0))
        return Measurement(harness.permutation_error(self.call, positions, order), positions[order], harness.ROTATION)

    def products(self) -> Measurement:
        """<PE(p), PE(p + 17)> is a sum of cosines of the distance: PE(p + 17) is PE(p) rotated by the same angles."""
        self.formula.require_sinusoid()
        starts, rows = [0, 1, 7, 30], self.call(torch.arange(48))
        errors = harness.inner_product_error(lambda positions: rows[positions], 17, starts)
        return Measurement(errors, torch.tensor(starts), 2 * self.formula.dim * harness.float32_tolerance(47))

    def autocast(self) -> Measurement:
        positions = harness.contiguous(4105, 13, self.last)
        outside = self.call(positions).double()
        with torch.autocast(self.device.type, torch.bfloat16):  # other inputs, so that no cache can answer
            inside = self.call(positions[:-1]).double()
        return Measurement((inside - outside[:-1]).abs().amax(-1), positions[:-1], _BFLOAT16)

    def call_order(self) -> Measurement:
        """Repeat the first call at the end; between, call with as many other positions."""
        few = torch.arange(NEAR + 1)
        before = self.call(few).double()
        elsewhere, in_another_shape = self.call(few + 7).double(), self.call(torch.arange(NEAR + 8)).double()[7:]
        again = self.call(few).double()
        errors = [(again - before).abs().amax(-1), (elsewhere - in_another_shape).abs().amax(-1)]
        return Measurement(torch.cat(errors), torch.cat([few, few + 7]), harness.float32_tolerance(NEAR + 7))

    def bfloat16_module(self, module: nn.Module | None) -> Trial:
        positions = harness.contiguous(4100, 13, self.last)

        def compare(before: Tensor, after: Tensor) -> Measurement:
            errors = (after.double() - before[:-1].double()).abs().amax(-1)
            return Measurement(errors, positions[:-1], _BFLOAT16)

        whole, fewer = partial(self.call, positions), partial(self.call, positions[:-1])
        return harness.converted("rounds no angle", _COARSE, module, whole, fewer, compare)


def _check_layout(formula: _Formula, row: Float[Tensor, " dim"]) -> None:
    """Raise Fault unless the layout is the expected one, from position 0: every sine is 0 there, and every cosine 1."""
    if (row.double() - formula.at(torch.tensor([0]))[0]).abs().amax() <= harness.ROTATION:
        return
    known: dict[str, Tensor] = {}
    layouts: tuple[Layout, ...] = ("interleaved", "half")
    for layout in layouts:
        zeros = replace(formula, layout=layout).at(torch.tensor([0]))[0]
        known |= {f"{layout} layout": zeros, f"{layout} layout with cosines first": 1 - zeros}
    for name, zeros in known.items():
        other = (row.double() - zeros).abs().amax() <= harness.ROTATION
        harness.require(~other, f"this is the {name}, by the zeros and ones of position 0", first=0)
    raise NotSupported("position 0 has other numbers than zeros and ones, so it does not show the layout")


def _explain(formula: _Formula, positions: Int64[Tensor, " tokens"], result: Float[Tensor, "tokens dim"]) -> str:
    tolerance = harness.float32_tolerance(int(positions.amax()))
    known = harness.explained(result, _mistakes(formula, positions, result), tolerance)
    return known or ("" if formula.own else _explain_theta(formula, positions, result))


def _mistakes(formula: _Formula, positions: Tensor, result: Tensor) -> Iterator[tuple[str, Tensor]]:
    if formula.own is None:
        yield from _mistakes_of_sinusoids(formula, positions)
    moved = {f"it is {ahead} ahead: its first position is {ahead}": positions + ahead for ahead in (1, 2)}
    for what, at in {"positions in bfloat16 explain it": positions.bfloat16().long(), **moved}.items():
        if formula.own is None or at.amax() <= formula.last:
            yield what, formula.at(at)
    factor = float(result.double()[0].norm() / formula.at(positions)[0].norm())
    yield f"it is {factor:.4g} times the formula", factor * formula.at(positions)


def _mistakes_of_sinusoids(formula: _Formula, positions: Tensor) -> Iterator[tuple[str, Tensor]]:
    step = 2.0 ** (floor(log2(max(int(positions.amax()), 1))) - 23)
    yield f"angles in float32 explain it: their spacing here is {step:.2g} radians", formula.at(positions)
    for layout in LAYOUTS:
        if layout != formula.layout and (layout != "tensor2tensor" or formula.dim >= 4):
            yield f"this is the {layout} layout", replace(formula, layout=layout).at(positions)
    pairs = (-1, 2) if formula.layout == "interleaved" else (2, -1)
    swapped = formula.at(positions).unflatten(-1, pairs).flip(-1 if formula.layout == "interleaved" else -2)
    yield "its cosines come first", swapped.flatten(-2)


def _explain_theta(formula: _Formula, positions: Tensor, result: Tensor) -> str:
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
