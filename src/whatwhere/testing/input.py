"""Try a sinusoidal input encoding: anybody's, given as a plain function."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from whatwhere.checks import require_choice, require_even, require_positive, require_whole
from whatwhere.testing import probe
from whatwhere.testing.laws import Encode, products_apart, rows_moved
from whatwhere.testing.probe import ROTATION, UNIT, Faulty, Law, Measured, NotOffered, Trial, Verdict, single, stretch
from whatwhere.testing.report import Report
from whatwhere.testing.waves import Sinusoid, told_layout, told_sinusoid
from whatwhere.where.frequencies import LAYOUTS, Layout, layout_frequencies

NEAR, FAR, VERY_FAR = 15, 131_072, 1_000_000
_EXACT = "float32 rounds a sine by 2**-24, and six times that is granted; the angle is exact"
_ROUNDED = (
    "float32 rounds a sine by 2**-24, six times that is granted, and an angle at position p by some 4 p times that"
)
_BFLOAT16 = 2.0**-8
_COARSE = "bfloat16 rounds a sine by 2**-9, and twice that is granted"


def check_input_encoding(
    fn: Encode,
    dim: int,
    *,
    layout: Layout = "interleaved",
    theta: float = 10_000.0,
    module: nn.Module | None = None,
    longest: int = VERY_FAR,
    device: torch.device | str = "cpu",
) -> Report:
    """Try an implementation of the sinusoid against the formula in float64, and by the laws.

        interleaved     PE[p, 2i] = sin(p w_i)   PE[p, 2i+1] = cos(p w_i)        w_i = theta ** (-2i / dim)
        halves          PE[p, i]  = sin(p w_i)   PE[p, dim/2 + i] = cos(p w_i)   the same w_i
        tensor2tensor   as halves                                                w_i = theta ** (-i / (dim/2 - 1))

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, as `whatwhere.reference.sinusoid` writes it out. What the
    function does not offer, such as positions that are no stretch, it may answer with NotImplementedError: the law
    then does not apply. Any other error is a finding.

    Args:
        fn: positions -> vectors; positions are int64 (tokens), vectors (tokens, dim).
        dim: features, even.
        layout: which of the three it is said to be.
        theta: above 0.
        module: what fn computes with, if it is a module; converted to bfloat16 by the last law, then given its tensors
            back.
        longest: the last position that fn serves, at least 63.
        device: where fn computes.

    >>> from whatwhere import Sinusoidal
    >>> encoding = Sinusoidal(dim=16)
    >>> check_input_encoding(lambda positions: encoding(positions)[0], dim=16, module=encoding).passed
    True
    """
    require_whole("check_input_encoding", dim=dim)
    require_even("check_input_encoding", "a sine and a cosine share one frequency", dim=dim)
    require_choice("check_input_encoding", "layout", layout, LAYOUTS)
    require_positive("check_input_encoding", theta=theta)
    layout_frequencies(dim, theta, layout)  # tensor2tensor needs two pairs
    probe.require_longest("check_input_encoding", longest)
    laws = _Laws(fn, Sinusoid(dim, layout, theta), longest, torch.device(device))
    settings: dict[str, Any] = {"dim": dim, "layout": layout, "theta": theta}
    return Report("check_input_encoding", settings, probe.try_all([*laws.trials(), laws.bfloat16_module(module)]))


@dataclass(frozen=True, eq=False)
class _Laws:
    """Put the questions of all laws to one implementation."""

    fn: Encode
    formula: Sinusoid
    longest: int
    device: torch.device

    def trials(self) -> Iterator[Trial]:
        """Give the laws in the order they are tried: the first call is a plain one, as a cache would meet it."""
        far, words = min(FAR, self.longest), "positions up to {:,} have the vectors of the formula"
        yield Law("formula", f"positions 0..{NEAR} have the vectors of the formula", _ROUNDED), lambda: self.first
        yield Law("layout", "sines and cosines stand where the layout has them"), self.layout
        yield Law("shape", "vectors are (tokens, dim), of floating point"), self.form
        yield Law("input kept", "positions are not written to"), self.input_kept
        yield Law("bounded", "no number leaves -1..1", "a sine may be rounded up by 2**-24"), self.bounded
        yield Law("any order", "permuting positions permutes rows", _EXACT), self.any_order
        yield Law("any positions", "positions may repeat, jump and fall", _ROUNDED), self.any_positions
        law = Law("inner product", "the product of two vectors depends on their distance only", f"of 2 dim: {_ROUNDED}")
        yield law, self.products
        yield Law("far", words.format(far), _EXACT), partial(self.at, far)
        yield Law("very far", words.format(VERY_FAR), _EXACT), partial(self.at, VERY_FAR)
        yield Law("autocast", "autocast to bfloat16 reaches no angle", _COARSE), self.autocast
        yield Law("call order", "no call leaves a trace in a later one", _ROUNDED), self.call_order

    def ask(self, positions: Int64[Tensor, " tokens"]) -> Float[Tensor, "tokens dim"]:
        """Call the implementation with a copy on its device; give what it says on the CPU."""
        answer = probe.ask(self.fn, positions.to(self.device, copy=True))
        vectors = probe.require_shape(answer, (len(positions), self.formula.dim), "(tokens, dim)").cpu()
        if not vectors.is_floating_point():
            raise Faulty(f"it gave {vectors.dtype}, but vectors are of floating point")
        return vectors

    def off(self, positions: Int64[Tensor, " tokens"], tolerance: float) -> Measured:
        """Compare with the formula at these positions."""
        answer = self.ask(positions)
        errors = (answer.double() - self.formula.at(positions)).abs().amax(-1)
        return Measured(errors, positions, tolerance, partial(told_sinusoid, self.formula, positions, answer))

    @cached_property
    def first(self) -> Measured:
        """Compare with the formula at the first positions; kept, since other laws ask whether the formula is right."""
        return self.off(torch.arange(NEAR + 1), single(NEAR))

    def require_right(self) -> None:
        """Raise NotOffered where the formula is wrong from the start: nothing more is to be learned then."""
        try:
            right = not self.first.wrong.any()
        except Faulty:
            right = False
        if not right:
            raise NotOffered("the law `formula` fails from the first positions on")

    def layout(self) -> Verdict:
        return told_layout(self.formula, self.ask(torch.arange(2))[0])

    def form(self) -> Verdict:
        self.ask(torch.arange(4))
        return Verdict(True)

    def input_kept(self) -> Verdict:
        given = torch.arange(3, 7, device=self.device)
        probe.ask(self.fn, given)
        return Verdict(torch.equal(given.cpu(), torch.arange(3, 7)), "it writes into the positions that it was given")

    def bounded(self) -> Measured:
        near, far = torch.arange(NEAR + 1), stretch(VERY_FAR, 12, self.longest)
        vectors = torch.cat([self.ask(near), self.ask(far)]).double()
        return Measured((vectors.abs().amax(-1) - 1).clamp(min=0), torch.cat([near, far]), UNIT)

    def any_order(self) -> Measured:
        positions = torch.tensor([0, 1, 2, 3, 5, 8, 13, 21, 34, 55, self.longest])
        order = torch.randperm(len(positions), generator=torch.Generator().manual_seed(0))
        return Measured(rows_moved(self.ask, positions, order), positions[order], ROTATION)

    def any_positions(self) -> Measured:
        self.require_right()
        jumping = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4, 900, 5, 5, 257]).clamp(max=self.longest)
        return self.off(jumping, single(int(jumping.amax())))

    def products(self) -> Measured:
        """<PE(p), PE(p + 17)> is a sum of cosines of the distance: PE(p + 17) is PE(p) turned, the same for all p."""
        starts, rows = [0, 1, 7, 30], self.ask(torch.arange(48))
        apart = products_apart(lambda positions: rows[positions], 17, starts)
        return Measured(apart, torch.tensor(starts), 2 * self.formula.dim * single(47))

    def at(self, position: int) -> Measured:
        if position > self.longest:
            raise NotOffered(f"the implementation is said to end at position {self.longest:,}")
        self.require_right()
        return self.off(stretch(position, 12, self.longest), ROTATION)

    def autocast(self) -> Measured:
        positions = stretch(4105, 13, self.longest)
        outside = self.ask(positions).double()
        with torch.autocast(self.device.type, torch.bfloat16):  # another question, which no cache can answer
            inside = self.ask(positions[:-1]).double()
        return Measured((inside - outside[:-1]).abs().amax(-1), positions[:-1], _BFLOAT16)

    def call_order(self) -> Measured:
        """Ask at the end what was asked in the beginning; between, the same number of positions elsewhere."""
        few = torch.arange(NEAR + 1)
        before = self.ask(few).double()
        elsewhere, in_another_shape = self.ask(few + 7).double(), self.ask(torch.arange(NEAR + 8)).double()[7:]
        again = self.ask(few).double()
        errors = [(again - before).abs().amax(-1), (elsewhere - in_another_shape).abs().amax(-1)]
        return Measured(torch.cat(errors), torch.cat([few, few + 7]), single(NEAR + 7))

    def bfloat16_module(self, module: nn.Module | None) -> Trial:
        """Give the law that converts the module; the last, since it leaves caches behind."""
        law = Law("bfloat16 module", "converting the module to bfloat16 rounds no angle", _COARSE)

        def measure() -> Measured:
            if module is None:
                raise NotOffered("no module was given")
            positions = stretch(4100, 13, self.longest)
            before = self.ask(positions).double()
            with probe.in_bfloat16(module):  # another question, which no cache can answer
                after = self.ask(positions[:-1]).double()
            return Measured((after - before[:-1]).abs().amax(-1), positions[:-1], _BFLOAT16)

        return law, measure
