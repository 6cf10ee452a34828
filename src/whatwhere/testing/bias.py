"""Try a score bias: anybody's, given as a plain function."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.testing import probe
from whatwhere.testing.laws import merged
from whatwhere.testing.pairs import AFAR, Pairs
from whatwhere.testing.probe import Law, Measured, NotOffered, Trial, Verdict, stretch
from whatwhere.testing.report import Report
from whatwhere.testing.tables import ROUNDING, ROUNDING_WHY, Table, compare, find_expected
from whatwhere.where.doors import ScoreBias

BFLOAT16 = 2 * 2.0**-8
BFLOAT16_WHY = "bfloat16 rounds a number by 2**-8 of itself, and twice that is granted"


def check_bias(
    fn: Callable[..., Tensor],
    num_heads: int,
    *,
    expected: str | ScoreBias | Table | None = None,
    relative: bool | None = None,
    causal: bool = True,
    near: int | None = None,
    module: nn.Module | None = None,
    longest: int = 1_000_000,
    device: torch.device | str = "cpu",
) -> Report:
    """Try an implementation of a bias of positions against its formula in float64, and by the laws.

    Two biases that differ by a constant for each query are the same one, since softmax takes it off: ALiBi as slope
    times key position keeps the law `formula`. That it is not the same in bfloat16, the law `near distances` tells.

    Args:
        fn: (query_positions, key_positions) -> (heads, queries, keys); positions are int64 (queries) and (keys). If
            it has a parameter `dtype`, it is asked for float16 and bfloat16 itself; else its table is cast.
        num_heads: heads, at least 1.
        expected: the name of a scheme without weights, such as "alibi"; a scheme, with your weights in it; or a
            function of NumPy positions that gives the table. None leaves the formula untried.
        relative: it is said to depend on distances only; None takes it from the scheme named, else True.
        causal: keys later than the query do not count; False tries both sides.
        near: distances up to here are said to differ in float16 and bfloat16; None takes it from the scheme named.
        module: what fn computes with, if it is a module; converted to bfloat16 by the last law, then given its tensors
            back.
        longest: the last position that fn serves, at least 63.
        device: where fn computes.

    >>> from whatwhere import ALiBi
    >>> alibi = ALiBi(num_heads=12)
    >>> check_bias(lambda q, k, dtype=None: alibi(q, k, dtype=dtype)[0], num_heads=12, expected="alibi").passed
    True
    """
    require_whole("check_bias", num_heads=num_heads)
    probe.require_longest("check_bias", longest)
    found = None if expected is None else find_expected(expected, num_heads)
    if relative is None:
        relative = True if found is None else found.relative
    if near is None and found is not None:
        near = found.near
    laws = _Laws(Pairs(fn, num_heads, found, causal, longest, torch.device(device)), relative, near)
    settings = {"num_heads": num_heads, "expected": found.name or "given" if found else None, "causal": causal}
    return Report("check_bias", settings, probe.try_all([*laws.trials(), laws.bfloat16_module(module)]))


@dataclass(frozen=True, eq=False)
class _Laws:
    """Put the questions of all laws to one implementation."""

    of: Pairs
    relative: bool
    near: int | None

    def trials(self) -> Iterator[Trial]:
        """Give the laws in the order they are tried: the first call is a plain one, as a cache would meet it."""
        shift, far = self.of.shift, self.of.longest + 1 - self.of.width
        yield Law("formula", "each pair's number is that of the formula", ROUNDING_WHY), lambda: self.of.first
        yield Law("finite", "the table is (heads, queries, keys), and finite where attention may look"), self.form
        yield Law("input kept", "positions are not written to"), self.input_kept
        if self.relative:
            law = Law("relative", f"moving all positions by {shift:,} changes nothing", f"{ROUNDING_WHY}, there")
            yield law, partial(self.moved, shift, strict=False)
            law = Law("relative far away", f"moving all positions by {far:,} changes nothing either", ROUNDING_WHY)
            yield law, partial(self.moved, far, strict=True)
        else:
            yield Law("not relative", f"moving all positions by {shift:,} changes something, as claimed"), self.still
        yield Law("decoding", "a query asked alone gets the row that it has among others", ROUNDING_WHY), self.decoding
        yield Law("any positions", "positions may jump", ROUNDING_WHY), self.any_positions
        for dtype, name in ((torch.float16, "float16"), (torch.bfloat16, "bfloat16")):
            law = Law(f"finite in {name}", f"no number overflows in {name} at distance {self.of.longest:,}")
            yield law, partial(self.finite, dtype)
            law = Law(f"near in {name}", f"near distances have numbers of their own in {name}, also at {AFAR:,}")
            yield law, partial(self.apart, dtype)
        yield Law("autocast", "autocast to bfloat16 reaches no position", BFLOAT16_WHY), self.autocast
        yield Law("call order", "no call leaves a trace in a later one", ROUNDING_WHY), self.call_order

    def form(self) -> Verdict:
        queries, keys = self.of.block
        bad = ~self.of.ask_plainly(queries, keys).isfinite() & self.of.allowed(queries, keys)
        if not bad.any():
            return Verdict(True)
        distances = self.of.distances(queries, keys).expand_as(bad)[bad].tolist()
        first = min(distances, key=abs)
        side = " (later keys): pass causal=True if it is made for causal attention" if max(distances) < 0 else ""
        return Verdict(False, f"{int(bad.sum())} numbers are not finite{side}", first, "distance")

    def input_kept(self) -> Verdict:
        given = [index.to(self.of.device, copy=True) for index in self.of.block]
        probe.ask(self.of.fn, *given)
        kept = all(torch.equal(index.cpu(), before) for index, before in zip(given, self.of.block, strict=True))
        return Verdict(kept, "it writes into the positions that it was given")

    def moved(self, shift: int, strict: bool) -> Measured:
        queries, keys = self.of.block
        here, there = self.of.ask(queries, keys).double(), self.of.ask(queries + shift, keys + shift).double()
        size = here if strict else here.abs().maximum(there.abs())
        return compare(there, here, self.of.distances(queries, keys), self.of.allowed(queries, keys), size)

    def still(self) -> Verdict:
        moves = bool(self.moved(self.of.shift, strict=False).wrong.any())
        return Verdict(moves, "said to depend on more than distances, but a shift of all positions changes nothing")

    def decoding(self) -> Measured:
        queries, keys = self.of.block
        last = keys[: int(queries[-1]) + 1] if self.of.causal else keys
        alone, among = self.of.ask(queries[-1:], last), self.of.ask(queries, keys)[:, -1:, : len(last)].double()
        return compare(alone, among, self.of.distances(queries[-1:], last), self.of.allowed(queries[-1:], last))

    def any_positions(self) -> Measured:
        self.of.require_right()
        return self.of.against(torch.tensor([3, 9, 40]), torch.tensor([0, 1, 5, 8, 40, 55, 61]))

    def finite(self, dtype: torch.dtype) -> Verdict:
        """Look at distances 0, 1, 2, 4, 8, ... and the longest."""
        far = self.of.longest
        keys = far - torch.tensor([far, *(2**n for n in reversed(range(far.bit_length())) if 2**n < far), 0])
        table = self.of.ask_plainly(torch.tensor([far]), keys, dtype)[:, 0]
        bad = (~table.isfinite()).nonzero()
        if not len(bad):
            return Verdict(True)
        head, key = max(bad.tolist(), key=lambda place: place[1])
        return Verdict(False, f"head {head} gives {table[head, key].item()} there", far - int(keys[key]), "distance")

    def apart(self, dtype: torch.dtype) -> Verdict:
        if self.near is None:
            raise NotOffered("no distance was claimed up to which they differ: pass near=")
        keys = stretch(AFAR, self.near + 1, self.of.longest)
        same = merged(self.of.ask(keys[-1:], keys, dtype)[:, 0].flip(-1))  # nearest first
        if not same.any():
            return Verdict(True)
        heads, first = int(same.any(-1).sum()), int(same.any(0).nonzero()[0])
        note = f"{heads} of {self.of.num_heads} heads give two of the nearest {self.near} distances the same number"
        return Verdict(False, note, first, "distance")

    def autocast(self) -> Measured:
        queries, keys = self.of.far_block
        outside = self.of.ask(queries, keys)[:, :-1, :-1].double()
        fewer = queries[:-1], keys[:-1]
        with torch.autocast(self.of.device.type, torch.bfloat16):  # another question, which no cache can answer
            inside = self.of.ask(*fewer)
        return compare(inside, outside, self.of.distances(*fewer), self.of.allowed(*fewer), rounding=BFLOAT16)

    def call_order(self) -> Measured:
        """Ask at the end what was asked in the beginning; between, the same shape elsewhere, and other shapes."""
        queries, keys = self.of.block
        before = self.of.ask(queries, keys).double()
        self.of.ask(queries + 7, keys + 7, torch.bfloat16)
        elsewhere = self.of.ask(queries - 5, keys)[..., :-1]
        in_another_shape = self.of.ask(queries - 5, keys[:-1]).double()
        again = self.of.ask(queries, keys)
        asked = queries - 5, keys[:-1]
        traces = compare(elsewhere, in_another_shape, self.of.distances(*asked), self.of.allowed(*asked))
        distances, allowed = self.of.distances(queries, keys), self.of.allowed(queries, keys)
        return traces if traces.wrong.any() else compare(again, before, distances, allowed)

    def bfloat16_module(self, module: nn.Module | None) -> Trial:
        """Give the law that converts the module; the last, since it leaves caches behind.

        What is learned is rounded by a conversion, and may be; what is fixed is not.
        """
        learned = module is not None and any(True for _ in module.parameters())
        words = "rounds its weights, and nothing else" if learned else "changes nothing"
        law = Law(
            "bfloat16 module",
            f"converting the module to bfloat16 {words}",
            BFLOAT16_WHY if learned else ROUNDING_WHY,
        )

        def measure() -> Measured:
            if module is None:
                raise NotOffered("no module was given")
            queries, keys = self.of.far_block
            before, fewer = self.of.ask(queries, keys)[:, :-1, :-1].double(), (queries[:-1], keys[:-1])
            with probe.in_bfloat16(module):  # another question, which no cache can answer
                after = self.of.ask(*fewer)
            rounding = BFLOAT16 if learned else ROUNDING
            return compare(after, before, self.of.distances(*fewer), self.of.allowed(*fewer), rounding=rounding)

        return law, measure
