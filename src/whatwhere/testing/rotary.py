"""check_rotary: check any implementation of rotary, given as a plain function."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.errors import SettingError
from whatwhere.testing import harness
from whatwhere.testing.expected_rotary import Formula, OwnFormula, check_layout, explain_rotation
from whatwhere.testing.harness import (
    BFLOAT16,
    FAR,
    LAST_POSITION,
    NEAR,
    ROTATION,
    FormulaLaws,
    Law,
    Measurement,
    NotSupported,
    Trial,
    contiguous,
    float32_tolerance,
)
from whatwhere.testing.laws import Rotate, logit_error, logit_tolerance, norm_error
from whatwhere.testing.report import Report
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.scaling import DynamicNTK, LongRoPE, Scaling

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
    formula = Formula(head_dim, rotates, theta, interleaved, scaling, expected)
    laws = _Laws(fn, formula, last, torch.device(device), keys)
    settings |= {} if rotary_dim is None else {"rotary_dim": rotary_dim}
    settings |= {} if scaling is None else {"scaling": str(scaling)}
    return Report("check_rotary", settings, harness.run_all([*laws.trials(), laws.bfloat16_module(module)]))


@dataclass(frozen=True, eq=False)
class _Laws(FormulaLaws):
    """The laws, applied to a rotary implementation and the formula that it should follow."""

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
        x = self.sample(len(positions))
        result = self.call(x, positions)
        errors = _by_token(result.double() - self.formula.rotate(x, positions))
        note = partial(explain_rotation, self.formula, x, positions, result)
        return Measurement(errors, positions, tolerance * self.formula.magnitude, note)

    def trials(self) -> Iterator[Trial]:
        """Yield the laws in the order of the checks: the first call is an ordinary one, which fills caches."""
        end = self.last
        near, far, last = min(SHIFT, end - NEAR), min(FAR, end), end - NEAR
        exact, rounded, coarse = harness.ROTATION_WHY, harness.FLOAT32_WHY, harness.BFLOAT16_WHY
        yield Law("formula", f"positions 0..{NEAR} rotate by the formula", rounded), lambda: self.first
        yield Law("position 0", "position 0 rotates nothing", exact), self.identity
        yield Law("layout", "the features of each pair are those of the given layout"), self.layout
        yield Law("keys", f"keys at positions 0..{NEAR} are rotated like queries", rounded), self.like_queries
        yield (
            Law("shape and dtype", "the result has the shape and dtype of x, float32 or bfloat16"),
            self.shape_and_dtype,
        )
        yield Law("input kept", "x and positions are not modified"), self.input_unmodified
        but = "" if self.formula.magnitude == 1 else ", except by the scaling's magnitude"
        yield Law("norms", f"no vector changes its norm{but}", exact), self.norms
        law = Law("relative", f"shifting all positions by {near} changes no logit (in |q| |k|)", _OF_LOGITS_NEAR)
        yield law, partial(self.relative, near, float32_tolerance(near + NEAR))
        yield Law("any positions", "positions may repeat, skip and decrease", rounded), self.any_positions
        yield Law("far", f"positions up to {far:,} rotate by the formula", exact), partial(self.at, far)
        law = Law("very far", f"positions up to {LAST_POSITION:,} rotate by the formula", exact)
        yield law, partial(self.at, LAST_POSITION)
        law = Law("relative far away", f"shifting all positions by {last:,} changes no logit either", _OF_LOGITS_FAR)
        yield law, partial(self.relative, last, ROTATION)
        yield Law("gradient", "the gradient is rotated back by the same angles", rounded), self.gradient
        law = Law("bfloat16 input", "queries in bfloat16 rotate by the same angles", coarse)
        yield law, partial(self.low_precision, autocast=False)
        law = Law("autocast", "autocast to bfloat16 rounds no angle", coarse)
        yield law, partial(self.low_precision, autocast=True)
        yield Law("call order", "no call affects a later one", rounded), self.call_order

    def require_kept(self, errors: Tensor, tolerance: float, change: str) -> None:
        """Raise NotSupported where a formula of the user's own does not keep a law of rotations."""
        if self.formula.own is not None and not (errors <= tolerance).all():
            raise NotSupported(f"the formula that is expected {change}")

    def identity(self) -> Measurement:
        x, positions = self.sample(1), torch.zeros(1, dtype=torch.int64)
        at_zero = self.formula.rotate(x, positions)
        self.require_kept((at_zero - x).abs(), ROTATION, "maps vectors at position 0 too")
        error = self.call(x, positions).double() - at_zero
        return Measurement(_by_token(error), positions, ROTATION * self.formula.magnitude)

    def layout(self) -> None:
        """Rotate each unit vector alone: the other feature that changes is its partner, whatever the angle."""
        if self.formula.own is not None:
            raise NotSupported("a formula of your own says no layout")
        units = torch.eye(self.formula.head_dim)[:, None, None].expand(-1, 1, 2, -1)
        check_layout(self.formula, self.call(units, torch.arange(2))[:, 0, 1])

    def like_queries(self) -> Measurement:
        if self.keys is None:
            raise NotSupported("no function of keys was passed: pass keys=")
        x, positions = self.sample(NEAR + 1), torch.arange(NEAR + 1)
        error = self.call(x, positions, keys=True).double() - self.call(x, positions).double()
        return Measurement(_by_token(error), positions, float32_tolerance(NEAR) * self.formula.magnitude)

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
        positions, x = contiguous(LAST_POSITION, 12, self.last), self.sample(12)
        self.require_kept(norm_error(x, self.formula.rotate(x, positions)), ROTATION, "changes norms")
        y, rotated = self.call(x, positions), self.formula.rotary_dim
        errors = norm_error(x[..., :rotated], y[..., :rotated], self.formula.magnitude).amax((0, 1))
        if rotated < x.shape[-1]:
            errors = errors.maximum(_by_token((y - x)[..., rotated:]))
        return Measurement(errors, positions, 2 * ROTATION)

    def relative(self, shift: int, error: float) -> Measurement:
        positions, q, k = torch.arange(12), self.sample(12), self.sample(12, seed=1)
        expected = ([self.formula.rotate(x, p) for x in (q, k)] for p in (positions, positions + shift))
        self.require_kept(logit_error(*expected), logit_tolerance(error), "is not relative")
        before, after = ([self.call(x, p, keys=x is k) for x in (q, k)] for p in (positions, positions + shift))
        return Measurement(_by_token(logit_error(before, after)), positions + shift, logit_tolerance(error))

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
        return Measurement(errors, positions, float32_tolerance(NEAR) * self.formula.magnitude)

    def low_precision(self, autocast: bool) -> Measurement:
        """Check beyond 256, the last position up to which whole numbers are exact in bfloat16."""
        parts = []
        for positions in torch.cat([contiguous(end, 12, self.last) for end in (265, 4105)]).unique().split(12):
            x = self.sample(len(positions))
            expected = self.formula.rotate(x, positions) if self.correct else self.call(x, positions).double()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=autocast):
                result = self.call(x if autocast else x.bfloat16(), positions)
            parts.append((_by_token(result.double() - expected), positions))
        errors, at = (torch.cat(part) for part in zip(*parts, strict=True))
        tolerance = BFLOAT16 * self.formula.magnitude
        wrong = at[~(errors <= tolerance)]
        rounds = 257 in wrong and bool((wrong > 256).all())
        note = "it is correct up to position 256, the last whole numbers of bfloat16: it rounds positions to bfloat16"
        return Measurement(errors, at, tolerance, lambda: note if rounds else "")

    def call_order(self) -> Measurement:
        """Call with inputs that a wrong cache would serve: another dtype, other positions, or the first again."""
        few, many = torch.arange(NEAR + 1), contiguous(299, 300, self.last)
        x, long = self.sample(len(few)), self.sample(len(many))
        tolerance = float32_tolerance(int(many[-1])) * self.formula.magnitude
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
        """Return the law that converts the module."""
        law = Law("bfloat16 module", "converting the module to bfloat16 changes nothing", harness.ROTATION_WHY)
        x, positions = self.sample(13), contiguous(4105, 13, self.last)

        def compare(before: Tensor, after: Tensor) -> Measurement:
            errors = _by_token(after - before[:, :, :-1])
            return Measurement(errors, positions[:-1], ROTATION * self.formula.magnitude)

        return harness.converted(
            law, module, lambda: self.call(x, positions), lambda: self.call(x[:, :, :-1], positions[:-1]), compare
        )


def _by_token(difference: Float[Tensor, "batch heads tokens features"]) -> Float64[Tensor, " tokens"]:
    """Return the largest absolute difference of each token."""
    return difference.double().abs().amax((0, 1, 3))
