"""check_bias: check any score bias, given as a plain function."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.errors import ShapeError
from whatwhere.testing import harness
from whatwhere.testing.expected_bias import (
    ROUNDING,
    ROUNDING_WHY,
    Expected,
    Table,
    compare,
    explain_bias,
    find_expected,
)
from whatwhere.testing.harness import Fault, Measurement, NotSupported, Trial, contiguous, repeated
from whatwhere.testing.report import Report
from whatwhere.where.score_bias import ScoreBias, as_finite

BLOCK, WIDTH, SHIFT = 20, 160, 1_000
FAR = 8_191  # a position far from 0, where a bias computed from positions instead of distances is large
BFLOAT16 = 2 * 2.0**-8
BFLOAT16_WHY = "bfloat16 rounds a number by 2**-8 of itself, and twice that is allowed"

_Block = tuple[Int64[Tensor, " queries"], Int64[Tensor, " keys"]]


def check_bias(
    fn: Callable[..., Tensor],
    num_heads: int,
    *,
    expected: str | ScoreBias | Table | None = None,
    relative: bool | None = None,
    causal: bool = True,
    near: int | None = None,
    module: nn.Module | None = None,
    max_length: int | None = None,
    device: torch.device | str = "cpu",
) -> Report:
    """Check an implementation of a position bias against its formula in float64, and by the laws.

    Biases that differ by a constant for each query are equal, since softmax cancels it: ALiBi as slope times key
    position passes the law `formula`. That it differs in bfloat16 is what the laws `near in ...` check.

    Args:
        fn: (query_positions, key_positions) -> (heads, queries, keys); positions are int64 (queries) and (keys). If
            it has a parameter `dtype`, that is passed for float16 and bfloat16; else its table is cast as attention
            casts one: what is below the range of the dtype becomes its lowest number, whose weight is zero as well.
        num_heads: heads, at least 1.
        expected: the name of a scheme without weights, such as "alibi"; a scheme, with your weights in it; or a
            function of NumPy positions that returns the table. None skips the law `formula`.
        relative: whether it should depend on distances only; None takes it from the named scheme, else True.
        causal: whether keys later than the query are ignored; False checks both directions.
        near: distances up to here should differ in float16 and bfloat16, but for those of equal biases before any
            rounding; None takes it from the named scheme.
        module: the module behind fn, if there is one; the last law converts it to bfloat16 and restores its tensors.
        max_length: how many positions fn supports, at least 64; None checks up to position 1,000,000.
        device: of the inputs of fn.

    Returns:
        A report with one finding for each law.

    Raises:
        ShapeError: If num_heads is below 1, or `expected` returns a wrong shape.
        SettingError: If `expected` is not one of the above, or max_length below 64.
        DoorError: If `expected` names a scheme that is not a score bias, or one that depends on queries and keys.

    Examples:
        >>> from whatwhere import ALiBi
        >>> alibi = ALiBi(num_heads=12)
        >>> check_bias(lambda q, k, dtype=None: alibi(q, k, dtype=dtype)[0], num_heads=12, expected="alibi").passed
        True
    """
    require_whole("check_bias", num_heads=num_heads)
    last = harness.last_position("check_bias", max_length)
    formula = None if expected is None else find_expected(expected, num_heads)
    if relative is None:
        relative = True if formula is None else formula.relative
    if near is None and formula is not None:
        near = formula.near
    laws = _Laws(fn, num_heads, formula, causal, last, torch.device(device), relative, near)
    settings = {"num_heads": num_heads, "expected": formula.name or "function" if formula else None, "causal": causal}
    return Report("check_bias", settings, harness.run_all([*laws.trials(), laws.bfloat16_module(module)]))


@dataclass(frozen=True, eq=False)
class _Laws:
    fn: Callable[..., Tensor]
    num_heads: int
    expected: Expected | None
    causal: bool
    last: int
    device: torch.device
    relative: bool
    near: int | None

    @property
    def width(self) -> int:
        return min(WIDTH, (self.last + 1) // 2)

    @property
    def shift(self) -> int:
        return min(SHIFT, self.last + 1 - self.width)

    @property
    def block(self) -> _Block:
        """The last queries of a sequence and all of its keys; the middle ones where later keys count too."""
        end = self.width if self.causal else (self.width + BLOCK) // 2
        return torch.arange(end - BLOCK, end), torch.arange(self.width)

    @property
    def far_block(self) -> _Block:
        """Consecutive positions that bfloat16 cannot distinguish."""
        keys = contiguous(FAR, BLOCK, self.last)
        return keys[-3:], keys

    def distances(self, queries: Tensor, keys: Tensor) -> Int64[Tensor, "queries keys"]:
        return queries[:, None] - keys

    def allowed(self, queries: Tensor, keys: Tensor) -> Bool[Tensor, "queries keys"]:
        distances = self.distances(queries, keys)
        return distances >= 0 if self.causal else torch.ones_like(distances, dtype=torch.bool)

    def against(
        self, wanted: Tensor, table: Tensor, queries: Tensor, keys: Tensor, rounding: float = ROUNDING
    ) -> Measurement:
        """Return the errors of a table of these positions against one that it should be."""
        distances, allowed = self.distances(queries, keys), self.allowed(queries, keys)
        return compare(table, wanted.double(), distances, allowed, rounding=rounding)

    def call_unchecked(
        self, queries: Tensor, keys: Tensor, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "heads queries keys"]:
        """Call the implementation with copies on its device, and return the table on the CPU, cast to `dtype`."""
        inputs = (index.to(self.device, copy=True) for index in (queries, keys))
        cast_by_fn = dtype is not None and _takes_dtype(self.fn)
        fn = partial(self.fn, dtype=dtype) if cast_by_fn else self.fn
        result = harness.call(fn, *inputs)
        shape = (self.num_heads, len(queries), len(keys))
        table = harness.require_shape(result, shape, "(heads, queries, keys)").cpu()
        if not table.is_floating_point():
            raise Fault(f"it returned {table.dtype}, but a table of floating point is needed")
        if dtype is None or cast_by_fn:
            return table if dtype is None else table.to(dtype)
        return torch.where(table.isfinite(), as_finite(table, dtype), table.to(dtype))

    def call(
        self, queries: Tensor, keys: Tensor, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "heads queries keys"]:
        """Call the implementation, and raise NotSupported where the result has infinite numbers to compare."""
        table = self.call_unchecked(queries, keys, dtype)
        if not table[:, self.allowed(queries, keys)].isfinite().all():
            raise NotSupported("not all numbers that attention uses are finite, as the law `finite` reports")
        return table

    def compare(self, queries: Tensor, keys: Tensor) -> Measurement:
        if self.expected is None:
            raise NotSupported("no formula was passed: pass expected=")
        table, allowed = self.call(queries, keys), self.allowed(queries, keys)
        expected = self.expected.at(queries, keys)
        if expected.shape != table.shape:
            raise ShapeError(
                f"check_bias got an `expected` that returns the shape {tuple(expected.shape)}, but needs "
                f"(heads, queries, keys), here {tuple(table.shape)}."
            )
        note = partial(explain_bias, self.expected, table, queries, keys, allowed)
        return compare(table, expected, self.distances(queries, keys), allowed, note=note)

    @cached_property
    def first(self) -> Measurement:
        """The errors at the first positions; cached, since other laws depend on them."""
        return self.compare(*self.block)

    def require_correct(self) -> None:
        """Raise NotSupported where the formula is not known, or fails from the start."""
        if self.first.exceeded.any():
            raise NotSupported("the law `formula` fails already")

    def trials(self) -> Iterator[Trial]:
        """Yield the laws in the order of the checks: the first call is an ordinary one, which fills caches."""
        shift, far = self.shift, self.last + 1 - self.width
        pairs = "the table is (heads, queries, keys), and finite for all pairs that attention uses"
        yield Trial("formula", "the bias of each pair is that of the formula", lambda: self.first, ROUNDING_WHY)
        yield Trial("finite", pairs, self.shape)
        yield Trial("input kept", "positions are not modified", self.input_unmodified)
        if self.relative:
            near, again = partial(self.shifted, shift, strict=False), partial(self.shifted, far, strict=True)
            statement = f"shifting all positions by {shift:,} changes nothing"
            yield Trial("relative", statement, near, f"{ROUNDING_WHY}, at both")
            statement = f"shifting all positions by {far:,} changes nothing either"
            yield Trial("relative far away", statement, again, ROUNDING_WHY)
        else:
            statement = f"shifting all positions by {shift:,} or {far:,} changes something, as claimed"
            yield Trial("not relative", statement, partial(self.not_relative, shift, far))
        yield Trial("decoding", "a query alone has the same row as among others", self.decoding, ROUNDING_WHY)
        yield Trial("any positions", "positions need not be consecutive", self.any_positions, ROUNDING_WHY)
        for dtype, name in ((torch.float16, "float16"), (torch.bfloat16, "bfloat16")):
            statement = f"no number overflows in {name} at distance {self.last:,}"
            yield Trial(f"finite in {name}", statement, partial(self.finite, dtype))
            statement = f"near distances have different biases in {name}, also at position {FAR:,}"
            yield Trial(f"near in {name}", statement, partial(self.distinct, dtype))
        yield Trial("autocast", "autocast to bfloat16 rounds no position", self.autocast, BFLOAT16_WHY)
        yield Trial("call order", "no call affects a later one", self.call_order, ROUNDING_WHY)

    def shape(self) -> None:
        queries, keys = self.block
        bad = ~self.call_unchecked(queries, keys).isfinite() & self.allowed(queries, keys)
        if not bad.any():
            return
        distances = self.distances(queries, keys).expand_as(bad)[bad].tolist()
        first = min(distances, key=abs)
        hint = " (later keys): pass causal=True if it is made for causal attention" if max(distances) < 0 else ""
        raise Fault(f"{int(bad.sum())} numbers are not finite{hint}", first, "distance")

    def input_unmodified(self) -> None:
        inputs = [index.to(self.device, copy=True) for index in self.block]
        harness.call(self.fn, *inputs)
        same = all(torch.equal(index.cpu(), before) for index, before in zip(inputs, self.block, strict=True))
        harness.require(same, "it modifies the positions that it is called with")

    def shifted(self, shift: int, strict: bool) -> Measurement:
        queries, keys = self.block
        before = self.call(queries, keys).double()
        after = self.call(queries + shift, keys + shift).double()
        scale = before if strict else before.abs().maximum(after.abs())
        return compare(after, before, self.distances(queries, keys), self.allowed(queries, keys), scale)

    def not_relative(self, *shifts: int) -> None:
        changes = any(bool(self.shifted(shift, strict=False).exceeded.any()) for shift in shifts)  # one may be a period
        harness.require(changes, "relative=False, but shifting all positions changes nothing")

    def decoding(self) -> Measurement:
        queries, keys = self.block
        last = keys[: int(queries[-1]) + 1] if self.causal else keys
        alone, among = self.call(queries[-1:], last), self.call(queries, keys)[:, -1:, : len(last)]
        return self.against(among, alone, queries[-1:], last)

    def any_positions(self) -> Measurement:
        self.require_correct()
        return self.compare(torch.tensor([3, 9, 40]), torch.tensor([0, 1, 5, 8, 40, 55, 61]))

    def finite(self, dtype: torch.dtype) -> None:
        """Check distances 0, 1, 2, 4, 8, ... and the largest."""
        far = self.last
        keys = far - torch.tensor([far, *(2**n for n in reversed(range(far.bit_length())) if 2**n < far), 0])
        table = self.call_unchecked(torch.tensor([far]), keys, dtype)[:, 0]
        bad = (~table.isfinite()).nonzero()
        if not len(bad):
            return
        head, key = max(bad.tolist(), key=lambda index: index[1])
        raise Fault(f"head {head} returns {table[head, key].item()} there", far - int(keys[key]), "distance")

    def distinct(self, dtype: torch.dtype) -> None:
        if self.near is None:
            raise NotSupported("no distance is claimed up to which they differ: pass near=")
        keys = contiguous(FAR, self.near + 1, self.last)
        same = repeated(self.call(keys[-1:], keys, dtype)[:, 0].flip(-1), self.exact(keys).flip(-1))
        if not same.any():  # nearest first
            return
        heads, first = int(same.any(-1).sum()), int(same.any(0).nonzero()[0])
        note = f"{heads} of {self.num_heads} heads have the same bias at two of the nearest {self.near} distances"
        raise Fault(note, first, "distance")

    def exact(self, keys: Int64[Tensor, " keys"]) -> Float[Tensor, "heads keys"]:
        """Return the biases of the last key's query before any rounding to a type: equal ones are not a fault of it."""
        if self.expected is not None:
            return self.expected.at(keys[-1:], keys)[:, 0]
        keys = keys - keys[0] if self.relative else keys
        return self.call(keys[-1:], keys)[:, 0]

    def autocast(self) -> Measurement:
        queries, keys = self.far_block
        outside, fewer = self.call(queries, keys)[:, :-1, :-1], (queries[:-1], keys[:-1])
        with torch.autocast(self.device.type, torch.bfloat16):  # other inputs, so that no cache can answer
            inside = self.call(*fewer)
        return self.against(outside, inside, *fewer, BFLOAT16)

    def call_order(self) -> Measurement:
        """Repeat the first call at the end; between, call with the same shape at other positions, and other shapes."""
        queries, keys = self.block
        before, shifted = self.call(queries, keys), (queries - 5, keys[:-1])
        self.call(queries + 7, keys + 7, torch.bfloat16)
        elsewhere = self.call(queries - 5, keys)[..., :-1]
        in_another_shape = self.call(*shifted)
        again = self.call(queries, keys)
        cached = self.against(in_another_shape, elsewhere, *shifted)
        return cached if cached.exceeded.any() else self.against(before, again, queries, keys)

    def bfloat16_module(self, module: nn.Module | None) -> Trial:
        learned = module is not None and any(True for _ in module.parameters())
        effect = "rounds its weights, and nothing else" if learned else "changes nothing"
        why, rounding = (BFLOAT16_WHY, BFLOAT16) if learned else (ROUNDING_WHY, ROUNDING)
        queries, keys = self.far_block
        fewer = queries[:-1], keys[:-1]

        def against(before: Tensor, after: Tensor) -> Measurement:
            return self.against(before[:, :-1, :-1], after, *fewer, rounding)

        whole, part = partial(self.call, queries, keys), partial(self.call, *fewer)
        return harness.converted(effect, why, module, whole, part, against)


def _takes_dtype(fn: Callable[..., Tensor]) -> bool:
    try:
        return "dtype" in inspect.signature(fn).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
