"""check_rotary: check any implementation of rotary, given as a plain function."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import exp, floor, log, log2

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from whatwhere import reference
from whatwhere.checks import require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.testing import harness
from whatwhere.testing.harness import FAR, NEAR, Fault, FormulaLaws, Measurement, NotSupported, Rotate, Trial
from whatwhere.testing.report import Report
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.scaling import DynamicNTK, LongRoPE, Scaling

OwnFormula = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(x, positions) -> x mapped, in float64: x is (batch, heads, tokens, head_dim), positions are (tokens)."""

SHIFT = 100
_OF_LOGITS_NEAR = f"a query and a key are each rounded at two positions: {harness.FLOAT32_WHY}"
_OF_LOGITS_FAR = f"a query and a key are each rounded at two positions: {harness.ROTATION_WHY}"


def check_rotary(
    fn: Rotate,
    head_dim: int,
    *,
    theta: float = 10_000.0,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    scaling: Scaling | None = None,
    expected: OwnFormula | None = None,
    keys: Rotate | None = None,
    module: nn.Module | None = None,
    max_length: int | None = None,
    device: torch.device | str = "cpu",
) -> Report:
    """Check an implementation of rotary position embedding against the formula in float64, and by the laws.

        (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)      angle = p w_i,  w_i = theta ** (-2i / rotary_dim)

    Su et al. 2021, https://arxiv.org/abs/2104.09864, as `whatwhere.reference.rotary` writes it out. For what the
    function does not support, such as positions that are not consecutive, it may raise NotImplementedError: the law
    then does not apply. Any other exception is a failure.

    Args:
        fn: (x, positions) -> x rotated; x is (batch, heads, tokens, head_dim), positions int64 (tokens). All laws but
            `keys` are checked on it.
        head_dim: features of a head.
        theta: above 0.
        interleaved: pairs are (2i, 2i+1); else (i, i + rotary_dim/2).
        rotary_dim: how many features rotate, the first ones; None rotates all.
        scaling: a RoPE scaling, such as `whatwhere.scaling.YaRN`; one that depends on the length is checked up to
            its trained length.
        expected: a formula of your own in place of rotary's: (x, positions) -> x mapped, of NumPy arrays in float64,
            linear in x. Laws that it does not keep itself do not apply; settings of rotary are refused beside it.
        keys: the same for keys, where an implementation maps queries and keys by one call; None skips the law `keys`,
            and `fn` maps both in the laws of logits.
        module: the module behind fn, if there is one; the last law converts it to bfloat16 and restores its tensors.
        max_length: how many positions fn supports, at least 64; None checks up to position 1,000,000.
        device: of the inputs of fn.

    Returns:
        A report with one finding for each law.

    Raises:
        ShapeError: If the sizes do not fit a rotation.
        SettingError: If a setting is out of its range, max_length below 64, or a setting of rotary's beside `expected`.

    Examples:
        >>> from whatwhere import Rotary
        >>> rope = Rotary(head_dim=16)
        >>> queries, keys = (lambda x, positions, n=n: rope(x, x, positions)[n] for n in (0, 1))
        >>> check_rotary(queries, head_dim=16, keys=keys, module=rope).passed
        True
    """
    settings: dict[str, object] = {"head_dim": head_dim}
    if expected is None:
        rotary = Rotary(head_dim, theta, interleaved=interleaved, rotary_dim=rotary_dim, scaling=scaling)  # checks them
        rotates = rotary.rotary_dim
        settings |= {"theta": theta, "interleaved": interleaved}
    else:
        require_whole("check_rotary", head_dim=head_dim)
        rotates, settings["expected"] = head_dim, "function"
        if (theta, interleaved, rotary_dim, scaling) != (10_000.0, False, None, None):
            raise SettingError(
                "check_rotary got expected=, a whole formula, and theta, interleaved, rotary_dim or scaling beside it, "
                "which nothing would read.\nPass the formula alone."
            )
    last = harness.last_position("check_rotary", max_length)
    if isinstance(scaling, DynamicNTK | LongRoPE):
        trained = min(last + 1, scaling.original_length)
        last = harness.last_position("check_rotary, up to the scaling's trained length,", trained)
    formula = _Formula(head_dim, rotates, theta, interleaved, scaling, expected)
    laws = _Laws(fn, formula, last, torch.device(device), keys)
    settings |= {} if rotary_dim is None else {"rotary_dim": rotary_dim}
    settings |= {} if scaling is None else {"scaling": str(scaling)}
    return Report("check_rotary", settings, harness.run_all([*laws.trials(), laws.bfloat16_module(module)]))


@dataclass(frozen=True)
class _Formula:
    """The settings of the expected rotation, computed by the NumPy reference, or by a function of its own."""

    head_dim: int
    rotary_dim: int
    theta: float
    interleaved: bool
    scaling: Scaling | None = None
    own: OwnFormula | None = None

    @property
    def magnitude(self) -> float:
        return 1.0 if self.scaling is None else self.scaling.magnitude

    @property
    def frequencies(self) -> list[float]:
        if self.scaling is None:
            return reference.inverse_frequencies(self.rotary_dim, self.theta)
        return [float(w) for w in self.scaling.frequencies(self.rotary_dim, self.theta)]

    @property
    def layout(self) -> str:
        return "interleaved" if self.interleaved else "half"

    @property
    def other(self) -> "_Formula":
        """The same rotation in the other layout."""
        return replace(self, interleaved=not self.interleaved)

    def pairs(self) -> list[tuple[int, int]]:
        half = self.rotary_dim // 2
        return [(2 * i, 2 * i + 1) if self.interleaved else (i, i + half) for i in range(half)]

    def partners(self) -> dict[int, int]:
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
            mapped = torch.as_tensor(np.array(self.own(x.detach().double().numpy(), positions.numpy()), np.float64))
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


@dataclass(frozen=True, eq=False)
class _Laws(FormulaLaws):
    fn: Rotate
    formula: _Formula
    last: int
    device: torch.device
    keys: Rotate | None = None

    def call(self, x: Tensor, positions: Tensor, keys: bool = False) -> Tensor:
        fn = self.keys if keys and self.keys is not None else self.fn
        result = harness.call(fn, x.to(self.device, copy=True), positions.to(self.device, copy=True))
        return harness.require_shape(result, tuple(x.shape), "(batch, heads, tokens, head_dim), as x has,").cpu()

    def sample(self, tokens: int, seed: int = 0) -> Float[Tensor, "batch heads tokens head_dim"]:
        return harness.sample(2, 3, tokens, self.formula.head_dim, seed=seed)

    def compare(self, positions: Int64[Tensor, " tokens"], tolerance: float) -> Measurement:
        x = self.sample(len(positions))
        result = self.call(x, positions)
        errors = _by_token(result.double() - self.formula.rotate(x, positions))
        note = partial(_explain, self.formula, x, positions, result)
        return Measurement(errors, positions, tolerance * self.formula.magnitude, note)

    def trials(self) -> Iterator[Trial]:
        """Yield the laws in the order of the checks: the first call is an ordinary one, which fills caches."""
        end = self.last
        near, far, last = min(SHIFT, end - NEAR), min(FAR, end), end - NEAR
        exact, rounded, coarse = harness.ROTATION_WHY, harness.FLOAT32_WHY, harness.BFLOAT16_WHY
        but = "" if self.formula.magnitude == 1 else ", except by the scaling's magnitude"
        shifted = f"shifting all positions by {near} changes no logit (in |q| |k|)"
        shape = "the result has the shape and dtype of x, float32 or bfloat16"
        yield Trial("formula", f"positions 0..{NEAR} rotate by the formula", lambda: self.first, rounded)
        yield Trial("position 0", "position 0 rotates nothing", self.identity, exact)
        yield Trial("layout", "the features of each pair are those of the given layout", self.layout)
        yield Trial("keys", f"keys at positions 0..{NEAR} are rotated like queries", self.like_queries, rounded)
        yield Trial("shape and dtype", shape, self.shape_and_dtype)
        yield Trial("input kept", "x and positions are not modified", self.input_unmodified)
        yield Trial("norms", f"no vector changes its norm{but}", self.norms, exact)
        relative = partial(self.relative, near, harness.float32_tolerance(near + NEAR))
        yield Trial("relative", shifted, relative, _OF_LOGITS_NEAR)
        yield Trial("any positions", "positions may repeat, skip and decrease", self.any_positions, rounded)
        for law, position in (("far", far), ("very far", harness.LAST_POSITION)):
            yield Trial(law, f"positions up to {position:,} rotate by the formula", partial(self.at, position), exact)
        shifted = f"shifting all positions by {last:,} changes no logit either"
        yield Trial("relative far away", shifted, partial(self.relative, last, harness.ROTATION), _OF_LOGITS_FAR)
        yield Trial("gradient", "the gradient is rotated back by the same angles", self.gradient, rounded)
        low_precision = partial(self.low_precision, autocast=False)
        yield Trial("bfloat16 input", "queries in bfloat16 rotate by the same angles", low_precision, coarse)
        low_precision = partial(self.low_precision, autocast=True)
        yield Trial("autocast", "autocast to bfloat16 rounds no angle", low_precision, coarse)
        yield Trial("call order", "no call affects a later one", self.call_order, rounded)

    def require_kept(self, errors: Tensor, tolerance: float, change: str) -> None:
        """Raise NotSupported where a formula of the user's own does not keep a law of rotations."""
        if self.formula.own is not None and not (errors <= tolerance).all():
            raise NotSupported(f"the formula that is expected {change}")

    def identity(self) -> Measurement:
        x, positions = self.sample(1), torch.zeros(1, dtype=torch.int64)
        at_zero = self.formula.rotate(x, positions)
        self.require_kept((at_zero - x).abs(), harness.ROTATION, "maps vectors at position 0 too")
        error = self.call(x, positions).double() - at_zero
        return Measurement(_by_token(error), positions, harness.ROTATION * self.formula.magnitude)

    def layout(self) -> None:
        """Rotate each unit vector alone: the other feature that changes is its partner, whatever the angle."""
        if self.formula.own is not None:
            raise NotSupported("a formula of your own says no layout")
        units = torch.eye(self.formula.head_dim)[:, None, None].expand(-1, 1, 2, -1)
        _check_layout(self.formula, self.call(units, torch.arange(2))[:, 0, 1])

    def like_queries(self) -> Measurement:
        if self.keys is None:
            raise NotSupported("no function of keys was passed: pass keys=")
        x, positions = self.sample(NEAR + 1), torch.arange(NEAR + 1)
        error = self.call(x, positions, keys=True).double() - self.call(x, positions).double()
        return Measurement(_by_token(error), positions, harness.float32_tolerance(NEAR) * self.formula.magnitude)

    def shape_and_dtype(self) -> None:
        for dtype in (torch.float32, torch.bfloat16):
            returned = self.call(self.sample(4).to(dtype), torch.arange(4)).dtype
            harness.require(returned == dtype, f"queries in {dtype} are returned in {returned}")

    def input_unmodified(self) -> None:
        x, positions = self.sample(4).to(self.device), torch.arange(3, 7, device=self.device)
        before = x.clone(), positions.clone()
        harness.call(self.fn, x, positions)
        written = "it writes its result into x: whatever reads x later is wrong, gradients too"
        harness.require(torch.equal(x, before[0]), written)
        harness.require(torch.equal(positions, before[1]), "it modifies positions")

    def norms(self) -> Measurement:
        positions, x = harness.contiguous(harness.LAST_POSITION, 12, self.last), self.sample(12)
        self.require_kept(harness.norm_error(x, self.formula.rotate(x, positions)), harness.ROTATION, "changes norms")
        y, rotated = self.call(x, positions), self.formula.rotary_dim
        errors = harness.norm_error(x[..., :rotated], y[..., :rotated], self.formula.magnitude).amax((0, 1))
        if rotated < x.shape[-1]:
            errors = errors.maximum(_by_token((y - x)[..., rotated:]))
        return Measurement(errors, positions, 2 * harness.ROTATION)

    def relative(self, shift: int, error: float) -> Measurement:
        positions, q, k = torch.arange(12), self.sample(12), self.sample(12, seed=1)
        expected = ([self.formula.rotate(x, p) for x in (q, k)] for p in (positions, positions + shift))
        tolerance = harness.logit_tolerance(error)
        self.require_kept(harness.logit_error(*expected), tolerance, "is not relative")
        before, after = ([self.call(x, p, keys=x is k) for x in (q, k)] for p in (positions, positions + shift))
        return Measurement(_by_token(harness.logit_error(before, after)), positions + shift, tolerance)

    def gradient(self) -> Measurement:
        """Of a map by a matrix R the gradient is R transposed times the incoming one."""
        self.require_correct()
        positions, incoming = torch.arange(NEAR + 1), self.sample(NEAR + 1, seed=2)

        def backward(x: Tensor, positions: Tensor) -> Tensor:
            y = self.fn(x, positions)
            if not y.requires_grad:
                raise NotSupported("the result has no gradient: the implementation is for inference only")
            return torch.autograd.grad(y, x, incoming.to(y.device))[0]

        x = self.sample(NEAR + 1).to(self.device).requires_grad_()
        gradient = harness.call(backward, x, positions.to(self.device), gradient=True).cpu()
        errors = _by_token(gradient.double() - self.formula.rotate_back(incoming, positions))
        return Measurement(errors, positions, harness.float32_tolerance(NEAR) * self.formula.magnitude)

    def low_precision(self, autocast: bool) -> Measurement:
        """Check beyond 256, the last position up to which whole numbers are exact in bfloat16."""
        parts = []
        for positions in torch.cat([harness.contiguous(end, 12, self.last) for end in (265, 4105)]).unique().split(12):
            x = self.sample(len(positions))
            expected = self.formula.rotate(x, positions) if self.correct else self.call(x, positions).double()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=autocast):
                result = self.call(x if autocast else x.bfloat16(), positions)
            parts.append((_by_token(result.double() - expected), positions))
        errors, at = (torch.cat(part) for part in zip(*parts, strict=True))
        tolerance = harness.BFLOAT16 * self.formula.magnitude
        wrong = at[~(errors <= tolerance)]
        rounds = 257 in wrong and bool((wrong > 256).all())
        note = "it is correct up to position 256, the last whole numbers of bfloat16: it rounds positions to bfloat16"
        return Measurement(errors, at, tolerance, lambda: note if rounds else "")

    def call_order(self) -> Measurement:
        """Call with inputs that a wrong cache would serve: another dtype, other positions, or the first again."""
        few, many = torch.arange(NEAR + 1), harness.contiguous(299, 300, self.last)
        x, long = self.sample(len(few)), self.sample(len(many))
        tolerance = harness.float32_tolerance(int(many[-1])) * self.formula.magnitude
        before = self.call(x, few)
        self.call(long.bfloat16(), many)
        later = self.call(long, many)[:, :, -12:]
        shifted = self.call(x, few + 7)
        errors = [("the first call has another result when repeated", few, self.call(x, few) - before)]
        if self.correct:  # an implementation that is wrong from the start cannot show a fault of its caches
            error = later.double() - self.formula.rotate(long[:, :, -12:], many[-12:])
            errors.append(("it is wrong in float32 after a call in bfloat16", many[-12:], error))
            error = shifted.double() - self.formula.rotate(x, few + 7)
            repeats = bool((shifted - before).abs().amax() <= tolerance)
            served = (
                "get the result of an earlier call of the same length" if repeats else "are wrong after these calls"
            )
            errors.append((f"other positions {served}", few + 7, error))
        notes = [note for note, _, error in errors if not error.abs().amax() <= tolerance]
        by_position = torch.cat([_by_token(error) for _, _, error in errors])
        return Measurement(by_position, torch.cat([at for _, at, _ in errors]), tolerance, lambda: "; ".join(notes))

    def bfloat16_module(self, module: nn.Module | None) -> Trial:
        x, positions = self.sample(13), harness.contiguous(4105, 13, self.last)

        def compare(before: Tensor, after: Tensor) -> Measurement:
            errors = _by_token(after - before[:, :, :-1])
            return Measurement(errors, positions[:-1], harness.ROTATION * self.formula.magnitude)

        whole, fewer = partial(self.call, x, positions), partial(self.call, x[:, :, :-1], positions[:-1])
        return harness.converted("changes nothing", harness.ROTATION_WHY, module, whole, fewer, compare)


def _by_token(difference: Float[Tensor, "batch heads tokens features"]) -> Float64[Tensor, " tokens"]:
    return difference.double().abs().amax((0, 1, 3))


# The explanation of a wrong rotation by the mistakes that are known.


def _check_layout(formula: _Formula, rotated: Float[Tensor, "features head_dim"]) -> None:
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
            f"{other.interleaved} if the weights are in this layout; else queries and keys are silently scrambled"
        )
    if not partners:
        raise Fault("no feature changes another at position 1: nothing is rotated there")
    first = next(a for a in range(formula.head_dim) if partners.get(a) != needed.get(a))
    raise Fault(
        f"{len(partners)} features rotate, {len(needed)} are expected; feature {first} is paired with "
        f"{partners.get(first, 'none')}, in the {formula.layout} layout with {needed.get(first, 'none')}"
    )


def _explain(
    formula: _Formula,
    x: Float[Tensor, "batch heads tokens head_dim"],
    positions: Int64[Tensor, " tokens"],
    result: Float[Tensor, "batch heads tokens head_dim"],
) -> str:
    """Return the known mistake that explains a wrong rotation, or its angles; "" where none fits."""
    tolerance = harness.float32_tolerance(int(positions.amax())) * max(1.0, formula.magnitude)
    known = harness.explained(result, _mistakes(formula, x, positions), tolerance)
    return known if known or formula.own is not None else _explain_frequencies(formula, x, positions, result)


def _mistakes(formula: _Formula, x: Tensor, positions: Tensor) -> Iterator[tuple[str, Tensor]]:
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


def _explain_frequencies(formula: _Formula, x: Tensor, positions: Tensor, result: Tensor) -> str:
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


def _angles(formula: _Formula, before: Tensor, after: Tensor) -> list[float]:
    """Return the angle by which each pair was rotated, estimated over all rows."""
    angles = []
    for a, b in formula.pairs():
        across = (before[:, a] * after[:, b] - before[:, b] * after[:, a]).sum()
        along = (before[:, a] * after[:, a] + before[:, b] * after[:, b]).sum()
        angles.append(torch.atan2(across, along).item())
    return angles
