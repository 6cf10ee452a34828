"""Ask an implementation, and judge what it says: what all checks share.

Three tolerances serve all laws. They are counted, not tuned, and stand for vectors whose pairs of features have length
1 at most.

    ROTATION          float64 angles; cosine, product and sum in float32, each rounded once, and as much again
    single(p)         besides, angles in float32, which are off by some 2**-24 of themselves at position p
    BFLOAT16          cosine, product and sum in bfloat16, each rounded once; the angle is not
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor, nn

from whatwhere.errors import SettingError
from whatwhere.testing.report import Finding

UNIT = 2.0**-24
"""Half a step of float32 below 1: what one rounding may cost."""

ROTATION = 6 * UNIT
ROTATION_WHY = "float32 rounds cosine, product and sum by 2**-24 each, and twice that is granted; the angle is exact"
SINGLE_WHY = "float32 rounds cosine, product and sum by 2**-24 each, and an angle at position p by some 4 p times that"
BFLOAT16 = 3 * 2.0**-8
BFLOAT16_WHY = "bfloat16 rounds cosine, product and sum by 2**-8 each; the angle is not to be rounded to it"


def single(position: int) -> float:
    """Give what an implementation with float32 angles may be off by, at positions up to this one."""
    return ROTATION + 4 * position * UNIT


class NotOffered(Exception):
    """The law does not apply: the implementation does not promise what it is about."""


class Faulty(Exception):
    """The implementation raised an error, or gave something of the wrong form."""


@dataclass(frozen=True)
class Law:
    """Name a law, say what it asks, and why its tolerance is what it is."""

    name: str
    statement: str
    why: str = ""


@dataclass(frozen=True, eq=False)
class Measured:
    """Hold how far an implementation is off.

    Args:
        errors: one for each place.
        places: the position or the distance at which each was met.
        tolerance: the largest allowed, for all or for each.
        note: says more where the law fails.
        remark: says more where it holds.
        unit: what a place is.
    """

    errors: Float64[Tensor, " places"]
    places: Int64[Tensor, " places"]
    tolerance: float | Float64[Tensor, " places"]
    note: Callable[[], str] = str
    remark: str = ""
    unit: Literal["position", "distance"] = "position"

    @property
    def shares(self) -> Float64[Tensor, " places"]:
        """Each error as a share of what is allowed; what is not a number counts as infinite."""
        return (self.errors / self.tolerance).nan_to_num(nan=inf, posinf=inf)

    @property
    def wrong(self) -> Bool[Tensor, " places"]:
        """Where more is off than allowed."""
        return self.shares > 1


@dataclass(frozen=True)
class Verdict:
    """Say whether a law holds that is not about a number, and the place where it fails first, if there is one."""

    holds: bool
    note: str = ""
    first: int | None = None
    unit: Literal["position", "distance"] = "position"


Trial = tuple[Law, Callable[[], Measured | Verdict]]


def judge(law: Law, found: Measured | Verdict) -> Finding:
    """Turn what was measured into a finding."""
    if isinstance(found, Verdict):
        if found.holds:
            return Finding(law.name, law.statement, "passes")
        return Finding(law.name, law.statement, "fails", first=found.first, unit=found.unit, note=found.note)
    wrong, worst = found.wrong, int(found.shares.argmax())
    error = found.errors.nan_to_num(nan=inf, posinf=inf)[worst].item()
    allowed = float(torch.as_tensor(found.tolerance).expand(len(found.errors))[worst])
    if not wrong.any():
        return Finding(law.name, law.statement, "passes", error, allowed, law.why, note=found.remark)
    first = min(found.places[wrong].tolist(), key=abs)
    return Finding(law.name, law.statement, "fails", error, allowed, law.why, first, found.unit, found.note())


def try_all(trials: Iterable[Trial]) -> tuple[Finding, ...]:
    """Try each law in turn; what an implementation raises is a finding too."""
    findings = []
    for law, measure in trials:
        try:
            findings.append(judge(law, measure()))
        except NotOffered as reason:
            findings.append(Finding(law.name, law.statement, "does not apply", note=str(reason)))
        except Faulty as fault:
            findings.append(Finding(law.name, law.statement, "fails", note=str(fault)))
    return tuple(findings)


def ask(fn: Callable[..., Tensor], *given: Tensor, gradient: bool = False, **options: Any) -> Tensor:
    """Call an implementation; what it raises is a fault, NotImplementedError the word that this is not offered."""
    try:
        with torch.set_grad_enabled(gradient):
            answer = fn(*given, **options)
    except (NotOffered, Faulty):
        raise
    except NotImplementedError as reason:
        raise NotOffered(f"the implementation does not offer this: {_first_line(reason)}") from reason
    except Exception as fault:
        raise Faulty(f"it raised {type(fault).__name__}: {_first_line(fault)}") from fault
    if not isinstance(answer, Tensor):
        raise Faulty(f"it gave a {type(answer).__name__}, but a tensor is needed")
    return answer


def require_shape(answer: Tensor, shape: tuple[int, ...], words: str) -> Tensor:
    """Raise Faulty unless the answer has the shape that is needed."""
    if tuple(answer.shape) != shape:
        raise Faulty(f"it gave shape {tuple(answer.shape)}, but {words} is needed, here {shape}")
    return answer


def require_longest(check: str, longest: int) -> None:
    """Raise SettingError where too few positions are promised to try the laws on."""
    if isinstance(longest, bool) or not isinstance(longest, int) or longest < 63:
        raise SettingError(
            f"{check} got longest={longest!r}, but needs a whole number of at least 63: the last position that the "
            "implementation serves."
        )


def stretch(end: int, count: int, longest: int) -> Int64[Tensor, " tokens"]:
    """Give so many neighboring positions, the last of them at the end, or at the longest where that comes first.

    >>> stretch(265, 3, longest=1_000)
    tensor([263, 264, 265])
    """
    last = min(end, longest)
    return torch.arange(max(last - count + 1, 0), last + 1)


def draw(*shape: int, seed: int = 0) -> Float[Tensor, "..."]:
    """Draw numbers other than 0 that float16 and bfloat16 hold exactly, so small that no pair of them is longer than 1.

    >>> x = draw(99)
    >>> bool((x.abs() <= 0.5**0.5).all() and (x.bfloat16().float() == x).all() and x.all())
    True
    """
    generator = torch.Generator().manual_seed(seed)
    sixteenths = torch.randint(1, 12, shape, generator=generator)
    return sixteenths * torch.randint(0, 2, shape, generator=generator).mul(2).sub(1) / 16


@contextmanager
def in_bfloat16(module: nn.Module) -> Iterator[None]:
    """Convert a module to bfloat16, and give it its own tensors back afterwards."""
    weights = [(weight, weight.data) for weight in module.parameters()]
    buffers = [
        (part, name, held) for part in module.modules() for name, held in part._buffers.items() if held is not None
    ]
    module.bfloat16()
    try:
        yield
    finally:
        for weight, data in weights:
            weight.data = data
        for part, name, held in buffers:
            part._buffers[name] = held


def _first_line(problem: Exception) -> str:
    lines = str(problem).strip().splitlines() or ["no message"]
    return lines[0][:200]
