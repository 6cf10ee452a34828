"""Call an implementation and convert its errors to findings: what all checks share.

Three tolerances serve all laws. They are derived from the roundings, not tuned, for vectors whose pairs of features
have norms of at most 1.

    ROTATION                angles in float64; cosine, product and sum rounded once each to float32, times two
    float32_tolerance(p)    besides, angles in float32, with a relative error of 2**-24, at position p
    BFLOAT16                cosine, product and sum rounded once each to bfloat16; the angle is not
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from math import inf, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from whatwhere.errors import SettingError
from whatwhere.testing.report import Finding

Unit = Literal["position", "distance"]

Rotate = Callable[[Tensor, Tensor], Tensor]
"""(x, positions) -> x mapped: (batch, heads, tokens, head_dim) and (tokens) -> (batch, heads, tokens, mapped_dim)."""

Encode = Callable[[Tensor], Tensor]  # positions -> vectors: (tokens) -> (tokens, dim)

UNIT = 2.0**-24  # unit roundoff of float32: the relative error of one rounding

LAST_POSITION = 1_000_000  # the last position that is checked where the implementation's maximum length is not given

NEAR, FAR = 15, 131_072  # the last of the first positions, and one that is far

ROTATION = 6 * UNIT
ROTATION_WHY = "float32 rounds cosine, product and sum by 2**-24 each, and twice that is allowed; the angle is exact"
FLOAT32_WHY = "float32 rounds cosine, product and sum by 2**-24 each, and an angle at position p by some 4 p times that"
BFLOAT16 = 3 * 2.0**-8
BFLOAT16_WHY = "bfloat16 rounds cosine, product and sum by 2**-8 each; the angle must not be rounded to it"


def float32_tolerance(position: int) -> float:
    """Return the tolerance of an implementation with angles in float32, at positions up to this one."""
    return ROTATION + 4 * position * UNIT


class NotSupported(Exception):
    """Raised where a law does not apply, because the implementation does not support what it is about."""


class Fault(Exception):
    """Raised where an implementation raised an error, returned something wrong, or fails a law without a tolerance.

    `first` is the first position or distance at which it does, if any, and `unit` which of the two.
    """

    def __init__(self, note: str, first: int | None = None, unit: Unit = "position") -> None:
        super().__init__(note)
        self.first, self.unit = first, unit


@dataclass(frozen=True, eq=False)
class Measurement:
    """The errors of an implementation."""

    errors: Float64[Tensor, " errors"]  # absolute, one for each position or distance
    at: Int64[Tensor, " errors"]  # the position or distance of each
    tolerance: float | Float64[Tensor, " errors"]  # the largest allowed, for all or for each
    note: Callable[[], str] = str  # returns an explanation where the law fails
    remark: str = ""  # an explanation where it passes
    unit: Unit = "position"  # whether `at` are positions or distances

    @property
    def ratios(self) -> Float64[Tensor, " errors"]:
        """Each error divided by its tolerance; NaN counts as infinite."""
        return (self.errors / self.tolerance).nan_to_num(nan=inf, posinf=inf)

    @property
    def exceeded(self) -> Bool[Tensor, " errors"]:
        """Whether each error is above its tolerance."""
        return self.ratios > 1


class Trial(NamedTuple):
    """A law: its name, what it requires, the reason for its tolerance, and what measures an implementation by it.

    By a law without a tolerance it returns None, or raises Fault.
    """

    law: str
    statement: str
    measure: Callable[[], Measurement | None]
    why: str = ""


class FormulaLaws(ABC):
    """What laws of an implementation that follows a formula of positions share, up to the last one that it supports."""

    last: int

    @abstractmethod
    def compare(self, positions: Int64[Tensor, " tokens"], tolerance: float) -> Measurement:
        """Return the errors against the formula at these positions."""

    @cached_property
    def first(self) -> Measurement:
        """The errors at the first positions; cached, since other laws depend on them."""
        return self.compare(torch.arange(NEAR + 1), float32_tolerance(NEAR))

    @property
    def correct(self) -> bool:
        """Whether the implementation follows the formula at the first positions."""
        try:
            return not bool(self.first.exceeded.any())
        except (NotSupported, Fault):
            return False

    def require_correct(self) -> None:
        """Raise NotSupported where the formula fails from the start, or does not apply: others would repeat that."""
        with suppress(Fault):
            if not self.first.exceeded.any():
                return
        raise NotSupported("the law `formula` fails from the first positions on")

    def any_positions(self) -> Measurement:
        """Return the errors at positions that repeat, skip and decrease."""
        self.require_correct()
        irregular = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4, 900, 5, 5, 257]).clamp(max=self.last)
        return self.compare(irregular, float32_tolerance(int(irregular.amax())))

    def at(self, position: int) -> Measurement:
        """Return the errors at a position and those before it."""
        if position > self.last:
            raise NotSupported(f"the implementation supports positions up to {self.last:,}")
        self.require_correct()
        return self.compare(contiguous(position, 12, self.last), ROTATION)


def judge(trial: Trial, result: Measurement | None) -> Finding:
    """Return the finding of a law from its measurement."""
    law, statement, _, why = trial
    if result is None:
        return Finding(law, statement, "passes")
    exceeded, worst = result.exceeded, int(result.ratios.argmax())
    error = result.errors.nan_to_num(nan=inf, posinf=inf)[worst].item()
    tolerance = float(torch.as_tensor(result.tolerance).expand(len(result.errors))[worst])
    if not exceeded.any():
        return Finding(law, statement, "passes", error, tolerance, why, note=result.remark)
    first = min(result.at[exceeded].tolist(), key=abs)
    return Finding(law, statement, "fails", error, tolerance, why, first, result.unit, result.note())


def run_all(trials: Iterable[Trial]) -> tuple[Finding, ...]:
    """Return the finding of each law; an exception raised by the implementation is a failure."""
    findings = []
    for trial in trials:
        law, statement, measure, _ = trial
        try:
            findings.append(judge(trial, measure()))
        except NotSupported as reason:
            findings.append(Finding(law, statement, "does not apply", note=str(reason)))
        except Fault as fault:
            findings.append(Finding(law, statement, "fails", first=fault.first, unit=fault.unit, note=str(fault)))
    return tuple(findings)


def explained(result: Tensor, mistakes: Iterable[tuple[str, Tensor]], tolerance: float) -> str:
    """Return the first of the known mistakes that gives this result; "" where none does."""
    same = (text for text, mistake in mistakes if (result.double() - mistake).abs().amax() <= tolerance)
    return next(same, "")


def call(fn: Callable[..., Tensor], *inputs: Tensor, gradient: bool = False) -> Tensor:
    """Call an implementation."""
    try:
        with torch.set_grad_enabled(gradient):
            result = fn(*inputs)
    except (NotSupported, Fault):
        raise
    except NotImplementedError as reason:
        raise NotSupported(f"the implementation does not support this: {_first_line(reason)}") from reason
    except Exception as error:
        raise Fault(f"it raised {type(error).__name__}: {_first_line(error)}") from error
    if not isinstance(result, Tensor):
        raise Fault(f"it returned a {type(result).__name__}, but a tensor is needed")
    return result


def require(keeps: bool | Tensor, note: str, first: int | None = None) -> None:
    """Raise Fault unless an implementation keeps a law."""
    if not keeps:
        raise Fault(note, first)


def require_none(slots: Int64[Tensor, " slots"], note: str) -> None:
    """Raise Fault at the first of some slots, if there are any."""
    require(not len(slots), note, int(slots[0]) if len(slots) else None)


def require_shape(result: Tensor, shape: tuple[int, ...], description: str) -> Tensor:
    """Return the result; raise Fault unless it has the given shape."""
    if tuple(result.shape) != shape:
        raise Fault(f"it returned the shape {tuple(result.shape)}, but {description} is needed, here {shape}")
    return result


def last_position(check: str, max_length: int | None) -> int:
    """Return the last position to check."""
    if max_length is None:
        return LAST_POSITION
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 64:
        raise SettingError(
            f"{check} got max_length={max_length!r}, but needs a whole number of at least 64: how many positions the "
            "implementation supports."
        )
    return max_length - 1


def contiguous(end: int, count: int, last: int) -> Int64[Tensor, " tokens"]:
    """Return `count` consecutive positions that end at `end`, or at `last` where that is less."""
    end = min(end, last)
    return torch.arange(max(end - count + 1, 0), end + 1)


def sample(*shape: int, seed: int = 0) -> Float[Tensor, "..."]:
    """Sample numbers other than 0, exact in float16 and bfloat16, so small that the norm of a pair is at most 1."""
    generator = torch.Generator().manual_seed(seed)
    sixteenths = torch.randint(1, 12, shape, generator=generator)
    return sixteenths * torch.randint(0, 2, shape, generator=generator).mul(2).sub(1) / 16


@contextmanager
def in_bfloat16(module: nn.Module) -> Iterator[None]:
    """Convert a module to bfloat16, and restore its own tensors afterwards."""
    weights = [(weight, weight.data) for weight in module.parameters()]
    buffers = [(part, part._buffers.copy()) for part in module.modules()]
    module.bfloat16()
    try:
        yield
    finally:
        for weight, data in weights:
            weight.data = data
        for part, own in buffers:
            part._buffers.update(own)


@contextmanager
def weights_rounded(module: nn.Module) -> Iterator[None]:
    """Round the weights of a module to bfloat16, in their own type, and restore them afterwards."""
    weights = [(weight, weight.data) for weight in module.parameters()]
    for weight, data in weights:
        weight.data = data.bfloat16().to(data.dtype)
    try:
        yield
    finally:
        for weight, data in weights:
            weight.data = data


def converted(
    statement: str,
    why: str,
    module: nn.Module | None,
    whole: Callable[[], Tensor],
    fewer: Callable[[], Tensor],
    compare: Callable[[Tensor, Tensor], Measurement],
) -> Trial:
    """Return the law that converts the module behind an implementation; it comes last, since it leaves caches behind.

    Calls after the conversion have other, fewer inputs, so that no cache can answer.
    """

    def measure() -> Measurement:
        if module is None:
            raise NotSupported("no module was passed: pass module=")
        with weights_rounded(module):  # a learned angle may be rounded, a fixed one not
            before = whole()
        with in_bfloat16(module):
            after = fewer()
        return compare(before, after)

    return Trial("bfloat16 module", f"converting the module to bfloat16 {statement}", measure, why)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or ["no message"]
    return lines[0][:200]


# Errors of the laws: how far an implementation, ours or another, is from keeping each; the caller sets the tolerance.


def logit_error(
    first: Sequence[Float[Tensor, "*batch tokens mapped_dim"]],
    second: Sequence[Float[Tensor, "*batch tokens mapped_dim"]],
) -> Float64[Tensor, "*batch tokens tokens"]:
    """Return the difference of the logits <q_i, k_j> at two sets of positions, relative to |q_i| |k_j|."""
    logits = [q.double() @ k.double().mT for q, k in (first, second)]
    norms = [x.double().norm(dim=-1) for x in first]
    error: Tensor = (logits[0] - logits[1]).abs() / (norms[0][..., :, None] * norms[1][..., None, :])
    return error


def logit_tolerance(error: float) -> float:
    """Return the tolerance of logit_error, if queries and keys are off by at most `error` times the norm of each pair.

    Both features of a pair are off: the vector by sqrt(2) times the error, a logit by twice that, the difference of two
    logits by twice as much again.
    """
    return 4 * sqrt(2) * error


def norm_error(
    before: Float[Tensor, "*batch tokens features"], after: Float[Tensor, "*batch tokens features"], factor: float = 1.0
) -> Float64[Tensor, "*batch tokens"]:
    """Return the relative error of each vector's norm, which should be `factor` times the norm before."""
    relative: Tensor = after.double().norm(dim=-1) / (factor * before.double().norm(dim=-1)) - 1
    return relative.abs()


def permutation_error(
    encode: Encode, positions: Int64[Tensor, " tokens"], order: Int64[Tensor, " tokens"]
) -> Float64[Tensor, " tokens"]:
    """Return the largest difference of each row from the same row when the positions are permuted."""
    straight, permuted = encode(positions).double()[order], encode(positions[order]).double()
    return (permuted - straight).abs().amax(-1)


def inner_product_error(encode: Encode, distance: int, starts: Sequence[int]) -> Float64[Tensor, " starts"]:
    """Return the difference of <PE(p), PE(p + distance)> from that of the first p, for each p in `starts`."""
    products = []
    for start in starts:
        one, other = encode(torch.tensor([start, start + distance])).double()
        products.append(one @ other)
    stacked = torch.stack(products)
    return (stacked - stacked[0]).abs()


def repeated(
    biases: Float[Tensor, "heads keys"], exact: Float[Tensor, "heads keys"] | None = None
) -> Bool[Tensor, "heads keys"]:
    """Return whether each head has the same bias at an earlier key."""
    same = biases[:, :, None] == biases[:, None, :]
    if exact is not None:
        same &= exact[:, :, None] != exact[:, None, :]
    return same.tril(-1).any(-1)


# Functions of other arrays than those of PyTorch, such as NumPy, JAX or MLX have, as the checks take them.


def of_arrays(fn: Callable[..., Any], convert: Callable[[np.ndarray], Any] = np.asarray) -> Callable[..., Tensor]:
    """Return a function of tensors from a function of other arrays, for `check_rotary` and the other checks.

    What NumPy cannot hold, bfloat16 and gradients, is not asked of it: the laws about these then do not apply.

    Args:
        fn: takes and returns arrays: of NumPy, or of a library whose arrays NumPy or DLPack can read.
        convert: makes such arrays from those of NumPy: `jax.numpy.asarray`, `mlx.core.array`; NumPy's own stay as they
            are.

    Examples:
        >>> from whatwhere.testing import check_rotary
        >>> def rotate(x, positions):
        ...     angles = positions[:, None] * 10_000.0 ** (-np.arange(0, 8, 2) / 8)
        ...     cos, sin, (a, b) = np.cos(angles), np.sin(angles), np.split(x.astype(np.float64), 2, axis=-1)
        ...     return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1).astype(x.dtype)
        >>> report = check_rotary(of_arrays(rotate), head_dim=8)
        >>> report.passed, report["formula"].outcome
        (True, 'passes')
    """

    def of_tensors(*inputs: Tensor) -> Tensor:
        for x in inputs:
            if x.requires_grad:
                raise NotImplementedError("arrays record no gradients for PyTorch")
            if x.dtype == torch.bfloat16:
                raise NotImplementedError("NumPy has no bfloat16")
        result: Tensor = _as_tensor(fn(*(convert(x.detach().cpu().numpy()) for x in inputs)))
        return result  # what is not a tensor is named by the check

    return of_tensors


def _as_tensor(result: Any) -> Any:
    """Return an array as a tensor of its own memory; what is not an array is left to the check, which names it."""
    if isinstance(result, Tensor | str | bytes) or result is None:
        return result
    if hasattr(result, "__array__") or isinstance(result, np.ndarray):
        return torch.from_numpy(np.array(result))
    return from_dlpack(result).clone() if hasattr(result, "__dlpack__") else result
