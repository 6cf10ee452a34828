"""The results of a comparison as typed records: what results.json and the files of single runs hold."""

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from whatwhere import __version__
from whatwhere.comparison.settings import Settings


@dataclass(frozen=True)
class Machine:
    """The machine that the runs took place on."""

    processor: str
    cores: int
    system: str


def versions() -> dict[str, str]:
    """Return the versions of what numbers depend on."""
    return {
        "whatwhere": __version__,
        "torch": version("torch"),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def machine() -> Machine:
    """Describe this machine."""
    return Machine(_processor(), cores(), f"{platform.system()} {platform.machine()}")


def cores() -> int:
    """Count the cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def torchrun_rank() -> int | None:
    """Return the rank of this process among those that torchrun has started, or None without torchrun."""
    rank = os.environ.get("RANK", "") if "TORCHELASTIC_RUN_ID" in os.environ else ""
    return int(rank) if rank.isdecimal() else None


def share_of_cores() -> int:
    """Count the cores for each of the processes that torchrun has started on this machine, at least one."""
    processes = os.environ.get("LOCAL_WORLD_SIZE", "") if torchrun_rank() is not None else ""
    return max(1, cores() // int(processes)) if processes.isdecimal() and int(processes) else cores()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


ALL = "all"  # the group of all targets, in scores

Scores = Mapping[str, float | None]
"""Scores by group; None where a scheme has no row for a position, or no target belongs to the group."""


@dataclass(frozen=True)
class Spread:
    """The median over seeds, with the range."""

    median: float
    min: float
    max: float


@dataclass(frozen=True)
class ParameterCount:
    """Numbers that a model learns."""

    total: int  # of the whole model
    tokens: int | None  # of its token table; None of a model of the caller's own that has none, or several
    positions: int  # of its positional encoding


@dataclass(frozen=True)
class Shift:
    """What becomes of a model's answers when every position is shifted."""

    score: float | None  # of all targets; None where the scheme has no row for such positions
    largest_logit_change: float | None  # the largest absolute difference to the unshifted logits, or None


@dataclass(frozen=True)
class Statistics:
    """Mean, standard deviation and range of the numbers of a table."""

    mean: float
    std: float
    min: float
    max: float


@dataclass(frozen=True)
class TokenCosines:
    """Cosines between rows of the token table E of the expressions, or of what training wrote into it, E - E0.

    A number is missing where a row is zero.
    """

    max_min: float | None  # between the rows of Max and Min
    first_last: float | None  # between the rows of First and Last
    within_digits: float | None  # mean over all pairs of digits
    within_operators: float | None  # mean over all pairs of operators
    within_syntax: float | None  # mean over all pairs of brackets and the comma


@dataclass(frozen=True)
class TableSnapshot:
    """The token table of the expressions task at a share of the steps."""

    percent: int  # of the steps that are done
    table: Statistics  # of its numbers
    with_positions: Statistics | None  # of tokens plus positional vectors; None where positions are not added
    cosines: TokenCosines  # between its rows
    change_cosines: TokenCosines | None  # between the rows of what training wrote, E - E0; None at the start
    number_line: float | None  # |r| between 0, 1, ... 9 and the first principal component of the digits' E - E0


@dataclass(frozen=True)
class StartRecord:
    """The kept model that a run started from."""

    folder: str  # of its results, as it was passed
    scheme: str  # of its run
    seed: int  # of its run
    sha256: str  # of its file
    loaded: tuple[str, ...]  # tensors that were copied: those of equal names and shapes
    fresh: tuple[str, ...]  # tensors of the run that began anew
    unused: tuple[str, ...]  # tensors of the kept model that had no place


@dataclass(frozen=True)
class RunResult:
    """One run: one scheme, one seed, trained and measured."""

    scheme: str  # name of the scheme; of a variant with its settings, as in "rotary@dim=16"
    seed: int  # of tokens, layers and batches
    parameters: ParameterCount  # how many numbers the model learns
    steps: int  # optimizer steps
    seconds: float  # of training and measuring
    seconds_per_step: float  # of training alone
    losses: tuple[tuple[int, float], ...]  # (step, loss), about fifty of them
    scores: Mapping[int, Scores]  # by length, then by group
    in_length: float  # mean score over the trained lengths that can be tested
    shift: Mapping[int, Shift]  # by how far every position is shifted
    token_table: tuple[TableSnapshot, ...] = ()  # none for other tasks than the expressions
    file: str = ""  # the trained model, as safetensors, relative to the folder; "" where it was not saved
    trace: str = ""  # token tables by step and attention by distance, as safetensors, relative to the folder, or ""
    max_length: int = 0  # positions that the scheme was built for: the rows of a learned table
    base: str = ""  # the scheme that was built: its name without the settings that vary
    varied: Mapping[str, bool | int | float | str] = field(default_factory=dict)  # what differs from the comparison
    start: StartRecord | None = None  # the kept model that it started from; None of a run from the beginning
    own: bool = False  # the scheme was built by a function of the caller's own, which results do not hold
    held_out: tuple[tuple[int, float], ...] = ()  # (step, loss) of sequences that neither training nor any test has


@dataclass(frozen=True)
class SettingChoice:
    """In which of the settings that `vary` crosses a scheme with it is compared: that of the least held-out loss."""

    scheme: str  # as it was requested
    chosen: str  # the name of its runs in that setting
    losses: Mapping[str, float]  # by the name of the runs, the held-out loss after training, mean over the seeds


@dataclass(frozen=True)
class LossesSoFar:
    """The losses of a run by step: of a finished one, of one that is training, or none of one that will."""

    scheme: str
    seed: int
    steps: int  # once it is finished
    losses: tuple[tuple[int, float], ...] = ()
    finished: bool = False
    held_out: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class TokenProbability:
    """A token, and the probability that a model gives it."""

    token: str
    id: int
    probability: float


@dataclass(frozen=True)
class Fingerprint:
    """What a trained scheme assigns to each position."""

    label: str  # what a number is
    values: tuple[tuple[float | None, ...], ...]  # a row for each position or distance; None: not finite


@dataclass(frozen=True)
class DistanceCurves:
    """What a trained scheme makes of a distance between two positions."""

    label: str  # what a number is
    distances: tuple[int, ...]  # in tokens
    curves: Mapping[str, tuple[float | None, ...]]  # by name, one number for each distance; None where it is not finite


@dataclass(frozen=True)
class SchemeView:
    """The first layer's scheme of one run, as its training left it."""

    doors: tuple[str, ...]  # where it enters the Transformer: "input", "query_key", "score"
    fingerprint: Fingerprint | None  # None for a scheme without positions, or one that depends on content
    by_distance: DistanceCurves | None  # likewise


@dataclass(frozen=True)
class TokenizedText:
    """The tokenizer of a text, and what it made of it."""

    tokenizer: str  # the path of its tokenizer.json
    tokenizer_sha256: str  # of that file
    tokens: int  # number of ids of the whole text
    bytes_per_token: float  # of the whole text in UTF-8
    unknown: float | None  # share of ids that are the token for what is unknown; None where the tokenizer has none


@dataclass(frozen=True)
class TaskDescription:
    """What was trained and tested."""

    name: str  # of the task
    unit: str  # what lengths count
    measure: str  # "accuracy", or a loss such as "nats per byte"
    higher_is_better: bool  # of the measure
    trained: tuple[int, ...]  # lengths of training
    tested_in_length: tuple[int, ...]  # trained lengths that are tested, on sequences that training never showed
    lengths: tuple[int, ...]  # other lengths that are tested
    shift_length: int  # length of the shift test
    groups: tuple[str, ...]  # names of the groups of targets that are scored by themselves
    baselines: Mapping[str, Mapping[int, float]]  # scores of predictors that ignore positions, by name and length
    tokens: tuple[str, ...]  # the vocabulary, as it is shown
    identity: str  # what else two comparisons must share to be the same
    tokenized: TokenizedText | None = None  # the tokenizer of a text; None of a text of bytes, and of other tasks
    bytes_per_token: Mapping[int, float] = field(default_factory=dict)  # of a text, of what a test predicts, by length
    sequences: Mapping[int, int] = field(default_factory=dict)  # that are tested, by length; {} of an earlier whatwhere


@dataclass(frozen=True)
class ShiftSummary:
    """A shift over the seeds of a scheme; a part is None where any seed lacks it."""

    score: Spread | None
    largest_logit_change: Spread | None


@dataclass(frozen=True)
class Summary:
    """The runs of one scheme over its seeds; a spread is None where any seed lacks the number."""

    scores: Mapping[int, Mapping[str, Spread | None]]  # by length, then by group
    in_length: Spread  # over the trained lengths
    shift: Mapping[int, ShiftSummary]  # by how far every position is shifted
    parameters: ParameterCount  # the same for every seed
    seconds_per_step: Spread  # of training


@dataclass(frozen=True)
class ModelRecord:
    """A model of the caller's own, which results do not hold."""

    name: str  # of the function or class that builds it
    reads: tuple[str, ...]  # which it reads of the settings of a model: dim, layers, heads, feedforward, init, ...


@dataclass(frozen=True)
class Request:
    """What was passed to a comparison beside its settings, by which `whatwhere compare --repeat` repeats it."""

    files: tuple[str, ...]  # of a text
    tokenizer: str | None  # of a text, or None
    start: str | None  # results whose models the runs started from, or None
    modules: tuple[str, ...] | None  # of one's own: FILE.py:NAME, package.module:NAME; None where one is in neither
    against: str | None = None  # the scheme that all others are compared with, or None
    vary: Mapping[str, tuple[bool | int | float | str, ...]] = field(default_factory=dict)  # crossed with the schemes


@dataclass(frozen=True)
class ComparisonRecord:
    """The content of results.json."""

    format: str  # of the file
    version: int  # of the file
    created: str  # time of writing, in UTC
    seconds: float  # of the call that wrote it
    command: str | None  # that repeats the comparison; None where it cannot name what is the caller's own
    versions: Mapping[str, str]  # of the packages that numbers depend on
    machine: Machine  # where it ran
    device: str  # "cpu" or "cuda"
    threads_per_run: int  # of PyTorch
    settings: Settings  # every setting
    seeds: tuple[int, ...]  # in the order of the request
    task: TaskDescription  # what was trained and tested
    runs: tuple[RunResult, ...]  # one for each scheme and seed
    summary: Mapping[str, Summary]  # by scheme, in the order of the request
    schemes: Mapping[str, SchemeView]  # by name, of the first seed
    python: str = field(default="", kw_only=True)  # in results of an earlier whatwhere, the call that repeats it
    model: ModelRecord | None = field(default=None, kw_only=True)  # of the caller's own; None is our Transformer
    request: Request | None = field(default=None, kw_only=True)  # None in results of an earlier whatwhere
    choices: tuple[SettingChoice, ...] = field(default=(), kw_only=True)  # in which setting each scheme is compared
    sources: Mapping[str, str] = field(default_factory=dict, kw_only=True)  # of the caller's own schemes, as text


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return median, min and max; None where there is no value, or one is missing."""
    values = list(values)
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return Spread(statistics.median(known), min(known), max(known))


def summarize(runs: Sequence[RunResult]) -> Summary:
    """Summarize the runs of one scheme over its seeds."""
    first = runs[0]
    in_length, seconds = spread(run.in_length for run in runs), spread(run.seconds_per_step for run in runs)
    assert in_length is not None  # a number of every run
    assert seconds is not None
    return Summary(
        scores={
            length: {group: spread(run.scores[length][group] for run in runs) for group in groups}
            for length, groups in first.scores.items()
        },
        in_length=in_length,
        shift={
            shift: ShiftSummary(
                spread(run.shift[shift].score for run in runs),
                spread(run.shift[shift].largest_logit_change for run in runs),
            )
            for shift in first.shift
        },
        parameters=first.parameters,
        seconds_per_step=seconds,
    )
