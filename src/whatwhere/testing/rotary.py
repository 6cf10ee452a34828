"""Try a rotary implementation: anybody's, given as a plain function."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from whatwhere.testing import probe
from whatwhere.testing.laws import Turn, lengths_changed, logits_apart, of_logits
from whatwhere.testing.probe import BFLOAT16, ROTATION, Law, Measured, NotOffered, Trial, Verdict, single, stretch
from whatwhere.testing.report import Report
from whatwhere.testing.rotation import NEAR, Rotation, by_token
from whatwhere.testing.turns import Formula, told_layout
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.scaling import DynamicNTK, LongRoPE, Scaling

FAR, VERY_FAR, SHIFT = 131_072, 1_000_000, 100
_OF_LOGITS_NEAR = f"a query and a key are rounded at two places each: {probe.SINGLE_WHY}"
_OF_LOGITS_FAR = f"a query and a key are rounded at two places each: {probe.ROTATION_WHY}"


def check_rotary(
    fn: Turn,
    head_dim: int,
    *,
    theta: float = 10_000.0,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    scaling: Scaling | None = None,
    module: nn.Module | None = None,
    longest: int = VERY_FAR,
    device: torch.device | str = "cpu",
) -> Report:
    """Try an implementation of rotary positions against the formula in float64, and by the laws.

        (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)      angle = p w_i,  w_i = theta ** (-2i / rotary_dim)

    Su et al. 2021, https://arxiv.org/abs/2104.09864, as `whatwhere.reference.rotary` writes it out. What the function
    does not offer, such as positions that are no stretch, it may answer with NotImplementedError: the law then does
    not apply. Any other error is a finding.

    Args:
        fn: (x, positions) -> x rotated; x is (batch, heads, tokens, head_dim), positions int64 (tokens).
        head_dim: features of a head.
        theta: above 0.
        interleaved: pairs are (2i, 2i+1); else (i, i + rotary_dim/2).
        rotary_dim: only the first features turn; None turns all.
        scaling: a rule that changes the frequencies, such as `whatwhere.YaRN`; one that follows the length is tried
            up to its trained length.
        module: what fn computes with, if it is a module; converted to bfloat16 by the last law, then given its tensors
            back.
        longest: the last position that fn serves, at least 63.
        device: where fn computes.

    >>> from whatwhere import Rotary
    >>> rope = Rotary(head_dim=16)
    >>> check_rotary(lambda x, positions: rope(x, x, positions)[0], head_dim=16, module=rope).passed
    True
    """
    told = Rotary(head_dim, theta, interleaved=interleaved, rotary_dim=rotary_dim, scaling=scaling)  # checks them all
    probe.require_longest("check_rotary", longest)
    if isinstance(scaling, DynamicNTK | LongRoPE):
        longest = min(longest, scaling.original_length - 1)
        probe.require_longest("check_rotary, up to the scaling's trained length,", longest)
    formula = Formula(head_dim, told.rotary_dim, theta, interleaved, scaling)
    laws = _Laws(Rotation(fn, formula, longest, torch.device(device)))
    settings: dict[str, Any] = {"head_dim": head_dim, "theta": theta, "interleaved": interleaved}
    settings |= {} if rotary_dim is None else {"rotary_dim": rotary_dim}
    settings |= {} if scaling is None else {"scaling": str(scaling)}
    return Report("check_rotary", settings, probe.try_all([*laws.trials(), laws.bfloat16_module(module)]))


@dataclass(frozen=True, eq=False)
class _Laws:
    """Put the questions of all laws to one implementation."""

    of: Rotation

    def trials(self) -> Iterator[Trial]:
        """Give the laws in the order they are tried: the first call is a plain one, as a cache would meet it."""
        end = self.of.longest
        near, far, last = min(SHIFT, end - NEAR), min(FAR, end), end - NEAR
        exact, rounded, coarse = probe.ROTATION_WHY, probe.SINGLE_WHY, probe.BFLOAT16_WHY
        yield Law("formula", f"positions 0..{NEAR} turn as the formula says", rounded), lambda: self.of.first
        yield Law("position 0", "position 0 turns nothing", exact), self.identity
        yield Law("layout", "the features that make a pair are those of the layout asked for"), self.layout
        yield Law("shape and dtype", "the result has the shape and dtype of x, float32 or bfloat16"), self.form
        yield Law("input kept", "x and positions are not written to"), self.input_kept
        but = "" if self.of.formula.magnitude == 1 else ", but by the scaling's magnitude"
        yield Law("norms", f"no vector changes its length{but}", exact), self.norms
        law = Law("relative", f"moving all positions by {near} moves no logit, as a share of |q| |k|", _OF_LOGITS_NEAR)
        yield law, partial(self.relative, near, single(near + NEAR))
        yield Law("any positions", "positions may repeat, jump and fall", rounded), self.any_positions
        yield Law("far", f"positions up to {far:,} turn as the formula says", exact), partial(self.at, far)
        law = Law("very far", f"positions up to {VERY_FAR:,} turn as the formula says", exact)
        yield law, partial(self.at, VERY_FAR)
        law = Law("relative far away", f"moving all positions by {last:,} moves no logit either", _OF_LOGITS_FAR)
        yield law, partial(self.relative, last, ROTATION)
        yield Law("gradient", "the gradient is turned back by the same angles", rounded), self.gradient
        law = Law("bfloat16 input", "queries in bfloat16 turn by the same angles", coarse)
        yield law, partial(self.low_precision, autocast=False)
        law = Law("autocast", "autocast to bfloat16 reaches no angle", coarse)
        yield law, partial(self.low_precision, autocast=True)
        yield Law("call order", "no call leaves a trace in a later one", rounded), self.call_order

    def identity(self) -> Measured:
        x, positions = self.of.draw(1), torch.zeros(1, dtype=torch.int64)
        off = self.of.ask(x, positions).double() - self.of.formula.turn(x, positions)
        return Measured(by_token(off), positions, ROTATION * self.of.formula.magnitude)

    def layout(self) -> Verdict:
        """Turn each unit vector alone: the feature that it leaks into is its partner, whatever the angle."""
        units = torch.eye(self.of.formula.head_dim)[:, None, None].expand(-1, 1, 2, -1)
        return told_layout(self.of.formula, self.of.ask(units, torch.arange(2))[:, 0, 1])

    def form(self) -> Verdict:
        for dtype in (torch.float32, torch.bfloat16):
            given = self.of.ask(self.of.draw(4).to(dtype), torch.arange(4)).dtype
            if given != dtype:
                return Verdict(False, f"queries in {dtype} come back in {given}")
        return Verdict(True)

    def input_kept(self) -> Verdict:
        x, positions = self.of.draw(4).to(self.of.device), torch.arange(3, 7, device=self.of.device)
        before = x.clone(), positions.clone()
        probe.ask(self.of.fn, x, positions)
        if not torch.equal(x, before[0]):
            return Verdict(False, "it writes its result into x: whatever reads x afterwards, gradients too, is wrong")
        return Verdict(torch.equal(positions, before[1]), "it writes into positions")

    def norms(self) -> Measured:
        positions, x = stretch(VERY_FAR, 12, self.of.longest), self.of.draw(12)
        y, turning = self.of.ask(x, positions), self.of.formula.rotary_dim
        errors = lengths_changed(x[..., :turning], y[..., :turning], self.of.formula.magnitude).amax((0, 1))
        if turning < x.shape[-1]:
            errors = errors.maximum(by_token((y - x)[..., turning:]))
        return Measured(errors, positions, 2 * ROTATION)

    def relative(self, shift: int, error: float) -> Measured:
        stands, q, k = torch.arange(12), self.of.draw(12), self.of.draw(12, seed=1)
        here, there = ([self.of.ask(x, positions) for x in (q, k)] for positions in (stands, stands + shift))
        return Measured(by_token(logits_apart(here, there)), stands + shift, of_logits(error))

    def any_positions(self) -> Measured:
        self.of.require_right()
        jumping = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4, 900, 5, 5, 257]).clamp(max=self.of.longest)
        return self.of.off(jumping, single(int(jumping.amax())))

    def at(self, position: int) -> Measured:
        if position > self.of.longest:
            raise NotOffered(f"the implementation is said to end at position {self.of.longest:,}")
        self.of.require_right()
        return self.of.off(stretch(position, 12, self.of.longest), ROTATION)

    def gradient(self) -> Measured:
        """R is orthogonal, so the gradient is R transposed times what comes in: R at the opposite positions."""
        self.of.require_right()
        positions, incoming = torch.arange(NEAR + 1), self.of.draw(NEAR + 1, seed=2)

        def backward(x: Tensor, positions: Tensor) -> Tensor:
            y = self.of.fn(x, positions)
            if not y.requires_grad:
                raise NotOffered("the result has no gradient: the implementation is for inference only")
            return torch.autograd.grad(y, x, incoming.to(y.device))[0]

        x = self.of.draw(NEAR + 1).to(self.of.device).requires_grad_()
        found = probe.ask(backward, x, positions.to(self.of.device), gradient=True).cpu()
        errors = by_token(found.double() - self.of.formula.turn(incoming, -positions))
        return Measured(errors, positions, single(NEAR) * self.of.formula.magnitude)

    def low_precision(self, autocast: bool) -> Measured:
        """Look beyond 256, the last position up to which bfloat16 holds whole numbers.

        A formula that is wrong from the start is compared with itself in float32.
        """
        found = []
        for positions in torch.cat([stretch(end, 12, self.of.longest) for end in (265, 4105)]).unique().split(12):
            x = self.of.draw(len(positions))
            wanted = self.of.formula.turn(x, positions) if self.of.right else self.of.ask(x, positions).double()
            with torch.autocast(self.of.device.type, torch.bfloat16, enabled=autocast):
                answer = self.of.ask(x if autocast else x.bfloat16(), positions)
            found.append((by_token(answer.double() - wanted), positions))
        errors, where = (torch.cat(part) for part in zip(*found, strict=True))
        tolerance = BFLOAT16 * self.of.formula.magnitude
        wrong = where[~(errors <= tolerance)]
        rounds = 257 in wrong and bool((wrong > 256).all())
        words = "it is right up to position 256, as bfloat16 holds whole numbers: it rounds positions to bfloat16"
        return Measured(errors, where, tolerance, lambda: words if rounds else "")

    def call_order(self) -> Measured:
        """Ask what a cache may hold from another caller: of another dtype, elsewhere, or from the beginning."""
        few, many = torch.arange(NEAR + 1), stretch(299, 300, self.of.longest)
        x, long = self.of.draw(len(few)), self.of.draw(len(many))
        before = self.of.ask(x, few)
        self.of.ask(long.bfloat16(), many)
        later = self.of.ask(long, many)[:, :, -12:]
        moved = self.of.ask(x, few + 7)
        found = [("the first question has another answer when asked again", few, self.of.ask(x, few) - before)]
        if self.of.right:  # what is wrong from the start tells nothing about a trace
            wrong = later.double() - self.of.formula.turn(long[:, :, -12:], many[-12:])
            found.append(("in float32 it is wrong where it was asked in bfloat16 before", many[-12:], wrong))
            wrong = moved.double() - self.of.formula.turn(x, few + 7)
            found.append(("other positions get what as many positions got before", few + 7, wrong))
        tolerance = single(int(many[-1])) * self.of.formula.magnitude
        traces = [words for words, _, off in found if not off.abs().amax() <= tolerance]
        errors = torch.cat([by_token(off) for _, _, off in found])
        return Measured(errors, torch.cat([places for _, places, _ in found]), tolerance, lambda: "; ".join(traces))

    def bfloat16_module(self, module: nn.Module | None) -> Trial:
        """Give the law that converts the module; the last, since it leaves caches behind."""
        law = Law("bfloat16 module", "converting the module to bfloat16 changes nothing", probe.ROTATION_WHY)

        def measure() -> Measured:
            if module is None:
                raise NotOffered("no module was given")
            x, positions = self.of.draw(13), stretch(4105, 13, self.of.longest)
            before = self.of.ask(x, positions)
            with probe.in_bfloat16(module):  # another question, which no cache can answer
                after = self.of.ask(x[:, :, :-1], positions[:-1])
            return Measured(by_token(after - before[:, :, :-1]), positions[:-1], ROTATION * self.of.formula.magnitude)

        return law, measure
