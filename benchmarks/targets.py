"""The targets, all in this file, and whether they were met.

Every target is a ratio within one run. It is judged with pooled allocation unless it states otherwise.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.cases import decoding, loss, neighbors, start, token_step, training, window
from benchmarks.records import CandidateRecord, Results, VariantRecord
from benchmarks.timing import ratios

_TIMES = {"pooled": ("pooled", "caching"), "fresh": ("fresh",)}
Rows = Mapping[str, CandidateRecord]
"""The rows of a variant, by candidate."""


@dataclass(frozen=True)
class Target:
    """A bound on what is measured of a candidate.

    Args:
        case: its name.
        variant: a regular expression of the variants' names.
        candidate: whose row.
        kind: one of KINDS.
        bound: the limit of the kind's number.
        against: another candidate, where the kind needs one.
        regime: of allocation.
        floor: what limits it where it is missed, and what was tried.
        device: where it is judged.
    """

    case: str
    variant: str
    candidate: str
    kind: str
    bound: float
    against: str = ""
    regime: str = "pooled"
    floor: str = ""
    device: str = "cpu"

    @property
    def words(self) -> str:
        """The target in words."""
        words = KINDS[self.kind].words.format(bound=KINDS[self.kind].show(self.bound), against=self.against)
        return words + (", fresh allocation" if self.regime == "fresh" and self.case != start.CASE.name else "")


@dataclass(frozen=True)
class Verdict:
    """A target, and what was measured.

    Args:
        target: one of TARGETS.
        variant: the name of one that it is for.
        value: the kind's number; None where it was not measured.
    """

    target: Target
    variant: str
    value: float | None

    @property
    def met(self) -> bool | None:
        """Return whether it was met; None where nothing was measured."""
        if self.value is None:
            return None
        least = KINDS[self.target.kind].least
        return self.value >= self.target.bound if least else self.value <= self.target.bound

    @property
    def strain(self) -> float:
        """Return what was measured as a share of the bound: above 1 is missed, and the largest is the worst."""
        if self.value is None:
            return 0.0
        if KINDS[self.target.kind].least:
            return self.target.bound / self.value
        if self.target.bound == 0:
            return math.inf if self.value > 0 else 0.0
        return self.value / self.target.bound

    @property
    def words(self) -> str:
        """The number, and that it is met or by how much it is missed."""
        if self.value is None:
            return "not measured"
        show = KINDS[self.target.kind].show
        return f"{show(self.value)}, " + (
            "met" if self.met else f"missed by {show(abs(self.value - self.target.bound))}"
        )


@dataclass(frozen=True)
class Kind:
    """A kind of target: which number it bounds, and how that is computed from a variant.

    Args:
        words: with slots for `bound` and `against`.
        value: takes the target, the variant's rows by candidate, and the variant.
        show: writes the number.
        least: the bound is a minimum, not a maximum.
    """

    words: str
    value: Callable[[Target, Rows, VariantRecord], float | None]
    show: Callable[[float], str]
    least: bool = False


def verdicts(results: Results) -> Iterator[Verdict]:
    """Judge every target whose case was measured.

    Args:
        results: of a benchmark.

    Returns:
        A verdict for each target and variant; none of quick runs, which are too small to judge.
    """
    if results["settings"]["quick"]:
        return
    for target in (each for each in TARGETS if each.device == results["settings"]["device"]):
        record = results["cases"].get(target.case)
        for variant in record["variants"] if record else ():
            if not re.fullmatch(target.variant, variant["variant"]):
                continue
            rows = {row["candidate"]: row for row in variant["rows"]}
            if target.candidate in rows and (not target.against or target.against in rows):
                yield Verdict(target, variant["variant"], KINDS[target.kind].value(target, rows, variant))


def _rounds(target: Target, row: CandidateRecord) -> Sequence[float] | None:
    """Return the seconds of each round under the target's regime; on CUDA there is one for both."""
    for regime in _TIMES[target.regime]:
        if regime in row["regimes"]:
            return row["regimes"][regime]["rounds"]
    return None


def _both(target: Target, rows: Rows, other: str) -> tuple[Sequence[float], Sequence[float]] | None:
    mine, theirs = _rounds(target, rows[target.candidate]), _rounds(target, rows[other])
    return None if mine is None or theirs is None else (mine, theirs)


def _slower(target: Target, rows: Rows, variant: VariantRecord) -> float | None:
    pair = _both(target, rows, target.against or variant["rows"][0]["candidate"])
    return None if pair is None else median(ratios(*pair))


def _faster(target: Target, rows: Rows, variant: VariantRecord) -> float | None:
    pair = _both(target, rows, target.against)
    return None if pair is None else median(ratios(pair[1], pair[0]))


def _over(target: Target, rows: Rows, variant: VariantRecord) -> float | None:
    pair = _both(target, rows, target.against)
    return None if pair is None else median(a - b for a, b in zip(*pair, strict=True))


def _seconds(target: Target, rows: Rows, variant: VariantRecord) -> float | None:
    rounds = _rounds(target, rows[target.candidate])
    return None if rounds is None else median(rounds)


def _error(target: Target, rows: Rows, variant: VariantRecord) -> float | None:
    return rows[target.candidate]["error"]


def _peak(target: Target, rows: Rows, variant: VariantRecord) -> float | None:
    peak = rows[target.candidate]["peak"]
    return None if peak is None else peak / variant["unit"]


def _extra(target: Target, rows: Rows, variant: VariantRecord) -> float | None:
    """Return the peak beyond the limit's, in the variant's unit, or as a share of what the other needs beyond it."""
    mine, limit = rows[target.candidate]["peak"], variant["rows"][0]["peak"]
    if mine is None or limit is None:
        return None
    other = rows[target.against]["peak"] if target.against else limit + variant["unit"]
    return None if other is None or other <= limit else max(0.0, mine - limit) / (other - limit)


def _peak_than(target: Target, rows: Rows, variant: VariantRecord) -> float | None:
    mine, other = rows[target.candidate]["peak"], rows[target.against]["peak"]
    return None if mine is None or not other else mine / other


def _times(value: float) -> str:
    return f"{value:.3g} x"


def as_seconds(value: float) -> str:
    """Write seconds in the unit that fits.

    Args:
        value: seconds.

    Returns:
        The number and its unit.

    Examples:
        >>> as_seconds(0.00123), as_seconds(0.0000305), as_seconds(1.5)
        ('1.23 ms', '30.5 us', '1.5 s')
    """
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _small(value: float) -> str:
    return f"{value:.1e}"


KINDS: Mapping[str, Kind] = {
    "slower": Kind("<= {bound} the limit", _slower, _times),
    "slower than": Kind("<= {bound} {against}", _slower, _times),
    "faster": Kind(">= {bound} the speed of {against}", _faster, _times, least=True),
    "over": Kind("<= {bound} more than {against}", _over, as_seconds),
    "seconds": Kind("<= {bound}", _seconds, as_seconds),
    "error": Kind("error <= {bound}", _error, _small),
    "peak": Kind("peak <= {bound} the bytes of q and k (outputs and gradients, no copy kept)", _peak, _times),
    "peak than": Kind("peak <= {bound} of that of {against}", _peak_than, _percent),
    "extra": Kind("memory beyond the limit's <= {bound} one table of all pairs", _extra, _times),
    "share": Kind("memory beyond the limit's <= {bound} of that of {against}", _extra, _percent),
}

_LONG = "float32, 4,096 tokens, forward with backward"
_TABLE = "T5: SDPA, bias made in each call"  # transformers' way needs more still
_MOST_ROWS = "262,144 rows, .*"
_COPY = (
    "in place the rotation costs what the copy of the same bytes does; where transformers itself takes no more than 15 "
    "copies, nothing that reads and writes them can be 15 times as fast."
)
_NEW_PAGES = (
    "the system fills every page of a new tensor with zeros before the kernel writes it. That alone costs more than "
    "the rotation, in huge pages too; without new tensors, in place, there is no such cost."
)
_THREE_PASSES = (
    "the fallback is three operations of PyTorch, and each passes over all vectors: the lookup alone is near the "
    "limit, scaling and adding read and write them once more; in sixteen bits PyTorch also makes float32 of them and "
    "back. Doing it by blocks that fit the caches was tried, from 256 KiB to 8 MiB, and gained nothing."
)
_MORE_ROWS = (
    "with ids as frequent as words are, a batch touches more different rows of a larger table, and the step is as long "
    "as the rows are many; with uniform ids, where the number hardly grows, it is met."
)
_SOME_ROWS = (
    "scores, weights and the bias of 64 query rows at a time, which is 8 MB each, and their parts; half as many rows "
    "were tried and cost time. What the C library keeps makes the figure move by a percent from run to run."
)
_PRODUCT = (
    "one product in float32 of all queries and all rows takes four fifths of the time, so nothing that computes it is "
    "much faster. A scan of rows in 8 bits met it on processors with VNNI; it took 1,300 lines of Python and C++, and "
    "was given up."
)
_ROUNDING = (
    "missed in bfloat16 alone, without AVX-512: to round eight numbers takes six instructions there, and the kernel "
    "waits for these and not for the memory."
)
_BY_SLICES = (
    "some forty calls from Python to PyTorch and to the kernels, each one to three microseconds, by the processor: a "
    "target of 30 has room for fewer. To slice positions and bind them is more than half of it; a model does "
    "it once for all layers, and `next` and `append` cost less than slices: a step of four layers is the last variant."
)
_FASTER_COPY = (
    "the target was set on an Intel Xeon at 2.8 GHz, where it is met. On an AMD EPYC the copy, which is the limit, is "
    "up to twice as fast, and the arithmetic of the kernel is not: commit 5d47567, before the kernels were sorted into "
    "one table, takes the same milliseconds there."
)
_HIDDEN = (
    "FIRE's bias is a small network for each pair, whose hidden numbers are held for a chunk of queries. A kernel for "
    "FIRE alone took 2.9% and was given up: by chunks every bias is computed, without code of its own."
)
_IN_PARTS = (
    "products take nine tenths of the time in float32 and three quarters in bfloat16, by a profile. In float32 the "
    "gradient of the table is read and written once for each 64 MB of logits. In bfloat16 it is summed in float32, a "
    "part of the table at a time, for which logits are computed again: four products, not three, and exponentials "
    "twice. Where memory is new in each step (fresh), a tensor of all logits costs plain torch most of this."
)
ON_CPU: tuple[Target, ...] = (
    Target("rotary", "float32, .*", "whatwhere", "slower", 1.35, floor=_FASTER_COPY),
    Target("rotary", "bfloat16, .*", "whatwhere", "slower", 1.55, floor=_FASTER_COPY),
    Target("rotary", ".*, forward", "whatwhere, in place", "slower", 1.1, floor=_FASTER_COPY),
    Target("rotary", ".*", "whatwhere", "faster", 4.5, "transformers", floor=_ROUNDING),
    Target("rotary", ".*, forward", "whatwhere, in place", "faster", 15.0, "transformers", regime="fresh", floor=_COPY),
    Target("rotary", ".*", "whatwhere", "faster", 15.0, "transformers", regime="fresh", floor=_NEW_PAGES),
    Target("rotary", ".* with backward", "whatwhere", "peak", 2.1),
    Target("lookup", ".*", "whatwhere", "slower", 1.4, floor=_FASTER_COPY),
    Target("lookup", ".*", "whatwhere, fallback", "slower", 1.9, floor=_THREE_PASSES),
    Target("lookup", ".*", "whatwhere", "faster", 2.0, "plain torch, embedding * s + positions", floor=_ROUNDING),
    Target("token-step", ".*", "whatwhere RowAdamW", "slower", 3.0),
    Target("token-step", _MOST_ROWS, "whatwhere RowAdamW", "slower than", 1.6, token_step.FEW_ROWS, floor=_MORE_ROWS),
    Target("token-step", _MOST_ROWS, "whatwhere RowAdamW", "faster", 20.0, "torch AdamW, fused"),
    Target("token-step", _MOST_ROWS, "whatwhere RowAdamW", "faster", 1.0, "torch SparseAdam (computes something else)"),
    Target("attention", _LONG, "ALiBi: whatwhere", "slower", 1.3),
    Target("attention", _LONG, "ALiBi: whatwhere", "extra", 1.0),
    *(Target("attention", _LONG, f"{name}: whatwhere", "slower", 2.5) for name in ("T5", "KERPLE")),
    *(
        Target("attention", _LONG, f"{name}: whatwhere", "share", 0.02, _TABLE, floor=floor)
        for name, floor in (("T5", _SOME_ROWS), ("KERPLE", _SOME_ROWS), ("FIRE", _HIDDEN))
    ),
    Target("window", "float32, 8,192 .*", "whatwhere", "faster", 4.0, window.MASKED),
    Target("window", "float32, 8,192 .*", "whatwhere", "slower", 0.5),
    Target("window", ".* with backward", "whatwhere", "faster", 3.0, window.MASKED),
    Target("position-table", ".*", "whatwhere", "faster", 5.0, "plain torch, float32 angles"),
    Target("position-table", ".*", "whatwhere", "error", 1.5e-7),
    Target("decoding", "float.*|bfloat.*", "whatwhere", "over", 30e-6, decoding.INDEXING, floor=_BY_SLICES),
    *(Target("decoding", "a step .*", ours, "slower", 1.15) for ours in ("whatwhere", "whatwhere, with the cache")),
    Target("loss", ".*, 128,256 rows", "whatwhere", "slower", 1.05, floor=_IN_PARTS),
    Target("loss", ".*, 8,192 rows", "whatwhere", "slower", 1.1, floor=_IN_PARTS),
    Target("loss", ".*, 128,256 rows", "whatwhere", "peak than", 0.15, loss.PLAIN),
    Target(
        "neighbors", ".* queries, .*", "whatwhere", "faster", 15.0, neighbors.GENSIM, regime="fresh", floor=_PRODUCT
    ),
    Target("neighbors", ".*", "whatwhere", "error", 0.0, regime="fresh"),
    Target("start", ".*", start.ON_TOP, "over", 50e-3, start.TORCH, regime="fresh"),
    Target("start", ".*", start.HELP, "seconds", 0.3, regime="fresh"),
    *(
        Target("training", ".*", f"whatwhere compare, {scheme}", "faster", 1.4, training.PLAIN)
        for scheme in ("learned", "rotary")
    ),
)

# On a GPU, beside the best of the others. What limits what was missed was measured on code d9d4c0092fab.
_LAUNCHES = (
    "a launch from Python took 30 to 60 us, the kernel itself 15 to 50 us; q and k were two launches forward and two "
    "backward. torch.compile, which launches fewer kernels, was ahead. Since then both are one launch, and a kernel "
    "that ran before is started without Triton's reading all of its arguments again: not measured yet."
)
_ONE_LAUNCH = (
    "a launch from Python took 30 to 60 us, more than three operations of PyTorch for small inputs. Since then PyTorch "
    "computes these, and a launch is cheaper: not measured yet."
)
_PAIRS = (
    "the bias was a table of all pairs, and the gradient of T5's was summed by sorting all pairs. Since then there is "
    "no such table: FlexAttention is compiled for the bias, with a mask of tiles: not measured yet."
)
_WAITS = (
    "the GPU was waited for several times in a step, about 4 ms whatever the size. Since then a step waits for nothing "
    "and is six launches: not measured yet."
)


def _on_gpu(
    case: str, variant: str, candidate: str, kind: str, bound: float, against: str = "", floor: str = ""
) -> Target:
    return Target(case, variant, candidate, kind, bound, against, floor=floor, device="cuda")


ON_GPU: tuple[Target, ...] = (
    _on_gpu("rotary", "bfloat16, .*, forward", "whatwhere", "slower", 1.6, floor=_LAUNCHES),
    _on_gpu("rotary", "bfloat16, .* with backward", "whatwhere", "slower", 3.0, floor=_LAUNCHES),
    _on_gpu("rotary", ".*, half, .*", "whatwhere", "slower than", 1.0, "liger-kernel", _LAUNCHES),
    _on_gpu("rotary", ".*", "whatwhere", "slower than", 1.0, "transformers", _LAUNCHES),
    _on_gpu("rotary", ".*, interleaved, .*", "whatwhere", "slower than", 1.0, "plain torch, complex", _LAUNCHES),
    _on_gpu("rotary", "bfloat16, .*, forward", "whatwhere, torch.compile", "slower", 1.25),
    _on_gpu("rotary", "bfloat16, .* with backward", "whatwhere, torch.compile", "slower", 1.6),
    _on_gpu("rotary", ".*", "whatwhere, torch.compile", "slower than", 1.0, "transformers, torch.compile"),
    # Binding, once for 24 layers, costs at most a tenth of their rotations: 24 x 0.1 more than one rotation.
    _on_gpu("rotary", ".*, forward", "whatwhere, bound in each call", "slower than", 3.4, "whatwhere", _LAUNCHES),
    _on_gpu("lookup", ".*", "whatwhere", "slower than", 1.0, "plain torch, embedding * s + positions", _ONE_LAUNCH),
    _on_gpu("lookup", ".* dim 4096, .*", "whatwhere", "slower", 1.6, floor=_ONE_LAUNCH),
    _on_gpu("lookup", ".* dim 4096, .*", "whatwhere, bound in each call, torch.compile", "slower", 1.3),
    *(
        _on_gpu(
            "attention",
            rf"bfloat16, (4,096|16,384) tokens, {way}",
            f"{scheme}: whatwhere",
            "slower",
            bound,
            floor=_PAIRS,
        )
        for scheme in ("ALiBi", "KERPLE", "T5")
        for way, bound in (("forward", 1.5), ("forward with backward", 1.8))
    ),
    _on_gpu("attention", r"bfloat16, (4,096|16,384) tokens, .*", "FIRE: whatwhere", "slower", 3.0, floor=_PAIRS),
    *(
        _on_gpu(
            "attention", r"bfloat16, (4,096|16,384) tokens, .*", f"{scheme}: whatwhere", "extra", 0.05, floor=_PAIRS
        )
        for scheme in ("ALiBi", "KERPLE", "T5")
    ),
    *(
        _on_gpu("window", f"bfloat16, .*, {way}", f"whatwhere{what}", "slower", bound)
        for what in ("", ", and a sink")
        for way, bound in (("forward", 1.5), ("forward with backward", 1.8))
    ),
    _on_gpu("token-step", "8,192 rows, .*", "whatwhere RowAdamW", "seconds", 300e-6, floor=_WAITS),
    _on_gpu("token-step", _MOST_ROWS, "whatwhere RowAdamW", "faster", 3.0, "torch AdamW, fused", _WAITS),
    _on_gpu("loss", ".*", "whatwhere", "slower than", 1.3, "liger-kernel"),
    _on_gpu("loss", ".*", "whatwhere", "peak than", 1.0, "liger-kernel"),
    _on_gpu("decoding", "a step .*", "whatwhere", "over", 20e-6, decoding.MODEL),
    _on_gpu("decoding", "a step .*", "whatwhere, CUDA graph", "over", 20e-6, "plain torch, CUDA graph"),
)

TARGETS = (*ON_CPU, *ON_GPU)
